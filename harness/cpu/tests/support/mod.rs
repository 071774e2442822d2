//! Plans of all planners and of the hard cases, and how they are run.

#[path = "../../../../systems/plan/tests/hard/mod.rs"]
pub mod hard;

use hard::head_pieces::head_pieces;
use hard::long_document::{LongDocument, long_document};
use hard::ping_pong::ping_pong;
use hard::striped_ring::striped_ring;
use serde_json::{Value, json};
use skewbench_cpu::{Inputs, needles};
use skewbench_exec::{Program, lower};
use skewbench_plan::check::locate;
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, Plan, Scope};
use skewbench_systems::registry::system;

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };

pub fn shape(q_heads: u16, kv_heads: u16, head_dim: u16) -> AttentionShape {
    AttentionShape { q_heads, kv_heads, head_dim }
}

pub fn planned(name: &str, options: Value, documents: &[&[u32]], cp: u32, shape: AttentionShape) -> Plan {
    let system = system(name, options.as_object().unwrap()).unwrap();
    let planner = system.planner();
    let count = if planner.scope() == Scope::Sequence { 1 } else { documents.len() };
    let sequences: Vec<_> = documents[..count].iter().map(|d| PackedSequence::new(d.iter().copied())).collect();
    let sequences: Vec<_> = sequences.iter().collect();
    let nodes = vec![0; count * cp as usize];
    planner.plan(&Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] }).unwrap()
}

/// Plans of every planner with the options that change the shape of its plans.
pub fn of_planners(documents: &[&[u32]], cp: u32, shape: AttentionShape) -> Vec<Plan> {
    let mut plans = vec![
        planned("ulysses", json!({}), documents, cp, shape),
        planned("ring-zigzag", json!({"shard": "document"}), documents, cp, shape),
        planned("ring-zigzag", json!({"shard": "sequence"}), documents, cp, shape),
    ];
    for (resend, pieces, shards, blocks) in [(true, 2, 1, 3), (false, 3, 2, 4), (true, 4, 2, 7), (false, 1, 1, 1)] {
        let options = json!({"resend": resend, "M": pieces, "H": shards, "B": blocks});
        plans.push(planned("libra", options, documents, cp, shape));
    }
    plans
}

/// The hard cases of the plan format on these documents.
pub fn hard_cases(documents: [&[u32]; 2], ranks: u32, shape: AttentionShape) -> Vec<Plan> {
    let all: Vec<u32> = documents.concat();
    let tokens: u32 = all.iter().sum();
    let size = LongDocument { tokens, block: tokens.div_ceil(5).max(1), workers: 7, homes: 2, node: 3 };
    vec![
        striped_ring(&all, ranks, shape),
        ping_pong(documents, ranks, shape),
        long_document(size, shape),
        head_pieces(tokens, tokens.div_ceil(2), u32::from(shape.q_heads), shape),
    ]
}

/// Lowers a plan that nothing has checked.
pub fn lowered(plan: &Plan) -> Result<Program, String> {
    let facts = Facts::of(plan).map_err(|e| e.to_string())?;
    let operands = locate(plan, &facts).map_err(|e| e.to_string())?;
    lower(plan, &facts, &operands).map_err(|e| e.to_string())
}

pub fn inputs(plan: &Plan, seed: u64) -> Inputs {
    Inputs::random(&plan.sequences, plan.shape, seed).with_needles(&needles(plan, 64))
}
