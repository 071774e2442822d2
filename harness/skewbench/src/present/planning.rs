//! How long systems think: the wall-clock times of placing and planning that runs keep beside their samples.
//!
//! They differ between runs of the same inputs, so they stand on a page of their own and nowhere else: all other pages of such
//! runs are the same, byte for byte.

use std::collections::BTreeMap;

use skewbench_report::{Cell, Column, Figure, Kind, Page, Section, Table};
use skewbench_store::CellId;

use super::standing::compared;
use super::{Loaded, Value};
use crate::cells::{CellSpec, WavesCell};
use crate::experiment::Expanded;
use crate::metrics::StepView;

/// Name of the page.
pub(super) const PAGE: &str = "planning";

type Timings = BTreeMap<String, f64>;

/// Times of one system on one workload, a step.
struct Spent {
    dataset: String,
    system: String,
    cp: u32,
    pool: u32,
    plan_ms: f64,
    place_ms: f64,
    /// Share of the simulated attention of all layers of a step.
    share: Option<f64>,
}

/// The page of planning times; nothing where no run compares systems or none has times.
pub(super) fn page(experiments: &[(Loaded, Vec<Value>)]) -> Option<Page> {
    let (loaded, _) = compared(experiments)?;
    let timings: Vec<BTreeMap<CellId, Timings>> =
        experiments.iter().map(|(l, _)| l.data.timings().unwrap_or_default()).collect();
    let e = &loaded.expanded;
    let layout = &e.found.experiment.layout;
    let own = e.places.iter().filter(|(at, _)| at.workload < e.own_workloads && at.dp == layout.dp);
    let mut spent: Vec<Spent> = Vec::new();
    for (at, slot) in own {
        let CellSpec::Waves(cell) = &e.cells[*slot] else { continue };
        let dataset = e.dataset(at.workload);
        if spent.iter().any(|s| s.dataset == dataset && s.system == at.system) {
            continue;
        }
        let Some([plan, place]) = longest(experiments, &timings, cell) else { continue };
        let attention = loaded.view(at).ok().map(|view| view.by_step(StepView::attention_ps));
        let attention = attention
            .filter(|steps| !steps.is_empty())
            .map(|steps| steps.iter().sum::<f64>() / steps.len() as f64 * 1e-12 * f64::from(e.model.layers));
        spent.push(Spent {
            dataset,
            system: at.system.clone(),
            cp: at.cp,
            pool: cell.pool(),
            plan_ms: plan * 1e3,
            place_ms: place * 1e3,
            share: attention.map(|seconds| (plan + place) / seconds),
        });
    }
    (!spent.is_empty()).then(|| Page {
        name: PAGE.into(),
        title: "Planning time".into(),
        subtitle: "How long each system thinks about a step, measured while this run was made".into(),
        text: sentences(&spent),
        facts: vec![("made on".into(), host(loaded))],
        figures: vec![figure(loaded, &spent)],
        method: vec![Section { title: "How it was measured".into(), paragraphs: method() }],
    })
}

/// Seconds a step of planning and of placing, of the cells with the same system, options, workload and pools the one in which
/// each took longest: what another cell of the run has planned is not planned again.
fn longest(
    experiments: &[(Loaded, Vec<Value>)],
    timings: &[BTreeMap<CellId, Timings>],
    cell: &WavesCell,
) -> Option<[f64; 2]> {
    let alike = |other: &WavesCell| {
        (&other.system, &other.workload, &other.options, &other.machine)
            == (&cell.system, &cell.workload, &cell.options, &cell.machine)
            && (other.layout.cp, other.gbs, other.pool()) == (cell.layout.cp, cell.gbs, cell.pool())
    };
    let mut most: Option<[f64; 2]> = None;
    for ((loaded, _), timings) in experiments.iter().zip(timings) {
        for spec in &loaded.expanded.cells {
            let CellSpec::Waves(other) = spec else { continue };
            if !alike(other) {
                continue;
            }
            let Some(times) = timings.get(&Expanded::id(spec)) else { continue };
            let of = |inside: &str, outside: &str| {
                let sum = times.get(inside).unwrap_or(&0.0) + times.get(outside).unwrap_or(&0.0);
                sum / f64::from(other.steps.max(1))
            };
            let found = [of("plan_s", "external_plan_s"), of("place_s", "external_place_s")];
            let so_far = most.get_or_insert([0.0; 2]);
            for (longest, found) in so_far.iter_mut().zip(found) {
                *longest = longest.max(found);
            }
        }
    }
    most
}

fn sentences(spent: &[Spent]) -> Vec<String> {
    let mut datasets: Vec<&str> = Vec::new();
    for s in spent {
        if !datasets.contains(&s.dataset.as_str()) {
            datasets.push(&s.dataset);
        }
    }
    let all = |s: &Spent| s.plan_ms + s.place_ms;
    let sentence = |dataset: &&str| {
        let here = || spent.iter().filter(|s| s.dataset == **dataset);
        let most = here().max_by(|a, b| all(a).total_cmp(&all(b)))?;
        let share =
            most.share.map(|share| format!(", {:.2}% of the simulated attention time of that step", share * 100.0));
        Some(format!(
            "On {dataset} {} thinks longest: {:.1} ms of one core a step of all sequences{}. Plans of a step serve all of its layers and can be \
             made while the step before runs; the times of this report leave planning out.",
            most.system,
            all(most),
            share.unwrap_or_default()
        ))
    };
    datasets.iter().filter_map(sentence).collect()
}

fn figure(loaded: &Loaded, spent: &[Spent]) -> Figure {
    let rows = spent.iter().map(|s| -> Vec<Cell> {
        vec![
            s.dataset.clone().into(),
            s.system.clone().into(),
            f64::from(s.cp).into(),
            f64::from(s.pool).into(),
            s.plan_ms.into(),
            s.place_ms.into(),
            (s.plan_ms + s.place_ms).into(),
            s.share.map(|share| share * 100.0).into(),
        ]
    });
    Figure {
        id: "planning-time".into(),
        title: "Planning and placing a step, one core".into(),
        description: "A row for each system and workload".into(),
        kind: Kind::Measured,
        caption: format!(
            "Milliseconds of one core for a step of {} sequences, both passes; cells of the run work side by side, so that these are times of \
             a busy machine. Share: of the attention of all {} layers of the step, as simulated.",
            loaded.expanded.gbs(),
            loaded.expanded.model.layers
        ),
        systems: spent.iter().map(|s| s.system.clone()).collect(),
        workloads: super::figures::distinct(spent.iter().map(|s| s.dataset.as_str())),
        table: Table {
            columns: vec![
                Column::new("workload", "dataset", ""),
                Column::new("system", "system", ""),
                Column::new("CP", "cp", ""),
                Column::new("P", "p", ""),
                Column::new("planning", "plan_ms", "ms"),
                Column::new("placing", "place_ms", "ms"),
                Column::new("both", "both_ms", "ms"),
                Column::new("of the step's attention", "share_percent", "%"),
            ],
            rows: rows.collect(),
        },
        ..Figure::default()
    }
}

fn host(loaded: &Loaded) -> String {
    let host = loaded.data.manifest.invocations.first().map(|i| &i.host);
    host.map_or_else(|| "unknown".into(), |host| format!("{}, {} cores, {}", host.cpu, host.cores, host.os))
}

fn method() -> Vec<String> {
    vec![
        "Every cell of a run adds up the wall-clock time of its planners and placements over the threads that it uses (timings.json). A plan that \
         another cell of the run has made is not made again, so of all cells with the same system, options, workload and pools the longest \
         time of a step counts; where plans of a step were spread over cells it is a lower end."
            .into(),
        "These are the only numbers of a report that differ between runs of the same inputs.".into(),
    ]
}
