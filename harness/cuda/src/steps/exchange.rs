//! What a rank does in a call: what it gathers, takes and sends, and where what arrives goes.

use std::collections::BTreeMap;

use skewbench_exec::{BufferKind, InstrId, InstrKind, Place, TransferCall, TransferPart};
use skewbench_plan::{CallMode, HeadRange, Move, Tensor};

use super::contributions::heads;
use super::memory::{Block, INFINITY};
use super::moves::{Value, deposit, take, write};
use super::rank::{RankPass, rows};
use super::rows::{Rect, Spot};
use super::{Action, Element, Exchange, Message, RowMove, Work};

/// Moves of a part between this rank and a peer.
type OfPeer<'a> = (&'a TransferPart, Vec<&'a Move>);

/// Results that a part carries: O stands for O with its LSE.
fn results(part: &TransferPart) -> impl Iterator<Item = Tensor> {
    part.tensors.iter().filter(|tensor| *tensor != Tensor::Lse)
}

/// First byte of blocks that lie one after another as a message of these heads and elements has them.
fn contiguous(blocks: &[Block], heads: HeadRange, element: Element) -> Option<u64> {
    let first = blocks.first()?;
    let start = first.at.checked_sub(u64::from(first.skip) * first.row_bytes())?;
    let fits = |b: &Block| {
        (b.heads, b.element) == (heads, element)
            && (b.stride == b.row_bytes() || b.rows == 1)
            && b.at == start + u64::from(b.skip) * b.row_bytes()
    };
    blocks.iter().all(fits).then_some(start)
}

/// Rows x heads of every move of a message, one after another.
fn rects(moves: &[&Move], heads: HeadRange) -> (Vec<Rect>, u32) {
    let mut skip = 0;
    let mut all = Vec::with_capacity(moves.len());
    for mv in moves {
        all.push(Rect { seq: mv.seq, rows: mv.rows, heads, skip });
        skip += mv.rows.len;
    }
    (all, skip)
}

fn spot(place: Place, rect: &Rect) -> Spot {
    let Place { buffer, row, step } = place;
    Spot { buffer, row, step, rows: rect.rows.len, heads: rect.heads, skip: rect.skip }
}

impl<'a> RankPass<'a> {
    fn call(&self, call: u32) -> Result<&'a TransferCall, String> {
        self.table.calls.get(call as usize).ok_or_else(|| format!("call {call} does not exist"))
    }

    /// Moves of a call that the rank sends (or receives), by peer and part.
    fn moves(&self, call: &'a TransferCall, sent: bool) -> BTreeMap<u32, Vec<OfPeer<'a>>> {
        let mut peers: BTreeMap<u32, Vec<OfPeer<'a>>> = BTreeMap::new();
        for part in &call.parts {
            let Some(table) = self.table.routes.get(part.routes as usize) else { continue };
            let list = if sent { table.index.sent(self.rank) } else { table.index.received(self.rank) };
            for mv in list.iter().filter_map(|i| table.moves.get(*i as usize)).filter(|mv| !mv.rows.is_empty()) {
                let of_peer = peers.entry(if sent { mv.to } else { mv.from }).or_default();
                match of_peer.last_mut() {
                    Some((known, moves)) if std::ptr::eq(*known, part) => moves.push(mv),
                    _ => of_peer.push((part, vec![mv])),
                }
            }
        }
        peers
    }

    /// Contiguous memory for a message of these rows and heads.
    fn staging(&mut self, tensor: Tensor, heads: HeadRange, rows: u32, element: Element) -> Block {
        let block = Block::packed(0, rows, heads, self.width(tensor), element);
        Block { at: self.arena.take(u64::from(rows) * block.row_bytes()), ..block }
    }

    fn message(peer: u32, block: &Block) -> Message {
        Message { peer, offset: block.at, bytes: u64::from(block.rows) * block.row_bytes() }
    }

    fn merges(&self, id: InstrId, call: u32) -> bool {
        let streams = self.table.ranks.get(self.rank as usize).and_then(|body| body.streams.get(id.stream as usize));
        let later = streams.map(|list| list.get(id.index as usize..).unwrap_or_default()).unwrap_or_default();
        later.iter().any(|instr| matches!(instr.kind, InstrKind::Merge { call: of, .. } if of == call))
    }

    pub(super) fn pack(&mut self, call: u32) -> Result<Vec<Work>, String> {
        let transfer = self.call(call)?;
        let mut work = Vec::new();
        if transfer.mode == CallMode::Accumulate {
            self.local_sums(call, transfer, &mut work)?;
            return Ok(work);
        }
        let mut moves = self.local_copies(call, transfer)?;
        let (gathers, sends) = self.copies_out(call, transfer)?;
        moves.extend(gathers);
        rows(&mut work, moves);
        self.calls.entry(call).or_default().sends = Some(sends);
        Ok(work)
    }

    pub(super) fn transfer(&mut self, id: InstrId, call: u32) -> Result<Vec<Work>, String> {
        let transfer = self.call(call)?;
        let mut work = Vec::new();
        let mut after = Vec::new();
        let (sends, receives) = match transfer.mode {
            CallMode::Copy => {
                let sends = match self.calls.entry(call).or_default().sends.take() {
                    Some(sends) => sends,
                    None => {
                        let (gathers, sends) = self.copies_out(call, transfer)?;
                        rows(&mut work, gathers);
                        sends
                    }
                };
                (sends, self.copies_in(call, transfer, &mut after)?)
            }
            CallMode::Accumulate => {
                let sends = self.sums_out(call, transfer, &mut work)?;
                let mut merge = Vec::new();
                let receives = self.sums_in(call, transfer, &mut after, &mut merge)?;
                if self.merges(id, call) {
                    self.calls.entry(call).or_default().merge = merge;
                } else {
                    after.extend(merge);
                }
                (sends, receives)
            }
        };
        if !sends.is_empty() || !receives.is_empty() {
            work.push(Work::Exchange(Exchange { call, sends, receives }));
        }
        rows(&mut work, after);
        Ok(work)
    }

    fn source(&self, call: u32, tensor: Tensor, rect: &Rect, out: &mut Vec<Block>) -> Result<(), String> {
        let place = self.places.source(self.rank, call, (tensor, rect.heads), (rect.seq, rect.rows));
        let held = place.and_then(|place| Some((place, self.memory.get(place.buffer as usize)?)));
        let (place, memory) = held.ok_or_else(|| {
            let (seq, row) = (rect.seq, rect.rows.start);
            format!("call {call} sends {} of sequence {seq}, rows from {row}, which is not there yet", tensor.name())
        })?;
        memory.blocks(&spot(place, rect), out);
        Ok(())
    }

    /// Rows of a copy that stay on the rank.
    fn local_copies(&mut self, call: u32, transfer: &'a TransferCall) -> Result<Vec<RowMove>, String> {
        let mut out = Vec::new();
        for (part, moves) in self.moves(transfer, true).remove(&self.rank).unwrap_or_default() {
            for tensor in part.tensors.iter() {
                let (rects, _) = rects(&moves, heads(part, tensor));
                let (mut held, mut slabs) = (Vec::new(), Vec::new());
                for rect in &rects {
                    held.clear();
                    slabs.clear();
                    self.source(call, tensor, rect, &mut held)?;
                    self.slabs(call, tensor, rect, &mut slabs);
                    let pairs = slabs.iter().flat_map(|to| held.iter().filter_map(|from| from.shared(to)));
                    pairs.for_each(|(from, to)| write(&mut out, &from, &to));
                }
            }
        }
        Ok(out)
    }

    fn slabs(&self, call: u32, tensor: Tensor, rect: &Rect, out: &mut Vec<Block>) {
        for place in self.places.slab(self.rank, call, (tensor, rect.heads), (rect.seq, rect.rows)) {
            if let Some(memory) = self.memory.get(place.buffer as usize) {
                memory.blocks(&spot(place, rect), out);
            }
        }
    }

    /// What a copy sends, and what must be gathered for it.
    fn copies_out(&mut self, call: u32, transfer: &'a TransferCall) -> Result<(Vec<RowMove>, Vec<Message>), String> {
        let (mut gathers, mut sends) = (Vec::new(), Vec::new());
        for (peer, parts) in self.moves(transfer, true) {
            if peer == self.rank {
                continue;
            }
            for (part, moves) in parts {
                for tensor in part.tensors.iter() {
                    let heads = heads(part, tensor);
                    let (rects, total) = rects(&moves, heads);
                    let mut held = Vec::new();
                    rects.iter().try_for_each(|rect| self.source(call, tensor, rect, &mut held))?;
                    let element = Self::on_wire(tensor, transfer.dtype);
                    let message = match contiguous(&held, heads, element) {
                        Some(at) => Block::packed(at, total, heads, self.width(tensor), element),
                        None => {
                            let staging = self.staging(tensor, heads, total, element);
                            for (from, to) in held.iter().filter_map(|from| from.shared(&staging)) {
                                write(&mut gathers, &from, &to);
                            }
                            staging
                        }
                    };
                    sends.push(Self::message(peer, &message));
                }
            }
        }
        Ok((gathers, sends))
    }

    /// What a copy brings; what goes to several slabs or several places is spread out afterwards.
    fn copies_in(
        &mut self,
        call: u32,
        transfer: &'a TransferCall,
        after: &mut Vec<RowMove>,
    ) -> Result<Vec<Message>, String> {
        let mut receives = Vec::new();
        for (peer, parts) in self.moves(transfer, false) {
            if peer == self.rank {
                continue;
            }
            for (part, moves) in parts {
                for tensor in part.tensors.iter() {
                    let heads = heads(part, tensor);
                    let (rects, total) = rects(&moves, heads);
                    let mut slabs = Vec::new();
                    rects.iter().for_each(|rect| self.slabs(call, tensor, rect, &mut slabs));
                    let element = Self::on_wire(tensor, transfer.dtype);
                    let once = slabs.iter().map(|b| u64::from(b.rows)).sum::<u64>() == u64::from(total);
                    let message = match contiguous(&slabs, heads, element).filter(|_| once) {
                        Some(at) => Block::packed(at, total, heads, self.width(tensor), element),
                        None => {
                            let staging = self.staging(tensor, heads, total, element);
                            for (from, to) in slabs.iter().filter_map(|to| staging.shared(to)) {
                                write(after, &from, &to);
                            }
                            staging
                        }
                    };
                    receives.push(Self::message(peer, &message));
                }
            }
        }
        Ok(receives)
    }

    /// Cuts rows of a result into what accumulators hold of them and the others.
    fn held_away(&self, tensor: Tensor, rect: Rect) -> (Vec<Spot>, Vec<Rect>) {
        let mut away = Vec::new();
        let mut rest = self.finder.away(tensor, vec![rect], &mut away);
        let (mut held, mut missing) = (Vec::new(), Vec::new());
        for spot in &away {
            self.filled[spot.buffer as usize].split(spot, &mut held, &mut missing);
        }
        rest.extend(missing.iter().map(|spot| rect.of_spot(spot)));
        (held, rest)
    }

    /// What sums and exit buffers hold of rows of a result; what they do not comes back.
    fn held_home(&self, tensor: Tensor, rects: Vec<Rect>, held: &mut Vec<Spot>) -> bool {
        let mut home = Vec::new();
        let nowhere = self.finder.home(tensor, rects, &mut home);
        let mut missing = Vec::new();
        for spot in &home {
            self.filled[spot.buffer as usize].split(spot, held, &mut missing);
        }
        nowhere.is_empty() && missing.is_empty()
    }

    /// Puts O and LSE that leave aside for the backward.
    fn keep(&self, call: u32, rect: Rect, spot: &Spot, out: &mut Vec<RowMove>) {
        let kept = self.kept.iter().filter(|kept| kept.call == call);
        for kept in kept {
            let mut spots = Vec::new();
            rect.of_spot(spot).split((u32::MAX, kept.o.heads(), &kept.o.buffer.runs), &mut spots, &mut Vec::new());
            for value in self.values(Tensor::O, spot) {
                for (memory, block) in [(kept.o, Some(value.block)), (kept.lse, value.lse)] {
                    let Some(block) = block else { continue };
                    let mut places = Vec::new();
                    spots.iter().for_each(|spot| memory.blocks(spot, &mut places));
                    let pairs = places.iter().filter_map(|to| block.shared(to));
                    pairs.for_each(|(from, to)| write(out, &from, &to));
                }
            }
        }
    }

    /// Moves sums that stay on the rank home; those that tiles have put there already stay.
    fn local_sums(&mut self, call: u32, transfer: &'a TransferCall, work: &mut Vec<Work>) -> Result<(), String> {
        let (mut adds, mut clears) = (Vec::new(), Vec::new());
        for (part, moves) in self.moves(transfer, true).remove(&self.rank).unwrap_or_default() {
            let with_lse = part.tensors.has(Tensor::Lse);
            for tensor in results(part) {
                let (rects, _) = rects(&moves, heads(part, tensor));
                for rect in rects {
                    let (held, rest) = self.held_away(tensor, rect);
                    if tensor == Tensor::O {
                        let mut home = Vec::new();
                        self.held_home(tensor, rest, &mut home);
                        held.iter().chain(&home).for_each(|spot| self.keep(call, rect, spot, &mut adds));
                    }
                    for spot in &held {
                        self.bring_home(tensor, rect, spot, with_lse, (&mut adds, &mut clears))?;
                    }
                }
            }
        }
        rows(work, adds);
        rows(work, clears);
        Ok(())
    }

    /// What an accumulate call takes and sends.
    fn sums_out(
        &mut self,
        call: u32,
        transfer: &'a TransferCall,
        work: &mut Vec<Work>,
    ) -> Result<Vec<Message>, String> {
        let (mut kept, mut taken, mut sends) = (Vec::new(), Vec::new(), Vec::new());
        for (peer, parts) in self.moves(transfer, true) {
            if peer == self.rank {
                continue;
            }
            for (part, moves) in parts {
                for tensor in results(part) {
                    let heads = heads(part, tensor);
                    let (rects, total) = rects(&moves, heads);
                    let mut held: Vec<(Value, bool)> = Vec::new();
                    for rect in rects {
                        let (mut spots, rest) = self.held_away(tensor, rect);
                        if !self.held_home(tensor, rest, &mut spots) {
                            let (seq, row) = (rect.seq, rect.rows.start);
                            let name = tensor.name();
                            return Err(format!(
                                "call {call} takes {name} of sequence {seq}, rows from {row}, to some of which nothing has been added"
                            ));
                        }
                        for spot in &spots {
                            if tensor == Tensor::O {
                                self.keep(call, rect, spot, &mut kept);
                            }
                            let reused = self.is_reused(spot);
                            held.extend(self.values(tensor, spot).into_iter().map(|value| (value, reused)));
                            self.empty(spot);
                        }
                    }
                    let lse =
                        if tensor == Tensor::O && part.tensors.has(Tensor::Lse) { Some(Tensor::Lse) } else { None };
                    for tensor in std::iter::once(tensor).chain(lse) {
                        let element = Self::on_wire(tensor, transfer.dtype);
                        let message = self.take(tensor, heads, total, element, &held, &mut taken);
                        sends.push(Self::message(peer, &message));
                    }
                    if tensor == Tensor::O && lse.is_none() {
                        let reused = held.iter().filter(|(_, reused)| *reused);
                        reused.for_each(|(value, _)| self.clear(value, &mut taken));
                    }
                }
            }
        }
        // What is kept is read before it is taken away.
        let leaves = |m: &RowMove| m.action == Action::Write && m.from_stride > 0;
        if taken.iter().all(leaves) {
            kept.append(&mut taken);
        }
        rows(work, kept);
        rows(work, taken);
        Ok(sends)
    }

    /// Takes values for a message, or sends them from where they are; those whose place is used again leave it empty.
    fn take(
        &mut self,
        tensor: Tensor,
        heads: HeadRange,
        total: u32,
        element: Element,
        held: &[(Value, bool)],
        out: &mut Vec<RowMove>,
    ) -> Block {
        let block = |value: &Value| if tensor == Tensor::Lse { value.lse } else { Some(value.block) };
        let blocks: Vec<Block> = held.iter().filter_map(|(value, _)| block(value)).collect();
        // Nothing but its one contribution ever writes to such an accumulator.
        let lasting = |b: &Block| {
            let owner = b.buffer.and_then(|buffer| self.memory.get(buffer as usize));
            owner.is_some_and(|m| m.written && m.buffer.kind == BufferKind::Accumulator)
        };
        let in_place = contiguous(&blocks, heads, element).filter(|_| blocks.iter().all(lasting));
        if let Some(at) = in_place {
            return Block::packed(at, total, heads, self.width(tensor), element);
        }
        let staging = self.staging(tensor, heads, total, element);
        for (value, reused) in held {
            let Some((from, to)) = block(value).and_then(|from| from.shared(&staging)) else { continue };
            // An output is empty where its LSE is.
            match *reused && tensor != Tensor::O {
                true => take(out, &from, &to, if tensor == Tensor::Lse { INFINITY } else { 0 }),
                false => write(out, &from, &to),
            }
        }
        staging
    }

    /// What an accumulate call brings: written to exit buffers at once, else left for the merge.
    fn sums_in(
        &mut self,
        call: u32,
        transfer: &'a TransferCall,
        after: &mut Vec<RowMove>,
        merge: &mut Vec<RowMove>,
    ) -> Result<Vec<Message>, String> {
        let mut receives = Vec::new();
        for (peer, parts) in self.moves(transfer, false) {
            if peer == self.rank {
                continue;
            }
            for (part, moves) in parts {
                for tensor in results(part) {
                    let heads = heads(part, tensor);
                    let (rects, total) = rects(&moves, heads);
                    let with_lse = tensor == Tensor::O && part.tensors.has(Tensor::Lse);
                    let mut places: Vec<Value> = Vec::new();
                    for rect in rects {
                        let mut spots = Vec::new();
                        let rest = self.finder.home(tensor, vec![rect], &mut spots);
                        if !self.finder.away(tensor, rest, &mut spots).is_empty() {
                            let (seq, row) = (rect.seq, rect.rows.start);
                            let name = tensor.name();
                            return Err(format!(
                                "call {call} brings {name} of sequence {seq}, rows from {row}, which has no place"
                            ));
                        }
                        for spot in &spots {
                            places.extend(self.values(tensor, spot));
                            self.fill(spot, with_lse);
                        }
                    }
                    let element = Self::on_wire(tensor, transfer.dtype);
                    let written = |b: &Block| {
                        b.buffer.and_then(|buffer| self.memory.get(buffer as usize)).is_some_and(|m| m.written)
                    };
                    let in_place = places.iter().all(|to| written(&to.block));
                    let at =
                        |blocks: &[Block], element: Element| contiguous(blocks, heads, element).filter(|_| in_place);
                    let of_value: Vec<Block> = places.iter().map(|to| to.block).collect();
                    let of_lse: Vec<Block> = places.iter().filter_map(|to| to.lse).collect();
                    let (direct, direct_lse) = (at(&of_value, element), at(&of_lse, Element::F32));
                    let mut stage = |tensor: Tensor, at: Option<u64>, element: Element| match at {
                        Some(at) => Block::packed(at, total, heads, self.width(tensor), element),
                        None => self.staging(tensor, heads, total, element),
                    };
                    let value = stage(tensor, direct, element);
                    receives.push(Self::message(peer, &value));
                    let lse = with_lse.then(|| stage(Tensor::Lse, direct_lse, Element::F32));
                    receives.extend(lse.map(|lse| Self::message(peer, &lse)));
                    let arrived = Value { block: value, lse };
                    for to in &places {
                        let Some((from, to)) = arrived.shared(to) else { continue };
                        let owner = to.block.buffer.and_then(|buffer| self.memory.get(buffer as usize));
                        let exit = owner.is_some_and(|m| m.written && m.buffer.kind == BufferKind::Exit);
                        deposit(if exit { &mut *after } else { &mut *merge }, &from, &to, self.memory);
                    }
                }
            }
        }
        Ok(receives)
    }
}
