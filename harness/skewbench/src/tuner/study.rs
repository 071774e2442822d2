use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use skewbench_store::{CellId, CellStatus, Run};

use super::{Best, Point, Space, by_step, search};
use crate::cells::{CellSpec, Resources, STEPS_TABLE, WAVES_TABLE, WavesCell};
use crate::experiment::{
    At, Expanded, Experiment, Found, Metric, Objective, Scale, SearchRecord, StepModelFile, Sweep, TunedFile, expand,
};
use crate::failure::Failure;
use crate::metrics::WavesView;
use crate::scheduler::{Options, execute, store_failure};

/// True when an experiment asks for tuning and holds no result of it yet.
pub fn wants_tuning(experiment: &Experiment) -> bool {
    experiment.systems.tuned && experiment.tuned.is_empty()
}

/// Tunes every system of an experiment on each of its workloads and returns the experiment with what was chosen. Tuning is done at
/// the layout, or at the largest degrees of the sweep; stages are stored below `folder`.
///
/// # Errors
/// As [`expand`] and [`execute`]; a configuration that cannot run is no error.
pub fn tune(found: &Found, scale: &Scale, folder: &Path, options: &Options) -> Result<Found, Failure> {
    let base = experiment(found, scale.quick);
    let text = toml::to_string(&base).map_err(Failure::internal)?;
    let tune = found.experiment.tune.clone();
    let mut keep = tune.keep.clone();
    if !found.experiment.sweep.pool.is_empty() {
        keep.push("pool".into());
    }
    let mut resources = Resources::default();
    let base = Found { id: found.id.clone(), text, experiment: base };
    let scale = Scale { seed: Some(tune.seed), replay: None, ..scale.clone() };
    let expanded = expand(&base, &scale, &mut resources)?;
    let budget = if scale.quick { tune.quick_configurations } else { tune.configurations };
    let mut tuned = Vec::new();
    for (place, (at, slot)) in expanded.places.iter().enumerate() {
        let CellSpec::Waves(cell) = &expanded.cells[*slot] else { continue };
        let specs = expanded.catalogue.describe(&cell.system)?.options;
        // Documents that are held back are missing in single steps: only time over everything that ran counts.
        let stateful =
            expanded.catalogue.system(&cell.system, cell.options.values(), cell.seed)?.placement().stateful();
        let objective = if stateful { Objective::TimePerToken } else { tune.objective };
        let space = Space::around(&specs, &cell.options, &keep, at.dp);
        let mut trials = Trials {
            expanded: &expanded,
            cell,
            space: &space,
            objective,
            resources: &resources,
            options,
            folder: folder.join(format!("{place:03}-{}", file_name(&cell.system))),
            stage: 0,
            known: BTreeMap::new(),
        };
        let best = search(&space, budget, |points| trials.run(points))?;
        report(cell, &best, budget);
        tuned.push(record(cell, at, &space, &best, budget, objective));
    }
    with_results(found, tuned)
}

/// Results as a TOML text that experiments may hold.
///
/// # Errors
/// Never for results that were read from TOML or found by [`tune`].
pub fn fragment(tuned: &[TunedFile]) -> Result<String, Failure> {
    let list: Vec<toml::Value> =
        tuned.iter().map(toml::Value::try_from).collect::<Result<_, _>>().map_err(Failure::internal)?;
    let table: toml::Table = [("tuned".to_owned(), toml::Value::Array(list))].into_iter().collect();
    toml::to_string(&table).map_err(Failure::internal)
}

/// The experiment reduced to the cells that tuning starts from.
fn experiment(found: &Found, quick: bool) -> Experiment {
    let e = &found.experiment;
    let largest = |list: &[u32]| list.iter().copied().max();
    let mut base = e.clone();
    base.systems.tuned = false;
    base.layout.dp = largest(&e.sweep.dp).unwrap_or(e.layout.dp);
    if let Some(cp) = largest(&e.sweep.cp) {
        base.layout.cp = cp;
        base.workloads.iter_mut().for_each(|w| w.cp = None);
    }
    base.sweep = Sweep::default();
    base.steps = if quick { e.tune.quick_steps } else { e.tune.steps };
    base.quick_steps = base.steps;
    base.steps_of.clear();
    base.bandwidth_band = false;
    base.step_model = StepModelFile::default();
    base.plot.metrics = vec![Metric::StragglerMean];
    base
}

/// The experiment with results of tuning in its text.
fn with_results(found: &Found, tuned: Vec<TunedFile>) -> Result<Found, Failure> {
    let mut table: toml::Table = toml::from_str(&found.text).map_err(Failure::internal)?;
    let results: toml::Table = toml::from_str(&fragment(&tuned)?).map_err(Failure::internal)?;
    table.extend(results);
    let text = toml::to_string(&table).map_err(Failure::internal)?;
    Ok(Found { id: found.id.clone(), text, experiment: Experiment { tuned, ..found.experiment.clone() } })
}

fn record(cell: &WavesCell, at: &At, space: &Space, best: &Best, budget: u32, objective: Objective) -> TunedFile {
    TunedFile {
        dataset: cell.workload.name.clone(),
        window_tokens: cell.workload.window_tokens,
        packing: cell.workload.packing.clone(),
        system: cell.system.clone(),
        search: Some(SearchRecord {
            objective,
            budget,
            tried: best.tried,
            failed: best.failed,
            steps: cell.steps,
            seed: cell.seed,
            dp: at.dp,
            cp: at.cp,
            start_ps: best.start,
            chosen_ps: best.value,
        }),
        options: space.options(&best.point),
    }
}

fn report(cell: &WavesCell, best: &Best, budget: u32) {
    let change = match (best.start, best.value) {
        (Some(start), Some(value)) => format!("{:.4} of where it started", value / start),
        (None, Some(_)) => "the start could not run".to_owned(),
        (_, None) => "none could run".to_owned(),
    };
    eprintln!(
        "tuned {} on {}: {} configurations of at most {budget}, {} steps each, seed {}: {change}",
        cell.system, cell.workload.name, best.tried, cell.steps, cell.seed
    );
}

/// A name that is one part of a path.
fn file_name(system: &str) -> String {
    system.chars().map(|c| if c.is_ascii_alphanumeric() || "+-_".contains(c) { c } else { '-' }).collect()
}

/// Configurations of one system on one workload, tried in stages.
struct Trials<'a> {
    expanded: &'a Expanded,
    cell: &'a WavesCell,
    space: &'a Space,
    objective: Objective,
    resources: &'a Resources,
    options: &'a Options,
    folder: PathBuf,
    stage: u32,
    /// Objectives of cells that were tried; nothing for those that failed.
    known: BTreeMap<CellId, Option<f64>>,
}

impl Trials<'_> {
    fn run(&mut self, points: &[Point]) -> Result<Vec<Option<f64>>, Failure> {
        let ids: Vec<Option<CellId>> = self.try_all(points)?;
        Ok(ids.into_iter().map(|id| self.known.get(&id?).copied().flatten()).collect())
    }

    /// Computes what is not known yet; returns the cell of every configuration that its system accepts.
    fn try_all(&mut self, points: &[Point]) -> Result<Vec<Option<CellId>>, Failure> {
        let mut cells: Vec<CellSpec> = Vec::new();
        let mut ids = Vec::with_capacity(points.len());
        for point in points {
            let mut options: Map<String, Value> = self.cell.options.values().clone();
            options.extend(self.space.options(point));
            let Ok(system) = self.expanded.catalogue.system(&self.cell.system, &options, self.cell.seed) else {
                ids.push(None);
                continue;
            };
            let cell = CellSpec::Waves(WavesCell { options: system.options().clone(), ..self.cell.clone() });
            let id = Expanded::id(&cell);
            if !self.known.contains_key(&id) && !cells.contains(&cell) {
                cells.push(cell);
            }
            ids.push(Some(id));
        }
        if !cells.is_empty() {
            self.stage += 1;
            let folder = self.folder.join(format!("stage-{}", self.stage));
            skewbench_store::create_folder(&self.folder).map_err(store_failure)?;
            let stage = Expanded { cells, places: Vec::new(), ..self.expanded.clone() };
            execute(&[(&stage, &folder)], self.resources, self.options, |_| Ok(()))?;
            self.read(&stage, &folder)?;
        }
        Ok(ids)
    }

    fn read(&mut self, stage: &Expanded, folder: &Path) -> Result<(), Failure> {
        let data = Run::load(folder).map_err(store_failure)?;
        for record in &data.cells {
            let mut value = None;
            if record.status == CellStatus::Finished {
                let tables = data.cell_tables(&record.id).map_err(store_failure)?.unwrap_or_default();
                let of = |wanted: &str| tables.iter().find(|(kind, _)| kind == wanted).map(|(_, table)| table);
                let spec = stage.cells.iter().find(|cell| Expanded::id(cell) == record.id);
                if let (Some(waves), Some(placed), Some(CellSpec::Waves(_))) = (of(WAVES_TABLE), of(STEPS_TABLE), spec)
                {
                    let view = WavesView::of(waves, placed).map_err(store_failure)?;
                    let steps = by_step(self.objective, &view);
                    value = Some(steps.iter().sum::<f64>() / steps.len() as f64);
                }
            }
            self.known.insert(record.id.clone(), value);
        }
        Ok(())
    }
}
