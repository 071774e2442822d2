use std::ffi::c_void;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::cuMemsetD32Async;
use cudarc::driver::{CudaEvent, CudaStream, result};

use super::board::NoNews;
use super::card::{Card, launch};
use super::peers::SlotEvent;
use super::rank::{Context, Loaded, Prepared, Ready, THREADS};
use super::script::{Lane, Op, Script, ScriptOptions};
use super::wave::Slot;
use crate::CudaError;
use crate::attention::Attention;

/// Time that a host needs for an attention call, a group of NCCL, and anything else, at most: the start is held back so
/// long.
const ATTEND_HOST: Duration = Duration::from_micros(50);
const GROUP_HOST: Duration = Duration::from_micros(200);
const OTHER_HOST: Duration = Duration::from_micros(5);
const MOST_HOLD: Duration = Duration::from_millis(20);

/// Issues on a card.
pub(super) struct RankLane<'a> {
    pub rank: usize,
    pub card: &'a Card,
    pub attention: &'a mut dyn Attention,
    pub prepared: &'a Prepared,
    pub loaded: &'a Loaded,
    pub options: ScriptOptions,
    pub events: &'a [CudaEvent],
    pub deadline: Instant,
    pub patience: Duration,
    pub hold: u64,
}

impl RankLane<'_> {
    /// How long the start is held back, nanoseconds.
    pub fn holds(&self, script: &Script) -> u64 {
        let cost = |op: &Op| match op {
            Op::Work(number) if matches!(self.prepared.work.get(*number as usize), Some(Ready::Attend(_))) => {
                ATTEND_HOST
            }
            Op::Group(_) => GROUP_HOST,
            _ => OTHER_HOST,
        };
        let all: Duration = script.streams.iter().flatten().map(cost).sum();
        u64::try_from(all.min(MOST_HOLD).as_nanos()).unwrap_or(u64::MAX)
    }

    fn event(&self, event: u32) -> Result<&CudaEvent, CudaError> {
        self.events.get(event as usize).ok_or_else(|| CudaError::Program(format!("there is no event {event}")))
    }

    fn slot(&self, slot: u32) -> Result<&SlotEvent, CudaError> {
        let event = self.loaded.shared.events.get(slot as usize).and_then(OnceLock::get);
        event
            .or_else(|| self.loaded.peers.event(slot))
            .ok_or_else(|| CudaError::Program(format!("there is no shared event {slot}")))
    }

    fn work(&mut self, number: u32, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let arena = self.loaded.arena.at;
        match self.prepared.work.get(number as usize) {
            Some(Ready::Fill { offset, words, bits }) => {
                // SAFETY: the words lie in the arena, as `prepare` has checked.
                unsafe { cuMemsetD32Async(arena + offset, *bits, *words as usize, stream.cu_stream()) }
                    .result()
                    .map_err(self.card.failed("cuMemsetD32Async"))
            }
            Some(Ready::Rows { moves, first, count, chunks, merges }) if *chunks > 0 => {
                let kernel = if *merges { &self.card.merge_rows } else { &self.card.move_rows };
                let (mut moves, mut first, mut count, mut chunks) = (moves.at, first.at, *count, *chunks);
                let mut arguments = [
                    (&raw mut moves).cast::<c_void>(),
                    (&raw mut first).cast::<c_void>(),
                    (&raw mut count).cast::<c_void>(),
                    (&raw mut chunks).cast::<c_void>(),
                ];
                let blocks = chunks.div_ceil(THREADS / 32);
                // SAFETY: the tables live as long as what is loaded, and all that they name lies in the arena.
                unsafe { launch(self.card, kernel, blocks, THREADS, stream, &mut arguments) }
            }
            Some(Ready::Attend(call)) => self.attention.enqueue(*call, arena, stream),
            Some(Ready::Rows { .. } | Ready::Nothing) | None => Ok(()),
        }
    }

    fn copy(&self, call: u32, number: u32, stream: &CudaStream) -> Result<(), CudaError> {
        let shared = &self.loaded.shared;
        let part = shared.wave.part(self.options.pass, self.rank, call);
        let sends = part.and_then(|part| part.sends.get(number as usize));
        let Some(sends) = sends else { return Ok(()) };
        let ours = Context(self.card.context.cu_ctx());
        let theirs = shared.arenas.get(sends.to).and_then(OnceLock::get);
        let theirs = theirs.or_else(|| self.loaded.peers.arena(sends.to));
        let Some(theirs) = theirs else { return Err(CudaError::Program(format!("rank {} has no arena", sends.to))) };
        for one in sends.copies.iter().filter(|one| one.bytes > 0) {
            let (from, to, bytes) = (self.loaded.arena.at + one.from, theirs.at + one.to, one.bytes as usize);
            if theirs.context == ours {
                // SAFETY: both ranges lie in arenas, as `Wave::new` has checked, which live as long as the wave.
                unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) }
                    .map_err(self.card.failed("cuMemcpyDtoDAsync"))?;
            } else {
                // SAFETY: as above.
                unsafe { result::memcpy_peer_async(theirs.context.0, to, ours.0, from, bytes, stream.cu_stream()) }
                    .map_err(self.card.failed("cuMemcpyPeerAsync"))?;
            }
        }
        Ok(())
    }

    fn group(&self, call: u32, stream: &CudaStream) -> Result<(), CudaError> {
        let Some((on, part)) = self.prepared.exchanges.get(&call) else { return Ok(()) };
        if part.sends.is_empty() && part.receives.is_empty() {
            return Ok(());
        }
        let communicator = self.loaded.communicators.get(on);
        let missing = || CudaError::Program(format!("stream {on} has no communicator"));
        let communicator = communicator.ok_or_else(missing)?;
        communicator.exchange(part, self.loaded.arena.at, stream)?;
        // What follows on the stream must come after it.
        let settled = communicator.settle(self.deadline, || self.loaded.shared.board.is_stopped());
        settled.map_err(|why| communicator.failed(why, self.rank, &format!("enqueuing call {call}"), self.patience))
    }
}

impl Lane for RankLane<'_> {
    fn issue(&mut self, stream: usize, op: Op) -> Result<(), CudaError> {
        let on = Arc::clone(self.loaded.streams.get(stream).unwrap_or(&self.loaded.streams[0]));
        match op {
            Op::Hold => {
                let mut nanoseconds = self.hold;
                let mut arguments = [(&raw mut nanoseconds).cast::<c_void>()];
                // SAFETY: the kernel takes one number.
                unsafe { launch(self.card, &self.card.hold, 1, 1, &on, &mut arguments) }
            }
            Op::Record(event) => self.event(event)?.record(&on).map_err(self.card.failed("cuEventRecord")),
            Op::Join(event) => on.wait(self.event(event)?).map_err(self.card.failed("cuStreamWaitEvent")),
            Op::Announce(slot) => self.slot(slot)?.record(&on).map_err(self.card.failed("cuEventRecord")),
            Op::Await(slot) => self.slot(slot)?.wait(&on).map_err(self.card.failed("cuStreamWaitEvent")),
            Op::Work(number) => self.work(number, &on),
            Op::Copy(call, number) => self.copy(call, number, &on),
            Op::Group(call) => self.group(call, &on),
        }
    }

    fn no_news(&mut self, why: NoNews, stream: usize, slot: u32) -> CudaError {
        if why == NoNews::Stopped {
            return CudaError::Elsewhere(self.rank as u32);
        }
        let what = match self.loaded.shared.wave.slots.get(slot as usize) {
            Some(Slot::Ready(rank)) => format!("rank {rank} to be ready"),
            Some(Slot::Posted { rank, call }) => format!("rank {rank} to post call {call}"),
            Some(Slot::Sent { from, call, .. }) => format!("rank {from} to send in call {call}"),
            None => "an event".to_owned(),
        };
        CudaError::Hung {
            rank: self.rank as u32,
            what: format!("the wait of stream {stream} for {what}"),
            seconds: self.patience.as_secs_f64(),
        }
    }
}
