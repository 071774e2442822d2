//! Which operations of a rank are over before another starts, and whether every rank gets to its end.

use crate::check::error;
use crate::{MoveIndices, OpId, Pass, PassPlan, Plan, PlanError, Work};

/// Happens-before between the operations of each rank in one pass.
#[derive(Clone, Debug, Default)]
pub struct Order {
    ranks: Vec<RankOrder>,
}

#[derive(Clone, Debug, Default)]
struct RankOrder {
    streams: usize,
    /// First operation of each stream in `clocks`, in operations.
    first: Vec<u32>,
    /// For each operation, how many operations of each stream are over when it starts.
    clocks: Vec<u32>,
    /// For each operation, its position in one order that respects all dependencies.
    position: Vec<u32>,
    /// Where the rank posts each call that it takes part in, sorted by call.
    posts: Vec<(u32, OpId)>,
}

/// How far every rank is.
struct State {
    /// Participants of each call that have not posted it.
    missing: Vec<u32>,
    /// Operations of each stream that are over.
    done: Vec<Vec<u32>>,
    /// Whether the next operation of each stream has been posted.
    posted: Vec<Vec<bool>>,
    /// Operations of each rank that are over.
    over: Vec<u32>,
}

impl RankOrder {
    fn flat(&self, op: OpId) -> usize {
        self.first[usize::from(op.stream)] as usize + op.index as usize
    }
}

impl Order {
    /// True when `a` is over before `b` starts, both operations of `rank`.
    pub fn before(&self, rank: u32, a: OpId, b: OpId) -> bool {
        let order = &self.ranks[rank as usize];
        order.clocks[order.flat(b) * order.streams + usize::from(a.stream)] > a.index
    }

    /// Position of an operation in an order of its rank that respects all dependencies.
    pub fn position(&self, rank: u32, op: OpId) -> u32 {
        let order = &self.ranks[rank as usize];
        order.position[order.flat(op)]
    }

    /// Where `rank` posts `call`.
    pub fn post(&self, rank: u32, call: u32) -> Option<OpId> {
        let posts = &self.ranks[rank as usize].posts;
        posts.binary_search_by_key(&call, |p| p.0).ok().map(|i| posts[i].1)
    }

    /// The calls that `rank` takes part in, with where it posts them, sorted by call.
    pub fn posts(&self, rank: u32) -> &[(u32, OpId)] {
        &self.ranks[rank as usize].posts
    }

    /// Runs the streams of all ranks; a call ends when all its participants have posted it.
    ///
    /// # Errors
    /// A rank that does not post a call it is part of, posts it twice or is no part of it, a dependency that does not
    /// exist, or operations that wait for each other.
    pub fn of(plan: &Plan, pass: Pass, indices: &MoveIndices) -> Result<Self, PlanError> {
        let table = plan.pass(pass);
        let fail = |what: String| error(plan, pass, what);
        let participants = participants(plan, pass, indices);
        let mut order = Self { ranks: Vec::with_capacity(table.ranks.len()) };
        for (rank, streams) in table.ranks.iter().enumerate() {
            let mut this = RankOrder { streams: streams.streams.len(), ..RankOrder::default() };
            let mut total = 0u32;
            for (stream, ops) in streams.streams.iter().enumerate() {
                this.first.push(total);
                total += ops.len() as u32;
                for (index, op) in ops.iter().enumerate() {
                    let id = OpId { stream: stream as u8, index: index as u32 };
                    for dep in &op.after {
                        let exists = streams
                            .streams
                            .get(usize::from(dep.stream))
                            .is_some_and(|s| (dep.index as usize) < s.len());
                        if !exists {
                            return Err(fail(format!(
                                "rank {rank} {} waits for {}, which does not exist",
                                name(id),
                                name(*dep)
                            )));
                        }
                    }
                    if let Work::Exchange(call) = op.work {
                        this.posts.push((call, id));
                    }
                }
            }
            this.posts.sort_unstable();
            if let Some(twice) = this.posts.windows(2).find(|w| w[0].0 == w[1].0) {
                return Err(fail(format!("rank {rank} posts call {} twice", twice[0].0)));
            }
            this.clocks = vec![0; total as usize * this.streams];
            this.position = vec![0; total as usize];
            order.ranks.push(this);
        }
        for (call, ranks) in participants.iter().enumerate() {
            if let Some(rank) = ranks.iter().find(|r| order.post(**r, call as u32).is_none()) {
                return Err(fail(format!("rank {rank} has rows in call {call} but does not post it")));
            }
        }
        for (rank, this) in order.ranks.iter().enumerate() {
            if let Some((call, _)) =
                this.posts.iter().find(|(c, _)| participants[*c as usize].binary_search(&(rank as u32)).is_err())
            {
                return Err(fail(format!("rank {rank} posts call {call} without rows in it")));
            }
        }
        order.run(plan, pass, &participants)?;
        Ok(order)
    }

    fn run(&mut self, plan: &Plan, pass: Pass, participants: &[Vec<u32>]) -> Result<(), PlanError> {
        let table = plan.pass(pass);
        let mut state = State {
            missing: participants.iter().map(|p| p.len() as u32).collect(),
            done: table.ranks.iter().map(|r| vec![0; r.streams.len()]).collect(),
            posted: table.ranks.iter().map(|r| vec![false; r.streams.len()]).collect(),
            over: vec![0; table.ranks.len()],
        };
        let mut queue: std::collections::VecDeque<u32> = (0..plan.ranks).collect();
        // Transfers run as early as they can and kernels as late: what a rank holds at once is then at its most.
        loop {
            while let Some(rank) = queue.pop_front() {
                let r = rank as usize;
                let streams = table.ranks[r].streams.len();
                let mut advanced = true;
                while std::mem::take(&mut advanced) {
                    for stream in 1..streams {
                        while self.advance(table, r, stream, &mut state, participants, &mut queue) {
                            advanced = true;
                        }
                    }
                }
            }
            let compute = usize::from(crate::COMPUTE);
            for rank in 0..plan.ranks {
                if self.advance(table, rank as usize, compute, &mut state, participants, &mut queue) {
                    queue.push_back(rank);
                }
            }
            if queue.is_empty() {
                break;
            }
        }
        let State { done, .. } = state;
        for (rank, streams) in table.ranks.iter().enumerate() {
            for (stream, ops) in streams.streams.iter().enumerate() {
                if let Some(op) = ops.get(done[rank][stream] as usize) {
                    let id = OpId { stream: stream as u8, index: done[rank][stream] };
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
    fn advance(
        &mut self,
        table: &PassPlan,
        rank: usize,
        stream: usize,
        state: &mut State,
        participants: &[Vec<u32>],
        queue: &mut std::collections::VecDeque<u32>,
    ) -> bool {
        let Some(ops) = table.ranks[rank].streams.get(stream) else { return false };
        let index = state.done[rank][stream];
        let Some(op) = ops.get(index as usize) else { return false };
        if !state.posted[rank][stream] {
            if op.after.iter().any(|d| state.done[rank][usize::from(d.stream)] <= d.index) {
                return false;
            }
            self.start(rank, stream, index, op.after.as_slice());
            state.posted[rank][stream] = true;
            if let Work::Exchange(call) = op.work {
                let missing = &mut state.missing[call as usize];
                *missing -= 1;
                if *missing == 0 {
                    queue.extend(participants[call as usize].iter().filter(|p| **p as usize != rank));
                }
            }
        }
        if matches!(op.work, Work::Exchange(call) if state.missing[call as usize] > 0) {
            return false;
        }
        let flat = self.ranks[rank].first[stream] + index;
        self.ranks[rank].position[flat as usize] = state.over[rank];
        state.over[rank] += 1;
        state.done[rank][stream] += 1;
        state.posted[rank][stream] = false;
        true
    }

    fn start(&mut self, rank: usize, stream: usize, index: u32, after: &[OpId]) {
        let this = &mut self.ranks[rank];
        let (n, at) = (this.streams, (this.first[stream] + index) as usize);
        let raise = |this: &mut RankOrder, flat: usize, stream: usize, index: u32| {
            for s in 0..n {
                let known = this.clocks[flat * n + s];
                let slot = &mut this.clocks[at * n + s];
                *slot = (*slot).max(known);
            }
            let slot = &mut this.clocks[at * n + stream];
            *slot = (*slot).max(index + 1);
        };
        if index > 0 {
            raise(this, at - 1, stream, index - 1);
        }
        for dep in after {
            let flat = this.flat(*dep);
            raise(this, flat, usize::from(dep.stream), dep.index);
        }
    }
}

fn name(op: OpId) -> String {
    format!("operation {}.{}", op.stream, op.index)
}

/// Ranks with rows in each call, sorted.
fn participants(plan: &Plan, pass: Pass, indices: &MoveIndices) -> Vec<Vec<u32>> {
    let table = plan.pass(pass);
    let mut made: Vec<Option<Vec<u32>>> = vec![None; indices.len()];
    table
        .calls
        .iter()
        .map(|call| {
            let mut ranks: Vec<u32> = Vec::new();
            for part in &call.parts {
                let of_span = made[indices.id(part.moves)].get_or_insert_with(|| {
                    let mut list: Vec<u32> =
                        table.moves[part.moves.range()].iter().flat_map(|m| [m.from, m.to]).collect();
                    list.sort_unstable();
                    list.dedup();
                    list
                });
                ranks.extend_from_slice(of_span);
            }
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        })
        .collect()
}
