//! Where programs keep results, and what they do to bring them home.

#[path = "../../../systems/plan/tests/hard/mod.rs"]
mod hard;

use std::collections::BTreeSet;

use hard::head_pieces::head_pieces;
use hard::long_document::{LongDocument, long_document};
use hard::ping_pong::ping_pong;
use hard::striped_ring::striped_ring;
use proptest::prelude::*;
use serde_json::{Value, json};
use skewbench_exec::{Buffer, BufferKind, InstrKind, PassProgram, Program, RankProgram, Schedule, View, lower};
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{
    AttentionShape, Domain, Dtype, Facts, FlopsCost, HeadRange, PackedSequence, Pass, Plan, Scope, Tensor,
};
use skewbench_systems::registry::system;

fn shape(q_heads: u16, kv_heads: u16) -> AttentionShape {
    AttentionShape { q_heads, kv_heads, head_dim: 32 }
}

fn lowered(plan: &Plan) -> Program {
    let facts = Facts::of(plan).unwrap();
    let checked = check_facts(plan, &facts, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
    lower(plan, &facts, &checked.operands).unwrap()
}

fn planned(name: &str, options: Value, documents: &[&[u32]], cp: u32, shape: AttentionShape) -> Program {
    let system = system(name, options.as_object().unwrap()).unwrap();
    let planner = system.planner();
    let count = if planner.scope() == Scope::Sequence { 1 } else { documents.len() };
    let sequences: Vec<_> = documents[..count].iter().map(|d| PackedSequence::new(d.iter().copied())).collect();
    let sequences: Vec<_> = sequences.iter().collect();
    let nodes = vec![0; count * cp as usize];
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };
    let domain = Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &cost, time_factors: &[] };
    lowered(&planner.plan(&domain).unwrap())
}

fn programs(documents: [&[u32]; 2], cp: u32, shape: AttentionShape) -> Vec<Program> {
    let all: Vec<u32> = documents.concat();
    let tokens: u32 = all.iter().sum();
    let size = LongDocument { tokens, block: tokens.div_ceil(5).max(1), workers: 7, homes: 2, node: 3 };
    let planned = |name, options| planned(name, options, &documents, cp, shape);
    vec![
        planned("ulysses", json!({})),
        planned("ring-zigzag", json!({"shard": "document"})),
        planned("ring-zigzag", json!({"shard": "sequence"})),
        planned("libra", json!({"resend": true, "M": 2, "H": 1, "B": 3})),
        planned("libra", json!({"resend": false, "M": 3, "H": 2, "B": 4})),
        lowered(&striped_ring(&all, cp, shape)),
        lowered(&ping_pong(documents, cp, shape)),
        lowered(&long_document(size, shape)),
        lowered(&head_pieces(tokens, tokens.div_ceil(2), u32::from(shape.q_heads), shape)),
    ]
}

fn of_kind(rank: &RankProgram, kind: BufferKind) -> Vec<&Buffer> {
    rank.buffers.iter().filter(|b| b.kind == kind).collect()
}

fn tensors(buffers: &[&Buffer]) -> Vec<Tensor> {
    buffers.iter().map(|b| b.tensor).collect()
}

fn casts(rank: &RankProgram) -> Vec<u64> {
    let instrs = rank.streams.iter().flatten();
    instrs
        .filter_map(|i| match i.kind {
            InstrKind::Cast { bytes } => Some(bytes),
            _ => None,
        })
        .collect()
}

#[test]
fn rings_sum_in_f32_at_home_and_cast_once() {
    let program = planned("ring-zigzag", json!({}), &[&[64, 32]], 4, shape(4, 2));
    for (pass, summed) in [(Pass::Forward, vec![Tensor::O]), (Pass::Backward, vec![Tensor::DQ, Tensor::DK, Tensor::DV])]
    {
        for rank in &program.pass(pass).ranks {
            let sums = of_kind(rank, BufferKind::Sum);
            assert_eq!(tensors(&sums), summed);
            assert!(sums.iter().all(|b| b.dtype == Dtype::F32));
            assert_eq!(casts(rank), [sums.iter().map(|b| b.bytes).sum::<u64>()]);
            let exits = of_kind(rank, BufferKind::Exit);
            let rounded = exits.iter().find(|b| b.tensor == summed[0]);
            assert_eq!(rounded.map(|b| (b.dtype, b.bytes * 2)), Some((Dtype::Bf16, sums[0].bytes)));
        }
    }
    // LSE follows the O that tiles add to.
    for rank in &program.forward.ranks {
        let sum = rank.buffers.iter().position(|b| b.kind == BufferKind::Sum).unwrap();
        let lse = &rank.buffers[sum + 1];
        assert_eq!((lse.kind, lse.tensor), (BufferKind::Exit, Tensor::Lse));
    }
}

#[test]
fn what_is_final_goes_straight_to_the_exit_buffers() {
    let program = planned("ulysses", json!({}), &[&[64, 32]], 2, shape(4, 2));
    for rank in program.forward.ranks.iter().chain(&program.backward.ranks) {
        assert!(of_kind(rank, BufferKind::Sum).is_empty() && casts(rank).is_empty());
    }
    // KV heads that several ranks read are summed, O and dQ are not.
    let program = planned("ulysses", json!({}), &[&[64, 32]], 4, shape(4, 2));
    for (forward, backward) in program.forward.ranks.iter().zip(&program.backward.ranks) {
        assert!(of_kind(forward, BufferKind::Sum).is_empty());
        assert_eq!(tensors(&of_kind(backward, BufferKind::Sum)), [Tensor::DK, Tensor::DV]);
        assert_eq!(casts(backward), [24 * 2 * 2 * 32 * 4]);
    }
}

#[test]
fn sums_that_pass_through_a_rank_have_a_buffer_there() {
    let program = lowered(&striped_ring(&[40, 9], 3, shape(2, 1)));
    for (rank, body) in (0u32..).zip(&program.backward.ranks) {
        for table in &program.backward.routes {
            for mv in table.index.received(rank).iter().map(|i| &table.moves[*i as usize]) {
                let place = |row| {
                    let home = body.home(Tensor::DK, 0, mv.seq, row);
                    home.or_else(|| body.accumulator(Tensor::DK, 0, mv.seq, row))
                };
                let gradients = program.backward.calls.iter().flat_map(|c| &c.parts).any(|p| {
                    p.tensors.has(Tensor::DK) && std::ptr::eq(&program.backward.routes[p.routes as usize], table)
                });
                let mut rows = (0..mv.rows.len).map(|i| mv.rows.start + i * mv.rows.stride);
                assert!(!gradients || rows.all(|row| place(row).is_some()), "rank {rank}: {mv:?}");
            }
        }
    }
}

/// Every row and head that launches of a rank write in place, in a buffer that is not summed, is written once.
fn written_once(program: &PassProgram, pass: Pass, rank: &RankProgram) -> Result<(), String> {
    let mut written = BTreeSet::new();
    for instr in rank.streams.iter().flatten() {
        let InstrKind::Launch { tiles, q_heads, kv_heads, .. } = instr.kind else { continue };
        for tile in &program.tiles[tiles.range()] {
            let mut results = vec![(tile.o, tile.q_rows, q_heads)];
            if pass == Pass::Backward {
                results = vec![(tile.dq, tile.q_rows, q_heads), (tile.dk, tile.k_rows, kv_heads)];
            }
            for (View { buffer, row }, rows, heads) in results {
                let HeadRange { start, end } = heads;
                match rank.buffers[buffer as usize].kind {
                    BufferKind::Accumulator | BufferKind::Sum => {}
                    BufferKind::Exit => {
                        for place in (row..row + rows).flat_map(|row| (start..end).map(move |h| (buffer, row, h))) {
                            if !written.insert(place) {
                                return Err(format!("{place:?} is written twice"));
                            }
                        }
                    }
                    other => return Err(format!("a result lies in a buffer of kind {other:?}")),
                }
            }
        }
    }
    Ok(())
}

fn documents() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![Just(1u32), 1u32..40], 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn exit_buffers_beside_no_sum_get_one_contribution_a_row(
        first in documents(), second in documents(), cp in 1u32..6, (kv, group) in (1u16..4, 1u16..4),
    ) {
        for program in programs([&first, &second], cp, shape(kv * group, kv)) {
            for pass in [Pass::Forward, Pass::Backward] {
                let table = program.pass(pass);
                prop_assert!(Schedule::of(table).is_ok());
                for rank in &table.ranks {
                    prop_assert_eq!(written_once(table, pass, rank), Ok(()));
                    let sums: u64 = of_kind(rank, BufferKind::Sum).iter().map(|b| b.bytes).sum();
                    prop_assert_eq!(casts(rank).iter().sum::<u64>(), sums);
                }
            }
        }
    }
}
