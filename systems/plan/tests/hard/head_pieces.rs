use skewbench_plan::{
    AttentionShape, CallMode, Dtype, HeadRange, Mask, Move, OpId, Pass, PassPlan, Plan, Rows, Shard, Span, Tensor,
    TensorSet, Tile,
};

use super::{Carried, DISPATCH, RETURN, back, launch, plan, post, prefix, span};

/// More head pieces than KV heads: homes 0 and 1 hold half of a document each, workers 2 and 3 compute it.
///
/// All pieces refer to the same moves and tiles; only the heads of their parts and launches differ. The KV heads of a piece
/// travel in its dispatch if it is the first to read them; later pieces find them on the worker. dK and dV of a KV head
/// accumulate on the worker over the pieces that read it and leave with the last one. O and dQ leave piece by piece.
/// Worker 2 takes the first `cut` rows, worker 3 the others.
pub fn head_pieces(tokens: u32, cut: u32, pieces: u32, shape: AttentionShape) -> Plan {
    let homes = [Rows::range(0, tokens / 2), Rows::range(tokens / 2, tokens)];
    let shards = (0..).zip(homes).map(|(rank, rows)| Shard { rank, seq: 0, rows }).collect();
    let mut made = plan("head-pieces", shape, &[&[tokens]], 4, shards);
    let work = [(2, Rows::range(0, cut)), (3, Rows::range(cut, tokens))];
    for pass in [Pass::Forward, Pass::Backward] {
        let table = match pass {
            Pass::Forward => &mut made.forward,
            Pass::Backward => &mut made.backward,
        };
        let from_homes = |worker: u32, rows: Rows| {
            let overlap = |home: Rows| Rows::range(rows.start.max(home.start), rows.end().min(home.end()));
            let moves = (0..).zip(homes.map(overlap)).filter(|(_, rows)| !rows.is_empty());
            moves.map(move |(home, rows)| Move { from: home, to: worker, seq: 0, rows }).collect::<Vec<_>>()
        };
        let queries: Vec<Move> = work.iter().flat_map(|&(worker, rows)| from_homes(worker, rows)).collect();
        let prefixes = work.iter().flat_map(|&(worker, rows)| from_homes(worker, Rows::range(0, rows.end())));
        let keys: Vec<Move> = prefixes.collect();
        let routes = Routes {
            queries: span(&mut table.moves, queries.iter().copied()),
            keys: span(&mut table.moves, keys.iter().copied()),
            results: span(&mut table.moves, back(&queries)),
            sums: span(&mut table.moves, back(&keys)),
            tiles: work.map(|(worker, rows)| (worker, tile(table, rows))),
        };
        for piece in 0..pieces {
            routes.piece(table, pass, shape, (piece, pieces));
        }
    }
    made
}

fn tile(table: &mut PassPlan, rows: Rows) -> Span {
    let tile: Tile = prefix(0, 0, rows);
    span(&mut table.tiles, [tile])
}

struct Routes {
    queries: Span,
    keys: Span,
    results: Span,
    sums: Span,
    tiles: [(u32, Span); 2],
}

impl Routes {
    fn piece(&self, table: &mut PassPlan, pass: Pass, shape: AttentionShape, (piece, pieces): (u32, u32)) {
        let q_heads = HeadRange::piece(shape.q_heads, piece, pieces);
        let read = shape.kv_of(q_heads);
        let of = |piece: u32| shape.kv_of(HeadRange::piece(shape.q_heads, piece, pieces));
        // Pieces are in order, so a neighbour reads the head if any other piece does.
        let before = piece.checked_sub(1).map_or(0, |p| of(p).end);
        let later = if piece + 1 < pieces { of(piece + 1).start } else { shape.kv_heads };
        let fetched = HeadRange::new(read.start.max(before), read.end);
        let finished = HeadRange::new(read.start, read.end.min(later));
        let carry = |tensors: TensorSet, kv_heads: HeadRange, moves: Span| {
            let empty = kv_heads.is_empty() && tensors.iter().all(Tensor::is_kv);
            (!empty).then(|| Carried { tensors, q_heads, kv_heads }.along(moves))
        };
        let rows = match pass {
            Pass::Forward => TensorSet::Q,
            Pass::Backward => TensorSet::Q.union(TensorSet::DO_O_LSE),
        };
        let there = [carry(rows, HeadRange::EMPTY, self.queries), carry(TensorSet::KV, fetched, self.keys)];
        let arrived =
            post(table, DISPATCH, (CallMode::Copy, Dtype::Bf16), there.into_iter().flatten().collect(), |_| None);
        // A launch reads its keys from one call: heads that came with an earlier piece have a launch of their own.
        let seam = (before * shape.group()).clamp(q_heads.start, q_heads.end);
        let cuts = [HeadRange::new(q_heads.start, seam), HeadRange::new(seam, q_heads.end)];
        let computed: Vec<Option<OpId>> = (0..table.ranks.len())
            .map(|rank| {
                let (_, tiles) = self.tiles.iter().find(|(worker, _)| *worker as usize == rank)?;
                let heads = cuts.into_iter().filter(|heads| !heads.is_empty());
                let streams = &mut table.ranks[rank];
                heads.filter_map(|heads| launch(streams, *tiles, Mask::Causal, heads, arrived[rank])).last()
            })
            .collect();
        let result = if pass == Pass::Forward { TensorSet::O_LSE } else { TensorSet::DQ };
        let mut give = |tensors: TensorSet, kv_heads: HeadRange, moves: Span, dtype: Dtype| {
            let part = carry(tensors, kv_heads, moves).into_iter().collect();
            post(table, RETURN, (CallMode::Accumulate, dtype), part, |rank| computed[rank]);
        };
        give(result, HeadRange::EMPTY, self.results, Dtype::Bf16);
        if pass == Pass::Backward {
            give(TensorSet::DKV, finished, self.sums, Dtype::F32);
        }
    }
}
