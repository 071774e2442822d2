//! Straggler latency of systems and of option sets, wave by wave on the same windows, relative to Ulysses: the ablation
//! table of docs/METHODOLOGY.md.
//!
//! ```text
//! cargo run --release -p skewbench-sim --example straggler -- paper-256k 8 4 7 libra libra-calibrated 'libra:tau=0.1'
//! ```
//!
//! Arguments: workload preset, CP, steps of 128 windows, seed, then systems, each with options `name=value` after a colon.

use std::sync::Arc;

use rayon::prelude::*;
use serde_json::{Map, Value};
use skewbench_exec::lower;
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{AttentionShape, Domain, Facts, Layout, PackedSequence, Pass, PlaceContext, Scope, Step};
use skewbench_sim::{Machine, Pricing, Profile, Runs, simulate};
use skewbench_systems::registry::{self, System};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const DP: u32 = 16;
const GBS: u32 = 128;

/// Picoseconds of one wave.
#[derive(Clone, Copy, Default)]
struct Wave {
    /// Slowest domain: forward plus backward.
    total: u64,
    forward: u64,
    backward: u64,
    forward_compute: u64,
    backward_compute: u64,
    forward_transfer: u64,
    backward_transfer: u64,
    /// Launches of the slowest rank and of the mean rank of the wave, both passes.
    launch_max: u64,
    launch_mean: u64,
    bytes: u64,
}

fn steps(file: &str, count: usize) -> Result<Vec<Step>, Failure> {
    let mut steps: Vec<Step> = Vec::new();
    for line in std::fs::read_to_string(file)?.lines().take(count * GBS as usize) {
        let line: Value = serde_json::from_str(line)?;
        let index = line["step"].as_u64().ok_or("a line without its step")?;
        let documents: Vec<u32> = serde_json::from_value(line["documents"].clone())?;
        let sequence = PackedSequence::new(documents);
        if steps.last().is_none_or(|s| s.index != index) {
            steps.push(Step { index, window: sequence.tokens() as u32, sequences: Vec::new() });
        }
        steps.last_mut().ok_or("no step")?.sequences.push(sequence);
    }
    Ok(steps)
}

fn parse(argument: &str) -> Result<System, Failure> {
    let (name, options) = argument.split_once(':').unwrap_or((argument, ""));
    let mut map = Map::new();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        let (key, value) = option.split_once('=').ok_or("options are name=value")?;
        map.insert(key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned())));
    }
    Ok(registry::system(name, &map)?)
}

fn wave(
    system: &System,
    pricing: &Arc<Pricing>,
    layout: &Layout,
    domains: &[(u32, Vec<&PackedSequence>)],
) -> Result<Wave, Failure> {
    let mut out = Wave::default();
    let (mut launches, mut ranks) = (0u64, 0u64);
    for (first, sequences) in domains {
        let nodes: Vec<u32> = (*first..first + sequences.len() as u32)
            .flat_map(|dp| (0..layout.cp).map(move |cp| layout.node(dp, cp)))
            .collect();
        let domain =
            Domain { sequences, cp: layout.cp, shape: SHAPE, nodes: &nodes, cost: &**pricing, time_factors: &[] };
        if std::env::var("TIME").is_ok() {
            let plan = system.planner().plan(&domain)?;
            let mut best = [f64::INFINITY; 2];
            for _ in 0..40 {
                let start = std::time::Instant::now();
                let plan = system.planner().plan(&domain)?;
                best[0] = best[0].min(start.elapsed().as_secs_f64() * 1e3);
                let start = std::time::Instant::now();
                skewbench_plan::check::check(&plan, &Limits::default())?;
                best[1] = best[1].min(start.elapsed().as_secs_f64() * 1e3);
            }
            for pass in [Pass::Forward, Pass::Backward] {
                let p = plan.pass(pass);
                let ops: usize = p.ranks.iter().flat_map(|r| &r.streams).map(Vec::len).sum();
                let parts: usize = p.calls.iter().map(|c| c.parts.len()).sum();
                println!(
                    "{pass:?}: {} tiles {} moves {} calls {parts} parts {ops} ops",
                    p.tiles.len(),
                    p.moves.len(),
                    p.calls.len()
                );
            }
            println!("plan {:.2} ms check {:.2} ms", best[0], best[1]);
        }
        let plan = system.planner().plan(&domain)?;
        let facts = Facts::of(&plan)?;
        let checked = check_facts(&plan, &facts, &Limits::default())?;
        let program = lower(&plan, &facts, &checked.operands)?;
        let times = simulate(&program, &Machine::new(pricing.clone(), nodes), Runs::ALL)?;
        let (f, b) = (&times.forward, &times.backward);
        if std::env::var("RANKS").is_ok() {
            for (name, p, pass) in [("fwd", f, &plan.forward), ("bwd", b, &plan.backward)] {
                let mut gives = vec![0u64; p.rank_end_ps.len()];
                let mut gets = gives.clone();
                for mv in &pass.moves {
                    if mv.from != mv.to {
                        gives[mv.from as usize] += u64::from(mv.rows.len);
                        gets[mv.to as usize] += u64::from(mv.rows.len);
                    }
                }
                let mut order: Vec<usize> = (0..gives.len()).collect();
                order.sort_by_key(|r| std::cmp::Reverse(p.rank_end_ps[*r]));
                let launch: Vec<f64> = p.launch_ps.iter().map(|x| *x as f64 / 1e9).collect();
                let mean = launch.iter().sum::<f64>() / launch.len() as f64;
                println!(
                    "{name} wave {:.1} compute {:.1} transfers {:.1} launches mean {mean:.1} max {:.1}",
                    p.wave_ps as f64 / 1e9,
                    p.compute_only_ps.unwrap_or(0) as f64 / 1e9,
                    p.transfers_only_ps.unwrap_or(0) as f64 / 1e9,
                    launch.iter().copied().fold(0.0, f64::max)
                );
                for &r in order.iter().step_by((order.len() / 8).max(1)) {
                    println!(
                        "   rank {r:3} end {:.1} launches {:.1} launch count {} sends {} rows gets {} rows",
                        p.rank_end_ps[r] as f64 / 1e9,
                        launch[r],
                        pass.ranks[r].streams.first().map_or(0, Vec::len),
                        gives[r],
                        gets[r]
                    );
                }
            }
        }
        if f.wave_ps + b.wave_ps > out.total {
            out.total = f.wave_ps + b.wave_ps;
            (out.forward, out.backward) = (f.wave_ps, b.wave_ps);
            out.forward_compute = f.compute_only_ps.unwrap_or(0);
            out.backward_compute = b.compute_only_ps.unwrap_or(0);
            out.forward_transfer = f.transfers_only_ps.unwrap_or(0);
            out.backward_transfer = b.transfers_only_ps.unwrap_or(0);
        }
        for (f, b) in f.launch_ps.iter().zip(&b.launch_ps) {
            out.launch_max = out.launch_max.max(f + b);
            launches += f + b;
            ranks += 1;
        }
        for pass in [f, b] {
            out.bytes += pass.inter_bytes.iter().sum::<u64>();
        }
    }
    out.launch_mean = launches / ranks.max(1);
    Ok(out)
}

fn run(
    system: &System,
    pricing: &Arc<Pricing>,
    layout: &Layout,
    steps: &[Step],
    seed: u64,
) -> Result<Vec<Wave>, Failure> {
    let waves: Vec<Vec<Wave>> = steps
        .par_iter()
        .map(|step| {
            let context = PlaceContext {
                layout: *layout,
                pool: system.pool(),
                seed: seed ^ step.index,
                shape: SHAPE,
                cost: &**pricing,
            };
            let placed = system.placement().placer().place(step, &context)?;
            let domains = match system.planner().scope() {
                Scope::Sequence => (0..layout.dp).map(|r| r..r + 1).collect(),
                Scope::Pool => placed.pools.clone(),
                Scope::Wave => vec![0..layout.dp],
            };
            let one = |w: &skewbench_plan::Wave| {
                let domains: Vec<(u32, Vec<&PackedSequence>)> = domains
                    .iter()
                    .map(|d| {
                        let members = &w.sequences[d.start as usize..d.end as usize];
                        (d.start, members.iter().map(|s| &placed.sequences[*s as usize]).collect())
                    })
                    .collect();
                wave(system, pricing, layout, &domains)
            };
            placed.waves.iter().map(one).collect::<Result<Vec<_>, Failure>>()
        })
        .collect::<Result<_, Failure>>()?;
    Ok(waves.concat())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, cp, count, seed, systems @ ..] = arguments.as_slice() else {
        return Err("arguments: workload cp steps seed systems...".into());
    };
    let (layout, seed) = (Layout::dp_cp(DP, cp.parse()?), seed.parse()?);
    let steps = steps(workload, count.parse()?)?;
    let mut profile = Profile::named("h200")?;
    if let Ok(t) = std::env::var("TRANSPORT") {
        let v: serde_json::Value = serde_json::json!({"transport": t});
        let o: skewbench_sim::Overrides = serde_json::from_value(v)?;
        profile = o.apply(&profile, "example")?;
    }
    let pricing = Arc::new(Pricing::new(profile));
    let mut reference = None;
    println!(
        "system, ms a wave: mean max | fwd (compute transfer) bwd (compute transfer) | launches max mean | GB between nodes | share of ulysses mean, max"
    );
    for argument in ["ulysses".to_owned()].iter().chain(systems) {
        let system = parse(argument)?;
        let start = std::time::Instant::now();
        let waves = run(&system, &pricing, &layout, &steps, seed)?;
        let wall = start.elapsed().as_secs_f64();
        let mean = |of: fn(&Wave) -> u64| waves.iter().map(|w| of(w) as f64).sum::<f64>() / waves.len() as f64 / 1e9;
        let (total, max) = (mean(|w| w.total), {
            let per = waves.len() / steps.len();
            waves.chunks(per).map(|s| s.iter().map(|w| w.total).max().unwrap_or(0) as f64 / 1e9).sum::<f64>()
                / steps.len() as f64
        });
        let (first, first_max) = *reference.get_or_insert((total, max));
        println!(
            "{argument:<50} {total:8.1} {max:8.1} | {:7.1} ({:7.1} {:7.1}) {:7.1} ({:7.1} {:7.1}) | {:7.1} {:7.1} | {:6.1} | {:.4} {:.4} | {} waves {wall:.1}s",
            mean(|w| w.forward),
            mean(|w| w.forward_compute),
            mean(|w| w.forward_transfer),
            mean(|w| w.backward),
            mean(|w| w.backward_compute),
            mean(|w| w.backward_transfer),
            mean(|w| w.launch_max),
            mean(|w| w.launch_mean),
            mean(|w| w.bytes),
            total / first,
            max / first_max,
            waves.len()
        );
    }
    let _ = Pass::Forward;
    Ok(())
}
