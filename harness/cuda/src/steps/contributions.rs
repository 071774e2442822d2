//! Which accumulators get one contribution a row and head at most, and when the last one comes.

use skewbench_exec::{Buffer, BufferKind, InstrId, InstrKind, PassProgram, Places, TransferPart, View};
use skewbench_plan::{CallMode, Dtype, HeadRange, Tensor};

use super::rows::{Rect, Spot, all_single};

/// Finds results in the buffers of a rank.
#[derive(Clone, Debug)]
pub(super) struct Finder<'a> {
    buffers: &'a [Buffer],
    /// Buffers of each tensor.
    accumulators: Vec<Vec<u32>>,
    homes: Vec<Vec<u32>>,
}

/// Heads of a tensor that a part carries.
pub(super) fn heads(part: &TransferPart, tensor: Tensor) -> HeadRange {
    if tensor.is_kv() { part.kv_heads } else { part.q_heads }
}

/// The result that goes with a result: LSE with O, dV with dK; it lies in the buffer after.
pub(super) fn follower(tensor: Tensor) -> Option<Tensor> {
    match tensor {
        Tensor::O => Some(Tensor::Lse),
        Tensor::DK => Some(Tensor::DV),
        _ => None,
    }
}

impl<'a> Finder<'a> {
    pub(super) fn new(buffers: &'a [Buffer]) -> Self {
        let of = |kinds: &[BufferKind]| {
            let list = |tensor: Tensor| {
                let of_kind = |kind: BufferKind| {
                    (0u32..).zip(buffers).filter(move |(_, b)| b.tensor == tensor && b.kind == kind).map(|(i, _)| i)
                };
                kinds.iter().flat_map(|kind| of_kind(*kind)).collect()
            };
            Tensor::ALL.into_iter().map(list).collect()
        };
        let accumulators = of(&[BufferKind::Accumulator]);
        // Sums come first: exit buffers beside them get values from the cast alone.
        Self { buffers, accumulators, homes: of(&[BufferKind::Sum, BufferKind::Exit]) }
    }

    fn find(&self, list: &[u32], mut wanted: Vec<Rect>, found: &mut Vec<Spot>) -> Vec<Rect> {
        for index in list {
            let buffer = &self.buffers[*index as usize];
            let mut rest = Vec::new();
            for rect in wanted {
                rect.split((*index, buffer.heads, &buffer.runs), found, &mut rest);
            }
            wanted = rest;
        }
        wanted
    }

    /// Finds rows in accumulators; what is in none comes back.
    pub(super) fn away(&self, tensor: Tensor, wanted: Vec<Rect>, found: &mut Vec<Spot>) -> Vec<Rect> {
        self.find(&self.accumulators[tensor as usize], wanted, found)
    }

    /// Finds rows in sums or exit buffers; what is in none comes back.
    pub(super) fn home(&self, tensor: Tensor, wanted: Vec<Rect>, found: &mut Vec<Spot>) -> Vec<Rect> {
        self.find(&self.homes[tensor as usize], wanted, found)
    }

    /// Accumulators of a tensor.
    pub(super) fn accumulators(&self, tensor: Tensor) -> &[u32] {
        &self.accumulators[tensor as usize]
    }
}

/// What is known of a buffer's contributions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contributed {
    /// No row and head gets more than one, and none arrives in f32.
    pub(super) single: bool,
    /// One past the position of the last instruction that contributes.
    pub(super) last: u32,
}

/// Contributions to the accumulators of a rank, by buffer.
pub(super) fn to_accumulators(
    pass: &PassProgram,
    places: &Places<'_>,
    rank: u32,
    finder: &Finder<'_>,
) -> Vec<Contributed> {
    let buffers = finder.buffers;
    let mut found = vec![Contributed { single: true, last: 0 }; buffers.len()];
    let mut spots: Vec<Vec<(HeadRange, (u32, u32))>> = vec![Vec::new(); buffers.len()];
    let is_away = |buffer: u32| buffers.get(buffer as usize).is_some_and(|b| b.kind == BufferKind::Accumulator);
    let streams = pass.ranks.get(rank as usize).map(|body| body.streams.as_slice()).unwrap_or_default();
    for (stream, index, instr) in
        (0u32..).zip(streams).flat_map(|(s, list)| (0u32..).zip(list).map(move |(i, instr)| (s, i, instr)))
    {
        let position = places.schedule().position(rank, InstrId { stream, index }).map_or(u32::MAX, |p| p + 1);
        match instr.kind {
            InstrKind::Launch { tiles, q_heads, kv_heads, .. } => {
                for tile in pass.tiles.get(tiles.range()).unwrap_or_default() {
                    let results: [(View, Tensor, u32, HeadRange); 3] = [
                        (tile.o, Tensor::O, tile.q_rows, q_heads),
                        (tile.dq, Tensor::DQ, tile.q_rows, q_heads),
                        (tile.dk, Tensor::DK, tile.k_rows, kv_heads),
                    ];
                    for (view, tensor, rows, heads) in results {
                        if !is_away(view.buffer) || buffers[view.buffer as usize].tensor != tensor {
                            continue;
                        }
                        for buffer in view.buffer..=view.buffer + u32::from(tensor == Tensor::DK) {
                            let Some(known) = found.get_mut(buffer as usize) else { continue };
                            known.last = known.last.max(position);
                            spots[buffer as usize].push((heads, (view.row, view.row + rows)));
                        }
                    }
                }
            }
            InstrKind::Transfer { call } => {
                let Some(transfer) = pass.calls.get(call as usize) else { continue };
                if transfer.mode == CallMode::Copy {
                    continue;
                }
                let merge = streams[stream as usize]
                    .iter()
                    .skip(index as usize)
                    .position(|instr| matches!(instr.kind, InstrKind::Merge { call: of, .. } if of == call));
                let id = InstrId { stream, index: index + merge.unwrap_or(0) as u32 };
                let position = places.schedule().position(rank, id).map_or(u32::MAX, |p| p + 1);
                for part in &transfer.parts {
                    for spot in arrivals(pass, part, rank, finder) {
                        let known = &mut found[spot.buffer as usize];
                        known.last = known.last.max(position);
                        known.single &= transfer.dtype == Dtype::Bf16;
                        spots[spot.buffer as usize].extend(spot.intervals().map(|rows| (spot.heads, rows)));
                    }
                }
            }
            _ => {}
        }
    }
    for (known, spots) in found.iter_mut().zip(&spots) {
        known.single = known.single && all_single(spots);
    }
    // Followers are decided with their leaders.
    for (index, buffer) in buffers.iter().enumerate().filter(|(_, b)| b.kind == BufferKind::Accumulator) {
        let Some(other) = found.get(index + 1).copied().filter(|_| follower(buffer.tensor).is_some()) else { continue };
        match buffer.tensor {
            Tensor::O => found[index + 1] = found[index],
            _ => {
                found[index].single &= other.single;
                found[index + 1].single = found[index].single;
            }
        }
    }
    found
}

/// Where what a part brings to a rank goes in its accumulators.
fn arrivals(pass: &PassProgram, part: &TransferPart, rank: u32, finder: &Finder<'_>) -> Vec<Spot> {
    let mut found = Vec::new();
    let Some(table) = pass.routes.get(part.routes as usize) else { return found };
    let received = table.index.received(rank).iter().filter_map(|i| table.moves.get(*i as usize));
    for mv in received.filter(|mv| mv.from != mv.to) {
        for tensor in part.tensors.iter().filter(|t| *t != Tensor::Lse && !finder.accumulators(*t).is_empty()) {
            let rect = Rect { seq: mv.seq, rows: mv.rows, heads: heads(part, tensor), skip: 0 };
            let rest = finder.home(tensor, vec![rect], &mut Vec::new());
            finder.away(tensor, rest, &mut found);
        }
    }
    found
}
