//! Runs a small plan row by row and pair by pair, in orders of operations drawn at random: a second opinion on plans that
//! shares no code and no idea with the checker, which looks at intervals and at orders that hold in every run.
//!
//! Every accumulator cell (rank, result, sequence, row, head) holds the list of (query, key) pairs that were added to it.
//! A plan is right when in every run each cell ends at home with each of its pairs once.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewbench_plan::{
    CallMode, Dtype, HeadRange, Launch, Mask, Part, Pass, PassPlan, Plan, Rows, Shard, Tensor, Tile, Work,
};

/// Runs both passes `runs` times, each time in another order.
///
/// # Errors
/// What went wrong in the first bad run.
pub fn interpret(plan: &Plan, runs: u64) -> Result<(), String> {
    (0..runs).try_for_each(|seed| {
        let kept = Run::new(plan, Pass::Forward, Kept::default(), seed).run()?;
        Run::new(plan, Pass::Backward, kept, seed).run().map(|_| ())
    })
}

/// Where a value is: rank, tensor, sequence, row, head.
type Place = (u32, Tensor, u32, u32, u16);

/// What the forward leaves for the backward.
#[derive(Default)]
struct Kept {
    held: BTreeSet<Place>,
}

/// A partial result: the (row or key, query head) pairs that it sums up, and whether it is an O without its LSE.
#[derive(Clone, Debug, Default)]
struct Sum {
    pairs: Vec<(u32, u16)>,
    bare: bool,
}

/// An accumulator: what `Place` says of O, dQ, dK.
type Cells = BTreeMap<Place, Sum>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Posted,
}

struct Run<'a> {
    plan: &'a Plan,
    pass: Pass,
    table: &'a PassPlan,
    held: BTreeSet<Place>,
    kept: BTreeSet<Place>,
    cells: Cells,
    /// For each call, what its senders have handed over.
    on_the_way: Vec<Vec<(Place, Sum)>>,
    posted: Vec<usize>,
    participants: Vec<usize>,
    next: Vec<Vec<(usize, State)>>,
    rng: ChaCha8Rng,
    /// Streams that come first in this run; none: every operation is drawn.
    favour: Option<Vec<u32>>,
    /// Accumulators leave when the sender posts the call; otherwise when it ends.
    hands_over_early: bool,
}

fn rows(rows: Rows) -> impl Iterator<Item = u32> {
    (0..rows.len).map(move |i| rows.start + i * rows.stride)
}

fn heads(heads: HeadRange) -> std::ops::Range<u16> {
    heads.start..heads.end
}

/// The tensor that stands for an accumulator's cells.
fn stands_for(tensor: Tensor) -> Option<Tensor> {
    matches!(tensor, Tensor::O | Tensor::DQ | Tensor::DK).then_some(tensor)
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, pass: Pass, before: Kept, seed: u64) -> Self {
        let table = plan.pass(pass);
        let mut held = before.held;
        let mut add = |shards: &[Shard], tensors: &[Tensor]| {
            for shard in shards {
                for (row, tensor) in rows(shard.rows).flat_map(|r| tensors.iter().map(move |t| (r, *t))) {
                    let all = if tensor.is_kv() { plan.shape.all_kv() } else { plan.shape.all_q() };
                    held.extend(heads(all).map(|head| (shard.rank, tensor, shard.seq, row, head)));
                }
            }
        };
        add(&plan.entry, &[Tensor::Q, Tensor::K, Tensor::V]);
        if pass == Pass::Backward {
            add(&plan.entry, &[Tensor::DO]);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed * 2 + u64::from(pass == Pass::Backward));
        let participants = table.calls.iter().map(|call| {
            let moves = call.parts.iter().flat_map(|part| &table.moves[part.moves.range()]);
            moves.flat_map(|mv| [mv.from, mv.to]).collect::<BTreeSet<_>>().len()
        });
        let streams: usize = table.ranks.iter().map(|r| r.streams.len()).sum();
        let favour = (!seed.is_multiple_of(4)).then(|| (0..streams).map(|_| rng.random()).collect());
        Self {
            plan,
            pass,
            table,
            held,
            kept: BTreeSet::new(),
            cells: Cells::new(),
            on_the_way: vec![Vec::new(); table.calls.len()],
            posted: vec![0; table.calls.len()],
            participants: participants.collect(),
            next: table.ranks.iter().map(|r| vec![(0, State::Waiting); r.streams.len()]).collect(),
            hands_over_early: rng.random(),
            favour,
            rng,
        }
    }

    fn run(mut self) -> Result<Kept, String> {
        loop {
            let mut ready = Vec::new();
            let mut slot = 0;
            let mut unfinished = false;
            for (rank, streams) in self.table.ranks.iter().enumerate() {
                for (stream, ops) in streams.streams.iter().enumerate() {
                    let (at, state) = self.next[rank][stream];
                    if let Some(op) = ops.get(at) {
                        unfinished = true;
                        let over = |dep: &skewbench_plan::OpId| {
                            self.next[rank][usize::from(dep.stream)].0 > dep.index as usize
                        };
                        if state == State::Waiting && op.after.iter().all(over) {
                            ready.push((slot, rank, stream));
                        }
                    }
                    slot += 1;
                }
            }
            if ready.is_empty() {
                return if unfinished { Err("no operation can start".into()) } else { self.end() };
            }
            let &(_, rank, stream) = match &self.favour {
                Some(order) => ready.iter().max_by_key(|(slot, ..)| order[*slot]).unwrap_or(&ready[0]),
                None => &ready[self.rng.random_range(0..ready.len())],
            };
            self.step(rank, stream)?;
        }
    }

    fn step(&mut self, rank: usize, stream: usize) -> Result<(), String> {
        let (at, _) = self.next[rank][stream];
        match self.table.ranks[rank].streams[stream][at].work {
            Work::Launch(launch) => self.launch(rank as u32, &launch)?,
            Work::Linear { .. } => {}
            Work::Exchange(call) => {
                let index = call as usize;
                self.send(rank as u32, index, true)?;
                self.next[rank][stream].1 = State::Posted;
                self.posted[index] += 1;
                if self.posted[index] == self.participants[index] {
                    for rank in 0..self.plan.ranks {
                        self.send(rank, index, false)?;
                    }
                    self.arrive(index)?;
                    for (streams, next) in self.table.ranks.iter().zip(&mut self.next) {
                        for (ops, next) in streams.streams.iter().zip(next) {
                            if ops.get(next.0).is_some_and(|op| op.work == Work::Exchange(call)) {
                                *next = (next.0 + 1, State::Waiting);
                            }
                        }
                    }
                }
                return Ok(());
            }
        }
        self.next[rank][stream].0 += 1;
        Ok(())
    }

    fn document(&self, seq: u32, row: u32) -> (u32, u32) {
        let bounds = &self.plan.sequences[seq as usize];
        let next = bounds.partition_point(|b| *b <= row);
        (bounds[next - 1], bounds[next])
    }

    /// All pairs of a cell, sorted.
    fn all(&self, tensor: Tensor, seq: u32, row: u32, head: u16) -> Vec<(u32, u16)> {
        let (start, end) = self.document(seq, row);
        let group = self.plan.shape.q_heads / self.plan.shape.kv_heads;
        match tensor {
            Tensor::DK => (row..end).flat_map(|q| (head * group..(head + 1) * group).map(move |h| (q, h))).collect(),
            _ => (start..=row).map(|k| (k, head)).collect(),
        }
    }

    fn complete(&self, (_, tensor, seq, row, head): Place, sum: &Sum) -> bool {
        let mut pairs = sum.pairs.clone();
        pairs.sort_unstable();
        pairs == self.all(tensor, seq, row, head)
    }

    fn needs(&self, rank: u32, tensor: Tensor, seq: u32, row: u32, head: u16) -> Result<(), String> {
        let there = self.held.contains(&(rank, tensor, seq, row, head));
        there.then_some(()).ok_or_else(|| format!("rank {rank} lacks {tensor:?} of {seq}, row {row}, head {head}"))
    }

    fn launch(&mut self, rank: u32, launch: &Launch) -> Result<(), String> {
        let group = self.plan.shape.q_heads / self.plan.shape.kv_heads;
        let table = self.table;
        for tile in &table.tiles[launch.tiles.range()] {
            for head in heads(launch.q_heads) {
                let kv = head / group;
                for key in rows(tile.k) {
                    self.needs(rank, Tensor::K, tile.seq, key, kv)?;
                    self.needs(rank, Tensor::V, tile.seq, key, kv)?;
                    if self.pass == Pass::Backward {
                        self.cells.entry((rank, Tensor::DK, tile.seq, key, kv)).or_default();
                    }
                }
                for (index, row) in rows(tile.q).enumerate() {
                    let read: &[Tensor] = match self.pass {
                        Pass::Forward => &[Tensor::Q],
                        Pass::Backward => &[Tensor::Q, Tensor::DO, Tensor::O, Tensor::Lse],
                    };
                    for tensor in read {
                        self.needs(rank, *tensor, tile.seq, row, head)?;
                    }
                    let result = if self.pass == Pass::Forward { Tensor::O } else { Tensor::DQ };
                    let seen: Vec<u32> = seen(tile, launch.mask, index as u32).collect();
                    let place = (rank, result, tile.seq, row, head);
                    let cell = self.cells.entry(place).or_default();
                    if cell.bare {
                        return Err(format!("rank {rank} merges O of row {row} without LSE"));
                    }
                    cell.pairs.extend(seen.iter().map(|key| (*key, head)));
                    if self.pass == Pass::Backward {
                        for key in seen {
                            let cell = self.cells.entry((rank, Tensor::DK, tile.seq, key, kv)).or_default();
                            cell.pairs.push((row, head));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What a rank hands over in a call: copies when it posts, accumulators then or when the call ends.
    fn send(&mut self, rank: u32, index: usize, posting: bool) -> Result<(), String> {
        let call = &self.table.calls[index];
        for part in &call.parts {
            for mv in self.table.moves[part.moves.range()].iter().filter(|mv| mv.from == rank) {
                match call.mode {
                    CallMode::Copy if posting => {
                        for (tensor, row, head) in carried(part, mv.rows) {
                            self.needs(rank, tensor, mv.seq, row, head)?;
                        }
                    }
                    CallMode::Accumulate if posting == self.hands_over_early => {
                        for (tensor, row, head) in carried(part, mv.rows) {
                            if let Some(tensor) = stands_for(tensor) {
                                self.leave(index, part, mv.to, (rank, tensor, mv.seq, row, head))?;
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, index: usize, part: &Part, to: u32, place: Place) -> Result<(), String> {
        let call = &self.table.calls[index];
        let (rank, tensor, seq, row, head) = place;
        let Some(sum) = self.cells.get(&place).cloned() else {
            return Err(format!("rank {rank} sends {tensor:?} of row {row} without having any"));
        };
        if call.keep {
            if !self.complete(place, &sum) {
                return Err(format!("rank {rank} keeps an unfinished {tensor:?} of row {row}"));
            }
            self.kept.extend([tensor, Tensor::Lse].map(|t| (rank, t, seq, row, head)));
        }
        if to == rank {
            return Ok(());
        }
        if call.dtype == Dtype::Bf16 && !self.complete(place, &sum) {
            return Err(format!("rank {rank} rounds a partial sum, {tensor:?} of row {row}"));
        }
        self.cells.remove(&place);
        let bare = tensor == Tensor::O && (sum.bare || !part.tensors.has(Tensor::Lse));
        self.on_the_way[index].push(((to, tensor, seq, row, head), Sum { bare, ..sum }));
        Ok(())
    }

    fn arrive(&mut self, index: usize) -> Result<(), String> {
        let call = &self.table.calls[index];
        for (place, sum) in std::mem::take(&mut self.on_the_way[index]) {
            let cell = self.cells.entry(place).or_default();
            if !cell.pairs.is_empty() && (cell.bare || sum.bare) {
                return Err(format!("rank {} merges O of row {} without LSE", place.0, place.3));
            }
            cell.bare |= sum.bare;
            cell.pairs.extend(sum.pairs);
        }
        if call.mode == CallMode::Copy {
            for part in &call.parts {
                for mv in &self.table.moves[part.moves.range()] {
                    let places = carried(part, mv.rows).map(|(tensor, row, head)| (mv.to, tensor, mv.seq, row, head));
                    let places: Vec<Place> = places.collect();
                    self.held.extend(places.iter().copied());
                    if call.keep {
                        self.kept.extend(places);
                    }
                }
            }
        }
        Ok(())
    }

    /// Every result is home and nothing is left elsewhere.
    fn end(mut self) -> Result<Kept, String> {
        let results: &[Tensor] = match self.pass {
            Pass::Forward => &[Tensor::O],
            Pass::Backward => &[Tensor::DQ, Tensor::DK],
        };
        let mut cells = std::mem::take(&mut self.cells);
        for shard in &self.plan.exit {
            for (row, tensor) in rows(shard.rows).flat_map(|r| results.iter().map(move |t| (r, *t))) {
                let all = if tensor.is_kv() { self.plan.shape.all_kv() } else { self.plan.shape.all_q() };
                for head in heads(all) {
                    let place = (shard.rank, tensor, shard.seq, row, head);
                    let sum = cells.remove(&place).unwrap_or_default();
                    if !self.complete(place, &sum) {
                        return Err(format!("{tensor:?} of row {row}, head {head} is wrong at home: {:?}", sum.pairs));
                    }
                    if tensor == Tensor::O {
                        self.kept.insert(place);
                        if !sum.bare {
                            self.kept.insert((shard.rank, Tensor::Lse, shard.seq, row, head));
                        }
                    }
                }
            }
        }
        match cells.keys().next() {
            Some(place) => Err(format!("{place:?} is left away from home")),
            None => Ok(Kept { held: self.kept }),
        }
    }
}

fn carried(part: &Part, of: Rows) -> impl Iterator<Item = (Tensor, u32, u16)> {
    part.tensors.iter().flat_map(move |t| rows(of).flat_map(move |r| heads(part.heads(t)).map(move |h| (t, r, h))))
}

/// Keys that row `index` of a tile sees.
fn seen(tile: &Tile, mask: Mask, index: u32) -> impl Iterator<Item = u32> {
    let hidden = match mask {
        Mask::Full => 0,
        Mask::Causal => tile.q.len - 1 - index,
        Mask::CausalExclusive => tile.q.len - index,
    };
    rows(tile.k).take(tile.k.len.saturating_sub(hidden) as usize)
}
