use serde_json::{Map, Value};
use skewbench_store::stats::{Bootstrap, CompareOptions, Comparison, compare};

use super::{Loaded, step_times};
use crate::cells::{CellSpec, Resources, WavesCell};
use crate::failure::Failure;
use crate::metrics::WavesView;

/// A metric of a place that two runs have, on the batches of both.
pub struct Compared<'a> {
    /// The place, as the judged run has it.
    pub cell: &'a WavesCell,
    /// What tells the place from other points of a sweep.
    pub coordinates: Option<&'a Map<String, Value>>,
    /// Metric.
    pub metric: &'static str,
    /// The judged run against the other.
    pub comparison: Comparison,
}

/// One cell of a run with its samples and the seconds of its training steps.
struct Place<'a> {
    cell: &'a WavesCell,
    /// What tells it from other points of a sweep.
    coordinates: Option<&'a Map<String, Value>>,
    view: &'a WavesView,
    seconds: Vec<f64>,
}

/// Compares every place that both runs have, pairing steps of the same batches.
///
/// # Errors
/// Samples that cannot be compared.
pub fn compare_runs<'a>(
    baseline: &[&'a Loaded],
    subject: &[&'a Loaded],
    resources: &Resources,
) -> Result<Vec<Compared<'a>>, Failure> {
    let (baseline, subject) = (places(baseline, resources)?, places(subject, resources)?);
    let mut rows = Vec::new();
    for ours in &subject {
        let Some(theirs) = baseline.iter().find(|b| b.same_batches(ours)) else { continue };
        for (metric, comparison) in ours.against(theirs)? {
            rows.push(Compared { cell: ours.cell, coordinates: ours.coordinates, metric, comparison });
        }
    }
    Ok(rows)
}

fn places<'a>(experiments: &[&'a Loaded], resources: &Resources) -> Result<Vec<Place<'a>>, Failure> {
    let mut places: Vec<Place<'a>> = Vec::new();
    for &loaded in experiments {
        let parts =
            loaded.parts().flat_map(|(at, part)| part.expanded.places.iter().map(move |place| (at, part, place)));
        for (coordinates, part, (at, slot)) in parts {
            let CellSpec::Waves(cell) = &part.expanded.cells[*slot] else { continue };
            if places.iter().any(|p| p.cell == cell) {
                continue;
            }
            // A cell that failed in one run cannot be compared; its own run says why.
            let Ok(view) = part.view(at) else { continue };
            let times = step_times(part, resources, at).map_err(Failure::config)?;
            // Over the mean tokens of a step, so that systems whose steps differ in tokens are compared per token.
            let mean = times.iter().map(|t| t.tokens).sum::<f64>() / times.len().max(1) as f64;
            let seconds = times.iter().map(|t| t.seconds * mean / t.tokens).collect();
            places.push(Place { cell, coordinates, view, seconds });
        }
    }
    Ok(places)
}

impl Place<'_> {
    fn same_batches(&self, other: &Self) -> bool {
        let (a, b) = (self.cell, other.cell);
        a.workload.fingerprint == b.workload.fingerprint
            && (a.gbs, a.seed, a.layout, &a.system) == (b.gbs, b.seed, b.layout, &b.system)
            && a.pool() == b.pool()
            && self.coordinates == other.coordinates
    }

    fn against(&self, baseline: &Self) -> Result<Vec<(&'static str, Comparison)>, Failure> {
        let settled = self.view.settled_in_both(baseline.view);
        let latency =
            |p: &Self| p.view.steps[settled.clone()].iter().map(|s| s.straggler_mean_ps()).collect::<Vec<_>>();
        let block = self.view.block().max(baseline.view.block());
        let bootstrap = |name| Bootstrap::new(self.cell.seed, name).with_block(block);
        let times = CompareOptions::times(bootstrap("straggler_mean"));
        let steps = CompareOptions::times(bootstrap("throughput"));
        let steps = compare(&baseline.seconds[settled.clone()], &self.seconds[settled.clone()], &steps)
            .map_err(Failure::config)?;
        Ok(vec![
            ("straggler_mean", compare(&latency(baseline), &latency(self), &times).map_err(Failure::config)?),
            ("throughput", inverse(steps)),
        ])
    }
}

/// Rates over the same work are the inverse of the times: sum of work over sum of time.
fn inverse(times: Comparison) -> Comparison {
    Comparison { ratio: 1.0 / times.ratio, ci_low: 1.0 / times.ci_high, ci_high: 1.0 / times.ci_low, ..times }
}
