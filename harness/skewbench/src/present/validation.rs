use std::collections::{BTreeMap, BTreeSet};

use skewbench_plan::Pass;
use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Page, Panel, Point, Scale, Section, Side, Table};

use super::summary::short;
use crate::failure::Failure;
use crate::shipped::{Accuracy, Compared, Launch, Placed, Speedup, Validation, pass_name};

/// Bounds that the predictions are drawn against: of a launch's median error, of its 95th percentile, of a wave.
const BOUNDS: [f64; 2] = [0.04, 0.12];
const WAVE_BOUND: f64 = 0.08;
/// The system that measured speedups are over.
const BASELINE: &str = "ulysses";
/// Launches that are named as the worst.
const WORST: usize = 10;

const SUBTITLE: &str = "How far what the simulator predicts is from what a card took";

/// The page that puts predictions beside measurements, for the profiles of a report.
///
/// # Errors
/// Shipped files that cannot be read.
pub fn validation_page<'a>(
    profiles: &BTreeSet<&'a str>,
    find: impl Fn(&'a str) -> Result<Option<Validation>, Failure>,
) -> Result<Page, Failure> {
    let mut page = Page {
        name: "validation".into(),
        title: "Predicted and measured".into(),
        subtitle: SUBTITLE.into(),
        ..Page::default()
    };
    if profiles.is_empty() {
        page.text.push("No number of this report was simulated, so there is no profile to validate.".into());
    }
    for profile in profiles {
        match find(profile)? {
            // Ids of one profile, which is what a report has, go without its name.
            Some(validation) if profiles.len() == 1 => add(&mut page, &validation, ""),
            Some(validation) => add(&mut page, &validation, &format!("-{}", slug(profile))),
            None => page.text.push(format!(
                "The profile {profile} was not validated: no measurements of shapes outside its tables ship with this program. What is \
                 measured and what is assumed in it stands on the first page."
            )),
        }
    }
    if !page.figures.is_empty() {
        page.method = method();
    }
    Ok(page)
}

fn add(page: &mut Page, validation: &Validation, suffix: &str) {
    let launches: Vec<Compared> = validation.launches.iter().map(Launch::time).collect();
    let waves: Vec<Compared> = validation.waves.iter().map(|w| w.time()).collect();
    let ranks: Vec<Compared> = validation.ranks.iter().map(|r| r.time()).collect();
    let profile = &validation.profile;
    for (what, compared) in [("kernel launches", launches), ("ranks", ranks), ("waves", waves)] {
        let Some(accuracy) = Accuracy::of(&compared) else {
            page.text.push(format!("Profile {profile}: no {what} were measured."));
            continue;
        };
        page.text.push(format!(
            "Profile {profile}, {} {what}: the median error is {}, the 95th percentile {}; {} lie within 4% or, where that is more, the spread of \
             their own repeats. Half of the predictions are {} by more than {}.",
            accuracy.n,
            percent(accuracy.median),
            percent(accuracy.p95),
            percent(accuracy.within),
            if accuracy.signed >= 0.0 { "too long" } else { "too short" },
            percent(accuracy.signed.abs())
        ));
    }
    let speedups = validation.speedups(BASELINE);
    page.text.extend(speedups_told(&speedups));
    page.text.push(format!("Held out of the profile {profile}: {}", validation.held_out));
    page.facts.push(("profile".into(), profile.clone()));
    page.facts.extend(validation.card.facts());
    let id = |what: &str| format!("validation-{what}{suffix}");
    if !validation.launches.is_empty() {
        page.figures.push(launch_figure(id("launches"), validation));
        page.figures.push(error_table(id("launch-errors"), "Errors of kernel launches", launch_errors(validation)));
        page.figures.push(worst_table(id("worst"), validation));
    }
    let errors = place_errors(validation);
    if !errors.is_empty() {
        page.figures.push(error_table(id("wave-errors"), "Errors of waves and ranks", errors));
    }
    page.figures.extend(speedup_table(id("speedups"), &speedups));
    page.figures.extend(place_figure(id("waves"), "Waves", &validation.waves));
    page.figures.extend(place_figure(id("ranks"), "Ranks", &validation.ranks));
}

fn launch_figure(id: String, validation: &Validation) -> Figure {
    let work = |l: &Launch| l.pairs as f64 * f64::from(l.q_heads);
    let panels = [Pass::Forward, Pass::Backward].into_iter().filter_map(|pass| {
        let points =
            validation.launches.iter().filter(|l| l.pass == pass).map(|l| (l.source.as_str(), work(l), l.time()));
        ratio_panel(pass, "query heads x pairs", "", points.collect(), &BOUNDS)
    });
    let mut columns = vec![
        Column::new("source", "source", ""),
        Column::new("pass", "pass", ""),
        Column::new("mask", "mask", ""),
        Column::new("heads", "q_heads", ""),
        Column::new("KV heads", "kv_heads", ""),
        Column::new("tiles", "tiles", ""),
        Column::new("rows", "q_total", ""),
        Column::new("keys", "k_total", ""),
        Column::new("longest", "k_max", "keys"),
        Column::new("pairs", "pairs", ""),
    ];
    columns.extend(compared_columns());
    let rows = validation.launches.iter().map(|l| {
        let counts = [l.q_heads.into(), l.kv_heads.into(), l.tiles.into(), l.q_total, l.k_total, l.k_max, l.pairs];
        let mut row: Vec<Cell> = vec![l.source.clone().into(), pass_name(l.pass).into(), l.mask.clone().into()];
        row.extend(counts.map(|n| Cell::Number(n as f64)));
        row.extend(compared_cells(&l.time()));
        row
    });
    Figure {
        id,
        title: "Kernel launches: predicted over measured".into(),
        description: "Ratio of the predicted to the measured time of kernel launches that are not in the profile, against their work. \
                      1 is exact; the lines mark 4% and 12%."
            .into(),
        kind: Kind::Measured,
        panels: panels.collect(),
        caption: "Above 1 the prediction is too long. A point is the median of a launch's repeats. Lines mark an error of 4% and of 12%."
            .into(),
        table: Table { columns, rows: rows.collect() },
        ..Figure::default()
    }
}

fn place_figure(id: String, what: &str, places: &[Placed]) -> Option<Figure> {
    let panels = [Pass::Forward, Pass::Backward].into_iter().filter_map(|pass| {
        let points = places
            .iter()
            .filter(|p| p.pass == pass)
            .map(|p| (p.system.as_str(), p.measured_ns_median * 1e-6, p.time()));
        ratio_panel(pass, "measured", "ms", points.collect(), &[WAVE_BOUND])
    });
    let with_rank = places.first()?.rank.is_some();
    let mut columns = ["source", "system", "workload", "layout", "pass"].map(|c| Column::new(c, c, "")).to_vec();
    columns.push(Column::new("wave", "wave", ""));
    columns.extend(with_rank.then(|| Column::new("rank", "rank", "")));
    columns.extend(compared_columns());
    let rows = places.iter().map(|p| {
        let mut row: Vec<Cell> =
            [&p.source, &p.system, &p.workload, &p.layout].map(|text| text.as_str().into()).to_vec();
        row.extend([pass_name(p.pass).into(), f64::from(p.wave).into()]);
        row.extend(p.rank.map(|r| Cell::Number(r.into())));
        row.extend(compared_cells(&p.time()));
        row
    });
    Some(Figure {
        id,
        title: format!("{what}: predicted over measured"),
        description: format!(
            "Ratio of the predicted to the measured time of {}, against the measured time. 1 is exact; the lines mark 8%.",
            what.to_lowercase()
        ),
        kind: Kind::Measured,
        panels: panels.collect(),
        caption: "Above 1 the prediction is too long. A point is the median of the repeats. Lines mark an error of 8%."
            .into(),
        table: Table { columns, rows: rows.collect() },
        ..Figure::default()
    })
}

/// Ratios of one pass against a quantity; none where the pass has no comparison.
fn ratio_panel(
    pass: Pass,
    x_label: &str,
    x_unit: &str,
    points: Vec<(&str, f64, Compared)>,
    bounds: &[f64],
) -> Option<Panel> {
    let mut series: Vec<&str> = Vec::new();
    for (name, ..) in &points {
        if !series.contains(name) {
            series.push(name);
        }
    }
    let lines = bounds.iter().flat_map(|bound| [1.0 - bound, 1.0 + bound].map(|value| (bound, value)));
    let mut marks: Vec<Mark> = lines
        .map(|(bound, value)| Mark::Reference {
            label: format!("error of {:.0}%", bound * 100.0),
            side: Side::Y,
            value,
        })
        .collect();
    marks.extend(series.iter().map(|name| {
        Mark::Points {
            series: (*name).to_owned(),
            points: points
                .iter()
                .filter(|(n, ..)| n == name)
                .map(|(_, x, c)| Point { x: *x, y: c.ratio(), ..Point::default() })
                .collect(),
        }
    }));
    (!points.is_empty()).then(|| Panel {
        title: pass_name(pass).into(),
        x: Axis { label: x_label.into(), unit: x_unit.into(), scale: Scale::Log10, ..Axis::default() },
        y: Axis { label: "predicted / measured".into(), ..Axis::default() },
        marks,
    })
}

fn launch_errors(validation: &Validation) -> Vec<Vec<Cell>> {
    let launches: Vec<(&Launch, Compared)> = validation.launches.iter().map(|l| (l, l.time())).collect();
    let by = |what: &str, key: &dyn Fn(&Launch, &Compared) -> String| {
        grouped(what, launches.iter().map(|(l, c)| (key(l, c), *c)))
    };
    [
        by("launches", &|_, _| "all".into()),
        by("by source and pass", &|l, _| format!("{}, {}", l.source, pass_name(l.pass))),
        by("by mask and pass", &|l, _| format!("{}, {}", l.mask, pass_name(l.pass))),
        by("by measured time", &|_, c| decade(c.median).into()),
    ]
    .concat()
}

fn place_errors(validation: &Validation) -> Vec<Vec<Cell>> {
    let waves = || validation.waves.iter();
    let ranks = || validation.ranks.iter();
    [
        grouped("waves", waves().map(|w| ("all".into(), w.time()))),
        grouped(
            "waves, by system and pass",
            waves().map(|w| (format!("{}, {}", w.system, pass_name(w.pass)), w.time())),
        ),
        grouped("ranks", ranks().map(|r| ("all".into(), r.time()))),
        grouped(
            "ranks, by system and pass",
            ranks().map(|r| (format!("{}, {}", r.system, pass_name(r.pass)), r.time())),
        ),
    ]
    .concat()
}

fn error_table(id: String, title: &str, rows: Vec<Vec<Cell>>) -> Figure {
    Figure {
        id,
        title: title.into(),
        description: "Errors of predictions, by what was predicted.".into(),
        kind: Kind::Measured,
        caption: "Error: |predicted / measured - 1|. Within: share whose error is at most 4% or, where that is more, the spread of its own repeats. \
                  Signed median: above 0 where predictions are too long."
            .into(),
        table: Table {
            columns: vec![
                Column::new("what", "what", ""),
                Column::new("kind", "kind", ""),
                Column::new("n", "n", ""),
                Column::new("median error", "median_error_percent", "%"),
                Column::new("95th percentile", "p95_error_percent", "%"),
                Column::new("within", "within_percent", "%"),
                Column::new("signed median", "signed_median_percent", "%"),
            ],
            rows,
        },
        ..Figure::default()
    }
}

/// Whether the simulator sends its reader to what is faster on cards.
fn speedups_told(speedups: &[Speedup]) -> Option<String> {
    let wrong: Vec<String> = speedups
        .iter()
        .filter(|s| !s.agrees())
        .map(|s| {
            format!(
                "{} on {}, {} ({}x predicted, {}x measured)",
                s.system,
                s.workload,
                s.layout,
                short(s.predicted),
                short(s.measured)
            )
        })
        .collect();
    let n = speedups.len();
    (n > 0).then(|| {
        let but = if wrong.is_empty() { String::new() } else { format!("; not for {}", wrong.join("; ")) };
        format!(
            "Of {n} speedups over {BASELINE}, both passes, {} lie on the side of 1 that was predicted{but}.",
            n - wrong.len()
        )
    })
}

fn speedup_table(id: String, speedups: &[Speedup]) -> Option<Figure> {
    let rows = speedups.iter().map(|s| {
        let mut row: Vec<Cell> = [&s.system, &s.workload, &s.layout].map(|text| Cell::from(text.clone())).to_vec();
        row.extend([s.predicted, s.measured, s.predicted / s.measured].map(Cell::Number));
        row.push(if s.agrees() { "yes" } else { "no" }.into());
        row
    });
    (!speedups.is_empty()).then(|| Figure {
        id,
        title: format!("Speedups over {BASELINE}: predicted and measured"),
        description: "What the simulator says a system gains, beside what it gained on cards.".into(),
        kind: Kind::Measured,
        caption: "Attention of a step, forward and backward, the slowest rank of every wave; measured: medians of the repeats.".into(),
        table: Table {
            columns: vec![
                Column::new("system", "system", ""),
                Column::new("setting", "workload", ""),
                Column::new("layout", "layout", ""),
                Column::new("predicted", "speedup_predicted", "x"),
                Column::new("measured", "speedup_measured", "x"),
                Column::new("predicted over measured", "ratio", ""),
                Column::new("same side of 1", "agrees", ""),
            ],
            rows: rows.collect(),
        },
        ..Figure::default()
    })
}

/// One row of errors for every group, in the order of their names.
fn grouped(what: &str, compared: impl Iterator<Item = (String, Compared)>) -> Vec<Vec<Cell>> {
    let mut groups: BTreeMap<String, Vec<Compared>> = BTreeMap::new();
    for (key, c) in compared {
        groups.entry(key).or_default().push(c);
    }
    let row = |(key, group): (String, Vec<Compared>)| {
        let a = Accuracy::of(&group)?;
        let numbers = [a.n as f64, a.median * 100.0, a.p95 * 100.0, a.within * 100.0, a.signed * 100.0];
        Some([Cell::from(what), Cell::from(key)].into_iter().chain(numbers.map(Cell::Number)).collect())
    };
    groups.into_iter().filter_map(row).collect()
}

fn decade(ns: f64) -> &'static str {
    match ns {
        ns if ns < 1e5 => "0 to 0.1 ms",
        ns if ns < 1e6 => "0.1 to 1 ms",
        ns if ns < 1e7 => "1 to 10 ms",
        ns if ns < 1e8 => "10 to 100 ms",
        _ => "100 ms and above",
    }
}

fn worst_table(id: String, validation: &Validation) -> Figure {
    let mut launches: Vec<(&Launch, Compared)> = validation.launches.iter().map(|l| (l, l.time())).collect();
    launches.sort_by(|a, b| b.1.error().abs().total_cmp(&a.1.error().abs()));
    let rows = launches
        .iter()
        .take(WORST)
        .map(|(launch, time)| [Cell::from(launch.name())].into_iter().chain(compared_cells(time)).collect());
    Figure {
        id,
        title: format!("The {} worst predicted launches", launches.len().min(WORST)),
        description: "The launches whose predictions are furthest from what was measured.".into(),
        kind: Kind::Measured,
        caption: "By |predicted / measured - 1|.".into(),
        table: Table {
            columns: [Column::new("launch", "launch", "")].into_iter().chain(compared_columns()).collect(),
            rows: rows.collect(),
        },
        ..Figure::default()
    }
}

fn compared_columns() -> [Column; 6] {
    [
        Column::new("predicted", "predicted_ms", "ms"),
        Column::new("measured", "measured_median_ms", "ms"),
        Column::new("least", "measured_min_ms", "ms"),
        Column::new("greatest", "measured_max_ms", "ms"),
        Column::new("n", "n", ""),
        Column::new("predicted / measured", "ratio", ""),
    ]
}

fn compared_cells(c: &Compared) -> [Cell; 6] {
    let ms = |ns: f64| Cell::Number(ns * 1e-6);
    [ms(c.predicted), ms(c.median), ms(c.min), ms(c.max), f64::from(c.n).into(), c.ratio().into()]
}

fn method() -> Vec<Section> {
    vec![Section {
        title: "What is compared".into(),
        paragraphs: vec![
            "A launch is one attention kernel call with all of its tiles. It was timed by device events after warm-up; the prediction is the \
             profile's price of the same call. No launch here is a row of the profile's tables."
                .into(),
            "A rank is a pass of a wave on one rank, a wave the slowest of its ranks. With the source replay, launches were timed on one card and \
             transfers come from the profile, so the comparison says nothing about transfers; with the source cuda everything was timed on cards."
                .into(),
        ],
    }]
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A part of a figure's id.
pub(super) fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(plain).take(40).collect()
}
