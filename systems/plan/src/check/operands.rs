//! Every operand of a tile and of a transfer is on its rank, in one run of one slab, before it is used.

use super::{View, heads_text, rows_text, tensors_text};
use crate::facts::{candidates, operands};
use crate::{CallMode, HeadRange, OpId, PlanError, Provider, Rows, TensorSet, Work};

/// Position of the last operation that reads each slab of each rank; 0 when none does.
pub(super) type LastUse = Vec<Vec<u32>>;

impl View<'_> {
    fn candidates(&self, rank: u32, op: OpId, tensors: TensorSet, heads: HeadRange) -> Vec<usize> {
        candidates(&self.slabs[rank as usize], self.order, rank, op, tensors, heads)
    }

    fn missing(&self, rank: u32, tensors: TensorSet, heads: HeadRange, seq: u32, rows: Rows, user: &str) -> PlanError {
        let slabs = &self.slabs[rank as usize].slabs;
        let later = slabs.iter().find(|s| s.holds(tensors, heads) && s.find(seq, rows).is_some());
        let why = match later.map(|s| s.provider) {
            Some(Provider::Call(call)) => format!("call {call} brings them, but nothing makes it wait for that call"),
            _ => "they are not on the rank in one piece".into(),
        };
        self.error(format!(
            "rank {rank}: {user} starts before {} of sequence {seq}, {}, {} have arrived: {why}",
            tensors_text(tensors),
            rows_text(rows),
            heads_text(heads)
        ))
    }
}

pub(super) fn check(view: &View<'_>) -> Result<LastUse, PlanError> {
    let mut uses: LastUse = view.slabs.iter().map(|s| vec![0; s.slabs.len()]).collect();
    launches(view, &mut uses)?;
    sends(view, &mut uses)?;
    Ok(uses)
}

fn launches(view: &View<'_>, uses: &mut LastUse) -> Result<(), PlanError> {
    let table = view.plan.pass(view.pass);
    for (rank, streams) in table.ranks.iter().enumerate() {
        let slabs = &view.slabs[rank].slabs;
        for (index, op) in streams.streams.first().into_iter().flatten().enumerate() {
            let Work::Launch(launch) = op.work else { continue };
            let id = OpId { stream: crate::COMPUTE, index: index as u32 };
            let position = view.order.position(rank as u32, id);
            for (tensors, keys) in operands(view.pass) {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                let candidates = view.candidates(rank as u32, id, *tensors, heads);
                for tile in &table.tiles[launch.tiles.range()] {
                    let rows = if *keys { tile.k } else { tile.q };
                    let found = candidates.iter().find(|i| slabs[**i].find_dense(tile.seq, rows).is_some());
                    let Some(found) = found else {
                        let user = format!("the launch at operation 0.{index}");
                        return Err(view.missing(rank as u32, *tensors, heads, tile.seq, rows, &user));
                    };
                    let last = &mut uses[rank][*found];
                    *last = (*last).max(position);
                }
            }
        }
    }
    Ok(())
}

fn sends(view: &View<'_>, uses: &mut LastUse) -> Result<(), PlanError> {
    let table = view.plan.pass(view.pass);
    // A span whose rows all come from entry shards does so for every head piece that refers to it.
    let mut from_entry = vec![TensorSet::default(); view.indices.len()];
    for (index, call) in table.calls.iter().enumerate().filter(|(_, c)| c.mode == CallMode::Copy) {
        for part in &call.parts {
            let span = view.indices.id(part.moves);
            if part.tensors.iter().all(|t| from_entry[span].has(t)) {
                continue;
            }
            let Some(moves_of) = view.indices.get(part.moves) else { continue };
            let mut all_entry = true;
            for rank in 0..view.plan.ranks {
                let sent = moves_of.sent(rank);
                let Some(post) = view.order.post(rank, index as u32).filter(|_| !sent.is_empty()) else { continue };
                let position = view.order.position(rank, post);
                let slabs = &view.slabs[rank as usize].slabs;
                // A part may carry tensors that live in different slabs of the sender (dO with O and LSE).
                for tensor in part.tensors.iter() {
                    let one = TensorSet::of(&[tensor]);
                    let mut candidates = view.candidates(rank, post, one, part.heads(tensor));
                    candidates
                        .sort_unstable_by_key(|i| !matches!(slabs[*i].provider, Provider::Entry | Provider::Exit));
                    for mv in sent {
                        let mv = &table.moves[part.moves.range()][*mv as usize];
                        let Some(found) = candidates.iter().find(|i| slabs[**i].find(mv.seq, mv.rows).is_some()) else {
                            let user = format!("call {index}");
                            return Err(view.missing(rank, one, part.heads(tensor), mv.seq, mv.rows, &user));
                        };
                        all_entry &= matches!(slabs[*found].provider, Provider::Entry | Provider::Exit);
                        let last = &mut uses[rank as usize][*found];
                        *last = (*last).max(position);
                    }
                }
            }
            if all_entry {
                from_entry[span] = from_entry[span].union(part.tensors);
            }
        }
    }
    Ok(())
}
