//! The best and worst field of a grid, and how the values go along each of its axes.

use super::super::Value;
use super::{Context, grouped, quote, short};
use crate::experiment::describe;

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let plot = &context.loaded.expanded.found.experiment.plot;
    let (Some(metric), Some(y)) = (plot.metrics.first(), &plot.y) else { return Vec::new() };
    let axes = [plot.x.coordinate(), y.coordinate()];
    let fields =
        context.values.iter().filter(|v| v.metric == *metric && v.estimated.is_ok() && !v.at.contains_key("grid"));
    let groups = grouped(fields, |value| format!("{}, {}", value.system, value.dataset));
    let field = |v: &Value| {
        let kept = v.at.iter().filter(|(key, _)| axes.contains(&key.as_str()));
        Some(format!("{} at {}", quote(v)?, describe(kept)))
    };
    let number = |v: &&&Value| v.estimated.as_ref().map_or(0.0, |e| e.value);
    let sentence = groups.iter().filter_map(|(group, values)| {
        let lowest = values.iter().min_by(|a, b| number(a).total_cmp(&number(b)))?;
        let highest = values.iter().max_by(|a, b| number(a).total_cmp(&number(b)))?;
        let along: Vec<String> = axes.iter().filter_map(|axis| along(values, axis)).collect();
        let along = if along.is_empty() { String::new() } else { format!("; {}", along.join("; ")) };
        Some(format!("{group}: {} lies between {} and {}{along}.", metric.name(), field(lowest)?, field(highest)?))
    });
    sentence.collect()
}

/// Means over the other axis at every position of one, in order.
fn along(values: &[&Value], axis: &str) -> Option<String> {
    let mut positions: Vec<f64> = values.iter().filter_map(|v| v.number(axis)).collect();
    positions.sort_by(f64::total_cmp);
    positions.dedup();
    let mean = |position: &f64| {
        let here = values.iter().filter(|v| v.number(axis) == Some(*position));
        let own: Vec<f64> = here.filter_map(|v| Some(v.estimated.as_ref().ok()?.value)).collect();
        own.iter().sum::<f64>() / own.len() as f64
    };
    let means: Vec<f64> = positions.iter().map(mean).collect();
    let (first, last) = (means.first()?, means.last()?);
    let told: Vec<String> =
        positions.iter().zip(&means).map(|(at, mean)| format!("{} at {at}", short(*mean))).collect();
    let way = if means.is_sorted() && first < last {
        "grows with"
    } else if means.is_sorted_by(|a, b| a >= b) && first > last {
        "falls with"
    } else {
        "neither only grows nor only falls with"
    };
    (means.len() > 1).then(|| format!("its mean {way} {axis} ({})", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::experiment::Metric;
    use crate::metrics::Estimated;

    #[test]
    fn the_way_along_an_axis_is_told_by_the_means() {
        let value = |block: u32, shards: u32, value: f64| Value {
            metric: Metric::Speedup,
            unit: "1",
            dataset: "w".into(),
            system: "libra".into(),
            at: json!({ "block": block, "head_shards": shards }).as_object().cloned().unwrap_or_default(),
            estimated: Ok(Estimated::exact(value, 4)),
            simulated: true,
        };
        let all =
            [value(2048, 1, 1.0), value(2048, 2, 3.0), value(4096, 1, 2.0), value(4096, 2, 3.0), value(8192, 1, 1.0)];
        let all: Vec<&Value> = all.iter().collect();
        assert_eq!(
            along(&all, "block").as_deref(),
            Some("its mean neither only grows nor only falls with block (2.00 at 2048, 2.50 at 4096, 1.00 at 8192)")
        );
        assert_eq!(
            along(&all, "head_shards").as_deref(),
            Some("its mean grows with head_shards (1.33 at 1, 3.00 at 2)")
        );
        assert_eq!(along(&all[..1], "block"), None);
    }
}
