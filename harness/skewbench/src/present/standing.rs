use rayon::prelude::*;
use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Named, Panel, Scale, Side, Table};
use skewbench_store::stats::{Comparison, Verdict};

use super::paired::{Times, word};
use super::validation::slug;
use super::{Loaded, Value};
use crate::experiment::{At, Metric};

/// Systems that a sentence names at most.
const NAMED: usize = 3;

/// A system beside another on one workload: its time over the other's.
struct Pair {
    other: String,
    compared: Comparison,
}

/// How a system stands against every other of the experiment that compares systems: a figure, and sentences about it.
pub(super) fn standing(experiments: &[(Loaded, Vec<Value>)], system: &str) -> Option<(Figure, Vec<String>)> {
    let (loaded, _) = experiments.iter().find(|(loaded, _)| compares_systems(loaded))?;
    let e = &loaded.expanded;
    let here = |at: &&At| e.systems.contains(&at.system) && at.dp == e.found.experiment.layout.dp;
    let places: Vec<&At> = e.places.iter().map(|(at, _)| at).filter(here).collect();
    let mut panels = Vec::new();
    let mut rows = Vec::new();
    let mut sentences = Vec::new();
    let mut workloads = Vec::new();
    for workload in 0..e.own_workloads {
        let ours = places.iter().find(|at| at.workload == workload && at.system == system)?;
        let times = Times::attention(loaded.view(ours).ok()?);
        let others: Vec<&&At> = places.iter().filter(|at| at.workload == workload && at.system != system).collect();
        let pairs: Vec<Pair> = others
            .par_iter()
            .filter_map(|at| {
                let compared = times.over(&Times::attention(loaded.view(at).ok()?), e.seed)?;
                Some(Pair { other: at.system.clone(), compared })
            })
            .collect();
        if pairs.is_empty() {
            continue;
        }
        let dataset = e.dataset(workload);
        let mut text = sentence(&dataset, &pairs);
        let unpaired: Vec<&str> = others
            .iter()
            .map(|at| at.system.as_str())
            .filter(|other| !pairs.iter().any(|pair| pair.other == *other))
            .collect();
        if !unpaired.is_empty() {
            text.push_str(&format!(
                " Not among these: {}, of which no steps can be paired with its own (a system that carries documents over was run for \
                 another number of steps).",
                unpaired.join(", ")
            ));
        }
        sentences.push(text);
        panels.push(panel(&dataset, &pairs));
        rows.extend(pairs.iter().map(|pair| row(&dataset, pair)));
        workloads.push(dataset);
    }
    (!panels.is_empty()).then(|| {
        let figure = Figure {
            id: format!("standing-{}", slug(system)),
            title: format!("Attention time of {system} over that of every other system"),
            description: format!("One dot for each other system; left of the line {system} is faster."),
            kind: Kind::Simulated,
            panels,
            caption: format!(
                "Straggler latency a token of {system} over that of the other system on the same steps, from the samples of {}; below 1 it is faster. Error bars: 95% bootstrap interval over steps, drawn in pairs.",
                e.found.experiment.figure
            ),
            systems: vec![system.to_owned()],
            workloads,
            table: Table {
                columns: vec![
                    Column::new("workload", "dataset", ""),
                    Column::new("other system", "other", ""),
                    Column::new("time over the other's", "ratio", ""),
                    Column::new("95% low", "ci_low", ""),
                    Column::new("95% high", "ci_high", ""),
                    Column::new("steps", "n", ""),
                    Column::new("verdict", "verdict", ""),
                    Column::new("reason", "reason", ""),
                ],
                rows,
            },
            ..Figure::default()
        };
        (figure, sentences)
    })
}

/// The experiment that compares most systems, the first of several, with its values.
pub(super) fn compared(experiments: &[(Loaded, Vec<Value>)]) -> Option<(&Loaded, &[Value])> {
    let of = experiments.iter().filter(|(loaded, _)| compares_systems(loaded) && loaded.expanded.points.is_empty());
    let most = of.rev().max_by_key(|(loaded, _)| loaded.expanded.systems.len());
    most.map(|(loaded, values)| (loaded, values.as_slice()))
}

/// True for an experiment whose figure has a bar a system.
fn compares_systems(loaded: &Loaded) -> bool {
    let plot = &loaded.expanded.found.experiment.plot;
    plot.x == crate::experiment::Axis::System && plot.metrics.contains(&Metric::StragglerMean)
}

fn sentence(dataset: &str, pairs: &[Pair]) -> String {
    let few = pairs.iter().all(|p| p.compared.too_few());
    if let Some(n) = pairs.iter().map(|p| p.compared.n).max().filter(|_| few) {
        return format!("On {dataset} too few steps were run to tell systems apart (n = {n}).");
    }
    let of = |verdict: Verdict| {
        let mut chosen: Vec<&Pair> = pairs.iter().filter(|p| p.compared.verdict == verdict).collect();
        chosen.sort_by(|a, b| a.compared.ratio.total_cmp(&b.compared.ratio));
        chosen
    };
    let name = |list: &[&Pair]| {
        let named: Vec<String> = list.iter().map(|p| format!("{} {:.2}x", p.other, p.compared.ratio)).collect();
        named.join(", ")
    };
    let (faster, mut slower) = (of(Verdict::Faster), of(Verdict::Slower));
    slower.reverse();
    let mut text = format!(
        "On {dataset} its attention takes less time than that of {} of {} other systems",
        faster.len(),
        pairs.len()
    );
    if !faster.is_empty() {
        text.push_str(&format!(" (most against {})", name(&faster[..faster.len().min(NAMED)])));
    }
    text.push_str(&format!(" and more than that of {}", slower.len()));
    if !slower.is_empty() {
        text.push_str(&format!(" (most against {})", name(&slower[..slower.len().min(NAMED)])));
    }
    let rest = pairs.len() - faster.len() - slower.len();
    if rest > 0 {
        text.push_str(&format!("; against {rest} there is no clear difference"));
    }
    text.push('.');
    text
}

fn panel(dataset: &str, pairs: &[Pair]) -> Panel {
    let named = |pair: &Pair| Named {
        category: pair.other.clone(),
        value: pair.compared.ratio,
        low: (pair.compared.n > 1).then_some(pair.compared.ci_low),
        high: (pair.compared.n > 1).then_some(pair.compared.ci_high),
    };
    let mut marks = vec![Mark::Reference { label: "as fast".into(), side: Side::X, value: 1.0 }];
    marks.extend(pairs.iter().map(|p| Mark::Dots { series: p.other.clone(), values: vec![named(p)] }));
    Panel {
        title: dataset.to_owned(),
        x: Axis { label: "time over that of the other".into(), ..Axis::default() },
        y: Axis {
            scale: Scale::Category,
            categories: pairs.iter().map(|p| p.other.clone()).collect(),
            ..Axis::default()
        },
        marks,
    }
}

fn row(dataset: &str, pair: &Pair) -> Vec<Cell> {
    let c = &pair.compared;
    vec![
        dataset.into(),
        pair.other.clone().into(),
        c.ratio.into(),
        c.ci_low.into(),
        c.ci_high.into(),
        (c.n as f64).into(),
        word(c.verdict).into(),
        c.reason.clone().unwrap_or_default().into(),
    ]
}

#[cfg(test)]
mod tests {
    use skewbench_store::stats::{Bootstrap, CompareOptions, compare};

    use super::*;

    fn pair(other: &str, ours: &[f64]) -> Pair {
        let options = CompareOptions::times(Bootstrap::new(1, "test"));
        Pair { other: other.into(), compared: compare(&vec![1.0; ours.len()], ours, &options).unwrap() }
    }

    #[test]
    fn systems_are_told_apart_by_their_intervals() {
        let few = sentence("w", &[pair("a", &[0.5])]);
        assert_eq!(few, "On w too few steps were run to tell systems apart (n = 1).");
        let varied = [0.5, 1.8, 0.6, 1.7, 0.7, 1.6];
        let text =
            sentence("w", &[pair("a", &[0.8; 6]), pair("b", &varied), pair("c", &[1.001; 6]), pair("d", &[1.3; 6])]);
        assert_eq!(
            text,
            "On w its attention takes less time than that of 1 of 4 other systems (most against a 0.80x) and more than that of 1 (most against d 1.30x); against 2 there is no clear difference."
        );
    }
}
