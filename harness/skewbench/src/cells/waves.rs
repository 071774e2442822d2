use std::sync::Arc;

use skewbench_plan::check::Limits;
use skewbench_plan::{AttentionShape, Domain, PackedSequence, Pass, PlaceContext, PlacedStep, Placer, Scope};
use skewbench_sim::profile::{Bandwidth, Network};
use skewbench_sim::{Machine, Overrides, Pricing, Runs, WaveTimes, simulate_networks};
use skewbench_systems::registry::{self, System};

use super::clock::{Clock, Phase};
use super::in_order::in_order;
use super::memo::{Asked, Memo};
use super::prepare::{Prepared, nodes, prepare_outline};
use super::samples::{RankRow, StepRow, WaveRow, rank_table, step_table};
use super::steps::step_seed;
use super::timeline::{TIMELINE_TABLE, slowest};
use super::{CellTables, Computed, RANKS_TABLE, Resources, STEPS_TABLE, StepSource, WAVES_TABLE, WaveRows, WavesCell};
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// What one domain of ranks did in one wave.
#[derive(Clone, Debug, Default)]
pub(super) struct DomainRun {
    /// One row a sequence of the domain; step, wave, pool and rank are left for the caller.
    pub(super) rows: Vec<WaveRow>,
    /// One row a rank.
    pub(super) ranks: Vec<RankRow>,
}

/// Steps whose programs are also priced at other bandwidths, where a cell asks for it.
const BAND_STEPS: u32 = 20;

/// The machines that a cell prices its programs on.
struct Machines {
    nominal: Arc<Pricing>,
    /// Half and double the bandwidth between nodes, where the cell asks for the band.
    band: Option<[Network; 2]>,
}

/// A cell made ready to run.
pub(super) struct Bench<'a> {
    pub(super) cell: &'a WavesCell,
    pub(super) system: System,
    machines: Machines,
    /// Time of every card over the nominal time; empty when all are nominal.
    time_factors: Vec<f64>,
    memo: &'a Memo,
    /// Everything but documents and nodes that a domain's run depends on.
    memo_base: blake3::Hasher,
    /// What cells with the same domains ask for.
    expected: Asked,
    pub(super) clock: Clock,
}

/// A wave's domain, planned, with the cards that it runs on.
pub(super) struct OnCards {
    pub(super) made: Prepared,
    pub(super) machine: Machine,
}

pub(super) fn compute(cell: &WavesCell, resources: &Resources) -> Result<Computed, Failure> {
    let bench = Bench::new(cell, resources)?;
    let source = resources.steps(&cell.workload, cell.gbs, cell.seed)?;
    let alone = |i: u32| bench.place(&source, &mut *bench.system.placement().placer(), i);
    // Cells whose transfers are looked into are those that reports show over time.
    let shown = cell.transfers_alone;
    let (rows, first): (Vec<StepRows>, _) = if bench.system.placement().stateful() {
        let placed = bench.place_all(&source)?;
        let rows = in_order(placed.len(), |i| bench.step(i as u32, placed[i].0, &placed[i].1))?;
        (rows, placed.into_iter().next())
    } else {
        let rows = in_order(cell.steps as usize, |i| {
            let (delivered, placed) = alone(i as u32)?;
            bench.step(i as u32, delivered, &placed)
        })?;
        (rows, shown.then(|| alone(0)).transpose()?)
    };
    let first = first.zip(rows.first().map(slowest)).filter(|_| shown);
    let mut tables = tables(rows)?;
    if let Some(((_, placed), wave)) = first {
        tables.push((TIMELINE_TABLE, bench.timeline(&placed, wave)?));
    }
    Ok(Computed { tables, timings: bench.clock.timings() })
}

/// What a cell knows of one step.
#[derive(Default)]
pub(super) struct StepRows {
    pub(super) step: StepRow,
    pub(super) rows: Vec<WaveRow>,
    pub(super) ranks: Vec<RankRow>,
}

impl StepRows {
    /// Adds what the domain that starts at data-parallel rank `first` did in a wave, its ranks where CP is given.
    pub(super) fn add(
        &mut self,
        step: u32,
        wave: u32,
        placed: &PlacedStep,
        first: u32,
        run: &DomainRun,
        ranks_of_cp: Option<u32>,
    ) {
        for (offset, row) in run.rows.iter().enumerate() {
            let dp_rank = first + offset as u32;
            let pool = placed.pools.iter().position(|p| p.contains(&dp_rank)).unwrap_or(0);
            self.rows.push(WaveRow { step, wave, pool: pool as u32, dp_rank, ..*row });
        }
        if let Some(cp) = ranks_of_cp {
            self.ranks.extend(run.ranks.iter().map(|r| RankRow { wave, rank: first * cp + r.rank, ..*r }));
        }
    }
}

/// Tables of steps in order; ranks are those of the first.
pub(super) fn tables(rows: Vec<StepRows>) -> Result<CellTables, Failure> {
    let ranks = rows.first().map(|r| r.ranks.clone()).unwrap_or_default();
    let steps: Vec<StepRow> = rows.iter().map(|r| r.step).collect();
    let waves = WaveRows(rows.into_iter().flat_map(|r| r.rows).collect());
    Ok(vec![
        (WAVES_TABLE, waves.table().map_err(Failure::internal)?),
        (STEPS_TABLE, step_table(&steps).map_err(Failure::internal)?),
        (RANKS_TABLE, rank_table(&ranks).map_err(Failure::internal)?),
    ])
}

impl<'a> Bench<'a> {
    pub(super) fn new(cell: &'a WavesCell, resources: &'a Resources) -> Result<Self, Failure> {
        let (system, memo_base) = system(cell, resources)?;
        let nominal = resources.pricing(&cell.machine)?.clone();
        let expected = resources.memo.expected(&family(cell, &system, &memo_base));
        let band = (cell.band || expected.band).then(|| band(&nominal)).transpose()?;
        let profile = nominal.profile();
        let cards = (cell.layout.cards() / u64::from(cell.layout.pp)) as usize;
        let time_factors =
            if profile.card_speed.relative_sd > 0.0 { profile.card_time_factors(cards, cell.seed) } else { Vec::new() };
        Ok(Self {
            cell,
            system,
            machines: Machines { nominal, band },
            time_factors,
            memo: &resources.memo,
            memo_base,
            expected,
            clock: Clock::default(),
        })
    }

    /// Tokens that the data loader delivers in a step, and the step as the placement runs it.
    pub(super) fn place(
        &self,
        source: &StepSource,
        placer: &mut dyn Placer,
        index: u32,
    ) -> Result<(u64, PlacedStep), Failure> {
        let per_chunk = source.steps_per_chunk();
        let chunk = source.chunk(u64::from(index / per_chunk));
        let step = chunk.get((index % per_chunk) as usize);
        let step = step.ok_or_else(|| Failure::internal("a chunk without its steps"))?;
        let placed = self.clock.time(Phase::Place, || placer.place(step, &self.context(step.index)));
        Ok((step.tokens(), placed.map_err(Failure::config)?))
    }

    /// All steps, placed in order by one placer, and the steps after the end of the data.
    pub(super) fn place_all(&self, source: &StepSource) -> Result<Vec<(u64, PlacedStep)>, Failure> {
        let mut placer = self.system.placement().placer();
        let mut placed =
            (0..self.cell.steps).map(|i| self.place(source, &mut *placer, i)).collect::<Result<Vec<_>, Failure>>()?;
        let context = self.context(u64::from(self.cell.steps));
        placed.extend(placer.finish(&context).map_err(Failure::config)?.into_iter().map(|step| (0, step)));
        Ok(placed)
    }

    fn context(&self, step: u64) -> PlaceContext<'_> {
        PlaceContext {
            layout: self.cell.layout,
            pool: self.system.pool(),
            seed: step_seed(self.cell.seed, step),
            shape: self.shape(),
            cost: &*self.machines.nominal,
        }
    }

    /// Heads of one tensor-parallel shard.
    fn shape(&self) -> AttentionShape {
        AttentionShape {
            q_heads: self.cell.shape.q_heads / self.cell.layout.tp as u16,
            kv_heads: self.cell.shape.kv_heads / self.cell.layout.tp as u16,
            ..self.cell.shape
        }
    }

    fn step(&self, index: u32, delivered: u64, placed: &PlacedStep) -> Result<StepRows, Failure> {
        let step = StepRow::of(index, index >= self.cell.steps, delivered, placed);
        let mut out = StepRows { step, ..StepRows::default() };
        let dp = self.cell.layout.dp;
        let domains = placed.domains(self.system.planner().scope(), dp);
        let tasks: Vec<(usize, &std::ops::Range<u32>)> =
            (0..placed.waves.len()).flat_map(|wave| domains.iter().map(move |domain| (wave, domain))).collect();
        let runs: Vec<Arc<DomainRun>> = in_order(tasks.len(), |task| {
            check_interrupted()?;
            let (wave, domain) = &tasks[task];
            let members = &placed.waves[*wave].sequences[domain.start as usize..domain.end as usize];
            let sequences: Vec<&PackedSequence> = members.iter().map(|s| &placed.sequences[*s as usize]).collect();
            self.domain(domain.start, &sequences, index).map_err(|f| Failure {
                message: format!("step {index}, wave {wave}, dp ranks {}..{}: {f}", domain.start, domain.end),
                ..f
            })
        })?;
        for ((wave, domain), run) in tasks.into_iter().zip(runs) {
            out.add(index, wave as u32, placed, domain.start, &run, (index == 0).then_some(self.cell.layout.cp));
        }
        Ok(out)
    }

    fn domain(&self, first: u32, sequences: &[&PackedSequence], step: u32) -> Result<Arc<DomainRun>, Failure> {
        // Steps that depend on others are only comparable as a whole.
        let early = step < BAND_STEPS || self.system.placement().stateful();
        let asked = Asked {
            transfers: self.runs(sequences.len()).transfers_only,
            band: early && self.cell.band,
            ranks: step == 0,
        };
        let nodes = nodes(&self.cell.layout, first, sequences.len() as u32);
        if !self.time_factors.is_empty() {
            return Ok(Arc::new(self.run(first, sequences, nodes, asked)?));
        }
        let mut hasher = self.memo_base.clone();
        for node in &nodes {
            hasher.update(&node.to_le_bytes());
        }
        for sequence in sequences {
            hasher.update(&(sequence.documents().len() as u64).to_le_bytes());
            for length in sequence.documents() {
                hasher.update(&length.to_le_bytes());
            }
        }
        let key = *hasher.finalize().as_bytes();
        if let Some(run) = self.memo.get(&key, asked) {
            return Ok(run);
        }
        let alike = sequences.len() == members(self.cell, &self.system) as usize;
        let expected = self.expected.filter(alike);
        let made = asked.with(Asked { band: early && expected.band, ..expected });
        let run = self.run(first, sequences, nodes, made)?;
        Ok(self.memo.put(key, run, made, asked))
    }

    /// Time factors of the cards of the ranks of a domain that starts at data-parallel rank `first`: of a tensor-parallel
    /// group its slowest card's.
    fn factors(&self, first: u32, ranks: usize) -> Vec<f64> {
        let tp = self.cell.layout.tp as usize;
        let cards = self.time_factors.chunks(tp.max(1)).skip((first * self.cell.layout.cp) as usize);
        cards.take(ranks).map(|group| group.iter().copied().fold(0.0, f64::max)).collect()
    }

    /// Plans a domain that starts at data-parallel rank `first`.
    pub(super) fn on_cards(
        &self,
        first: u32,
        sequences: &[&PackedSequence],
        nodes: Vec<u32>,
    ) -> Result<OnCards, Failure> {
        let factors = self.factors(first, nodes.len());
        let domain = Domain {
            sequences,
            cp: self.cell.layout.cp,
            shape: self.shape(),
            nodes: &nodes,
            cost: &*self.machines.nominal,
            time_factors: &factors,
        };
        let limits = Limits { memory_bytes: self.cell.memory_limit_bytes };
        let made = prepare_outline(&self.system, &domain, self.cell.check, &limits, &self.clock)?;
        let machine = Machine {
            cards_per_node: self.cell.layout.cards_per_node,
            time_factors: factors,
            ..Machine::new(self.machines.nominal.clone(), nodes)
        };
        Ok(OnCards { made, machine })
    }

    /// What is simulated of a domain of so many sequences beside the wave itself.
    pub(super) fn runs(&self, sequences: usize) -> Runs {
        // Small domains are shared by cells that ask for it and cells that do not.
        Runs { transfers_only: self.cell.transfers_alone || sequences == 1, ..Runs::ALL }
    }

    fn run(
        &self,
        first: u32,
        sequences: &[&PackedSequence],
        nodes: Vec<u32>,
        asked: Asked,
    ) -> Result<DomainRun, Failure> {
        let OnCards { made, machine } = self.on_cards(first, sequences, nodes)?;
        let runs = Runs { transfers_only: asked.transfers, ..Runs::ALL };
        let networks = self.machines.band.as_ref().filter(|_| asked.band).map_or(&[][..], |band| band.as_slice());
        let simulated = self.clock.time(Phase::Simulate, || simulate_networks(&made.program, &machine, runs, networks));
        let (times, on_others) = simulated.map_err(Failure::internal)?;
        let band = match on_others[..] {
            [half, double] => [half, double],
            _ => [0, 0],
        };
        Ok(self.collect(sequences, &made, &times, band))
    }

    pub(super) fn collect(
        &self,
        sequences: &[&PackedSequence],
        made: &Prepared,
        times: &WaveTimes,
        band: [u64; 2],
    ) -> DomainRun {
        let cp = self.cell.layout.cp as usize;
        let group = |values: &[u64], s: usize| values.iter().skip(s * cp).take(cp).copied().max().unwrap_or(0);
        let both = |s: usize, of: &dyn Fn(&skewbench_sim::PassTimes) -> &Vec<u64>| {
            let sums: Vec<u64> =
                of(&times.forward).iter().zip(of(&times.backward)).map(|(f, b)| f.saturating_add(*b)).collect();
            group(&sums, s)
        };
        let load = made.plan.load(Pass::Forward);
        let accounting = made.plan.accounting;
        let rows = sequences
            .iter()
            .enumerate()
            .map(|(s, sequence)| WaveRow {
                pairs: sequence.pairs(),
                tokens: sequence.tokens(),
                forward_ps: times.forward.wave_ps,
                backward_ps: times.backward.wave_ps,
                forward_compute_ps: times.forward.compute_only_ps.unwrap_or(0),
                backward_compute_ps: times.backward.compute_only_ps.unwrap_or(0),
                forward_transfer_ps: times.forward.transfers_only_ps.unwrap_or(0),
                backward_transfer_ps: times.backward.transfers_only_ps.unwrap_or(0),
                half_network_ps: band[0],
                double_network_ps: band[1],
                sent_intra_bytes: both(s, &|p| &p.intra_bytes),
                sent_inter_bytes: both(s, &|p| &p.inter_bytes),
                idle_ranks: accounting.idle_ranks,
                replicated_kv_heads: accounting.replicated_kv_heads,
                padding_tokens: accounting.padding_tokens,
                max_load_pairs: load.iter().copied().max().unwrap_or(0),
                mean_load_pairs: load.iter().sum::<u64>() / load.len().max(1) as u64,
                largest_tile_pairs: accounting.largest_tile,
                peak_bytes: group(&made.peak_bytes, s),
                ..WaveRow::default()
            })
            .collect();
        let ranks = (0..times.forward.rank_end_ps.len())
            .map(|r| RankRow {
                wave: 0,
                rank: r as u32,
                forward_ps: times.forward.rank_end_ps[r],
                backward_ps: times.backward.rank_end_ps[r],
                launches_ps: times.forward.launch_ps[r].saturating_add(times.backward.launch_ps[r]),
                load_pairs: load[r],
                sent_bytes: [&times.forward, &times.backward]
                    .iter()
                    .map(|p| p.intra_bytes[r].saturating_add(p.inter_bytes[r]))
                    .fold(0, u64::saturating_add),
            })
            .collect();
        DomainRun { rows, ranks }
    }
}

/// The system of a cell, and all but documents and nodes that the run of one of its domains depends on.
fn system(cell: &WavesCell, resources: &Resources) -> Result<(System, blake3::Hasher), Failure> {
    let options = match serde_json::to_value(&cell.options) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let system = resources.catalogue().system(&cell.system, &options, cell.seed).map_err(Failure::config)?;
    let planner = system.planner().name();
    let specs = registry::PLANNERS.iter().find(|p| p.name == planner).map_or(&[][..], |p| p.options);
    let planner_options: Vec<_> = specs.iter().map(|s| (s.name, options.get(s.name))).collect();
    let mut base = blake3::Hasher::new();
    // The planner's name and options stand for the plan; placement options cannot change what given sequences take.
    base.update(
        serde_json::to_string(&(
            planner,
            planner_options,
            &cell.layout.cp,
            &cell.layout.tp,
            &cell.layout.cards_per_node,
            &cell.shape,
            &cell.machine,
            cell.check,
            cell.memory_limit_bytes,
        ))
        .map_err(Failure::internal)?
        .as_bytes(),
    );
    if !cell.external.is_empty() {
        // A program may use all that it is sent.
        let sent = serde_json::to_string(&(&cell.external, &cell.options, cell.seed)).map_err(Failure::internal)?;
        base.update(sent.as_bytes());
    }
    Ok((system, base))
}

/// Sequences of a whole domain.
fn members(cell: &WavesCell, system: &System) -> u32 {
    match system.planner().scope() {
        Scope::Sequence => 1,
        Scope::Pool => system.pool().min(cell.layout.dp),
        Scope::Wave => cell.layout.dp,
    }
}

/// Cells of one family mostly run the same domains: those of equal size, of the same workload.
fn family(cell: &WavesCell, system: &System, base: &blake3::Hasher) -> [u8; 32] {
    let mut hasher = base.clone();
    for number in [u64::from(members(cell, system)), u64::from(cell.gbs), cell.seed] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(cell.workload.fingerprint.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Notes what a cell that is going to be computed asks of its domains, so that cells which share them and ask for less
/// need not wait for it.
pub(super) fn expect(cell: &WavesCell, resources: &Resources) {
    // What a program plans is no other cell's, and what is timed is not remembered.
    if !cell.external.is_empty() || cell.replay.is_some() {
        return;
    }
    // A system that cannot be made fails in its turn.
    if let Ok((system, base)) = system(cell, resources) {
        let asked = Asked { transfers: cell.transfers_alone, band: cell.band, ranks: false };
        resources.memo.expect(family(cell, &system, &base), asked);
    }
}

/// Half and double the bandwidth between nodes.
fn band(nominal: &Pricing) -> Result<[Network; 2], Failure> {
    let bytes = nominal.profile().network.bandwidth.bytes_per_s();
    let scaled = |factor: f64| {
        let overrides =
            Overrides { network_bandwidth: Some(Bandwidth::from_bytes_per_s(bytes * factor)), ..Overrides::default() };
        let profile = overrides.apply(nominal.profile(), "half and double bandwidth").map_err(Failure::config)?;
        Ok::<_, Failure>(profile.network)
    };
    Ok([scaled(0.5)?, scaled(2.0)?])
}
