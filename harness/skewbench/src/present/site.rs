use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use skewbench_report::{
    Cell, Citation, FIXED_PAGES, Failure as FailureRow, Figure, Page, Section, Site, Status, SummaryRow as Quantity,
    Verdict,
};
use skewbench_store::{CellStatus, Column, Kind, Reference, RowStatus, StoreError, StrColumn, SummaryRow, Table};
use skewbench_systems::registry;

use super::answers::answers;
use super::overview::{picture, verdict};
use super::summary::at_text;
use super::{
    Imported, Loaded, RunGroup, Value, cards, costs, figure, imported_page, measured_page, planning, reasons, runs,
    summary_rows, validation_page,
};
use crate::cells::Resources;
use crate::failure::Failure;
use crate::shipped::{Published, Shipped, published, validation_of};

const QUESTION: &str =
    "Who balances the attention of long-context training best over the ranks of a job, and by how much?";

/// What a report is made of.
pub struct Rendering<'a> {
    /// Experiments, each with its values.
    pub experiments: &'a [(Loaded, Vec<Value>)],
    /// The runs that they belong to, in their order.
    pub runs: Vec<RunGroup>,
    /// Command line that made or renders the run.
    pub command: String,
    /// Folder of templates, in place of the built-in ones.
    pub templates: Option<&'a Path>,
    /// Folder of the report.
    pub out: &'a Path,
}

/// True for ids that figures of the report itself, its pages or the files beside a figure have.
pub fn is_reserved(id: &str) -> bool {
    const PAGES: [&str; 6] = ["answer", "imported", "measured", costs::FIGURE, planning::PAGE, "validation"];
    const BEGINNINGS: [&str; 6] = ["costs-", "planning-", "standing-", "system-", "wave-", "workload-"];
    FIXED_PAGES.contains(&id)
        || PAGES.contains(&id)
        || BEGINNINGS.iter().any(|beginning| id.starts_with(beginning))
        || id.ends_with("-table")
}

/// Writes the report and returns its summary rows with the path of the page.
///
/// # Errors
/// Templates that cannot be used, runs that cannot be compared for a fault in them, or a folder that cannot be written.
pub fn render(
    rendering: &Rendering<'_>,
    resources: &Resources,
    reference: &Reference,
) -> Result<(Vec<SummaryRow>, PathBuf), Failure> {
    let mut rows = Vec::new();
    let mut quantities = Vec::new();
    let mut figures: Vec<Figure> = Vec::new();
    for (i, (loaded, values)) in rendering.experiments.iter().enumerate() {
        let mut figure = figure(loaded, resources, values, reference);
        let mut own = summary_rows(loaded, values, reference);
        let id = &loaded.expanded.found.experiment.figure;
        let of_figure = rendering.experiments.iter().filter(|(l, _)| l.expanded.found.experiment.figure == *id);
        // A figure of several runs has a page for each, and its rows say which run they are of.
        if of_figure.count() > 1
            && let Some((nth, run)) = rendering.runs.iter().enumerate().find(|(_, run)| run.experiments.contains(&i))
        {
            figure.id = if nth == 0 { figure.id } else { format!("{}-run{}", figure.id, nth + 1) };
            figure.title = format!("{} ({})", figure.title, run.name);
            for row in &mut own {
                row.at.insert("run".into(), run.name.clone().into());
            }
        }
        let shown = own.iter().enumerate().filter(|(_, r)| r.published.is_some() || r.status != RowStatus::Ok);
        quantities
            .extend(shown.map(|(i, row)| (rows.len() + i, Quantity { figure: figure.id.clone(), ..quantity(row) })));
        figures.push(figure);
        rows.extend(own);
    }
    // A reason may rest on rows of any figure.
    for (i, quantity) in &mut quantities {
        if quantity.reason.is_empty() {
            quantity.reason = reasons::reason(&rows[*i], &rows, reference).unwrap_or_default();
        }
    }
    let mut site = site(rendering, resources, &rows, figures);
    site.summary = quantities.into_iter().map(|(_, quantity)| quantity).collect();
    site.picture = picture(rendering.experiments, resources, reference);
    site.pages = pages(rendering.experiments)?;
    if rendering.runs.len() > 1 {
        site.runs = runs::cards(&rendering.runs, rendering.experiments);
        site.comparability = runs::comparability(&rendering.runs, rendering.experiments);
        site.comparisons = runs::comparisons(&rendering.runs, rendering.experiments, resources)?;
    }
    add_parquet(&mut site)?;
    let rendered = skewbench_report::render(&site, rendering.templates, rendering.out).map_err(Failure::config)?;
    Ok((rows, rendered.index))
}

/// Writes a report of one run on cards and returns the path of its page.
///
/// # Errors
/// Samples that cannot be read, templates that cannot be used, a folder that cannot be written.
pub fn render_measured(samples: &Path, templates: Option<&Path>, out: &Path) -> Result<PathBuf, Failure> {
    let run = Published::parse(&Shipped::read(samples)?)?;
    let mut site = Site {
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
        citation: citation(),
        ..Site::default()
    };
    add_parquet(&mut site)?;
    Ok(skewbench_report::render(&site, templates, out).map_err(Failure::config)?.index)
}

/// Writes a report of times that a user imported and returns the path of its page.
///
/// # Errors
/// Templates that cannot be used, a folder that cannot be written.
pub fn render_imported(imported: &Imported<'_>, templates: Option<&Path>, out: &Path) -> Result<PathBuf, Failure> {
    let page = imported_page(imported);
    let mut site = Site {
        title: "skewbench: measured by you beside predicted".into(),
        subtitle: page.subtitle.clone(),
        question: "How far are predictions from the times of this cluster, and what would the profile need to change?"
            .into(),
        verdict: page.text.clone(),
        command: imported.command.clone(),
        revision: env!("SKEWBENCH_REVISION").into(),
        profile: imported.profile.to_owned(),
        backend: "times measured elsewhere and imported; predictions by event simulation".into(),
        environment: page.facts.clone(),
        pages: vec![page],
        citation: citation(),
        ..Site::default()
    };
    add_parquet(&mut site)?;
    Ok(skewbench_report::render(&site, templates, out).map_err(Failure::config)?.index)
}

/// What ships with the program about the profiles of the run and about real cards.
fn pages(experiments: &[(Loaded, Vec<Value>)]) -> Result<Vec<Page>, Failure> {
    let machines = experiments.iter().filter_map(|(l, _)| l.expanded.machine.as_ref());
    let profiles: BTreeSet<&str> = machines.map(|m| m.profile.as_str()).collect();
    let mut pages = vec![validation_page(&profiles, validation_of)?, measured_page(&published()?)];
    pages.extend(planning::page(experiments));
    Ok(pages)
}

fn site(rendering: &Rendering<'_>, resources: &Resources, rows: &[SummaryRow], figures: Vec<Figure>) -> Site {
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
        verdict: verdict(rendering.experiments, resources),
        answers: answers(rendering.experiments, resources, &figures),
        overview: costs::table(rendering.experiments, resources).into_iter().collect(),
        command: rendering.command.clone(),
        revision: revision(rendering.experiments),
        profile: profile(rendering, resources),
        backend: backend(rendering.experiments),
        seed: rendering.experiments.first().map(|(l, _)| l.expanded.seed.to_string()).unwrap_or_default(),
        created_from: manifests().map(|m| short_hash(&m.inputs_hash)).collect::<Vec<_>>().join(", "),
        series_order: series,
        figures,
        systems: cards::systems(rendering.experiments, resources),
        workloads: cards::workloads(rendering.experiments),
        method: method(rendering, resources),
        environment: environment(rendering.experiments),
        failures: failures(rendering.experiments, rows),
        citation: citation(),
        ..Site::default()
    }
}

/// What search engines and reference managers read. Authors, version, licence and keywords are those of CITATION.cff, which a
/// test compares.
fn citation() -> Citation {
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    Citation {
        description: "How evenly published systems spread the attention of long-context language model training over the ranks of a job, and what that costs in time; published values beside simulated, replayed and measured ones, each with its interval and source.".into(),
        authors: list(&["The skewbench authors"]),
        date: String::new(),
        version: env!("CARGO_PKG_VERSION").into(),
        licence: "MIT OR Apache-2.0".into(),
        keywords: list(&[
            "long-context training",
            "attention",
            "context parallelism",
            "load balancing",
            "sequence packing",
            "benchmark",
        ]),
    }
}

/// Gives every figure its table as Parquet: columns of numbers as such, all others as text.
fn add_parquet(site: &mut Site) -> Result<(), Failure> {
    let pages = site.pages.iter_mut().flat_map(|p| &mut p.figures);
    let systems = site.systems.iter_mut().flat_map(|s| &mut s.figures);
    let first = site.picture.iter_mut().chain(&mut site.overview);
    let all = first.chain(&mut site.figures).chain(systems).chain(pages).chain(&mut site.comparisons);
    for figure in all {
        figure.parquet = Some(parquet(&figure.table).map_err(Failure::internal)?);
    }
    Ok(())
}

fn parquet(table: &skewbench_report::Table) -> Result<Vec<u8>, StoreError> {
    let mut out = Table::new();
    for (i, column) in table.columns.iter().enumerate() {
        let cells = || table.rows.iter().map(|row| row.get(i).unwrap_or(&Cell::Empty));
        let values: Column = if cells().all(|cell| !matches!(cell, Cell::Text(_))) {
            let number = |cell: &Cell| if let Cell::Number(value) = cell { *value } else { f64::NAN };
            Column::F64(cells().map(number).collect())
        } else {
            let mut texts = StrColumn::new();
            for cell in cells() {
                match cell {
                    Cell::Text(text) => texts.push(text),
                    Cell::Number(value) => texts.push(&value.to_string()),
                    Cell::Empty => texts.push(""),
                }
            }
            Column::Str(texts)
        };
        out.add(if column.key.is_empty() { &column.title } else { &column.key }, values)?;
    }
    let mut bytes = Vec::new();
    out.write_parquet(&mut bytes)?;
    Ok(bytes)
}

fn backend(experiments: &[(Loaded, Vec<Value>)]) -> String {
    let replayed = experiments.iter().find_map(|(l, _)| l.expanded.replay());
    let sim = "sim: event simulation on a machine profile; groupings are computed from document lengths alone";
    replayed.map_or_else(
        || sim.to_owned(),
        |key| {
            format!(
                "replay: launches timed on {} (driver {}, cuDNN {}), all else as {sim}",
                key.card, key.driver, key.cudnn
            )
        },
    )
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
    experiments.first().map(|(l, _)| runs::revision(l)).unwrap_or_default()
}

/// Enough of a hash to tell runs apart.
pub(super) fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

fn status(status: RowStatus) -> Status {
    match status {
        RowStatus::Ok => Status::Ok,
        RowStatus::Failed => Status::Failed,
        RowStatus::Skipped => Status::Skipped,
    }
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

#[cfg(test)]
mod tests {
    use super::citation;

    #[test]
    fn pages_and_the_citation_file_name_the_same_work() {
        let file = include_str!("../../../../CITATION.cff");
        let section = |key: &str| -> Vec<&str> {
            let rest = file.lines().skip_while(|line| *line != format!("{key}:")).skip(1);
            let items = rest.take_while(|line| line.starts_with("  "));
            items.map(|line| line.trim_start_matches("  - ").trim_start_matches("name: ").trim_matches('"')).collect()
        };
        let cited = citation();
        assert_eq!(cited.keywords, section("keywords"));
        assert_eq!(cited.authors, section("authors"));
        assert_eq!(cited.licence, section("license").join(" OR "));
        assert!(file.lines().any(|line| line == format!("version: {}", cited.version)));
    }
}
