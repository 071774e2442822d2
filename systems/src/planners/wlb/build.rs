use skewbench_plan::{
    Accounting, AttentionShape, COMPUTE, Call, CallMode, Dtype, Launch, Mask, Move, OpId, Part, PassPlan, Plan, Rows,
    Shard, Span, TensorSet, Tile, Work,
};

use super::cut::{Cut, Piece, Range, common};
use super::{ENTRY, Gather, WlbOptions};
use crate::planners::cp_group::CpGroup;

/// Stream of all transfers.
const TRANSFER: u8 = 1;

/// Builds the plan of a CP group with these shards.
pub(super) fn build(group: CpGroup, cut: &Cut, options: WlbOptions) -> Plan {
    let rows: Vec<Vec<Range>> = cut.shards.iter().map(|shard| shard.rows()).collect();
    let keys: Vec<Vec<Range>> = cut.shards.iter().map(|shard| shard.keys()).collect();
    let launches = Launches::new(cut);

    let gathered = gather(&rows, &keys, options.gather);
    let mut forward = PassPlan::new(group.cp);
    let gather_into = |pass: &mut PassPlan, gathered: Vec<Move>, keep| {
        let call = |moves| call(CallMode::Copy, Dtype::Bf16, TensorSet::KV, group.shape, moves);
        post(pass, gathered, |moves| Call { keep, ..call(moves) }, &[])
    };
    let again = if options.regather { gathered.clone() } else { Vec::new() };
    let arrived = gather_into(&mut forward, gathered, !options.regather);
    launches.post(&mut forward, group.shape, &arrived);

    let mut backward = PassPlan::new(group.cp);
    let arrived = gather_into(&mut backward, again, false);
    let computed = launches.post(&mut backward, group.shape, &arrived);
    let reduced = reduce(&rows, &keys);
    let call = |moves| call(CallMode::Accumulate, Dtype::F32, TensorSet::DKV, group.shape, moves);
    post(&mut backward, reduced, call, &computed);

    let entry: Vec<Shard> = (0u32..)
        .zip(&rows)
        .flat_map(|(rank, rows)| rows.iter().map(move |&rows| Shard { rank, seq: 0, rows: range(rows) }))
        .collect();
    let idle_ranks = rows.iter().filter(|rows| rows.is_empty()).count() as u32;
    Plan {
        planner: ENTRY.name.to_owned(),
        shape: group.shape,
        sequences: vec![group.bounds],
        ranks: group.cp,
        exit: entry.clone(),
        entry,
        forward,
        backward,
        accounting: Accounting { idle_ranks, ..Accounting::default() },
    }
}

fn range((start, end): Range) -> Rows {
    Rows::range(start, end)
}

/// Moves of the all-gather: to every rank the rows of every rank. A rank's own rows are copied beside those that arrive.
fn gather(rows: &[Vec<Range>], keys: &[Vec<Range>], gather: Gather) -> Vec<Move> {
    if rows.len() == 1 {
        return Vec::new();
    }
    let mut moves = Vec::with_capacity(rows.len() * rows.iter().map(Vec::len).sum::<usize>());
    for (to, keys) in (0u32..).zip(keys) {
        for (from, rows) in (0u32..).zip(rows) {
            let mv = |rows| Move { from, to, seq: 0, rows: range(rows) };
            match gather {
                Gather::All => moves.extend(rows.iter().copied().map(mv)),
                Gather::Needed => moves.extend(common(rows, keys).map(mv)),
            }
        }
    }
    moves
}

/// Moves of the reduce-scatter: from every rank the rows whose keys it saw to their homes.
fn reduce(rows: &[Vec<Range>], keys: &[Vec<Range>]) -> Vec<Move> {
    let mut moves = Vec::with_capacity(rows.len() * rows.iter().map(Vec::len).sum::<usize>());
    for (from, keys) in (0u32..).zip(keys) {
        for (to, rows) in (0u32..).zip(rows).filter(|(to, _)| *to != from) {
            common(rows, keys).for_each(|rows| moves.push(Move { from, to, seq: 0, rows: range(rows) }));
        }
    }
    moves
}

/// A call that carries all heads of some tensors.
fn call(mode: CallMode, dtype: Dtype, tensors: TensorSet, shape: AttentionShape, moves: Span) -> Call {
    let part = Part { moves, tensors, q_heads: shape.all_q(), kv_heads: shape.all_kv() };
    Call { mode, dtype, parts: vec![part], keep: false }
}

/// Appends a call with its moves and posts it on the ranks that send or receive, after what `after` names for each.
/// Returns where each rank waits for it; nothing is posted where nothing moves.
fn post(
    pass: &mut PassPlan,
    moves: Vec<Move>,
    call: impl FnOnce(Span) -> Call,
    after: &[Option<OpId>],
) -> Vec<Option<OpId>> {
    if moves.is_empty() {
        return Vec::new();
    }
    let start = pass.moves.len();
    if start == 0 {
        pass.moves = moves;
    } else {
        pass.moves.extend_from_slice(&moves);
    }
    let index = pass.calls.len() as u32;
    pass.calls.push(call(Span { start: start as u32, end: pass.moves.len() as u32 }));
    let mut takes_part = vec![false; pass.ranks.len()];
    for of_pair in pass.moves[start..].chunk_by(|a, b| (a.from, a.to) == (b.from, b.to)) {
        takes_part[of_pair[0].from as usize] = true;
        takes_part[of_pair[0].to as usize] = true;
    }
    let mut posted = Vec::with_capacity(takes_part.len());
    for (rank, (streams, takes_part)) in pass.ranks.iter_mut().zip(takes_part).enumerate() {
        let after = after.get(rank).copied().flatten().into_iter().collect();
        posted.push(takes_part.then(|| streams.push(TRANSFER, Work::Exchange(index), after)));
    }
    posted
}

/// The launches of all ranks, the same in both passes.
struct Launches {
    tiles: Vec<Tile>,
    /// Front and back of every rank.
    spans: Vec<[Span; 2]>,
}

impl Launches {
    fn new(cut: &Cut) -> Self {
        let mut tiles = Vec::new();
        let mut span = |pieces: &[Piece]| {
            let start = tiles.len() as u32;
            tiles.extend(pieces.iter().map(|piece| Tile {
                seq: 0,
                q: Rows::range(piece.start, piece.end),
                k: Rows::range(piece.document, piece.end),
            }));
            Span { start, end: tiles.len() as u32 }
        };
        let spans = cut.shards.iter().map(|shard| [span(&shard.front), span(&shard.back)]).collect();
        Self { tiles, spans }
    }

    /// Appends the launches to a pass, after what `after` names for each rank, and returns the last of each rank.
    fn post(&self, pass: &mut PassPlan, shape: AttentionShape, after: &[Option<OpId>]) -> Vec<Option<OpId>> {
        pass.tiles.clone_from(&self.tiles);
        let mut last = vec![None; pass.ranks.len()];
        for (rank, (streams, spans)) in pass.ranks.iter_mut().zip(&self.spans).enumerate() {
            for &tiles in spans.iter().filter(|span| !span.is_empty()) {
                let launch = Launch { tiles, mask: Mask::Causal, q_heads: shape.all_q() };
                let after = after.get(rank).copied().flatten().into_iter().collect();
                last[rank] = Some(streams.push(COMPUTE, Work::Launch(launch), after));
            }
        }
        last
    }
}
