use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Named, Panel, Scale, Side, Table};
use skewbench_store::Reference;

use super::figures::distinct;
use super::recommend::{self, recommendations, sentences};
use super::standing::compared;
use super::summary::published;
use super::{Loaded, Value};
use crate::cells::Resources;
use crate::experiment::Metric;
use crate::metrics::Estimated;
use crate::shipped::{Accuracy, Compared, Placed, Speedup, validation_of};

/// Systems that the picture of the first page shows for each workload, beside those with a published value.
const BEST: usize = 8;

/// This project's own system, which is of no paper.
pub(super) const OWN: &str = "libra-calibrated";

/// The answer in one picture: how much the best systems shorten waves, from the first experiment that compares systems.
pub(super) fn picture(
    experiments: &[(Loaded, Vec<Value>)],
    resources: &Resources,
    reference: &Reference,
) -> Option<Figure> {
    if let Some((asked, _)) = experiments.iter().find(|(loaded, _)| recommends(loaded)) {
        return recommend::picture(&recommendations(asked, resources));
    }
    let speedup = |v: &&Value| v.metric == Metric::Speedup && v.estimated.is_ok();
    let ranks = |values: &[Value]| values.iter().any(|v| speedup(&v));
    let main = compared(experiments).filter(|(_, values)| ranks(values));
    let first = || experiments.iter().find(|(_, values)| ranks(values)).map(|(l, values)| (l, values.as_slice()));
    let (loaded, values) = main.or_else(first)?;
    let e = &loaded.expanded.found.experiment;
    let datasets: Vec<String> = (0..loaded.expanded.own_workloads).map(|w| loaded.expanded.dataset(w)).collect();
    let mut panels = Vec::new();
    let mut rows = Vec::new();
    let mut systems: Vec<&str> = Vec::new();
    for dataset in &datasets {
        let here: Vec<&Value> = values.iter().filter(|v| v.dataset == *dataset).collect();
        let mut best: Vec<&Value> = here.iter().copied().filter(|v| speedup(v)).collect();
        let value = |v: &Value| v.estimated.as_ref().map_or(0.0, |e| e.value);
        best.sort_by(|a, b| value(b).total_cmp(&value(a)));
        let stated = |v: &Value| published(reference, &e.figure, v).and_then(|p| p.number());
        let shown: Vec<&str> = best
            .iter()
            .enumerate()
            .filter(|(i, v)| *i < BEST || stated(v).is_some())
            .map(|(_, v)| v.system.as_str())
            .collect();
        if shown.is_empty() {
            continue;
        }
        let mut marks =
            vec![Mark::Reference { label: format!("as fast as {}", e.plot.baseline), side: Side::X, value: 1.0 }];
        for (metric, words) in [(Metric::Speedup, "mean wave"), (Metric::SpeedupMax, "slowest wave of a step")] {
            let of = here.iter().filter(|v| v.metric == metric && shown.contains(&v.system.as_str()));
            let named: Vec<Named> = of.clone().filter_map(|v| named(v)).collect();
            rows.extend(of.filter_map(|v| row(v, words, stated(v))));
            marks.push(Mark::Dots { series: words.into(), values: named });
            let quoted = here
                .iter()
                .filter(|v| v.metric == metric)
                .filter_map(|v| Some(Named { category: v.system.clone(), value: stated(v)?, low: None, high: None }));
            let quoted: Vec<Named> = quoted.collect();
            if !quoted.is_empty() {
                marks.push(Mark::PublishedNamed {
                    series: Some(words.into()),
                    label: "published".into(),
                    values: quoted,
                });
            }
        }
        systems.extend(shown.iter().copied());
        panels.push(Panel {
            title: dataset.clone(),
            x: Axis { label: format!("speedup over {}", e.plot.baseline), unit: "x".into(), ..Axis::default() },
            y: Axis {
                scale: Scale::Category,
                categories: shown.iter().map(|s| (*s).to_owned()).collect(),
                ..Axis::default()
            },
            marks,
        });
    }
    let kind = if loaded.expanded.replay().is_some() { Kind::Replayed } else { Kind::Simulated };
    (!panels.is_empty()).then(|| Figure {
        id: "answer".into(),
        title: format!("How much the straggler latency of waves shrinks against {}", e.plot.baseline),
        description: format!(
            "Two dots for each of the best systems: how many times shorter the mean wave and the slowest wave of a step are than with {}. Right of the line is better.",
            e.plot.baseline
        ),
        kind,
        panels,
        caption: format!(
            "From {}, {}: attention of one layer, forward and backward, transfers included. The {BEST} best systems of each workload; all are in the figure. Error bars: 95% bootstrap interval over steps, drawn in pairs.",
            e.figure,
            kind.word()
        ),
        systems: distinct(systems.into_iter()),
        workloads: datasets,
        table: Table {
            columns: vec![
                Column::new("workload", "dataset", ""),
                Column::new("system", "system", ""),
                Column::new("wave", "wave", ""),
                Column::new("speedup", "speedup", "x"),
                Column::new("95% low", "ci_low", "x"),
                Column::new("95% high", "ci_high", "x"),
                Column::new("published", "published", "x"),
            ],
            rows,
        },
        ..Figure::default()
    })
}

fn named(value: &Value) -> Option<Named> {
    let e = value.estimated.as_ref().ok()?;
    Some(Named {
        category: value.system.clone(),
        value: e.value,
        low: e.interval.map(|i| i.0),
        high: e.interval.map(|i| i.1),
    })
}

fn row(value: &Value, wave: &str, published: Option<f64>) -> Option<Vec<Cell>> {
    let e = value.estimated.as_ref().ok()?;
    Some(vec![
        value.dataset.clone().into(),
        value.system.clone().into(),
        wave.into(),
        e.value.into(),
        e.interval.map(|i| i.0).into(),
        e.interval.map(|i| i.1).into(),
        published.into(),
    ])
}

/// Sentences that quote values of the run.
pub(super) fn verdict(experiments: &[(Loaded, Vec<Value>)], resources: &Resources) -> Vec<String> {
    let mut told = Vec::new();
    let main = compared(experiments).map(|(loaded, _)| loaded);
    for (loaded, values) in experiments {
        if recommends(loaded) {
            told.extend(sentences(&recommendations(loaded, resources)));
            continue;
        }
        // Of several experiments that rank systems the first page tells one; the others have figures of their own.
        let telling = main.is_none_or(|main| std::ptr::eq(main, loaded));
        let own = loaded.expanded.own_workloads;
        let datasets = (0..own).filter(|_| telling).map(|w| loaded.expanded.dataset(w));
        let ranked: Vec<(String, &str)> = datasets
            .filter_map(|dataset| ranking(&loaded.expanded.found.experiment.plot.baseline, values, &dataset))
            .collect();
        if let Some((_, first)) = ranked.first() {
            let baseline = loaded.expanded.found.experiment.plot.baseline.as_str();
            let held = held_against_cards(loaded, [*first, baseline]);
            told.extend(ranked.iter().map(|(sentence, _)| sentence.clone()).chain(held));
        }
        let means = values.iter().filter(|v| v.metric == Metric::RMinus1 && v.number("p") == Some(8.0));
        if loaded.expanded.found.experiment.figure == "table1" {
            let of = |grouping: &str| -> Vec<String> {
                means
                    .clone()
                    .filter(|v| v.system == grouping)
                    .filter_map(|v| Some(format!("{:.2}% on {}", v.estimated.as_ref().ok()?.value * 100.0, v.dataset)))
                    .collect()
            };
            told.push(format!(
                "Pools of eight drawn at random differ by R - 1 = {}; VRSP brings that to {} (computed).",
                of("random").join(" and "),
                of("vrsp").join(" and ")
            ));
        }
    }
    told
}

/// Who shortens waves of a workload most, and the system that does so on the mean; nothing where a system has several values,
/// which have a figure to tell them apart.
fn ranking<'a>(baseline: &str, values: &'a [Value], dataset: &str) -> Option<(String, &'a str)> {
    let of = |metric: Metric| {
        let here =
            values.iter().filter(|v| v.metric == metric && v.dataset == dataset && !v.at.contains_key("network"));
        let mut all: Vec<(&str, &Estimated)> =
            here.filter_map(|v| Some((v.system.as_str(), v.estimated.as_ref().ok()?))).collect();
        all.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        all
    };
    let (mean, slowest) = (of(Metric::Speedup), of(Metric::SpeedupMax));
    let repeated = mean.iter().enumerate().any(|(i, (system, _))| mean[..i].iter().any(|(other, _)| other == system));
    let (system, best) = *mean.first().filter(|_| !repeated)?;
    let first = |all: &[(&str, &Estimated)]| {
        let four: Vec<String> = all.iter().take(4).map(|(s, x)| format!("{s} {:.2}x", x.value)).collect();
        four.join(", ")
    };
    let mut text = format!(
        "On {dataset}, {system} shortens the mean straggler latency of a wave most, {:.2}x over {baseline} (simulated)",
        best.value
    );
    if mean.len() > 1 {
        text.push_str(&format!(", before {}", first(&mean[1..])));
    }
    let low = best.interval.map(|(low, _)| low);
    let meets = |other: &Estimated| other.interval.map(|(_, high)| high) >= low;
    let near: Vec<&str> = mean[1..].iter().filter(|(_, other)| meets(other)).map(|(other, _)| *other).collect();
    if low.is_some() && !near.is_empty() {
        text.push_str(&format!(
            "; the interval of its speedup meets that of {}, from which it is not told apart by it",
            near.join(", ")
        ));
    }
    text.push_str(". That is what counts without a pipeline.");
    if !slowest.is_empty() {
        let what = "The slowest wave of a step, which sets the bubble of one, is shortened most by";
        text.push_str(&format!(" {what} {}.", first(&slowest)));
    }
    Some((text, system))
}

/// How far the simulator is from cards for the first of a ranking and for what it is compared with, and whose the first is.
fn held_against_cards(loaded: &Loaded, [first, baseline]: [&str; 2]) -> Option<String> {
    let machine = loaded.expanded.machine.as_ref().filter(|_| first != baseline)?;
    // A file that cannot be read is told by the page of validation.
    let validation = validation_of(&machine.profile).ok().flatten()?;
    let accuracy = |system: &str| {
        let waves: Vec<Compared> = validation.waves.iter().filter(|w| w.system == system).map(Placed::time).collect();
        Accuracy::of(&waves)
    };
    let (of_first, of_baseline) = (accuracy(first)?, accuracy(baseline)?);
    let percent = |a: &Accuracy| {
        let way = if a.signed < 0.0 { "short" } else { "long" };
        format!("{:.1}% too {way} (n = {})", 100.0 * a.signed.abs(), a.n)
    };
    let own = if first == OWN { format!("{OWN} is this project's own system. ") } else { String::new() };
    let speedups: Vec<_> = validation.speedups(baseline).into_iter().filter(|s| s.system == first).collect();
    let agree = speedups.iter().filter(|s| s.agrees()).count();
    let cards = if speedups.is_empty() {
        String::new()
    } else {
        let range = |of: fn(&Speedup) -> f64| {
            let (low, high) = speedups.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), x| (l.min(x), h.max(x)));
            format!("{low:.2}x to {high:.2}x")
        };
        format!(
            " There, in {} settings of two cards, its speedup over {baseline} is {} where {} was predicted, {agree} times on the predicted side of 1.",
            speedups.len(),
            range(|s| s.measured),
            range(|s| s.predicted)
        )
    };
    Some(format!(
        "{own}Held against two cards, simulated passes of waves are, in the median, {} for {first} and {} for {baseline}: the page of \
         validation has every system that was measured.{cards}",
        percent(&of_first),
        percent(&of_baseline)
    ))
}

/// True for a run that answers which system a user should run.
fn recommends(loaded: &Loaded) -> bool {
    loaded.expanded.found.experiment.figure == recommend::FIGURE
}
