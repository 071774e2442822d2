use std::io::Write;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use skewbench_store::{Kind, Reference, ReferenceEntry, RowStatus, SummaryKey, SummaryRow, SummaryValue};

use super::{DRAWN, Loaded, NO_TRANSFERS, NOT_COMPUTED, Value};
use crate::cli::Format;
use crate::experiment::{self, Metric, describe};
use crate::failure::Failure;
use crate::terminal::printable;

/// Relative difference up to which a value agrees with a published one whatever its interval.
pub const TOLERANCE: f64 = 0.05;

/// Place of the reference that holds the published formula, the dataset that it names, and the figure that draws it.
const FORMULA: &str = "eq3";
const UNSPECIFIED: &str = "unspecified";
const FORMULA_FIGURE: &str = "fig4";

/// Rows of `summary.json` for the values of one experiment.
pub fn summary_rows(loaded: &Loaded, values: &[Value], reference: &Reference) -> Vec<SummaryRow> {
    let figure = &loaded.expanded.found.experiment.figure;
    let profile = loaded.expanded.machine.as_ref().map(|m| m.profile.clone());
    let replayed = loaded.expanded.replay().is_some();
    let own = values.iter().map(|value| {
        let metric = metric_name(value);
        let entry = published(reference, figure, value);
        let fitted = value.text("linear") == Some("fitted");
        let key = SummaryKey {
            figure: figure.clone(),
            dataset: value.dataset.clone(),
            system: value.system.clone(),
            metric: metric.to_owned(),
            unit: value.unit.to_owned(),
            at: value.at.clone(),
            published: entry.and_then(|e| e.number()),
            kind: match (value.metric, value.simulated, fitted) {
                (Metric::RuntimeSpread, ..) if !replayed => Kind::Modelled,
                (Metric::RuntimeSpread, ..) => Kind::Measured,
                (Metric::KernelRate, ..) => Kind::Measured,
                (_, false, _) => Kind::Computed,
                (_, true, true) => Kind::Modelled,
                (_, true, false) if replayed => Kind::Replayed,
                (_, true, false) => Kind::Simulated,
            },
            backend: match (value.simulated, value.metric) {
                (true, _) | (_, Metric::KernelRate | Metric::RuntimeSpread) if replayed => "replay",
                (true, _) => "sim",
                (false, _) => "none",
            }
            .to_owned(),
            profile: value
                .text("profile")
                .map(str::to_owned)
                .or_else(|| profile.clone())
                .filter(|_| value.simulated || value.metric == Metric::KernelRate),
        };
        match &value.estimated {
            Ok(e) => {
                let ours = SummaryValue { value: e.value, interval: e.interval, n: e.n };
                // A model with an assumed spread shows what the metric is, and cannot agree or differ.
                let judged = entry.filter(|_| value.metric != Metric::RuntimeSpread || replayed);
                let verdict = judged.map(|entry| {
                    let fit = entry.fits_dataset || fitted && is_fitted_point(loaded, value);
                    if fit { "fitted".to_owned() } else { entry.judge(&ours, TOLERANCE).agreement.word().to_owned() }
                });
                SummaryRow::ok(key, ours, verdict)
            }
            Err(reason) => {
                let skipped = [NOT_COMPUTED, NO_TRANSFERS, DRAWN].contains(&reason.as_str());
                let status = if skipped { RowStatus::Skipped } else { RowStatus::Failed };
                SummaryRow::without_value(key, status, reason)
            }
        }
    });
    own.chain(formula_rows(loaded, values, reference)).chain(unmatched_rows(loaded, values, reference)).collect()
}

/// What a formula of the publication gives with the moments of our windows, beside the values that it approximates.
fn formula_rows(loaded: &Loaded, values: &[Value], reference: &Reference) -> Vec<SummaryRow> {
    let e = &loaded.expanded;
    let row = |value: &Value| {
        let entry = reference.find(FORMULA, UNSPECIFIED, &value.system, "r", &value.at)?;
        let workload = (0..e.own_workloads).find(|w| e.dataset(*w) == value.dataset)?;
        let published = 1.0 + loaded.windows(workload)?.published_formula(value.number("p")? as u32, e.gbs());
        let ours = value.estimated.as_ref().ok()?;
        let ours = SummaryValue {
            value: 1.0 + ours.value,
            interval: ours.interval.map(|(low, high)| (1.0 + low, 1.0 + high)),
            n: ours.n,
        };
        let at_value = ReferenceEntry { value: Some(published), formula: None, ..entry.clone() };
        let key = SummaryKey {
            figure: FORMULA.to_owned(),
            dataset: value.dataset.clone(),
            system: value.system.clone(),
            metric: entry.metric.clone(),
            unit: entry.unit.clone(),
            at: value.at.clone(),
            published: Some(published),
            kind: Kind::Computed,
            backend: "none".to_owned(),
            profile: None,
        };
        Some(SummaryRow::ok(key, ours, Some(at_value.judge(&ours, TOLERANCE).agreement.word().to_owned())))
    };
    // Of the figures with these values the one that also draws the formula.
    let drawn = e.found.experiment.figure == FORMULA_FIGURE;
    values.iter().filter(|v| drawn && v.metric == Metric::RMinus1).filter_map(row).collect()
}

/// Published numbers of the figure that no value of the run stands beside, and why; systems that were not asked for are left out.
fn unmatched_rows(loaded: &Loaded, values: &[Value], reference: &Reference) -> Vec<SummaryRow> {
    let e = &loaded.expanded;
    let figure = &e.found.experiment.figure;
    let kind = match e.found.experiment.kind {
        experiment::Kind::Balance => Kind::Computed,
        experiment::Kind::Spread => Kind::Modelled,
        experiment::Kind::Kernels => Kind::Measured,
        experiment::Kind::Waves => Kind::Simulated,
    };
    let asked = |system: &String| e.found.experiment.kind != experiment::Kind::Waves || e.systems.contains(system);
    let found: Vec<&str> =
        values.iter().filter_map(|v| published(reference, figure, v)).map(|entry| entry.id.as_str()).collect();
    let missing = reference
        .of_figure(figure)
        .filter(|entry| entry.number().is_some() && asked(&entry.system) && !found.contains(&entry.id.as_str()));
    let row = |entry: &ReferenceEntry| {
        let at = serde_json::to_value(&entry.at).ok().and_then(|at| at.as_object().cloned()).unwrap_or_default();
        let reason = format!("no value of this run is of {} at {}", entry.dataset, describe(&at));
        let key = SummaryKey {
            figure: figure.clone(),
            dataset: entry.dataset.clone(),
            system: entry.system.clone(),
            metric: entry.metric.clone(),
            unit: entry.unit.clone(),
            at,
            published: entry.number(),
            kind,
            backend: "none".to_owned(),
            profile: None,
        };
        SummaryRow::without_value(key, RowStatus::Skipped, &reason)
    };
    missing.map(row).collect()
}

/// The published number that a value stands beside. What another network would give was not published.
pub fn published<'a>(reference: &'a Reference, figure: &str, value: &Value) -> Option<&'a ReferenceEntry> {
    let asked = value.text("network").is_none();
    asked.then(|| reference.find(figure, &value.dataset, &value.system, metric_name(value), &value.at)).flatten()
}

/// Name of a value's metric; a latency relative to a baseline is the same metric with a base among its coordinates.
pub fn metric_name(value: &Value) -> &'static str {
    if value.metric == Metric::NormalisedMean { Metric::StragglerMean.name() } else { value.metric.name() }
}

/// True for the point that the fitted mode was fitted on, which says nothing about the model.
fn is_fitted_point(loaded: &Loaded, value: &Value) -> bool {
    let fit = &loaded.expanded.found.experiment.step_model.fitted;
    value.metric == Metric::Scaling
        && value.system == fit.system
        && value.dataset == fit.workload
        && value.number("dp") == Some(f64::from(fit.dp))
        && value.number("cp") == Some(f64::from(fit.cp))
        && value.text("transfers") == Some("left_out")
}

/// Writes `summary.json`, a row a line.
///
/// # Errors
/// When the file cannot be written.
pub fn write_summary(rows: &[SummaryRow], path: &Path) -> Result<(), Failure> {
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    let lines = lines.map_err(Failure::internal)?;
    write_text(&format!("[\n{}\n]\n", lines.join(",\n")), path)
}

/// Writes a text as a whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn write_text(text: &str, path: &Path) -> Result<(), Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::config(format!("write {}: {e}", path.display()));
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| fail(&e))?;
    file.write_all(text.as_bytes()).map_err(|e| fail(&e))?;
    file.as_file().sync_all().map_err(|e| fail(&e))?;
    file.persist(path).map_err(|e| fail(&e.error))?;
    Ok(())
}

/// The coordinates of a row in words.
pub fn at_text(row: &SummaryRow) -> String {
    let parts: Vec<String> = row
        .at
        .iter()
        .map(|(key, value)| match value {
            serde_json::Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={other}"),
        })
        .collect();
    parts.join(" ")
}

/// A number with four significant digits.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if (-3..7).contains(&magnitude) {
        format!("{value:.*}", (3 - magnitude).max(0) as usize)
    } else {
        format!("{value:.3e}")
    }
}

/// Prints rows on standard output. The human table holds the rows that have a published value, and failures.
///
/// # Errors
/// When standard output cannot be written.
pub fn print_summary(rows: &[SummaryRow], format: Format) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let write = |out: &mut dyn Write, text: &str| match writeln!(out, "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::config(format!("standard output: {e}"))),
        _ => Ok(()),
    };
    match format {
        Format::Json => write(&mut out, &serde_json::to_string_pretty(rows).map_err(Failure::internal)?),
        Format::Jsonl => {
            for row in rows {
                write(&mut out, &serde_json::to_string(row).map_err(Failure::internal)?)?;
            }
            Ok(())
        }
        Format::Csv => {
            write(
                &mut out,
                "figure,dataset,system,metric,unit,at,published,value,ratio,ci_low,ci_high,n,kind,status,verdict",
            )?;
            for row in rows {
                let number = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
                let fields = [
                    row.figure.clone(),
                    row.dataset.clone(),
                    row.system.clone(),
                    row.metric.clone(),
                    row.unit.clone(),
                    at_text(row),
                    number(row.published),
                    number(row.value),
                    number(row.ratio),
                    number(row.ci_low),
                    number(row.ci_high),
                    row.n.to_string(),
                    word(&row.kind),
                    word(&row.status),
                    row.verdict.clone().unwrap_or_default(),
                ];
                let quoted: Vec<String> = fields.iter().map(|f| quote(f)).collect();
                write(&mut out, &quoted.join(","))?;
            }
            Ok(())
        }
        Format::Human => {
            let with_reference =
                rows.iter().filter(|r| r.published.is_some() || r.status != RowStatus::Ok).collect::<Vec<_>>();
            let shown = if with_reference.is_empty() { rows.iter().collect() } else { with_reference };
            write(&mut out, &printable(&human(&shown).to_string()))
        }
    }
}

fn human(rows: &[&SummaryRow]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "figure",
        "dataset",
        "system",
        "quantity",
        "published",
        "ours",
        "ratio",
        "95% interval",
        "n",
        "verdict",
    ]);
    for row in rows {
        let interval = match (row.ci_low, row.ci_high) {
            (Some(low), Some(high)) => format!("{} .. {}", short(low), short(high)),
            _ => String::new(),
        };
        let unit = if row.unit == "1" { String::new() } else { format!(" {}", row.unit) };
        table.add_row([
            row.figure.clone(),
            row.dataset.clone(),
            row.system.clone(),
            format!("{} {}", row.metric, at_text(row)),
            row.published.map_or_else(String::new, short),
            row.value.map_or_else(|| word(&row.status), |v| format!("{}{unit}", short(v))),
            row.ratio.map_or_else(String::new, |r| format!("{r:.3}")),
            interval,
            row.n.to_string(),
            row.verdict.clone().or_else(|| row.reason.clone()).unwrap_or_default(),
        ]);
    }
    for column in [4, 5, 6, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A CSV field, in quotes where it needs them.
pub fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
