use rayon::prelude::*;
use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Named, Panel, Scale, Side, Table};

use super::validation::slug;
use super::waves::ratio_to;
use super::{Loaded, Value};
use crate::experiment::{At, Metric};
use crate::metrics::Estimated;

/// A difference below this share is none, whatever its interval.
const SAME: f64 = 0.01;
/// Systems that a sentence names at most.
const NAMED: usize = 3;

/// A system beside another on one workload: its time over the other's.
struct Pair {
    other: String,
    ratio: Estimated,
}

impl Pair {
    fn verdict(&self) -> &'static str {
        let r = &self.ratio;
        match r.interval {
            _ if (r.value - 1.0).abs() < SAME => "same",
            Some((_, high)) if high < 1.0 => "faster",
            Some((low, _)) if low > 1.0 => "slower",
            _ => "unclear",
        }
    }
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
        let (_, view) = loaded.waves(ours).ok()?;
        let others: Vec<&&At> = places.iter().filter(|at| at.workload == workload && at.system != system).collect();
        let pairs: Vec<Pair> = others
            .par_iter()
            .filter_map(|at| {
                let (_, other) = loaded.waves(at).ok()?;
                let ratio = ratio_to(loaded, view, other, Metric::NormalisedMean).ok()?;
                Some(Pair { other: at.system.clone(), ratio })
            })
            .collect();
        if pairs.is_empty() {
            continue;
        }
        let dataset = e.dataset(workload);
        sentences.push(sentence(&dataset, &pairs));
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
                ],
                rows,
            },
            ..Figure::default()
        };
        (figure, sentences)
    })
}

/// True for an experiment whose figure has a bar a system.
fn compares_systems(loaded: &Loaded) -> bool {
    let plot = &loaded.expanded.found.experiment.plot;
    plot.x == crate::experiment::Axis::System && plot.metrics.contains(&Metric::StragglerMean)
}

fn sentence(dataset: &str, pairs: &[Pair]) -> String {
    if pairs.iter().all(|p| p.ratio.interval.is_none()) {
        return format!("On {dataset} one step was run, which tells no system from another.");
    }
    let of = |verdict: &str| {
        let mut chosen: Vec<&Pair> = pairs.iter().filter(|p| p.verdict() == verdict).collect();
        chosen.sort_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
        chosen
    };
    let name = |list: &[&Pair]| {
        let named: Vec<String> = list.iter().map(|p| format!("{} {:.2}x", p.other, p.ratio.value)).collect();
        named.join(", ")
    };
    let (faster, mut slower) = (of("faster"), of("slower"));
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
        value: pair.ratio.value,
        low: pair.ratio.interval.map(|i| i.0),
        high: pair.ratio.interval.map(|i| i.1),
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
    vec![
        dataset.into(),
        pair.other.clone().into(),
        pair.ratio.value.into(),
        pair.ratio.interval.map(|i| i.0).into(),
        pair.ratio.interval.map(|i| i.1).into(),
        (pair.ratio.n as f64).into(),
        pair.verdict().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_told_apart_by_their_intervals() {
        let pair = |value: f64, interval| Pair { other: "other".into(), ratio: Estimated { value, interval, n: 9 } };
        assert_eq!(pair(0.8, Some((0.7, 0.9))).verdict(), "faster");
        assert_eq!(pair(1.2, Some((1.1, 1.3))).verdict(), "slower");
        assert_eq!(pair(1.2, Some((0.9, 1.3))).verdict(), "unclear");
        assert_eq!(pair(1.001, Some((1.0005, 1.0015))).verdict(), "same");
        assert_eq!(pair(0.5, None).verdict(), "unclear");
        assert!(sentence("w", &[pair(0.5, None)]).contains("one step"));
        let text = sentence("w", &[pair(0.8, Some((0.7, 0.9))), pair(1.2, Some((0.9, 1.3)))]);
        assert_eq!(
            text,
            "On w its attention takes less time than that of 1 of 2 other systems (most against other 0.80x) and more than that of 0; against 1 there is no clear difference."
        );
    }
}
