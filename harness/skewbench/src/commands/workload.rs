//! `skewbench workload`.

use std::ops::ControlFlow;

use serde_json::{Map, Value, json};
use skewbench_systems::placements::Grouping;
use skewbench_workloads::{
    ImportError, ImportOptions, QUANTILES, ReadOptions, StreamOptions, WindowStream, Workload, describe, import,
    presets,
};

use super::output;
use crate::cells::{self, BALANCE_TABLE, BalanceCell, CellSpec, Resources};
use crate::cli::{Format, FormatArgs, ImportArgs, WorkloadArgs, WorkloadCommand};
use crate::experiment::WorkloadFile;
use crate::failure::{Exit, Failure};
use crate::metrics::{BalanceView, Draws, estimate_mean};
use crate::progress::Progress;
use crate::scheduler::{check_interrupted, watch_interruptions};

/// Lists, describes, samples and imports workloads.
///
/// # Errors
/// Unknown presets, unreadable files, bad lengths.
pub fn run(command: &WorkloadCommand) -> Result<(), Failure> {
    match command {
        WorkloadCommand::List(args) => list(*args),
        WorkloadCommand::Describe(args) => describe_one(args),
        WorkloadCommand::Sample(args) => sample(args),
        WorkloadCommand::Import(args) => import_files(args),
    }
}

fn list(args: FormatArgs) -> Result<(), Failure> {
    let rows: Vec<Map<String, Value>> = presets()
        .iter()
        .map(|p| {
            let mut row = Map::new();
            row.insert("name".into(), json!(p.name));
            row.insert("window_tokens".into(), json!(p.window));
            row.insert("packing".into(), json!(p.packing.to_string()));
            row.insert("description".into(), json!(p.description));
            row.insert(
                "source".into(),
                json!(format!("{}, {} {}", p.source.system, p.source.repository, p.source.commit)),
            );
            row
        })
        .collect();
    output::records(&rows, args.format)
}

fn open(args: &WorkloadArgs) -> Result<Workload, Failure> {
    let packing = args.packing.as_deref().map(str::parse).transpose().map_err(Failure::config)?;
    Workload::open(&args.name, args.window, packing).map_err(cells::workload_failure)
}

fn describe_one(args: &WorkloadArgs) -> Result<(), Failure> {
    let workload = open(args)?;
    let windows = args.steps.saturating_mul(args.gbs).min(50_000);
    let description = describe(&workload, args.seed, windows).map_err(Failure::config)?;
    let balance = balance(args)?;
    if matches!(args.format, Format::Json | Format::Jsonl) {
        let mut all = Map::new();
        all.insert("workload".into(), json!(workload.name()));
        all.insert("window_tokens".into(), json!(workload.window()));
        all.insert("packing".into(), json!(workload.packing().to_string()));
        all.insert("fingerprint".into(), json!(workload.fingerprint()));
        all.insert("description".into(), json!(description));
        all.insert("balance".into(), json!(balance));
        return output::records(&[all], args.format);
    }
    if args.format == Format::Human {
        heading(&workload, &description)?;
    }
    output::records(&balance, args.format)
}

fn heading(workload: &Workload, d: &skewbench_workloads::Description) -> Result<(), Failure> {
    let quantiles = |values: &dyn Fn(usize) -> String| {
        QUANTILES.iter().enumerate().map(|(i, q)| format!("{q}: {}", values(i))).collect::<Vec<_>>().join("  ")
    };
    let sampled = if d.documents_sampled { " (a sample)" } else { "" };
    let lines = [
        format!("{}  {}", workload.name(), workload.description()),
        format!("window {} tokens, packing {}", workload.window(), workload.packing()),
        String::new(),
        format!(
            "documents{sampled}     {} with {} tokens, mean {:.1}",
            d.documents.documents, d.documents.tokens, d.documents.mean
        ),
        format!("  length quantiles    {}", quantiles(&|i| d.documents.quantiles[i].to_string())),
        format!("  pairs of the longest 1%  {:.1}%", 100.0 * d.documents.pairs_of_top_percent),
        format!(
            "windows               {} looked at, {:.1} documents each",
            d.windows.windows, d.windows.documents_per_window
        ),
        format!("  mean x              {:.4} +- {:.4}", d.windows.mean_x.value, d.windows.mean_x.standard_error),
        format!("  CV of x             {:.4} +- {:.4}", d.windows.cv_x.value, d.windows.cv_x.standard_error),
        format!("  x quantiles         {}", quantiles(&|i| format!("{:.5}", d.windows.x_quantiles[i]))),
        format!("  one full document   {:.2}% of windows", 100.0 * d.windows.full_windows),
        format!(
            "  pairs of the longest 1% of packed documents  {:.1}%",
            100.0 * d.packed_documents.pairs_of_top_percent
        ),
        String::new(),
        "R - 1 over all pools of a step, and waiting inside the waves of 16 data-parallel ranks (computed):".into(),
    ];
    lines.iter().try_for_each(output::line)
}

fn balance(args: &WorkloadArgs) -> Result<Vec<Map<String, Value>>, Failure> {
    let mut resources = Resources::default();
    let file =
        WorkloadFile { name: args.name.clone(), window_tokens: args.window, packing: args.packing.clone(), cp: None };
    let workload = resources.workload(&file)?;
    if args.gbs == 0 || args.steps == 0 {
        return Err(Failure::config("--gbs and --steps must be at least 1"));
    }
    let cell = CellSpec::Balance(BalanceCell {
        workload,
        gbs: args.gbs,
        steps: args.steps,
        seed: args.seed,
        pools: [1, 2, 4, 8, 16].into_iter().filter(|p| *p <= args.gbs).collect(),
        groupings: vec![
            Grouping::Random,
            Grouping::Zigzag,
            Grouping::ZigzagSwap,
            Grouping::ZigzagSwapAll,
            Grouping::Vrsp,
        ],
        dp: 16.min(args.gbs),
    });
    let tables = cells::compute(&cell, &resources)?;
    let table = tables.tables.iter().find(|(kind, _)| *kind == BALANCE_TABLE).map(|(_, table)| table);
    let views = table.map(BalanceView::all).transpose().map_err(Failure::internal)?.unwrap_or_default();
    views
        .iter()
        .map(|view| {
            let r = estimate_mean(&view.r_minus_1, Draws::single(args.seed), "r_minus_1").map_err(Failure::internal)?;
            let waiting = estimate_mean(&view.wave_r, Draws::single(args.seed), "wave_r").map_err(Failure::internal)?;
            let mut row = Map::new();
            row.insert("pool".into(), json!(view.pool));
            row.insert("grouping".into(), json!(view.grouping));
            for (name, e) in [("r_minus_1", r), ("wave_r", waiting)] {
                row.insert(name.into(), rounded(e.value));
                let (low, high) = e.interval.unwrap_or((e.value, e.value));
                row.insert(format!("{name}_low"), rounded(low));
                row.insert(format!("{name}_high"), rounded(high));
            }
            row.insert("steps".into(), json!(r.n));
            Ok(row)
        })
        .collect()
}

fn rounded(value: f64) -> Value {
    json!((value * 1e6).round() / 1e6)
}

fn sample(args: &WorkloadArgs) -> Result<(), Failure> {
    if args.steps == 0 {
        return Err(Failure::config("--steps must be at least 1"));
    }
    let workload = open(args)?;
    let options = StreamOptions { gbs: args.gbs, ..StreamOptions::default() };
    let stream = WindowStream::with_options(&workload, args.seed, options).map_err(Failure::config)?;
    let windows = (0..u64::from(args.steps)).flat_map(|step| stream.step(step).into_iter().map(move |w| (step, w)));
    if args.format == Format::Csv {
        output::line("step,window,document,tokens")?;
    }
    for (index, (step, window)) in windows.enumerate() {
        let index = index % args.gbs.max(1) as usize;
        match args.format {
            Format::Csv => {
                for (document, tokens) in window.iter().enumerate() {
                    output::line(format!("{step},{index},{document},{tokens}"))?;
                }
            }
            Format::Human => output::line(window.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?,
            Format::Json | Format::Jsonl => {
                output::line(json!({ "step": step, "window": index, "documents": &*window }))?;
            }
        }
    }
    Ok(())
}

fn import_files(args: &ImportArgs) -> Result<(), Failure> {
    let options = ImportOptions {
        read: ReadOptions { field: args.field.clone(), tokenizer: args.tokenizer.clone(), ..ReadOptions::default() },
        out: args.out.clone(),
        overwrite: args.force,
    };
    if !args.out.extension().is_some_and(|suffix| suffix == "parquet" || suffix == "pq") {
        let what = "lengths are written as Parquet; end the name with .parquet";
        return Err(Failure::usage(format!("--out {}: {what}", args.out.display())));
    }
    watch_interruptions();
    let mut bar: Option<Progress> = None;
    let mut last = 0;
    let report = import(&args.paths, &options, &mut |p| {
        let bar = bar.get_or_insert_with(|| Progress::new("bytes", p.bytes_total));
        bar.advance(p.bytes_read.saturating_sub(last), &format!("{} documents, {} tokens", p.documents, p.tokens));
        last = p.bytes_read;
        if check_interrupted().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(|e| match e {
        ImportError::Stopped => Failure::new(Exit::Interrupted, e.to_string()),
        e => Failure::config(e),
    })?;
    if let Some(bar) = bar {
        bar.finish();
    }
    let rate = report.text_mb_per_s().map(|r| format!(", tokenised at {r:.1} MB/s")).unwrap_or_default();
    output::line(format!(
        "{}: {} documents, {} tokens, lengths {} to {}, {} empty and {} binary skipped, {:.1} s{rate}",
        args.out.display(),
        report.documents,
        report.tokens,
        report.min,
        report.max,
        report.skipped_empty,
        report.skipped_not_text,
        report.elapsed.as_secs_f64()
    ))
}
