use std::collections::BTreeMap;

use skewbench_report::{Activity, Axis, Cell, Column, Figure, Kind, Lane, Mark, Panel, Scale, Span, Table};
use skewbench_store::StoreError;

use super::Loaded;
use super::validation::slug;
use crate::cells::{CellSpec, TIMELINE_TABLE, WavesCell, joined};

const MS: f64 = 1e-9;

/// The slowest wave of the first step of a system on a workload, over time; nothing where the run did not keep it.
pub(super) fn timeline(loaded: &Loaded, slot: usize, dataset: &str) -> Option<Figure> {
    let spec = loaded.expanded.cells.get(slot)?;
    let CellSpec::Waves(cell) = spec else { return None };
    let table = loaded.table(TIMELINE_TABLE, spec).ok()?;
    let wave = Wave::of(table).ok().filter(|wave| !wave.ranks.is_empty())?;
    Some(wave.figure(cell, dataset))
}

/// Spans of the ranks that were kept.
struct Wave {
    wave: u32,
    ranks: BTreeMap<u32, Vec<Span>>,
}

/// Time of a group's ranks in milliseconds.
#[derive(Default)]
struct Times {
    end: f64,
    kernels: f64,
    exposed: f64,
}

impl Wave {
    fn of(table: &skewbench_store::Table) -> Result<Self, StoreError> {
        let (rank, activity) = (table.u32("rank")?, table.str("activity")?);
        let (start, end) = (table.u64("start_ps")?, table.u64("end_ps")?);
        let mut ranks: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for row in 0..table.rows() {
            let activity = match activity.get(row) {
                Some("forward") => Activity::Forward,
                Some("backward") => Activity::Backward,
                Some("transfer") => Activity::Transfer,
                _ => Activity::Local,
            };
            let span = Span { start: start[row] as f64 * MS, end: end[row] as f64 * MS, activity };
            ranks.entry(rank[row]).or_default().push(span);
        }
        Ok(Self { wave: table.u32("wave")?.first().copied().unwrap_or(0), ranks })
    }

    fn end(spans: &[Span]) -> f64 {
        spans.iter().map(|s| s.end).fold(0.0, f64::max)
    }

    /// The first rank of those that end last.
    fn straggler(&self) -> u32 {
        let mut last = (0, 0.0);
        for (rank, spans) in &self.ranks {
            let end = Self::end(spans);
            if end > last.1 {
                last = (*rank, end);
            }
        }
        last.0
    }

    fn figure(&self, cell: &WavesCell, dataset: &str) -> Figure {
        let (dp, cp) = (cell.layout.dp, cell.layout.cp);
        let straggler = self.straggler();
        let group = straggler / cp;
        let ends: Vec<f64> = self.ranks.values().map(|s| Self::end(s)).collect();
        let (last, mean) = (ends.iter().copied().fold(0.0, f64::max), ends.iter().sum::<f64>() / ends.len() as f64);
        let lane = |rank: u32, spans: &Vec<Span>, label: String| Lane {
            label,
            straggler: rank == straggler,
            spans: spans.clone(),
        };
        let all = self.ranks.iter().map(|(rank, spans)| {
            let first = rank % cp == 0 || *rank == straggler;
            lane(*rank, spans, if first { format!("rank {rank}") } else { String::new() })
        });
        let close = self.ranks.iter().filter(|(rank, _)| *rank / cp == group);
        let close = close.map(|(rank, spans)| lane(*rank, spans, format!("rank {rank}")));
        let axis = || Axis { label: "time".into(), unit: "ms".into(), scale: Scale::Linear, ..Axis::default() };
        let panel = |title: String, lanes: Vec<Lane>| Panel {
            title,
            x: axis(),
            y: Axis::default(),
            marks: vec![Mark::Timeline { lanes }],
        };
        let mut panels = vec![panel(format!("All ranks: {dp} groups of {cp}"), all.collect())];
        if dp > 1 && cp > 1 {
            panels.push(panel(format!("The straggler's group: data-parallel rank {group}"), close.collect()));
        }
        let kept = if (self.ranks.len() as u32) < dp * cp {
            format!(" An even selection of {} ranks is shown.", self.ranks.len())
        } else {
            String::new()
        };
        Figure {
            id: format!("wave-{}-{}", slug(&cell.system), slug(dataset)),
            title: format!("A wave over time on {dataset}"),
            description: format!(
                "Each lane is a rank, time runs to the right. {} of {} ranks are done in half of the time of the last one. Rank {straggler} ends last, after {last:.1} ms; the mean rank ends after {mean:.1} ms.",
                ends.iter().filter(|e| **e <= 0.5 * last).count(),
                ends.len()
            ),
            kind: Kind::Simulated,
            panels,
            caption: format!(
                "The slowest wave of the first step (wave {}), forward then backward of one layer's attention, simulated on profile {}. Rank {straggler} is the straggler: it ends after {last:.1} ms, the mean rank after {mean:.1} ms. Sampled: what is seen is what a rank does most of that time.{kept}",
                self.wave, cell.machine.profile
            ),
            systems: vec![cell.system.clone()],
            workloads: vec![dataset.to_owned()],
            table: self.table(cp, last),
            ..Figure::default()
        }
    }

    /// One row a data-parallel rank.
    fn table(&self, cp: u32, last: f64) -> Table {
        let mut groups: BTreeMap<u32, Vec<Times>> = BTreeMap::new();
        for (rank, spans) in &self.ranks {
            groups.entry(rank / cp).or_default().push(times(spans));
        }
        let rows = groups.iter().map(|(group, times)| {
            let mean = |of: fn(&Times) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
            let end = times.iter().map(|t| t.end).fold(0.0, f64::max);
            let waiting = 100.0 * (1.0 - (mean(|t| t.kernels) + mean(|t| t.exposed)) / last);
            vec![
                Cell::Number(f64::from(*group)),
                end.into(),
                mean(|t| t.kernels).into(),
                mean(|t| t.exposed).into(),
                waiting.into(),
            ]
        });
        Table {
            columns: vec![
                Column::new("data-parallel rank", "dp_rank", ""),
                Column::new("last of its ranks ends", "end_ms", "ms"),
                Column::new("busy, mean of its ranks", "busy_ms", "ms"),
                Column::new("transfers that nothing hides, mean", "exposed_ms", "ms"),
                Column::new("waiting for the straggler or for data, mean", "waiting_percent", "%"),
            ],
            rows: rows.collect(),
        }
    }
}

/// End, busy time and transfers beside which the rank does nothing.
fn times(spans: &[Span]) -> Times {
    let of = |transfer: bool| -> Vec<(f64, f64)> {
        let chosen = spans.iter().filter(|s| (s.activity == Activity::Transfer) == transfer);
        joined(&chosen.map(|s| (s.start, s.end)).collect::<Vec<_>>(), 0.0)
    };
    let (busy, transfers) = (of(false), of(true));
    let length = |list: &[(f64, f64)]| list.iter().map(|(a, b)| b - a).sum::<f64>();
    let either = joined(&[&busy[..], &transfers[..]].concat(), 0.0);
    Times { end: Wave::end(spans), kernels: length(&busy), exposed: length(&either) - length(&busy) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_transfers_beside_nothing_are_exposed() {
        let span = |start, end, activity| Span { start, end, activity };
        let t = times(&[
            span(0.0, 4.0, Activity::Forward),
            span(3.0, 6.0, Activity::Transfer),
            span(5.0, 7.0, Activity::Transfer),
            span(8.0, 9.0, Activity::Local),
        ]);
        assert_eq!((t.end, t.kernels, t.exposed), (9.0, 5.0, 3.0));
    }
}
