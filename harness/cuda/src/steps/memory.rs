//! Where the buffers of a rank lie in its arena.

use skewbench_exec::{Buffer, BufferKind, Program};
use skewbench_plan::{AttentionShape, CallMode, HeadRange, Pass, Run, Tensor};

use super::contributions::Contributed;
use super::rows::{Spot, common};
use super::{Element, Work};

/// Regions start at multiples of it.
pub(super) const ALIGNMENT: u64 = 256;

/// Gives out parts of the arena, one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arena {
    end: u64,
}

impl Arena {
    pub(super) fn at(start: u64) -> Self {
        Self { end: start }
    }

    pub(super) fn take(&mut self, bytes: u64) -> u64 {
        let start = self.end;
        self.end = start.saturating_add(bytes).next_multiple_of(ALIGNMENT);
        start
    }

    pub(super) fn end(self) -> u64 {
        self.end
    }
}

/// Memory of a buffer.
#[derive(Clone, Debug)]
pub(super) struct Memory<'a> {
    pub(super) buffer: &'a Buffer,
    pub(super) element: Element,
    /// Results are written, because every row and head gets one contribution; others are added to.
    pub(super) written: bool,
    /// Elements of a row and head.
    pub(super) width: u32,
    offset: u64,
    /// For an accumulator that lies in what the backward keeps of it: first rows of its runs, here and there, sorted.
    inside: Option<Vec<(u32, u32)>>,
}

/// Rows x heads of a tensor at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Where the rows start among those of a message.
    pub(super) skip: u32,
    pub(super) rows: u32,
    pub(super) heads: HeadRange,
    /// First byte.
    pub(super) at: u64,
    /// Bytes between rows.
    pub(super) stride: u64,
    pub(super) element: Element,
    /// Elements of a row and head.
    pub(super) width: u32,
    /// Buffer of the rank, unless it is scratch.
    pub(super) buffer: Option<u32>,
}

impl Block {
    /// Rows x heads without gaps.
    pub(super) fn packed(at: u64, rows: u32, heads: HeadRange, width: u32, element: Element) -> Self {
        let stride = u64::from(heads.len()) * u64::from(width) * element.bytes();
        Self { skip: 0, rows, heads, at, stride, element, width, buffer: None }
    }

    /// Bytes of a row of its heads.
    pub(super) fn row_bytes(&self) -> u64 {
        u64::from(self.heads.len()) * u64::from(self.width) * self.element.bytes()
    }

    /// The part with these rows and heads, which are in it.
    pub(super) fn part(&self, skip: u32, rows: u32, heads: HeadRange) -> Self {
        let column = u64::from(heads.start - self.heads.start) * u64::from(self.width) * self.element.bytes();
        let at = self.at + u64::from(skip - self.skip) * self.stride + column;
        Self { skip, rows, heads, at, ..*self }
    }

    /// The rows and heads that two blocks share, as each has them.
    pub(super) fn shared(&self, other: &Self) -> Option<(Self, Self)> {
        let heads = common(self.heads, other.heads);
        let skip = self.skip.max(other.skip);
        let end = (self.skip + self.rows).min(other.skip + other.rows);
        let some = !heads.is_empty() && skip < end;
        some.then(|| (self.part(skip, end - skip, heads), other.part(skip, end - skip, heads)))
    }
}

impl Memory<'_> {
    pub(super) fn heads(&self) -> HeadRange {
        self.buffer.heads
    }

    pub(super) fn rows(&self) -> u32 {
        self.buffer.runs.last().map_or(0, |run| run.offset + run.rows.len)
    }

    pub(super) fn row_bytes(&self) -> u64 {
        u64::from(self.heads().len()) * u64::from(self.width) * self.element.bytes()
    }

    fn bytes(&self) -> u64 {
        u64::from(self.rows()) * self.row_bytes()
    }

    /// First byte of a buffer that has memory of its own.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// First byte of a row and head.
    pub(super) fn at(&self, row: u32, head: u16) -> u64 {
        let row = match &self.inside {
            None => row,
            Some(starts) => {
                let next = starts.partition_point(|(here, _)| *here <= row);
                next.checked_sub(1).map_or(row, |run| starts[run].1 + row - starts[run].0)
            }
        };
        let column = u64::from(head.saturating_sub(self.heads().start)) * u64::from(self.width) * self.element.bytes();
        self.offset + u64::from(row) * self.row_bytes() + column
    }

    /// A spot as blocks of rows at even distances.
    pub(super) fn blocks(&self, spot: &Spot, out: &mut Vec<Block>) {
        let mut block = |ahead: u32, rows: u32| {
            out.push(Block {
                skip: spot.skip + ahead,
                rows,
                heads: spot.heads,
                at: self.at(spot.row + ahead * spot.step, spot.heads.start),
                stride: u64::from(spot.step) * self.row_bytes(),
                element: self.element,
                width: self.width,
                buffer: Some(spot.buffer),
            });
        };
        let mut next = 0;
        for (here, _) in self.inside.iter().flatten().filter(|(here, _)| *here > spot.row) {
            let ahead = (here - spot.row).div_ceil(spot.step);
            if ahead >= spot.rows {
                break;
            }
            if ahead > next {
                block(next, ahead - next);
                next = ahead;
            }
        }
        if next < spot.rows {
            block(next, spot.rows - next);
        }
    }
}

/// One row of all heads each of zeros (bf16) and of minus infinity (f32): what empty results are written from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    zeros: u64,
    zero_words: u64,
    infinities: u64,
    infinity_words: u64,
}

/// Bits of an LSE of nothing.
pub(super) const INFINITY: u32 = 0xff80_0000;

impl Constants {
    fn new(shape: AttentionShape, arena: &mut Arena) -> Self {
        let zero_words = u64::from(shape.q_heads.max(shape.kv_heads)) * u64::from(shape.head_dim).div_ceil(2);
        let infinity_words = u64::from(shape.q_heads);
        let (zeros, infinities) = (arena.take(4 * zero_words), arena.take(4 * infinity_words));
        Self { zeros, zero_words, infinities, infinity_words }
    }

    /// What a block of a buffer is emptied from.
    pub(super) fn empty(&self, to: &Block, memory: &[Memory<'_>]) -> Block {
        let owner = to.buffer.and_then(|buffer| memory.get(buffer as usize));
        match owner.is_some_and(|m| m.buffer.tensor == Tensor::Lse) {
            true => Block { at: self.infinities, stride: 0, element: Element::F32, buffer: None, ..*to },
            false => Block { at: self.zeros, stride: 0, element: Element::Bf16, buffer: None, ..*to },
        }
    }

    /// Fills of the constants that some moves read.
    pub(super) fn fills(&self, read: impl Fn(u64) -> bool) -> Vec<Work> {
        let all = [(self.zeros, self.zero_words, 0), (self.infinities, self.infinity_words, INFINITY)];
        let used = all.into_iter().filter(|(offset, ..)| read(*offset));
        used.map(|(offset, words, bits)| Work::Fill { offset, words, bits }).collect()
    }
}

/// The buffers of a rank and all that is fixed before its instructions are looked at.
pub(super) struct Layout<'a> {
    /// Buffers of the forward and of the backward.
    pub(super) passes: [Vec<Memory<'a>>; 2],
    /// Buffers of the backward that senders of accumulate calls fill in the forward, by their index.
    pub(super) kept: Vec<u32>,
    pub(super) constants: Constants,
    /// Where further memory of each pass comes from.
    pub(super) arenas: [Arena; 2],
}

fn same(a: &Buffer, b: &Buffer, kind: BufferKind) -> bool {
    (b.kind, b.tensor, b.heads) == (kind, a.tensor, a.heads) && b.runs == a.runs
}

impl<'a> Layout<'a> {
    /// Places the buffers of a rank; `contributed` says what is known of those of each pass.
    pub(super) fn new(program: &'a Program, rank: u32, contributed: &[Vec<Contributed>; 2]) -> Self {
        let shape = program.shape;
        let buffers: [&'a [Buffer]; 2] = [Pass::Forward, Pass::Backward].map(|pass| {
            program.pass(pass).ranks.get(rank as usize).map(|body| body.buffers.as_slice()).unwrap_or_default()
        });
        let mut passes = [0, 1].map(|pass| {
            let known = buffers[pass].iter().zip(&contributed[pass]);
            known.map(|(b, known)| memory(b, buffers[pass], known.single, shape)).collect::<Vec<_>>()
        });
        let taken =
            |call: u32| program.forward.calls.get(call as usize).is_some_and(|call| call.mode == CallMode::Accumulate);
        let kept: Vec<u32> = (0u32..)
            .zip(buffers[1])
            .filter(|(_, b)| matches!(b.kind, BufferKind::Kept(call) if taken(call)))
            .map(|(i, _)| i)
            .collect();
        let mut arena = Arena::default();
        let constants = Constants::new(shape, &mut arena);
        let [forward, backward] = &mut passes;
        // What the backward has from the forward, and inputs of both, come first.
        let mut shared: [Vec<bool>; 2] = [vec![false; forward.len()], vec![false; backward.len()]];
        for (i, m) in backward.iter_mut().enumerate() {
            let source = match m.buffer.kind {
                BufferKind::Kept(call) if !taken(call) => BufferKind::Received(call),
                BufferKind::Kept(_) => {
                    m.offset = arena.take(m.bytes());
                    shared[1][i] = true;
                    continue;
                }
                kind @ (BufferKind::Entry | BufferKind::Exit) => kind,
                _ => continue,
            };
            let Some(f) = forward.iter().position(|f| same(m.buffer, f.buffer, source)) else { continue };
            if !std::mem::replace(&mut shared[0][f], true) {
                forward[f].offset = arena.take(forward[f].bytes());
            }
            m.offset = forward[f].offset;
            shared[1][i] = true;
        }
        let lasts = |m: &Memory<'_>| matches!(m.buffer.kind, BufferKind::Entry | BufferKind::Exit);
        for (done, of_pass) in shared.iter_mut().zip([&mut *forward, &mut *backward]) {
            for (done, m) in done.iter_mut().zip(of_pass).filter(|(done, m)| !**done && lasts(m)) {
                m.offset = arena.take(m.bytes());
                *done = true;
            }
        }
        for o in 0..forward.len() {
            let Some((k, starts)) = inside_kept(forward, o, backward, &kept) else { continue };
            for (i, place) in [(o, k), (o + 1, k + 1)] {
                forward[i].offset = backward[place].offset;
                forward[i].inside = Some(starts.clone());
                shared[0][i] = true;
            }
        }
        let mut this = Self { passes, kept, constants, arenas: [arena; 2] };
        for (done, pass) in shared.iter().zip([Pass::Forward, Pass::Backward]) {
            this.place_rest(done, pass);
        }
        this
    }

    /// Gives the other buffers of a pass memory after what both passes share: the passes use it one after the other. Those
    /// that have to be emptied come first, sorted by what with, so that one fill serves neighbours.
    fn place_rest(&mut self, done: &[bool], pass: Pass) {
        let arena = &mut self.arenas[pass as usize];
        let group = |m: &Memory<'_>| match (m.written, m.buffer.kind, m.buffer.tensor) {
            (false, BufferKind::Accumulator, Tensor::Lse) => 1,
            (false, BufferKind::Accumulator | BufferKind::Sum, tensor) if tensor != Tensor::O => 0,
            _ => 2,
        };
        for now in 0..3 {
            let rest = self.passes[pass as usize].iter_mut().zip(done).filter(|(m, done)| !**done && group(m) == now);
            rest.for_each(|(m, _)| m.offset = arena.take(m.bytes()));
        }
    }
}

fn memory<'a>(buffer: &'a Buffer, all: &[Buffer], single: bool, shape: AttentionShape) -> Memory<'a> {
    let width = if buffer.tensor == Tensor::Lse { 1 } else { u32::from(shape.head_dim) };
    let leader = if buffer.tensor == Tensor::Lse { Tensor::O } else { buffer.tensor };
    let written = match buffer.kind {
        BufferKind::Accumulator => single,
        BufferKind::Sum => false,
        BufferKind::Exit => !all.iter().any(|b| b.kind == BufferKind::Sum && b.tensor == leader),
        BufferKind::Entry | BufferKind::Received(_) | BufferKind::Kept(_) => true,
    };
    let summed = !written && buffer.kind != BufferKind::Exit;
    let element = if summed || buffer.tensor == Tensor::Lse { Element::F32 } else { Element::Bf16 };
    Memory { buffer, element, written, width, offset: 0, inside: None }
}

/// The buffer of the backward that keeps all that an accumulator of single contributions, the `o`-th buffer, will hold, and
/// where the runs of the accumulator lie in it: contributions are then written there at once.
fn inside_kept(
    forward: &[Memory<'_>],
    o: usize,
    backward: &[Memory<'_>],
    kept: &[u32],
) -> Option<(usize, Vec<(u32, u32)>)> {
    let (m, lse) = (&forward[o], forward.get(o + 1)?);
    let is_pair = (m.buffer.tensor, lse.buffer.tensor) == (Tensor::O, Tensor::Lse);
    if m.buffer.kind != BufferKind::Accumulator || !m.written || !is_pair {
        return None;
    }
    kept.iter().map(|k| *k as usize).find_map(|k| {
        let (o, lse) = (&backward[k], backward.get(k + 1)?);
        let fits = (o.buffer.tensor, lse.buffer.tensor) == (Tensor::O, Tensor::Lse)
            && (o.buffer.kind, &o.buffer.runs) == (lse.buffer.kind, &lse.buffer.runs)
            && o.heads() == m.heads();
        let mut near = 0;
        let start = |run: &Run| Some((run.offset, Run::find_dense_near(&o.buffer.runs, &mut near, run.seq, run.rows)?));
        let starts: Option<Vec<_>> = if fits { m.buffer.runs.iter().map(start).collect() } else { None };
        Some((k, starts?))
    })
}
