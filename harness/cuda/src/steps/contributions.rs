//! Which accumulators get one contribution a row and head at most, and when the last one comes.

use skewbench_exec::{Buffer, BufferKind, InstrId, InstrKind, PassProgram, Places, TransferPart, View};
use skewbench_plan::{CallMode, Dtype, HeadRange, Tensor};

use super::rows::{Intervals, Rect, Spot, all_single, join};

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

/// What is known of the contributions to an accumulator.
#[derive(Clone, Debug, Default)]
pub(super) struct Contributed {
    /// No row and head gets more than one, and none arrives in f32.
    pub(super) single: bool,
    gains: Vec<Gain>,
}

/// What one instruction contributes.
#[derive(Clone, Debug)]
struct Gain {
    /// Position of the instruction.
    position: u32,
    heads: HeadRange,
    rows: Intervals,
}

impl Contributed {
    fn add(&mut self, position: u32, heads: HeadRange, rows: (u32, u32)) {
        match self.gains.last_mut().filter(|gain| (gain.position, gain.heads) == (position, heads)) {
            Some(gain) => gain.rows.push(rows),
            None => self.gains.push(Gain { position, heads, rows: vec![rows] }),
        }
    }

    fn close(&mut self) {
        let each = |gain: &Gain| gain.rows.iter().map(|rows| (gain.heads, *rows)).collect::<Vec<_>>();
        let all: Vec<(HeadRange, (u32, u32))> = self.gains.iter().flat_map(each).collect();
        self.single = self.single && all_single(&all);
        self.gains.iter_mut().for_each(|gain| join(&mut gain.rows));
    }

    /// True when something is added to rows of a spot after the instruction at a position.
    pub(super) fn later(&self, position: u32, spot: &Spot) -> bool {
        let end = spot.row + spot.rows.saturating_sub(1) * spot.step + 1;
        self.gains.iter().filter(|gain| gain.position > position && gain.heads.overlaps(spot.heads)).any(|gain| {
            let first = gain.rows.partition_point(|rows| rows.1 <= spot.row);
            gain.rows.get(first).is_some_and(|rows| rows.0 < end)
        })
    }
}

/// Contributions to the accumulators of a rank, by buffer.
pub(super) fn to_accumulators(
    pass: &PassProgram,
    places: &Places<'_>,
    rank: u32,
    finder: &Finder<'_>,
) -> Vec<Contributed> {
    let buffers = finder.buffers;
    let mut found = vec![Contributed { single: true, gains: Vec::new() }; buffers.len()];
    let is_away = |buffer: u32| buffers.get(buffer as usize).is_some_and(|b| b.kind == BufferKind::Accumulator);
    let streams = pass.ranks.get(rank as usize).map(|body| body.streams.as_slice()).unwrap_or_default();
    for (stream, index, instr) in
        (0u32..).zip(streams).flat_map(|(s, list)| (0u32..).zip(list).map(move |(i, instr)| (s, i, instr)))
    {
        let position = places.schedule().position(rank, InstrId { stream, index }).unwrap_or(u32::MAX);
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
                            if let Some(known) = found.get_mut(buffer as usize) {
                                known.add(position, heads, (view.row, view.row.saturating_add(rows)));
                            }
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
                let position = places.schedule().position(rank, id).unwrap_or(u32::MAX);
                for part in &transfer.parts {
                    for spot in arrivals(pass, part, rank, finder) {
                        let known = &mut found[spot.buffer as usize];
                        known.single &= transfer.dtype == Dtype::Bf16;
                        spot.intervals().for_each(|rows| known.add(position, spot.heads, rows));
                    }
                }
            }
            _ => {}
        }
    }
    found.iter_mut().for_each(Contributed::close);
    // What goes with a result is decided with it.
    for (index, buffer) in buffers.iter().enumerate().filter(|(_, b)| b.kind == BufferKind::Accumulator) {
        let single = found[index].single;
        match (buffer.tensor, found.get_mut(index + 1)) {
            (Tensor::O, Some(lse)) => lse.single = single,
            (Tensor::DK, Some(dv)) => {
                dv.single &= single;
                found[index].single = found[index + 1].single;
            }
            _ => {}
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
