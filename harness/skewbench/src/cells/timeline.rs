use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Add;

use skewbench_exec::InstrKind;
use skewbench_plan::{PackedSequence, Pass, PlacedStep};
use skewbench_sim::{Runs, simulate};
use skewbench_store::{Column, StoreError, StrColumn, Table};

use super::clock::Phase;
use super::in_order::in_order;
use super::prepare::nodes;
use super::waves::{Bench, OnCards, StepRows};
use crate::failure::Failure;
use crate::trace::of_times;

/// What ranks did over time in the slowest wave of the first step, one row a stretch.
pub const TIMELINE_TABLE: &str = "timeline";

/// Ranks that are kept at most.
const RANKS: usize = 128;
/// Gaps shorter than this part of the wave are closed.
const RESOLUTION: u64 = 800;

/// What a rank is busy with.
const FORWARD: &str = "forward";
const BACKWARD: &str = "backward";
const LOCAL: &str = "local";
const TRANSFER: &str = "transfer";

/// Stretches of one activity of one rank.
type Stretches = BTreeMap<(u32, &'static str), Vec<(u64, u64)>>;

/// The slowest wave of a step: the first of those that take longest.
pub(super) fn slowest(rows: &StepRows) -> u32 {
    let mut slowest = (0, 0);
    for row in &rows.rows {
        let time = row.forward_ps.saturating_add(row.backward_ps);
        if time > slowest.1 {
            slowest = (row.wave, time);
        }
    }
    slowest.0
}

impl Bench<'_> {
    /// The timeline of a wave of a placed step. Each domain starts its backward when its last rank has ended the forward. Of more
    /// than [`RANKS`] ranks an even selection is kept, with the CP group of the last one to end.
    pub(super) fn timeline(&self, placed: &PlacedStep, wave: u32) -> Result<Table, Failure> {
        let members = placed.waves.get(wave as usize).ok_or_else(|| Failure::internal("a wave that the step lacks"))?;
        let domains = placed.domains(self.system.planner().scope(), self.cell.layout.dp);
        let parts = in_order(domains.len(), |i| {
            let range = &domains[i];
            let sequences: Vec<&PackedSequence> = members.sequences[range.start as usize..range.end as usize]
                .iter()
                .map(|s| &placed.sequences[*s as usize])
                .collect();
            self.domain_timeline(range.start, &sequences)
        })?;
        let all: Stretches = parts.into_iter().flatten().collect();
        let end = |rank: u32| {
            let of_rank = all.iter().filter(|((r, _), _)| *r == rank).flat_map(|(_, stretches)| stretches);
            of_rank.map(|(_, end)| *end).max().unwrap_or(0)
        };
        let ranks = self.cell.layout.dp * self.cell.layout.cp;
        let wave_ps = all.values().flatten().map(|(_, end)| *end).max().unwrap_or(0);
        let straggler = (0..ranks).rev().max_by_key(|rank| end(*rank)).unwrap_or(0);
        let group = straggler / self.cell.layout.cp;
        let every = (ranks as usize).div_ceil(RANKS) as u32;
        let kept = |rank: u32| rank.is_multiple_of(every) || rank / self.cell.layout.cp == group;
        let rows = all.iter().filter(|((rank, _), _)| kept(*rank)).flat_map(|((rank, activity), s)| {
            joined(s, wave_ps / RESOLUTION).into_iter().map(|s| (*rank, *activity, s))
        });
        table(wave, &rows.collect::<Vec<_>>()).map_err(Failure::internal)
    }

    fn domain_timeline(&self, first: u32, sequences: &[&PackedSequence]) -> Result<Stretches, Failure> {
        let nodes = nodes(&self.cell.layout, first, sequences.len() as u32);
        let OnCards { made, machine } = self.on_cards(first, sequences, nodes)?;
        let runs = Runs { trace: true, ..Runs::default() };
        let times =
            self.clock.time(Phase::Simulate, || simulate(&made.program, &machine, runs)).map_err(Failure::internal)?;
        let mut all = Stretches::new();
        for event in of_times(&times) {
            let rank = made.program.pass(event.pass).ranks.get(event.rank as usize);
            let stream = rank.and_then(|r| r.streams.get(event.instr.stream as usize));
            let Some(instr) = stream.and_then(|s| s.get(event.instr.index as usize)) else { continue };
            let activity = match (&instr.kind, event.pass) {
                (InstrKind::Transfer { .. }, _) => TRANSFER,
                (InstrKind::Launch { .. } | InstrKind::Linear { .. }, Pass::Forward) => FORWARD,
                (InstrKind::Launch { .. } | InstrKind::Linear { .. }, Pass::Backward) => BACKWARD,
                _ => LOCAL,
            };
            let rank = first * self.cell.layout.cp + event.rank;
            all.entry((rank, activity)).or_default().push((event.start_ps, event.end_ps));
        }
        Ok(all)
    }
}

/// Stretches in order, those with at most `gap` between them as one.
pub fn joined<T: Copy + PartialOrd + Add<Output = T>>(stretches: &[(T, T)], gap: T) -> Vec<(T, T)> {
    let mut sorted = stretches.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    let mut out: Vec<(T, T)> = Vec::new();
    for (start, end) in sorted {
        match out.last_mut() {
            Some(last) if start <= last.1 + gap => {
                if end > last.1 {
                    last.1 = end;
                }
            }
            _ => out.push((start, end)),
        }
    }
    out
}

fn table(wave: u32, rows: &[(u32, &'static str, (u64, u64))]) -> Result<Table, StoreError> {
    let mut activities = StrColumn::new();
    for (_, activity, _) in rows {
        activities.push(activity);
    }
    Table::from_columns([
        ("wave", Column::U32(vec![wave; rows.len()])),
        ("rank", Column::U32(rows.iter().map(|r| r.0).collect())),
        ("activity", Column::Str(activities)),
        ("start_ps", Column::U64(rows.iter().map(|r| r.2.0).collect())),
        ("end_ps", Column::U64(rows.iter().map(|r| r.2.1).collect())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_are_closed() {
        assert_eq!(joined(&[(20, 30), (0, 5), (6, 10), (25, 28)], 1), [(0, 10), (20, 30)]);
        assert_eq!(joined(&[(0, 5), (5, 6)], 0), [(0, 6)]);
        assert!(joined(&[], 3).is_empty());
    }
}
