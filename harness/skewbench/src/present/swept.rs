//! Figures over what an experiment sweeps beside DP, CP and P.

use std::collections::BTreeSet;

use skewbench_report::{HeatCell, Mark, Named, Panel, Scale};

use super::figures::{axis, distinct, headline, metric_label, unit_text};
use super::values::ALL;
use super::{Loaded, Value};
use crate::experiment::{Axis, Experiment, Metric, Plot, describe, short_name};

/// Coordinate of workloads where the experiment sweeps them.
const WORKLOAD: &str = "name";
/// Numbers that span this factor are drawn by powers of two.
const WIDE: f64 = 8.0;

/// True when every value has a number as this coordinate.
pub(super) fn in_numbers(values: &[Value], coordinate: &str) -> bool {
    values.iter().all(|v| v.number(coordinate).is_some())
}

/// Scale of an axis with these positions.
pub(super) fn scale(positions: impl Iterator<Item = f64>) -> Scale {
    let (low, high) = positions.fold((f64::INFINITY, 0.0), |(low, high), x| (x.min(low), x.max(high)));
    if low > 0.0 && high >= WIDE * low { Scale::Log2 } else { Scale::Linear }
}

/// Keys that variants set together, by short name.
fn linked(e: &Experiment) -> BTreeSet<String> {
    e.variants.iter().flat_map(|v| v.set.keys().map(|key| short_name(key))).chain(["variant".to_owned()]).collect()
}

/// True when a coordinate lies on an axis, itself or with another key of the same variants.
fn on_axis(e: &Experiment, name: &str) -> bool {
    let linked = linked(e);
    let mut axes = std::iter::once(&e.plot.x).chain(&e.plot.y).map(Axis::name);
    axes.any(|axis| axis == name || linked.contains(axis) && linked.contains(name))
}

/// Swept coordinates of a value that lie on no axis of the figure, in words.
pub(super) fn aside(loaded: &Loaded, value: &Value) -> String {
    let e = &loaded.expanded.found.experiment;
    // The name of a variant says enough of it, that of a workload stands beside.
    let told = |name: &str| {
        name == WORKLOAD || name != "variant" && linked(e).contains(name) && value.at.contains_key("variant")
    };
    // Nearly always the first point has it.
    let swept = |name: &String| loaded.expanded.points.iter().any(|(at, _)| at.contains_key(name));
    let rest = value.at.iter().filter(|(name, _)| !on_axis(e, name) && !told(name) && swept(name));
    describe(rest)
}

/// Dataset of a panel; none where workloads lie on an axis.
fn panel_dataset(loaded: &Loaded, value: &Value) -> String {
    if on_axis(&loaded.expanded.found.experiment, WORKLOAD) { String::new() } else { value.dataset.clone() }
}

/// True when a value belongs to a panel of [`groups`].
pub(super) fn belongs(loaded: &Loaded, value: &Value, dataset: &str, aside: &str) -> bool {
    panel_dataset(loaded, value) == dataset && self::aside(loaded, value) == aside
}

/// Datasets with what is aside, in order of appearance: one panel each.
pub(super) fn groups(loaded: &Loaded, values: &[&Value]) -> Vec<(String, String)> {
    let mut groups = Vec::new();
    for value in values {
        let group = (panel_dataset(loaded, value), aside(loaded, value));
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// A coordinate as a category.
fn category(value: &Value, coordinate: &str) -> Option<String> {
    let at = value.at.get(coordinate)?;
    Some(at.as_str().map_or_else(|| at.to_string(), str::to_owned))
}

fn first_metric<'a>(plot: &Plot, values: &'a [Value]) -> Vec<&'a Value> {
    let shown = values.iter().filter(|v| plot.metrics.first() == Some(&v.metric) && headline(v) && v.dataset != ALL);
    shown.collect()
}

/// Dots over the values of a swept key that are no numbers, one row each.
pub(super) fn dot_panels(loaded: &Loaded, values: &[Value]) -> Vec<Panel> {
    let plot = &loaded.expanded.found.experiment.plot;
    let Some(metric) = plot.metrics.first() else { return Vec::new() };
    let shown = first_metric(plot, values);
    let panel = |(dataset, aside): (String, String)| {
        let here: Vec<&&Value> = shown.iter().filter(|v| belongs(loaded, v, &dataset, &aside)).collect();
        let named: Vec<String> = here.iter().filter_map(|v| category(v, plot.x.coordinate())).collect();
        let categories = distinct(named.iter().map(String::as_str));
        let marks = distinct(here.iter().map(|v| v.system.as_str())).into_iter().map(|system| {
            let values = here.iter().filter(|v| v.system == system).filter_map(|v| {
                let e = v.estimated.as_ref().ok()?;
                let (low, high) = e.interval.unzip();
                Some(Named { category: category(v, plot.x.coordinate())?, value: e.value, low, high })
            });
            Mark::Dots { values: values.collect(), series: system }
        });
        Panel {
            title: title(&dataset, &aside),
            x: axis(&metric_label(*metric, &plot.baseline), unit_text(metric.unit()), Scale::Auto),
            marks: marks.collect(),
            y: skewbench_report::Axis { scale: Scale::Category, categories, ..Default::default() },
        }
    };
    groups(loaded, &shown).into_iter().map(panel).collect()
}

/// A heat map for every dataset and system, over the two axes of the figure.
pub(super) fn heat_panels(loaded: &Loaded, values: &[Value]) -> Vec<Panel> {
    let plot = &loaded.expanded.found.experiment.plot;
    let (Some(metric), Some(y)) = (plot.metrics.first(), &plot.y) else { return Vec::new() };
    let mut panels = Vec::new();
    let shown = first_metric(plot, values);
    for (dataset, aside) in groups(loaded, &shown) {
        let here: Vec<&&Value> = shown.iter().filter(|v| belongs(loaded, v, &dataset, &aside)).collect();
        for system in distinct(here.iter().map(|v| v.system.as_str())) {
            let cells = here.iter().filter(|v| v.system == system).filter_map(|v| {
                let value = v.estimated.as_ref().ok()?.value;
                Some(HeatCell { column: category(v, plot.x.coordinate())?, row: category(v, y.coordinate())?, value })
            });
            let unit = if metric.unit() == "1" { String::new() } else { format!(" ({})", metric.unit()) };
            panels.push(Panel {
                title: format!("{}, {system}: {}{unit}", title(&dataset, &aside), heat_label(*metric, &plot.baseline)),
                x: axis(&plot.x.name().replace('_', " "), "", Scale::Category),
                y: axis(&y.name().replace('_', " "), "", Scale::Category),
                marks: vec![Mark::Heat { cells: cells.collect(), center: metric.is_ratio().then_some(1.0) }],
            });
        }
    }
    panels
}

/// The metric of a map in few words, its baseline among them.
fn heat_label(metric: Metric, baseline: &str) -> String {
    match metric {
        Metric::Speedup | Metric::SpeedupMax => {
            metric.label().replacen("speedup", &format!("speedup over {baseline}"), 1)
        }
        _ => metric_label(metric, baseline),
    }
}

pub(super) fn title(dataset: &str, aside: &str) -> String {
    [dataset, aside].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ")
}
