//! What a rank does in a call.

use skewbench_exec::{BufferKind, Place, TransferCall, TransferPart, View};
use skewbench_plan::{CallMode, HeadRange, Move, Rows, Tensor};

use crate::memory::{Contribution, add, peek, take};
use crate::pass::{At, Halt, PassRun, RankState};
use crate::table::is_poison;

/// What one rank sends another in a call: part by part, move by move, tensor by tensor, row by row, head by head.
pub(crate) enum Message {
    /// Elements of a copy.
    Copies(Vec<f32>),
    /// Sums that leave the sender.
    Sums(Vec<Contribution>),
}

/// A sum that has arrived and waits for the merge.
pub(crate) struct Arrived {
    tensor: Tensor,
    head: u16,
    to: View,
    what: Contribution,
}

impl Arrived {
    /// Where it belongs: tensor, place, head.
    pub(crate) fn place(&self) -> (Tensor, View, u16) {
        (self.tensor, self.to, self.head)
    }
}

fn heads(part: &TransferPart, tensor: Tensor) -> HeadRange {
    if tensor.is_kv() { part.kv_heads } else { part.q_heads }
}

fn each(rows: Rows) -> impl Iterator<Item = u32> {
    (0..rows.len).map(move |i| rows.start + i * rows.stride)
}

/// Results that a part carries: O stands for O with its LSE.
fn results(part: &TransferPart) -> impl Iterator<Item = Tensor> {
    part.tensors.iter().filter(|tensor| *tensor != Tensor::Lse)
}

fn text(tensor: Tensor, seq: u32, row: u32, head: u16) -> String {
    format!("{} of sequence {seq}, row {row}, head {head}", tensor.name())
}

impl PassRun<'_> {
    fn call(&self, at: At, call: u32) -> Result<&TransferCall, Halt> {
        self.table.calls.get(call as usize).ok_or_else(|| self.fail(at, format!("call {call} does not exist")))
    }

    /// Moves of a call that a rank sends to (or receives from) a peer, each with its part.
    fn moves(
        &self,
        call: &TransferCall,
        rank: u32,
        sent: bool,
        wanted: impl Fn(&Move) -> bool,
    ) -> Vec<(TransferPart, Move)> {
        let mut found = Vec::new();
        for part in &call.parts {
            let Some(table) = self.table.routes.get(part.routes as usize) else { continue };
            let list = if sent { table.index.sent(rank) } else { table.index.received(rank) };
            let moves = list.iter().filter_map(|i| table.moves.get(*i as usize));
            found.extend(moves.filter(|mv| wanted(mv)).map(|mv| (*part, *mv)));
        }
        found
    }

    /// Carries out the moves that stay on the rank.
    pub(crate) fn pack(&self, at: At, call: u32) -> Result<(), Halt> {
        let transfer = self.call(at, call)?;
        let local = self.moves(transfer, at.rank, true, |mv| mv.to == at.rank);
        if transfer.mode == CallMode::Copy {
            for (part, mv) in &local {
                for tensor in part.tensors.iter() {
                    let mut values = Vec::new();
                    self.read(at, call, (part, mv, tensor), &mut values)?;
                    self.write(at, call, (part, mv, tensor), &mut values.as_slice())?;
                }
            }
            return Ok(());
        }
        self.in_turn(at, || {
            local.iter().try_for_each(|(part, mv)| {
                results(part).try_for_each(|tensor| self.bring_home(at, call, part, mv, tensor))
            })
        })
    }

    /// Moves rows from the rank's accumulator home; those that tiles have put there already stay.
    fn bring_home(&self, at: At, call: u32, part: &TransferPart, mv: &Move, tensor: Tensor) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        for (row, head) in each(mv.rows).flat_map(|row| range(heads(part, tensor)).map(move |head| (row, head))) {
            let home = state.program.home(tensor, head, mv.seq, row);
            let home = home.ok_or_else(|| self.fail(at, format!("{} is not home", text(tensor, mv.seq, row, head))))?;
            let away = state.program.accumulator(tensor, head, mv.seq, row);
            let held = |view| peek(&state.memory, tensor, view, head);
            if let Some(found) = away.and_then(held).or_else(|| held(home)) {
                self.keep(state, call, tensor, (mv.seq, row, head), &found);
            }
            let Some(mut found) = away.and_then(|view| take(&state.memory, tensor, view, head)) else { continue };
            found.lse = found.lse.filter(|_| part.tensors.has(Tensor::Lse));
            self.add(at, state, tensor, head, home, &found)?;
        }
        Ok(())
    }

    fn add(
        &self,
        at: At,
        state: &RankState<'_>,
        tensor: Tensor,
        head: u16,
        to: View,
        what: &Contribution,
    ) -> Result<(), Halt> {
        let added = add(&state.memory, tensor, to, head, what);
        added.ok_or_else(|| self.fail(at, format!("{} has no place in buffer {}", tensor.name(), to.buffer)))
    }

    /// Puts O and LSE that leave aside for the backward.
    fn keep(
        &self,
        state: &RankState<'_>,
        call: u32,
        tensor: Tensor,
        (seq, row, head): (u32, u32, u16),
        what: &Contribution,
    ) {
        let keeps = self.table.calls.get(call as usize).is_some_and(|call| call.keep);
        if !keeps || tensor != Tensor::O {
            return;
        }
        let single = Rows { start: row, len: 1, stride: 1 };
        for kept in state.kept.iter().filter(|kept| kept.buffer.kind == BufferKind::Kept(call)) {
            let index = skewbench_plan::Run::find(&kept.buffer.runs, seq, single);
            let values: Vec<f64> = match kept.buffer.tensor {
                Tensor::O => what.values.clone(),
                Tensor::Lse => what.lse.into_iter().collect(),
                _ => continue,
            };
            let mut writing = kept.write();
            if let Some(to) = index.and_then(|index| writing.at(index, head)) {
                to.iter_mut().zip(values).for_each(|(to, value)| *to = value as f32);
            }
        }
    }

    /// Sends what others get and waits for what they send.
    pub(crate) fn transfer(&self, at: At, call: u32) -> Result<(), Halt> {
        let transfer = self.call(at, call)?;
        let mut sent = self.moves(transfer, at.rank, true, |mv| mv.to != at.rank);
        // A stable sort: moves to one peer stay in order.
        sent.sort_by_key(|(_, mv)| mv.to);
        for to_one in sent.chunk_by(|a, b| a.1.to == b.1.to) {
            let message = match transfer.mode {
                CallMode::Copy => {
                    let mut values = Vec::new();
                    for (part, mv) in to_one {
                        for tensor in part.tensors.iter() {
                            self.read(at, call, (part, mv, tensor), &mut values)?;
                        }
                    }
                    Message::Copies(values)
                }
                CallMode::Accumulate => {
                    let mut sums = Vec::new();
                    for (part, mv) in to_one {
                        for tensor in results(part) {
                            self.take(at, call, (part, mv, tensor), &mut sums)?;
                        }
                    }
                    Message::Sums(sums)
                }
            };
            let to = to_one[0].1.to;
            if let Some(link) = self.link.filter(|link| !link.is_here(to)) {
                link.send_to_rank(self.pass, call, (at.rank, to), &message).map_err(Halt::Here)?;
                continue;
            }
            let peer = self.ranks.get(to as usize);
            let peer = peer.ok_or_else(|| self.fail(at, format!("call {call} sends to a rank that does not exist")))?;
            peer.receive(call, at.rank, message);
        }
        let mut received = self.moves(transfer, at.rank, false, |mv| mv.from != at.rank);
        received.sort_by_key(|(_, mv)| mv.from);
        for from_one in received.chunk_by(|a, b| a.1.from == b.1.from) {
            let from = from_one[0].1.from;
            let why = || format!("what rank {from} sends in call {call}");
            match self.wait(at, why, |board| board.mail.remove(&(call, from)))? {
                Message::Copies(values) => {
                    let mut rest = values.as_slice();
                    for (part, mv) in from_one {
                        for tensor in part.tensors.iter() {
                            self.write(at, call, (part, mv, tensor), &mut rest)?;
                        }
                    }
                }
                Message::Sums(sums) => self.arrive(at, call, from_one, sums)?,
            }
        }
        Ok(())
    }

    /// Appends the rows of a move of a copy call.
    fn read(
        &self,
        at: At,
        call: u32,
        (part, mv, tensor): (&TransferPart, &Move, Tensor),
        out: &mut Vec<f32>,
    ) -> Result<(), Halt> {
        let heads = heads(part, tensor);
        let place = self.places.source(at.rank, call, (tensor, heads), (mv.seq, mv.rows));
        let absent = |row: u32, head: u16| {
            self.fail(at, format!("call {call} sends {}, which is not there yet", text(tensor, mv.seq, row, head)))
        };
        let place = place.ok_or_else(|| absent(mv.rows.start, heads.start))?;
        let memory = &self.ranks[at.rank as usize].memory;
        let from = memory.get(place.buffer as usize).ok_or_else(|| absent(mv.rows.start, heads.start))?.read();
        for (index, row) in indices(place).zip(each(mv.rows)) {
            for head in range(heads) {
                let values = from.at(index, head).filter(|values| !is_poison(values));
                out.extend_from_slice(values.ok_or_else(|| absent(row, head))?);
            }
        }
        Ok(())
    }

    /// Puts the next elements into the slabs of a copy call.
    fn write(
        &self,
        at: At,
        call: u32,
        (part, mv, tensor): (&TransferPart, &Move, Tensor),
        values: &mut &[f32],
    ) -> Result<(), Halt> {
        let heads = heads(part, tensor);
        let memory = &self.ranks[at.rank as usize].memory;
        let width = crate::table::width(tensor, self.program.shape);
        let len = mv.rows.len as usize * heads.len() as usize * width;
        let (now, later) = values.split_at_checked(len).ok_or_else(|| {
            self.fail(at, format!("call {call}: rank {} sends fewer elements than expected", mv.from))
        })?;
        *values = later;
        for place in self.places.slab(at.rank, call, (tensor, heads), (mv.seq, mv.rows)) {
            let Some(slab) = memory.get(place.buffer as usize) else { continue };
            let mut to = slab.write();
            let mut rows = now.chunks_exact(width);
            for index in indices(place).take(mv.rows.len as usize) {
                for head in range(heads) {
                    if let (Some(to), Some(values)) = (to.at(index, head), rows.next()) {
                        to.copy_from_slice(values);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the sums of a move of an accumulate call from their accumulator.
    fn take(
        &self,
        at: At,
        call: u32,
        (part, mv, tensor): (&TransferPart, &Move, Tensor),
        out: &mut Vec<Contribution>,
    ) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        for (row, head) in each(mv.rows).flat_map(|row| range(heads(part, tensor)).map(move |head| (row, head))) {
            let away = state.program.accumulator(tensor, head, mv.seq, row);
            let taken = |view: View| take(&state.memory, tensor, view, head);
            let found = away.and_then(taken).or_else(|| taken(state.program.home(tensor, head, mv.seq, row)?));
            let mut found = found.ok_or_else(|| {
                self.fail(
                    at,
                    format!("call {call} takes {}, to which nothing has been added", text(tensor, mv.seq, row, head)),
                )
            })?;
            self.keep(state, call, tensor, (mv.seq, row, head), &found);
            found.lse = found.lse.filter(|_| part.tensors.has(Tensor::Lse));
            out.push(found);
        }
        Ok(())
    }

    /// Writes sums that arrive to exit buffers; those for sums and accumulators wait for the merge.
    fn arrive(
        &self,
        at: At,
        call: u32,
        from_one: &[(TransferPart, Move)],
        sums: Vec<Contribution>,
    ) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        let mut sums = sums.into_iter();
        let mut waiting = Vec::new();
        for (part, mv) in from_one {
            for tensor in results(part) {
                for (row, head) in each(mv.rows).flat_map(|row| range(heads(part, tensor)).map(move |h| (row, h))) {
                    let Some(what) = sums.next() else {
                        return Err(self.fail(at, format!("call {call}: rank {} sends too few sums", mv.from)));
                    };
                    let program = state.program;
                    let to = program.home(tensor, head, mv.seq, row);
                    let to = to.or_else(|| program.accumulator(tensor, head, mv.seq, row));
                    let to = to.ok_or_else(|| {
                        let what =
                            format!("call {call} brings {}, which has no place", text(tensor, mv.seq, row, head));
                        self.fail(at, what)
                    })?;
                    let kind = program.buffers.get(to.buffer as usize).map(|buffer| buffer.kind);
                    if kind == Some(BufferKind::Exit) {
                        self.add(at, state, tensor, head, to, &what)?;
                    } else {
                        waiting.push(Arrived { tensor, head, to, what });
                    }
                }
            }
        }
        if !waiting.is_empty() {
            state.lock().staged.entry(call).or_default().extend(waiting);
        }
        Ok(())
    }

    /// Adds what a call brought.
    pub(crate) fn merge(&self, at: At, call: u32) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        let arrived = state.lock().staged.remove(&call).unwrap_or_default();
        arrived.iter().try_for_each(|a| self.add(at, state, a.tensor, a.head, a.to, &a.what))
    }
}

fn range(heads: HeadRange) -> std::ops::Range<u16> {
    heads.start..heads.end
}

fn indices(place: Place) -> impl Iterator<Item = u32> {
    (0..).map(move |i: u32| place.row.saturating_add(i.saturating_mul(place.step)))
}
