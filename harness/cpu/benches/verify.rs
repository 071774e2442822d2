//! Times of a verification and its parts on one document of 2048 tokens and one of 4096, one head of 128.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use skewbench_cpu::{Inputs, RunOptions, reference, run};
use skewbench_exec::{Program, lower};
use skewbench_plan::check::locate;
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence};
use skewbench_systems::registry::system;

const SHAPE: AttentionShape = AttentionShape { q_heads: 1, kv_heads: 1, head_dim: 128 };

fn program(name: &str, tokens: u32) -> Program {
    let options = json!({});
    let system = options.as_object().and_then(|options| system(name, options).ok()).expect("a named system");
    let sequence = PackedSequence::new([tokens]);
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };
    let domain =
        Domain { sequences: &[&sequence], cp: 4, shape: SHAPE, nodes: &[0; 4], cost: &cost, time_factors: &[] };
    let plan = system.planner().plan(&domain).expect("the bench's domain can be planned");
    let facts = Facts::of(&plan).expect("planners make sound plans");
    let operands = locate(&plan, &facts).expect("planners make sound plans");
    lower(&plan, &facts, &operands).expect("planners make sound plans")
}

fn stages(c: &mut Criterion) {
    for tokens in [2048, 4096] {
        let inputs = Inputs::random(&[vec![0, tokens]], SHAPE, 1);
        let mut group = c.benchmark_group(format!("{tokens} tokens"));
        group.sample_size(10);
        group.bench_function("reference", |b| b.iter(|| black_box(reference::attention(&inputs))));
        for name in ["ring-zigzag", "libra"] {
            let program = program(name, tokens);
            group.bench_function(name, |b| b.iter(|| black_box(run(&program, &inputs, &RunOptions::default()))));
        }
        group.finish();
    }
}

criterion_group!(benches, stages);
criterion_main!(benches);
