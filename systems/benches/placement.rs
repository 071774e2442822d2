//! Time to place a step and to plan one packed sequence. Reference: the limits in the names.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, json};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence};
use skewbench_systems::placements::{Grouping, equal_capacities, group};
use skewbench_systems::registry::system;

const WINDOW: u32 = 1 << 20;
const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };

/// Log-normal lengths like those of `paper-1m`, cut to fill one window: some 315 documents.
fn sequence(seed: u64) -> PackedSequence {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut room = WINDOW;
    let mut documents = Vec::new();
    while room > 0 {
        let (u, v): (f64, f64) = (rng.random(), rng.random());
        let normal = libm::sqrt(-2.0 * libm::log(1.0 - u)) * libm::cos(2.0 * std::f64::consts::PI * v);
        let long = rng.random_bool(0.003);
        let length = if long { libm::exp(12.36 + normal) } else { libm::exp(7.0 + 1.2 * normal) };
        let length = (length as u32).clamp(16, WINDOW).min(room);
        documents.push(length);
        room -= length;
    }
    PackedSequence::new(documents)
}

fn placements(c: &mut Criterion) {
    let work: Vec<u64> = (0..128).map(|i| sequence(i).pairs()).collect();
    let capacities = equal_capacities(128, 8);
    let mut bench = c.benchmark_group("128 sequences into 16 pools");
    for (grouping, limit) in [
        (Grouping::Vrsp, "20 us"),
        (Grouping::Zigzag, "20 us"),
        (Grouping::ZigzagSwap, "1 ms"),
        (Grouping::ZigzagSwapAll, "1 ms"),
    ] {
        bench.bench_function(format!("{} (limit {limit})", grouping.name()), |b| {
            b.iter(|| group(black_box(&work), &capacities, grouping, 0));
        });
    }
    bench.finish();
}

fn planners(c: &mut Criterion) {
    let sequence =
        (0..1000).map(sequence).min_by_key(|s| s.documents().len().abs_diff(315)).unwrap_or_else(|| sequence(0));
    let shape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
    let nodes: Vec<u32> = (0..16).map(|rank| rank / 8).collect();
    let mut bench = c.benchmark_group(format!("plan of {} documents, CP = 16", sequence.documents().len()));
    let sequences = [&sequence];
    let domain = Domain { sequences: &sequences, cp: 16, shape, nodes: &nodes, cost: &COST, time_factors: &[] };
    for (name, shard, limit) in [
        ("ulysses", None, "30 us"),
        ("ring-zigzag", Some("document"), "2 ms"),
        ("ring-zigzag", Some("sequence"), "2 ms"),
    ] {
        let mut options = Map::new();
        if let Some(shard) = shard {
            options.insert("shard".into(), json!(shard));
        }
        let Ok(system) = system(name, &options) else { continue };
        let label = format!("{name} {} (limit {limit})", shard.unwrap_or_default());
        bench.bench_function(label, |b| b.iter(|| system.planner().plan(black_box(&domain))));
    }
    bench.finish();
}

criterion_group!(benches, placements, planners);
criterion_main!(benches);
