use serde_json::{Map, json};
use skewbench_sim::step_model::LinearMode;

use super::figures::distinct;
use super::{Loaded, spread, waves};
use crate::cells::{BALANCE_TABLE, CellSpec, KERNELS_TABLE, Resources};
use crate::experiment::{At, Metric, Plot};
use crate::metrics::{BalanceView, Draws, Estimated, estimate_mean};

/// Why a value of an unfinished run is missing.
pub const NOT_COMPUTED: &str = "not computed yet";
/// Why a value that needs whole steps is missing where waves were drawn.
pub const DRAWN: &str = "needs all waves of a step, of which replay timed some";
/// Dataset of a value that is over all of an experiment.
pub const ALL: &str = "all";
/// Why a system that moves nothing hides nothing.
pub const NO_TRANSFERS: &str = "no transfers to hide";

/// The word for a way of pricing linear work in coordinates and titles.
pub fn linear_name(mode: LinearMode) -> &'static str {
    match mode {
        LinearMode::Fitted => "fitted",
        LinearMode::Physical => "physical",
    }
}

/// One quantity of an experiment with all that tells it from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Metric.
    pub metric: Metric,
    /// Unit.
    pub unit: &'static str,
    /// Workload.
    pub dataset: String,
    /// System, pair or grouping.
    pub system: String,
    /// Every coordinate that tells rows apart.
    pub at: Map<String, serde_json::Value>,
    /// The value, or why there is none.
    pub estimated: Result<Estimated, String>,
    /// True when it comes from a simulation, false when it is computed from lengths alone.
    pub simulated: bool,
}

impl Value {
    /// A coordinate as a number.
    pub fn number(&self, coordinate: &str) -> Option<f64> {
        self.at.get(coordinate).and_then(serde_json::Value::as_f64)
    }

    /// A coordinate as text.
    pub fn text(&self, coordinate: &str) -> Option<&str> {
        self.at.get(coordinate).and_then(serde_json::Value::as_str)
    }
}

/// Every value that an experiment asks for.
pub fn evaluate(loaded: &Loaded, resources: &Resources) -> Vec<Value> {
    let mut values = Vec::new();
    for (coordinates, part) in loaded.parts() {
        let first = values.len();
        evaluate_part(part, resources, &mut values);
        for value in &mut values[first..] {
            for (key, coordinate) in coordinates.into_iter().flatten() {
                value.at.entry(key.clone()).or_insert_with(|| coordinate.clone());
            }
        }
    }
    values.extend(extremes(&loaded.expanded.found.experiment.plot, &values));
    values.extend(highest(&values));
    values
}

/// Values of an experiment that sweeps nothing but DP, CP and P.
fn evaluate_part(loaded: &Loaded, resources: &Resources, values: &mut Vec<Value>) {
    for (slot, cell) in loaded.expanded.cells.iter().enumerate() {
        match cell {
            CellSpec::Balance(spec) => balance_values(loaded, cell, spec.gbs, &loaded.expanded.dataset(slot), values),
            CellSpec::Kernels(_) => kernel_values(loaded, cell, values),
            CellSpec::Spread(spec) => spread::values(loaded, cell, spec, values),
            CellSpec::Waves(_) => {}
        }
    }
    let places = &loaded.expanded.places;
    let own = places.iter().enumerate().filter(|(_, (at, _))| at.workload < loaded.expanded.own_workloads);
    for (i, (at, _)) in own {
        if places[..i].iter().any(|(other, _)| only_pool_differs(loaded, other, at)) {
            continue;
        }
        for metric in &loaded.expanded.found.experiment.plot.metrics {
            waves::values(loaded, resources, at, *metric, values);
        }
    }
}

/// True for two places of a system that pools do not concern: they differ in the size of pools and in no sample, so that one of
/// them says all.
fn only_pool_differs(loaded: &Loaded, one: &At, other: &At) -> bool {
    let same = one.pool != other.pool && At { pool: other.pool, ..one.clone() } == *other;
    same && loaded.view(one).ok().zip(loaded.view(other).ok()).is_some_and(|(a, b)| a == b)
}

/// Of a heat map, the lowest and the highest value of a system over the fields of all datasets together: how a publication
/// gives the range of a grid. Each is one field's value with that field's interval.
fn extremes(plot: &Plot, values: &[Value]) -> Vec<Value> {
    let (Some(_), Some(metric)) = (&plot.y, plot.metrics.first()) else { return Vec::new() };
    let mut ends = Vec::new();
    let mut systems: Vec<&str> = Vec::new();
    for value in values.iter().filter(|v| v.metric == *metric) {
        if systems.contains(&value.system.as_str()) {
            continue;
        }
        systems.push(&value.system);
        let of = values.iter().filter(|v| v.metric == *metric && v.system == value.system);
        let fields: Vec<(&Value, Estimated)> = of.filter_map(|v| Some((v, *v.estimated.as_ref().ok()?))).collect();
        let by_value = |a: &&(&Value, Estimated), b: &&(&Value, Estimated)| a.1.value.total_cmp(&b.1.value);
        let found = [("lowest", fields.iter().min_by(by_value)), ("highest", fields.iter().max_by(by_value))];
        for (word, (field, estimated)) in found.into_iter().filter_map(|(word, field)| Some((word, field?))) {
            let mut at = field.at.clone();
            at.insert("grid".into(), json!(word));
            at.insert("of".into(), json!(field.dataset));
            ends.push(Value { dataset: ALL.into(), at, estimated: Ok(*estimated), ..(*field).clone() });
        }
    }
    ends
}

/// Of speedups of slowest waves, the highest of a system over all workloads: what a publication means by "up to". It is one
/// value with that value's interval.
fn highest(values: &[Value]) -> Vec<Value> {
    let of = |system: &str| {
        let mut own =
            values.iter().filter(|v| v.metric == Metric::SpeedupMax && v.system == system && v.dataset != ALL);
        let first = own.next()?;
        let several = own.clone().any(|v| v.dataset != first.dataset);
        let all = std::iter::once(first).chain(own).filter_map(|v| Some((v, v.estimated.as_ref().ok()?.value)));
        let (value, _) = all.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| several)?;
        let mut at = value.at.clone();
        at.insert("highest_of".into(), json!("workloads"));
        at.insert("of".into(), json!(value.dataset));
        Some(Value { dataset: ALL.into(), at, ..value.clone() })
    };
    let systems = distinct(values.iter().filter(|v| v.metric == Metric::SpeedupMax).map(|v| v.system.as_str()));
    systems.iter().filter_map(|system| of(system)).collect()
}

fn balance_values(loaded: &Loaded, cell: &CellSpec, gbs: u32, dataset: &str, values: &mut Vec<Value>) {
    let seed = loaded.expanded.seed;
    let views = loaded.table(BALANCE_TABLE, cell).and_then(|t| BalanceView::all(t).map_err(|e| e.to_string()));
    let CellSpec::Balance(spec) = cell else { return };
    for metric in &loaded.expanded.found.experiment.plot.metrics {
        for pool in &loaded.expanded.pools {
            for grouping in &loaded.expanded.groupings {
                let mut at = Map::new();
                at.insert("p".into(), json!(pool));
                at.insert("gbs".into(), json!(gbs));
                if *metric == Metric::WaveR {
                    at.insert("dp".into(), json!(spec.dp));
                }
                let estimated = views.as_ref().map_err(Clone::clone).and_then(|views| {
                    let view = views.iter().find(|v| v.pool == *pool && v.grouping == grouping.name());
                    let view = view.ok_or("no samples")?;
                    let samples = if *metric == Metric::WaveR { &view.wave_r } else { &view.r_minus_1 };
                    estimate_mean(samples, Draws::single(seed), metric.name()).map_err(|e| e.to_string())
                });
                values.push(Value {
                    metric: *metric,
                    unit: metric.unit(),
                    dataset: dataset.to_owned(),
                    system: grouping.name().to_owned(),
                    at,
                    estimated,
                    simulated: false,
                });
            }
        }
    }
}

fn kernel_values(loaded: &Loaded, cell: &CellSpec, values: &mut Vec<Value>) {
    let rows = loaded.table(KERNELS_TABLE, cell).and_then(|table| {
        let numbers = |name: &str| table.u32(name).map_err(|e| e.to_string());
        let rates = table.f64("tflop_per_s").map_err(|e| e.to_string())?;
        let passes = table.str("pass").map_err(|e| e.to_string())?;
        let repeats = table.u32("repeats").map_err(|e| e.to_string())?;
        let (heads, rows, keys) = (numbers("q_heads")?, numbers("q_rows")?, numbers("k_rows")?);
        Ok((0..table.rows())
            .map(|i| (passes.get(i).unwrap_or_default().to_owned(), heads[i], rows[i], keys[i], (rates[i], repeats[i])))
            .collect::<Vec<_>>())
    });
    let Ok(rows) = rows else { return };
    for (pass, heads, q_rows, k_rows, (rate, repeats)) in rows {
        let mut at = Map::new();
        at.insert("pass".into(), json!(pass));
        at.insert("q_heads".into(), json!(heads));
        at.insert("block".into(), json!(q_rows));
        at.insert("keys".into(), json!(k_rows));
        values.push(Value {
            metric: Metric::KernelRate,
            unit: Metric::KernelRate.unit(),
            dataset: "none".into(),
            system: format!("{heads} heads"),
            at,
            estimated: Ok(Estimated::exact(rate, u64::from(repeats))),
            simulated: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_is_the_highest_over_workloads() {
        let value = |dataset: &str, system: &str, value: f64| Value {
            metric: Metric::SpeedupMax,
            unit: "1",
            dataset: dataset.into(),
            system: system.into(),
            at: json!({ "dp": 16 }).as_object().cloned().unwrap_or_default(),
            estimated: Ok(Estimated { value, interval: Some((value - 0.1, value + 0.1)), n: 20 }),
            simulated: true,
        };
        let all = [value("a", "libra", 1.8), value("b", "libra", 2.6), value("a", "wlb", 2.4)];
        let found = highest(&all);
        // A system with one workload has nothing to be the highest of.
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].dataset.as_str(), found[0].text("of"), found[0].number("dp")),
            (ALL, Some("b"), Some(16.0))
        );
        assert_eq!(found[0].estimated, all[1].estimated);
    }
}
