//! The four hard cases that the plan format must express, built by hand, accepted by the checker and complete.
//!
//! | case | what is hard about it |
//! |---|---|
//! | [`striped_ring`] | strided rows, exclusive diagonals, transfers that forward what was received, sums that follow a ring |
//! | [`ping_pong`] | two micro-batches whose transfers hide under each other's attention and linear work |
//! | [`long_document`] | 1M tokens, 84 workers, 16 homes; all results are partial sums that are reduced on arrival |
//! | [`head_pieces`] | eight head pieces on two KV heads: keys come with the first reader, their gradients leave with the last |

mod hard;

use hard::head_pieces::head_pieces;
use hard::long_document::{LongDocument, long_document};
use hard::ping_pong::ping_pong;
use hard::striped_ring::striped_ring;
use skewbench_plan::check::{Checked, Limits, check};
use skewbench_plan::{
    AttentionShape, COMPUTE, CallMode, Dtype, Mask, OpId, Part, Pass, PassPlan, Plan, Tensor, TensorSet, Work,
    causal_pairs,
};

fn shape(q_heads: u16, kv_heads: u16) -> AttentionShape {
    AttentionShape { q_heads, kv_heads, head_dim: 128 }
}

/// Checks a plan, its load, and that nothing is lost in JSON.
fn accept(plan: &Plan) -> Checked {
    let checked = check(plan, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
    let documents = plan.sequences.iter().flat_map(|bounds| bounds.windows(2)).map(|d| d[1] - d[0]);
    let work: u64 = documents.map(causal_pairs).sum::<u64>() * u64::from(plan.shape.q_heads);
    for pass in [Pass::Forward, Pass::Backward] {
        assert_eq!(plan.load(pass).iter().sum::<u64>(), work, "{pass:?}");
    }
    let text = serde_json::to_string(plan).unwrap();
    let parsed: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(&parsed, plan);
    assert_eq!(check(&parsed, &Limits::default()).unwrap().peak_bytes, checked.peak_bytes);
    checked
}

fn refuse(plan: &Plan) -> String {
    check(plan, &Limits::default()).expect_err("the checker accepts a broken plan").to_string()
}

fn launches(table: &PassPlan, rank: usize) -> impl Iterator<Item = (Mask, OpId)> + '_ {
    (0..).zip(&table.ranks[rank].streams[usize::from(COMPUTE)]).filter_map(|(index, op)| match op.work {
        Work::Launch(launch) => Some((launch.mask, OpId { stream: COMPUTE, index })),
        _ => None,
    })
}

#[test]
fn a_striped_ring_forwards_keys_and_brings_their_gradients_home() {
    for documents in [&[64u32][..], &[5, 1, 40, 2, 17, 3], &[1; 9], &[3]] {
        for ranks in [1, 2, 4, 7] {
            accept(&striped_ring(documents, ranks, shape(4, 2)));
        }
    }
    let plan = striped_ring(&[4096, 513, 2, 9000], 8, shape(8, 2));
    accept(&plan);
    for mask in [Mask::Causal, Mask::CausalExclusive] {
        assert!((0..8).all(|rank| launches(&plan.forward, rank).any(|(m, _)| m == mask)), "{mask:?}");
    }
    let loads = plan.load(Pass::Forward);
    let (max, min) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
    assert!((max - min) * 100 < *max, "stripes balance: {loads:?}");
}

#[test]
fn a_striped_ring_cannot_forward_what_has_not_arrived() {
    let mut plan = striped_ring(&[40, 9], 3, shape(2, 1));
    // The second hop of rank 1 on a stream of its own, with nothing that makes it wait for the first.
    let streams = &mut plan.forward.ranks[1].streams;
    let hop = streams[1].pop().unwrap();
    streams.push(vec![hop]);
    for op in &mut plan.forward.ranks[1].streams[0] {
        for dep in &mut op.after {
            if *dep == (OpId { stream: 1, index: 1 }) {
                *dep = OpId { stream: 2, index: 0 };
            }
        }
    }
    let error = refuse(&plan);
    assert!(error.contains("rank 1: call 1 starts before K of sequence 0"), "{error}");
    assert!(error.contains("call 0 brings them, but nothing makes it wait"), "{error}");
}

#[test]
fn ping_pong_hides_each_micro_batch_under_the_other() {
    accept(&ping_pong([&[3, 30, 1, 14], &[25, 2]], 3, shape(4, 4)));
    let plan = ping_pong([&[900, 3000, 96, 100], &[2048, 1048, 500, 500]], 4, shape(8, 2));
    accept(&plan);
    let table = &plan.forward;
    for rank in &table.ranks {
        let compute = &rank.streams[usize::from(COMPUTE)];
        let batches: Vec<u16> = compute.iter().map(|op| op.micro_batch).collect();
        assert_eq!(batches, [0, 1, 0, 1, 0, 1]);
        let kinds: Vec<bool> = compute.iter().map(|op| matches!(op.work, Work::Linear { .. })).collect();
        assert_eq!(kinds, [true, true, false, false, true, true]);
        // A transfer waits for work of its own micro-batch only, and that is never the operation before the other's.
        for op in rank.streams[1..].iter().flatten() {
            assert!(op.after.iter().all(|dep| compute[dep.index as usize].micro_batch == op.micro_batch));
        }
        for (index, op) in compute.iter().enumerate().filter(|(_, op)| !op.after.is_empty()) {
            assert!(op.after.iter().all(|dep| {
                let waited = &rank.streams[usize::from(dep.stream)][dep.index as usize];
                waited.micro_batch == op.micro_batch && waited.after.iter().all(|d| (d.index as usize) + 1 < index)
            }));
        }
    }
}

const LONG: LongDocument = LongDocument { tokens: 1 << 20, block: 1 << 15, workers: 84, homes: 16, node: 8 };

#[test]
fn a_million_tokens_on_84_workers_reduce_on_arrival_at_16_homes() {
    let small = LongDocument { tokens: 45, block: 6, workers: 11, homes: 3, node: 4 };
    accept(&long_document(small, shape(4, 2)));
    let plan = long_document(LONG, shape(32, 4));
    let checked = accept(&plan);
    assert_eq!(plan.entry.iter().map(|s| s.rank).max(), Some(15));
    assert!(plan.load(Pass::Backward).iter().all(|load| *load > 0));
    for (pass, tensor) in [(Pass::Forward, Tensor::O), (Pass::Backward, Tensor::DQ), (Pass::Backward, Tensor::DK)] {
        let table = plan.pass(pass);
        let sums = table.calls.iter().filter(|c| c.mode == CallMode::Accumulate);
        let mut sums = sums.filter(|c| c.parts.iter().any(|p| p.tensors.has(tensor)));
        assert!(sums.all(|c| c.dtype == Dtype::F32), "{tensor:?}");
    }
    // A home reduces what one call brings before the next one ends, and never holds all of it.
    let table = &plan.backward;
    for home in 0..16 {
        let arrivals = table.calls.iter().filter(|call| call.mode == CallMode::Accumulate).map(|call| {
            let bytes = |part: &Part| {
                let rows = table.moves[part.moves.range()].iter().filter(|mv| mv.to == home);
                rows.map(|mv| u64::from(mv.rows.len)).sum::<u64>() * part.row_bytes(128, call.dtype)
            };
            call.parts.iter().map(bytes).sum::<u64>()
        });
        let (all, most) = arrivals.fold((0, 0), |(all, most), bytes| (all + bytes, bytes.max(most)));
        assert!(all > most + most / 2, "home {home}: {all} bytes in all, {most} at once");
        let peak = checked.peak_bytes[home as usize];
        // Inputs, outputs and the operands of all its launches at once, since the meter runs transfers as early as they can.
        assert!(peak < 13 << 30, "home {home}: {peak} bytes");
    }
}

#[test]
fn node_leaders_add_before_they_pass_on() {
    let plan = long_document(LONG, shape(32, 4));
    let table = &plan.backward;
    let hops = table.calls.iter().filter(|c| c.mode == CallMode::Accumulate).map(|c| c.parts[0]);
    let hops: Vec<_> = hops.filter(|part| part.tensors == TensorSet::DKV).map(|part| part.moves).collect();
    let (to_leaders, home) = (&table.moves[hops[0].range()], &table.moves[hops[1].range()]);
    assert!(to_leaders.iter().all(|mv| mv.to % 8 == 0) && home.iter().all(|mv| mv.from % 8 == 0 && mv.to < 16));
    assert!(to_leaders.len() > 4 * home.len(), "{} partial sums, {} sums", to_leaders.len(), home.len());
    // A leader that passes on before its node has sent is refused: the order of the two calls is what adds.
    let mut early = plan.clone();
    let streams = &mut early.backward.ranks[16].streams[2];
    let call_of = |op: &skewbench_plan::Op| match op.work {
        Work::Exchange(call) => early.backward.calls[call as usize].parts[0].moves,
        _ => hops[0],
    };
    let of_round = streams.iter().position(|op| call_of(op) == hops[0]).unwrap();
    assert_eq!(call_of(&streams[of_round + 1]), hops[1]);
    streams.swap(of_round, of_round + 1);
    let error = refuse(&early);
    assert!(error.contains("rank 16") || error.contains("wait for each other"), "{error}");
}

#[test]
fn eight_head_pieces_share_two_kv_heads() {
    for (pieces, q_heads, kv_heads) in [(8, 16, 2), (8, 8, 1), (3, 8, 2), (2, 12, 3), (5, 5, 5), (1, 4, 2)] {
        accept(&head_pieces(50, 35, pieces, shape(q_heads, kv_heads)));
    }
    let plan = head_pieces(4096, 2896, 8, shape(16, 2));
    accept(&plan);
    let pieces_with = |table: &PassPlan, mode: CallMode, tensor: Tensor| -> Vec<(usize, u16)> {
        let calls = table.calls.iter().filter(|call| call.mode == mode);
        let calls = calls.filter(|call| call.parts.iter().any(|p| p.tensors.has(Tensor::Q) || mode != CallMode::Copy));
        let parts = calls.enumerate().flat_map(|(piece, call)| call.parts.iter().map(move |part| (piece, part)));
        parts.filter(|(_, p)| p.tensors.has(tensor)).map(|(piece, p)| (piece, p.kv_heads.start)).collect()
    };
    for table in [&plan.forward, &plan.backward] {
        assert_eq!(pieces_with(table, CallMode::Copy, Tensor::K), [(0, 0), (4, 1)]);
    }
    let returns: Vec<TensorSet> =
        plan.backward.calls.iter().filter(|c| c.mode == CallMode::Accumulate).map(|c| c.parts[0].tensors).collect();
    let (dq, dkv) = (TensorSet::DQ, TensorSet::DKV);
    assert_eq!(returns, [dq, dq, dq, dq, dkv, dq, dq, dq, dq, dkv]);
    let spans: Vec<_> =
        plan.forward.calls.iter().filter(|c| c.mode == CallMode::Copy).map(|c| c.parts[0].moves).collect();
    assert!(spans.len() == 8 && spans.iter().all(|span| *span == spans[0]), "pieces share the table of moves");
}
