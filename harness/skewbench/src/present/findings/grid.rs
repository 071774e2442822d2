//! The best and worst field of a grid.

use super::super::Value;
use super::{Context, grouped, quote};
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
        Some(format!("{group}: {} lies between {} and {}.", metric.name(), field(lowest)?, field(highest)?))
    });
    sentence.collect()
}
