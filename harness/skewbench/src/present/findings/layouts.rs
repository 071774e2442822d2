//! Which layout and window gives each published scaling of the baseline.

use super::super::Value;
use super::{Context, quote, short};
use crate::experiment::Metric;

/// Relative difference within which several configurations count as giving a published number.
const NEAR: f64 = 0.05;

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let baseline = &context.loaded.expanded.found.experiment.plot.baseline;
    let fitted = |v: &&Value| {
        v.metric == Metric::Scaling
            && v.system == *baseline
            && v.text("base") == Some("shared")
            && v.text("linear") == Some("fitted")
    };
    let ours: Vec<&Value> =
        context.values.iter().filter(fitted).filter(|v| v.text("transfers") == Some("left_out")).collect();
    let published =
        context.reference.entry.iter().filter(|e| e.metric == Metric::Scaling.name() && e.system == *baseline);
    let mut told: Vec<f64> = Vec::new();
    let mut sentences = Vec::new();
    for entry in published {
        let Some(number) = entry.value.filter(|n| !told.contains(n)) else { continue };
        told.push(number);
        let apart = |v: &Value| v.estimated.as_ref().map_or(f64::INFINITY, |e| (e.value / number).ln().abs());
        // Where the publication gives the ranks, other ranks are no candidates.
        let stated = entry.at.get("dp").and_then(toml::Value::as_integer).map(|dp| dp as f64);
        let candidate = |v: &&&Value| apart(v).is_finite() && stated.is_none_or(|dp| v.number("dp") == Some(dp));
        let mut near: Vec<&&Value> = ours.iter().filter(candidate).collect();
        near.sort_by(|a, b| apart(a).total_cmp(&apart(b)));
        let describe = |v: &Value| {
            let of = |key| v.number(key).unwrap_or_default();
            quote(v).map(|q| format!("{} at DP = {}, CP = {}: {q}", v.dataset, of("dp"), of("cp")))
        };
        let Some(first) = near.first().and_then(|v| describe(v)) else { continue };
        let others: Vec<String> = near[1..].iter().filter(|v| apart(v) <= NEAR).filter_map(|v| describe(v)).collect();
        let others = if others.is_empty() {
            format!("; no other is within {:.0}%", NEAR * 100.0)
        } else {
            format!("; also within {:.0}%: {}", NEAR * 100.0, others.join("; "))
        };
        sentences.push(format!("{}x ({}): nearest is {first}{others}.", short(number), entry.source));
    }
    sentences
}
