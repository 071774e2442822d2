//! Systems and settings compared on the same steps.

use serde_json::{Map, Value};
use skewbench_store::stats::{Bootstrap, CompareOptions, Comparison, Verdict, compare};

use super::super::Loaded;
use crate::experiment::{At, describe, short_name};
use crate::metrics::{StepView, WavesView};

/// One cell of an experiment with what tells it from others.
pub(super) struct Entry<'a> {
    pub(super) system: &'a str,
    pub(super) dataset: String,
    /// Every other coordinate that the experiment varies.
    pub(super) coordinates: Map<String, Value>,
    view: &'a WavesView,
    seed: u64,
}

/// All cells of waves that finished.
pub(super) fn entries(loaded: &Loaded) -> Vec<Entry<'_>> {
    let experiment = &loaded.expanded.found.experiment;
    let sweep = &experiment.sweep;
    let degrees = |at: &At| {
        let all = [("dp", at.dp, &sweep.dp), ("cp", at.cp, &sweep.cp), ("p", at.pool.min(at.dp), &sweep.pool)];
        all.into_iter().filter(|(_, _, list)| !list.is_empty()).map(|(key, value, _)| (key.to_owned(), value.into()))
    };
    let mut entries = Vec::new();
    for (coordinates, part) in loaded.parts() {
        let own = part.expanded.places.iter().filter(|(at, _)| at.workload < part.expanded.own_workloads);
        for (at, _) in own {
            let Ok(view) = part.view(at) else { continue };
            let mut all: Map<String, Value> = degrees(at).collect();
            all.extend(coordinates.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
            // The dataset and a variant's name say as much.
            all.remove("name");
            if all.contains_key("variant") {
                let of_variants = experiment.variants.iter().flat_map(|v| v.set.keys());
                of_variants.for_each(|key| drop(all.remove(&short_name(key))));
            }
            entries.push(Entry {
                system: &at.system,
                dataset: part.expanded.dataset(at.workload),
                coordinates: all,
                view,
                seed: part.expanded.seed,
            });
        }
    }
    entries
}

impl Entry<'_> {
    /// Workload and coordinates in words, but for those of `without`.
    pub(super) fn setting(&self, without: &[&str]) -> String {
        let kept = self.coordinates.iter().filter(|(key, _)| !without.contains(&key.as_str()));
        let rest = describe(kept);
        if rest.is_empty() { self.dataset.clone() } else { format!("{} at {rest}", self.dataset) }
    }

    fn sums(&self) -> (f64, f64) {
        let sum = |of: fn(&StepView) -> f64| self.view.by_step_with_drain(of).iter().sum::<f64>();
        (sum(StepView::attention_ps), sum(StepView::tokens))
    }

    /// Nanoseconds of straggler latency a token.
    pub(super) fn time_per_token_ns(&self) -> f64 {
        let (time, tokens) = self.sums();
        time * 1e-3 / tokens
    }

    /// Straggler latency per token over that of another cell on the same steps; `None` where they have no steps in common that
    /// can be paired.
    pub(super) fn over(&self, other: &Self) -> Option<Comparison> {
        let n = self.view.steps.len().min(other.view.steps.len());
        let stateful = |e: &Self| e.view.stateful() && e.view.steps.len() > n;
        if stateful(self) || stateful(other) {
            return None;
        }
        let times = |e: &Self| {
            let tokens = e.view.by_step_with_drain(StepView::tokens)[..n].iter().sum::<f64>();
            e.view.by_step_with_drain(StepView::attention_ps)[..n].iter().map(|t| t / tokens).collect::<Vec<_>>()
        };
        let block = self.view.block().max(other.view.block());
        let bootstrap = Bootstrap::new(self.seed, "time_per_token").with_block(block);
        compare(&times(other), &times(self), &CompareOptions::times(bootstrap)).ok()
    }
}

/// The cell of least straggler latency a token.
pub(super) fn fastest<'a, 'b>(entries: &[&'b Entry<'a>]) -> Option<&'b Entry<'a>> {
    entries.iter().min_by(|a, b| a.time_per_token_ns().total_cmp(&b.time_per_token_ns())).copied()
}

/// `3.2% slower (1.1 to 5.0%)`, or that no verdict can be given and why.
pub(super) fn words(comparison: &Comparison) -> String {
    let percent = |ratio: f64| format!("{:.1}", 100.0 * (ratio - 1.0));
    let less = |ratio: f64| format!("{:.1}", 100.0 * (1.0 - ratio));
    match comparison.verdict {
        Verdict::Same => format!("the same within 1% (ratio {:.3})", comparison.ratio),
        Verdict::Slower => {
            let (low, high) = (percent(comparison.ci_low), percent(comparison.ci_high));
            format!("{}% slower ({low} to {high}%)", percent(comparison.ratio))
        }
        Verdict::Faster => {
            let (low, high) = (less(comparison.ci_high), less(comparison.ci_low));
            format!("{}% faster ({low} to {high}%)", less(comparison.ratio))
        }
        Verdict::Unclear => {
            let why = comparison.reason.clone().unwrap_or_default();
            format!("not told apart (ratio {:.3}; {why})", comparison.ratio)
        }
    }
}
