//! Times of making steps at paper scale, beside lowering the same plan, which is the reference.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use skewbench_cuda::steps::{StepOptions, device_program};
use skewbench_exec::lower;
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, Scope};
use skewbench_systems::registry;

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

/// A window of two long documents among short ones.
fn window(tokens: u32, short: u32) -> PackedSequence {
    let mut documents: Vec<u32> = (0..short).map(|i| 16 + (i * 7919) % 700).collect();
    documents.push(tokens / 4);
    documents.push(tokens - documents.iter().sum::<u32>());
    PackedSequence::new(documents)
}

fn steps(c: &mut Criterion) {
    for (name, tokens, short, cp, dp) in [
        ("ulysses", 1 << 18, 250, 8, 1),
        ("ring-zigzag", 1 << 18, 250, 8, 1),
        ("ring-striped", 1 << 18, 250, 8, 1),
        ("loongtrain", 1 << 18, 250, 8, 1),
        ("distca", 1 << 18, 250, 8, 2),
        ("libra", 1 << 18, 250, 8, 2),
        ("libra", 1 << 20, 1000, 16, 8),
    ] {
        let system = registry::system(name, &Default::default()).expect("a named system");
        let count = if system.planner().scope() == Scope::Sequence { 1 } else { dp };
        let sequences: Vec<PackedSequence> = (0..count).map(|_| window(tokens, short)).collect();
        let sequences: Vec<&PackedSequence> = sequences.iter().collect();
        let nodes: Vec<u32> = (0..count as u32 * cp).map(|rank| rank / 8).collect();
        let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &COST, time_factors: &[] };
        let plan = system.planner().plan(&domain).expect("the bench's domains can be planned");
        let facts = Facts::of(&plan).expect("planners make sound plans");
        let checked = check_facts(&plan, &facts, &Limits::default()).expect("planners make sound plans");
        let program = lower(&plan, &facts, &checked.operands).expect("planners make sound plans");
        let mut group = c.benchmark_group(format!("{name} {count}x{cp} of {tokens}"));
        group.sample_size(10);
        group.bench_function("lower", |b| b.iter(|| black_box(lower(&plan, &facts, &checked.operands))));
        group.bench_function("steps", |b| b.iter(|| black_box(device_program(&program, StepOptions::default()))));
        group.bench_function("repeatable steps", |b| {
            b.iter(|| black_box(device_program(&program, StepOptions { repeatable: true })))
        });
        group.finish();
    }
}

criterion_group!(benches, steps);
criterion_main!(benches);
