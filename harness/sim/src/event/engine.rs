use std::{cmp::Reverse, collections::BinaryHeap};

use skewbench_exec::InstrKind;
use skewbench_plan::COMPUTE;

use super::{
    calls::{Calls, Incident, Progress},
    costs::Priced,
    links::{Links, PartRate},
    times::TraceEvent,
};
use crate::SimError;

/// What a run leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Everything,
    /// Transfers take no time, ranks still wait for each other.
    ComputeOnly,
    /// Kernels take no time.
    TransfersOnly,
}

/// Latest time, 2^63 picoseconds.
const LAST_PS: u64 = 1 << 63;
/// Kernels that are looked at to tell how long a compute stream stays busy.
const LOOK_AHEAD: usize = 64;

#[derive(Clone, Copy, Default)]
struct StreamState {
    /// Instructions that have ended.
    done: u32,
    /// The instruction after them has started.
    busy: bool,
    started: u64,
    /// End of the running kernel as far as known.
    ends: u64,
}

/// Time in which a rank had a transfer under way.
#[derive(Clone, Copy, Default)]
struct Traffic {
    start: u64,
    end: u64,
    /// Of earlier intervals.
    before: u64,
}

impl Traffic {
    fn add(&mut self, now: u64, end: u64) {
        if now > self.end {
            self.before += self.end - self.start;
            self.start = now;
            self.end = end;
        } else {
            self.end = self.end.max(end);
        }
    }

    /// Up to `now`, which never lies before the last interval's start.
    fn until(&self, now: u64) -> u64 {
        self.before + now.min(self.end).saturating_sub(self.start)
    }
}

#[derive(Clone, Copy, Default)]
struct RankState {
    traffic: Traffic,
    /// Traffic that the running compute kernel has been charged for.
    charged: u64,
    /// When the compute stream runs out of kernels known to be ready; `None` when that has to be found out again.
    compute_until: Option<u64>,
    end: u64,
}

/// What a run changes; the runs of a pass use the same room one after another.
#[derive(Default)]
pub(super) struct Room {
    posts: Vec<Progress>,
    streams: Vec<StreamState>,
    ranks: Vec<RankState>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Room {
    fn clear(&mut self, priced: &Priced<'_>, calls: &Calls) {
        self.posts.clone_from(&calls.fresh);
        self.streams.clear();
        self.streams.resize(priced.streams.len(), StreamState::default());
        self.ranks.clear();
        self.ranks.resize(priced.launch_ps.len(), RankState::default());
        self.events.clear();
    }
}

pub(super) struct Engine<'a, 'p> {
    priced: &'a Priced<'p>,
    calls: &'a Calls,
    links: &'a mut Links,
    mode: Mode,
    /// Prolongation of a compute kernel per picosecond of traffic under it.
    slowdown: f64,
    room: &'a mut Room,
    trace: Option<Vec<TraceEvent>>,
}

fn order(rank: u32, stream: u32, index: u32) -> u64 {
    u64::from(rank) << 40 | u64::from(stream) << 32 | u64::from(index)
}

impl<'a, 'p> Engine<'a, 'p> {
    pub(super) fn new(
        priced: &'a Priced<'p>,
        calls: &'a Calls,
        links: &'a mut Links,
        room: &'a mut Room,
        mode: Mode,
        compute_rate: f64,
        trace: bool,
    ) -> Self {
        links.reset();
        room.clear(priced, calls);
        Self { priced, calls, links, mode, slowdown: 1.0 / compute_rate - 1.0, room, trace: trace.then(Vec::new) }
    }

    /// Runs to the end and returns the end of every rank, and the trace.
    pub(super) fn run(mut self) -> Result<(Vec<u64>, Vec<TraceEvent>), SimError> {
        for rank in 0..self.room.ranks.len() as u32 {
            self.advance(rank, 0)?;
        }
        while let Some(Reverse((now, key))) = self.room.events.pop() {
            let (rank, stream, index) = ((key >> 40) as u32, (key >> 32 & 0xff) as u32, key as u32);
            let flat = self.priced.rank_start[rank as usize] + stream as usize;
            if stream == u32::from(COMPUTE) && self.prolong(rank, flat, index, now)? {
                continue;
            }
            self.finish(rank, flat, index, now);
            self.advance(rank, now)?;
        }
        self.check_finished()?;
        Ok((self.room.ranks.iter().map(|rank| rank.end).collect(), self.trace.unwrap_or_default()))
    }

    fn push(&mut self, time: u64, flat: usize, index: u32) -> Result<(), SimError> {
        let stream = &self.priced.streams[flat];
        if time >= LAST_PS {
            return Err(SimError::Overflow { rank: stream.rank, stream: stream.number, index });
        }
        self.room.events.push(Reverse((time, order(stream.rank, stream.number, index))));
        Ok(())
    }

    /// Charges the kernel that was to end `now` for traffic under it; true when it ends later for that.
    fn prolong(&mut self, rank: u32, flat: usize, index: u32, now: u64) -> Result<bool, SimError> {
        let state = &mut self.room.ranks[rank as usize];
        let traffic = state.traffic.until(now);
        let overlap = traffic - state.charged;
        let extra = (overlap as f64 * self.slowdown) as u64;
        let kernel = !matches!(self.priced.streams[flat].instrs[index as usize].kind, InstrKind::Transfer { .. });
        if extra == 0 || !kernel || self.mode != Mode::Everything {
            return Ok(false);
        }
        state.charged = traffic;
        state.compute_until = None;
        self.room.streams[flat].ends = now + extra;
        self.push(now + extra, flat, index)?;
        Ok(true)
    }

    fn finish(&mut self, rank: u32, flat: usize, index: u32, now: u64) {
        let state = &mut self.room.streams[flat];
        state.done = index + 1;
        state.busy = false;
        let started = state.started;
        self.room.ranks[rank as usize].end = now;
        if let Some(trace) = &mut self.trace {
            let stream = &self.priced.streams[flat];
            let instr = &stream.instrs[index as usize];
            trace.push(TraceEvent {
                rank,
                stream: stream.number,
                start_ps: started,
                end_ps: now,
                what: instr.kind,
                micro_batch: instr.micro_batch,
            });
        }
    }

    /// Starts what can start on a rank.
    fn advance(&mut self, rank: u32, now: u64) -> Result<(), SimError> {
        self.room.ranks[rank as usize].compute_until = None;
        for flat in self.priced.rank_range(rank) {
            let state = self.room.streams[flat];
            if !state.busy && self.ready(flat, state.done) {
                self.start(rank, flat, state.done, now)?;
            }
        }
        Ok(())
    }

    /// True when the instruction exists and everything that it names has ended.
    fn ready(&self, flat: usize, index: u32) -> bool {
        let stream = &self.priced.streams[flat];
        let Some(instr) = stream.instrs.get(index as usize) else { return false };
        let first = self.priced.rank_start[stream.rank as usize];
        let after = &self.priced.program.events[instr.after.range()];
        after.iter().all(|id| self.room.streams[first + id.stream as usize].done > id.index)
    }

    fn start(&mut self, rank: u32, flat: usize, index: u32, now: u64) -> Result<(), SimError> {
        let stream = self.priced.streams[flat];
        let kind = stream.instrs[index as usize].kind;
        self.room.streams[flat].busy = true;
        self.room.streams[flat].started = now;
        if let InstrKind::Transfer { call } = kind {
            return self.post(call, rank, now);
        }
        let duration = match self.mode {
            Mode::TransfersOnly => 0,
            _ => self.priced.duration[stream.base + index as usize],
        };
        let end = now.saturating_add(duration);
        self.room.streams[flat].ends = end;
        if stream.number == u32::from(COMPUTE) {
            let state = &mut self.room.ranks[rank as usize];
            state.charged = state.traffic.until(now);
        }
        self.push(end, flat, index)
    }

    /// Posts a call and releases the flows whose other end is posted.
    fn post(&mut self, call: u32, rank: u32, now: u64) -> Result<(), SimError> {
        let (program, calls) = (self.priced.program, self.calls);
        let origin = calls.origin(call);
        let slot = origin.wrapping_add(rank as usize);
        self.room.posts[slot].posted = true;
        let (mut last_end, mut released) = (now, 0);
        for part in &program.calls[call as usize].parts {
            let rate = self.links.part(part.row_bytes);
            let own_busy = if self.mode == Mode::Everything { self.compute_until(rank, now) } else { 0 };
            for flow in calls.routes[part.routes as usize].incident(rank) {
                let peer_slot = origin.wrapping_add(flow.peer as usize);
                if !self.room.posts[peer_slot].posted {
                    continue;
                }
                let end = self.release(now, (rank, own_busy), flow, [slot, peer_slot], rate);
                last_end = last_end.max(end);
                released += 1;
                let peer = &mut self.room.posts[peer_slot];
                peer.remaining -= 1;
                peer.end = peer.end.max(end);
                if peer.remaining == 0 {
                    self.end_call(peer_slot)?;
                }
            }
        }
        if released > 0 {
            self.room.ranks[rank as usize].traffic.add(now, last_end);
        }
        let own = &mut self.room.posts[slot];
        own.remaining -= released;
        own.end = own.end.max(last_end);
        if own.remaining == 0 { self.end_call(slot) } else { Ok(()) }
    }

    /// Ends a rank's part in a call, all of whose flows are released.
    fn end_call(&mut self, slot: usize) -> Result<(), SimError> {
        let post = &self.calls.posts[slot];
        self.push(self.room.posts[slot].end, post.stream as usize, post.index)
    }

    /// Releases a flow and returns its end. `own`: the posting rank, whose traffic the caller counts, and when its compute stream runs out;
    /// `slots`: its own and its peer's part.
    #[inline]
    fn release(&mut self, now: u64, own: (u32, u64), flow: &Incident, slots: [usize; 2], part: PartRate) -> u64 {
        if self.mode == Mode::ComputeOnly {
            return now;
        }
        let (sender, receiver) = if flow.receives { (1, 0) } else { (0, 1) };
        let peer_busy = if self.mode == Mode::Everything { self.compute_until(flow.peer, now) } else { 0 };
        let (ranks, until) = ([own.0, flow.peer], [own.1, peer_busy]);
        let (ends, busy) = ([ranks[sender], ranks[receiver]], [until[sender], until[receiver]]);
        let rows = flow.rows.cast_signed() as f64;
        let end = if flow.same_node {
            let rate = |side: usize| self.calls.posts[slots[side]].intra_ps_per_byte;
            let rates = [rate(sender)[0], rate(receiver)[1]];
            self.links.send_inside(now, ends, rows * part.row_bytes, rates, busy)
        } else {
            self.links.send_between(now, ends, rows, part, busy)
        };
        self.room.ranks[flow.peer as usize].traffic.add(now, end);
        end
    }

    /// When the compute stream of `rank` runs out of kernels that are running or whose dependencies have ended; 0 when it is idle.
    #[inline]
    fn compute_until(&mut self, rank: u32, now: u64) -> u64 {
        match self.room.ranks[rank as usize].compute_until {
            Some(until) => until,
            None => self.find_compute_until(rank, now),
        }
    }

    fn find_compute_until(&mut self, rank: u32, now: u64) -> u64 {
        let flat = self.priced.rank_start[rank as usize] + usize::from(COMPUTE);
        let mut until = 0;
        if self.priced.rank_range(rank).contains(&flat) {
            let stream = self.priced.streams[flat];
            let state = self.room.streams[flat];
            let kernel = |index: u32| {
                stream.instrs.get(index as usize).is_some_and(|instr| !matches!(instr.kind, InstrKind::Transfer { .. }))
            };
            let mut next = state.done;
            if state.busy && kernel(next) {
                until = state.ends;
                next += 1;
            } else if !state.busy {
                until = now;
            }
            let last = next.saturating_add(LOOK_AHEAD as u32);
            while until > 0 && next < last && kernel(next) && self.ready(flat, next) {
                until = until.saturating_add(self.priced.duration[stream.base + next as usize]);
                next += 1;
            }
        }
        self.room.ranks[rank as usize].compute_until = Some(until);
        until
    }

    fn check_finished(&self) -> Result<(), SimError> {
        for (stream, state) in self.priced.streams.iter().zip(&self.room.streams) {
            let Some(instr) = stream.instrs.get(state.done as usize) else { continue };
            let what = match instr.kind {
                InstrKind::Transfer { call } if state.busy => format!("peers of call {call} do not post it"),
                _ => "the instructions that it waits for never end".to_owned(),
            };
            return Err(SimError::Stuck { rank: stream.rank, stream: stream.number, index: state.done, what });
        }
        Ok(())
    }
}
