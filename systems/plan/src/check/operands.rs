//! Every operand of a tile and of a transfer is on its rank, in one run of one slab, before it is used.

use super::{View, heads_text, rows_text, tensors_text};
use std::sync::Arc;

use crate::facts::{LaunchOperands, Operands, TileRows, candidates, operands};
use crate::{CallMode, HeadRange, Launch, OpId, PlanError, Provider, Rows, Run, Slab, Span, TensorSet, Work};

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

/// What launches on the same tiles find in slabs of the same runs.
struct Memo {
    tiles: Span,
    /// By kind of operand, runs of the candidates up to the last one that was read; those after it cannot matter.
    runs: [Vec<*const Run>; 4],
    rows: Arc<[TileRows]>,
    used: Used,
}

/// By kind of operand, which candidates are read.
type Used = [Vec<bool>; 4];

impl Memo {
    fn new(launch: &Launch, found: &LaunchOperands, slabs: &[Slab], rows: Arc<[TileRows]>, used: Used) -> Self {
        let runs = std::array::from_fn(|kind| {
            let read = used[kind].iter().rposition(|u| *u).map_or(0, |last| last + 1);
            found.slabs[kind].iter().take(read).map(|i| slabs[*i].runs.as_ptr()).collect()
        });
        Self { tiles: launch.tiles, runs, rows, used }
    }

    fn serves(&self, launch: &Launch, found: &LaunchOperands, slabs: &[Slab]) -> bool {
        self.tiles == launch.tiles
            && self.runs.iter().zip(&found.slabs).all(|(runs, candidates)| {
                runs.len() <= candidates.len()
                    && runs.iter().zip(candidates).all(|(run, i)| *run == slabs[*i].runs.as_ptr())
            })
    }
}

fn launches(view: &View<'_>, uses: &mut LastUse) -> Result<Operands, PlanError> {
    let table = view.plan.pass(view.pass);
    let kinds = operands(view.pass);
    let mut all = Operands { ranks: Vec::with_capacity(table.ranks.len()) };
    let mut memos: Vec<Memo> = Vec::new();
    let mut before_rank = 0;
    for (rank, streams) in table.ranks.iter().enumerate() {
        let slabs = &view.slabs[rank].slabs;
        let first_of_rank = memos.len();
        let mut of_rank = Vec::new();
        for (index, op) in streams.streams.first().into_iter().flatten().enumerate() {
            let Work::Launch(launch) = op.work else { continue };
            let id = OpId { stream: crate::COMPUTE, index: index as u32 };
            let mut found = LaunchOperands::default();
            for (kind, (tensors, keys)) in kinds.iter().enumerate() {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                found.slabs[kind] = view.candidates(rank as u32, id, *tensors, heads);
            }
            // Of other ranks only the one before is looked at: ranks that share tiles are neighbours.
            let from = first_of_rank.min(before_rank);
            let memo = memos[from..].iter().position(|m| m.serves(&launch, &found, slabs)).map(|i| i + from);
            let memo = match memo {
                Some(memo) => memo,
                None => {
                    let user = format!("the launch at operation 0.{index}");
                    let (rows, used) = rows(view, rank as u32, &launch, &found, &user)?;
                    memos.push(Memo::new(&launch, &found, slabs, rows, used));
                    memos.len() - 1
                }
            };
            found.rows = memos[memo].rows.clone();
            let position = view.order.position(rank as u32, id);
            for (kind, candidates) in found.slabs.iter().enumerate() {
                for (candidate, slab) in candidates.iter().enumerate() {
                    if memos[memo].used[kind].get(candidate) == Some(&true) {
                        uses[rank][*slab] = uses[rank][*slab].max(position);
                    }
                }
            }
            of_rank.push(found);
        }
        if memos.len() > first_of_rank {
            before_rank = first_of_rank;
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
) -> Result<(Arc<[TileRows]>, Used), PlanError> {
    let slabs = &view.slabs[rank as usize].slabs;
    let tiles = &view.plan.pass(view.pass).tiles[launch.tiles.range()];
    let kinds = operands(view.pass);
    let mut rows = vec![TileRows::default(); tiles.len()];
    let mut used: Used = std::array::from_fn(|kind| vec![false; found.slabs[kind].len()]);
    let runs = |kind: usize| found.slabs[kind].iter().map(|i| slabs[*i].runs.as_ptr());
    for (kind, (tensors, keys)) in kinds.iter().enumerate() {
        // Q, dO and O usually lie in slabs of the same runs, and so do the keys of a square.
        let twin = (0..kind).find(|earlier| runs(*earlier).eq(runs(kind)));
        let mut near = vec![0; found.slabs[kind].len()];
        for (tile, out) in tiles.iter().zip(&mut rows) {
            let wanted = if *keys { tile.k } else { tile.q };
            if let Some(earlier) = twin {
                let theirs = if kinds[earlier].1 { tile.k } else { tile.q };
                if theirs == wanted {
                    out.at[kind] = out.at[earlier];
                    used[kind][usize::from(out.at[kind].0)] = true;
                    continue;
                }
            }
            let mut places = found.slabs[kind].iter().zip(&mut near).enumerate();
            let place = places.find_map(|(i, (slab, near))| {
                Some((u16::try_from(i).ok()?, Run::find_dense_near(&slabs[*slab].runs, near, tile.seq, wanted)?))
            });
            let Some(place) = place else {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                return Err(view.missing(rank, *tensors, heads, tile.seq, wanted, user));
            };
            used[kind][usize::from(place.0)] = true;
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
                    if tensor == crate::Tensor::V {
                        // K and V travel together and every slab holds both or neither.
                        continue;
                    }
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
