use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use skewbench_external::Catalogue;
use skewbench_report::{
    Failure as FailureRow, Page, Section, Site, Status, SummaryRow as Quantity, SystemCard, Verdict,
};
use skewbench_store::{CellStatus, Kind, Reference, RowStatus, SummaryRow};
use skewbench_systems::registry;

use super::claims::claims;
use super::summary::at_text;
use super::{Loaded, Value, figure, measured_page, summary_rows, validation_page};
use crate::cells::Resources;
use crate::failure::Failure;
use crate::shipped::{Published, Shipped, published, validation_of};

const QUESTION: &str =
    "Who balances the attention of long-context training best over the ranks of a job, and by how much?";

/// What a report is made of.
pub struct Rendering<'a> {
    /// Experiments, each with its values.
    pub experiments: &'a [(Loaded, Vec<Value>)],
    /// Command line that made or renders the run.
    pub command: String,
    /// Folder of templates, in place of the built-in ones.
    pub templates: Option<&'a Path>,
    /// Folder of the report.
    pub out: &'a Path,
}

/// Writes the report and returns its summary rows with the path of the page.
///
/// # Errors
/// Templates that cannot be used, or a folder that cannot be written.
pub fn render(
    rendering: &Rendering<'_>,
    resources: &Resources,
    reference: &Reference,
) -> Result<(Vec<SummaryRow>, PathBuf), Failure> {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for (loaded, values) in rendering.experiments {
        rows.extend(summary_rows(loaded, values, reference));
        figures.push(figure(loaded, resources, values, reference));
    }
    let mut site = site(rendering, resources, &rows, figures);
    site.pages = pages(rendering.experiments)?;
    let rendered = skewbench_report::render(&site, rendering.templates, rendering.out).map_err(Failure::config)?;
    Ok((rows, rendered.index))
}

/// Writes a report of one run on cards and returns the path of its page.
///
/// # Errors
/// Samples that cannot be read, templates that cannot be used, a folder that cannot be written.
pub fn render_measured(samples: &Path, templates: Option<&Path>, out: &Path) -> Result<PathBuf, Failure> {
    let run = Published::parse(&Shipped::read(samples)?)?;
    let site = Site {
        title: "skewbench: attention of long-context training on cards".into(),
        subtitle: run.title.clone(),
        question: QUESTION.into(),
        verdict: run.notes.clone(),
        command: run.card.commands.join("; "),
        revision: run.card.revision.clone(),
        profile: "none: every time on the page about measurements is that of a card".into(),
        backend: "cuda: programs executed on cards, times by device events".into(),
        environment: run.card.facts(),
        pages: vec![measured_page(&[run])],
        ..Site::default()
    };
    Ok(skewbench_report::render(&site, templates, out).map_err(Failure::config)?.index)
}

/// What ships with the program about the profiles of the run and about real cards.
fn pages(experiments: &[(Loaded, Vec<Value>)]) -> Result<Vec<Page>, Failure> {
    let machines = experiments.iter().filter_map(|(l, _)| l.expanded.machine.as_ref());
    let profiles: BTreeSet<&str> = machines.map(|m| m.profile.as_str()).collect();
    Ok(vec![validation_page(&profiles, validation_of)?, measured_page(&published()?)])
}

fn site(
    rendering: &Rendering<'_>,
    resources: &Resources,
    rows: &[SummaryRow],
    figures: Vec<skewbench_report::Figure>,
) -> Site {
    let manifests = || rendering.experiments.iter().map(|(l, _)| &l.data.manifest);
    let mut series: Vec<String> = registry::systems().into_iter().map(|s| s.name).collect();
    series.extend(["random", "zigzag", "zigzag-swap", "zigzag-swap-all", "vrsp"].map(String::from));
    for (_, values) in rendering.experiments {
        for value in values {
            if !series.contains(&value.system) {
                series.push(value.system.clone());
            }
        }
    }
    Site {
        title: "skewbench: balance of attention in long-context training".into(),
        subtitle: "Published values beside ours, every number with its kind, interval and source".into(),
        question: QUESTION.into(),
        verdict: verdict(rendering.experiments).into_iter().chain(claims(rendering.experiments)).collect(),
        command: rendering.command.clone(),
        revision: revision(rendering.experiments),
        profile: profile(rendering, resources),
        backend: "sim: event simulation on a machine profile; groupings are computed from document lengths alone"
            .into(),
        seed: rendering.experiments.first().map(|(l, _)| l.expanded.seed.to_string()).unwrap_or_default(),
        created_from: manifests().map(|m| short_hash(&m.inputs_hash)).collect::<Vec<_>>().join(", "),
        series_order: series,
        summary: rows.iter().filter(|r| r.published.is_some() || r.status != RowStatus::Ok).map(quantity).collect(),
        figures,
        systems: systems(rendering.experiments),
        method: method(rendering, resources),
        environment: environment(rendering.experiments),
        failures: failures(rendering.experiments, rows),
        downloads: Vec::new(),
        pages: Vec::new(),
    }
}

fn profile(rendering: &Rendering<'_>, resources: &Resources) -> String {
    let machine = rendering.experiments.iter().find_map(|(l, _)| l.expanded.machine.as_ref());
    let Some((machine, pricing)) = machine.and_then(|m| Some((m, resources.pricing(m).ok()?))) else {
        return "none".into();
    };
    let sources = pricing.profile().sources();
    let of = |kind: &str| {
        let parts: Vec<&str> = sources.iter().filter(|(_, s)| s.kind.name() == kind).map(|(part, _)| *part).collect();
        (!parts.is_empty()).then(|| format!("{kind}: {}", parts.join(", ")))
    };
    let parts: Vec<String> = ["measured", "assumed", "datasheet"].into_iter().filter_map(of).collect();
    format!("{} ({})", machine.profile, parts.join("; "))
}

fn quantity(row: &SummaryRow) -> Quantity {
    let word = row.verdict.clone().unwrap_or_default();
    Quantity {
        figure: row.figure.clone(),
        dataset: row.dataset.clone(),
        system: row.system.clone(),
        quantity: format!("{} ({})", row.metric, at_text(row)),
        unit: if row.unit == "1" { String::new() } else { row.unit.clone() },
        published: row.published.map(super::summary::short),
        value: row.value,
        ratio: row.ratio,
        ci_low: row.ci_low,
        ci_high: row.ci_high,
        n: Some(row.n),
        kind: match row.kind {
            Kind::Measured => skewbench_report::Kind::Measured,
            Kind::Simulated => skewbench_report::Kind::Simulated,
            Kind::Replayed => skewbench_report::Kind::Replayed,
            Kind::Computed => skewbench_report::Kind::Computed,
            Kind::Modelled => skewbench_report::Kind::Modelled,
        },
        status: status(row.status),
        reason: row.reason.clone().unwrap_or_default(),
        verdict: match word.as_str() {
            "agrees" => Verdict::Agrees,
            "differs" => Verdict::Differs,
            _ => Verdict::None,
        },
        verdict_text: word,
    }
}

/// Revision of the program that made the first run.
fn revision(experiments: &[(Loaded, Vec<Value>)]) -> String {
    let program = experiments.first().and_then(|(l, _)| l.data.manifest.inputs.get("program"));
    let revision = program.and_then(|p| p.get("revision")).and_then(serde_json::Value::as_str).unwrap_or("unknown");
    let dirty = program.and_then(|p| p.get("dirty")).and_then(serde_json::Value::as_bool) == Some(true);
    format!("{revision}{}", if dirty { ", with changes that no commit holds" } else { "" })
}

/// Enough of a hash to tell runs apart.
fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

fn status(status: RowStatus) -> Status {
    match status {
        RowStatus::Ok => Status::Ok,
        RowStatus::Failed => Status::Failed,
        RowStatus::Skipped => Status::Skipped,
    }
}

/// Sentences that quote values of the run.
fn verdict(experiments: &[(Loaded, Vec<Value>)]) -> Vec<String> {
    use crate::experiment::Metric;
    let mut sentences = Vec::new();
    for (loaded, values) in experiments {
        for dataset in (0..loaded.expanded.own_workloads).map(|w| loaded.expanded.dataset(w)) {
            let mut best: Vec<(&str, f64)> = values
                .iter()
                .filter(|v| v.metric == Metric::Speedup && v.dataset == dataset)
                .filter_map(|v| Some((v.system.as_str(), v.estimated.as_ref().ok()?.value)))
                .collect();
            best.sort_by(|a, b| b.1.total_cmp(&a.1));
            let Some((system, speedup)) = best.first() else { continue };
            let others: Vec<String> = best[1..].iter().take(4).map(|(s, x)| format!("{s} {x:.2}x")).collect();
            let worst = |name: &str| {
                let mut found = values.iter().filter(|v| v.metric == Metric::SpeedupMax && v.dataset == dataset);
                found.find(|v| v.system == name).and_then(|v| Some(v.estimated.as_ref().ok()?.value))
            };
            let mut slowest: Vec<(&str, f64)> = best.iter().filter_map(|(s, _)| Some((*s, worst(s)?))).collect();
            slowest.sort_by(|a, b| b.1.total_cmp(&a.1));
            let slowest: Vec<String> = slowest.iter().take(4).map(|(s, x)| format!("{s} {x:.2}x")).collect();
            let baseline = &loaded.expanded.found.experiment.plot.baseline;
            sentences.push(format!(
                "On {}, {system} shortens the mean straggler latency of a wave most, {speedup:.2}x over {baseline} (simulated), before \
                 {}. That is what counts without a pipeline. The slowest wave of a step, which sets the bubble of one, is \
                 shortened most by {}.",
                dataset,
                others.join(", "),
                slowest.join(", ")
            ));
        }
        let means = values.iter().filter(|v| v.metric == Metric::RMinus1 && v.number("p") == Some(8.0));
        if loaded.expanded.found.experiment.figure == "table1" {
            let of = |grouping: &str| -> Vec<String> {
                means
                    .clone()
                    .filter(|v| v.system == grouping)
                    .filter_map(|v| Some(format!("{:.2}% on {}", v.estimated.as_ref().ok()?.value * 100.0, v.dataset)))
                    .collect()
            };
            sentences.push(format!(
                "Pools of eight drawn at random differ by R - 1 = {}; VRSP brings that to {} (computed).",
                of("random").join(" and "),
                of("vrsp").join(" and ")
            ));
        }
    }
    sentences
}

fn systems(experiments: &[(Loaded, Vec<Value>)]) -> Vec<SystemCard> {
    let mut names: Vec<(&String, &Catalogue)> = Vec::new();
    for (loaded, _) in experiments {
        for name in &loaded.expanded.systems {
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, &loaded.expanded.catalogue));
            }
        }
    }
    names
        .into_iter()
        .filter_map(|(name, catalogue)| catalogue.describe(name).ok())
        .map(|d| SystemCard {
            notes: experiments.iter().find_map(|(loaded, _)| loaded.accounting(&d.name)).into_iter().collect(),
            name: d.name,
            placement: d.placement,
            planner: d.planner,
            description: d.summary,
            source: d.source,
            options: d
                .options
                .iter()
                .map(|o| {
                    (o.name.to_owned(), format!("{} ({})", o.default.json().to_string().trim_matches('"'), o.summary))
                })
                .collect(),
        })
        .collect()
}

fn method(rendering: &Rendering<'_>, resources: &Resources) -> Vec<Section> {
    let mut sections = vec![
        Section {
            title: "From lengths to numbers".into(),
            paragraphs: vec![
                "Document lengths are drawn from a named source and packed into windows; steps of packed sequences are placed on data-parallel ranks and waves; a planner turns each wave into a plan; the checker accepts a plan only if every unmasked pair is computed exactly once on data that has arrived and every result gets home; the plan is lowered to a program and the program is priced by event simulation on the profile.".into(),
                "All systems see the same steps. The straggler latency of a wave is that of its slowest worker, transfers included. Intervals are 95% bootstrap percentiles over steps; values relative to a baseline are drawn in pairs of the same step. A published value agrees when it lies in the interval or within 5% of ours, a published bound unless the whole interval is beyond it.".into(),
            ],
        },
        Section {
            title: "Linear work".into(),
            paragraphs: vec![
                "The model and the cards of the published figures are not public. In the fitted mode one number, the linear time of a token, is chosen so that the simulated Ulysses reproduces one published scaling, transfers left out; that row is marked as fitted and every other row is a prediction. In the physical mode linear time is the GEMM work of the named model at the profile's measured rate.".into(),
                "Ranks beyond a pool wait for each other at every micro-batch.".into(),
            ],
        },
    ];
    let machine = rendering.experiments.iter().find_map(|(l, _)| l.expanded.machine.as_ref());
    if let Some(pricing) = machine.and_then(|m| resources.pricing(m).ok()) {
        let sources = pricing.profile().sources();
        let parts = sources.iter().map(|(part, s)| {
            let run = s.run.as_deref().map(|r| format!(", {r}")).unwrap_or_default();
            format!("{part}: {}{run}. {}", s.kind.name(), s.note)
        });
        sections.push(Section { title: "Profile".into(), paragraphs: parts.collect() });
    }
    let workloads = rendering.experiments.iter().flat_map(|(l, _)| l.expanded.workloads.iter().map(|(w, _)| w));
    let mut described: Vec<String> = Vec::new();
    for workload in workloads {
        let text = format!(
            "{}: {}; window of {} tokens, packing {}",
            workload.name, workload.description, workload.window_tokens, workload.packing
        );
        if !described.contains(&text) {
            described.push(text);
        }
    }
    sections.push(Section { title: "Workloads".into(), paragraphs: described });
    sections
}

fn environment(experiments: &[(Loaded, Vec<Value>)]) -> Vec<(String, String)> {
    let Some((loaded, _)) = experiments.first() else { return Vec::new() };
    let manifest = &loaded.data.manifest;
    let compiler = manifest.invocations.first().and_then(|i| i.libraries.get("rustc").cloned()).unwrap_or_default();
    vec![
        ("skewbench".into(), env!("CARGO_PKG_VERSION").into()),
        ("revision".into(), revision(experiments)),
        ("compiler".into(), compiler),
        ("store schema".into(), manifest.schema_version.to_string()),
    ]
}

fn failures(experiments: &[(Loaded, Vec<Value>)], rows: &[SummaryRow]) -> Vec<FailureRow> {
    let cells = experiments.iter().flat_map(|(loaded, _)| {
        loaded.data.cells.iter().filter_map(|cell| {
            let CellStatus::Failed { reason } = &cell.status else { return None };
            Some(FailureRow {
                experiment: loaded.expanded.found.id.clone(),
                cell: serde_json::Value::Object(cell.coordinates.clone()).to_string(),
                status: Status::Failed,
                reason: reason.clone(),
            })
        })
    });
    let values = rows.iter().filter(|r| r.status != RowStatus::Ok).map(|row| FailureRow {
        experiment: row.figure.clone(),
        cell: format!("{} {} {} {}", row.dataset, row.system, row.metric, at_text(row)),
        status: status(row.status),
        reason: row.reason.clone().unwrap_or_default(),
    });
    cells.chain(values).collect()
}
