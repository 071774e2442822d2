use std::collections::BTreeSet;
use std::ops::Range;

use skewbench_report::{Axis, Column, Figure, Kind, Mark, Named, Panel, RunCard, Scale, Side, Table};
use skewbench_store::stats::Verdict;

use super::comparing::{Compared, compare_runs};
use super::figures::distinct;
use super::paired::word;
use super::site::short_hash;
use super::{Loaded, Value};
use crate::cells::Resources;
use crate::experiment::describe;
use crate::failure::Failure;

/// A run among those of a report.
pub struct RunGroup {
    /// What the user called it.
    pub path_name: String,
    /// Its name in the report, which no other has.
    pub name: String,
    /// Its experiments among those of the report.
    pub experiments: Range<usize>,
}

type Experiments = [(Loaded, Vec<Value>)];

/// Words of the thing that two runs differ in, which decides whether they can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    Workload,
    Seed,
    Profile,
    Backend,
    Revision,
}

impl Difference {
    /// True where steps of the two hold other documents, so that nothing can be paired.
    fn other_batches(self) -> bool {
        matches!(self, Self::Workload | Self::Seed)
    }
}

/// Cards of the runs.
pub(super) fn cards(runs: &[RunGroup], experiments: &Experiments) -> Vec<RunCard> {
    runs.iter()
        .map(|run| {
            let own = || experiments[run.experiments.clone()].iter().map(|(l, _)| l);
            let list = |of: &dyn Fn(&Loaded) -> Option<String>| -> String {
                let all: BTreeSet<String> = own().filter_map(of).collect();
                all.into_iter().collect::<Vec<_>>().join(", ")
            };
            RunCard {
                name: run.name.clone(),
                facts: vec![
                    ("Experiments".into(), list(&|l| Some(l.expanded.found.id.clone()))),
                    ("Workloads".into(), list(&|l| Some(workloads(l).into_iter().collect::<Vec<_>>().join(", ")))),
                    ("Seed".into(), list(&|l| Some(l.expanded.seed.to_string()))),
                    ("Profile".into(), list(&|l| Some(profile(l)))),
                    ("Backend".into(), list(&|l| Some(backend(l)))),
                    ("Revision".into(), list(&|l| Some(revision(l)))),
                    ("Inputs".into(), list(&|l| Some(short_hash(&l.data.manifest.inputs_hash)))),
                ],
            }
        })
        .collect()
}

fn workloads(loaded: &Loaded) -> BTreeSet<String> {
    let own = loaded.expanded.workloads.iter().take(loaded.expanded.own_workloads);
    own.map(|(w, _)| {
        format!("{} ({} tokens, {})", w.name, w.window_tokens, &w.fingerprint[..w.fingerprint.len().min(8)])
    })
    .collect()
}

fn profile(loaded: &Loaded) -> String {
    let machine = loaded.expanded.machine.as_ref();
    machine
        .map_or_else(|| "none".into(), |m| format!("{} ({})", m.profile, &m.fingerprint[..m.fingerprint.len().min(8)]))
}

fn backend(loaded: &Loaded) -> String {
    let replay = loaded.expanded.replay();
    replay.map_or_else(
        || "sim".into(),
        |key| format!("replay on {}, driver {}, cuDNN {}", key.card, key.driver, key.cudnn),
    )
}

/// Revision of the program, with a mark where its tree held changes.
pub(super) fn revision(loaded: &Loaded) -> String {
    let program = loaded.data.manifest.inputs.get("program");
    let revision = program.and_then(|p| p.get("revision")).and_then(serde_json::Value::as_str).unwrap_or("unknown");
    let dirty = program.and_then(|p| p.get("dirty")).and_then(serde_json::Value::as_bool) == Some(true);
    format!("{revision}{}", if dirty { ", with changes that no commit holds" } else { "" })
}

/// In what two runs of one experiment differ, each with both sides in words.
fn differences(a: &Loaded, b: &Loaded) -> Vec<(Difference, String)> {
    let seed = |l: &Loaded| l.expanded.seed.to_string();
    let joined = |l: &Loaded| workloads(l).into_iter().collect::<Vec<_>>().join(", ");
    [
        (Difference::Workload, "workload", joined(a), joined(b)),
        (Difference::Seed, "seed", seed(a), seed(b)),
        (Difference::Profile, "profile", profile(a), profile(b)),
        (Difference::Backend, "backend", backend(a), backend(b)),
        (Difference::Revision, "revision", revision(a), revision(b)),
    ]
    .into_iter()
    .filter(|(_, _, a, b)| a != b)
    .map(|(what, word, a, b)| (what, format!("other {word} ({a} against {b})")))
    .collect()
}

/// Which runs can be compared, and why the others cannot: a sentence a pair.
pub(super) fn comparability(runs: &[RunGroup], experiments: &Experiments) -> Vec<String> {
    let mut sentences = Vec::new();
    for (i, a) in runs.iter().enumerate() {
        for b in &runs[i + 1..] {
            sentences.push(pair_sentence(a, b, experiments));
        }
    }
    sentences
}

fn pair_sentence(a: &RunGroup, b: &RunGroup, experiments: &Experiments) -> String {
    let own = |run: &RunGroup| &experiments[run.experiments.clone()];
    let mut shared = 0;
    let mut found: Vec<(Difference, String)> = Vec::new();
    for (x, _) in own(a) {
        let Some((y, _)) = own(b).iter().find(|(y, _)| y.expanded.found.id == x.expanded.found.id) else { continue };
        shared += 1;
        for difference in differences(x, y) {
            if !found.contains(&difference) {
                found.push(difference);
            }
        }
    }
    let (a, b) = (&a.name, &b.name);
    found.sort();
    let reasons: Vec<&str> = found.iter().map(|(_, words)| words.as_str()).collect();
    let reasons = reasons.join("; ");
    if shared == 0 {
        format!("{a} and {b} have no experiment in common and stand beside each other.")
    } else if found.is_empty() {
        format!(
            "{a} and {b} can be compared: workloads, seed, profile, backend and revision are the same in {shared} experiments."
        )
    } else if found.iter().any(|(difference, _)| difference.other_batches()) {
        format!(
            "{a} and {b} cannot be compared: {reasons}. Their steps hold other documents, so a ratio would mix chance with what was changed."
        )
    } else {
        format!(
            "{a} and {b} ran the same steps but are not comparable as systems: {reasons}. A ratio between them says what that changes, for each system by itself."
        )
    }
}

/// Ratios of every further run to the first, on the steps that both have.
///
/// # Errors
/// Samples that cannot be compared.
pub(super) fn comparisons(
    runs: &[RunGroup],
    experiments: &Experiments,
    resources: &Resources,
) -> Result<Vec<Figure>, Failure> {
    let own = |run: &RunGroup| experiments[run.experiments.clone()].iter().map(|(l, _)| l).collect::<Vec<_>>();
    let Some((first, others)) = runs.split_first() else { return Ok(Vec::new()) };
    let mut figures = Vec::new();
    for (i, run) in others.iter().enumerate() {
        let rows = compare_runs(&own(first), &own(run), resources)?;
        if !rows.is_empty() {
            figures.push(figure(&format!("compare-1-{}", i + 2), first, run, &rows));
        }
    }
    Ok(figures)
}

fn place(row: &Compared<'_>) -> String {
    let cell = row.cell;
    let swept = row.coordinates.map(|at| format!(", {}", describe(at))).unwrap_or_default();
    format!("{}, DP {} CP {} P {}{swept}", cell.system, cell.layout.dp, cell.layout.cp, cell.pool())
}

fn figure(id: &str, first: &RunGroup, run: &RunGroup, rows: &[Compared<'_>]) -> Figure {
    let datasets = distinct(rows.iter().map(|row| row.cell.workload.name.as_str()));
    let latency = |row: &&Compared<'_>| row.metric == "straggler_mean";
    // A figure of hundreds of rows is read as a table: drawn are those that changed, else the first.
    let drawn = |dataset: &str| -> Vec<&Compared<'_>> {
        let mut all: Vec<&Compared<'_>> =
            rows.iter().filter(latency).filter(|r| r.cell.workload.name == dataset).collect();
        let change = |r: &Compared<'_>| r.comparison.ratio.max(1.0 / r.comparison.ratio);
        all.sort_by(|a, b| change(b).total_cmp(&change(a)).then_with(|| place(a).cmp(&place(b))));
        all.truncate(DRAWN);
        all
    };
    let panels = datasets.iter().map(|dataset| {
        let shown = drawn(dataset);
        let values = shown.iter().map(|row| Named {
            category: place(row),
            value: row.comparison.ratio,
            low: Some(row.comparison.ci_low),
            high: Some(row.comparison.ci_high),
        });
        Panel {
            title: dataset.clone(),
            x: Axis {
                label: format!("straggler latency of {} over that of {}", run.name, first.name),
                ..Axis::default()
            },
            y: Axis { scale: Scale::Category, categories: shown.iter().map(|r| place(r)).collect(), ..Axis::default() },
            marks: vec![
                Mark::Reference { label: "the same".into(), side: Side::X, value: 1.0 },
                Mark::Dots { series: run.name.clone(), values: values.collect() },
            ],
        }
    });
    let count = |verdict| rows.iter().filter(latency).filter(|r| r.comparison.verdict == verdict).count();
    Figure {
        id: id.to_owned(),
        title: format!("{} against {}", run.name, first.name),
        description: "One dot a place that both runs have; right of the line it got slower.".into(),
        kind: if rows.iter().any(|r| r.cell.replay.is_some()) { Kind::Replayed } else { Kind::Simulated },
        panels: panels.collect(),
        caption: format!(
            "Mean straggler latency of {} over that of {} on the same steps; below 1 it is faster. The {DRAWN} places of each workload that changed most are drawn, all are in the table. Error bars: 95% bootstrap interval over steps, drawn in pairs.",
            run.name, first.name
        ),
        findings: vec![format!(
            "Of {} places, {} got faster, {} slower, {} stayed the same and {} are unclear.",
            rows.iter().filter(latency).count(),
            count(Verdict::Faster),
            count(Verdict::Slower),
            count(Verdict::Same),
            count(Verdict::Unclear)
        )],
        table: table(rows),
        ..Figure::default()
    }
}

/// Places of a workload that are drawn at most.
const DRAWN: usize = 24;

fn table(rows: &[Compared<'_>]) -> Table {
    let number = |n: u32| skewbench_report::Cell::Number(f64::from(n));
    Table {
        columns: vec![
            Column::new("workload", "dataset", ""),
            Column::new("system", "system", ""),
            Column::new("DP", "dp", ""),
            Column::new("CP", "cp", ""),
            Column::new("P", "p", ""),
            Column::new("at", "at", ""),
            Column::new("metric", "metric", ""),
            Column::new("ratio", "ratio", ""),
            Column::new("95% low", "ci_low", ""),
            Column::new("95% high", "ci_high", ""),
            Column::new("steps", "n", ""),
            Column::new("verdict", "verdict", ""),
            Column::new("reason", "reason", ""),
        ],
        rows: rows
            .iter()
            .map(|row| {
                let (cell, c) = (row.cell, &row.comparison);
                vec![
                    cell.workload.name.clone().into(),
                    cell.system.clone().into(),
                    number(cell.layout.dp),
                    number(cell.layout.cp),
                    number(cell.pool()),
                    row.coordinates.map(describe).unwrap_or_default().into(),
                    row.metric.into(),
                    c.ratio.into(),
                    c.ci_low.into(),
                    c.ci_high.into(),
                    (c.n as f64).into(),
                    word(c.verdict).into(),
                    c.reason.clone().unwrap_or_default().into(),
                ]
            })
            .collect(),
    }
}
