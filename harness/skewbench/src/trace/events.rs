use std::collections::BTreeMap;

use skewbench_exec::{InstrId, TraceEvent};
use skewbench_plan::Pass;
use skewbench_sim::WaveTimes;

/// One instruction that a backend ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Pass of the program.
    pub pass: Pass,
    /// Rank.
    pub rank: u32,
    /// The instruction, by its place on the rank.
    pub instr: InstrId,
    /// When it started, in picoseconds since the start of the wave.
    pub start_ps: u64,
    /// When it ended.
    pub end_ps: u64,
}

/// The events of a simulated wave; the backward starts when the last rank has ended its forward.
pub fn of_times(times: &WaveTimes) -> Vec<Event> {
    of_traces(&times.forward.trace, &times.backward.trace)
}

/// The events of both passes of a wave, each in order of their end; the backward starts when the last rank has ended its
/// forward.
pub fn of_traces(forward: &[TraceEvent], backward: &[TraceEvent]) -> Vec<Event> {
    let mut events = Vec::new();
    let end = forward.iter().map(|event| event.end_ps).max().unwrap_or(0);
    for (pass, trace, shift) in [(Pass::Forward, forward, 0), (Pass::Backward, backward, end)] {
        // Streams run in order, so the instructions of one end in the order in which they stand on it.
        let mut next: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for event in trace {
            let index = next.entry((event.rank, event.stream)).or_default();
            events.push(Event {
                pass,
                rank: event.rank,
                instr: InstrId { stream: event.stream, index: *index },
                start_ps: shift.saturating_add(event.start_ps),
                end_ps: shift.saturating_add(event.end_ps),
            });
            *index += 1;
        }
    }
    events
}
