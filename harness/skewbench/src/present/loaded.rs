use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use skewbench_sim::step_model::{LinearMode, StageLinear, Wait, fit_linear_ps};
use skewbench_store::{CellId, CellStatus, Run, RunData, StoreError, Table};

use super::values::NOT_COMPUTED;
use crate::cells::{CellSpec, REPLAYED_TABLE, Resources, STEPS_TABLE, WAVES_TABLE, WINDOWS_TABLE, WavesCell};
use crate::experiment::{At, Expanded, Scale, describe, expand, recorded};
use crate::failure::Failure;
use crate::metrics::{LinearTimes, WavesView, WindowsView};
use crate::scheduler::store_failure;
use crate::terminal::printable;

/// A run of an experiment, read back.
pub struct Loaded {
    /// The experiment.
    pub expanded: Expanded,
    /// The run.
    pub data: Arc<RunData>,
    /// Points of a sweep, with their coordinates, on the tables of the whole run.
    points: Vec<(Map<String, Value>, Loaded)>,
    tables: Arc<BTreeMap<String, BTreeMap<String, Table>>>,
    views: Arc<BTreeMap<String, WavesView>>,
    fit: OnceLock<Result<f64, String>>,
}

impl Loaded {
    /// Reads a run with nothing but what it recorded.
    ///
    /// # Errors
    /// A folder that is no whole run, one that another version wrote, samples that are not all there.
    pub fn open(dir: &Path, resources: &mut Resources) -> Result<Self, Failure> {
        let data = Run::load(dir).map_err(store_failure)?;
        for what in data.damage().map_err(store_failure)? {
            eprintln!("{}: {}", dir.display(), printable(&what));
        }
        let inputs = &data.manifest.inputs;
        let text = |key: &str| inputs.get(key).and_then(Value::as_str).unwrap_or_default();
        let found = recorded(text("id"), &data.manifest.experiment)?;
        let scale: Scale = serde_json::from_value(inputs.get("scale").cloned().unwrap_or_default())
            .map_err(|e| Failure::config(format!("{}: manifest.json: inputs.scale: {e}", dir.display())))?;
        resources.recall(&found.experiment, &scale, inputs)?;
        let expanded = expand(&found, &scale, resources)?;
        let known: HashSet<&CellId> = data.cells.iter().map(|c| &c.id).collect();
        if let Some(cell) = expanded.cells.iter().find(|cell| !known.contains(&Expanded::id(cell))) {
            return Err(Failure::config(format!(
                "{}: the run has no cell {}; it was made by another version, run it again",
                dir.display(),
                cell.coordinates()
            )));
        }
        Self::new(expanded, data, dir)
    }

    /// Reads the tables of a run.
    ///
    /// # Errors
    /// A folder that is no whole run.
    fn new(expanded: Expanded, data: RunData, dir: &Path) -> Result<Self, Failure> {
        // Which file of the run a fault is in.
        let named = |kind: &str| {
            let path = dir.join(kind).with_extension("parquet");
            move |error: StoreError| match error {
                StoreError::Table(what) => store_failure(StoreError::Damaged { path: path.clone(), what }),
                other => store_failure(other),
            }
        };
        let mut tables: BTreeMap<String, BTreeMap<String, Table>> = BTreeMap::new();
        for kind in data.kinds().map_err(store_failure)? {
            let table = data.table(&kind).map_err(store_failure)?;
            let parts = by_cell(&table).map_err(named(&kind))?;
            tables.insert(kind, parts);
        }
        let finished: HashSet<&CellId> =
            data.cells.iter().filter(|c| c.status == CellStatus::Finished).map(|c| &c.id).collect();
        let mut views = BTreeMap::new();
        for cell in &expanded.cells {
            let (id, CellSpec::Waves(spec)) = (Expanded::id(cell), cell) else { continue };
            if !finished.contains(&id) {
                continue;
            }
            let of = |kind: &str| {
                let rows = tables.get(kind).and_then(|cells| cells.get(id.as_str()));
                rows.ok_or_else(|| named(kind)(StoreError::Table(format!("no rows of cell {}", cell.coordinates()))))
            };
            let (waves, steps) = (of(WAVES_TABLE)?, of(STEPS_TABLE)?);
            let view = WavesView::of(waves, steps).map_err(named(WAVES_TABLE))?;
            let whole = view.check(steps, spec.layout.dp, spec.steps, spec.replay.is_some());
            whole.map_err(|what| {
                named(WAVES_TABLE)(StoreError::Table(format!("cell {}: {what}", cell.coordinates())))
            })?;
            views.insert(id.as_str().to_owned(), view);
        }
        let (data, tables, views) = (Arc::new(data), Arc::new(tables), Arc::new(views));
        let part = |expanded: &Expanded, points| Self {
            expanded: expanded.clone(),
            data: data.clone(),
            points,
            tables: tables.clone(),
            views: views.clone(),
            fit: OnceLock::new(),
        };
        let points = expanded.points.iter().map(|(at, point)| (at.clone(), part(point, Vec::new())));
        Ok(part(&expanded, points.collect()))
    }

    /// Points of a sweep with their coordinates; the run itself where nothing but DP, CP and P is swept.
    pub fn parts(&self) -> impl Iterator<Item = (Option<&Map<String, Value>>, &Self)> {
        let alone = self.points.is_empty().then_some((None, self));
        alone.into_iter().chain(self.points.iter().map(|(at, part)| (Some(at), part)))
    }

    /// The table of a cell, or why there is none.
    pub(super) fn table(&self, kind: &str, cell: &CellSpec) -> Result<&Table, String> {
        let id = Expanded::id(cell);
        let found = self.tables.get(kind).and_then(|t| t.get(id.as_str()));
        found.ok_or_else(|| match self.data.cells.iter().find(|c| c.id == id).map(|c| &c.status) {
            Some(CellStatus::Failed { reason }) => reason.clone(),
            Some(CellStatus::Finished) => "the cell has no samples".into(),
            _ => NOT_COMPUTED.into(),
        })
    }

    pub(super) fn waves(&self, at: &At) -> Result<(&WavesCell, &WavesView), String> {
        let cell = self.expanded.cell_at(at).ok_or("the cell was not planned")?;
        let CellSpec::Waves(spec) = cell else { return Err("the cell has no waves".into()) };
        Ok((spec, self.cell_view(cell)?))
    }

    /// Samples of a cell of waves, or why there are none.
    pub(super) fn cell_view(&self, cell: &CellSpec) -> Result<&WavesView, String> {
        match self.views.get(Expanded::id(cell).as_str()) {
            Some(view) => Ok(view),
            None => self.table(WAVES_TABLE, cell).and_then(|_| Err("the cell has no samples".into())),
        }
    }

    /// Samples of the cell at a place.
    ///
    /// # Errors
    /// Why there are none.
    pub fn view(&self, at: &At) -> Result<&WavesView, String> {
        self.waves(at).map(|(_, view)| view)
    }

    /// What the plans of a system spend beside the work, in a sentence, from the cells of its largest layout.
    pub fn accounting(&self, system: &str) -> Option<String> {
        let places = self.expanded.parts().flat_map(|(_, part)| part.places.iter().map(move |place| (part, place)));
        let places = places.filter(|(_, (at, _))| at.system == system);
        let (part, (_, slot)) = places.max_by_key(|(_, (at, _))| (at.dp, at.pool))?;
        let cell = &part.cells[*slot];
        let table = self.table(WAVES_TABLE, cell).ok()?;
        let greatest = |name: &str| Some(table.u32(name).ok()?.iter().copied().max().unwrap_or(0));
        let total = |name: &str| Some(table.u64(name).ok()?.iter().sum::<u64>());
        let (max, mean) = (table.u64("max_load_pairs").ok()?, table.u64("mean_load_pairs").ok()?);
        let tile = table.u64("largest_tile_pairs").ok()?;
        let ratio = |over: &[u64]| {
            over.iter().zip(mean).filter(|(_, m)| **m > 0).map(|(o, m)| *o as f64 / *m as f64).fold(0.0, f64::max)
        };
        let tiles = if tile.iter().any(|t| *t > 0) {
            format!("; the largest indivisible tile is at most {:.3} of the mean", ratio(tile))
        } else {
            String::new()
        };
        let peak = table.u64("peak_bytes").ok()?.iter().copied().max().unwrap_or(0);
        Some(format!(
            "At {}: the most loaded rank of a domain (the ranks that exchange work with each other in one wave: a CP group, or the \
             ranks of a pool) has at most {:.3} of the mean pairs{tiles}. Idle ranks {}, replicated KV heads {}, padding tokens {}. A \
             rank holds at most {:.2} GiB for one layer's attention.",
            cell.coordinates().as_object().map(describe).unwrap_or_default(),
            ratio(max),
            greatest("idle_ranks")?,
            greatest("replicated_kv_heads")?,
            total("padding_tokens")?,
            peak as f64 / f64::from(1u32 << 30)
        ))
    }

    /// Waves that were replayed, and those of them in which a rank that was not timed may be the slowest.
    pub fn replayed_waves(&self) -> Option<(usize, usize)> {
        let tables = self.tables.get(REPLAYED_TABLE)?.values();
        let bounded: Vec<&bool> = tables.filter_map(|table| table.bool("bounded").ok()).flatten().collect();
        Some((bounded.len(), bounded.iter().filter(|bounded| !***bounded).count()))
    }

    /// The windows of a balance cell.
    pub fn windows(&self, workload: usize) -> Option<WindowsView> {
        WindowsView::of(self.table(WINDOWS_TABLE, self.expanded.cells.get(workload)?).ok()?).ok()
    }

    /// Forward times of micro-batches of one place, attention and linear work, in milliseconds.
    pub fn forward_times_ms(&self, at: &At, linear: LinearTimes) -> Result<Vec<f64>, String> {
        let (_, view) = self.waves(at)?;
        let waves = view.steps.iter().flat_map(|s| &s.waves);
        Ok(waves.flat_map(|w| w.forward_with_linear_ps(linear.forward_ps)).map(|ps| ps * 1e-9).collect())
    }

    /// Linear time in a mode for a token of a packed sequence.
    ///
    /// # Errors
    /// Why it cannot be known.
    pub fn linear(&self, resources: &Resources, mode: LinearMode, at: &At) -> Result<LinearTimes, String> {
        let e = &self.expanded.found.experiment;
        let share = 1.0 / f64::from(at.cp);
        match mode {
            LinearMode::Physical => {
                let machine = self.expanded.machine.as_ref().ok_or("no machine")?;
                let pricing = resources.pricing(machine).map_err(|f| f.message)?;
                let model = &self.expanded.model;
                let layer = StageLinear::layer(model, pricing.profile(), e.layout.tp, e.step_model.recompute);
                Ok(LinearTimes {
                    forward_ps: layer.forward_ps_per_token * share,
                    backward_ps: layer.backward_ps_per_token * share,
                })
            }
            LinearMode::Fitted => {
                let both = self.fit.get_or_init(|| self.fitted_ps_per_token()).clone()? * share;
                Ok(LinearTimes { forward_ps: both / 3.0, backward_ps: both * 2.0 / 3.0 })
            }
        }
    }

    /// The fitted linear picoseconds per token and card, from the published scaling that the experiment names.
    fn fitted_ps_per_token(&self) -> Result<f64, String> {
        let fit = &self.expanded.found.experiment.step_model.fitted;
        let place = |dp: u32| {
            let mut places = self.expanded.places.iter().map(|(at, _)| at);
            places
                .find(|at| {
                    let workload = Some(at.workload) == self.expanded.fit_workload;
                    workload && at.system == fit.system && at.dp == dp && at.cp == fit.cp
                })
                .cloned()
                .ok_or_else(|| format!("the fit's cell at dp = {dp} was not planned"))
        };
        let (single, scaled) = (place(1)?, place(fit.dp)?);
        let tokens = f64::from(self.expanded.workloads[single.workload].0.window_tokens) / f64::from(single.cp);
        let (single, scaled) = (self.waves(&single)?.1, self.waves(&scaled)?.1);
        fit_linear_ps(fit.scaling, &scaled.compute_by_wave(), &single.compute_by_wave(), Wait::PerMicroBatch)
            .map(|ps| ps / tokens)
            .map_err(|e| e.to_string())
    }
}

/// Splits a merged table by its leading `cell` column; rows of a cell stand together.
fn by_cell(table: &Table) -> Result<BTreeMap<String, Table>, StoreError> {
    let cells = table.str("cell")?;
    let mut parts = BTreeMap::new();
    let mut start = 0;
    let codes = cells.codes();
    while start < codes.len() {
        let length = codes[start..].iter().take_while(|c| **c == codes[start]).count();
        if let Some(cell) = cells.get(start)
            && parts.insert(cell.to_owned(), table.slice(start, start + length)).is_some()
        {
            return Err(StoreError::Table(format!("rows of cell {cell} stand twice; see skewbench results check")));
        }
        start += length;
    }
    Ok(parts)
}
