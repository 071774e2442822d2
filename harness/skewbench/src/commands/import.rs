//! `skewbench import`: measured times of a user's cluster beside predicted ones.

use serde_json::{Map, Value, json};
use skewbench_sim::step_model::Recompute;

use super::folder::ReportFolder;
use super::output;
use super::plan::{end_programs, layout, options};
use super::report::this_command;
use crate::cells::Resources;
use crate::cli::ImportTimesArgs;
use crate::failure::Failure;
use crate::imported::{Accuracy, Fit, PassFit, Setup, adapted, fit, observations, read};
use crate::metrics::Estimated;
use crate::present::{Imported, render_imported, write_text};
use crate::scheduler::watch_interruptions;

/// Predicts what was measured, compares, fits, and writes report and profile where asked to.
///
/// # Errors
/// A file that cannot be used, with its line; a layout or system that cannot be run; times that do not grow with what is predicted.
pub fn run(args: &ImportTimesArgs) -> Result<(), Failure> {
    watch_interruptions();
    if let Some(path) = args.write.as_ref().filter(|path| path.extension().is_none_or(|suffix| suffix != "json")) {
        let what = "a profile is found by a name that ends with .json";
        return Err(Failure::usage(format!("--write {}: {what}", path.display())));
    }
    if let Some(path) = args.write.as_ref().filter(|path| path.exists() && !args.force) {
        return Err(Failure::config(format!("{}: exists; --force replaces it", path.display())));
    }
    let mut resources = Resources::default();
    let layout_of = layout(&args.layout)?;
    if layout_of.pp > 1 {
        return Err(Failure::usage(format!(
            "--layout {}: give the times of one pipeline stage, with pp = 1",
            args.layout
        )));
    }
    let name = resources.catalogue().admit(&args.system)?;
    let system = resources.catalogue().system(&name, &options(&args.options)?, args.seed)?;
    let model = resources.model(&args.model)?;
    let profile = resources.content_name(&args.profile)?;
    let machine = resources.machine(&profile, &Default::default())?;
    layout_of
        .validate(u32::from(model.q_heads), u32::from(model.kv_heads), layout_of.dp, layout_of.cp.max(1))
        .map_err(|e| Failure::config(format!("--layout {}: {e}", args.layout)))?;
    let measured = read(&args.times, layout_of.dp, layout_of.cp)?;
    let pricing = resources.pricing(&machine)?;
    let setup =
        Setup { system: &system, layout: layout_of, model: &model, pricing, of: args.of, recompute: Recompute::None };
    let observations = observations(&measured, &setup)?;
    let file = args.times.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let fit =
        fit(&observations, args.seed).map_err(|what| Failure::config(format!("{}: {what}", args.times.display())))?;
    drop(system);
    end_programs(resources.catalogue())?;
    let imported = Imported {
        file: file.clone(),
        measured: &measured,
        observations: &observations,
        fit: &fit,
        system: &name,
        layout: &args.layout,
        model: &args.model,
        profile: &profile,
        of: args.of,
        command: this_command(),
    };
    let written = args.write.as_ref().zip(args.name.as_deref()).map(|(path, name)| {
        let run = format!("import of {file} ({})", &measured.hash[..12]);
        Ok::<_, Failure>((path, adapted(pricing.profile(), &fit, &observations, (name, &run))?))
    });
    let written = written.transpose()?;
    let folder = args.out.as_deref().map(|out| ReportFolder::open(out, &["imported.html"])).transpose()?;
    output::records(&rows(&imported, &fit), args.format)?;
    if let Some((path, (profile, said))) = written {
        let text = serde_json::to_string_pretty(&profile).map_err(Failure::internal)?;
        write_text(&format!("{text}\n"), path)?;
        said.iter().for_each(|what| eprintln!("{what}"));
        eprintln!("written: {}", path.display());
    }
    if let Some(out) = &args.out {
        let page = render_imported(&imported, args.templates.as_deref(), out)?;
        eprintln!("report: {}", page.with_file_name("imported.html").display());
    }
    folder.map_or(Ok(()), ReportFolder::finish)
}

/// What the profile says, what fits, and how far either is from the times.
fn rows(imported: &Imported<'_>, fit: &Fit) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    let mut fitted = |quantity: String, unit: &str, profile: f64, e: &Estimated, scale: f64| {
        let ends = e.interval.map(|(low, high)| (low * scale, high * scale)).unzip();
        let values = [None, Some(profile), Some(e.value * scale)];
        rows.push(record(quantity, unit, values, ends, Some(e.n)));
    };
    for PassFit { pass, factor, constant, alone } in &fit.passes {
        fitted(format!("kernel time, {}", pass.name()), "x profile", 1.0, factor, 1.0);
        if let Some(constant) = constant {
            fitted(format!("constant of a wave, {}", pass.name()), "us", 0.0, constant, 1e-3);
            fitted(format!("kernel time without a constant, {}", pass.name()), "x profile", 1.0, alone, 1.0);
        }
    }
    for (rank, speed) in fit.speeds.iter().enumerate() {
        fitted(format!("kernel time, rank {rank}"), "x mean rank", 1.0, speed, 1.0);
    }
    let (before, after) = (imported.before(), imported.after());
    type Of = fn(&Accuracy) -> Option<f64>;
    let accuracies: [(&str, Of); 6] = [
        ("error of ranks, median", |a| Some(a.median)),
        ("error of ranks, 95th percentile", |a| Some(a.p95)),
        ("error of slowest ranks, median", |a| Some(a.wave_median)),
        ("error of slowest ranks, 95th percentile", |a| Some(a.wave_p95)),
        ("correlation with measured times", |a| a.correlation),
        ("waves whose slowest rank is predicted", |a| Some(a.same_slowest)),
    ];
    for (quantity, of) in accuracies {
        rows.push(record(quantity.into(), "1", [None, of(&before), of(&after)], (None, None), None));
    }
    let stragglers = [imported.straggler(), before.straggler, after.straggler].map(Some);
    rows.push(record("slowest over mean rank".into(), "1", stragglers, (None, None), None));
    rows
}

fn record(
    quantity: String,
    unit: &str,
    [measured, profile, fitted]: [Option<f64>; 3],
    (low, high): (Option<f64>, Option<f64>),
    n: Option<u64>,
) -> Map<String, Value> {
    let round = |x: Option<f64>| json!(x.map(|x| (x * 1e4).round() / 1e4));
    let mut row = Map::new();
    row.insert("quantity".into(), json!(quantity));
    row.insert("unit".into(), json!(unit));
    row.insert("measured".into(), round(measured));
    row.insert("profile".into(), round(profile));
    row.insert("fitted".into(), round(fitted));
    row.insert("ci_low".into(), round(low));
    row.insert("ci_high".into(), round(high));
    row.insert("n".into(), json!(n));
    row
}
