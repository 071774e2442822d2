//! Rings and grids: every factorisation of a CP group, balance, load bounds, refusals.

mod oracle;

use oracle::interpret;
use proptest::prelude::*;
use serde_json::{Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{
    AttentionShape, Call, CallMode, Domain, Dtype, FlopsCost, Mask, PackedSequence, Pass, Plan, SystemError, Tensor,
    Work,
};
use skewbench_systems::registry::system;

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };

fn shape(kv_heads: u16, group: u16) -> AttentionShape {
    AttentionShape { q_heads: kv_heads * group, kv_heads, head_dim: 64 }
}

/// Plan and load bound of a system on ranks that fill nodes of `node` ranks.
fn planned_on(
    name: &str,
    options: &Value,
    documents: &[u32],
    (cp, node): (u32, u32),
    shape: AttentionShape,
) -> Result<(Plan, u64), SystemError> {
    let system = system(name, options.as_object().unwrap()).unwrap();
    let sequence = PackedSequence::new(documents.iter().copied());
    let nodes: Vec<u32> = (0..cp).map(|rank| rank / node).collect();
    let domain = Domain { sequences: &[&sequence], cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] };
    Ok((system.planner().plan(&domain)?, system.planner().load_bound(&domain)?))
}

fn planned(name: &str, options: &Value, documents: &[u32], cp: u32, shape: AttentionShape) -> (Plan, u64) {
    planned_on(name, options, documents, (cp, 8), shape).unwrap()
}

fn documents() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(1u32), 1u32..40, 1u32..700], 1..12),
        1 => (1u32..5000).prop_map(|window| vec![window]),
        1 => prop::collection::vec(1u32..4, 200..400),
    ]
}

/// Degrees (heads, windows, positions of a window) of a grid.
fn degrees() -> impl Strategy<Value = (u32, u32, u32)> {
    (1u32..4, 1u32..4, 1u32..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn grids_of_all_degrees_are_right_and_reach_their_bound(
        documents in documents(), (hp, windows, window) in degrees(), kv in 1u16..5, group in 1u16..5,
        head_first in any::<bool>(), by_document in any::<bool>(), ring in 0usize..3,
    ) {
        let shape = shape(kv, group);
        prop_assume!(hp <= u32::from(shape.q_heads));
        let cp = hp * windows * window;
        let shard = if by_document { "document" } else { "sequence" };
        let deal = ["basic", "zigzag", "striped"][ring];
        let placement = if head_first { "head-first" } else { "context-first" };
        let systems = [
            ("loongtrain", json!({"hp": hp, "window": window, "placement": placement, "shard": shard})),
            ("usp", json!({
                "ulysses": hp, "replicate_kv": true, "ring": deal, "ulysses_low": head_first, "shard": shard,
            })),
        ];
        for (name, options) in systems {
            let (plan, bound) = planned(name, &options, &documents, cp, shape);
            let checked = check(&plan, &Limits::default()).map(|_| ());
            prop_assert_eq!(checked, Ok(()), "{}", options);
            for pass in [Pass::Forward, Pass::Backward] {
                prop_assert_eq!(plan.load(pass).into_iter().max(), Some(bound), "{} {}", name, options);
            }
        }
    }

    /// A second opinion on small ones.
    #[test]
    fn grids_run_to_the_right_end_in_any_order(
        documents in prop::collection::vec(1u32..12, 1..4), (hp, windows, window) in degrees(), kv in 1u16..3,
        by_document in any::<bool>(), ring in 0usize..3,
    ) {
        let shape = shape(kv, 2);
        prop_assume!(hp <= u32::from(shape.q_heads));
        let cp = hp * windows * window;
        let shard = if by_document { "document" } else { "sequence" };
        let deal = ["basic", "zigzag", "striped"][ring];
        let loongtrain = json!({"hp": hp, "window": window, "shard": shard});
        let usp = json!({"ulysses": hp, "replicate_kv": true, "ring": deal, "shard": shard});
        for (name, options) in [("loongtrain", loongtrain), ("usp", usp)] {
            let (plan, _) = planned(name, &options, &documents, cp, shape);
            prop_assert_eq!(interpret(&plan, 4), Ok(()), "{} {}", name, options);
        }
    }

    #[test]
    fn rings_reach_their_bound(documents in documents(), cp in 1u32..10, by_document in any::<bool>()) {
        let shard = if by_document { "document" } else { "sequence" };
        for name in ["ring", "ring-zigzag", "ring-striped"] {
            let (plan, bound) = planned(name, &json!({"shard": shard}), &documents, cp, shape(2, 3));
            for pass in [Pass::Forward, Pass::Backward] {
                prop_assert_eq!(plan.load(pass).into_iter().max(), Some(bound), "{} by {}", name, shard);
            }
        }
    }

    /// Ranks differ by at most one row's pairs a document, and the longest row of L has L pairs.
    #[test]
    fn zigzag_by_document_differs_by_a_row_a_document(documents in documents(), cp in 1u32..33) {
        let one = shape(1, 1);
        let loads: Vec<Vec<u64>> = documents
            .iter()
            .map(|len| planned("ring-zigzag", &json!({}), &[*len], cp, one).0.load(Pass::Forward))
            .collect();
        for (load, len) in loads.iter().zip(&documents) {
            let (max, min) = (load.iter().max().unwrap(), load.iter().min().unwrap());
            prop_assert!(max - min <= u64::from(*len), "{len}: {load:?}");
        }
        let sum = |rank: usize| loads.iter().map(|load| load[rank]).sum::<u64>();
        let all = planned("ring-zigzag", &json!({}), &documents, cp, one).0.load(Pass::Forward);
        prop_assert!((0..cp as usize).map(sum).eq(all.iter().copied()));
        let tokens: u64 = documents.iter().map(|len| u64::from(*len)).sum();
        prop_assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= tokens);
    }

    /// Stripes of a document differ by at most one row's pairs, too.
    #[test]
    fn stripes_differ_by_a_row_a_document(documents in documents(), cp in 1u32..17) {
        for shard in ["document", "sequence"] {
            let (plan, _) = planned("ring-striped", &json!({"shard": shard}), &documents, cp, shape(1, 1));
            let load = plan.load(Pass::Forward);
            let tokens: u64 = documents.iter().map(|len| u64::from(*len)).sum();
            prop_assert!(load.iter().max().unwrap() - load.iter().min().unwrap() <= tokens, "{load:?}");
        }
    }
}

#[test]
fn the_naive_ring_is_uneven_and_says_so() {
    let (plan, bound) = planned("ring", &json!({}), &[8000], 8, shape(1, 1));
    let load = plan.load(Pass::Forward);
    assert!(load.is_sorted());
    assert_eq!(load[7], bound);
    // The last of 8 chunks has 15 of 64 parts of the triangle, 1.875 times its share.
    let share = bound as f64 / load.iter().sum::<u64>() as f64;
    assert!((share * 64.0 - 15.0).abs() < 0.01, "{share}");
}

#[test]
fn stripes_are_counted_in_the_document_or_in_the_sequence() {
    let rows = |shard: &str, rank: u32| -> Vec<u32> {
        let (plan, _) = planned("ring-striped", &json!({"shard": shard}), &[4, 5], 3, shape(1, 1));
        let of_rank = plan.entry.iter().filter(|shard| shard.rank == rank).map(|shard| shard.rows);
        let mut rows: Vec<u32> = of_rank.flat_map(|r| (0..r.len).map(move |i| r.start + i * r.stride)).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!((rows("sequence", 0), rows("sequence", 1)), (vec![0, 3, 6], vec![1, 4, 7]));
    assert_eq!((rows("document", 0), rows("document", 1)), (vec![0, 3, 4, 7], vec![1, 5, 8]));
}

fn masks(plan: &Plan) -> Vec<Mask> {
    let ops = plan.forward.ranks.iter().flat_map(|rank| rank.streams.iter().flatten());
    let mut masks: Vec<Mask> = ops
        .filter_map(|op| match op.work {
            Work::Launch(launch) => Some(launch.mask),
            _ => None,
        })
        .collect();
    masks.sort_unstable();
    masks.dedup();
    masks
}

#[test]
fn stripes_use_both_diagonal_masks_and_chunks_one() {
    let of = |name: &str| masks(&planned(name, &json!({}), &[90, 7], 4, shape(1, 1)).0);
    assert_eq!(of("ring-striped"), [Mask::Causal, Mask::CausalExclusive]);
    assert_eq!(of("ring-zigzag"), [Mask::Full, Mask::Causal]);
    assert_eq!(of("ring"), [Mask::Full, Mask::Causal]);
}

/// Calls of a pass that carry a tensor.
fn calls(plan: &Plan, pass: Pass, tensor: Tensor) -> Vec<&Call> {
    plan.pass(pass).calls.iter().filter(|call| call.parts.iter().any(|part| part.tensors.has(tensor))).collect()
}

#[test]
fn a_double_ring_crosses_windows_once_a_window() {
    let options = json!({"hp": 2, "window": 3, "placement": "head-first"});
    let (plan, _) = planned("loongtrain", &options, &[600], 18, shape(2, 1));
    // All-to-all, then 3 windows of 2 inner hops with 2 outer hops between them.
    assert_eq!(calls(&plan, Pass::Forward, Tensor::K).len(), 1 + 3 * 2 + 2);
    let sums = calls(&plan, Pass::Backward, Tensor::DK);
    assert_eq!(sums.len(), 3 * 2 + 2 + 1);
    let in_f32 = sums.iter().filter(|call| call.mode == CallMode::Accumulate && call.dtype == Dtype::F32).count();
    assert_eq!(in_f32, 3 * 2 + 2);
    let window = |rank: u32| rank / 2 / 3;
    let crosses = |call: &&&Call| {
        let moves = call.parts.iter().flat_map(|part| &plan.backward.moves[part.moves.range()]);
        moves.clone().all(|mv| window(mv.from) != window(mv.to)) || {
            assert!(
                moves.clone().all(|mv| window(mv.from) == window(mv.to)),
                "a call is inside windows or between them"
            );
            false
        }
    };
    assert_eq!(sums.iter().filter(crosses).count(), 2);
    // Keys inside and between windows, and sums inside and between windows, have streams of their own.
    assert_eq!(plan.backward.ranks[0].streams.len(), 5);
    assert_eq!(plan.forward.ranks[0].streams.len(), 3);
}

#[test]
fn placement_says_whose_ranks_are_neighbours() {
    let scatter = |placement: &str| -> Vec<(u32, u32)> {
        let options = json!({"hp": 2, "placement": placement});
        let (plan, _) = planned("loongtrain", &options, &[64], 4, shape(2, 1));
        let parts = &plan.forward.calls[0].parts;
        let moves = parts.iter().flat_map(|part| &plan.forward.moves[part.moves.range()]);
        let mut pairs: Vec<(u32, u32)> = moves.map(|mv| (mv.from, mv.to)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    };
    assert_eq!(scatter("head-first"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3)]);
    assert_eq!(scatter("context-first"), [(0, 0), (0, 2), (1, 1), (1, 3), (2, 0), (2, 2), (3, 1), (3, 3)]);
}

/// Ranks that the first rank sends to in the first call: the size of its Ulysses group, 1 without an all-to-all.
fn head_degree(name: &str, options: Value, cp: (u32, u32), shape: AttentionShape) -> usize {
    let (plan, _) = planned_on(name, &options, &[5000], cp, shape).unwrap();
    let first = &plan.forward.calls[0].parts;
    if !first[0].tensors.has(Tensor::Q) { 1 } else { first.len() }
}

#[test]
fn automatic_degrees_fit_heads_and_nodes() {
    let wide = shape(4, 8);
    let usp = |options, cp| head_degree("usp", options, cp, wide);
    assert_eq!(usp(json!({}), (16, 8)), 4);
    assert_eq!(usp(json!({}), (16, 2)), 2);
    assert_eq!(usp(json!({}), (9, 8)), 1);
    assert_eq!(usp(json!({"replicate_kv": true}), (16, 8)), 8);
    let loongtrain = |cp| head_degree("loongtrain", json!({}), cp, wide);
    assert_eq!((loongtrain((16, 8)), loongtrain((16, 16)), loongtrain((12, 4))), (8, 16, 4));
    let (plan, _) = planned("loongtrain", &json!({}), &[5000], 16, wide);
    assert_eq!(plan.accounting.replicated_kv_heads, 4);
    // Rings of 9 in windows of 3, of 8 in windows of 2, of 7 in one ring.
    for (cp, streams) in [(9, 3), (8, 3), (7, 2)] {
        let (plan, _) = planned("loongtrain", &json!({"hp": 1}), &[5000], cp, wide);
        assert_eq!(plan.forward.ranks[0].streams.len(), streams, "cp = {cp}");
    }
}

#[test]
fn degrees_that_do_not_fit_are_refused() {
    let refused = |name: &str, options: Value, cp| {
        planned_on(name, &options, &[100], (cp, 8), shape(2, 3)).unwrap_err().to_string()
    };
    let message = refused("usp", json!({"ulysses": 4}), 6);
    assert!(message.contains("ulysses = 4") && message.contains("does not divide cp = 6"), "{message}");
    let message = refused("usp", json!({"U": 3}), 6);
    assert!(message.contains("ulysses = 3") && message.contains("set replicate_kv = true"), "{message}");
    let message = refused("usp", json!({"ulysses": 8, "replicate_kv": true}), 8);
    assert!(message.contains("is above the 6 query heads"), "{message}");
    let message = refused("loongtrain", json!({"hp": 4}), 6);
    assert!(message.contains("hp = 4") && message.contains("does not divide cp = 6"), "{message}");
    let message = refused("loongtrain", json!({"hp": 8}), 8);
    assert!(message.contains("is above the 6 query heads"), "{message}");
    let message = refused("loongtrain", json!({"hp": 2, "w": 3}), 8);
    assert!(message.contains("window = 3") && message.contains("does not divide the 4 positions"), "{message}");
    let message = refused("ring", json!({}), 20_000);
    assert!(message.contains("a ring of 20000 ranks") && message.contains("use shorter rings"), "{message}");
}
