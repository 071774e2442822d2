//! What steps look like: what is read and left in place, what is moved, and how much there is of it.

#[path = "../../../systems/plan/tests/hard/mod.rs"]
mod hard;
mod support;

use hard::head_pieces::head_pieces;
use hard::long_document::{LongDocument, long_document};
use hard::ping_pong::ping_pong;
use hard::striped_ring::striped_ring;
use hard::{Carried, DISPATCH, RETURN, launch, post, span};
use serde_json::json;
use skewbench_cuda::CudaError;
use skewbench_cuda::steps::{
    Action, AttendCall, AttendMask, DeviceProgram, Exchange, RowMove, StepOptions, Work, device_program,
};
use skewbench_exec::InstrKind;
use skewbench_plan::{AttentionShape, CallMode, Dtype, Mask, Move, Pass, Plan, Rows, Shard, Tensor, TensorSet, Tile};
use support::{device, lowered, named, planned, right, shape};

fn works(program: &DeviceProgram, rank: usize, pass: Pass) -> impl Iterator<Item = (InstrKind, &Work)> {
    let steps = program.ranks[rank].pass(pass).streams.iter().flatten();
    steps.flat_map(|step| step.work.iter().map(move |work| (step.instr, work)))
}

fn moves(program: &DeviceProgram, rank: usize, pass: Pass) -> Vec<RowMove> {
    let rows = works(program, rank, pass).filter_map(|(_, work)| match work {
        Work::Rows(moves) => Some(moves.clone()),
        _ => None,
    });
    rows.flatten().collect()
}

fn attends(program: &DeviceProgram, rank: usize, pass: Pass) -> Vec<AttendCall> {
    let calls = works(program, rank, pass).filter_map(|(_, work)| match work {
        Work::Attend(call) => Some(call.clone()),
        _ => None,
    });
    calls.collect()
}

fn exchanges(program: &DeviceProgram, rank: usize, pass: Pass) -> Vec<Exchange> {
    let calls = works(program, rank, pass).filter_map(|(_, work)| match work {
        Work::Exchange(exchange) => Some(exchange.clone()),
        _ => None,
    });
    calls.collect()
}

const PASSES: [Pass; 2] = [Pass::Forward, Pass::Backward];

#[test]
fn ulysses_adds_nothing_and_sends_what_kernels_write() {
    let shape = shape(8, 8, 16);
    // One document; several, of which the first is computed where it is home.
    for documents in [&[64u32][..], &[9, 30, 25]] {
        let program = device(&lowered(&planned(&named("ulysses", &json!({})), &[documents], 4, shape)), false);
        for (rank, device) in program.ranks.iter().enumerate() {
            for pass in PASSES {
                assert!(device.pass(pass).setup.is_empty(), "{:?}", device.pass(pass).setup);
                let moves = moves(&program, rank, pass);
                assert!(moves.iter().all(|m| m.action == Action::Write && m.from_element == m.to_element), "{moves:?}");
            }
            let call = &attends(&program, rank, Pass::Forward)[0];
            assert_eq!(call.mask, AttendMask::TopLeft);
            let written: Vec<(u64, u64)> = call
                .slots
                .iter()
                .map(|slot| (slot.o, slot.o + u64::from(slot.q_rows) * u64::from(call.strides.o) * 2))
                .collect();
            let within = |offset: u64, bytes: u64| {
                let holder = written.iter().any(|(start, end)| (*start..*end).contains(&offset));
                holder && written.iter().any(|(start, end)| (*start..=*end).contains(&(offset + bytes)))
            };
            let back = exchanges(&program, rank, Pass::Forward).pop().unwrap();
            assert_eq!(back.sends.len(), 3);
            assert!(back.sends.iter().all(|m| within(m.offset, m.bytes)), "{back:?} of {written:?}");
            // What the backward reads is where the forward wrote it.
            let again = &attends(&program, rank, Pass::Backward)[0];
            if documents.len() == 1 {
                let of = |call: &AttendCall| call.slots.iter().map(|s| (s.o, s.lse)).collect::<Vec<_>>();
                assert_eq!(of(call), of(again));
            }
        }
    }
}

#[test]
fn one_rank_moves_nothing_at_all() {
    for name in ["ulysses", "ring-zigzag", "distca"] {
        let program = device(&lowered(&planned(&named(name, &json!({})), &[&[40, 9]], 1, shape(4, 2, 16))), false);
        for pass in PASSES {
            assert!(program.ranks[0].pass(pass).setup.is_empty(), "{name}");
            assert!(moves(&program, 0, pass).is_empty(), "{name}: {:?}", moves(&program, 0, pass));
        }
    }
}

#[test]
fn head_slices_are_gathered_where_the_program_packs() {
    let shape = shape(8, 4, 8);
    let program = device(&lowered(&planned(&named("ulysses", &json!({})), &[&[60]], 4, shape)), false);
    for rank in 0..4 {
        let first = exchanges(&program, rank, Pass::Forward).remove(0);
        // Q, K and V for each of three peers, 15 rows of 2 query heads or 1 KV head.
        let bytes: Vec<u64> = first.sends.iter().map(|m| m.bytes).collect();
        assert_eq!(bytes, [480, 240, 240].repeat(3));
        let packed: Vec<RowMove> = works(&program, rank, Pass::Forward)
            .filter_map(|(instr, work)| match (instr, work) {
                (InstrKind::Pack { .. }, Work::Rows(moves)) => Some(moves.clone()),
                _ => None,
            })
            .take(1)
            .flatten()
            .collect();
        for sent in &first.sends {
            let gathered = packed.iter().find(|m| m.to == sent.offset).unwrap();
            let row = u64::from(gathered.heads) * 8 * 2;
            assert_eq!((u64::from(gathered.rows) * row, gathered.to_stride), (sent.bytes, row));
            assert!(gathered.from_stride > row);
        }
        // What stays goes straight into the slab.
        assert_eq!(packed.len(), first.sends.len() + 3);
        // All that arrives lies where the kernel reads it.
        let slot = attends(&program, rank, Pass::Forward)[0].slots[0];
        assert!(
            [slot.q, slot.k, slot.v]
                .iter()
                .all(|at| { first.receives.iter().any(|m| m.offset == *at) || packed.iter().any(|m| m.to == *at) })
        );
    }
}

#[test]
fn exclusive_tiles_become_square_calls() {
    let plan = striped_ring(&[24, 9], 3, shape(2, 2, 8));
    let program = device(&lowered(&plan), false);
    for (rank, pass) in (0..3).flat_map(|rank| PASSES.map(|pass| (rank, pass))) {
        for (instr, work) in works(&program, rank, pass) {
            if let (InstrKind::Launch { mask, .. }, Work::Attend(call)) = (instr, work) {
                assert_eq!(call.mask, AttendMask::TopLeft, "{mask:?}");
                assert!(call.slots.iter().all(|slot| slot.q_rows == slot.k_rows));
            }
        }
    }
    right(&plan, 3).unwrap();
}

#[test]
fn hard_cases_of_the_plan_format_are_right() {
    let documents: [[&[u32]; 2]; 3] = [[&[5, 1, 7], &[3, 2]], [&[70], &[1, 1, 60]], [&[1], &[1]]];
    for ([first, second], (ranks, shape)) in
        documents.into_iter().zip([(2, shape(4, 2, 8)), (3, shape(6, 3, 16)), (4, shape(3, 1, 8))])
    {
        let all: Vec<u32> = [first, second].concat();
        let tokens: u32 = all.iter().sum();
        let size = LongDocument { tokens, block: tokens.div_ceil(5).max(1), workers: 7, homes: 2, node: 3 };
        let plans = [
            striped_ring(&all, ranks, shape),
            ping_pong([first, second], ranks, shape),
            long_document(size, shape),
            head_pieces(tokens, tokens.div_ceil(2), u32::from(shape.q_heads), shape),
        ];
        for plan in plans {
            right(&plan, 5).unwrap();
        }
    }
}

/// A worker that gives away the sums of the same rows twice: rank 1 computes the last rows of a document that rank 0 holds.
fn twice_returned(shape: AttentionShape) -> Plan {
    let rows = [Rows::range(0, 4), Rows::range(4, 8)];
    let shards = vec![Shard { rank: 0, seq: 0, rows: Rows::range(0, 8) }];
    let mut made = hard::plan("twice-returned", shape, &[&[8]], 2, shards);
    for pass in PASSES {
        let backward = pass == Pass::Backward;
        let table = if backward { &mut made.backward } else { &mut made.forward };
        let to_worker = |rows: Rows| Move { from: 0, to: 1, seq: 0, rows };
        let carried = |tensors: TensorSet| Carried::whole(tensors, shape);
        let own = span(&mut table.tiles, [Tile { seq: 0, q: rows[0], k: rows[0] }]);
        launch(&mut table.ranks[0], own, Mask::Causal, shape.all_q(), None);
        let (queries, keys) =
            (span(&mut table.moves, [to_worker(rows[1])]), span(&mut table.moves, [to_worker(Rows::range(0, 8))]));
        let of_rows = if backward { TensorSet::Q.union(TensorSet::DO_O_LSE) } else { TensorSet::Q };
        let parts = vec![carried(of_rows).along(queries), carried(TensorSet::KV).along(keys)];
        let arrived = post(table, DISPATCH, (CallMode::Copy, Dtype::Bf16), parts, |_| None);
        for (k, mask) in rows.into_iter().zip([Mask::Full, Mask::Causal]) {
            let tile = span(&mut table.tiles, [Tile { seq: 0, q: rows[1], k }]);
            let computed = launch(&mut table.ranks[1], tile, mask, shape.all_q(), arrived[1]);
            let home = |rows: Rows| Move { from: 1, to: 0, seq: 0, rows };
            let of_queries = span(&mut table.moves, [home(rows[1])]);
            let of_keys = span(&mut table.moves, [home(k)]);
            let mut parts = vec![carried(if backward { TensorSet::DQ } else { TensorSet::O_LSE }).along(of_queries)];
            if backward {
                parts.push(carried(TensorSet::DKV).along(of_keys));
            }
            let sent =
                post(table, RETURN, (CallMode::Accumulate, Dtype::F32), parts, |rank| computed.filter(|_| rank == 1));
            // What is added next must not leave with what came before.
            let again =
                table.ranks[1].push(0, skewbench_plan::Work::Linear { tokens: 1 }, sent[1].into_iter().collect());
            assert_eq!(again.stream, 0);
        }
    }
    made
}

#[test]
fn accumulators_are_left_empty_where_they_are_used_again() {
    let plan = twice_returned(shape(2, 1, 8));
    right(&plan, 1).unwrap();
    let program = device(&lowered(&plan), false);
    for (pass, bits) in [(Pass::Forward, 0xff80_0000), (Pass::Backward, 0)] {
        let taken = |m: &RowMove| matches!(m.action, Action::Take { bits: left } if left == bits);
        // LSE, or dQ; not the second time, and no row of dK and dV.
        assert_eq!(moves(&program, 1, pass).into_iter().filter(taken).count(), 1);
    }
}

#[test]
fn additions_take_turns_when_sums_must_be_repeatable() {
    let program = lowered(&striped_ring(&[70, 9], 3, shape(4, 2, 8)));
    let turns = |repeatable: bool| {
        let program = device(&program, repeatable);
        let all = (0..program.ranks.len()).flat_map(|rank| PASSES.map(|pass| (rank, pass)));
        let turns = |(rank, pass)| works(&program, rank, pass).filter(|(_, w)| matches!(w, Work::Turn(_))).count();
        all.map(turns).sum::<usize>()
    };
    assert_eq!(turns(false), 0);
    assert!(turns(true) > 0);
}

#[test]
fn wrong_programs_are_refused() {
    let program = lowered(&planned(&named("ring-zigzag", &json!({})), &[&[64]], 2, shape(2, 2, 8)));
    let refused = |program: &skewbench_exec::Program| match device_program(program, StepOptions::default()) {
        Err(CudaError::Program(what)) => what,
        other => panic!("{other:?}"),
    };
    let mut broken = program.clone();
    broken.forward.tiles[0].q.row += 1000;
    assert!(refused(&broken).contains("does not hold Q"), "{}", refused(&broken));
    let mut broken = program.clone();
    broken.forward.ranks[0].streams[1].clear();
    assert!(refused(&broken).contains("forward"), "{}", refused(&broken));
    let mut broken = program.clone();
    broken.shape.kv_heads = 0;
    assert!(refused(&broken).contains("shape"));
    let mut broken = program;
    for buffer in &mut broken.backward.ranks[1].buffers {
        if buffer.tensor == Tensor::DK {
            buffer.tensor = Tensor::DQ;
        }
    }
    refused(&broken);
}

#[test]
fn a_window_of_256k_tokens_takes_few_moves() {
    // Documents of many lengths, three of them long.
    let mut documents: Vec<u32> = (0..200u32).map(|i| 16 + (i * 7919) % 700).collect();
    documents.extend([60_000, 20_000]);
    documents.push((1 << 18) - documents.iter().sum::<u32>());
    let shape = shape(32, 4, 128);
    for name in ["ulysses", "ring-zigzag", "loongtrain", "distca", "libra"] {
        let plan = planned(&named(name, &json!({})), &[&documents, &documents], 8, shape);
        let program = device(&lowered(&plan), false);
        for (rank, device) in program.ranks.iter().enumerate() {
            for pass in PASSES {
                let count = moves(&program, rank, pass).len();
                assert!(count < 40_000, "{name}, rank {rank}: {count} moves");
            }
            assert!(device.arena_bytes < 40 << 30, "{name}, rank {rank}: {} bytes", device.arena_bytes);
        }
    }
}
