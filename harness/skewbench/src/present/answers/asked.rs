use skewbench_store::stats::Comparison;

use super::super::costs::find;
pub(super) use super::super::overview::OWN;
use super::super::paired::Times;
use super::super::{Loaded, Value};
use crate::experiment::{At, Metric};
use crate::metrics::Estimated;

/// Pools of a few sequences, with the same tiles over one pool of all ranks.
pub(super) const BOUNDED: &str = "libra";
pub(super) const GLOBAL: &str = "distca-pool";
/// Whole sequences of like work in one wave: nothing moves.
pub(super) const SORTED: &str = "ulysses+sorted";
/// Packs by work and holds long documents back.
pub(super) const DEFERRING: &str = "wlb";

/// The experiment that compares systems, with its values.
pub(super) struct Asked<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) values: &'a [Value],
    pub(super) datasets: Vec<String>,
    pub(super) figure: &'a str,
    pub(super) baseline: &'a str,
}
impl Asked<'_> {
    pub(super) fn estimated(
        &self,
        metric: Metric,
        dataset: &str,
        system: &str,
        readings: &[(&str, &str)],
    ) -> Option<Estimated> {
        find(self.values, (metric, dataset, system), readings)?.estimated.clone().ok()
    }

    pub(super) fn number(&self, metric: Metric, dataset: &str, system: &str) -> Option<f64> {
        Some(self.estimated(metric, dataset, system, &[])?.value)
    }

    pub(super) fn place(&self, dataset: &str, system: &str) -> Option<&At> {
        let e = &self.loaded.expanded;
        let mut places = e.places.iter().map(|(at, _)| at).filter(|at| at.workload < e.own_workloads);
        places.find(|at| {
            at.system == system && at.dp == e.found.experiment.layout.dp && e.dataset(at.workload) == dataset
        })
    }

    /// Attention time a token of one system over that of another, on the same steps.
    pub(super) fn over(&self, dataset: &str, system: &str, other: &str) -> Option<Comparison> {
        let times = |system| Some(Times::attention(self.loaded.view(self.place(dataset, system)?).ok()?));
        times(system)?.over(&times(other)?, self.loaded.expanded.seed)
    }

    /// The slowest wave of both as speedups over the baseline.
    pub(super) fn slowest(&self, dataset: &str, [a, b]: [&str; 2]) -> Option<String> {
        let of = |system| self.number(Metric::SpeedupMax, dataset, system);
        Some(format!("{:.2}x against {:.2}x", of(a)?, of(b)?))
    }

    pub(super) fn links(&self, more: &[&str]) -> Vec<String> {
        std::iter::once(self.figure).chain(more.iter().copied()).map(str::to_owned).collect()
    }
}
