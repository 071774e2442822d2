//! Plans of rings and grids on windows like `paper-256k` at CP = 8 and `paper-1m` at CP = 16: prints sizes, then times
//! planning and checking with Criterion.
//!
//! Reference: a per-document zigzag plan of 1M tokens within 20 ms.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Pass};
use skewbench_systems::registry::system;

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

/// Lengths of a lognormal with a long tail, cut at the window's end.
fn window(tokens: u32, mu: f64, seed: u64) -> PackedSequence {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut room = tokens;
    let mut documents = Vec::new();
    while room > 0 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.random::<f64>()));
        let normal = radius * libm::cos(std::f64::consts::TAU * rng.random::<f64>());
        let length = (libm::exp(mu + 1.2 * normal) as u32).clamp(1, room);
        documents.push(length);
        room -= length;
    }
    PackedSequence::new(documents)
}

fn rings(c: &mut Criterion) {
    let windows = [
        ("256K", 8, window(1 << 18, 7.0, 1)),
        ("1M", 16, window(1 << 20, 7.0, 2)),
        ("1M short", 16, window(1 << 20, 5.0, 3)),
    ];
    let systems = [
        ("ring", json!({})),
        ("ring-zigzag", json!({})),
        ("ring-zigzag", json!({"shard": "sequence"})),
        ("ring-striped", json!({})),
        ("ring-striped", json!({"shard": "document"})),
        ("usp", json!({})),
        ("loongtrain", json!({})),
        ("loongtrain", json!({"hp": 1})),
    ];
    for (name, cp, sequence) in &windows {
        let nodes: Vec<u32> = (0..*cp).map(|rank| rank / 8).collect();
        let sequences = [sequence];
        let domain =
            Domain { sequences: &sequences, cp: *cp, shape: SHAPE, nodes: &nodes, cost: &COST, time_factors: &[] };
        let mut group = c.benchmark_group(format!("{name}, {} documents, CP = {cp}", sequence.documents().len()));
        group.measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200)).sample_size(10);
        for (planner, options) in &systems {
            let Some(made) = options.as_object().and_then(|options| system(planner, options).ok()) else { continue };
            let Ok(plan) = made.planner().plan(&domain) else { continue };
            let loads = plan.load(Pass::Forward);
            let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
            println!(
                "{planner} {options}: {} tiles, {} + {} moves, max/mean {:.4}",
                plan.forward.tiles.len(),
                plan.forward.moves.len(),
                plan.backward.moves.len(),
                loads.iter().copied().max().unwrap_or(0) as f64 / mean
            );
            group.bench_function(format!("plan {planner} {options}"), |b| {
                b.iter(|| made.planner().plan(black_box(&domain)));
            });
            group.bench_function(format!("check {planner} {options}"), |b| {
                b.iter(|| check(black_box(&plan), &Limits::default()).map(|checked| checked.peak_bytes));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, rings);
criterion_main!(benches);
