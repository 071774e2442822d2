//! Every operand of a tile and of a transfer is on its rank, in one run of one slab, before it is used.

use super::{View, heads_text, rows_text, tensors_text};
use std::sync::Arc;

use crate::facts::{LaunchOperands, Operands, TileRows, candidates, operands};
use crate::{CallMode, HeadRange, Launch, OpId, PlanError, Provider, Rows, Run, Span, TensorSet, Work};

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

pub(super) fn check(view: &View<'_>) -> Result<(Operands, LastUse), PlanError> {
    let mut uses: LastUse = view.slabs.iter().map(|s| vec![0; s.slabs.len()]).collect();
    let operands = launches(view, &mut uses)?;
    sends(view, &mut uses)?;
    Ok((operands, uses))
}

/// Locates the operands of every launch.
pub(crate) fn locate(view: &View<'_>) -> Result<Operands, PlanError> {
    let mut uses: LastUse = view.slabs.iter().map(|s| vec![0; s.slabs.len()]).collect();
    launches(view, &mut uses)
}

/// Launches on the same tiles whose slabs have the same runs find their rows at the same places.
struct Memo {
    tiles: Span,
    runs: Vec<*const Run>,
    rows: Arc<[TileRows]>,
    used: Vec<u32>,
}

fn launches(view: &View<'_>, uses: &mut LastUse) -> Result<Operands, PlanError> {
    let table = view.plan.pass(view.pass);
    let kinds = operands(view.pass);
    let mut all = Operands { ranks: Vec::with_capacity(table.ranks.len()) };
    for (rank, streams) in table.ranks.iter().enumerate() {
        let slabs = &view.slabs[rank].slabs;
        let mut memos: Vec<Memo> = Vec::new();
        let mut of_rank = Vec::new();
        for (index, op) in streams.streams.first().into_iter().flatten().enumerate() {
            let Work::Launch(launch) = op.work else { continue };
            let id = OpId { stream: crate::COMPUTE, index: index as u32 };
            let mut found = LaunchOperands::default();
            let mut runs = Vec::new();
            for (kind, (tensors, keys)) in kinds.iter().enumerate() {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                found.slabs[kind] = view.candidates(rank as u32, id, *tensors, heads);
                runs.extend(found.slabs[kind].iter().map(|i| slabs[*i].runs.as_ptr()));
                runs.push(std::ptr::null());
            }
            let memo = memos.iter().position(|m| m.tiles == launch.tiles && m.runs == runs);
            let memo = match memo {
                Some(memo) => memo,
                None => {
                    let user = format!("the launch at operation 0.{index}");
                    let (rows, used) = rows(view, rank as u32, &launch, &found, &user)?;
                    memos.push(Memo { tiles: launch.tiles, runs, rows, used });
                    memos.len() - 1
                }
            };
            found.rows = memos[memo].rows.clone();
            let position = view.order.position(rank as u32, id);
            for (kind, candidates) in found.slabs.iter().enumerate() {
                for (candidate, slab) in candidates.iter().enumerate() {
                    if memos[memo].used[kind] & (1 << candidate.min(31)) != 0 {
                        uses[rank][*slab] = uses[rank][*slab].max(position);
                    }
                }
            }
            of_rank.push(found);
        }
        all.ranks.push(of_rank);
    }
    Ok(all)
}

/// Places of the operands of every tile of a launch, with which candidates of each kind are read.
fn rows(
    view: &View<'_>,
    rank: u32,
    launch: &Launch,
    found: &LaunchOperands,
    user: &str,
) -> Result<(Arc<[TileRows]>, Vec<u32>), PlanError> {
    let slabs = &view.slabs[rank as usize].slabs;
    let tiles = &view.plan.pass(view.pass).tiles[launch.tiles.range()];
    let kinds = operands(view.pass);
    let mut rows = vec![TileRows::default(); tiles.len()];
    let mut used = vec![0u32; kinds.len()];
    used.resize(found.slabs.len(), 0);
    for (kind, (tensors, keys)) in kinds.iter().enumerate() {
        for (tile, out) in tiles.iter().zip(&mut rows) {
            let wanted = if *keys { tile.k } else { tile.q };
            let mut places = found.slabs[kind].iter().enumerate();
            let place = places.find_map(|(i, slab)| Some((i as u16, slabs[*slab].find_dense(tile.seq, wanted)?)));
            let Some(place) = place else {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                return Err(view.missing(rank, *tensors, heads, tile.seq, wanted, user));
            };
            used[kind] |= 1 << place.0.min(31);
            out.at[kind] = place;
        }
    }
    Ok((rows.into(), used))
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
