//! Faithful systems beside what stands in for them.

use super::super::paired::{entries, words};
use super::{Context, quote};
use crate::experiment::Metric;

/// A system as published, and what a comparison took in its place.
const PAIRS: [(&str, &str); 2] = [("wlb", "wlb-no-deferral"), ("distca", "distca-pool")];

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let all = entries(context.loaded, None);
    let mut sentences = Vec::new();
    for (faithful, stand_in) in PAIRS {
        for entry in all.iter().filter(|e| e.system == faithful) {
            let other = all.iter().find(|e| e.system == stand_in && e.setting(&[]) == entry.setting(&[]));
            let Some(compared) = other.and_then(|other| entry.over(other)) else { continue };
            sentences.push(format!(
                "{}: {faithful} is {} per token, against {stand_in}.",
                entry.setting(&[]),
                words(&compared)
            ));
        }
    }
    for late in context.values.iter().filter(|v| v.metric == Metric::LateShare) {
        let delay = |over: &str| {
            let mut delays =
                context.values.iter().filter(|v| v.metric == Metric::DelaySteps && v.system == late.system);
            delays.find(|v| v.dataset == late.dataset && v.text("over") == Some(over)).and_then(quote)
        };
        let (Some(share), Some(mean), Some(longest)) = (quote(late), delay("all"), delay("longest")) else { continue };
        sentences.push(format!(
            "{}, {}: a share of {share} of the tokens runs in a later step than it was delivered in, by {mean} steps in the mean and \
             {longest} at most; the steps' multisets of samples are not those of the loader.",
            late.system, late.dataset
        ));
    }
    sentences.extend(super::winners::write(context));
    sentences
}
