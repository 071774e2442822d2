//! Straggler latency of systems and option sets, wave by wave on the same windows, relative to Ulysses: the ablation tables of
//! docs/METHODOLOGY.md, and the times that planning, checking, lowering and pricing take on one thread.
//!
//! ```text
//! skewbench workload sample paper-256k --steps 2 --seed 7 --format jsonl > windows.jsonl
//! cargo run --release -p skewbench-sim --example straggler -- windows.jsonl 8 libra libra-calibrated libra:tau=0.1,M=8
//! ```
//!
//! Arguments: windows (JSON lines with `step` and `documents`; a step's windows must divide over 16 data-parallel ranks), CP, then systems,
//! each with options `name=value` after a colon. `copy_engines` or `nccl` before the first system chooses the transport.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};
use skewbench_exec::outline;
use skewbench_plan::check::{Limits, check_only};
use skewbench_plan::{AttentionShape, Domain, Facts, Layout, PackedSequence, PlaceContext, Scope, Step};
use skewbench_sim::{Machine, Overrides, Pricing, Profile, Runs, simulate};
use skewbench_systems::registry::{self, System};

type Failure = Box<dyn std::error::Error>;

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const DP: u32 = 16;

/// One wave, in picoseconds, those of its slowest domain.
#[derive(Clone, Copy, Default)]
struct Wave {
    forward: u64,
    backward: u64,
    /// Launches of the slowest and of the mean rank of the wave, both passes.
    launch_max: u64,
    launch_mean: u64,
    /// Bytes between nodes.
    bytes: u64,
    /// Milliseconds to plan, to check, to lower and to price all domains.
    spent: [f64; 4],
}

impl Wave {
    fn total(&self) -> u64 {
        self.forward + self.backward
    }
}

fn steps(file: &str) -> Result<Vec<Step>, Failure> {
    let mut steps: Vec<Step> = Vec::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let index = line["step"].as_u64().ok_or("a line without its step")?;
        let documents: Vec<u32> = serde_json::from_value(line["documents"].clone())?;
        let sequence = PackedSequence::new(documents);
        if steps.last().is_none_or(|step| step.index != index) {
            steps.push(Step { index, window: sequence.tokens() as u32, sequences: Vec::new() });
        }
        steps.last_mut().ok_or("no step")?.sequences.push(sequence);
    }
    Ok(steps)
}

fn system(argument: &str) -> Result<System, Failure> {
    let (name, options) = argument.split_once(':').unwrap_or((argument, ""));
    let mut given = Map::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').ok_or("options are name=value")?;
        given.insert(key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into()));
    }
    Ok(registry::system(name, &given)?)
}

/// First data-parallel rank and sequences of the ranks that plan together.
type Members<'a> = (u32, Vec<&'a PackedSequence>);

fn wave(system: &System, pricing: &Arc<Pricing>, layout: &Layout, domains: &[Members<'_>]) -> Result<Wave, Failure> {
    let mut wave = Wave::default();
    let (mut launches, mut ranks) = (0, 0);
    for (first, sequences) in domains {
        let members = *first..first + sequences.len() as u32;
        let nodes: Vec<u32> = members.flat_map(|dp| (0..layout.cp).map(move |cp| layout.node(dp, cp))).collect();
        let (cp, cost) = (layout.cp, &**pricing);
        let domain = Domain { sequences, cp, shape: SHAPE, nodes: &nodes, cost, time_factors: &[] };
        let mut start = Instant::now();
        let mut spent = |what: usize| {
            wave.spent[what] += start.elapsed().as_secs_f64() * 1e3;
            start = Instant::now();
        };
        let plan = system.planner().plan(&domain)?;
        spent(0);
        let facts = Facts::of(&plan)?;
        check_only(&plan, &facts, &Limits::default())?;
        spent(1);
        let program = outline(&plan, &facts)?;
        spent(2);
        let times = simulate(&program, &Machine::new(pricing.clone(), nodes), Runs::default())?;
        spent(3);
        let (forward, backward) = (&times.forward, &times.backward);
        if forward.wave_ps + backward.wave_ps > wave.total() {
            (wave.forward, wave.backward) = (forward.wave_ps, backward.wave_ps);
        }
        for (forward, backward) in forward.launch_ps.iter().zip(&backward.launch_ps) {
            wave.launch_max = wave.launch_max.max(forward + backward);
            launches += forward + backward;
            ranks += 1;
        }
        wave.bytes += [forward, backward].iter().flat_map(|pass| &pass.inter_bytes).sum::<u64>();
    }
    wave.launch_mean = launches / ranks.max(1);
    Ok(wave)
}

/// Waves of every step.
fn run(system: &System, pricing: &Arc<Pricing>, layout: &Layout, steps: &[Step]) -> Result<Vec<Vec<Wave>>, Failure> {
    let place = |step: &Step| {
        let (layout, pool) = (*layout, system.pool());
        let context = PlaceContext { layout, pool, seed: step.index, shape: SHAPE, cost: &**pricing };
        let placed = system.placement().placer().place(step, &context)?;
        let domains: Vec<std::ops::Range<u32>> = match system.planner().scope() {
            Scope::Sequence => (0..DP).map(|rank| rank..rank + 1).collect(),
            Scope::Pool => placed.pools.clone(),
            Scope::Wave => std::iter::once(0..DP).collect(),
        };
        let waves = placed.waves.iter().map(|one| {
            let members = |ranks: &std::ops::Range<u32>| {
                let own = &one.sequences[ranks.start as usize..ranks.end as usize];
                (ranks.start, own.iter().map(|s| &placed.sequences[*s as usize]).collect())
            };
            wave(system, pricing, &layout, &domains.iter().map(members).collect::<Vec<Members<'_>>>())
        });
        waves.collect::<Result<Vec<Wave>, Failure>>()
    };
    steps.iter().map(place).collect()
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, cp, systems @ ..] = arguments.as_slice() else {
        return Err("arguments: windows.jsonl cp [transport] systems...".into());
    };
    let mut profile = Profile::named("h200")?;
    let transport = systems.first().filter(|name| ["nccl", "copy_engines"].contains(&name.as_str()));
    if let Some(transport) = transport {
        let overrides: Overrides = serde_json::from_value(json!({ "transport": transport }))?;
        profile = overrides.apply(&profile, "the transport on the command line")?;
    }
    let pricing = Arc::new(Pricing::new(profile));
    let (layout, steps) = (Layout::dp_cp(DP, cp.parse()?), steps(file)?);
    println!(
        "{:<58} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "ms a wave",
        "mean",
        "max",
        "of ul.",
        "max of",
        "forward",
        "backward",
        "launches",
        "mean",
        "GB nodes",
        "plan",
        "check",
        "lower",
        "price"
    );
    let mut reference = None;
    for name in ["ulysses".to_owned()].iter().chain(&systems[transport.iter().len()..]) {
        let by_step = run(&system(name)?, &pricing, &layout, &steps)?;
        let waves = by_step.concat();
        let count = waves.len().max(1) as f64;
        let mean = |of: fn(&Wave) -> u64| waves.iter().map(|wave| of(wave) as f64).sum::<f64>() / count / 1e9;
        let spent = |what: usize| waves.iter().map(|wave| wave.spent[what]).sum::<f64>() / count;
        let slowest = by_step.iter().map(|waves| waves.iter().map(Wave::total).max().unwrap_or(0) as f64 / 1e9);
        let (total, slowest) = (mean(Wave::total), slowest.sum::<f64>() / by_step.len().max(1) as f64);
        let (first, first_slowest) = *reference.get_or_insert((total, slowest));
        println!(
            "{name:<58} {total:8.1} {slowest:8.1} {:8.4} {:8.4} {:8.1} {:8.1} {:8.1} {:8.1} {:8.1} {:8.2} {:8.2} {:8.2} {:8.2}",
            total / first,
            slowest / first_slowest,
            mean(|wave| wave.forward),
            mean(|wave| wave.backward),
            mean(|wave| wave.launch_max),
            mean(|wave| wave.launch_mean),
            mean(|wave| wave.bytes),
            spent(0),
            spent(1),
            spent(2),
            spent(3),
        );
    }
    Ok(())
}
