use std::collections::BTreeMap;
use std::sync::Arc;

use skewbench_exec::{InstrId, InstrKind};
use skewbench_plan::{PackedSequence, Pass, PlacedStep};
use skewbench_sim::{Launch, WaveTimes, simulate, simulate_launches};
use skewbench_store::stats::quantile;
use skewbench_store::{Column, Table};

use super::clock::Phase;
use super::in_order::in_order;
use super::prepare::nodes;
use super::samples::StepRow;
use super::waves::{Bench, DomainRun, OnCards, StepRows, tables};
use super::{CellSpec, Computed, Resources, WavesCell};
use crate::failure::Failure;
use crate::replay::{Chosen, DrawnWave, Effort, Samples, Session, Shape, choose};
use crate::scheduler::check_interrupted;

/// One row a sample of a launch of a timed rank.
pub const LAUNCHES_TABLE: &str = "launches";
/// One row a replayed wave.
pub const REPLAYED_TABLE: &str = "replayed";

/// A cell whose steps are placed.
pub struct Placed<'a> {
    bench: Bench<'a>,
    steps: Vec<(u64, PlacedStep)>,
}

/// What a wave is predicted to need.
pub struct Predicted {
    /// Ranks to time, by effort.
    pub choices: Vec<Vec<Chosen>>,
    /// Launches of every rank that some effort times, of both passes.
    pub launches: BTreeMap<usize, Vec<Shape>>,
}

/// A domain of a wave with its predicted times.
struct Domain {
    first: u32,
    sequences: usize,
    cards: OnCards,
    predicted: WaveTimes,
}

/// One launch of a domain.
struct Call {
    rank: u32,
    at: (Pass, InstrId),
    shape: Shape,
}

impl<'a> Placed<'a> {
    /// Places all steps of a cell.
    ///
    /// # Errors
    /// What keeps the system from placing one.
    pub fn new(cell: &'a WavesCell, resources: &'a Resources) -> Result<Self, Failure> {
        let bench = Bench::new(cell, resources)?;
        let source = resources.steps(&cell.workload, cell.gbs, cell.seed)?;
        let steps = bench.place_all(&source)?;
        Ok(Self { bench, steps })
    }

    /// True when steps depend on those before them.
    pub fn stateful(&self) -> bool {
        self.bench.system.placement().stateful()
    }

    /// Waves of a step.
    pub fn waves_of(&self, step: u32) -> u32 {
        self.steps.get(step as usize).map_or(0, |(_, placed)| placed.waves.len() as u32)
    }

    /// Plans a wave, and chooses the ranks to time at every effort.
    ///
    /// # Errors
    /// What keeps the system from planning it.
    pub fn predict(&self, step: u32, wave: u32, efforts: &[Effort]) -> Result<Predicted, Failure> {
        let domains = self.domains(step, wave)?;
        let ends: Vec<u64> = domains.iter().flat_map(|d| ends(&d.predicted)).collect();
        let seed = super::step_seed(self.bench.cell.seed, (u64::from(step) << 16) + u64::from(wave));
        let choices: Vec<Vec<Chosen>> = efforts.iter().map(|effort| choose(&ends, *effort, seed)).collect();
        let mut launches: BTreeMap<usize, Vec<Shape>> =
            choices.iter().flatten().map(|chosen| (chosen.rank, Vec::new())).collect();
        for domain in &domains {
            let first = domain.first * self.bench.cell.layout.cp;
            for call in calls(domain) {
                if let Some(shapes) = launches.get_mut(&((first + call.rank) as usize)) {
                    shapes.push(call.shape);
                }
            }
        }
        Ok(Predicted { choices, launches })
    }

    fn domains(&self, step: u32, wave: u32) -> Result<Vec<Domain>, Failure> {
        let (_, placed) =
            self.steps.get(step as usize).ok_or_else(|| Failure::internal("a step that was not placed"))?;
        let members = placed.waves.get(wave as usize).ok_or_else(|| Failure::internal("a wave that the step lacks"))?;
        let layout = &self.bench.cell.layout;
        let ranges = placed.domains(self.bench.system.planner().scope(), layout.dp);
        in_order(ranges.len(), |i| {
            check_interrupted()?;
            let range = &ranges[i];
            let sequences = sequences(placed, &members.sequences[range.start as usize..range.end as usize]);
            let planned = || {
                let nodes = nodes(layout, range.start, sequences.len() as u32);
                let cards = self.bench.on_cards(range.start, &sequences, nodes)?;
                let runs = skewbench_sim::Runs::default();
                let simulated = self
                    .bench
                    .clock
                    .time(Phase::Simulate, || simulate(&cards.made.program, &cards.machine, runs))
                    .map_err(Failure::internal)?;
                Ok(Domain { first: range.start, sequences: sequences.len(), cards, predicted: simulated })
            };
            planned().map_err(|f: Failure| Failure {
                message: format!("step {step}, wave {wave}, dp ranks {}..{}: {f}", range.start, range.end),
                ..f
            })
        })
    }

    /// Simulates a wave with the times that were taken.
    fn replay(&self, drawn: &DrawnWave, session: &Session) -> Result<Replay, Failure> {
        let domains = self.domains(drawn.step, drawn.wave)?;
        let cp = self.bench.cell.layout.cp;
        let listed: Vec<Vec<Call>> = domains.iter().map(calls).collect();
        let mut ranks = RankTimes::default();
        let mut rows = Vec::new();
        let mut times: Vec<BTreeMap<(u32, u32, InstrId), u64>> = vec![BTreeMap::new(); domains.len()];
        for ((domain, calls), times) in domains.iter().zip(&listed).zip(&mut times) {
            let pricing = &domain.cards.machine.pricing;
            for call in calls {
                let rank = (domain.first * cp + call.rank) as usize;
                let chosen = drawn.chosen.iter().find(|c| c.rank == rank);
                ranks.launches += 1;
                let Some(measured) = session.timed(&call.shape) else { continue };
                let samples = match measured.samples {
                    Ok(samples) => samples,
                    Err(_) if chosen.is_none() => continue,
                    Err(why) => {
                        let [q, k, _] = call.shape.totals();
                        return Err(Failure::config(format!(
                            "step {}, wave {}, rank {rank}: {} {} launch of {} tiles, {q} rows, {k} keys, {}:{} heads: {why}",
                            drawn.step,
                            drawn.wave,
                            call.shape.pass_name(),
                            call.shape.mask_name(),
                            call.shape.tiles.len(),
                            call.shape.q_heads,
                            call.shape.kv_heads,
                        )));
                    }
                };
                ranks.known += 1;
                let median = samples.median_ns();
                let (pass, id) = call.at;
                times.insert((pass as u32, call.rank, id), (median * 1e3 + 0.5) as u64);
                let Some(chosen) = chosen else { continue };
                let predicted_ns = skewbench_plan::Cost::launch_ps(&**pricing, &call.shape.launch()) as f64 * 1e-3;
                ranks.add(*chosen, pass, median, predicted_ns);
                rows.push(LaunchRow {
                    drawn: (drawn.step, drawn.wave),
                    chosen: *chosen,
                    number: measured.number,
                    shape: call.shape.clone(),
                    predicted_ns,
                    samples,
                });
            }
        }
        let ratio = ranks.medians();
        let runs = |domain: &Domain| self.bench.runs(domain.sequences);
        let simulated: Vec<WaveTimes> = domains
            .iter()
            .zip(&times)
            .map(|(domain, times)| {
                let time = |launch: Launch| {
                    let known = times.get(&(launch.pass as u32, launch.rank, launch.id));
                    known.copied().unwrap_or((launch.price_ps as f64 * ratio[launch.pass as usize]) as u64)
                };
                let (program, machine) = (&domain.cards.made.program, &domain.cards.machine);
                let clock = &self.bench.clock;
                clock.time(Phase::Simulate, || simulate_launches(program, machine, runs(domain), &time))
            })
            .collect::<Result<_, _>>()
            .map_err(Failure::internal)?;
        let replayed = ranks.judge(drawn, &domains, &simulated, ratio);
        let (_, placed) = &self.steps[drawn.step as usize];
        let members = &placed.waves[drawn.wave as usize].sequences;
        let runs = domains
            .iter()
            .zip(&simulated)
            .map(|(domain, times)| {
                let range = domain.first as usize..domain.first as usize + domain.sequences;
                let sequences = sequences(placed, &members[range]);
                (domain.first, self.bench.collect(&sequences, &domain.cards.made, times, [0, 0]))
            })
            .collect();
        Ok(Replay { runs, rows, replayed })
    }
}

pub(super) fn compute(spec: &CellSpec, cell: &WavesCell, resources: &Resources) -> Result<Computed, Failure> {
    let session = resources.replay();
    let drawn = session.drawn(spec)?;
    let placed = Placed::new(cell, resources)?;
    let replays = in_order(drawn.len(), |i| placed.replay(&drawn[i], session))?;
    let mut steps: Vec<StepRows> = Vec::new();
    let (mut launches, mut waves) = (Vec::new(), Vec::new());
    for (drawn, replay) in drawn.iter().zip(replays) {
        let (delivered, step) = &placed.steps[drawn.step as usize];
        if steps.last().is_none_or(|rows| rows.step.step != drawn.step) {
            let step = StepRow::of(drawn.step, false, *delivered, step);
            steps.push(StepRows { step, ..StepRows::default() });
        }
        let first = steps.len() == 1;
        let Some(rows) = steps.last_mut() else { continue };
        for (first_rank, run) in &replay.runs {
            rows.add(drawn.step, drawn.wave, step, *first_rank, run, first.then_some(cell.layout.cp));
        }
        launches.extend(replay.rows);
        waves.push(replay.replayed);
    }
    let mut tables = tables(steps)?;
    tables.push((LAUNCHES_TABLE, launch_table(&cell.system, &launches)?));
    tables.push((REPLAYED_TABLE, replayed_table(&waves)?));
    Ok(Computed { tables, timings: placed.bench.clock.timings() })
}

fn sequences<'p>(placed: &'p PlacedStep, members: &[u32]) -> Vec<&'p PackedSequence> {
    members.iter().map(|s| &placed.sequences[*s as usize]).collect()
}

/// End of every rank, both passes.
fn ends(times: &WaveTimes) -> impl Iterator<Item = u64> + '_ {
    times.forward.rank_end_ps.iter().zip(&times.backward.rank_end_ps).map(|(f, b)| f.saturating_add(*b))
}

fn calls(domain: &Domain) -> Vec<Call> {
    let program = &domain.cards.made.program;
    let mut calls = Vec::new();
    for pass in [Pass::Forward, Pass::Backward] {
        for (rank, body) in program.pass(pass).ranks.iter().enumerate() {
            for (stream, instrs) in body.streams.iter().enumerate() {
                for (index, instr) in instrs.iter().enumerate() {
                    if !matches!(instr.kind, InstrKind::Launch { .. }) {
                        continue;
                    }
                    let id = InstrId { stream: stream as u32, index: index as u32 };
                    let call = |shape| Call { rank: rank as u32, at: (pass, id), shape };
                    calls.extend(Shape::of(program, pass, &instr.kind).map(call));
                }
            }
        }
    }
    calls
}

/// A wave that was replayed.
struct Replay {
    runs: Vec<(u32, DomainRun)>,
    rows: Vec<LaunchRow>,
    replayed: ReplayedRow,
}

struct LaunchRow {
    drawn: (u32, u32),
    chosen: Chosen,
    number: u32,
    shape: Shape,
    predicted_ns: f64,
    samples: Arc<Samples>,
}

/// Launch times of the ranks that were timed.
#[derive(Default)]
struct RankTimes {
    /// By rank: whether it was drawn, and measured and predicted nanoseconds by pass.
    ranks: BTreeMap<usize, (bool, [[f64; 2]; 2])>,
    launches: u32,
    known: u32,
}

impl RankTimes {
    fn add(&mut self, chosen: Chosen, pass: Pass, measured_ns: f64, predicted_ns: f64) {
        let (_, times) = self.ranks.entry(chosen.rank).or_insert((chosen.sampled, [[0.0; 2]; 2]));
        times[pass as usize][0] += measured_ns;
        times[pass as usize][1] += predicted_ns;
    }

    /// Measured over predicted of the ranks of the sample, or of all where no rank of the sample launches anything.
    fn ratios(&self, of: impl Fn(&[[f64; 2]; 2]) -> [f64; 2]) -> Vec<f64> {
        let ratios = |sampled: bool| -> Vec<f64> {
            let ranks = self.ranks.values().filter(|(drawn, _)| *drawn || !sampled);
            ranks.map(|(_, times)| of(times)).filter(|t| t[1] > 0.0).map(|t| t[0] / t[1]).collect()
        };
        let sample = ratios(true);
        if sample.is_empty() { ratios(false) } else { sample }
    }

    /// Median ratio by pass; 1 where nothing was timed.
    fn medians(&self) -> [f64; 2] {
        [0, 1].map(|pass| match self.ratios(|t| t[pass]) {
            ratios if ratios.is_empty() => 1.0,
            ratios => quantile(&ratios, 0.5),
        })
    }

    /// Whether a rank that was not timed could be the slowest.
    fn judge(&self, drawn: &DrawnWave, domains: &[Domain], simulated: &[WaveTimes], ratio: [f64; 2]) -> ReplayedRow {
        let max_ratio = self.ratios(|t| [t[0][0] + t[1][0], t[0][1] + t[1][1]]).into_iter().fold(0.0, f64::max);
        let max_ratio = if max_ratio > 0.0 { max_ratio } else { 1.0 };
        let timed = |rank: &usize| drawn.chosen.iter().any(|c| c.rank == *rank);
        let slowest =
            simulated.iter().flat_map(ends).enumerate().filter(|(rank, _)| timed(rank)).map(|(_, end)| end).max();
        let slowest = slowest.unwrap_or(0);
        let predicted = domains.iter().flat_map(|d| ends(&d.predicted)).enumerate();
        let others = predicted.filter(|(rank, _)| !timed(rank)).map(|(_, end)| (end as f64 * max_ratio) as u64);
        let bound = others.max().unwrap_or(0);
        ReplayedRow {
            step: drawn.step,
            wave: drawn.wave,
            ranks: domains.iter().map(|d| d.predicted.forward.rank_end_ps.len() as u32).sum(),
            timed_ranks: drawn.chosen.len() as u32,
            sampled_ranks: drawn.chosen.iter().filter(|c| c.sampled).count() as u32,
            launches: self.launches,
            known_launches: self.known,
            forward_ratio: ratio[0],
            backward_ratio: ratio[1],
            max_ratio,
            slowest_timed_ps: slowest,
            bound_others_ps: bound,
        }
    }
}

struct ReplayedRow {
    step: u32,
    wave: u32,
    ranks: u32,
    timed_ranks: u32,
    sampled_ranks: u32,
    launches: u32,
    known_launches: u32,
    forward_ratio: f64,
    backward_ratio: f64,
    max_ratio: f64,
    slowest_timed_ps: u64,
    bound_others_ps: u64,
}

fn replayed_table(rows: &[ReplayedRow]) -> Result<Table, Failure> {
    let u32s = |of: &dyn Fn(&ReplayedRow) -> u32| Column::U32(rows.iter().map(of).collect());
    let u64s = |of: &dyn Fn(&ReplayedRow) -> u64| Column::U64(rows.iter().map(of).collect());
    let f64s = |of: &dyn Fn(&ReplayedRow) -> f64| Column::F64(rows.iter().map(of).collect());
    Table::from_columns([
        ("step", u32s(&|r| r.step)),
        ("wave", u32s(&|r| r.wave)),
        ("ranks", u32s(&|r| r.ranks)),
        ("timed_ranks", u32s(&|r| r.timed_ranks)),
        ("sampled_ranks", u32s(&|r| r.sampled_ranks)),
        ("launches", u32s(&|r| r.launches)),
        ("known_launches", u32s(&|r| r.known_launches)),
        ("forward_ratio", f64s(&|r| r.forward_ratio)),
        ("backward_ratio", f64s(&|r| r.backward_ratio)),
        ("max_ratio", f64s(&|r| r.max_ratio)),
        ("slowest_timed_ps", u64s(&|r| r.slowest_timed_ps)),
        ("bound_others_ps", u64s(&|r| r.bound_others_ps)),
        ("bounded", Column::Bool(rows.iter().map(|r| r.bound_others_ps <= r.slowest_timed_ps).collect())),
    ])
    .map_err(Failure::internal)
}

fn launch_table(system: &str, rows: &[LaunchRow]) -> Result<Table, Failure> {
    // One row a call, warm-up first.
    let calls: Vec<(&LaunchRow, u32, bool, f64)> = rows
        .iter()
        .flat_map(|row| {
            let warm_up = row.samples.warm_up.iter().map(|ns| (true, *ns));
            let all = warm_up.chain(row.samples.repeats.iter().map(|ns| (false, *ns)));
            all.enumerate().map(move |(i, (warm_up, ns))| (row, i as u32, warm_up, ns))
        })
        .collect();
    let u32s = |of: &dyn Fn(&LaunchRow) -> u32| Column::U32(calls.iter().map(|c| of(c.0)).collect());
    let u64s = |of: &dyn Fn(&LaunchRow) -> u64| Column::U64(calls.iter().map(|c| of(c.0)).collect());
    Table::from_columns([
        ("system", Column::Str(calls.iter().map(|_| system).collect())),
        ("step", u32s(&|r| r.drawn.0)),
        ("wave", u32s(&|r| r.drawn.1)),
        ("rank", u32s(&|r| r.chosen.rank as u32)),
        ("sampled", Column::Bool(calls.iter().map(|c| c.0.chosen.sampled).collect())),
        ("launch", u32s(&|r| r.number)),
        ("pass", Column::Str(calls.iter().map(|c| c.0.shape.pass_name()).collect())),
        ("mask", Column::Str(calls.iter().map(|c| c.0.shape.mask_name()).collect())),
        ("q_heads", u32s(&|r| r.shape.q_heads)),
        ("kv_heads", u32s(&|r| r.shape.kv_heads)),
        ("tiles", u32s(&|r| r.shape.tiles.len() as u32)),
        ("q_rows", u64s(&|r| r.shape.totals()[0])),
        ("k_rows", u64s(&|r| r.shape.totals()[1])),
        ("pairs", u64s(&|r| r.shape.totals()[2])),
        ("predicted_ns", Column::F64(calls.iter().map(|c| c.0.predicted_ns).collect())),
        ("call", Column::U32(calls.iter().map(|c| c.1).collect())),
        ("warm_up", Column::Bool(calls.iter().map(|c| c.2).collect())),
        ("measured_ns", Column::F64(calls.iter().map(|c| c.3).collect())),
    ])
    .map_err(Failure::internal)
}
