//! How far FLOPs are from time.

use super::{Context, quote};
use crate::experiment::Metric;

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let errors = context.values.iter().filter(|v| v.metric == Metric::ProxyError);
    let sentence = errors.filter_map(|error| {
        let same = |v: &&super::super::Value| v.metric == Metric::ProxyHit && (&v.system, &v.dataset, &v.at) == (&error.system, &error.dataset, &error.at);
        let hit = context.values.iter().find(same).and_then(quote)?;
        Some(format!(
            "{}, {}: the slowest worker of a pool computes for {} more than its FLOPs predict, as a share of the prediction; in {hit} \
             of the pools the worker with most FLOPs is the slowest.",
            error.system, error.dataset, quote(error)?
        ))
    });
    let mut sentences: Vec<String> = sentence.collect();
    sentences.extend(super::winners::write(context));
    sentences
}
