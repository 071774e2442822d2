//! `skewbench tune`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::reproduce::open_card;
use super::run::{Study, carry_out, elsewhere, judge};
use super::{output, run};
use crate::cells::Resources;
use crate::cli::{Format, TuneArgs};
use crate::experiment::{Scale, find};
use crate::failure::{Exit, Failure};
use crate::present::{Loaded, TuningResult, tuning_results, write_text};
use crate::tuner::fragment;

/// Options that tuning chose, as a part of an experiment file.
const FRAGMENT: &str = "tuned.toml";

/// Tunes the systems of an experiment, runs it with and without what was chosen, and prints the comparison.
///
/// # Errors
/// As `run`; an experiment without options to tune.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    let mut changes = args.changes.clone();
    changes.push("systems.tuned=true".into());
    changes.extend(args.objective.map(|objective| format!("tune.objective=\"{}\"", objective.name())));
    let number = |key: &str, value: Option<u32>| value.map(|n| format!("tune.{key}={n}"));
    let key = if args.quick { "quick_configurations" } else { "configurations" };
    changes.extend(number(key, args.configurations));
    let found = find(&args.experiment, &changes)?;
    if !found.experiment.tuned.is_empty() {
        let what =
            "holds results of tuning already; remove its [[tuned]] tables, or run it as it is with skewbench run";
        return Err(Failure::config(format!("{}: {what}", args.experiment)));
    }
    let card = open_card(&args.common)?;
    let scale = Scale {
        quick: args.quick,
        systems: args.systems.clone(),
        seed: args.common.seed,
        profile: args.common.profile.clone(),
        replay: card.as_ref().map(|card| card.key(args.common.budget)),
    };
    let stem = format!("tune-{}", found.id.replace(['/', '\\'], "-"));
    let study = Study::new(vec![found], scale, &changes)?;
    let out = args.common.out.clone().unwrap_or_else(|| PathBuf::from("results/runs").join(study.name(&stem)));
    let done = carry_out(study, &args.common, card, &out, args.requeue)?;
    let Some(page) = &done.page else {
        elsewhere(&done.outcome);
        return Ok(());
    };
    let mut resources = Resources::default();
    let mut rows = Vec::new();
    for folder in &done.folders {
        let loaded = Loaded::open(folder, &mut resources)?;
        write_text(&fragment(&loaded.expanded.found.experiment.tuned)?, &out.join(FRAGMENT))?;
        rows.extend(tuning_results(&loaded).iter().map(|result| row(result, args.common.format)));
    }
    output::records(&rows, args.common.format)?;
    finish(&out, page, &done)
}

fn finish(out: &Path, page: &Path, done: &run::Done) -> Result<(), Failure> {
    eprintln!("options: {}", out.join(FRAGMENT).display());
    eprintln!("report: {}", page.display());
    if done.outcome.failed > 0 {
        let what = "some cells failed; the report and summary.json say which and why";
        return judge(&done.rows).and(Err(Failure::new(Exit::Cells, what)));
    }
    judge(&done.rows)
}

fn row(result: &TuningResult<'_>, format: Format) -> Map<String, Value> {
    let mut row = Map::new();
    let mut put = |key: &str, value: Value| row.insert(key.into(), value);
    let search = result.tuned.search.as_ref();
    put("dataset", json!(result.dataset));
    put("system", json!(result.at.system));
    put("dp", json!(result.at.dp));
    put("cp", json!(result.at.cp));
    put("objective", json!(search.map(|s| s.objective.name())));
    put("tried", json!(search.map(|s| s.tried)));
    let round = |x: f64| json!((x * 1e4).round() / 1e4);
    let (means, comparison) = match &result.compared {
        Ok((means, comparison)) => (Some(means), Some(comparison)),
        Err(_) => (None, None),
    };
    let ms = |ps: f64| json!((ps * 1e-3).round() / 1e6);
    put("before_ms", json!(means.map(|m| ms(m[0]))));
    put("after_ms", json!(means.map(|m| ms(m[1]))));
    put("ratio", json!(comparison.map(|c| round(c.ratio))));
    put("ci_low", json!(comparison.map(|c| round(c.ci_low))));
    put("ci_high", json!(comparison.map(|c| round(c.ci_high))));
    put("n", json!(comparison.map(|c| c.n)));
    put("verdict", json!(result.verdict()));
    put("changed", json!(result.changes()));
    if matches!(format, Format::Json | Format::Jsonl) {
        put("options", json!(result.tuned.options));
        put("search", json!(search));
        put("reason", json!(result.compared.as_ref().err()));
    }
    row
}
