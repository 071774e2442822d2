use std::collections::BTreeSet;

use skewbench_plan::CallMode;

use crate::{Instr, InstrId, InstrKind, PassProgram};

/// Why a program cannot run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// An instruction refers to something that does not exist.
    #[error("rank {rank}, stream {stream}, instruction {index}: {what} does not exist; lower the plan again")]
    Index {
        /// Rank.
        rank: u32,
        /// Stream of the rank.
        stream: u32,
        /// Instruction of the stream.
        index: u32,
        /// What is missing.
        what: &'static str,
    },
    /// Instructions wait for each other, or for a rank that never comes.
    #[error("rank {rank}, stream {stream}, instruction {index} never starts or ends: {what}; check the plan")]
    Stuck {
        /// Rank.
        rank: u32,
        /// Stream of the rank.
        stream: u32,
        /// Instruction of the stream.
        index: u32,
        /// What it waits for.
        what: String,
    },
}

/// One order in which all instructions of a pass can run, and which of them are over before another starts in every order.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    ranks: Vec<RankSchedule>,
}

#[derive(Clone, Debug, Default)]
struct RankSchedule {
    /// First instruction of each stream in the lists below, and their end.
    first: Vec<usize>,
    /// For each instruction, how many instructions of each stream are over when it starts.
    clocks: Vec<u32>,
    /// For each instruction, when it ends among those of its rank.
    position: Vec<u32>,
    /// Where the rank takes part in each call, sorted by call.
    transfers: Vec<(u32, InstrId)>,
}

impl RankSchedule {
    fn flat(&self, id: InstrId) -> Option<usize> {
        let (start, end) = (*self.first.get(id.stream as usize)?, *self.first.get(id.stream as usize + 1)?);
        Some(start + id.index as usize).filter(|flat| *flat < end)
    }

    fn streams(&self) -> usize {
        self.first.len().saturating_sub(1)
    }
}

/// How far one rank is.
struct State {
    /// Instructions of each stream that are over.
    done: Vec<u32>,
    /// Whether the next instruction of each stream is a transfer that has begun.
    posted: Vec<bool>,
    over: u32,
}

/// Ranks that exchange rows in a call, as (rank, peer) in both directions, sorted, and how many peers each still waits for.
struct Meeting {
    pairs: Vec<(u32, u32)>,
    missing: Vec<(u32, u32)>,
}

impl Meeting {
    fn peers(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        let start = self.pairs.partition_point(|pair| pair.0 < rank);
        self.pairs[start..].iter().take_while(move |pair| pair.0 == rank).map(|pair| pair.1)
    }

    fn missing(&mut self, rank: u32) -> Option<&mut u32> {
        let at = self.missing.binary_search_by_key(&rank, |m| m.0).ok()?;
        Some(&mut self.missing[at].1)
    }
}

impl Schedule {
    /// Runs all streams: an instruction starts when those before it on its stream and those that it names are over; a
    /// rank's part in a call is over when all ranks that it sends to or receives from have begun theirs.
    ///
    /// # Errors
    /// [`ProgramError`] for indices outside their tables and for instructions that never end.
    pub fn of(pass: &PassProgram) -> Result<Self, ProgramError> {
        let mut this = Self::default();
        for (rank, body) in (0u32..).zip(&pass.ranks) {
            let mut of_rank = RankSchedule { first: vec![0], ..RankSchedule::default() };
            let mut total = 0;
            for (stream, instrs) in (0u32..).zip(&body.streams) {
                for (index, instr) in (0u32..).zip(instrs) {
                    let at = |what| ProgramError::Index { rank, stream, index, what };
                    let InstrKind::Transfer { call } = instr.kind else { continue };
                    let found = pass.calls.get(call as usize).ok_or_else(|| at("its call"))?;
                    if found.parts.iter().any(|part| part.routes as usize >= pass.routes.len()) {
                        return Err(at("a route of its call"));
                    }
                    of_rank.transfers.push((call, InstrId { stream, index }));
                }
                total += instrs.len();
                of_rank.first.push(total);
            }
            of_rank.transfers.sort_unstable();
            if let Some(twice) = of_rank.transfers.windows(2).find(|w| w[0].0 == w[1].0) {
                let InstrId { stream, index } = twice[1].1;
                let what = format!("call {} has already taken place", twice[0].0);
                return Err(ProgramError::Stuck { rank, stream, index, what });
            }
            of_rank.clocks = vec![0; total * body.streams.len()];
            of_rank.position = vec![0; total];
            this.ranks.push(of_rank);
        }
        this.run(pass)?;
        Ok(this)
    }

    fn run(&mut self, pass: &PassProgram) -> Result<(), ProgramError> {
        let mut meetings: Vec<Meeting> = (0..pass.calls.len() as u32).map(|call| meeting(pass, call)).collect();
        let state = |body: &crate::RankProgram| State {
            done: vec![0; body.streams.len()],
            posted: vec![false; body.streams.len()],
            over: 0,
        };
        let mut states: Vec<State> = pass.ranks.iter().map(state).collect();
        let mut advanced = true;
        while std::mem::take(&mut advanced) {
            for (rank, state) in states.iter_mut().enumerate() {
                for stream in 0..pass.ranks[rank].streams.len() {
                    while self.step(pass, rank, stream, state, &mut meetings)? {
                        advanced = true;
                    }
                }
            }
        }
        self.stuck(pass, &states, &meetings).map_or(Ok(()), Err)
    }

    /// The instruction at fault when not all are over: from the first one that waits on to what that waits for, up to one
    /// that waits for a rank which takes no part in its call, or in a circle.
    fn stuck(&self, pass: &PassProgram, states: &[State], meetings: &[Meeting]) -> Option<ProgramError> {
        let waits = |rank: u32, stream: u32| {
            let state = states.get(rank as usize)?;
            let index = *state.done.get(stream as usize)?;
            pass.ranks.get(rank as usize)?.streams.get(stream as usize)?.get(index as usize).map(|instr| (index, instr))
        };
        let streams = (0u32..).zip(states).flat_map(|(rank, s)| (0..s.done.len() as u32).map(move |i| (rank, i)));
        let mut at = streams.into_iter().find(|(rank, stream)| waits(*rank, *stream).is_some())?;
        let mut seen = BTreeSet::new();
        loop {
            let (rank, stream) = at;
            let (index, instr) = waits(rank, stream)?;
            let state = &states[rank as usize];
            let (what, next) = match instr.kind {
                InstrKind::Transfer { call } if state.posted[stream as usize] => {
                    let mut peers = meetings[call as usize].peers(rank);
                    let late = peers.find(|peer| !self.has_begun(states, *peer, call)).unwrap_or(rank);
                    let next = self.transfer(late, call).map(|id| (late, id.stream));
                    (format!("rank {late} never begins call {call}"), next)
                }
                _ => {
                    let late = self.late(pass, state, instr).unwrap_or(InstrId { stream, index });
                    (
                        format!("it waits for stream {}, instruction {}", late.stream, late.index),
                        Some((rank, late.stream)),
                    )
                }
            };
            match next.filter(|_| seen.insert(at)) {
                Some(next) => at = next,
                None => return Some(ProgramError::Stuck { rank, stream, index, what }),
            }
        }
    }

    fn has_begun(&self, states: &[State], rank: u32, call: u32) -> bool {
        let Some(id) = self.transfer(rank, call) else { return false };
        let state = &states[rank as usize];
        let done = state.done[id.stream as usize];
        done > id.index || done == id.index && state.posted[id.stream as usize]
    }

    /// A dependency that is not over.
    fn late(&self, pass: &PassProgram, state: &State, instr: &Instr) -> Option<InstrId> {
        let after = pass.events.get(instr.after.range()).unwrap_or_default();
        after.iter().copied().find(|id| state.done.get(id.stream as usize).is_none_or(|done| *done <= id.index))
    }

    /// Takes the next instruction of a stream one step on, if it can.
    fn step(
        &mut self,
        pass: &PassProgram,
        rank: usize,
        stream: usize,
        state: &mut State,
        meetings: &mut [Meeting],
    ) -> Result<bool, ProgramError> {
        let index = state.done[stream];
        let Some(instr) = pass.ranks[rank].streams[stream].get(index as usize) else { return Ok(false) };
        let id = InstrId { stream: stream as u32, index };
        if !state.posted[stream] {
            let at = |what| ProgramError::Index { rank: rank as u32, stream: id.stream, index, what };
            let after = pass.events.get(instr.after.range()).ok_or_else(|| at("its list of dependencies"))?;
            if after.iter().any(|dep| self.ranks[rank].flat(*dep).is_none()) {
                return Err(at("a dependency"));
            }
            if self.late(pass, state, instr).is_some() {
                return Ok(false);
            }
            self.clock(rank, id, after);
        }
        if let InstrKind::Transfer { call } = instr.kind {
            let rank = rank as u32;
            let meeting = &mut meetings[call as usize];
            if !std::mem::replace(&mut state.posted[stream], true) {
                let peers: Vec<u32> = meeting.peers(rank).collect();
                for peer in peers {
                    if let Some(missing) = meeting.missing(peer) {
                        *missing -= 1;
                    }
                }
            }
            if meeting.missing(rank).is_some_and(|missing| *missing > 0) {
                return Ok(false);
            }
            state.posted[stream] = false;
        }
        let of_rank = &mut self.ranks[rank];
        if let Some(flat) = of_rank.flat(id) {
            of_rank.position[flat] = state.over;
        }
        state.over += 1;
        state.done[stream] += 1;
        Ok(true)
    }

    fn clock(&mut self, rank: usize, id: InstrId, after: &[InstrId]) {
        let of_rank = &mut self.ranks[rank];
        let streams = of_rank.streams();
        let Some(own) = of_rank.flat(id) else { return };
        let previous = id.index.checked_sub(1).map(|index| InstrId { index, ..id });
        for before in previous.iter().chain(after) {
            let Some(flat) = of_rank.flat(*before) else { continue };
            for stream in 0..streams {
                let known = of_rank.clocks[flat * streams + stream];
                let known = if stream == before.stream as usize { known.max(before.index + 1) } else { known };
                let clock = &mut of_rank.clocks[own * streams + stream];
                *clock = known.max(*clock);
            }
        }
    }

    /// True when `a` is over before `b` starts, whatever else happens; both are instructions of `rank`.
    pub fn before(&self, rank: u32, a: InstrId, b: InstrId) -> bool {
        let Some(of_rank) = self.ranks.get(rank as usize) else { return false };
        let clock = of_rank.flat(b).map(|flat| flat * of_rank.streams() + a.stream as usize);
        clock.and_then(|at| of_rank.clocks.get(at)).is_some_and(|over| *over > a.index)
    }

    /// When an instruction ends among those of its rank, in an order in which the whole pass can run.
    pub fn position(&self, rank: u32, id: InstrId) -> Option<u32> {
        let of_rank = self.ranks.get(rank as usize)?;
        of_rank.flat(id).map(|flat| of_rank.position[flat])
    }

    /// The rank's part in a call.
    pub fn transfer(&self, rank: u32, call: u32) -> Option<InstrId> {
        let transfers = &self.ranks.get(rank as usize)?.transfers;
        transfers.binary_search_by_key(&call, |t| t.0).ok().map(|at| transfers[at].1)
    }
}

fn meeting(pass: &PassProgram, call: u32) -> Meeting {
    let parts = pass.calls.get(call as usize).map(|call| call.parts.as_slice()).unwrap_or_default();
    let flows = parts.iter().filter_map(|part| pass.routes.get(part.routes as usize)).flat_map(|table| &table.flows);
    let mut pairs: Vec<(u32, u32)> = flows.flat_map(|flow| [(flow.from, flow.to), (flow.to, flow.from)]).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let missing = pairs.chunk_by(|a, b| a.0 == b.0).map(|of_rank| (of_rank[0].0, of_rank.len() as u32)).collect();
    Meeting { pairs, missing }
}

/// True for instructions that add to results of their rank.
pub(crate) fn adds(pass: &PassProgram, instr: &Instr) -> bool {
    match instr.kind {
        InstrKind::Launch { .. } | InstrKind::Merge { .. } | InstrKind::Settle { .. } | InstrKind::Cast { .. } => true,
        InstrKind::Pack { call, .. } => {
            pass.calls.get(call as usize).is_some_and(|call| call.mode == CallMode::Accumulate)
        }
        _ => false,
    }
}
