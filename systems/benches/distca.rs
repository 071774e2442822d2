//! DistCA's planner on windows that look like `paper-256k` and `paper-1m`, one a rank as in measurements of its public
//! planner, and the global pool at up to 16,384 ranks: prints times, balance and size, then times with Criterion.
//!
//! Reference: `distca` at 64 ranks of 1M tokens within 10 ms; the global pool at 16,384 ranks within 10 s, at 4,096 within
//! 1 s.

mod windows;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Pass, Plan, Planner};
use skewbench_systems::planners::distca::{DistCa, DistCaOptions};
use skewbench_systems::planners::libra::{Libra, LibraOptions};
use windows::{Windows, windows};

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

fn plan(planner: &dyn Planner, sequences: &[PackedSequence], cp: u32) -> Plan {
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes: Vec<u32> = (0..sequences.len() as u32 * cp).map(|rank| rank / 8).collect();
    let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &COST, time_factors: &[] };
    planner.plan(&domain).expect("the bench's domains can be planned")
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn report(name: &str, planner: &dyn Planner, sequences: &[PackedSequence], cp: u32, runs: usize) {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            black_box(plan(planner, sequences, cp));
            ms(start)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let plan = plan(planner, sequences, cp);
    let start = Instant::now();
    check(&plan, &Limits::default()).expect("the plan is right");
    let checked = ms(start);
    let loads = plan.load(Pass::Forward);
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    let max = loads.iter().copied().max().unwrap_or(0) as f64;
    let table = &plan.forward;
    let parts =
        table.calls.iter().flat_map(|call| &call.parts).filter(|part| !part.tensors.has(skewbench_plan::Tensor::O));
    let elements: u64 = parts
        .map(|part| {
            let heads: u64 = part.tensors.iter().map(|t| u64::from(part.heads(t).len())).sum();
            let travels = table.moves[part.moves.range()].iter().filter(|mv| mv.from != mv.to);
            travels.map(|mv| u64::from(mv.rows.len)).sum::<u64>() * heads * u64::from(SHAPE.head_dim)
        })
        .sum();
    println!(
        "{name}: {:.3} ms (best {:.3}), checked in {checked:.3} ms, max/mean {:.4}, {} tiles, {} moves, {:.2} G elements out",
        times[times.len() / 2],
        times[0],
        max / mean,
        table.tiles.len(),
        table.moves.len(),
        elements as f64 / 1e9,
    );
}

fn distca(c: &mut Criterion) {
    let planner = |options| DistCa::new(options).expect("the options are accepted");
    let global = Libra::global(LibraOptions::default()).expect("the defaults are accepted");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (preset, tokens) in [("256K", 1 << 18), ("1M", 1 << 20)] {
        for ranks in [8, 64, 128] {
            let windows = windows(Windows { count: ranks, tokens }, &mut rng);
            for tolerance in [0.1, 0.02] {
                let one = planner(DistCaOptions { tolerance, round: 16, ping_pong: false, ..DistCaOptions::default() });
                report(&format!("{preset} x {ranks}, tolerance {tolerance}"), &one, &windows, 1, 15);
            }
            let both = planner(DistCaOptions::default());
            report(&format!("{preset} x {ranks}, defaults (ping-pong)"), &both, &windows, 1, 15);
        }
    }
    let dp16 = windows(Windows { count: 16, tokens: 1 << 20 }, &mut rng);
    report("1M, dp 16, cp 16, defaults", &planner(DistCaOptions::default()), &dp16, 16, 5);
    for sequences in [256, 1024] {
        let windows = windows(Windows { count: sequences, tokens: 1 << 20 }, &mut rng);
        report(&format!("global pool, {sequences} x 16 ranks"), &global, &windows, 16, 3);
        let one = planner(DistCaOptions { ping_pong: false, ..DistCaOptions::default() });
        report(&format!("distca, {sequences} x 1 ranks"), &one, &windows, 1, 3);
    }

    let mut group = c.benchmark_group("distca");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300)).sample_size(20);
    let windows = windows(Windows { count: 64, tokens: 1 << 20 }, &mut rng);
    for ping_pong in [false, true] {
        let planner = planner(DistCaOptions { ping_pong, ..DistCaOptions::default() });
        let name = format!("64 ranks of 1M, ping_pong = {ping_pong}");
        group.bench_function(name, |b| b.iter(|| plan(&planner, black_box(&windows), 1)));
    }
    group.finish();
}

criterion_group!(benches, distca);
criterion_main!(benches);
