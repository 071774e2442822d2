use skewbench_plan::{HeadRange, Rows, Run, Tensor};

use crate::schedule::adds;
use crate::{BufferKind, InstrId, PassProgram, ProgramError, RankProgram, Schedule, View};

/// Rows in a buffer: `row`, `row + step`, ... of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Buffer of the rank.
    pub buffer: u32,
    /// First row in the buffer.
    pub row: u32,
    /// Distance in the buffer between neighbouring rows.
    pub step: u32,
}

/// Where the rows that instructions move lie in the buffers of their rank. Views of tiles say it for launches.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    pass: &'a PassProgram,
    schedule: Schedule,
}

impl<'a> Places<'a> {
    /// Places of one pass.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn of(pass: &'a PassProgram) -> Result<Self, ProgramError> {
        Ok(Self { pass, schedule: Schedule::of(pass)? })
    }

    /// Order of the pass's instructions.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn rank(&self, rank: u32) -> Option<&'a RankProgram> {
        self.pass.ranks.get(rank as usize)
    }

    /// Where `rank` reads rows that it sends in a copy call: its own shard, else what it kept, else what the latest call
    /// brought that is over before.
    pub fn source(
        &self,
        rank: u32,
        call: u32,
        (tensor, heads): (Tensor, HeadRange),
        (seq, rows): (u32, Rows),
    ) -> Option<Place> {
        let post = self.schedule.transfer(rank, call)?;
        let ready = |kind: BufferKind| match kind {
            BufferKind::Entry | BufferKind::Exit => Some(u32::MAX),
            BufferKind::Kept(_) => Some(0),
            BufferKind::Received(other) => {
                let brings = self.schedule.transfer(rank, other)?;
                self.schedule.before(rank, brings, post).then_some(other + 1)
            }
            BufferKind::Accumulator | BufferKind::Sum => None,
        };
        let buffers = (0u32..).zip(&self.rank(rank)?.buffers);
        let holders = buffers.filter(|(_, b)| b.tensor == tensor && b.heads.contains(heads));
        let places =
            holders.filter_map(|(index, buffer)| Some((ready(buffer.kind)?, place(index, &buffer.runs, seq, rows)?)));
        // Of equals the last: slabs are in the order of calls.
        places.max_by_key(|(order, _)| *order).map(|(_, place)| place)
    }

    /// Where rows that a copy call brings to `rank` go.
    pub fn slab(
        &self,
        rank: u32,
        call: u32,
        (tensor, heads): (Tensor, HeadRange),
        (seq, rows): (u32, Rows),
    ) -> impl Iterator<Item = Place> + 'a {
        let buffers = (0u32..).zip(self.rank(rank).map(|body| body.buffers.as_slice()).unwrap_or_default());
        buffers
            .filter(move |(_, b)| (b.kind, b.tensor, b.heads) == (BufferKind::Received(call), tensor, heads))
            .filter_map(move |(index, buffer)| place(index, &buffer.runs, seq, rows))
    }

    /// Instructions of `rank` that add to its results, in an order in which the whole pass can run: added in this order,
    /// sums are the same bit by bit in every run.
    pub fn additions(&self, rank: u32) -> Vec<InstrId> {
        let streams = self.rank(rank).map(|body| body.streams.as_slice()).unwrap_or_default();
        let all = (0u32..).zip(streams).flat_map(|(stream, instrs)| {
            (0u32..).zip(instrs).map(move |(index, instr)| (InstrId { stream, index }, instr))
        });
        let mut found: Vec<InstrId> = all.filter(|(_, instr)| adds(self.pass, instr)).map(|(id, _)| id).collect();
        found.sort_by_key(|id| self.schedule.position(rank, *id));
        found
    }
}

fn place(buffer: u32, runs: &[Run], seq: u32, rows: Rows) -> Option<Place> {
    let row = Run::find(runs, seq, rows)?;
    let second = Rows { start: rows.start.saturating_add(rows.stride), len: 1, stride: 1 };
    let step = if rows.len > 1 { Run::find(runs, seq, second)?.checked_sub(row)? } else { 1 };
    Some(Place { buffer, row, step })
}

impl RankProgram {
    /// Where a row and head of a result is summed up away from home: where launches on rows that are not all home add
    /// it, what a call brings passes through, and accumulate calls take it.
    pub fn accumulator(&self, tensor: Tensor, head: u16, seq: u32, row: u32) -> Option<View> {
        self.result(|kind| kind == BufferKind::Accumulator, tensor, head, seq, row)
    }

    /// Where a row and head of a result of the rank's own rows is summed up: the sum of its tensor, or the exit buffer
    /// where there is none.
    pub fn home(&self, tensor: Tensor, head: u16, seq: u32, row: u32) -> Option<View> {
        let sum = self.result(|kind| kind == BufferKind::Sum, tensor, head, seq, row);
        sum.or_else(|| self.result(|kind| kind == BufferKind::Exit, tensor, head, seq, row))
    }

    fn result(
        &self,
        wanted: impl Fn(BufferKind) -> bool,
        tensor: Tensor,
        head: u16,
        seq: u32,
        row: u32,
    ) -> Option<View> {
        let heads = HeadRange::new(head, head.saturating_add(1));
        let single = Rows { start: row, len: 1, stride: 1 };
        (0u32..)
            .zip(&self.buffers)
            .filter(|(_, b)| b.tensor == tensor && wanted(b.kind) && b.heads.contains(heads))
            .find_map(|(buffer, b)| Some(View { buffer, row: Run::find(&b.runs, seq, single)? }))
    }
}
