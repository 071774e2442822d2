//! Where moving attention earns its cost once micro-batches run through a pipeline.

use super::super::Value;
use super::{Context, grouped, quote};
use crate::experiment::{Metric, describe};

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let throughput = context.values.iter().filter(|v| v.metric == Metric::Throughput && v.estimated.is_ok());
    let mut settings = grouped(throughput, |value| {
        let kept = value.at.iter().filter(|(key, _)| ["pp", "wait"].contains(&key.as_str()));
        format!("{} at {}", value.dataset, describe(kept))
    });
    let number = |v: &Value| v.estimated.as_ref().map_or(0.0, |e| e.value);
    let ends = |v: &Value| v.estimated.as_ref().ok().and_then(|e| e.interval);
    let sentences = settings.iter_mut().filter_map(|(setting, values)| {
        values.sort_by(|a, b| number(b).total_cmp(&number(a)));
        let (best, others) = values.split_first()?;
        let overlaps = |v: &&&Value| match (ends(best), ends(v)) {
            (Some((low, _)), Some((_, high))) => high >= low,
            _ => true,
        };
        let close: Vec<String> =
            others.iter().filter(overlaps).filter_map(|v| Some(format!("{} {}", v.system, quote(v)?))).collect();
        let far: Vec<String> = others
            .iter()
            .filter(|v| !overlaps(v))
            .filter_map(|v| Some(format!("{} {}", v.system, quote(v)?)))
            .collect();
        let close =
            if close.is_empty() { String::new() } else { format!("; intervals overlap with {}", close.join(", ")) };
        let far = if far.is_empty() { String::new() } else { format!("; below: {}", far.join(", ")) };
        Some(format!("{setting}: {} has the most tokens/s/card, {}{close}{far}.", best.system, quote(best)?))
    });
    sentences.collect()
}
