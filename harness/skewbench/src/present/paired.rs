//! Systems and settings compared on the same steps: the one rule by which pages, findings and recommendations tell them apart.

use serde_json::{Map, Value};
use skewbench_sim::step_model::StepTime;
use skewbench_store::stats::{Bootstrap, CompareOptions, Comparison, Verdict, compare};

use super::{Loaded, step_times};
use crate::cells::Resources;
use crate::experiment::{At, describe, short_name};
use crate::metrics::{StepView, WavesView};

/// What a place's steps took, with what ran after the end of the data shared evenly among them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    /// Time of every step.
    time: Vec<f64>,
    /// Tokens of every step.
    tokens: Vec<f64>,
    /// True where steps depend on those before them.
    stateful: bool,
    /// Consecutive steps that are drawn together for intervals.
    block: usize,
}

impl Times {
    /// Straggler latencies of one layer's attention, in picoseconds.
    pub(super) fn attention(view: &WavesView) -> Self {
        Self {
            time: view.by_step_with_drain(StepView::attention_ps),
            tokens: view.by_step_with_drain(StepView::tokens),
            stateful: view.stateful(),
            block: view.block(),
        }
    }

    /// Training steps, in seconds times the cards that they keep busy.
    ///
    /// # Errors
    /// Why the place has none.
    pub(super) fn training(loaded: &Loaded, resources: &Resources, at: &At) -> Result<Self, String> {
        let (cell, view) = loaded.waves(at)?;
        let times = step_times(loaded, resources, at)?;
        let n = view.steps.len();
        let with_drain = |of: fn(&StepTime) -> f64| -> Vec<f64> {
            let share = times[n.min(times.len())..].iter().map(of).sum::<f64>() / n.max(1) as f64;
            times.iter().take(n).map(|t| of(t) + share).collect()
        };
        let cards = cell.layout.cards() as f64;
        Ok(Self {
            time: with_drain(|t| t.seconds).into_iter().map(|s| s * cards).collect(),
            tokens: with_drain(|t| t.tokens),
            stateful: view.stateful(),
            block: view.block(),
        })
    }

    /// Time of a token.
    pub(super) fn per_token(&self) -> f64 {
        self.time.iter().sum::<f64>() / self.tokens.iter().sum::<f64>()
    }

    /// Time per token over that of another place on the same steps; `None` where they have no steps in common that can be
    /// paired: what a system held back at the end of more steps is missing in fewer.
    pub(super) fn over(&self, other: &Self, seed: u64) -> Option<Comparison> {
        let n = self.time.len().min(other.time.len());
        if [self, other].into_iter().any(|t| t.stateful && t.time.len() > n) {
            return None;
        }
        let times = |t: &Self| {
            let tokens = t.tokens[..n].iter().sum::<f64>();
            t.time[..n].iter().map(|time| time / tokens).collect::<Vec<_>>()
        };
        let bootstrap = Bootstrap::new(seed, "time_per_token").with_block(self.block.max(other.block));
        compare(&times(other), &times(self), &CompareOptions::times(bootstrap)).ok()
    }
}

/// One cell of an experiment with what tells it from others.
pub(super) struct Entry<'a> {
    pub(super) system: &'a str,
    pub(super) dataset: String,
    /// Every other coordinate that the experiment varies.
    pub(super) coordinates: Map<String, Value>,
    times: Times,
    seed: u64,
}

/// All cells of waves that finished, by straggler latency; by training steps where resources to price them are given.
pub(super) fn entries<'a>(loaded: &'a Loaded, training: Option<&Resources>) -> Vec<Entry<'a>> {
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
            let times = match training {
                Some(resources) => Times::training(part, resources, at),
                None => part.view(at).map(Times::attention),
            };
            let Ok(times) = times else { continue };
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
                times,
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

    /// Time of a token.
    pub(super) fn per_token(&self) -> f64 {
        self.times.per_token()
    }

    /// As [`Times::over`].
    pub(super) fn over(&self, other: &Self) -> Option<Comparison> {
        self.times.over(&other.times, self.seed)
    }
}

/// The cell of least time a token.
pub(super) fn fastest<'a, 'b>(entries: &[&'b Entry<'a>]) -> Option<&'b Entry<'a>> {
    entries.iter().min_by(|a, b| a.per_token().total_cmp(&b.per_token())).copied()
}

/// A verdict in a word.
pub(super) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "same",
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Unclear => "unclear",
    }
}

/// `3.2% higher in time (1.1 to 5.0%)`, or that no verdict can be given and why.
pub(super) fn words(comparison: &Comparison) -> String {
    let percent = |ratio: f64| format!("{:.1}", 100.0 * (ratio - 1.0));
    let less = |ratio: f64| format!("{:.1}", 100.0 * (1.0 - ratio));
    match comparison.verdict {
        Verdict::Same => format!("the same within 1% (ratio {:.3})", comparison.ratio),
        Verdict::Slower => {
            let (low, high) = (percent(comparison.ci_low), percent(comparison.ci_high));
            format!("{}% higher in time ({low} to {high}%)", percent(comparison.ratio))
        }
        Verdict::Faster => {
            let (low, high) = (less(comparison.ci_high), less(comparison.ci_low));
            format!("{}% lower in time ({low} to {high}%)", less(comparison.ratio))
        }
        Verdict::Unclear => {
            let why = comparison.reason.clone().unwrap_or_default();
            format!("not told apart (ratio {:.3}; {why})", comparison.ratio)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(time: &[f64], stateful: bool) -> Times {
        Times { time: time.to_vec(), tokens: vec![2.0; time.len()], stateful, block: 1 }
    }

    #[test]
    fn steps_that_both_have_are_paired() {
        let (slow, fast) = (times(&[4.0; 6], false), times(&[2.0; 9], false));
        assert_eq!(slow.per_token(), 2.0);
        let compared = slow.over(&fast, 1).unwrap();
        assert_eq!((compared.ratio, compared.n, compared.verdict), (2.0, 6, Verdict::Slower));
        assert_eq!(fast.over(&slow, 1).unwrap().verdict, Verdict::Faster);
        assert_eq!(fast.over(&fast, 1).unwrap().verdict, Verdict::Same);
        // Of more steps than the other has, what is held back at the end is missing.
        assert_eq!(times(&[2.0; 9], true).over(&slow, 1), None);
        assert!(times(&[2.0; 6], true).over(&slow, 1).is_some());
    }

    #[test]
    fn few_steps_tell_nothing_apart() {
        let compared = times(&[4.0; 4], false).over(&times(&[2.0; 4], false), 1).unwrap();
        assert_eq!(compared.verdict, Verdict::Unclear);
        assert!(words(&compared).contains("4 pairs"));
    }
}
