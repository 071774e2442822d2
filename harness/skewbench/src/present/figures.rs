use std::collections::BTreeSet;

use skewbench_report::{Cell, Column, Figure, Kind, Mark, Named, Panel, Point, Quantiles, Scale, Table};
use skewbench_store::stats::quantile;
use skewbench_store::{Reference, ReferenceEntry};

use super::costs::memory_note;
use super::digest::digest;
use super::findings::findings;
use super::summary::metric_name;
use super::values::ALL;
use super::{Loaded, Value, linear_name, spread, swept, tuning_results};
use crate::cells::Resources;
use crate::experiment::{self, Axis, Metric, describe};

/// Draws an experiment.
pub fn figure(loaded: &Loaded, resources: &Resources, values: &[Value], reference: &Reference) -> Figure {
    let e = &loaded.expanded.found.experiment;
    let metrics = &e.plot.metrics;
    let panels = match &e.plot.x {
        _ if e.plot.y.is_some() => swept::heat_panels(loaded, values),
        Axis::Dp | Axis::Cp | Axis::Pool => line_panels(loaded, values, reference),
        Axis::Block if e.kind == experiment::Kind::Kernels => kernel_panels(loaded, values),
        Axis::Step if e.kind == experiment::Kind::Spread => spread::panels(loaded),
        Axis::System if metrics.first() == Some(&Metric::ForwardSpread) => box_panels(loaded, resources),
        Axis::System => bar_panels(loaded, values, reference),
        other if swept::in_numbers(values, other.coordinate()) => line_panels(loaded, values, reference),
        _ => swept::dot_panels(loaded, values),
    };
    let kind = if values.iter().any(|v| v.simulated) && loaded.expanded.replay().is_some() {
        Kind::Replayed
    } else if values.iter().any(|v| v.simulated) {
        Kind::Simulated
    } else if metrics.contains(&Metric::RuntimeSpread) && loaded.expanded.replay().is_none() {
        Kind::Modelled
    } else if metrics.iter().any(|m| matches!(m, Metric::KernelRate | Metric::RuntimeSpread)) {
        Kind::Measured
    } else {
        Kind::Computed
    };
    Figure {
        id: e.figure.clone(),
        title: e.title.clone(),
        description: e.description.clone(),
        kind,
        panels,
        caption: caption(loaded, values),
        findings: findings(loaded, resources, values, reference),
        notes: {
            let tuned = tuning_results(loaded);
            let memory = memory_note(loaded, resources, values);
            e.differs.iter().cloned().chain(memory).chain(tuned.iter().map(|r| r.sentence())).collect()
        },
        systems: distinct(values.iter().map(|v| v.system.as_str())),
        workloads: distinct(values.iter().map(|v| v.dataset.as_str())),
        digest: digest(loaded, values),
        table: table(values, reference, &e.figure),
        ..Figure::default()
    }
}

fn caption(loaded: &Loaded, values: &[Value]) -> String {
    let e = &loaded.expanded.found.experiment;
    let mut parts = Vec::new();
    let mut steps: Vec<u64> = values.iter().filter_map(|v| v.estimated.as_ref().ok()).map(|e| e.n).collect();
    steps.sort_unstable();
    steps.dedup();
    if let (Some(least), Some(most)) = (steps.first(), steps.last().filter(|n| **n > 1)) {
        let n = if least == most { format!("n = {most} steps") } else { format!("n = {least} to {most} steps") };
        parts
            .push(format!("Error bars: 95% bootstrap interval over steps, {n} of {} sequences", loaded.expanded.gbs()));
        parts.push(format!("seed {}", loaded.expanded.seed));
    }
    if let Some(machine) = &loaded.expanded.machine {
        parts.push(format!("profile {}", machine.profile));
    }
    if values.iter().any(|v| v.simulated) {
        let how = loaded.expanded.replay().map_or_else(
            || "simulated".to_owned(),
            |key| format!("launches timed on {} (cuDNN {}), transfers from the profile", key.card, key.cudnn),
        );
        parts.push(format!("model {}, one layer, {how}; the network between nodes is assumed", e.model));
    }
    if let Some((waves, open)) = loaded.replayed_waves().filter(|(waves, _)| *waves > 0) {
        parts.push(format!("{waves} waves replayed, in {open} of them a rank that was not timed may be the slowest"));
    }
    if values.iter().any(|v| v.text("linear") == Some("fitted")) {
        let fit = &e.step_model.fitted;
        parts.push(format!("fitted linear work: {} {} = {} at DP = {}", fit.workload, fit.system, fit.scaling, fit.dp));
    }
    format!("{}.", parts.join("; "))
}

fn entry<'a>(reference: &'a Reference, figure: &str, value: &Value) -> Option<&'a ReferenceEntry> {
    super::summary::published(reference, figure, value)
}

/// Values of a panel that a line or bar may show: of several readings the headline one.
pub(super) fn headline(value: &Value) -> bool {
    value.dataset != ALL
        && value.text("base").is_none_or(|b| b != "own")
        && value.text("transfers").is_none_or(|t| t == "charged")
        && value.text("pass").is_none_or(|p| p == "both")
}

pub(super) fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    values.filter(|v| seen.insert(*v)).map(str::to_owned).collect()
}

fn line_panels(loaded: &Loaded, values: &[Value], reference: &Reference) -> Vec<Panel> {
    let e = &loaded.expanded.found.experiment;
    let Some(metric) = e.plot.metrics.first() else { return Vec::new() };
    let coordinate = e.plot.x.coordinate();
    let label = match &e.plot.x {
        Axis::Dp => "data-parallel ranks (DP)".to_owned(),
        Axis::Cp => "context-parallel ranks (CP)".to_owned(),
        Axis::Pool => "sequences of a pool (P)".to_owned(),
        other => other.name().replace('_', " "),
    };
    // Beside the layout's own ranks a scaling has the single ones that it is relative to, which no other axis shows.
    let swept_dp = e.plot.x == Axis::Dp || !e.sweep.dp.is_empty() || e.layout.dp == 1 || *metric != Metric::Scaling;
    let own_dp = |v: &Value| swept_dp || v.number("dp") != Some(1.0);
    let shown: Vec<&Value> = values.iter().filter(|v| v.metric == *metric && headline(v) && own_dp(v)).collect();
    let scale = match &e.plot.x {
        Axis::Swept(_) | Axis::Block | Axis::Step => swept::scale(shown.iter().filter_map(|v| v.number(coordinate))),
        _ => Scale::Log2,
    };
    let modes = distinct(shown.iter().filter_map(|v| v.text("linear")));
    let modes: Vec<Option<String>> = if modes.is_empty() { vec![None] } else { modes.into_iter().map(Some).collect() };
    let mut panels = Vec::new();
    let groups = swept::groups(loaded, &shown);
    for mode in &modes {
        for (dataset, aside) in &groups {
            let belongs = |v: &Value| v.text("linear") == mode.as_deref() && swept::belongs(loaded, v, dataset, aside);
            let here: Vec<&Value> = shown.iter().filter(|v| belongs(v)).copied().collect();
            let mut marks = Vec::new();
            if *metric == Metric::RMinus1 {
                marks.extend(published_formula(loaded, dataset, &here));
            }
            if *metric == Metric::Scaling && e.plot.x == Axis::Dp {
                let mut points: Vec<Point> = here
                    .iter()
                    .filter_map(|v| v.number("dp"))
                    .map(|dp| Point { x: dp, y: dp, low: None, high: None })
                    .collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                points.dedup_by(|a, b| a.x == b.x);
                marks.push(Mark::Curve { label: "ideal".into(), points });
            }
            for system in distinct(here.iter().map(|v| v.system.as_str())) {
                let mut points: Vec<Point> =
                    here.iter().filter(|v| v.system == system).filter_map(|v| point(v, coordinate)).collect();
                // What has no pools has one value, which holds at every size of them.
                if let ([one], Axis::Pool) = (points.as_slice(), &e.plot.x) {
                    let one = *one;
                    let positions = here.iter().filter_map(|v| v.number(coordinate)).map(|x| Point { x, ..one });
                    points = positions.collect();
                    points.sort_by(|a, b| a.x.total_cmp(&b.x));
                    points.dedup_by(|a, b| a.x == b.x);
                }
                marks.push(Mark::Line { series: system, points });
            }
            let all: Vec<&Value> = values.iter().filter(|v| v.metric == *metric && belongs(v) && own_dp(v)).collect();
            marks.extend(other_readings(&all, coordinate, reference, &e.figure));
            marks.extend(published_points(&all, coordinate, reference, &e.figure));
            let mode = mode.as_ref().map(|mode| format!("{mode} linear work")).unwrap_or_default();
            let title: Vec<&str> =
                [dataset, aside, &mode].into_iter().map(String::as_str).filter(|t| !t.is_empty()).collect();
            panels.push(Panel {
                title: title.join(", "),
                x: axis(&label, "", scale),
                y: axis(&metric_label(*metric, &e.plot.baseline), unit_text(metric.unit()), Scale::Auto),
                marks,
            });
        }
    }
    panels
}

fn point(value: &Value, coordinate: &str) -> Option<Point> {
    let e = value.estimated.as_ref().ok()?;
    let (low, high) = e.interval.unzip();
    Some(Point { x: value.number(coordinate)?, y: e.value, low, high })
}

/// Values that a published number stands beside and that are not what lines show: the same without transfers. Without them the
/// picture would put the number beside another value than its verdict does.
fn other_readings(all: &[&Value], coordinate: &str, reference: &Reference, figure: &str) -> Vec<Mark> {
    let stated = |v: &&&Value| !headline(v) && entry(reference, figure, v).is_some();
    distinct(all.iter().filter(stated).map(|v| v.system.as_str()))
        .into_iter()
        .map(|system| {
            let own = all.iter().filter(|v| v.system == system && v.text("transfers") == Some("left_out"));
            let mut points: Vec<Point> = own.filter_map(|v| point(v, coordinate)).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Mark::Curve {
                label: format!("{system}, transfers left out: what the published values stand beside"),
                points,
            }
        })
        .collect()
}

fn published_points(here: &[&Value], coordinate: &str, reference: &Reference, figure: &str) -> Vec<Mark> {
    here.iter()
        .filter_map(|v| {
            let entry = entry(reference, figure, v)?;
            let point = Point { x: v.number(coordinate)?, y: entry.number()?, low: None, high: None };
            let bound = if entry.value.is_none() { "published bound" } else { "published" };
            Some(Mark::Published {
                series: Some(v.system.clone()),
                label: format!("{bound}, {}", v.system),
                points: vec![point],
            })
        })
        .collect()
}

fn published_formula(loaded: &Loaded, dataset: &str, here: &[&Value]) -> Option<Mark> {
    let workload = (0..loaded.expanded.own_workloads).find(|w| loaded.expanded.dataset(*w) == dataset)?;
    let windows = loaded.windows(workload)?;
    let gbs = loaded.expanded.gbs();
    let mut pools: Vec<u32> =
        here.iter().filter_map(|v| v.number("p")).map(|p| p as u32).filter(|p| *p * 2 <= gbs).collect();
    pools.sort_unstable();
    pools.dedup();
    let points = pools
        .iter()
        .map(|p| Point { x: f64::from(*p), y: windows.published_formula(*p, gbs), low: None, high: None })
        .collect();
    Some(Mark::Curve { label: format!("eq. 3 with CV = {:.3}", windows.cv_x), points })
}

fn kernel_panels(loaded: &Loaded, values: &[Value]) -> Vec<Panel> {
    let shown: Vec<&Value> = values.iter().filter(|v| v.metric == Metric::KernelRate).collect();
    let passes = distinct(shown.iter().filter_map(|v| v.text("pass")));
    let groups = swept::groups(loaded, &shown);
    let all = passes.iter().flat_map(|pass| groups.iter().map(move |(_, aside)| (pass, aside)));
    all.map(|(pass, aside)| {
        let belongs = |v: &Value| v.text("pass") == Some(pass) && swept::aside(loaded, v) == *aside;
        let here: Vec<&&Value> = shown.iter().filter(|v| belongs(v)).collect();
        let marks = distinct(here.iter().map(|v| v.system.as_str()))
            .into_iter()
            .map(|system| {
                let points = here
                    .iter()
                    .filter(|v| v.system == system)
                    .filter_map(|v| {
                        let y = v.estimated.as_ref().ok()?.value;
                        Some(Point { x: v.number("block")?, y, low: None, high: None })
                    })
                    .collect();
                Mark::Line { series: system, points }
            })
            .collect();
        Panel {
            title: if aside.is_empty() { pass.clone() } else { format!("{pass}, {aside}") },
            x: axis("query rows of the block", "tokens", Scale::Log2),
            y: axis("rate of one call", "TFLOP/s", Scale::Linear),
            marks,
        }
    })
    .collect()
}

fn bar_panels(loaded: &Loaded, values: &[Value], reference: &Reference) -> Vec<Panel> {
    let e = &loaded.expanded.found.experiment;
    let mut panels = Vec::new();
    for metric in e.plot.metrics.iter().take(2) {
        let shown: Vec<&Value> = values.iter().filter(|v| v.metric == *metric && headline(v)).collect();
        for (dataset, aside) in swept::groups(loaded, &shown) {
            let belongs = |v: &Value| swept::belongs(loaded, v, &dataset, &aside);
            let here: Vec<&Value> = shown.iter().filter(|v| belongs(v)).copied().collect();
            let named = |v: &Value| {
                let e = v.estimated.as_ref().ok()?;
                Some(Named {
                    category: v.system.clone(),
                    value: e.value,
                    low: e.interval.map(|i| i.0),
                    high: e.interval.map(|i| i.1),
                })
            };
            let mut marks: Vec<Mark> = here
                .iter()
                .filter_map(|v| Some(Mark::Bars { series: v.system.clone(), values: vec![named(v)?] }))
                .collect();
            for network in ["half", "double"] {
                let of = values
                    .iter()
                    .filter(|v| v.metric == Metric::NetworkBand && *metric == Metric::StragglerMean)
                    .filter(|v| belongs(v) && v.text("network") == Some(network));
                let steps: BTreeSet<u64> = of.clone().filter_map(|v| Some(v.estimated.as_ref().ok()?.n)).collect();
                let band: Vec<Named> = of.filter_map(named).map(|n| Named { low: None, high: None, ..n }).collect();
                if let (Some(least), Some(most)) = (steps.first(), steps.last()) {
                    let n = if least == most { most.to_string() } else { format!("{least} to {most}") };
                    let series = format!("at {network} the bandwidth between nodes (n = {n})");
                    marks.push(Mark::Dots { series, values: band });
                }
            }
            let published: Vec<Named> = here
                .iter()
                .filter_map(|v| {
                    let value = entry(reference, &e.figure, v)?.number()?;
                    Some(Named { category: v.system.clone(), value, low: None, high: None })
                })
                .collect();
            if !published.is_empty() {
                marks.push(Mark::PublishedNamed { series: None, label: "published".into(), values: published });
            }
            let categories = here.iter().map(|v| v.system.clone()).collect();
            panels.push(Panel {
                title: swept::title(&dataset, &aside),
                x: axis(&metric_label(*metric, &e.plot.baseline), unit_text(metric.unit()), Scale::Auto),
                y: skewbench_report::Axis { scale: Scale::Category, categories, ..Default::default() },
                marks,
            });
        }
    }
    panels
}

fn box_panels(loaded: &Loaded, resources: &Resources) -> Vec<Panel> {
    loaded.parts().flat_map(|(at, part)| box_panels_of(part, resources, at.map(describe))).collect()
}

fn box_panels_of(loaded: &Loaded, resources: &Resources, aside: Option<String>) -> Vec<Panel> {
    let expanded = &loaded.expanded;
    let e = &expanded.found.experiment;
    let aside = aside.map(|aside| format!(", {aside}")).unwrap_or_default();
    let mut panels = Vec::new();
    for mode in &e.step_model.linear {
        for workload in 0..expanded.own_workloads {
            let mut marks = Vec::new();
            let mut categories = Vec::new();
            for (at, _) in expanded.places.iter().filter(|(at, _)| at.workload == workload) {
                if !expanded.systems.contains(&at.system) || at.dp != e.layout.dp {
                    continue;
                }
                let times = loaded.linear(resources, *mode, at).and_then(|linear| loaded.forward_times_ms(at, linear));
                let Ok(times) = times else { continue };
                let q = |p: f64| quantile(&times, p);
                let values = vec![Quantiles {
                    category: at.system.clone(),
                    p5: q(0.05),
                    p25: q(0.25),
                    p50: q(0.5),
                    p75: q(0.75),
                    p95: q(0.95),
                    max: q(1.0),
                }];
                categories.push(at.system.clone());
                marks.push(Mark::Boxes { series: at.system.clone(), values });
            }
            panels.push(Panel {
                title: format!("{}{aside}, {} linear work", expanded.dataset(workload), linear_name(*mode)),
                x: axis("forward of one layer of a micro-batch", "ms", Scale::Auto),
                y: skewbench_report::Axis { scale: Scale::Category, categories, ..Default::default() },
                marks,
            });
        }
    }
    panels
}

/// Words for the axis of a metric; a ratio says of what to what.
pub(super) fn metric_label(metric: Metric, baseline: &str) -> String {
    let label = metric.label();
    match metric {
        Metric::Speedup | Metric::SpeedupMax => format!("{label}: latency of {baseline} / that of the system"),
        Metric::ThroughputSpeedup => format!("{label}: throughput of the system / that of {baseline}"),
        Metric::NormalisedMean => format!("straggler latency of the system / that of {baseline}"),
        Metric::Scaling => format!("throughput of the system / that of {baseline} at DP = 1"),
        _ => label.to_owned(),
    }
}

pub(super) fn axis(label: &str, unit: &str, scale: Scale) -> skewbench_report::Axis {
    skewbench_report::Axis { label: label.to_owned(), unit: unit.to_owned(), scale, ..Default::default() }
}

pub(super) fn unit_text(unit: &'static str) -> &'static str {
    if unit == "1" { "" } else { unit }
}

fn table(values: &[Value], reference: &Reference, figure: &str) -> Table {
    let mut keys: Vec<&str> = Vec::new();
    for value in values {
        for key in value.at.keys() {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
    }
    let mut columns = vec![
        Column::new("dataset", "dataset", ""),
        Column::new("system", "system", ""),
        Column::new("metric", "metric", ""),
    ];
    columns.extend(keys.iter().map(|k| Column::new(*k, *k, "")));
    columns.extend([
        Column::new("unit", "unit", ""),
        Column::new("value", "value", ""),
        Column::new("95% low", "ci_low", ""),
        Column::new("95% high", "ci_high", ""),
        Column::new("n", "n", ""),
        Column::new("published", "published", ""),
    ]);
    let rows = values
        .iter()
        .map(|value| {
            let mut row: Vec<Cell> =
                vec![value.dataset.clone().into(), value.system.clone().into(), metric_name(value).into()];
            row.extend(keys.iter().map(|key| match value.at.get(*key) {
                Some(serde_json::Value::String(text)) => Cell::Text(text.clone()),
                Some(other) => other.as_f64().into(),
                None => Cell::Empty,
            }));
            row.push(value.unit.into());
            match &value.estimated {
                Ok(e) => {
                    row.push(e.value.into());
                    row.push(e.interval.map(|i| i.0).into());
                    row.push(e.interval.map(|i| i.1).into());
                    row.push((e.n as f64).into());
                }
                Err(reason) => row.extend([Cell::Text(reason.clone()), Cell::Empty, Cell::Empty, Cell::Empty]),
            }
            row.push(entry(reference, figure, value).and_then(ReferenceEntry::number).into());
            row
        })
        .collect();
    Table { columns, rows }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::Estimated;

    #[test]
    fn ratios_name_what_they_are_over() {
        assert!(metric_label(Metric::Speedup, "ring").ends_with("latency of ring / that of the system"));
        assert!(metric_label(Metric::NormalisedMean, "ring").ends_with("that of ring"));
        assert_eq!(metric_label(Metric::Mfu, "ring"), Metric::Mfu.label());
    }

    #[test]
    fn a_published_number_stands_beside_the_values_that_it_is_judged_by() {
        let text = "paper = \"p\"\n[[entry]]\nid = \"a\"\nfigure = \"fig11\"\ndataset = \"w\"\nsystem = \"ulysses\"\nmetric = \"scaling\"\n\
            at = { dp = 8, transfers = \"left_out\" }\nvalue = 4.66\nunit = \"1\"\nsource = \"s\"\n";
        let reference = Reference::parse(text, "test.toml").unwrap();
        let value = |dp: u32, transfers: &str, value: f64| Value {
            metric: Metric::Scaling,
            unit: "1",
            dataset: "w".into(),
            system: "ulysses".into(),
            at: json!({ "dp": dp, "transfers": transfers }).as_object().cloned().unwrap_or_default(),
            estimated: Ok(Estimated::exact(value, 1)),
            simulated: true,
        };
        let all =
            [value(8, "charged", 4.5), value(8, "left_out", 4.4), value(4, "left_out", 2.6), value(4, "charged", 2.7)];
        let all: Vec<&Value> = all.iter().collect();
        let marks = other_readings(&all, "dp", &reference, "fig11");
        let [Mark::Curve { points, .. }] = marks.as_slice() else { panic!("{marks:?}") };
        assert_eq!(points.iter().map(|p| (p.x, p.y)).collect::<Vec<_>>(), [(4.0, 2.6), (8.0, 4.4)]);
        // What was published of the values that lines show needs no other curve.
        assert!(other_readings(&all[3..], "dp", &reference, "fig11").is_empty());
    }
}
