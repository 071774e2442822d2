use skewbench_plan::{
    AttentionShape, COMPUTE, CallMode, Dtype, Mask, Move, OpId, Pass, PassPlan, Plan, Rows, Shard, Span, TensorSet,
    Tile, Work,
};

use super::{Carried, DISPATCH, RETURN, back, launch, plan, post, span};

/// Two micro-batches, one packed sequence each, on the same ranks: while one computes, the other's rows travel.
///
/// Every rank holds a contiguous shard of both sequences; document i is computed whole on rank i mod R. Operations carry
/// the micro-batch that they belong to. On the compute stream of a rank stand linear 0, linear 1, attention 0,
/// attention 1, linear 0, linear 1. The dispatch of micro-batch 0 depends on its first linear work alone, so it runs under
/// the linear work of 1; the dispatch of 1 under the attention of 0; the return of 0 under the attention of 1; the return
/// of 1 under the last linear work of 0. Linear work is opaque to the plan: it has tokens and dependencies, no operands.
pub fn ping_pong(documents: [&[u32]; 2], ranks: u32, shape: AttentionShape) -> Plan {
    let bound = |tokens: u32, i: u32| (u64::from(tokens) * u64::from(i) / u64::from(ranks)) as u32;
    let shards: Vec<Shard> = (0u32..2)
        .zip(documents)
        .flat_map(|(seq, documents)| {
            let tokens = documents.iter().sum();
            (0..ranks).map(move |r| Shard { rank: r, seq, rows: Rows::range(bound(tokens, r), bound(tokens, r + 1)) })
        })
        .filter(|shard| !shard.rows.is_empty())
        .collect();
    let mut made = plan("ping-pong", shape, &documents, ranks, shards.clone());
    for pass in [Pass::Forward, Pass::Backward] {
        let batches: Vec<MicroBatch> = (0..2).map(|seq| MicroBatch::new(&mut made, pass, seq, &shards)).collect();
        interleave(&mut made, pass, &batches, &shards);
    }
    made
}

struct MicroBatch {
    there: Span,
    back: Span,
    /// Tiles of every rank.
    tiles: Vec<Span>,
}

impl MicroBatch {
    fn new(plan: &mut Plan, pass: Pass, seq: u32, shards: &[Shard]) -> Self {
        let documents = plan.sequences[seq as usize].clone();
        let ranks = plan.ranks;
        let table = match pass {
            Pass::Forward => &mut plan.forward,
            Pass::Backward => &mut plan.backward,
        };
        let mut moves = Vec::new();
        for (worker, document) in documents.windows(2).enumerate().map(|(i, d)| (i as u32 % ranks, d)) {
            for shard in shards.iter().filter(|shard| shard.seq == seq) {
                let rows = Rows::range(document[0].max(shard.rows.start), document[1].min(shard.rows.end()));
                // Rows that stay are copied beside those that arrive, so that the document is one piece.
                moves.extend((!rows.is_empty()).then_some(Move { from: shard.rank, to: worker, seq, rows }));
            }
        }
        let there = span(&mut table.moves, moves.iter().copied());
        let back = span(&mut table.moves, back(&moves));
        let of_rank = |rank: u32| {
            let mine = documents.windows(2).skip(rank as usize).step_by(ranks as usize);
            mine.map(|d| Tile { seq, q: Rows::range(d[0], d[1]), k: Rows::range(d[0], d[1]) }).collect::<Vec<_>>()
        };
        let tiles = (0..ranks).map(|rank| span(&mut table.tiles, of_rank(rank))).collect();
        Self { there, back, tiles }
    }
}

/// Where every rank stands in one micro-batch.
type At = Vec<Option<OpId>>;

fn interleave(plan: &mut Plan, pass: Pass, batches: &[MicroBatch], shards: &[Shard]) {
    let shape = plan.shape;
    let carried = |tensors| Carried::whole(tensors, shape);
    let (rows, results) = match pass {
        Pass::Forward => (TensorSet::Q, TensorSet::O_LSE),
        Pass::Backward => (TensorSet::Q.union(TensorSet::DO_O_LSE), TensorSet::DQ.union(TensorSet::DKV)),
    };
    let table = match pass {
        Pass::Forward => &mut plan.forward,
        Pass::Backward => &mut plan.backward,
    };
    let ranks = table.ranks.len();
    let tokens = |rank: usize, seq: usize| -> u32 {
        shards.iter().filter(|s| (s.rank as usize, s.seq as usize) == (rank, seq)).map(|s| s.rows.len).sum()
    };
    let linear = |table: &mut PassPlan, batch: usize, after: &At| -> At {
        let of_rank = |rank: usize| {
            let work = Work::Linear { tokens: tokens(rank, batch) };
            Some(table.ranks[rank].push(COMPUTE, work, after[rank].into_iter().collect()))
        };
        (0..ranks).map(of_rank).collect()
    };
    let nothing: At = vec![None; ranks];
    let before: Vec<At> = (0..2).map(|batch| linear(table, batch, &nothing)).collect();
    let arrived: Vec<At> = (0..2)
        .map(|m: usize| {
            let all = carried(rows.union(TensorSet::KV)).along(batches[m].there);
            post(table, DISPATCH, (CallMode::Copy, Dtype::Bf16), vec![all], |rank| before[m][rank])
        })
        .collect();
    let computed: Vec<At> = (0..2)
        .map(|m: usize| {
            let of_rank = |rank: usize| {
                let tiles = batches[m].tiles[rank];
                launch(&mut table.ranks[rank], tiles, Mask::Causal, shape.all_q(), arrived[m][rank])
            };
            (0..ranks).map(of_rank).collect()
        })
        .collect();
    let home: Vec<At> = (0..2)
        .map(|m: usize| {
            // Documents are whole on their worker, so results are final and may travel in bf16.
            let all = carried(results).along(batches[m].back);
            post(table, RETURN, (CallMode::Accumulate, Dtype::Bf16), vec![all], |rank| computed[m][rank])
        })
        .collect();
    for (batch, home) in home.iter().enumerate() {
        linear(table, batch, home);
    }
    tag(table, batches);
}

/// Marks operations with the micro-batch of their tiles, moves, or place among the linear work.
fn tag(table: &mut PassPlan, batches: &[MicroBatch]) {
    let (calls, ranks) = (&table.calls, &mut table.ranks);
    for streams in ranks {
        let mut linear = 0;
        for op in streams.streams.iter_mut().flatten() {
            op.micro_batch = match op.work {
                Work::Launch(launch) => u16::from(batches[1].tiles.contains(&launch.tiles)),
                Work::Exchange(call) => {
                    let second = [batches[1].there, batches[1].back];
                    u16::from(calls[call as usize].parts.iter().any(|part| second.contains(&part.moves)))
                }
                Work::Linear { .. } => {
                    linear += 1;
                    (linear + 1) % 2
                }
            };
        }
    }
}
