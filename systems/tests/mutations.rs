//! The checker refuses every broken plan: named mutations with the message that they must get, and all plans that differ
//! from a good one in a single element, against an independent interpreter.

#[path = "../plan/tests/hard/mod.rs"]
mod hard;
mod mutants;
mod oracle;

use std::collections::BTreeMap;

use hard::head_pieces::head_pieces;
use hard::long_document::{LongDocument, long_document};
use hard::ping_pong::ping_pong;
use hard::striped_ring::striped_ring;
use mutants::{layout_mutants, mutants};
use oracle::interpret;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Pass, Plan, Scope};
use skewbench_systems::registry::system;

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };

fn shape(q_heads: u16, kv_heads: u16) -> AttentionShape {
    AttentionShape { q_heads, kv_heads, head_dim: 64 }
}

fn planned(name: &str, options: Value, documents: &[&[u32]], cp: u32, shape: AttentionShape) -> Plan {
    let system = system(name, options.as_object().unwrap()).unwrap();
    let planner = system.planner();
    let count = if planner.scope() == Scope::Sequence { 1 } else { documents.len() };
    let sequences: Vec<_> = documents[..count].iter().map(|d| PackedSequence::new(d.iter().copied())).collect();
    let sequences: Vec<_> = sequences.iter().collect();
    let nodes = vec![0; count * cp as usize];
    planner.plan(&Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST }).unwrap()
}

/// Small plans of all planners and of the hard cases.
fn plans(documents: &[&[u32]; 2], cp: u32, shape: AttentionShape) -> Vec<Plan> {
    let all: Vec<u32> = documents.concat();
    let tokens: u32 = all.iter().sum();
    let size = LongDocument { tokens, block: tokens.div_ceil(4).max(1), workers: 4, homes: 2, node: 2 };
    let libra = |options| planned("libra", options, documents, cp, shape);
    vec![
        planned("ulysses", json!({}), documents, cp, shape),
        planned("ring-zigzag", json!({"shard": "document"}), documents, cp, shape),
        planned("ring-zigzag", json!({"shard": "sequence"}), documents, cp, shape),
        libra(json!({"resend": true, "M": 2, "H": 1, "B": 3})),
        libra(json!({"resend": false, "M": 3, "H": 2, "B": 4})),
        striped_ring(&all, cp, shape),
        ping_pong(*documents, cp, shape),
        long_document(size, shape),
        head_pieces(tokens, tokens.div_ceil(2), u32::from(shape.q_heads), shape),
    ]
}

/// Accepted mutants of one plan that the interpreter finds wrong.
fn holes(plan: &Plan, harmless: &mut BTreeMap<String, usize>) -> Vec<String> {
    interpret(plan, 4).unwrap_or_else(|e| panic!("{}: {e}", plan.planner));
    check(plan, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
    let all = [Pass::Forward, Pass::Backward].into_iter().flat_map(|pass| mutants(plan, pass));
    let mut holes = Vec::new();
    for (what, mutant) in all.chain(layout_mutants(plan)) {
        if check(&mutant, &Limits::default()).is_err() {
            continue;
        }
        match interpret(&mutant, 12) {
            Ok(()) => *harmless.entry(kind(plan, &what)).or_default() += 1,
            Err(error) => holes.push(format!("{}: {what}: {error}", plan.planner)),
        }
    }
    holes
}

/// A mutation without its numbers.
fn kind(plan: &Plan, what: &str) -> String {
    format!("{}: {}", plan.planner, what.replace(|c: char| c.is_ascii_digit(), "#"))
}

#[test]
fn every_single_change_is_refused_or_harmless() {
    let mut harmless = BTreeMap::new();
    let mut found = Vec::new();
    for (documents, cp, shape) in
        [([&[5, 1, 4][..], &[3, 2][..]], 2, shape(4, 2)), ([&[7][..], &[1, 1, 4][..]], 3, shape(2, 1))]
    {
        for plan in plans(&documents, cp, shape) {
            found.extend(holes(&plan, &mut harmless));
        }
    }
    for (kind, count) in &harmless {
        println!("{count:5} {kind}");
    }
    assert!(found.is_empty(), "{} holes:\n{}", found.len(), found.join("\n"));
}

/// Chains of changes, each of which alone the checker accepts.
fn wander(plan: &Plan, seed: u64, steps: u32) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut plan = plan.clone();
    let mut done = Vec::new();
    for _ in 0..steps {
        let pass = if rng.random() { Pass::Forward } else { Pass::Backward };
        let all = mutants(&plan, pass);
        let mut tries = (0..60).map(|_| all[rng.random_range(0..all.len())].clone());
        let Some((what, next)) = tries.find(|(_, p)| check(p, &Limits::default()).is_ok()) else { break };
        done.push(what);
        interpret(&next, 8).map_err(|e| format!("{}: {}: {e}", plan.planner, done.join("; ")))?;
        plan = next;
    }
    Ok(())
}

#[test]
fn chains() {
    let mut found = Vec::new();
    for seed in 0..60u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed + 1000);
        let mut docs = || -> Vec<u32> { let n = rng.random_range(1..4); (0..n).map(|_| rng.random_range(1..7)).collect() };
        let (a, b) = (docs(), docs());
        let (kv, group) = (rng.random_range(1..3u16), rng.random_range(1..3u16));
        let cp = rng.random_range(2..4);
        for plan in plans(&[&a, &b], cp, shape(kv * group, kv)) {
            if let Err(e) = check(&plan, &Limits::default()) { found.push(format!("base {e}")); continue; }
            if let Err(e) = interpret(&plan, 4) { found.push(format!("base {}: {e}", plan.planner)); continue; }
            if let Err(e) = wander(&plan, seed, 8) { found.push(e); }
        }
    }
    for f in &found { println!("HOLE {f}"); }
    assert!(found.is_empty());
}
