use std::collections::BTreeSet;

use skewbench_plan::{
    AttentionShape, CallMode, Dtype, Mask, Move, OpId, PassPlan, Plan, Rows, Shard, Span, TensorSet, Tile,
};

use super::{Carried, DISPATCH, RETURN, launch, post, span};

/// A ring over striped shards: token t of the packed sequence lives on rank t mod R.
///
/// Rows and keys of a tile have stride R, one tile a document. Its last row sees its last key (`Causal`) or, where that key
/// comes later in the document, all but that one (`CausalExclusive`); every row before sees one key fewer.
/// Step s brings a rank what its left neighbour received at step s - 1, so the call of step s may start on the sender
/// only after that of step s - 1: one transfer stream keeps them in order. O never travels. In the backward dK and dV
/// follow the ring: a rank adds its contribution to what arrived and passes the sum on, in f32, and the last hop is home.
pub fn striped_ring(documents: &[u32], ranks: u32, shape: AttentionShape) -> Plan {
    let tokens = documents.iter().sum();
    let shards = (0..ranks).map(|rank| Shard { rank, seq: 0, rows: Rows::residue(0, tokens, rank, ranks) });
    let mut plan = super::plan("striped-ring", shape, &[documents], ranks, shards.filter(|s| s.rows.len > 0).collect());
    let ring = Ring { documents: plan.sequences[0].clone(), ranks, shape };
    ring.rotate(&mut plan.forward, false);
    ring.rotate(&mut plan.backward, true);
    plan
}

struct Ring {
    documents: Vec<u32>,
    ranks: u32,
    shape: AttentionShape,
}

impl Ring {
    fn rotate(&self, pass: &mut PassPlan, follow: bool) {
        let keys = Carried::whole(TensorSet::KV, self.shape);
        let sums = Carried::whole(TensorSet::DKV, self.shape);
        // Documents whose keys that started on a rank have contributions, which the next hop may take along.
        let mut reached = vec![BTreeSet::new(); self.ranks as usize];
        let mut last: Vec<Option<OpId>> = vec![None; self.ranks as usize];
        for step in 0..self.ranks {
            let arrived = if step == 0 {
                vec![None; self.ranks as usize]
            } else {
                let hop = span(&mut pass.moves, self.hop(step - 1, |_| 0..self.documents.len() - 1));
                post(pass, DISPATCH, (CallMode::Copy, Dtype::Bf16), vec![keys.along(hop)], |_| None)
            };
            for rank in 0..self.ranks {
                let origin = (rank + self.ranks - step) % self.ranks;
                for mask in [Mask::Causal, Mask::CausalExclusive] {
                    let tiles = self.tiles(pass, (rank, origin), mask, &mut reached[origin as usize]);
                    let streams = &mut pass.ranks[rank as usize];
                    let after = arrived[rank as usize];
                    last[rank as usize] =
                        launch(streams, tiles, mask, self.shape.all_q(), after).or(last[rank as usize]);
                }
            }
            if step == 0 {
                // What a rank adds to its own keys is home.
                reached.iter_mut().for_each(BTreeSet::clear);
            } else if follow {
                let hop = span(&mut pass.moves, self.hop(step, |origin| reached[origin as usize].iter().copied()));
                let after = |rank: usize| last[rank];
                post(pass, RETURN, (CallMode::Accumulate, Dtype::F32), vec![sums.along(hop)], after);
            }
        }
    }

    fn rows(&self, document: usize, rank: u32) -> Rows {
        Rows::residue(self.documents[document], self.documents[document + 1], rank, self.ranks)
    }

    /// Keys of `documents` from the ranks that hold them at `step` to their right neighbours.
    fn hop<D: IntoIterator<Item = usize>>(&self, step: u32, documents: impl Fn(u32) -> D) -> Vec<Move> {
        let mut moves = Vec::new();
        for origin in 0..self.ranks {
            let (from, to) = ((origin + step) % self.ranks, (origin + step + 1) % self.ranks);
            let rows = documents(origin).into_iter().map(|document| self.rows(document, origin));
            moves.extend(rows.filter(|rows| !rows.is_empty()).map(|rows| Move { from, to, seq: 0, rows }));
        }
        moves
    }

    /// Tiles of a rank's rows on the keys that started on `origin`, one a document.
    fn tiles(
        &self,
        pass: &mut PassPlan,
        (rank, origin): (u32, u32),
        wanted: Mask,
        reached: &mut BTreeSet<usize>,
    ) -> Span {
        let start = pass.tiles.len() as u32;
        for document in 0..self.documents.len() - 1 {
            let (q, k) = (self.rows(document, rank), self.rows(document, origin));
            let mask = if k.last() > q.last() { Mask::CausalExclusive } else { Mask::Causal };
            if mask == wanted && mask.pairs(q.len, k.len) > 0 {
                pass.tiles.push(Tile { seq: 0, q, k });
                reached.insert(document);
            }
        }
        Span { start, end: pass.tiles.len() as u32 }
    }
}
