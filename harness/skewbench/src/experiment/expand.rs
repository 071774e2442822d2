use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skewbench_external::{Catalogue, Record};
use skewbench_plan::{AttentionShape, Layout, Scope};
use skewbench_sim::step_model::{LinearMode, Model};
use skewbench_store::CellId;
use skewbench_systems::placements::Grouping;

use super::file::Kind;
use super::points::points;
use super::{Found, Metric, SpreadFile, WorkloadFile};
use crate::cells::{
    BalanceCell, CellSpec, KernelsCell, MachineKey, ReplayKey, Resources, SpreadCell, WavesCell, WorkloadKey,
};
use crate::failure::{Failure, nearest};

/// Pool in the cells of systems that have none.
const DEFAULT_POOL: u32 = 8;

/// How a run changes its experiments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Smoke scale.
    pub quick: bool,
    /// Systems in place of the experiment's.
    pub systems: Vec<String>,
    /// Seed in place of the experiment's.
    pub seed: Option<u64>,
    /// Profile in place of the experiment's.
    pub profile: Option<String>,
    /// The card that launches are timed on, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayKey>,
}

/// Where a cell of simulated waves stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Position in [`Expanded::workloads`].
    pub workload: usize,
    /// System.
    pub system: String,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Sequences of a pool, as asked for.
    pub pool: u32,
}

/// An experiment with everything resolved.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// The file.
    pub found: Found,
    /// Workloads with their context parallelism; those that only the fit needs come last.
    pub workloads: Vec<(WorkloadKey, u32)>,
    /// How many of the workloads are the experiment's own.
    pub own_workloads: usize,
    /// Workload of the cells that the fitted linear work rests on.
    pub fit_workload: Option<usize>,
    /// Systems, in order.
    pub systems: Vec<String>,
    /// Pool sizes of a balance experiment.
    pub pools: Vec<u32>,
    /// Groupings of a balance experiment.
    pub groupings: Vec<Grouping>,
    /// Machine.
    pub machine: Option<MachineKey>,
    /// Model.
    pub model: Model,
    /// Seed.
    pub seed: u64,
    /// Cells, each once, in order.
    pub cells: Vec<CellSpec>,
    /// Where cells of waves stand, beside their position in `cells`.
    pub places: Vec<(At, usize)>,
    /// Places whose options tuning chose, beside the position in `cells` of the same place with the options that it started from.
    pub untuned: Vec<(At, usize)>,
    /// How the run changes the experiment.
    pub scale: Scale,
    /// What names of systems mean.
    pub catalogue: Catalogue,
    /// Points of a sweep of other keys than DP, CP and P, each with its coordinates and resolved like an experiment of its own;
    /// none where nothing else is swept. Their cells are among `cells`, their places are not among `places`.
    pub points: Vec<(Map<String, Value>, Expanded)>,
}

/// Resolves an experiment into cells.
///
/// # Errors
/// The first name that is unknown, file that cannot be used, or layout that cannot be run, with file, key and remedy.
pub fn expand(found: &Found, scale: &Scale, resources: &mut Resources) -> Result<Expanded, Failure> {
    let mut whole = Expanded::empty(found, scale, resources)?;
    if found.experiment.kind == Kind::Waves {
        whole.systems = whole.resolve_systems()?;
    }
    let points = points(found, scale.quick, &whole.systems, &whole.catalogue)?;
    if points.is_empty() {
        return whole.filled(resources);
    }
    if found.experiment.systems.tuned {
        return Err(whole.at_key("systems", "options of a sweep are not tuned; remove `tuned`, or sweep nothing"));
    }
    let mut known = HashSet::new();
    for point in points {
        let there = point.describe();
        // The run's profile takes the place of the file's, not of those that are compared.
        let profile = scale.profile.clone().filter(|_| !point.coordinates.contains_key("profile"));
        let scale = &Scale { profile, ..scale.clone() };
        let part = Expanded::empty(&point.found, scale, resources).and_then(|part| part.filled(resources));
        let part = part.map_err(|f| Failure { message: format!("at {there}: {f}"), ..f })?;
        whole.absorb(point.coordinates, part, &mut known);
    }
    whole.own_workloads = whole.workloads.len();
    Ok(whole)
}

impl Expanded {
    /// An experiment with model and machine and no cells yet.
    fn empty(found: &Found, scale: &Scale, resources: &mut Resources) -> Result<Self, Failure> {
        let e = &found.experiment;
        let mut expanded = Self {
            found: found.clone(),
            workloads: Vec::new(),
            own_workloads: 0,
            fit_workload: None,
            systems: Vec::new(),
            pools: Vec::new(),
            groupings: Vec::new(),
            machine: None,
            model: resources.model(&e.model)?,
            seed: scale.seed.unwrap_or(e.seed),
            cells: Vec::new(),
            places: Vec::new(),
            untuned: Vec::new(),
            scale: scale.clone(),
            catalogue: resources.catalogue().clone(),
            points: Vec::new(),
        };
        if e.steps == 0 || e.quick_steps == 0 {
            let key = if e.steps == 0 { "steps" } else { "quick_steps" };
            return Err(expanded.at_key(key, "0 steps; give at least 1"));
        }
        if e.kind != Kind::Balance {
            let machine = resources.machine(expanded.profile(), &e.machine);
            expanded.machine = Some(machine.map_err(|f| expanded.in_file("profile", f))?);
        }
        Ok(expanded)
    }

    /// The profile that is asked for.
    pub fn profile(&self) -> &str {
        self.scale.profile.as_deref().unwrap_or(&self.found.experiment.profile)
    }

    /// Takes in a point of a sweep, with those of its cells that are not known yet.
    fn absorb(&mut self, coordinates: Map<String, Value>, part: Self, known: &mut HashSet<CellId>) {
        fn extend<T: PartialEq + Clone>(all: &mut Vec<T>, more: &[T]) {
            for one in more {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        }
        extend(&mut self.workloads, &part.workloads);
        extend(&mut self.systems, &part.systems);
        extend(&mut self.pools, &part.pools);
        extend(&mut self.groupings, &part.groupings);
        self.cells.extend(part.cells.iter().filter(|cell| known.insert(Self::id(cell))).cloned());
        self.points.push((coordinates, part));
    }

    /// The experiment with its cells.
    fn filled(self, resources: &mut Resources) -> Result<Self, Failure> {
        let mut expanded = self;
        let e = &expanded.found.clone().experiment;
        for workload in &e.workloads {
            let key = resources.workload(workload).map_err(|f| expanded.in_file("workload", f))?;
            expanded.workloads.push((key, workload.cp.unwrap_or(e.layout.cp)));
        }
        expanded.own_workloads = expanded.workloads.len();
        if matches!(e.kind, Kind::Balance | Kind::Waves) && e.workloads.is_empty() {
            return Err(expanded.at_key("workload", "no workload; add a [[workload]] table with a name"));
        }
        match e.kind {
            Kind::Kernels => {
                if let Some(machine) = expanded.machine.clone() {
                    expanded
                        .cells
                        .push(CellSpec::Kernels(KernelsCell { machine, replay: expanded.replay().map(Box::new) }));
                }
            }
            Kind::Balance => expanded.balance_cells()?,
            Kind::Spread => expanded.spread_cell()?,
            Kind::Waves => expanded.waves_cells(resources)?,
        }
        if e.systems.tuned && e.kind != Kind::Waves {
            return Err(expanded.at_key("systems", "only kind waves has options to tune; remove `tuned`"));
        }
        Ok(expanded)
    }

    fn file(&self) -> String {
        if self.found.id.ends_with(".toml") || std::path::Path::new(&self.found.id).exists() {
            self.found.id.clone()
        } else {
            format!("{}.toml", self.found.id)
        }
    }

    /// An error about a key of the file, with the line it stands on.
    pub(super) fn at_key(&self, key: &str, what: impl std::fmt::Display) -> Failure {
        let line = self.found.text.lines().position(|line| {
            let line = line.trim_start_matches(['[', ' ']);
            line.starts_with(key) && line[key.len()..].trim_start().starts_with(['=', ']'])
        });
        let place = line.map_or_else(|| self.file(), |line| format!("{}:{}", self.file(), line + 1));
        Failure::config(format!("{place}: key `{key}`: {what}"))
    }

    pub(super) fn in_file(&self, key: &str, failure: Failure) -> Failure {
        let Failure { exit, message } = failure;
        Failure { exit, message: self.at_key(key, message).message }
    }

    /// Packed sequences of a step.
    pub fn gbs(&self) -> u32 {
        let e = &self.found.experiment;
        e.quick_gbs.filter(|_| self.scale.quick).unwrap_or(e.gbs)
    }

    /// The card that the experiment's launches are timed on: that of the run, where the experiment shows something that
    /// single waves or kernels tell.
    pub fn replay(&self) -> Option<ReplayKey> {
        let e = &self.found.experiment;
        let shown = match e.kind {
            Kind::Kernels | Kind::Spread => true,
            Kind::Waves => e.plot.metrics.first().is_some_and(|metric| metric.of_single_waves()),
            Kind::Balance => false,
        };
        self.scale.replay.clone().filter(|_| shown)
    }

    fn steps(&self, system: &str) -> u32 {
        let e = &self.found.experiment;
        if self.replay().is_some() && !self.scale.quick {
            // Waves are drawn from the same steps for all systems.
            return e.steps;
        }
        if self.scale.quick { e.quick_steps } else { e.steps_of.get(system).copied().unwrap_or(e.steps) }
    }

    fn spread_cell(&mut self) -> Result<(), Failure> {
        let e = &self.found.experiment;
        let SpreadFile { cards, tokens, step_relative_sd } = e.spread;
        if cards == 0 || tokens == 0 {
            return Err(self.at_key("spread", "0 cards or tokens; give at least 1"));
        }
        if !(0.0..1.0).contains(&step_relative_sd) {
            return Err(self.at_key("step_relative_sd", format!("{step_relative_sd}; give a share from 0 to below 1")));
        }
        let machine = self.machine.clone().ok_or_else(|| Failure::internal("an experiment without a machine"))?;
        let Model { q_heads, kv_heads, head_dim, .. } = self.model;
        self.cells.push(CellSpec::Spread(SpreadCell {
            tokens,
            shape: AttentionShape { q_heads, kv_heads, head_dim },
            cards,
            steps: self.steps(""),
            seed: self.seed,
            machine,
            step_relative_sd,
            replay: self.replay().map(Box::new),
        }));
        Ok(())
    }

    fn balance_cells(&mut self) -> Result<(), Failure> {
        let e = &self.found.experiment;
        let known: Vec<&str> = Grouping::ALL.iter().map(|g| g.name()).collect();
        let mut groupings = Vec::new();
        for name in &e.groupings {
            let grouping = Grouping::ALL.into_iter().find(|g| g.name() == name).ok_or_else(|| {
                let hint = nearest(name, known.iter().copied());
                self.at_key("groupings", format!("unknown grouping {name}{hint}; known: {}", known.join(", ")))
            })?;
            groupings.push(grouping);
        }
        let pools = if e.sweep.pool.is_empty() { vec![8] } else { e.sweep.pool.clone() };
        if let Some(pool) = pools.iter().find(|p| **p == 0 || **p > self.gbs()) {
            return Err(self.at_key("pool", format!("a pool of {pool} sequences; choose 1 to gbs = {}", self.gbs())));
        }
        if groupings.is_empty() {
            return Err(self.at_key("groupings", "no grouping; name at least one"));
        }
        if self.gbs() == 0 || e.layout.dp == 0 {
            return Err(self.at_key("gbs", "gbs and layout.dp must be at least 1"));
        }
        let steps = self.steps("");
        // One cell of all groupings at all powers of two serves every figure on the same steps; making the windows is what costs.
        let mut cell_pools: Vec<u32> = (0..7).map(|i| 1 << i).filter(|p| *p <= self.gbs()).collect();
        cell_pools.extend(pools.iter().copied().filter(|p| !p.is_power_of_two() || *p > 64));
        let standard =
            [Grouping::Random, Grouping::Zigzag, Grouping::ZigzagSwap, Grouping::ZigzagSwapAll, Grouping::Vrsp];
        let mut cell_groupings = standard.to_vec();
        cell_groupings.extend(groupings.iter().copied().filter(|g| !standard.contains(g)));
        self.pools = pools;
        self.groupings = groupings;
        self.cells = self
            .workloads
            .iter()
            .map(|(workload, _)| {
                CellSpec::Balance(BalanceCell {
                    workload: workload.clone(),
                    gbs: self.gbs(),
                    steps,
                    seed: self.seed,
                    pools: cell_pools.clone(),
                    groupings: cell_groupings.clone(),
                    dp: e.layout.dp,
                })
            })
            .collect();
        Ok(())
    }

    fn waves_cells(&mut self, resources: &mut Resources) -> Result<(), Failure> {
        let e = self.found.experiment.clone();
        self.systems = self.resolve_systems()?;
        self.check_tuning()?;
        let sweep = |list: &[u32], one: u32| if list.is_empty() { vec![one] } else { list.to_vec() };
        let dps = sweep(&e.sweep.dp, e.layout.dp);
        let relative =
            e.plot.metrics.iter().any(|m| matches!(m, Metric::NormalisedMean | Metric::Speedup | Metric::SpeedupMax));
        let scaling = e.plot.metrics.contains(&Metric::Scaling);
        for workload in 0..self.own_workloads {
            for cp in sweep(&e.sweep.cp, self.workloads[workload].1) {
                for dp in &dps {
                    if relative {
                        self.add(workload, &e.plot.baseline, *dp, cp, None)?;
                    }
                    for system in self.systems.clone() {
                        if e.sweep.pool.is_empty() {
                            self.add(workload, &system, *dp, cp, None)?;
                        }
                        for pool in &e.sweep.pool {
                            self.add(workload, &system, *dp, cp, Some(*pool))?;
                        }
                        if scaling {
                            self.add(workload, &system, 1, cp, None)?;
                        }
                    }
                }
                if scaling {
                    self.add(workload, &e.plot.baseline, 1, cp, None)?;
                }
            }
        }
        if self.needs_fit() {
            self.add_fit(resources)?;
        }
        Ok(())
    }

    /// Points of a sweep with their coordinates; the experiment itself where it sweeps nothing beside DP, CP and P.
    pub fn parts(&self) -> impl Iterator<Item = (Option<&Map<String, Value>>, &Self)> {
        let alone = self.points.is_empty().then_some((None, self));
        alone.into_iter().chain(self.points.iter().map(|(at, part)| (Some(at), part)))
    }

    /// What a run must remember of the programs that its systems are made of, each once.
    pub fn externals(&self) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        for (at, _) in self.parts().flat_map(|(_, part)| &part.places) {
            let missing = self.catalogue.records(&at.system).into_iter();
            let missing: Vec<Record> = missing.filter(|r| !records.iter().any(|k| k.name == r.name)).collect();
            records.extend(missing);
        }
        records
    }

    /// True when some metric needs the fitted linear time.
    pub fn needs_fit(&self) -> bool {
        let e = &self.found.experiment;
        let linear = e.plot.metrics.iter().any(|m| matches!(m, Metric::Scaling | Metric::ForwardSpread));
        linear && e.step_model.linear.contains(&LinearMode::Fitted)
    }

    fn add_fit(&mut self, resources: &mut Resources) -> Result<(), Failure> {
        let fit = self.found.experiment.step_model.fitted.clone();
        let file = WorkloadFile { name: fit.workload.clone(), window_tokens: None, packing: None, cp: Some(fit.cp) };
        let key = resources.workload(&file).map_err(|f| self.in_file("fitted", f))?;
        let slot = self.workloads.iter().position(|(w, cp)| *w == key && *cp == fit.cp).unwrap_or_else(|| {
            self.workloads.push((key, fit.cp));
            self.workloads.len() - 1
        });
        self.fit_workload = Some(slot);
        for dp in [1, fit.dp] {
            self.add(slot, &fit.system, dp, fit.cp, None)?;
        }
        Ok(())
    }

    fn add(&mut self, workload: usize, system: &str, dp: u32, cp: u32, pool: Option<u32>) -> Result<(), Failure> {
        let mut options = self.found.experiment.options.get(system).cloned().unwrap_or_default();
        let untuned = options.clone();
        let tuned = self.tuned(workload, system).map(|t| t.options.clone());
        if let Some(tuned) = &tuned {
            let specs = self.catalogue.describe(system).map(|d| d.options).unwrap_or_default();
            for spec in
                specs.iter().filter(|s| tuned.contains_key(s.name) || s.alias.is_some_and(|a| tuned.contains_key(a)))
            {
                options.remove(spec.name);
                spec.alias.map(|alias| options.remove(alias));
            }
            options.extend(tuned.clone());
        }
        let (at, cell) = self.place(workload, system, dp, cp, pool, options)?;
        if self.places.iter().any(|(other, _)| *other == at) {
            return Ok(());
        }
        let slot = self.slot(cell);
        self.places.push((at.clone(), slot));
        if tuned.is_some() {
            let (_, cell) = self.place(workload, system, dp, cp, pool, untuned)?;
            let slot = self.slot(cell);
            self.untuned.push((at, slot));
        }
        Ok(())
    }

    /// Position of a cell among the cells, once it is there.
    fn slot(&mut self, cell: CellSpec) -> usize {
        self.cells.iter().position(|c| *c == cell).unwrap_or_else(|| {
            self.cells.push(cell);
            self.cells.len() - 1
        })
    }

    fn place(
        &self,
        workload: usize,
        system: &str,
        dp: u32,
        cp: u32,
        pool: Option<u32>,
        mut options: Map<String, Value>,
    ) -> Result<(At, CellSpec), Failure> {
        let e = &self.found.experiment;
        if let Some(pool) = pool {
            options.insert("pool".into(), pool.into());
        }
        let make = |options: &Map<String, Value>| {
            self.catalogue.system(system, options, self.seed).map_err(|error| self.at_key("options", error))
        };
        // A pool is cut to the data-parallel ranks; asked for beyond them, or of a system that has none, it is the same cell.
        let asked = make(&options)?;
        let pool = asked.pool().min(dp.max(1));
        let pooled = asked.planner().scope() == Scope::Pool || asked.placement().pooled();
        let alone = asked.planner().scope() == Scope::Sequence;
        options.remove("P");
        options.insert("pool".into(), if pooled { pool } else { DEFAULT_POOL.min(dp.max(1)) }.into());
        let built = make(&options)?;
        let layout = Layout {
            dp,
            cp,
            pp: e.layout.pp,
            tp: e.layout.tp,
            cards_per_node: e.layout.cards_per_node,
            dp_before_cp: e.layout.dp_before_cp,
        };
        let key = self.workloads[workload].0.clone();
        let (q_heads, kv_heads, head_dim) = (self.model.q_heads, self.model.kv_heads, self.model.head_dim);
        layout
            .validate(u32::from(q_heads), u32::from(kv_heads), self.gbs(), key.window_tokens)
            .map_err(|error| self.at_key("layout", error))?;
        if layout.pp > self.model.layers {
            let what = format!(
                "pp = {} is above the {} layers of the model; choose at most that",
                layout.pp, self.model.layers
            );
            return Err(self.at_key("layout", what));
        }
        if e.memory_limit_bytes.is_some() && !e.check {
            return Err(self.at_key("memory_limit_bytes", "the checker enforces it; leave check on"));
        }
        let shape = AttentionShape { q_heads, kv_heads, head_dim };
        let machine = self.machine.clone().ok_or_else(|| Failure::internal("an experiment without a machine"))?;
        let at = At { workload, system: system.to_owned(), dp, cp, pool };
        let cell = CellSpec::Waves(WavesCell {
            workload: key,
            gbs: self.gbs(),
            steps: self.steps(system),
            seed: self.seed,
            system: system.to_owned(),
            external: self.catalogue.keys(system),
            options: built.options().clone(),
            layout,
            shape,
            machine,
            check: e.check,
            memory_limit_bytes: e.memory_limit_bytes,
            // The groups of single sequences are the same at any DP: they are simulated once for all of them.
            band: e.bandwidth_band && (dp == e.layout.dp || alone) && self.replay().is_none(),
            transfers_alone: e.plot.metrics.contains(&Metric::HiddenShare) || e.bandwidth_band && dp == e.layout.dp,
            replay: self.replay().map(Box::new),
        });
        Ok((at, cell))
    }

    /// Label of a workload; one that stands in the experiment several times is told apart by window and packing.
    pub fn dataset(&self, workload: usize) -> String {
        let key = &self.workloads[workload].0;
        let own = &self.workloads[..self.own_workloads];
        if own.iter().filter(|(w, _)| w.name == key.name).count() > 1 {
            format!("{} ({} tokens, {})", key.name, key.window_tokens, key.packing)
        } else {
            key.name.clone()
        }
    }

    /// The cell of waves at a place, if it was planned.
    pub fn cell_at(&self, at: &At) -> Option<&CellSpec> {
        self.places.iter().find(|(other, _)| other == at).map(|(_, slot)| &self.cells[*slot])
    }

    /// Id of a cell.
    pub fn id(cell: &CellSpec) -> CellId {
        CellId::of(&cell.inputs())
    }
}
