//! Prices of calls, and the simulation of a pool: 128 ranks, 16 calls of 8,000 flows, 30,000 tiles.

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use skewbench_exec::{
    Flow, Instr, InstrId, InstrKind, PassProgram, Program, RankProgram, RouteTable, TransferCall, TransferPart,
};
use skewbench_plan::{AttentionShape, CallMode, Dtype, HeadRange, Mask, Pass, Span, TensorSet, TileShape};
use skewbench_sim::{Machine, Pricing, Profile, Runs, simulate_pass};

const PIECES: usize = 8;

/// Eight head pieces, each dispatched, computed under the next one's dispatch, and returned.
fn pool(ranks: u32, peers: u32, tiles: u32) -> Program {
    let mut pass = PassProgram::default();
    pass.ranks.resize_with(ranks as usize, RankProgram::default);
    let flow =
        |from: u32, step: u32| Flow { from, to: (from + step) % ranks, rows: u64::from(64 + (from * step) % 512) };
    let flows: Vec<Flow> = (0..ranks).flat_map(|from| (1..=peers).map(move |step| flow(from, step))).collect();
    let back = flows.iter().map(|f| Flow { from: f.to, to: f.from, rows: f.rows }).collect();
    pass.routes =
        vec![RouteTable { flows, ..RouteTable::default() }, RouteTable { flows: back, ..RouteTable::default() }];
    for piece in 0..2 * PIECES {
        let heads = HeadRange::new(0, 1);
        let routes = (piece % 2) as u32;
        let part = TransferPart { routes, tensors: TensorSet::KV, q_heads: heads, kv_heads: heads, row_bytes: 1024 };
        pass.calls.push(TransferCall { mode: CallMode::Copy, dtype: Dtype::Bf16, parts: vec![part], keep: false });
    }
    for rank in 0..ranks {
        let start = pass.shapes.len() as u32;
        pass.shapes.extend((0..tiles).map(|i| {
            let (q, k) = (4096 - (i * 37 + rank) % 4000, 4096 + (i * 7919 + rank * 13) % 200_000);
            TileShape { q, k }
        }));
        let tiles = Span { start, end: pass.shapes.len() as u32 };
        let mut streams = vec![Vec::new(); 3];
        let none = Span { start: 0, end: 0 };
        for piece in 0..PIECES {
            let kind = InstrKind::Transfer { call: 2 * piece as u32 };
            streams[1].push(Instr { kind, after: none, micro_batch: 0 });
        }
        for piece in 0..PIECES {
            let mut after = |stream: u32| {
                pass.events.push(InstrId { stream, index: piece as u32 });
                Span { start: pass.events.len() as u32 - 1, end: pass.events.len() as u32 }
            };
            let heads = HeadRange::new(0, 4);
            let kind = InstrKind::Launch { tiles, mask: Mask::Causal, q_heads: heads, kv_heads: heads };
            streams[0].push(Instr { kind, after: after(1), micro_batch: 0 });
            let kind = InstrKind::Transfer { call: 2 * piece as u32 + 1 };
            streams[2].push(Instr { kind, after: after(0), micro_batch: 0 });
        }
        pass.ranks[rank as usize].streams = streams;
    }
    let shape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };
    Program { shape, ranks, forward: pass, backward: PassProgram::default() }
}

fn benches(c: &mut Criterion) {
    let pricing = Arc::new(Pricing::new(Profile::named("h200").expect("built in")));
    let mut group = c.benchmark_group("price");
    let tiles: Vec<(u32, u32)> = (0..240).map(|i| (4096 - i * 17, 4096 + i * 7919 % 200_000)).collect();
    group.throughput(Throughput::Elements(tiles.len() as u64));
    for mask in [Mask::Causal, Mask::Full] {
        group.bench_function(format!("{mask:?}"), |b| {
            b.iter(|| pricing.call_ps(Pass::Forward, mask, (4, 1), 128, black_box(&tiles).iter().copied()));
        });
    }
    group.finish();

    let mut group = c.benchmark_group("simulate");
    for (ranks, peers, tiles) in [(128, 64, 240), (1024, 64, 240), (4096, 64, 240)] {
        let program = pool(ranks, peers, tiles);
        let machine = Machine::new(Arc::clone(&pricing), (0..ranks).map(|r| r / 8).collect());
        group.throughput(Throughput::Elements(u64::from(ranks)));
        group.bench_function(format!("{ranks} ranks"), |b| {
            b.iter(|| simulate_pass(black_box(&program), Pass::Forward, &machine, Runs::default()));
        });
        group.bench_function(format!("{ranks} ranks, all runs"), |b| {
            b.iter(|| simulate_pass(black_box(&program), Pass::Forward, &machine, Runs::ALL));
        });
    }
    group.finish();
}

criterion_group! {
    name = sim;
    config = Criterion::default().sample_size(10);
    targets = benches
}
criterion_main!(sim);
