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
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, CallMode, Domain, FlopsCost, PackedSequence, Pass, Plan, Scope};
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
    planner.plan(&Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] }).unwrap()
}

/// Small plans of all planners and of the hard cases.
fn plans(documents: &[&[u32]; 2], cp: u32, shape: AttentionShape) -> Vec<Plan> {
    let all: Vec<u32> = documents.concat();
    let tokens: u32 = all.iter().sum();
    let size = LongDocument { tokens, block: tokens.div_ceil(4).max(1), workers: 4, homes: 2, node: 2 };
    let libra = |options| planned("libra", options, documents, cp, shape);
    vec![
        planned("ulysses", json!({}), documents, cp, shape),
        planned("ring", json!({}), documents, cp, shape),
        planned("ring-zigzag", json!({"shard": "document"}), documents, cp, shape),
        planned("ring-zigzag", json!({"shard": "sequence"}), documents, cp, shape),
        planned("wlb", json!({"sharding": "document"}), documents, cp, shape),
        planned("wlb", json!({"sharding": "sequence", "gather": "needed", "regather": true}), documents, cp, shape),
        planned("ring-striped", json!({"shard": "document"}), documents, cp, shape),
        planned("ring-striped", json!({"shard": "sequence"}), documents, cp, shape),
        libra(json!({"resend": true, "M": 2, "H": 1, "B": 3})),
        libra(json!({"resend": false, "M": 3, "H": 2, "B": 4})),
        planned("distca-pool", json!({"M": 2, "B": 3}), documents, cp, shape),
        planned("distca", json!({"tolerance": 0.0}), documents, cp, shape),
        planned("distca", json!({"tolerance": 0.0, "resend_qkv": false, "ping_pong": false}), documents, cp, shape),
        planned("libra-calibrated", json!({"resend": true, "M": 2}), documents, cp, shape),
        planned("libra-calibrated", json!({"resend": false, "H": 1}), documents, cp, shape),
        striped_ring(&all, cp, shape),
        ping_pong(*documents, cp, shape),
        long_document(size, shape),
        head_pieces(tokens, tokens.div_ceil(2), u32::from(shape.q_heads), shape),
    ]
}

/// A mutation without its numbers.
fn kind(what: &str) -> String {
    what.replace(|c: char| c.is_ascii_digit(), "")
}

/// What the checker may say about the mutations of a kind that must all be refused, by a part of the kind's name.
const MUST_BE_REFUSED: &[(&str, &[&str])] = &[
    (": tile  deleted", &["by no tile", "no tile computes it"]),
    (": tile  doubled", &["more than once"]),
    ("tile  q one row", &["diagonal", "causality", "outside its document", "no tile", "more than once", "sequence"]),
    ("tile  k one row", &["diagonal", "causality", "outside its document", "no tile", "more than once", "sequence"]),
    ("launch : heads", &["query heads", "more than once"]),
    ("launch : Causal", &["diagonal"]),
    ("(launch) deleted", &["by no tile", "no tile computes it"]),
    ("(launch) doubled", &["more than once"]),
    ("(post) deleted", &["but does not post it"]),
    ("(post) doubled", &["posts call"]),
    ("call : another mode", &["cannot travel in a call of this mode"]),
    ("shard  deleted", &["layout holds"]),
    ("shard  doubled", &["layout holds"]),
    ("shard  one row", &["layout holds", "layout: sequence"]),
];

/// Checks all mutants of a plan: the checker refuses them, with the right message where one kind has only one, or the
/// interpreter finds nothing wrong with them either.
fn survey(plan: &Plan, harmless: &mut BTreeMap<String, usize>) -> Vec<String> {
    check(plan, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
    interpret(plan, 8).unwrap_or_else(|e| panic!("{}: {e}", plan.planner));
    let all = [Pass::Forward, Pass::Backward].into_iter().flat_map(|pass| mutants(plan, pass));
    let mut faults = Vec::new();
    for (what, mutant) in all.chain(layout_mutants(plan)) {
        let kind = kind(&what);
        let expected = MUST_BE_REFUSED.iter().find(|(name, _)| kind.contains(name)).map(|(_, messages)| *messages);
        match (check(&mutant, &Limits::default()), expected) {
            (Err(_), None) => {}
            (Err(error), Some(messages)) => {
                let error = error.to_string();
                if !messages.iter().any(|m| error.contains(m)) {
                    faults.push(format!("{}: {what}: refused with the wrong message: {error}", plan.planner));
                }
            }
            (Ok(_), _) => match interpret(&mutant, 12) {
                Ok(()) => *harmless.entry(kind).or_default() += 1,
                Err(error) => faults.push(format!("{}: {what}: accepted, but {error}", plan.planner)),
            },
        }
    }
    faults
}

/// Tiles and contributions must never be harmless to lose; copies may be, where a ring forwards what nobody reads.
fn may_be_harmless(kind: &str) -> bool {
    !MUST_BE_REFUSED.iter().any(|(name, _)| kind.contains(name))
}

#[test]
fn every_single_change_is_refused_or_harmless() {
    let mut harmless = BTreeMap::new();
    let mut faults = Vec::new();
    let domains = [([&[5, 1, 4][..], &[3, 2][..]], 2, shape(4, 2)), ([&[7][..], &[1, 1, 4][..]], 3, shape(2, 1))];
    for (documents, cp, shape) in domains {
        for plan in plans(&documents, cp, shape) {
            faults.extend(survey(&plan, &mut harmless));
        }
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
    let surprising: Vec<_> = harmless.iter().filter(|(kind, _)| !may_be_harmless(kind)).collect();
    assert!(surprising.is_empty(), "{surprising:?}");
}

/// Small plans of grids, which need more ranks than the others.
fn grids() -> Vec<Plan> {
    let usp = |options, documents, shape| planned("usp", options, &[documents], 4, shape);
    let loongtrain = |options, cp, documents| planned("loongtrain", options, &[documents], cp, shape(2, 1));
    vec![
        usp(json!({"ulysses": 2, "ring": "zigzag"}), &[4, 1, 2], shape(2, 2)),
        usp(json!({"ulysses": 2, "ring": "striped", "replicate_kv": true}), &[3, 4], shape(2, 1)),
        usp(json!({"ulysses": 2, "ring": "basic", "ulysses_low": false, "shard": "sequence"}), &[4, 2], shape(4, 2)),
        loongtrain(json!({"hp": 1, "window": 2}), 4, &[6, 1, 3]),
        loongtrain(json!({"hp": 2, "window": 2, "placement": "context-first"}), 8, &[5, 1]),
    ]
}

#[test]
fn every_single_change_of_a_grid_is_refused_or_harmless() {
    let mut harmless = BTreeMap::new();
    let faults: Vec<String> = grids().iter().flat_map(|plan| survey(plan, &mut harmless)).collect();
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
    let surprising: Vec<_> = harmless.iter().filter(|(kind, _)| !may_be_harmless(kind)).collect();
    assert!(surprising.is_empty(), "{surprising:?}");
}

#[test]
fn chains_of_changes_of_a_grid_are_refused_or_harmless() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for plan in grids() {
        for _ in 0..4 {
            assert_eq!(wander(&plan, &mut rng, 6), Ok(()));
        }
    }
}

/// Changes one element after another as long as the checker accepts the plan: several changes that hide each other.
fn wander(plan: &Plan, rng: &mut ChaCha8Rng, steps: u32) -> Result<(), String> {
    let mut plan = plan.clone();
    let mut done = Vec::new();
    for _ in 0..steps {
        let pass = if rng.random() { Pass::Forward } else { Pass::Backward };
        let all = mutants(&plan, pass);
        let mut tries = (0..60).map(|_| &all[rng.random_range(0..all.len())]);
        let Some((what, next)) = tries.find(|(_, p)| check(p, &Limits::default()).is_ok()) else { break };
        done.push(what.clone());
        interpret(next, 8).map_err(|e| format!("{}: {}: accepted, but {e}", plan.planner, done.join("; ")))?;
        plan = next.clone();
    }
    Ok(())
}

fn documents() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1u32..7, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn chains_of_changes_are_refused_or_harmless(
        first in documents(), second in documents(), cp in 2u32..4, kv in 1u16..3, group in 1u16..3, seed in any::<u64>(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for plan in plans(&[&first, &second], cp, shape(kv * group, kv)) {
            prop_assert_eq!(check(&plan, &Limits::default()).map(|_| ()), Ok(()));
            prop_assert_eq!(interpret(&plan, 4), Ok(()), "{}", plan.planner);
            prop_assert_eq!(wander(&plan, &mut rng, 6), Ok(()));
        }
    }
}

/// Refusals of all mutants of one kind of a planner's plan.
fn refusals(plan: &Plan, pass: Pass, of_kind: &str) -> Vec<String> {
    let of_kind = mutants(plan, pass).into_iter().filter(|(what, _)| kind(what).contains(of_kind));
    of_kind.filter_map(|(_, mutant)| Some(check(&mutant, &Limits::default()).err()?.to_string())).collect()
}

#[test]
fn messages_name_what_is_broken_in_the_plans_of_every_planner() {
    let documents = [&[96, 9, 15, 1, 1, 1, 1, 1][..], &[24, 2, 1, 1, 1, 1, 1, 1, 1][..]];
    for plan in plans(&documents, 3, shape(6, 3)) {
        let name = &plan.planner;
        for (pass, tensor) in [(Pass::Forward, "O of sequence"), (Pass::Backward, "of sequence")] {
            let some = |kind: &str, parts: &[&str]| {
                let found = refusals(&plan, pass, kind);
                let hit = found.iter().any(|error| parts.iter().all(|part| error.contains(part)));
                assert!(hit, "{name} {pass:?} {kind}: {found:#?}");
            };
            // What the forward has kept need not arrive again.
            if plan.pass(pass).calls.iter().any(|call| call.mode == CallMode::Copy) {
                some(
                    ": dependency  removed",
                    &["rank ", "the launch at operation 0.", "nothing makes it wait for that call"],
                );
                some("(Copy) part : move  deleted", &["rank ", " starts before ", "rows ", "heads "]);
            }
            // In the forward of a ring results never leave home.
            if plan.pass(pass).calls.iter().any(|call| call.mode == CallMode::Accumulate) {
                let place = ["rank ", tensor, "rows ", "heads "];
                let with = |more| place.into_iter().chain([more]).collect::<Vec<_>>();
                some("(Accumulate) part : move  deleted", &with("a contribution is missing"));
                some("(Accumulate) part : move  to ", &with("a contribution is missing"));
                some("(Accumulate) part  deleted", &with("a contribution is missing"));
                some(
                    ": dependency  removed",
                    &with(if name == "ulysses" { "does not wait for" } else { "not ordered" }),
                );
                some("(Accumulate) part  doubled", &["rank ", tensor, "rows ", "heads "]);
            }
        }
    }
}

#[test]
fn peak_memory_is_a_limit() {
    for plan in plans(&[&[40, 9, 15], &[30, 2]], 3, shape(6, 3)) {
        let peaks = check(&plan, &Limits::default()).unwrap().peak_bytes;
        let most = *peaks.iter().max().unwrap();
        let rank = peaks.iter().position(|peak| *peak == most).unwrap();
        let error = check(&plan, &Limits { memory_bytes: Some(most - 1) }).unwrap_err().to_string();
        assert!(error.contains(&format!("rank {rank} holds {most} bytes at its peak")), "{error}");
        assert!(check(&plan, &Limits { memory_bytes: Some(most) }).is_ok());
    }
}
