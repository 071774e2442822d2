use std::collections::BTreeMap;

use serde_json::{Value, json};
use skewbench_exec::{Instr, InstrKind, PassProgram, Program};
use skewbench_plan::{COMPUTE, Pass, Plan};

use super::Event;
use super::describe::Describer;

/// How a trace is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Whose clock the times are of, for example "simulated, profile h200".
    pub clock: String,
    /// Tiles and peers that are listed for one slice at most.
    pub listed: usize,
    /// Arrows from sends to receives at most.
    pub arrows: usize,
    /// Bytes of the trace at most; the metadata of the tracks is written in any case.
    pub max_bytes: usize,
}

impl TraceOptions {
    /// 32 tiles or peers a slice, 20,000 arrows, 256 MB.
    pub fn new(clock: impl Into<String>) -> Self {
        Self { clock: clock.into(), listed: 32, arrows: 20_000, max_bytes: 256_000_000 }
    }
}

/// An event with its instruction, in whole nanoseconds.
struct Slice<'a> {
    event: &'a Event,
    instr: &'a Instr,
    /// Launches before it on its stream.
    nth: usize,
    start: u64,
    end: u64,
}

/// Writes the events of a wave. Events of instructions that the program does not have are left out and counted.
pub fn write_trace(plan: &Plan, program: &Program, events: &[Event], options: &TraceOptions) -> String {
    let (slices, unknown) = slices(program, events);
    let mut listed = options.listed;
    loop {
        let trace = Writer { plan, program, options, slices: &slices, unknown, listed }.write();
        match trace {
            Ok(text) => return text,
            Err(cut) if listed == 0 => return cut,
            Err(_) => listed /= 4,
        }
    }
}

/// Slices in order of time; of one track in order of execution.
fn slices<'a>(program: &'a Program, events: &'a [Event]) -> (Vec<Slice<'a>>, usize) {
    let launches = launches_before(program);
    let slice = |event: &'a Event| {
        let rank = program.pass(event.pass).ranks.get(event.rank as usize)?;
        let instr = rank.streams.get(event.instr.stream as usize)?.get(event.instr.index as usize)?;
        let track = launches.get(&(event.pass, event.rank, event.instr.stream))?;
        let start = event.start_ps / 1000;
        Some(Slice {
            event,
            instr,
            nth: *track.get(event.instr.index as usize)?,
            start,
            end: (event.end_ps / 1000).max(start),
        })
    };
    let mut slices: Vec<Slice<'_>> = events.iter().filter_map(slice).collect();
    let unknown = events.len() - slices.len();
    slices.sort_by_key(|s| (s.start, s.event.rank, s.event.instr.stream, s.event.pass, s.event.instr.index));
    (slices, unknown)
}

fn launches_before(program: &Program) -> BTreeMap<(Pass, u32, u32), Vec<usize>> {
    let mut all = BTreeMap::new();
    for pass in [Pass::Forward, Pass::Backward] {
        for (rank, streams) in (0u32..).zip(&program.pass(pass).ranks) {
            for (stream, instrs) in (0u32..).zip(&streams.streams) {
                let mut seen = 0;
                let before = instrs.iter().map(|instr| {
                    let launch = usize::from(matches!(instr.kind, InstrKind::Launch { .. }));
                    seen += launch;
                    seen - launch
                });
                all.insert((pass, rank, stream), before.collect());
            }
        }
    }
    all
}

struct Writer<'a> {
    plan: &'a Plan,
    program: &'a Program,
    options: &'a TraceOptions,
    slices: &'a [Slice<'a>],
    unknown: usize,
    listed: usize,
}

impl Writer<'_> {
    /// The trace; an error holds one that is cut to the size.
    fn write(&self) -> Result<String, String> {
        let describer = Describer::new(self.plan, self.program, self.listed);
        let mut out = Out { text: "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n".to_owned(), first: true };
        self.tracks(&mut out);
        let mut left_out = 0;
        for slice in self.slices {
            let (pass, rank, stream) = (slice.event.pass, slice.event.rank, slice.event.instr.stream);
            let described = describer.describe(pass, rank, stream, slice.instr, slice.nth);
            let before = out.text.len();
            out.push(&json!({
                "ph": "X", "name": described.name, "cat": described.category, "pid": rank, "tid": stream,
                "ts": micros(slice.start), "dur": micros(slice.end - slice.start), "args": described.args,
            }));
            if out.text.len() + TAIL > self.options.max_bytes {
                out.text.truncate(before);
                left_out += 1;
                if self.listed > 0 {
                    break;
                }
            }
        }
        let arrows = if left_out == 0 { self.arrows(&mut out) } else { 0 };
        let other = json!({
            "planner": self.plan.planner, "clock": self.options.clock, "slices_left_out": left_out,
            "events_of_unknown_instructions": self.unknown, "arrows_left_out": arrows,
            "listed_tiles_or_peers": self.listed,
        });
        out.text.push_str("\n],\"otherData\":");
        out.text.push_str(&other.to_string());
        out.text.push('}');
        if left_out == 0 { Ok(out.text) } else { Err(out.text) }
    }

    /// Names and order of processes and tracks.
    fn tracks(&self, out: &mut Out) {
        for rank in 0..self.program.ranks {
            let name = format!("rank {rank} ({})", self.options.clock);
            out.push(&metadata("process_name", rank, None, json!({ "name": name })));
            out.push(&metadata("process_sort_index", rank, None, json!({ "sort_index": rank })));
            let streams = |pass: &PassProgram| pass.ranks.get(rank as usize).map_or(0, |r| r.streams.len());
            for stream in 0..streams(&self.program.forward).max(streams(&self.program.backward)) as u32 {
                let name =
                    if stream == u32::from(COMPUTE) { "compute".to_owned() } else { format!("transfer {stream}") };
                out.push(&metadata("thread_name", rank, Some(stream), json!({ "name": name })));
                out.push(&metadata("thread_sort_index", rank, Some(stream), json!({ "sort_index": stream })));
            }
        }
    }

    /// Arrows from the start of a send to the end of its receive; returns how many found no room.
    fn arrows(&self, out: &mut Out) -> usize {
        let mut posts: BTreeMap<(Pass, u32, u32), &Slice<'_>> = BTreeMap::new();
        for slice in self.slices {
            if let InstrKind::Transfer { call } = slice.instr.kind {
                posts.insert((slice.event.pass, call, slice.event.rank), slice);
            }
        }
        let (mut id, mut left_out) = (0usize, 0);
        for (&(pass, call, from), sender) in &posts {
            let program = self.program.pass(pass);
            let parts = program.calls.get(call as usize).map(|c| c.parts.as_slice()).unwrap_or_default();
            let mut peers: Vec<u32> = Vec::new();
            for routes in parts.iter().filter_map(|part| program.routes.get(part.routes as usize)) {
                let start = routes.flows.partition_point(|flow| flow.from < from);
                let flows = routes.flows.get(start..).unwrap_or_default();
                peers.extend(flows.iter().take_while(|flow| flow.from == from).map(|flow| flow.to));
            }
            peers.sort_unstable();
            peers.dedup();
            for to in peers {
                let Some(receiver) = posts.get(&(pass, call, to)) else { continue };
                // The arrow ends inside the slice that it belongs to, which an empty slice does not have.
                let end = receiver.end.saturating_sub(1).max(receiver.start);
                if sender.start == sender.end || receiver.start == receiver.end || end < sender.start {
                    continue;
                }
                if id >= self.options.arrows || out.text.len() + 2 * TAIL > self.options.max_bytes {
                    left_out += 1;
                    continue;
                }
                for (phase, slice, at) in [("s", *sender, sender.start), ("f", *receiver, end)] {
                    let mut arrow = json!({
                        "ph": phase, "name": "transfer", "cat": "transfer", "id": id, "pid": slice.event.rank,
                        "tid": slice.event.instr.stream, "ts": micros(at),
                    });
                    if phase == "f" {
                        arrow["bp"] = json!("e");
                    }
                    out.push(&arrow);
                }
                id += 1;
            }
        }
        left_out
    }
}

/// Bytes that the end of a trace takes at most, without the clock's name.
const TAIL: usize = 1024;

/// Nanoseconds in microseconds.
fn micros(ns: u64) -> Value {
    if ns.is_multiple_of(1000) { json!(ns / 1000) } else { json!(ns as f64 / 1000.0) }
}

fn metadata(what: &str, rank: u32, stream: Option<u32>, args: Value) -> Value {
    json!({ "ph": "M", "name": what, "pid": rank, "tid": stream.unwrap_or(0), "ts": 0, "args": args })
}

/// A JSON list that is written event by event, one a line.
struct Out {
    text: String,
    first: bool,
}

impl Out {
    fn push(&mut self, event: &Value) {
        if !self.first {
            self.text.push_str(",\n");
        }
        self.first = false;
        self.text.push_str(&event.to_string());
    }
}
