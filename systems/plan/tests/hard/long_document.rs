use skewbench_plan::{
    AttentionShape, CallMode, Dtype, Mask, Move, OpId, Pass, PassPlan, Plan, Rows, Shard, TensorSet, Tile,
};

use super::{Carried, DISPATCH, RETURN, launch, plan, post, span};

/// Sizes of the long-document case.
#[derive(Clone, Copy, Debug)]
pub struct LongDocument {
    /// Tokens of the document.
    pub tokens: u32,
    /// Rows and keys of a tile.
    pub block: u32,
    /// Ranks, all of which compute.
    pub workers: u32,
    /// The first ranks, which hold the document in contiguous shards of whole blocks.
    pub homes: u32,
    /// Ranks of a node; its first adds up dK and dV of the node before they leave it.
    pub node: u32,
}

/// One document on many more workers than homes, with split keys: every tile is a block of rows on a block of keys, so
/// that O, dQ, dK and dV are all partial sums.
///
/// Tiles are dealt in order of their keys; the tiles that the workers compute at once are a round, and each round is a
/// dispatch (what a worker does not hold yet), a launch, and a return of the sums that this worker adds nothing more to.
/// So a home reduces the few partial sums of one round as they arrive instead of gathering those of all tiles first.
/// Forward: O with LSE, merged at the home of the rows. Backward: dQ straight home; dK and dV to the first rank of the
/// worker's node, which adds what its node has and passes one sum on to the home of the keys. All partial sums are f32.
pub fn long_document(size: LongDocument, shape: AttentionShape) -> Plan {
    let blocks = size.tokens.div_ceil(size.block);
    let first = |home: u32| (blocks * home / size.homes * size.block).min(size.tokens);
    let shards = (0..size.homes).map(|r| Shard { rank: r, seq: 0, rows: Rows::range(first(r), first(r + 1)) });
    let shards: Vec<Shard> = shards.filter(|shard| !shard.rows.is_empty()).collect();
    let mut made = plan("long-document", shape, &[&[size.tokens]], size.workers, shards);
    let grid = Grid { size, shape, blocks, shards: made.entry.clone() };
    let (forward, backward) = (&mut made.forward, &mut made.backward);
    grid.rounds(forward, Pass::Forward);
    grid.rounds(backward, Pass::Backward);
    made
}

/// A block of rows on a block of keys.
type Cell = (u32, u32);

struct Grid {
    size: LongDocument,
    shape: AttentionShape,
    blocks: u32,
    shards: Vec<Shard>,
}

impl Grid {
    fn rows(&self, block: u32) -> Rows {
        Rows::range(block * self.size.block, ((block + 1) * self.size.block).min(self.size.tokens))
    }

    fn home(&self, block: u32) -> u32 {
        let row = block * self.size.block;
        self.shards.iter().find(|s| s.rows.start <= row && row < s.rows.end()).map_or(0, |s| s.rank)
    }

    fn leader(&self, worker: u32) -> u32 {
        worker - worker % self.size.node
    }

    fn rounds(&self, pass: &mut PassPlan, which: Pass) {
        let cells: Vec<Cell> = (0..self.blocks).flat_map(|key| (key..self.blocks).map(move |row| (row, key))).collect();
        let rounds: Vec<&[Cell]> = cells.chunks(self.size.workers as usize).collect();
        let mut held = vec![(Vec::new(), Vec::new()); self.size.workers as usize];
        for (index, round) in rounds.iter().enumerate() {
            let arrived = self.dispatch(pass, which, round, &mut held);
            let computed: Vec<Option<OpId>> = (0..)
                .zip(*round)
                .map(|(rank, &(row, key)): (usize, &Cell)| {
                    let mask = if row == key { Mask::Causal } else { Mask::Full };
                    let tiles = span(&mut pass.tiles, [Tile { seq: 0, q: self.rows(row), k: self.rows(key) }]);
                    launch(&mut pass.ranks[rank], tiles, mask, self.shape.all_q(), arrived[rank])
                })
                .collect();
            let after = |rank: usize| computed.get(rank).copied().flatten();
            let later = &rounds[index + 1..];
            let result = if which == Pass::Forward { TensorSet::O_LSE } else { TensorSet::DQ };
            self.add(pass, result, self.row_sums(round, later), after);
            if which == Pass::Backward {
                let (to_leaders, home) = self.key_sums(round, later);
                self.add(pass, TensorSet::DKV, to_leaders, after);
                self.add(pass, TensorSet::DKV, home, after);
            }
        }
    }

    fn add(&self, pass: &mut PassPlan, tensors: TensorSet, moves: Vec<Move>, after: impl Fn(usize) -> Option<OpId>) {
        let part = Carried::whole(tensors, self.shape).along(span(&mut pass.moves, moves));
        post(pass, RETURN, (CallMode::Accumulate, Dtype::F32), vec![part], after);
    }

    /// Brings workers the blocks of a round that they do not hold.
    fn dispatch(
        &self,
        pass: &mut PassPlan,
        which: Pass,
        round: &[Cell],
        held: &mut [(Vec<u32>, Vec<u32>)],
    ) -> Vec<Option<OpId>> {
        let (mut rows, mut keys) = (Vec::new(), Vec::new());
        for ((worker, &(row, key)), (held_rows, held_keys)) in (0u32..).zip(round).zip(held) {
            for (block, held, moves) in [(row, held_rows, &mut rows), (key, held_keys, &mut keys)] {
                let from = self.home(block);
                if from != worker && !held.contains(&block) {
                    held.push(block);
                    moves.push(Move { from, to: worker, seq: 0, rows: self.rows(block) });
                }
            }
        }
        let queries = match which {
            Pass::Forward => TensorSet::Q,
            Pass::Backward => TensorSet::Q.union(TensorSet::DO_O_LSE),
        };
        let parts = [(queries, rows), (TensorSet::KV, keys)]
            .map(|(tensors, moves)| Carried::whole(tensors, self.shape).along(span(&mut pass.moves, moves)));
        post(pass, DISPATCH, (CallMode::Copy, Dtype::Bf16), parts.into(), |_| None)
    }

    /// Row blocks that workers are done with after this round, to their homes.
    fn row_sums(&self, round: &[Cell], later: &[&[Cell]]) -> Vec<Move> {
        let done = (0u32..).zip(round).filter(|(worker, cell)| {
            later.iter().all(|round| round.get(*worker as usize).is_none_or(|next| next.0 != cell.0))
        });
        let moves = done.map(|(from, cell)| Move { from, to: self.home(cell.0), seq: 0, rows: self.rows(cell.0) });
        moves.filter(|mv| mv.from != mv.to).collect()
    }

    /// Key blocks that workers are done with after this round, to the first ranks of their nodes; and those that whole
    /// nodes are done with, from there to their homes.
    fn key_sums(&self, round: &[Cell], later: &[&[Cell]]) -> (Vec<Move>, Vec<Move>) {
        let (mut to_leaders, mut home) = (Vec::new(), Vec::new());
        for (worker, &(_, key)) in (0u32..).zip(round) {
            let (leader, owner, rows) = (self.leader(worker), self.home(key), self.rows(key));
            let uses = |worker: u32| later.iter().any(|r| r.get(worker as usize).is_some_and(|next| next.1 == key));
            if worker != owner && worker != leader && !uses(worker) {
                to_leaders.push(Move { from: worker, to: leader, seq: 0, rows });
            }
            // The home of the keys is part of the node when it keeps what it adds.
            let last = Move { from: leader, to: owner, seq: 0, rows };
            let node = || (leader..leader + self.size.node).filter(|other| *other != owner);
            if leader != owner && worker != owner && !node().any(uses) && !home.contains(&last) {
                home.push(last);
            }
        }
        (to_leaders, home)
    }
}
