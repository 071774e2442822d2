//! How far FLOPs are from time.

use super::super::Value;
use super::{Context, quote, short};
use crate::experiment::Metric;

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let errors = context.values.iter().filter(|v| v.metric == Metric::ProxyError);
    let sentence = errors.filter_map(|error| {
        let same = |v: &&Value| v.metric == Metric::ProxyHit && (&v.system, &v.dataset, &v.at) == (&error.system, &error.dataset, &error.at);
        let hit = context.values.iter().find(same)?.estimated.as_ref().ok().map(|e| short(e.value))?;
        Some(format!(
            "{}, {}: the slowest worker of a pool computes for 1 + {} times what FLOPs predict; in {hit} of the pools the worker \
             with most FLOPs is the slowest.",
            error.system,
            error.dataset,
            quote(error)?
        ))
    });
    let mut sentences: Vec<String> = sentence.collect();
    sentences.extend(super::winners::write(context));
    sentences
}
