//! `skewbench compare`: two runs on the batches that both have.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use skewbench_store::stats::{Bootstrap, CompareOptions, Comparison, Verdict, compare};

use super::output;
use super::report::run_folders;
use crate::cells::{CellSpec, Resources, WavesCell};
use crate::cli::CompareArgs;
use crate::failure::{Exit, Failure};
use crate::metrics::WavesView;
use crate::present::{Loaded, step_times};

/// Compares every place that both runs have, pairing steps of the same batches.
///
/// # Errors
/// Folders that are no runs or share nothing, a regression with `--fail-on` (exit 30).
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.fail_on.is_some_and(|percent| !percent.is_finite() || percent < 0.0) {
        return Err(Failure::usage("--fail-on takes a percentage of at least 0"));
    }
    let (baseline, subject) = (places(&args.baseline)?, places(&args.subject)?);
    let mut rows = Vec::new();
    let mut worse: Vec<String> = Vec::new();
    for ours in &subject {
        let Some(theirs) = baseline.iter().find(|b| b.same_batches(ours)) else { continue };
        for (metric, comparison) in ours.against(theirs)? {
            let change = (comparison.ratio - 1.0).abs() * 100.0;
            let slower = comparison.verdict == Verdict::Slower && args.fail_on.is_some_and(|p| change > p);
            if slower {
                let cell = &ours.cell;
                worse.push(format!("{} {metric} of {} got {change:.2}% worse", cell.workload.name, cell.system));
            }
            rows.push(row(ours, metric, &comparison));
        }
    }
    if rows.is_empty() {
        return Err(Failure::config(format!(
            "{} and {} share no cell: same workload, seed, system and layout are needed",
            args.baseline.display(),
            args.subject.display()
        )));
    }
    output::records(&rows, args.format)?;
    if worse.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Regression, worse.join("; "))) }
}

/// One cell of a run with its samples and the seconds of its training steps.
struct Place {
    cell: WavesCell,
    /// What tells it from other points of a sweep.
    coordinates: Map<String, Value>,
    view: WavesView,
    seconds: Vec<f64>,
}

fn places(path: &Path) -> Result<Vec<Place>, Failure> {
    let folders: Vec<PathBuf> = run_folders(path);
    if folders.is_empty() {
        return Err(Failure::config(format!("{}: no run in this folder", path.display())));
    }
    let mut places: Vec<Place> = Vec::new();
    for folder in folders {
        let mut resources = Resources::default();
        let loaded = Loaded::open(&folder, &mut resources)?;
        let parts =
            loaded.parts().flat_map(|(at, part)| part.expanded.places.iter().map(move |place| (at, part, place)));
        for (coordinates, part, (at, slot)) in parts {
            let CellSpec::Waves(cell) = &part.expanded.cells[*slot] else { continue };
            if places.iter().any(|p| p.cell == *cell) {
                continue;
            }
            // A cell that failed in one run cannot be compared; its own run says why.
            let Ok(view) = part.view(at) else { continue };
            let times = step_times(part, &resources, at).map_err(Failure::config)?;
            // Over the mean tokens of a step, so that systems whose steps differ in tokens are compared per token.
            let mean = times.iter().map(|t| t.tokens).sum::<f64>() / times.len().max(1) as f64;
            let seconds = times.iter().map(|t| t.seconds * mean / t.tokens).collect();
            let coordinates = coordinates.cloned().unwrap_or_default();
            places.push(Place { cell: cell.clone(), coordinates, view: view.clone(), seconds });
        }
    }
    Ok(places)
}

impl Place {
    fn same_batches(&self, other: &Self) -> bool {
        let (a, b) = (&self.cell, &other.cell);
        a.workload.fingerprint == b.workload.fingerprint
            && (a.gbs, a.seed, a.layout, &a.system) == (b.gbs, b.seed, b.layout, &b.system)
            && a.pool() == b.pool()
            && self.coordinates == other.coordinates
    }

    fn against(&self, baseline: &Self) -> Result<Vec<(&'static str, Comparison)>, Failure> {
        let settled = self.view.settled_in_both(&baseline.view);
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

fn row(place: &Place, metric: &str, comparison: &Comparison) -> Map<String, Value> {
    let round = |x: f64| json!((x * 1e5).round() / 1e5);
    let mut row = Map::new();
    row.insert("dataset".into(), json!(place.cell.workload.name));
    row.insert("system".into(), json!(place.cell.system));
    row.insert("dp".into(), json!(place.cell.layout.dp));
    row.insert("cp".into(), json!(place.cell.layout.cp));
    row.insert("p".into(), json!(place.cell.pool()));
    row.extend(place.coordinates.clone());
    row.insert("metric".into(), json!(metric));
    row.insert("ratio".into(), round(comparison.ratio));
    row.insert("ci_low".into(), round(comparison.ci_low));
    row.insert("ci_high".into(), round(comparison.ci_high));
    row.insert("n".into(), json!(comparison.n));
    row.insert("verdict".into(), json!(comparison.verdict));
    row.insert("reason".into(), json!(comparison.reason));
    row
}
