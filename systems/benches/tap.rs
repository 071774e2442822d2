//! TAP plans of pools that look like `paper-1m`: prints time, balance and size, then times with Criterion.
//!
//! Reference: a plan of 8 x 16 ranks at B = 8192 within 5 ms, 4,096 ranks planned and checked within 1 s; facts and check
//! together at most as long as the plan. `tap-calibrated` on 8 x 16 ranks: planned and checked within 20 ms. It is timed on a
//! card that runs every shape at one rate and links that computation does not slow: prices cost next to nothing to ask for
//! there, and the predicted balance is that of FLOPs and not of a profile.

mod windows;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use skewbench_plan::check::{Limits, check, check_facts};
use skewbench_plan::{
    AttentionShape, Cost, Domain, Facts, FlopsCost, LaunchShape, PackedSequence, Pass, Plan, Planner, TileShape, Work,
};
use skewbench_systems::planners::calibrated::{Calibrated, CalibratedOptions};
use skewbench_systems::planners::libra::{Libra, LibraOptions};
use windows::{Windows, windows};

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

/// Exact-cardinality LPT of the windows into pools of `pool`, as VRSP does.
fn pools(mut windows: Vec<PackedSequence>, pool: usize) -> Vec<Vec<PackedSequence>> {
    let mut pools = vec![(0u128, Vec::new()); windows.len() / pool];
    windows.sort_by_key(|w| std::cmp::Reverse(w.l_squared()));
    for window in windows {
        let open = pools.iter_mut().filter(|(_, members)| members.len() < pool);
        if let Some((work, members)) = open.min_by_key(|(work, _)| *work) {
            *work += window.l_squared();
            members.push(window);
        }
    }
    pools.into_iter().map(|(_, members)| members).collect()
}

fn plan(planner: &dyn Planner, pool: &[PackedSequence], cp: u32) -> Plan {
    let sequences: Vec<&PackedSequence> = pool.iter().collect();
    let nodes: Vec<u32> = (0..sequences.len() as u32 * cp).map(|rank| rank / 8).collect();
    let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &COST, time_factors: &[] };
    planner.plan(&domain).expect("the bench's domains can be planned")
}

fn bytes(plan: &Plan, pass: Pass) -> u64 {
    let table = plan.pass(pass);
    let parts = table.calls.iter().flat_map(|call| call.parts.iter().map(move |part| (part, call.dtype)));
    parts
        .map(|(part, dtype)| {
            let travels = table.moves[part.moves.range()].iter().filter(|mv| mv.from != mv.to);
            travels.map(|mv| u64::from(mv.rows.len)).sum::<u64>() * part.row_bytes(SHAPE.head_dim, dtype)
        })
        .sum()
}

fn report(name: &str, libra: &Libra, pool: &[PackedSequence], cp: u32) {
    let mut times: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            black_box(plan(libra, pool, cp));
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let plan = plan(libra, pool, cp);
    let loads = plan.load(Pass::Forward);
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    let max = loads.iter().copied().max().unwrap_or(0) as f64;
    println!(
        "{name}: {:.3} ms (best {:.3}), max/mean {:.4}, largest tile/mean {:.4}, {} tiles, {} + {} moves, {:.1} + {:.1} GB",
        times[7],
        times[0],
        max / mean,
        plan.accounting.largest_tile as f64 / mean,
        plan.forward.tiles.len(),
        plan.forward.moves.len(),
        plan.backward.moves.len(),
        bytes(&plan, Pass::Forward) as f64 / 1e9,
        bytes(&plan, Pass::Backward) as f64 / 1e9,
    );
}

fn tap(c: &mut Criterion) {
    let libra = Libra::new(LibraOptions::default()).expect("the defaults are accepted");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let pools = pools(windows(Windows { count: 128, tokens: 1 << 20 }, &mut rng), 8);
    for (i, pool) in pools.iter().enumerate() {
        report(&format!("8 x 16 ranks, pool {i}"), &libra, pool, 16);
    }
    let wide = windows(Windows { count: 256, tokens: 1 << 20 }, &mut rng);
    report("256 x 16 ranks", &libra, &wide, 16);
    let deep = windows(Windows { count: 8, tokens: 4 << 20 }, &mut rng);
    report("8 x 512 ranks, 4M tokens", &libra, &deep, 512);

    stages(c, "tap 8x16 ranks, 1M, B=8192", &libra, &pools[0], 20);
    stages(c, "tap 256x16 ranks, 1M, B=8192", &libra, &wide, 10);
    let widest = windows(Windows { count: 1024, tokens: 1 << 20 }, &mut rng);
    stages(c, "tap 1024x16 ranks, 1M, B=8192", &libra, &widest, 10);

    let calibrated = Calibrated::new(CalibratedOptions::default()).expect("the defaults are accepted");
    let imbalance = predicted_imbalance(&plan(&calibrated, &pools[0], 16));
    println!("calibrated, 8 x 16 ranks: predicted max/mean {imbalance:.4}");
    let mut group = group(c, "tap-calibrated 8x16 ranks, 1M", 20);
    group.bench_function("plan and check", |b| {
        b.iter(|| {
            let made = plan(&calibrated, black_box(&pools[0]), 16);
            check(&made, &Limits::default()).expect("planners make sound plans")
        });
    });
    group.finish();
}

/// Max over mean of the picoseconds that the launches of a rank are predicted to take in both passes.
fn predicted_imbalance(plan: &Plan) -> f64 {
    let mut times = vec![0; plan.ranks as usize];
    for pass in [Pass::Forward, Pass::Backward] {
        let table = plan.pass(pass);
        for (time, rank) in times.iter_mut().zip(&table.ranks) {
            for op in rank.streams.iter().flatten() {
                let Work::Launch(launch) = op.work else { continue };
                let tiles = table.tiles[launch.tiles.range()].iter();
                let tiles: Vec<TileShape> = tiles.map(|t| TileShape { q: t.q.len, k: t.k.len }).collect();
                *time += COST.launch_ps(&LaunchShape {
                    pass,
                    mask: launch.mask,
                    q_heads: launch.q_heads.len(),
                    kv_heads: launch.q_heads.len().div_ceil(u32::from(SHAPE.group())),
                    head_dim: SHAPE.head_dim,
                    tiles: &tiles,
                });
            }
        }
    }
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    times.iter().copied().max().unwrap_or(0) as f64 / mean
}

fn group<'a>(c: &'a mut Criterion, name: &str, samples: usize) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300)).sample_size(samples);
    group
}

/// Planning, and what checking the plan costs: its facts and both passes.
fn stages(c: &mut Criterion, name: &str, libra: &Libra, pool: &[PackedSequence], samples: usize) {
    let mut group = group(c, name, samples);
    group.bench_function("plan", |b| b.iter(|| plan(libra, black_box(pool), 16)));
    let made = plan(libra, pool, 16);
    group.bench_function("facts", |b| b.iter(|| Facts::of(black_box(&made))));
    let facts = Facts::of(&made).expect("planners make sound plans");
    group.bench_function("check", |b| b.iter(|| check_facts(black_box(&made), &facts, &Limits::default())));
    group.finish();
}

criterion_group!(benches, tap);
criterion_main!(benches);
