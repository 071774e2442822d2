//! Times of the steps from a pool to a program: plan, facts, check, lower, each on the same pools. The plan is the
//! reference that checking and lowering are held against.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewbench_exec::lower;
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, Plan, Planner};
use skewbench_systems::planners::libra::{Libra, LibraOptions};
use skewbench_systems::registry;

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

/// Windows of a two-mode lognormal like that of `paper-1m`, cut at the window.
fn windows(count: usize, window: u32) -> Vec<PackedSequence> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    (0..count)
        .map(|_| {
            let mut room = window;
            let mut documents = Vec::new();
            while room > 0 {
                let (mu, sigma) = if rng.random::<f64>() < 0.00322 { (12.3629, 1.0) } else { (7.0, 1.2) };
                let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.random::<f64>()));
                let normal = radius * libm::cos(std::f64::consts::TAU * rng.random::<f64>());
                let length = (libm::exp(mu + sigma * normal) as u32).clamp(16, room.max(16)).min(room);
                documents.push(length);
                room -= length;
            }
            PackedSequence::new(documents)
        })
        .collect()
}

fn plan(planner: &dyn Planner, sequences: &[PackedSequence], cp: u32) -> Plan {
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes: Vec<u32> = (0..sequences.len() as u32 * cp).map(|rank| rank / 8).collect();
    let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &COST, time_factors: &[] };
    planner.plan(&domain).expect("the bench's domains can be planned")
}

fn stages(c: &mut Criterion) {
    let pool = windows(8, 1 << 20);
    let libra = Libra::new(LibraOptions::default()).expect("defaults are valid");
    let ring = registry::system("ring-zigzag", &Default::default()).expect("a named system");
    let ulysses = registry::system("ulysses", &Default::default()).expect("a named system");
    let cases: [(&str, &dyn Planner, &[PackedSequence]); 3] = [
        ("libra 8x16", &libra, &pool),
        ("ulysses 1x16", ulysses.planner(), &pool[..1]),
        ("ring 1x16", ring.planner(), &pool[..1]),
    ];
    for (name, planner, sequences) in cases {
        let made = plan(planner, sequences, 16);
        let facts = Facts::of(&made).expect("planners make sound plans");
        let checked = check_facts(&made, &facts, &Limits::default()).expect("planners make sound plans");
        let mut group = c.benchmark_group(name);
        group.bench_function("plan", |b| b.iter(|| black_box(plan(planner, sequences, 16))));
        group.bench_function("facts", |b| b.iter(|| black_box(Facts::of(&made))));
        group.bench_function("check", |b| b.iter(|| black_box(check_facts(&made, &facts, &Limits::default()))));
        group.bench_function("lower", |b| b.iter(|| black_box(lower(&made, &facts, &checked.operands))));
        group.finish();
    }
}

criterion_group!(benches, stages);
criterion_main!(benches);
