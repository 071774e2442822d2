use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, json};
use skewbench_sim::step_model::{LinearMode, StageLinear, Wait, fit_linear_ps};
use skewbench_store::{CellStatus, Run, RunData, StoreError, Table};

use super::training::training_step;
use crate::cells::{BALANCE_TABLE, CellSpec, KERNELS_TABLE, Resources, WAVES_TABLE, WINDOWS_TABLE, WavesCell};
use crate::experiment::{At, Expanded, Metric, Scale, expand, recorded};
use crate::failure::Failure;
use crate::metrics::{
    BalanceView, Estimated, LinearTimes, StepView, WavesView, WindowsView, estimate_mean, estimate_ratio, estimate_sums,
};
use crate::scheduler::store_failure;

/// Why a value of an unfinished run is missing.
pub const NOT_COMPUTED: &str = "not computed yet";
/// Why a system that moves nothing hides nothing.
pub const NO_TRANSFERS: &str = "no transfers to hide";

/// The word for a way of pricing linear work in coordinates and titles.
pub fn linear_name(mode: LinearMode) -> &'static str {
    match mode {
        LinearMode::Fitted => "fitted",
        LinearMode::Physical => "physical",
    }
}

/// One quantity of an experiment with all that tells it from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Metric.
    pub metric: Metric,
    /// Unit.
    pub unit: &'static str,
    /// Workload.
    pub dataset: String,
    /// System, pair or grouping.
    pub system: String,
    /// Every coordinate that tells rows apart.
    pub at: Map<String, serde_json::Value>,
    /// The value, or why there is none.
    pub estimated: Result<Estimated, String>,
    /// True when it comes from a simulation, false when it is computed from lengths alone.
    pub simulated: bool,
}

impl Value {
    /// A coordinate as a number.
    pub fn number(&self, coordinate: &str) -> Option<f64> {
        self.at.get(coordinate).and_then(serde_json::Value::as_f64)
    }

    /// A coordinate as text.
    pub fn text(&self, coordinate: &str) -> Option<&str> {
        self.at.get(coordinate).and_then(serde_json::Value::as_str)
    }
}

/// A run of an experiment, read back.
pub struct Loaded {
    /// The experiment.
    pub expanded: Expanded,
    /// The run.
    pub data: RunData,
    tables: BTreeMap<String, BTreeMap<String, Table>>,
    views: BTreeMap<String, WavesView>,
    fit: OnceLock<Result<f64, String>>,
}

impl Loaded {
    /// Reads a run with nothing but what it recorded.
    ///
    /// # Errors
    /// A folder that is no whole run, or one that another version wrote.
    pub fn open(dir: &std::path::Path, resources: &mut Resources) -> Result<Self, Failure> {
        let data = Run::load(dir).map_err(store_failure)?;
        let inputs = &data.manifest.inputs;
        let text = |key: &str| inputs.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let found = recorded(text("id"), &data.manifest.experiment)?;
        let scale: Scale = serde_json::from_value(inputs.get("scale").cloned().unwrap_or_default())
            .map_err(|e| Failure::config(format!("{}: manifest.json: inputs.scale: {e}", dir.display())))?;
        resources.recall(&found.experiment, &scale, inputs)?;
        let expanded = expand(&found, &scale, resources)?;
        let known = |id: &skewbench_store::CellId| data.cells.iter().any(|c| c.id == *id);
        if let Some(cell) = expanded.cells.iter().find(|cell| !known(&Expanded::id(cell))) {
            return Err(Failure::config(format!(
                "{}: the run has no cell {}; it was made by another version, run it again",
                dir.display(),
                cell.coordinates()
            )));
        }
        Self::new(expanded, data)
    }

    /// Reads the tables of a run.
    ///
    /// # Errors
    /// A folder that is no whole run.
    fn new(expanded: Expanded, data: RunData) -> Result<Self, Failure> {
        let mut tables: BTreeMap<String, BTreeMap<String, Table>> = BTreeMap::new();
        for kind in data.kinds().map_err(store_failure)? {
            let table = data.table(&kind).map_err(store_failure)?;
            tables.insert(kind, by_cell(&table).map_err(store_failure)?);
        }
        let samples = tables.get(WAVES_TABLE).into_iter().flatten();
        let views = samples
            .map(|(cell, table)| Ok((cell.clone(), WavesView::of(table)?)))
            .collect::<Result<_, StoreError>>()
            .map_err(store_failure)?;
        Ok(Self { expanded, data, tables, views, fit: OnceLock::new() })
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
        match self.views.get(Expanded::id(cell).as_str()) {
            Some(view) => Ok((spec, view)),
            None => self.table(WAVES_TABLE, cell).and_then(|_| Err("the cell has no samples".into())),
        }
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
        let places = self.expanded.places.iter().filter(|(at, _)| at.system == system);
        let (_, slot) = places.max_by_key(|(at, _)| (at.dp, at.pool))?;
        let cell = &self.expanded.cells[*slot];
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
            "At {}: the most loaded rank of a domain has at most {:.3} of the mean pairs{tiles}. Idle ranks {}, replicated KV \
             heads {}, padding tokens {}. A rank holds at most {:.2} GiB for one layer's attention.",
            cell.coordinates(),
            ratio(max),
            greatest("idle_ranks")?,
            greatest("replicated_kv_heads")?,
            total("padding_tokens")?,
            peak as f64 / f64::from(1u32 << 30)
        ))
    }

    /// The windows of a balance cell.
    pub fn windows(&self, workload: usize) -> Option<WindowsView> {
        WindowsView::of(self.table(WINDOWS_TABLE, self.expanded.cells.get(workload)?).ok()?).ok()
    }

    /// Forward times of micro-batches of one place, attention and linear work, in milliseconds.
    pub fn forward_times_ms(&self, at: &At, linear: LinearTimes) -> Result<Vec<f64>, String> {
        let (_, view) = self.waves(at)?;
        let waves = view.steps.iter().flat_map(|s| &s.waves);
        Ok(waves.flat_map(|w| &w.forward_by_rank_ps).map(|ps| (ps + linear.forward_ps) * 1e-9).collect())
    }

    /// Linear time of a micro-batch of a workload in a mode.
    ///
    /// # Errors
    /// Why it cannot be known.
    pub fn linear(&self, resources: &Resources, mode: LinearMode, at: &At) -> Result<LinearTimes, String> {
        let e = &self.expanded.found.experiment;
        let tokens = self.tokens_a_rank(at);
        match mode {
            LinearMode::Physical => {
                let machine = self.expanded.machine.as_ref().ok_or("no machine")?;
                let pricing = resources.pricing(machine).map_err(|f| f.message)?;
                let model = &self.expanded.model;
                let layer = StageLinear::layer(model, pricing.profile(), e.layout.tp, e.step_model.recompute);
                Ok(LinearTimes {
                    forward_ps: layer.forward_ps_per_token * tokens,
                    backward_ps: layer.backward_ps_per_token * tokens,
                })
            }
            LinearMode::Fitted => {
                let both = self.fit.get_or_init(|| self.fitted_ps_per_token()).clone()? * tokens;
                Ok(LinearTimes { forward_ps: both / 3.0, backward_ps: both * 2.0 / 3.0 })
            }
        }
    }

    fn tokens_a_rank(&self, at: &At) -> f64 {
        f64::from(self.expanded.workloads[at.workload].0.window_tokens) / f64::from(at.cp)
    }

    /// The fitted linear picoseconds per token, from the published scaling that the experiment names.
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
        let tokens = self.tokens_a_rank(&single);
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
        if let Some(cell) = cells.get(start) {
            parts.insert(cell.to_owned(), table.slice(start, start + length));
        }
        start += length;
    }
    Ok(parts)
}

/// Every value that an experiment asks for.
pub fn evaluate(loaded: &Loaded, resources: &Resources) -> Vec<Value> {
    let mut values = Vec::new();
    for (slot, cell) in loaded.expanded.cells.iter().enumerate() {
        match cell {
            CellSpec::Balance(spec) => {
                balance_values(loaded, cell, spec.gbs, &loaded.expanded.dataset(slot), &mut values)
            }
            CellSpec::Kernels(_) => kernel_values(loaded, cell, &mut values),
            CellSpec::Waves(_) => {}
        }
    }
    let places = loaded.expanded.places.iter().map(|(at, _)| at);
    for at in places.filter(|at| at.workload < loaded.expanded.own_workloads) {
        for metric in &loaded.expanded.found.experiment.plot.metrics {
            wave_values(loaded, resources, at, *metric, &mut values);
        }
    }
    values
}

fn balance_values(loaded: &Loaded, cell: &CellSpec, gbs: u32, dataset: &str, values: &mut Vec<Value>) {
    let seed = loaded.expanded.seed;
    let views = loaded.table(BALANCE_TABLE, cell).and_then(|t| BalanceView::all(t).map_err(|e| e.to_string()));
    let CellSpec::Balance(spec) = cell else { return };
    for metric in &loaded.expanded.found.experiment.plot.metrics {
        for pool in &loaded.expanded.pools {
            for grouping in &loaded.expanded.groupings {
                let mut at = Map::new();
                at.insert("p".into(), json!(pool));
                at.insert("gbs".into(), json!(gbs));
                if *metric == Metric::WaveR {
                    at.insert("dp".into(), json!(spec.dp));
                }
                let estimated = views.as_ref().map_err(Clone::clone).and_then(|views| {
                    let view = views.iter().find(|v| v.pool == *pool && v.grouping == grouping.name());
                    let view = view.ok_or("no samples")?;
                    let samples = if *metric == Metric::WaveR { &view.wave_r } else { &view.r_minus_1 };
                    estimate_mean(samples, seed, metric.name()).map_err(|e| e.to_string())
                });
                values.push(Value {
                    metric: *metric,
                    unit: metric.unit(),
                    dataset: dataset.to_owned(),
                    system: grouping.name().to_owned(),
                    at,
                    estimated,
                    simulated: false,
                });
            }
        }
    }
}

fn kernel_values(loaded: &Loaded, cell: &CellSpec, values: &mut Vec<Value>) {
    let rows = loaded.table(KERNELS_TABLE, cell).and_then(|table| {
        let numbers = |name: &str| table.u32(name).map_err(|e| e.to_string());
        let rates = table.f64("tflop_per_s").map_err(|e| e.to_string())?;
        let passes = table.str("pass").map_err(|e| e.to_string())?;
        let (heads, rows, keys) = (numbers("q_heads")?, numbers("q_rows")?, numbers("k_rows")?);
        Ok((0..table.rows())
            .map(|i| (passes.get(i).unwrap_or_default().to_owned(), heads[i], rows[i], keys[i], rates[i]))
            .collect::<Vec<_>>())
    });
    let Ok(rows) = rows else { return };
    for (pass, heads, q_rows, k_rows, rate) in rows {
        let mut at = Map::new();
        at.insert("pass".into(), json!(pass));
        at.insert("q_heads".into(), json!(heads));
        at.insert("block".into(), json!(q_rows));
        at.insert("keys".into(), json!(k_rows));
        values.push(Value {
            metric: Metric::KernelRate,
            unit: Metric::KernelRate.unit(),
            dataset: "none".into(),
            system: format!("{heads} heads"),
            at,
            estimated: Ok(Estimated::exact(rate, 1)),
            simulated: false,
        });
    }
}

fn coordinates(at: &At, pool: u32) -> Map<String, serde_json::Value> {
    let mut map = Map::new();
    map.insert("dp".into(), json!(at.dp));
    map.insert("cp".into(), json!(at.cp));
    map.insert("p".into(), json!(pool));
    map
}

fn wave_values(loaded: &Loaded, resources: &Resources, at: &At, metric: Metric, values: &mut Vec<Value>) {
    let e = &loaded.expanded.found.experiment;
    let dataset = loaded.expanded.dataset(at.workload);
    let here = loaded.waves(at);
    let pool = here.as_ref().map_or(at.pool.min(at.dp), |(cell, _)| cell.pool());
    let base = coordinates(at, pool);
    let mut push =
        |extra: &[(&str, &str)], metric: Metric, unit: &'static str, estimated: Result<Estimated, String>| {
            let mut at_map = base.clone();
            for (key, value) in extra {
                at_map.insert((*key).to_owned(), json!(value));
            }
            values.push(Value {
                metric,
                unit,
                dataset: dataset.clone(),
                system: at.system.clone(),
                at: at_map,
                estimated,
                simulated: true,
            });
        };
    let seed = loaded.expanded.seed;
    let name = metric.name();
    let view = here.as_ref().map(|(_, view)| *view).map_err(Clone::clone);
    let mean = |of: &dyn Fn(&StepView) -> f64| -> Result<Estimated, String> {
        estimate_mean(&view.clone()?.by_step(of), seed, name).map_err(|e| e.to_string())
    };
    match metric {
        Metric::StragglerMean => {
            for (slot, network) in ["half", "double"].into_iter().enumerate() {
                // Only the first steps are priced at other bandwidths.
                let priced = |s: &StepView| s.waves.iter().all(|w| w.band_ps[slot] > 0.0);
                let latency = |s: &StepView| s.straggler_mean_of(|w| w.band_ps[slot]) * 1e-9;
                let steps =
                    view.as_ref().map(|v| v.steps.iter().filter(|s| priced(s)).map(latency).collect::<Vec<_>>());
                if let Some(steps) = steps.ok().filter(|s| !s.is_empty()) {
                    let estimated = estimate_mean(&steps, seed, name).map_err(|e| e.to_string());
                    push(&[("pass", "both"), ("network", network)], Metric::NetworkBand, "ms", estimated);
                }
            }
            push(&[("pass", "both")], metric, "ms", mean(&|s| s.straggler_mean_ps() * 1e-9));
            push(&[("pass", "forward")], metric, "ms", mean(&|s| s.straggler_mean_of(|w| w.forward_ps) * 1e-9));
            push(&[("pass", "backward")], metric, "ms", mean(&|s| s.straggler_mean_of(|w| w.backward_ps) * 1e-9));
        }
        Metric::StragglerMax => push(&[("pass", "both")], metric, "ms", mean(&|s| s.straggler_max_ps() * 1e-9)),
        Metric::WaveR => push(&[], metric, metric.unit(), mean(&|s| s.wave_r())),
        Metric::NormalisedMean | Metric::Speedup | Metric::SpeedupMax => {
            let reference =
                At { system: e.plot.baseline.clone(), pool: default_pool(loaded, &e.plot.baseline, at), ..at.clone() };
            if reference.system == at.system && metric != Metric::NormalisedMean {
                return;
            }
            let estimated = view.clone().and_then(|ours| {
                let theirs = loaded.waves(&reference)?.1;
                let of = |v: &WavesView| {
                    let n = ours.steps.len().min(theirs.steps.len());
                    let by_step = if metric == Metric::SpeedupMax {
                        v.by_step(StepView::straggler_max_ps)
                    } else {
                        v.by_step(StepView::straggler_mean_ps)
                    };
                    by_step[..n].to_vec()
                };
                let (ours, theirs) = (of(ours), of(theirs));
                let ratio = if metric == Metric::NormalisedMean {
                    estimate_ratio(&ours, &theirs, seed, name)
                } else {
                    estimate_ratio(&theirs, &ours, seed, name)
                };
                ratio.map_err(|e| e.to_string())
            });
            push(&[("base", &e.plot.baseline)], metric, metric.unit(), estimated);
        }
        Metric::HiddenShare => {
            let pieces = here.as_ref().ok().and_then(|(cell, _)| pieces(cell));
            let Some(pieces) = pieces.filter(|p| *p > 1) else { return };
            let estimated = view.and_then(|v| match v.hidden_share(pieces).as_slice() {
                [] => Err(NO_TRANSFERS.into()),
                shares => estimate_mean(shares, seed, name).map_err(|e| e.to_string()),
            });
            push(&[], metric, metric.unit(), estimated);
        }
        Metric::ForwardSpread => {
            for mode in &e.step_model.linear {
                let estimated = loaded
                    .linear(resources, *mode, at)
                    .and_then(|linear| mean(&|s| s.forward_spread(linear.forward_ps)));
                push(&[("linear", linear_name(*mode))], metric, metric.unit(), estimated);
            }
        }
        Metric::Scaling => {
            for mode in &e.step_model.linear {
                for (base, transfers) in [("shared", "charged"), ("shared", "left_out"), ("own", "charged")] {
                    let extra = [("linear", linear_name(*mode)), ("base", base), ("transfers", transfers)];
                    let single = single_rank(loaded, at, base == "shared");
                    let estimated = throughput_ratio(loaded, resources, at, &single, *mode, transfers == "charged");
                    if base == "shared" && transfers == "charged" {
                        let efficiency = estimated.clone().map(|e| e.scaled(1.0 / f64::from(at.dp)));
                        let metric = Metric::ScalingEfficiency;
                        push(&extra, metric, metric.unit(), efficiency);
                    }
                    push(&extra, metric, metric.unit(), estimated);
                }
                let same_ranks = At {
                    system: e.plot.baseline.clone(),
                    pool: default_pool(loaded, &e.plot.baseline, at),
                    ..at.clone()
                };
                if at.system != e.plot.baseline && loaded.expanded.cell_at(&same_ranks).is_some() {
                    let extra =
                        [("linear", linear_name(*mode)), ("base", e.plot.baseline.as_str()), ("transfers", "charged")];
                    let estimated = throughput_ratio(loaded, resources, at, &same_ranks, *mode, true);
                    push(&extra, Metric::ThroughputSpeedup, Metric::ThroughputSpeedup.unit(), estimated);
                }
            }
        }
        Metric::Throughput
        | Metric::Mfu
        | Metric::BubbleShare
        | Metric::GpuHours
        | Metric::PeakMemory
        | Metric::NetworkBand
        | Metric::RMinus1
        | Metric::KernelRate
        | Metric::ScalingEfficiency
        | Metric::ThroughputSpeedup => {
            if let Some(estimated) = training_step(loaded, resources, at, metric) {
                push(&[("linear", "physical")], metric, metric.unit(), estimated);
            }
        }
    }
}

fn default_pool(loaded: &Loaded, system: &str, at: &At) -> u32 {
    let mut places = loaded.expanded.places.iter().map(|(at, _)| at);
    let same = |p: &&At| p.workload == at.workload && p.system == system && p.dp == at.dp && p.cp == at.cp;
    places.find(same).map_or(at.pool, |p| p.pool)
}

fn pieces(cell: &WavesCell) -> Option<u32> {
    let options = serde_json::to_value(&cell.options).ok()?;
    options.get("pieces").and_then(serde_json::Value::as_u64).map(|m| {
        // The planner sees the heads of one tensor-parallel shard.
        m.min(u64::from(cell.shape.q_heads) / u64::from(cell.layout.tp)) as u32
    })
}

/// One data-parallel rank of the baseline (`shared`) or of the same system.
fn single_rank(loaded: &Loaded, at: &At, shared: bool) -> At {
    let baseline = &loaded.expanded.found.experiment.plot.baseline;
    let system = if shared { baseline.clone() } else { at.system.clone() };
    let mut single = At { system, dp: 1, ..at.clone() };
    single.pool = default_pool(loaded, &single.system, &single);
    single
}

/// Throughput at one place over that at another, on the steps that both have, with a wait at every micro-batch.
fn throughput_ratio(
    loaded: &Loaded,
    resources: &Resources,
    at: &At,
    base: &At,
    mode: LinearMode,
    transfers: bool,
) -> Result<Estimated, String> {
    let linear = loaded.linear(resources, mode, at)?.both_ps();
    let (ours, base) = (loaded.waves(at)?.1, loaded.waves(base)?.1);
    let n = ours.steps.len().min(base.steps.len());
    let totals = |v: &WavesView| -> Vec<f64> { v.steps[..n].iter().map(|s| s.total_ps(linear, transfers)).collect() };
    let (ours, base) = (totals(ours), totals(base));
    estimate_sums(&[&base, &ours], loaded.expanded.seed, "scaling", |s| s[0] / s[1]).map_err(|e| e.to_string())
}
