//! Which operations of a rank are over before another starts, and whether every rank gets to its end.

use std::collections::VecDeque;

use crate::check::error;
use crate::{MoveIndices, OpId, Pass, PassPlan, Plan, PlanError, Work};

/// Happens-before between the operations of each rank in one pass.
#[derive(Clone, Debug, Default)]
pub struct Order {
    ranks: Vec<RankOrder>,
    /// For each stream of each rank, its first operation among those of the rank.
    first: Vec<u32>,
    /// For each operation, how many operations of each stream of its rank are over when it starts.
    clocks: Vec<u32>,
    /// For each operation, its position in one order of its rank that respects all dependencies.
    position: Vec<u32>,
    /// Where each rank posts the calls that it takes part in, sorted by call.
    posts: Vec<(u32, OpId)>,
}

/// Where the entries of one rank start in the tables of [`Order`].
#[derive(Clone, Copy, Debug, Default)]
struct RankOrder {
    streams: usize,
    stream: usize,
    clock: usize,
    op: usize,
    posts: (usize, usize),
}

/// How far every rank is.
struct State<'a> {
    table: &'a PassPlan,
    participants: &'a Participants,
    /// Participants of each call that have not posted it.
    missing: Vec<u32>,
    /// Streams of each rank.
    streams: Vec<Progress>,
    /// Operations of each rank that are over.
    over: Vec<u32>,
    /// Ranks whose transfers may have something to do.
    queue: VecDeque<u32>,
    /// Ranks whose next operation on the compute stream may have become ready.
    kernels: Bits,
}

/// How far one stream is.
#[derive(Clone, Copy)]
struct Progress {
    /// Operations that are over.
    done: u32,
    /// All operations.
    all: u32,
    /// The call that the next operation has posted.
    posted: Option<u32>,
}

impl State<'_> {
    /// True when nothing can have changed for a stream: it is over, or others have yet to post the call it waits in.
    fn stands(&self, stream: usize) -> bool {
        let stream = self.streams[stream];
        stream.done == stream.all || stream.posted.is_some_and(|call| self.missing[call as usize] > 0)
    }
}

/// A set of ranks.
struct Bits(Vec<u64>);

impl Bits {
    fn all(ranks: usize) -> Self {
        let mut words = vec![u64::MAX; ranks / 64];
        words.push((1 << (ranks % 64)) - 1);
        Self(words)
    }

    fn none(ranks: usize) -> Self {
        Self(vec![0; ranks / 64 + 1])
    }

    fn insert(&mut self, rank: u32) {
        self.0[rank as usize / 64] |= 1 << (rank % 64);
    }

    /// [`Bits::insert`]; true when the rank is new.
    fn add(&mut self, rank: u32) -> bool {
        let (word, bit) = (&mut self.0[rank as usize / 64], 1 << (rank % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn remove(&mut self, rank: u32) {
        self.0[rank as usize / 64] &= !(1 << (rank % 64));
    }

    /// Takes out the first rank that is at least `from`.
    fn take(&mut self, from: u32) -> Option<u32> {
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in self.0.iter_mut().enumerate().skip(from as usize / 64) {
            let ranks = *word & mask;
            if ranks != 0 {
                *word &= !(ranks & ranks.wrapping_neg());
                return Some(index as u32 * 64 + ranks.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }
}

impl Order {
    fn flat(&self, of: RankOrder, op: OpId) -> usize {
        (self.first[of.stream + usize::from(op.stream)] + op.index) as usize
    }

    /// True when `a` is over before `b` starts, both operations of `rank`.
    pub fn before(&self, rank: u32, a: OpId, b: OpId) -> bool {
        let of = self.ranks[rank as usize];
        self.clocks[of.clock + self.flat(of, b) * of.streams + usize::from(a.stream)] > a.index
    }

    /// Position of an operation in an order of its rank that respects all dependencies.
    pub fn position(&self, rank: u32, op: OpId) -> u32 {
        let of = self.ranks[rank as usize];
        self.position[of.op + self.flat(of, op)]
    }

    /// Where `rank` posts `call`.
    pub fn post(&self, rank: u32, call: u32) -> Option<OpId> {
        let posts = self.posts(rank);
        posts.binary_search_by_key(&call, |p| p.0).ok().map(|i| posts[i].1)
    }

    /// The calls that `rank` takes part in, with where it posts them, sorted by call.
    pub fn posts(&self, rank: u32) -> &[(u32, OpId)] {
        let (start, end) = self.ranks[rank as usize].posts;
        &self.posts[start..end]
    }

    /// Runs the streams of all ranks; a call ends when all its participants have posted it.
    ///
    /// # Errors
    /// A rank that does not post a call it is part of, posts it twice or is no part of it, a dependency that does not
    /// exist, or operations that wait for each other.
    pub fn of(plan: &Plan, pass: Pass, indices: &MoveIndices) -> Result<Self, PlanError> {
        let table = plan.pass(pass);
        let fail = |what: String| error(plan, pass, what);
        let mut order = Self { ranks: Vec::with_capacity(table.ranks.len()), ..Self::default() };
        let (mut ops, mut clocks) = (0, 0);
        for (rank, streams) in table.ranks.iter().enumerate() {
            let streams = &streams.streams;
            let first_post = order.posts.len();
            let mut this =
                RankOrder { streams: streams.len(), stream: order.first.len(), clock: clocks, op: ops, posts: (0, 0) };
            let mut total = 0u32;
            for (stream, ops) in streams.iter().enumerate() {
                order.first.push(total);
                total += ops.len() as u32;
                for (index, op) in ops.iter().enumerate() {
                    let id = OpId { stream: stream as u8, index: index as u32 };
                    let exists = |dep: &OpId| {
                        streams.get(usize::from(dep.stream)).is_some_and(|s| (dep.index as usize) < s.len())
                    };
                    if let Some(dep) = op.after.iter().find(|dep| !exists(dep)) {
                        return Err(fail(format!(
                            "rank {rank} {} waits for {}, which does not exist",
                            name(id),
                            name(*dep)
                        )));
                    }
                    if let Work::Exchange(call) = op.work {
                        order.posts.push((call, id));
                    }
                }
            }
            let posts = &mut order.posts[first_post..];
            posts.sort_unstable();
            if let Some(twice) = posts.windows(2).find(|w| w[0].0 == w[1].0) {
                return Err(fail(format!("rank {rank} posts call {} twice", twice[0].0)));
            }
            this.posts = (first_post, order.posts.len());
            ops += total as usize;
            clocks += total as usize * streams.len();
            order.ranks.push(this);
        }
        order.clocks = vec![0; clocks];
        order.position = vec![0; ops];
        let participants = Participants::of(table, indices);
        order.posted_by(&participants).map_err(fail)?;
        order.run(plan, pass, &participants)?;
        Ok(order)
    }

    /// Every rank posts the calls that it has rows in, and no others.
    fn posted_by(&self, participants: &Participants) -> Result<(), String> {
        // Calls come in order, so the posts of every rank are met in order.
        let mut next: Vec<usize> = self.ranks.iter().map(|of| of.posts.0).collect();
        for call in 0..participants.calls() {
            for &rank in participants.of_call(call) {
                let (next, end) = (&mut next[rank as usize], self.ranks[rank as usize].posts.1);
                while *next < end && (self.posts[*next].0 as usize) < call {
                    *next += 1;
                }
                if *next == end || self.posts[*next].0 as usize != call {
                    return Err(format!("rank {rank} has rows in call {call} but does not post it"));
                }
            }
        }
        if self.posts.len() == participants.ranks.len() {
            return Ok(());
        }
        for rank in 0..self.ranks.len() as u32 {
            let stranger = |call: u32| participants.of_call(call as usize).binary_search(&rank).is_err();
            if let Some((call, _)) = self.posts(rank).iter().find(|(call, _)| stranger(*call)) {
                return Err(format!("rank {rank} posts call {call} without rows in it"));
            }
        }
        Ok(())
    }

    fn run(&mut self, plan: &Plan, pass: Pass, participants: &Participants) -> Result<(), PlanError> {
        let table = plan.pass(pass);
        let mut state = State {
            table,
            participants,
            missing: (0..participants.calls()).map(|call| participants.of_call(call).len() as u32).collect(),
            streams: Vec::with_capacity(self.first.len()),
            over: vec![0; table.ranks.len()],
            queue: (0..plan.ranks).collect(),
            kernels: Bits::all(table.ranks.len()),
        };
        let all = table.ranks.iter().flat_map(|rank| &rank.streams).map(|ops| ops.len() as u32);
        state.streams.extend(all.map(|all| Progress { done: 0, all, posted: None }));
        // Transfers run as early as they can and kernels as late: what a rank holds at once is then at its most.
        loop {
            while let Some(rank) = state.queue.pop_front() {
                state.kernels.insert(rank);
                let of = self.ranks[rank as usize];
                let mut advanced = true;
                while std::mem::take(&mut advanced) {
                    for stream in 1..of.streams {
                        while !state.stands(of.stream + stream) && self.advance(rank, stream, &mut state) {
                            advanced = true;
                        }
                    }
                }
            }
            let mut from = 0;
            while let Some(rank) = state.kernels.take(from) {
                let (of, compute) = (self.ranks[rank as usize], usize::from(crate::COMPUTE));
                if of.streams > compute && !state.stands(of.stream + compute) && self.advance(rank, compute, &mut state)
                {
                    state.queue.push_back(rank);
                }
                from = rank + 1;
            }
            if state.queue.is_empty() {
                break;
            }
        }
        for (rank, (streams, of)) in table.ranks.iter().zip(&self.ranks).enumerate() {
            for (stream, ops) in streams.streams.iter().enumerate() {
                let done = state.streams[of.stream + stream].done;
                if let Some(op) = ops.get(done as usize) {
                    let id = OpId { stream: stream as u8, index: done };
                    let what = match op.work {
                        Work::Exchange(call) => format!("call {call}"),
                        Work::Launch(_) => "its launch".into(),
                        Work::Linear { .. } => "its linear work".into(),
                    };
                    return Err(error(
                        plan,
                        pass,
                        format!("rank {rank} {} never gets past {what}: operations wait for each other", name(id)),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Posts the next operation of a stream if it may start, and ends it if it can; true when it ended.
    fn advance(&mut self, rank: u32, stream: usize, state: &mut State<'_>) -> bool {
        let of = self.ranks[rank as usize];
        let Some(ops) = state.table.ranks[rank as usize].streams.get(stream) else { return false };
        let Progress { done: index, posted, .. } = state.streams[of.stream + stream];
        let Some(op) = ops.get(index as usize) else { return false };
        if posted.is_none() {
            if op.after.iter().any(|d| state.streams[of.stream + usize::from(d.stream)].done <= d.index) {
                return false;
            }
            self.start(of, stream, index, &op.after);
            if let Work::Exchange(call) = op.work {
                let missing = &mut state.missing[call as usize];
                *missing -= 1;
                if *missing == 0 {
                    for participant in state.participants.of_call(call as usize).iter().filter(|p| **p != rank) {
                        state.queue.push_back(*participant);
                        state.kernels.insert(*participant);
                    }
                }
            }
        }
        let waits = match op.work {
            Work::Exchange(call) => Some(call).filter(|call| state.missing[*call as usize] > 0),
            Work::Launch(_) | Work::Linear { .. } => None,
        };
        let ends = waits.is_none();
        let progress = &mut state.streams[of.stream + stream];
        progress.posted = waits;
        progress.done += u32::from(ends);
        if ends {
            let over = &mut state.over[rank as usize];
            self.position[of.op + (self.first[of.stream + stream] + index) as usize] = *over;
            *over += 1;
        }
        ends
    }

    fn start(&mut self, of: RankOrder, stream: usize, index: u32, after: &[OpId]) {
        let clock = |flat: usize| of.clock + flat * of.streams;
        let flat = (self.first[of.stream + stream] + index) as usize;
        let raise = |clocks: &mut [u32], from: usize, stream: usize, index: u32| {
            let (from, at) = (clock(from), clock(flat));
            for s in 0..of.streams {
                clocks[at + s] = clocks[at + s].max(clocks[from + s]);
            }
            clocks[at + stream] = clocks[at + stream].max(index + 1);
        };
        if index > 0 {
            self.clocks.copy_within(clock(flat - 1)..clock(flat), clock(flat));
            self.clocks[clock(flat) + stream] = index;
        }
        for dep in after {
            let from = self.flat(of, *dep);
            raise(&mut self.clocks, from, usize::from(dep.stream), dep.index);
        }
    }
}

fn name(op: OpId) -> String {
    format!("operation {}.{}", op.stream, op.index)
}

/// Ranks with rows in each call, sorted.
struct Participants {
    /// Call by call.
    ranks: Vec<u32>,
    /// First entry of each call.
    first: Vec<usize>,
}

impl Participants {
    fn of(table: &PassPlan, indices: &MoveIndices) -> Self {
        let mut all = Self { ranks: Vec::new(), first: vec![0] };
        let mut seen = Bits::none(table.ranks.len());
        let mut spans = Vec::new();
        for call in 0..table.calls.len() {
            let first = all.ranks.len();
            spans.clear();
            spans.extend_from_slice(indices.parts(call));
            spans.sort_unstable();
            spans.dedup();
            for span in &spans {
                let index = indices.index(*span);
                for (rank, _) in index.senders().chain(index.receivers()) {
                    if seen.add(rank) {
                        all.ranks.push(rank);
                    }
                }
            }
            let ranks = &mut all.ranks[first..];
            ranks.sort_unstable();
            for rank in ranks {
                seen.remove(*rank);
            }
            all.first.push(all.ranks.len());
        }
        all
    }

    fn calls(&self) -> usize {
        self.first.len() - 1
    }

    fn of_call(&self, call: usize) -> &[u32] {
        &self.ranks[self.first[call]..self.first[call + 1]]
    }
}
