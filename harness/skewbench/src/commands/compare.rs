//! `skewbench compare`: two runs on the batches that both have.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use skewbench_store::stats::Verdict;

use super::folder::ReportFolder;
use super::output;
use super::report::{NamedRun, render_runs};
use crate::cells::Resources;
use crate::cli::CompareArgs;
use crate::failure::{Exit, Failure};
use crate::present::{Compared, Loaded, compare_runs, write_summary};

/// Compares every place that both runs have, pairing steps of the same batches.
///
/// # Errors
/// Folders that are no runs or share nothing, a regression with `--fail-on` (exit 30), a report that cannot be written.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.fail_on.is_some_and(|percent| !percent.is_finite() || percent < 0.0) {
        return Err(Failure::usage("--fail-on takes a percentage of at least 0"));
    }
    let runs = [NamedRun::open(&args.baseline)?, NamedRun::open(&args.subject)?];
    let mut resources = Resources::default();
    let mut open = |folders: &[PathBuf]| -> Result<Vec<Loaded>, Failure> {
        folders.iter().map(|folder| Loaded::open(folder, &mut resources)).collect()
    };
    let (baseline, subject) = (open(runs[0].folders())?, open(runs[1].folders())?);
    let rows = compare_runs(&baseline.iter().collect::<Vec<_>>(), &subject.iter().collect::<Vec<_>>(), &resources)?;
    if rows.is_empty() {
        return Err(Failure::config(format!(
            "{} and {} share no cell: same workload, seed, system and layout are needed",
            args.baseline.display(),
            args.subject.display()
        )));
    }
    let worse: Vec<String> = rows.iter().filter_map(|row| regression(row, args.fail_on?)).collect();
    output::records(&rows.iter().map(record).collect::<Vec<_>>(), args.format)?;
    if let Some(out) = &args.out {
        let folder = ReportFolder::open(out, &[])?;
        let (rows, page) = render_runs(&runs, None, out)?;
        write_summary(&rows, &out.join("summary.json"))?;
        folder.finish()?;
        eprintln!("report: {}", page.with_file_name("runs.html").display());
    }
    if worse.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Regression, worse.join("; "))) }
}

/// What got worse by more than so many percent, in words.
fn regression(row: &Compared<'_>, percent: f64) -> Option<String> {
    let change = (row.comparison.ratio - 1.0).abs() * 100.0;
    (row.comparison.verdict == Verdict::Slower && change > percent)
        .then(|| format!("{} {} of {} got {change:.2}% worse", row.cell.workload.name, row.metric, row.cell.system))
}

fn record(compared: &Compared<'_>) -> Map<String, Value> {
    let (cell, comparison) = (compared.cell, &compared.comparison);
    let round = |x: f64| json!((x * 1e5).round() / 1e5);
    let mut row = Map::new();
    row.insert("dataset".into(), json!(cell.workload.name));
    row.insert("system".into(), json!(cell.system));
    row.insert("dp".into(), json!(cell.layout.dp));
    row.insert("cp".into(), json!(cell.layout.cp));
    row.insert("p".into(), json!(cell.pool()));
    row.extend(compared.coordinates.cloned().unwrap_or_default());
    row.insert("metric".into(), json!(compared.metric));
    row.insert("ratio".into(), round(comparison.ratio));
    row.insert("ci_low".into(), round(comparison.ci_low));
    row.insert("ci_high".into(), round(comparison.ci_high));
    row.insert("n".into(), json!(comparison.n));
    row.insert("verdict".into(), json!(comparison.verdict));
    row.insert("reason".into(), json!(comparison.reason));
    row
}
