//! Builders of the four hard cases, shared with the mutation tests of the planners.

pub mod head_pieces;
pub mod long_document;
pub mod ping_pong;
pub mod striped_ring;

use skewbench_plan::{
    Accounting, AttentionShape, COMPUTE, Call, CallMode, Dtype, HeadRange, Launch, Mask, Move, OpId, Part, PassPlan,
    Plan, RankStreams, Rows, Shard, Span, TensorSet, Tile, Work,
};

/// Stream of dispatches.
pub const DISPATCH: u8 = 1;
/// Stream of returns.
pub const RETURN: u8 = 2;

/// A plan without operations whose results end where the inputs start.
pub fn plan(name: &str, shape: AttentionShape, documents: &[&[u32]], ranks: u32, shards: Vec<Shard>) -> Plan {
    Plan {
        planner: name.to_owned(),
        shape,
        sequences: documents.iter().map(|d| Plan::bounds(d)).collect(),
        ranks,
        entry: shards.clone(),
        exit: shards,
        forward: PassPlan::new(ranks),
        backward: PassPlan::new(ranks),
        accounting: Accounting::default(),
    }
}

/// The entries that `add` appends to a table.
pub fn span<T>(table: &mut Vec<T>, add: impl IntoIterator<Item = T>) -> Span {
    let start = table.len() as u32;
    table.extend(add);
    Span { start, end: table.len() as u32 }
}

/// What a part carries, with the heads of its query and of its key tensors.
#[derive(Clone, Copy)]
pub struct Carried {
    pub tensors: TensorSet,
    pub q_heads: HeadRange,
    pub kv_heads: HeadRange,
}

impl Carried {
    /// All heads of the shape.
    pub fn whole(tensors: TensorSet, shape: AttentionShape) -> Self {
        Self { tensors, q_heads: shape.all_q(), kv_heads: shape.all_kv() }
    }

    pub fn along(self, moves: Span) -> Part {
        Part { moves, tensors: self.tensors, q_heads: self.q_heads, kv_heads: self.kv_heads }
    }
}

/// Adds a call of the parts that move something and posts it on every rank with rows in it, each after the operations
/// that `after` names. Returns where each rank posts it.
pub fn post(
    pass: &mut PassPlan,
    stream: u8,
    (mode, dtype): (CallMode, Dtype),
    parts: Vec<Part>,
    after: impl Fn(usize) -> Option<OpId>,
) -> Vec<Option<OpId>> {
    let parts: Vec<Part> = parts.into_iter().filter(|part| !part.moves.is_empty()).collect();
    let mut takes_part = vec![false; pass.ranks.len()];
    for mv in parts.iter().flat_map(|part| &pass.moves[part.moves.range()]) {
        takes_part[mv.from as usize] = true;
        takes_part[mv.to as usize] = true;
    }
    if parts.is_empty() {
        return vec![None; pass.ranks.len()];
    }
    let call = pass.calls.len() as u32;
    pass.calls.push(Call { mode, dtype, parts, keep: false });
    let ranks = pass.ranks.iter_mut().enumerate();
    ranks
        .map(|(rank, streams)| {
            takes_part[rank].then(|| streams.push(stream, Work::Exchange(call), after(rank).into_iter().collect()))
        })
        .collect()
}

/// Appends a launch when there are tiles.
pub fn launch(
    streams: &mut RankStreams,
    tiles: Span,
    mask: Mask,
    q_heads: HeadRange,
    after: impl IntoIterator<Item = OpId>,
) -> Option<OpId> {
    let work = Work::Launch(Launch { tiles, mask, q_heads });
    (!tiles.is_empty()).then(|| streams.push(COMPUTE, work, after.into_iter().collect()))
}

/// A causal tile of rows on all keys of their document up to the last of them.
pub fn prefix(seq: u32, document: u32, rows: Rows) -> Tile {
    Tile { seq, q: rows, k: Rows::range(document, rows.end()) }
}

/// `moves` the other way round.
pub fn back(moves: &[Move]) -> Vec<Move> {
    moves.iter().map(|mv| Move { from: mv.to, to: mv.from, ..*mv }).collect()
}
