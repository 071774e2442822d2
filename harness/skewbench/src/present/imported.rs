use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Page, Panel, Point, Scale, Section, Side, Table};

use crate::imported::{Accuracy, Fit, Measured, Observation, Of, PassFit, WaveTimes, waves};
use crate::metrics::Estimated;

/// Times that are drawn and listed one by one at most; of more an even selection is.
const SHOWN: usize = 2000;

/// Imported times with what was fitted to them.
pub struct Imported<'a> {
    /// File.
    pub file: String,
    /// What it holds.
    pub measured: &'a Measured,
    /// Every time beside what is predicted of it.
    pub observations: &'a [Observation],
    /// What makes predictions fit.
    pub fit: &'a Fit,
    /// System that was measured.
    pub system: &'a str,
    /// Layout that was measured.
    pub layout: &'a str,
    /// Model.
    pub model: &'a str,
    /// Profile that predicts.
    pub profile: &'a str,
    /// What was timed.
    pub of: Of,
    /// Command line.
    pub command: String,
}

impl Imported<'_> {
    /// How far the profile's predictions are.
    pub fn before(&self) -> Accuracy {
        Accuracy::of(self.observations, &Observation::predicted)
    }

    /// How far those of the fit are.
    pub fn after(&self) -> Accuracy {
        Accuracy::of(self.observations, &|o| self.fit.of(o))
    }

    /// Slowest over mean rank, mean over waves, as measured.
    pub fn straggler(&self) -> f64 {
        let waves = waves(self.observations, &Observation::predicted);
        waves.iter().map(|w| WaveTimes::straggler(&w.measured)).sum::<f64>() / waves.len().max(1) as f64
    }
}

/// The page that puts imported times beside predicted ones.
pub fn imported_page(imported: &Imported<'_>) -> Page {
    let (before, after) = (imported.before(), imported.after());
    let percent = |x: f64| format!("{:.1}%", 100.0 * x);
    let mut text = vec![format!(
        "The times of ranks, {} (measured, {} waves of {} ranks), beside those that profile {} predicts: the median error is {}, the 95th percentile {}; of the slowest ranks of waves {} and {}. The slowest rank takes {:.3} times the mean, {:.3} as predicted; in {} of the waves it is the one that is predicted.",
        imported.of.words(),
        imported.measured.waves.len(),
        imported.measured.waves.first().map_or(0, |w| w.times.values().next().map_or(0, Vec::len)),
        imported.profile,
        percent(before.median),
        percent(before.p95),
        percent(before.wave_median),
        percent(before.wave_p95),
        imported.straggler(),
        before.straggler,
        percent(before.same_slowest),
    )];
    let mut changes = Vec::new();
    for PassFit { pass, factor, constant, .. } in &imported.fit.passes {
        changes.push(format!("kernels of the pass {} x {}", pass.name(), quote(factor, 1.0, 4)));
        changes.push(match constant {
            Some(constant) => format!("{} us a wave beside them", quote(constant, 1e-3, 1)),
            None => "no constant, which what is predicted varies too little to tell from the factor".into(),
        });
    }
    if !imported.fit.speeds.is_empty() {
        changes
            .push(format!("ranks that differ by {} (relative standard deviation)", percent(imported.fit.relative_sd)));
    }
    text.push(format!(
        "What the profile would need to change (modelled, fitted to these times): {}. With it the median error is {}, the 95th percentile {}.",
        changes.join("; "),
        percent(after.median),
        percent(after.p95)
    ));
    Page {
        name: "imported".into(),
        title: "Measured by you and predicted".into(),
        subtitle: "Imported times of a cluster beside what the simulator predicts for it".into(),
        text,
        facts: facts(imported),
        figures: vec![ranks_figure(imported), waves_figure(imported)]
            .into_iter()
            .chain(speeds_figure(imported))
            .collect(),
        method: method(),
    }
}

/// A value with its interval.
fn quote(e: &Estimated, scale: f64, digits: usize) -> String {
    let interval = e.interval.map(|(low, high)| format!(" ({:.digits$} to {:.digits$})", low * scale, high * scale));
    format!("{:.digits$}{}", e.value * scale, interval.unwrap_or_default())
}

fn facts(imported: &Imported<'_>) -> Vec<(String, String)> {
    [
        ("file", imported.file.clone()),
        ("blake3", imported.measured.hash.clone()),
        ("times", imported.measured.rows.to_string()),
        ("of", imported.of.words().to_owned()),
        ("system", imported.system.to_owned()),
        ("layout", imported.layout.to_owned()),
        ("model", imported.model.to_owned()),
        ("profile", imported.profile.to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// An even selection of so many at most.
fn shown<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(SHOWN).max(1))
}

fn ratio_axis() -> Axis {
    Axis { label: "predicted over measured".into(), ..Axis::default() }
}

fn exact(value: f64, side: Side) -> Mark {
    Mark::Reference { label: "exact".into(), side, value }
}

fn ranks_figure(imported: &Imported<'_>) -> Figure {
    let all = imported.observations;
    let points = |of: &dyn Fn(&Observation) -> f64| -> Vec<Point> {
        shown(all).map(|o| Point { x: o.measured * 1e-6, y: of(o) / o.measured, ..Point::default() }).collect()
    };
    let marks = vec![
        exact(1.0, Side::Y),
        Mark::Points { series: "profile".into(), points: points(&Observation::predicted) },
        Mark::Points { series: "fitted".into(), points: points(&|o| imported.fit.of(o)) },
    ];
    let row = |o: &Observation| -> Vec<Cell> {
        let number = imported.measured.waves.get(o.wave).map_or(0, |w| w.number);
        vec![
            f64::from(number).into(),
            (o.rank as f64).into(),
            o.pass.name().into(),
            (o.measured * 1e-6).into(),
            (o.predicted() * 1e-6).into(),
            (imported.fit.of(o) * 1e-6).into(),
            (o.predicted() / o.measured).into(),
        ]
    };
    let listed = shown(all).count();
    Figure {
        id: "imported-ranks".into(),
        title: "Ranks: predicted over measured".into(),
        description: "Ratio of the predicted to the measured time of every rank of every wave, against the measured time. 1 is exact.".into(),
        kind: Kind::Measured,
        panels: vec![Panel {
            title: imported.of.words().into(),
            x: Axis { label: "measured".into(), unit: "ms".into(), ..Axis::default() },
            y: ratio_axis(),
            marks,
        }],
        caption: format!(
            "{listed} of {} times. Above 1 the prediction is too long. Of repeats the median counts.",
            all.len()
        ),
        table: Table {
            columns: vec![
                Column::new("wave", "wave", ""),
                Column::new("rank", "rank", ""),
                Column::new("pass", "pass", ""),
                Column::new("measured", "measured", "ms"),
                Column::new("predicted", "predicted", "ms"),
                Column::new("fitted", "fitted", "ms"),
                Column::new("predicted / measured", "ratio", ""),
            ],
            rows: shown(all).map(row).collect(),
        },
        ..Figure::default()
    }
}

fn waves_figure(imported: &Imported<'_>) -> Figure {
    let all = waves(imported.observations, &Observation::predicted);
    let numbered: Vec<(u32, &WaveTimes)> = imported.measured.waves.iter().map(|w| w.number).zip(&all).collect();
    let points = |of: fn(&WaveTimes) -> &Vec<f64>| -> Vec<Point> {
        let point = |(number, w): &(u32, &WaveTimes)| Point {
            x: f64::from(*number),
            y: WaveTimes::straggler(of(w)),
            ..Point::default()
        };
        shown(&numbered).map(point).collect()
    };
    let max = |times: &[f64]| times.iter().copied().fold(0.0, f64::max) * 1e-6;
    let row = |(number, w): &(u32, &WaveTimes)| -> Vec<Cell> {
        vec![
            f64::from(*number).into(),
            max(&w.measured).into(),
            max(&w.predicted).into(),
            w.ratio().into(),
            WaveTimes::straggler(&w.measured).into(),
            WaveTimes::straggler(&w.predicted).into(),
            (WaveTimes::slowest(&w.measured) as f64).into(),
            (WaveTimes::slowest(&w.predicted) as f64).into(),
        ]
    };
    Figure {
        id: "imported-waves".into(),
        title: "Waves: slowest over mean rank".into(),
        description: "How much longer than the mean rank the slowest rank of every wave takes, measured and predicted."
            .into(),
        kind: Kind::Measured,
        panels: vec![Panel {
            title: "slowest over mean rank".into(),
            x: Axis { label: "wave".into(), ..Axis::default() },
            y: Axis { label: "slowest over mean".into(), ..Axis::default() },
            marks: vec![
                Mark::Points { series: "measured".into(), points: points(|w| &w.measured) },
                Mark::Points { series: "profile".into(), points: points(|w| &w.predicted) },
            ],
        }],
        caption: "1 is a wave whose ranks all end together; all its passes count.".into(),
        table: Table {
            columns: vec![
                Column::new("wave", "wave", ""),
                Column::new("slowest, measured", "measured", "ms"),
                Column::new("slowest, predicted", "predicted", "ms"),
                Column::new("predicted / measured", "ratio", ""),
                Column::new("slowest / mean, measured", "straggler_measured", ""),
                Column::new("slowest / mean, predicted", "straggler_predicted", ""),
                Column::new("slowest rank, measured", "rank_measured", ""),
                Column::new("slowest rank, predicted", "rank_predicted", ""),
            ],
            rows: shown(&numbered).map(row).collect(),
        },
        ..Figure::default()
    }
}

fn speeds_figure(imported: &Imported<'_>) -> Option<Figure> {
    let speeds = &imported.fit.speeds;
    let point = |(rank, e): (usize, &Estimated)| {
        let (low, high) = e.interval.unzip();
        Point { x: rank as f64, y: e.value, low, high }
    };
    let row = |(rank, e): (usize, &Estimated)| -> Vec<Cell> {
        let (low, high) = e.interval.unzip();
        vec![(rank as f64).into(), e.value.into(), low.into(), high.into()]
    };
    (!speeds.is_empty()).then(|| Figure {
        id: "imported-speeds".into(),
        title: "Time of every rank's kernels over that of the mean rank".into(),
        description:
            "One point a rank; above the line its kernels take longer than those of the mean rank for the same work."
                .into(),
        kind: Kind::Modelled,
        panels: vec![Panel {
            title: "time factor of ranks".into(),
            x: Axis { label: "rank".into(), scale: Scale::Linear, ..Axis::default() },
            y: Axis { label: "time over the mean rank's".into(), ..Axis::default() },
            marks: vec![
                Mark::Reference { label: "as fast".into(), side: Side::Y, value: 1.0 },
                Mark::Points { series: "fitted".into(), points: speeds.iter().enumerate().map(point).collect() },
            ],
        }],
        caption: "Fitted together with the factor and the constant. Error bars: 95% bootstrap interval over waves."
            .into(),
        table: Table {
            columns: vec![
                Column::new("rank", "rank", ""),
                Column::new("time factor", "factor", ""),
                Column::new("95% low", "ci_low", ""),
                Column::new("95% high", "ci_high", ""),
            ],
            rows: speeds.iter().enumerate().map(row).collect(),
        },
        ..Figure::default()
    })
}

fn method() -> Vec<Section> {
    vec![Section {
        title: "What is fitted".into(),
        paragraphs: vec![
            "measured = constant of a wave + factor x speed of the rank x predicted kernels + all else that is predicted, by least squares of relative errors; factor and constant for each pass, speeds for each rank with mean 1. Intervals draw whole waves.".into(),
            "Ranks that wait for each other inside what was timed share the time of the slowest, so that the speed of a card is seen on all of them: time kernels alone to tell cards apart.".into(),
        ],
    }]
}
