//! What each system gains and costs, in one table a report.

use skewbench_report::{Cell, Column, Figure, Kind, Table};

use super::standing::compared;
use super::validation::slug;
use super::{Loaded, Value};
use crate::cells::Resources;
use crate::experiment::Metric;

/// Id of the table of all systems.
pub(super) const FIGURE: &str = "costs";

/// A column: the metric, what tells its readings apart, and its heading.
type Shown = (Metric, &'static [(&'static str, &'static str)], &'static str, &'static str);

const COLUMNS: [Shown; 10] = [
    (Metric::Speedup, &[], "speedup, mean wave", "speedup"),
    (Metric::SpeedupMax, &[], "speedup, slowest wave", "speedup_max"),
    (Metric::StragglerMean, &[("pass", "both")], "straggler, mean wave", "straggler_mean_ms"),
    (Metric::StragglerMax, &[("pass", "both")], "straggler, slowest wave", "straggler_max_ms"),
    (Metric::WaveR, &[], "waiting inside waves", "wave_r"),
    (Metric::SentBytes, &[("link", "inside_node")], "sent inside a node", "sent_inside_node_mb"),
    (Metric::SentBytes, &[("link", "between_nodes")], "sent between nodes", "sent_between_nodes_mb"),
    (Metric::HiddenShare, &[], "share of transfers hidden", "hidden_share"),
    (Metric::PeakMemory, &[], "memory of the fullest card", "peak_memory_gib"),
    (Metric::LateShare, &[("over", "all")], "share of tokens that run late", "late_share"),
];

/// The first value of a metric for a system on a workload, with these readings.
pub(super) fn find<'a>(
    values: &'a [Value],
    (metric, dataset, system): (Metric, &str, &str),
    readings: &[(&str, &str)],
) -> Option<&'a Value> {
    values.iter().find(|v| {
        v.metric == metric
            && v.dataset == dataset
            && v.system == system
            && readings.iter().all(|(key, word)| v.text(key) == Some(*word))
            && v.estimated.is_ok()
    })
}

/// Bytes of a card of the experiment's machine.
pub(super) fn card_bytes(loaded: &Loaded, resources: &Resources) -> Option<f64> {
    let pricing = resources.pricing(loaded.expanded.machine.as_ref()?).ok()?;
    Some(pricing.profile().card.memory_bytes as f64)
}

/// The table of every system of the experiment that compares systems.
pub(super) fn table(experiments: &[(Loaded, Vec<Value>)], resources: &Resources) -> Option<Figure> {
    let (loaded, values) = compared(experiments)?;
    let systems: Vec<&str> = loaded.expanded.systems.iter().map(String::as_str).collect();
    figure(loaded, values, resources, &systems, FIGURE.into(), "All systems".into())
}

/// The rows of one system.
pub(super) fn of_system(experiments: &[(Loaded, Vec<Value>)], resources: &Resources, system: &str) -> Option<Figure> {
    let (loaded, values) = compared(experiments)?;
    let id = format!("{FIGURE}-{}", slug(system));
    figure(loaded, values, resources, &[system], id, "What it gains and costs".into())
}

fn figure(
    loaded: &Loaded,
    values: &[Value],
    resources: &Resources,
    systems: &[&str],
    id: String,
    title: String,
) -> Option<Figure> {
    let e = &loaded.expanded;
    let card = card_bytes(loaded, resources);
    let datasets: Vec<String> = (0..e.own_workloads).map(|w| e.dataset(w)).collect();
    let known: Vec<&Shown> = COLUMNS
        .iter()
        .filter(|(metric, readings, ..)| {
            let of = |s: &&str, d: &String| find(values, (*metric, d, s), readings).is_some();
            systems.iter().any(|s| datasets.iter().any(|d| of(s, d)))
        })
        .collect();
    let mut rows = Vec::new();
    for dataset in &datasets {
        for system in systems {
            let value = |(metric, readings, ..): &Shown| {
                let found = find(values, (*metric, dataset, system), readings)?;
                Some(found.estimated.as_ref().ok()?.value)
            };
            let cells: Vec<Cell> = known.iter().map(|shown| value(shown).into()).collect();
            if cells.iter().all(|cell| matches!(cell, Cell::Empty)) {
                continue;
            }
            let memory = find(values, (Metric::PeakMemory, dataset, system), &[]);
            let memory = memory.and_then(|v| Some(v.estimated.as_ref().ok()?.value * f64::from(1u32 << 30)));
            let fits = memory.zip(card).map_or(Cell::Empty, |(used, there)| fits(used, there).into());
            let mut row: Vec<Cell> = vec![dataset.clone().into(), (*system).into()];
            row.extend(cells);
            row.push(fits);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut columns = vec![Column::new("workload", "dataset", ""), Column::new("system", "system", "")];
    columns.extend(known.iter().map(|(metric, _, title, key)| {
        Column::new(*title, *key, if metric.unit() == "1" { "" } else { metric.unit() })
    }));
    columns.push(Column::new("fits a card", "fits", ""));
    let capacity = card.map(|bytes| format!(" ({:.0} GiB)", bytes / f64::from(1u32 << 30))).unwrap_or_default();
    Some(Figure {
        id,
        title,
        description: "A row for each system and workload".into(),
        kind: if e.replay().is_some() { Kind::Replayed } else { Kind::Simulated },
        caption: format!(
            "From {}: attention of one layer, forward and backward, of a wave; speedups over {}; bytes are those of the busiest rank; \
             memory is that of a training step with physical linear work, {} sharding, held against the card of the profile{capacity}. \
             Intervals stand in {}.",
            e.found.experiment.figure,
            e.found.experiment.plot.baseline,
            sharding(loaded),
            e.found.experiment.figure
        ),
        systems: systems.iter().map(|s| (*s).to_owned()).collect(),
        workloads: datasets,
        table: Table { columns, rows },
        ..Figure::default()
    })
}

fn sharding(loaded: &Loaded) -> String {
    let word = serde_json::to_value(loaded.expanded.found.experiment.step_model.sharding);
    word.ok().and_then(|w| w.as_str().map(str::to_owned)).unwrap_or_default()
}

fn fits(used: f64, there: f64) -> String {
    if used <= there { "yes".into() } else { format!("no, {:.1}x the card", used / there) }
}

/// Which systems need more memory than a card has, for the notes of a figure.
pub(super) fn memory_note(loaded: &Loaded, resources: &Resources, values: &[Value]) -> Option<String> {
    let card = card_bytes(loaded, resources)? / f64::from(1u32 << 30);
    let memory = values
        .iter()
        .filter(|v| v.metric == Metric::PeakMemory)
        .filter_map(|v| Some((v.dataset.as_str(), v.system.as_str(), v.estimated.as_ref().ok()?.value)));
    let told = above(card, &memory.collect::<Vec<_>>());
    (!told.is_empty()).then(|| {
        format!(
            "More memory than the {card:.0} GiB of the profile's card: {}. Their times are those of cards that had it; less of the model on a \
             card (tensor or pipeline parallelism, more sharding) makes room.",
            told.join("; ")
        )
    })
}

/// Of each workload the systems above a bound, by name unless they are all.
fn above(bound: f64, memory: &[(&str, &str, f64)]) -> Vec<String> {
    let mut datasets: Vec<&str> = Vec::new();
    for (dataset, ..) in memory {
        if !datasets.contains(dataset) {
            datasets.push(dataset);
        }
    }
    let of = |dataset: &&str| {
        let all = memory.iter().filter(|(d, ..)| d == dataset);
        let over: Vec<&(&str, &str, f64)> = all.clone().filter(|(.., used)| *used > bound).collect();
        let least = over.iter().map(|(.., used)| *used).reduce(f64::min)?;
        let most = over.iter().map(|(.., used)| *used).reduce(f64::max)?;
        let names: Vec<&str> = over.iter().map(|(_, system, _)| *system).collect();
        let who = if over.len() > 1 && over.len() == all.count() { "all systems".to_owned() } else { names.join(", ") };
        Some(format!("{who} on {dataset} ({least:.0} to {most:.0} GiB)"))
    };
    datasets.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_says_by_how_much() {
        assert_eq!(fits(10.0, 10.0), "yes");
        assert_eq!(fits(15.0, 10.0), "no, 1.5x the card");
    }

    #[test]
    fn systems_without_room_are_named_unless_they_are_all() {
        let memory = [("a", "ulysses", 150.0), ("a", "libra", 160.0), ("b", "ulysses", 90.0), ("b", "libra", 140.0)];
        assert_eq!(above(130.0, &memory), ["all systems on a (150 to 160 GiB)", "libra on b (140 to 140 GiB)"]);
        assert!(above(200.0, &memory).is_empty());
    }
}
