use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUevent_flags, cuMemsetD32Async};
use cudarc::driver::{CudaEvent, CudaStream, result};
use skewbench_exec::{InstrId, TraceEvent};
use skewbench_plan::Pass;

use super::board::Board;
use super::card::{Card, Memory, launch};
use super::lane::RankLane;
use super::nccl::Communicator;
use super::options::RankTime;
use super::owned::Wait;
use super::peers::{Peers, SlotEvent};
use super::rows::RowTable;
use super::script::{END, START, Script, ScriptOptions, all_work, issue, script};
use super::wave::Wave;
use crate::CudaError;
use crate::attention::{Attention, CallId};
use crate::steps::{Exchange, PassSteps, RankDevice, Work};

/// Threads of a block that moves rows; each of its warps does one chunk.
pub(super) const THREADS: u32 = 256;
/// How long a communicator may be in use by the thread that is to give it up.
const RELEASE: Duration = Duration::from_secs(1);
/// How long what is left on a card may take to end after a failure.
const SETTLE: Duration = Duration::from_secs(5);

/// What the ranks of a loaded wave share.
#[derive(Debug)]
pub(super) struct Shared {
    pub wave: Wave,
    pub board: Board,
    /// Whether other processes have part of the ranks.
    pub joint: bool,
    /// Events of the board, made by their owners.
    pub events: Vec<OnceLock<SlotEvent>>,
    pub arenas: Vec<OnceLock<Arena>>,
    communicators: Mutex<Vec<Arc<Communicator>>>,
    /// Grows with every piece of work that a rank has prepared: what still does anything does not hang.
    pub progress: AtomicU64,
}

/// Where a rank's arena is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arena {
    pub at: CUdeviceptr,
    pub context: Context,
}

/// A card's context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Context(pub CUcontext);
// SAFETY: a context may be used by any thread; it lives as long as the session's cards.
unsafe impl Send for Context {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Context {}

impl Shared {
    /// Nothing is loaded yet. `joint` is the board of all processes, if there are several.
    pub fn new(wave: Wave, joint: Option<Board>) -> Self {
        Self {
            joint: joint.is_some(),
            board: joint.unwrap_or_else(|| Board::new(Self::board_slots(&wave))),
            events: wave.slots.iter().map(|_| OnceLock::new()).collect(),
            arenas: wave.ranks.iter().map(|_| OnceLock::new()).collect(),
            communicators: Mutex::default(),
            progress: AtomicU64::new(0),
            wave,
        }
    }

    /// Places that the board has for a wave: those of its events, then for every rank the end of an execution.
    pub fn board_slots(wave: &Wave) -> usize {
        wave.slots.len() + wave.ranks.len()
    }

    /// Aborts all communicators of all ranks.
    pub fn abort(&self) {
        let all = self.communicators.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().for_each(|communicator| communicator.abort(RELEASE));
    }
}

/// A rank: its card, its kernels, what is loaded. Lives in a thread of its own.
pub(super) struct Rank {
    pub index: usize,
    pub card: Arc<Card>,
    pub attention: Box<dyn Attention>,
    pub loaded: Option<Loaded>,
}

/// A loaded wave. Fields are dropped in this order.
pub(super) struct Loaded {
    pub communicators: HashMap<usize, Arc<Communicator>>,
    scripts: HashMap<ScriptOptions, Arc<(Script, Vec<CudaEvent>)>>,
    forward: Prepared,
    backward: Prepared,
    pub peers: Peers,
    pub streams: Vec<Arc<CudaStream>>,
    pub arena: Memory,
    pub shared: Arc<Shared>,
}

/// Work of a pass, ready to enqueue, by its number.
#[derive(Default)]
pub(super) struct Prepared {
    pub work: Vec<Ready>,
    pub exchanges: HashMap<u32, (usize, Exchange)>,
}

/// One thing to enqueue.
pub(super) enum Ready {
    Nothing,
    Fill { offset: u64, words: u64, bits: u32 },
    Rows { moves: Memory, first: Memory, count: u32, chunks: u32, merges: bool },
    Attend(CallId),
}

impl Loaded {
    fn body(&self, rank: usize) -> Result<&Arc<RankDevice>, CudaError> {
        self.shared.wave.ranks.get(rank).ok_or_else(|| CudaError::Program(format!("rank {rank} has no program")))
    }
}

impl Rank {
    /// Frees what is loaded.
    pub fn unload(&mut self) {
        self.loaded = None;
        self.attention.clear();
    }

    /// Allocates and prepares all that executions need, except communicators.
    ///
    /// # Errors
    /// No memory is left; no kernel supports a call; the driver fails.
    pub fn load(&mut self, shared: &Arc<Shared>) -> Result<(), CudaError> {
        self.unload();
        let card = Arc::clone(&self.card);
        card.context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
        let Some(body) = shared.wave.ranks.get(self.index).cloned() else { return Ok(()) };
        // Other processes get whole pages of the card, so that nothing but the arena may lie on them.
        let page = if shared.joint { 2 << 20 } else { 1 };
        let arena = Memory::new(&card, body.arena_bytes.next_multiple_of(page).max(page))?;
        let count = body.forward.streams.len().max(body.backward.streams.len()).max(1);
        let priority = |stream| if stream == 0 { card.priorities.0 } else { card.priorities.1 };
        let streams: Vec<Arc<CudaStream>> = (0..count)
            .map(|stream| card.context.new_stream_with_priority(priority(stream)))
            .collect::<Result<_, _>>()
            .map_err(card.failed("cuStreamCreateWithPriority"))?;
        for (slot, event) in shared.wave.slots.iter().zip(&shared.events) {
            if slot.owner() == self.index {
                let _ = event.set(SlotEvent::new(&card, shared.joint)?);
            }
        }
        if let Some(place) = shared.arenas.get(self.index) {
            let _ = place.set(Arena { at: arena.at, context: Context(card.context.cu_ctx()) });
        }
        let forward = self.prepare(&body, Pass::Forward, arena.at, &streams, &shared.progress)?;
        let backward = self.prepare(&body, Pass::Backward, arena.at, &streams, &shared.progress)?;
        let shared = Arc::clone(shared);
        let (communicators, scripts, peers) = (HashMap::new(), HashMap::new(), Peers::default());
        self.loaded = Some(Loaded { communicators, scripts, forward, backward, peers, streams, arena, shared });
        self.settled()
    }

    fn prepare(
        &mut self,
        body: &RankDevice,
        pass: Pass,
        arena: CUdeviceptr,
        streams: &[Arc<CudaStream>],
        progress: &AtomicU64,
    ) -> Result<Prepared, CudaError> {
        let mut prepared = Prepared::default();
        let steps: &PassSteps = body.pass(pass);
        for (stream, work) in all_work(steps) {
            let ready = match work {
                Work::Fill { offset, words, bits } => {
                    let end = words.checked_mul(4).and_then(|bytes| bytes.checked_add(*offset));
                    if end.is_none_or(|end| end > body.arena_bytes) || !offset.is_multiple_of(4) {
                        return Err(CudaError::Program(format!("{words} words at byte {offset} leave the arena")));
                    }
                    Ready::Fill { offset: *offset, words: *words, bits: *bits }
                }
                Work::Rows(moves) => {
                    let table = RowTable::new(moves, arena, body.arena_bytes)?;
                    Ready::Rows {
                        moves: Memory::of(&self.card, &table.moves)?,
                        first: Memory::of(&self.card, &table.first)?,
                        count: table.moves.len() as u32,
                        chunks: table.chunks,
                        merges: table.merges,
                    }
                }
                Work::Attend(call) => Ready::Attend(self.attention.prepare(call, &streams[stream])?),
                Work::Exchange(exchange) => {
                    prepared.exchanges.insert(exchange.call, (stream, exchange.clone()));
                    Ready::Nothing
                }
                Work::Turn(_) => Ready::Nothing,
            };
            prepared.work.push(ready);
            progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(prepared)
    }

    /// Joins a communicator for a stream of this rank's domain, and makes all of its connections.
    ///
    /// # Errors
    /// NCCL fails; another rank fails, or does not join within `patience`.
    pub fn join(
        &mut self,
        stream: usize,
        name: cudarc::nccl::sys::ncclUniqueId,
        max_ctas: Option<i32>,
        patience: Duration,
    ) -> Result<(), CudaError> {
        let (rank, card) = (self.index, Arc::clone(&self.card));
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        card.context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
        let domain = loaded.shared.wave.domain(rank);
        let (ranks, local) = (domain.len(), rank - domain.start);
        let made = Communicator::join(name, ranks, local, card.ordinal, max_ctas)?;
        loaded.shared.communicators.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&made));
        let shared = Arc::clone(&loaded.shared);
        let deadline = Instant::now() + patience;
        let settled = |what: &str| {
            let settled = made.settle(deadline, || shared.board.is_stopped());
            settled.map_err(|why| made.failed(why, rank, what, patience))
        };
        settled("joining a communicator")?;
        // The first message between two ranks connects them, which takes long and may block: not in a timed pass.
        let scratch = Memory::new(&card, 32 * ranks as u64)?;
        let message = |peer: usize, half: u64| crate::steps::Message {
            peer: peer as u32,
            offset: (2 * peer as u64 + half) * 16,
            bytes: 16,
        };
        let peers = || (0..ranks).filter(|peer| *peer != local);
        let part = Exchange {
            call: 0,
            sends: peers().map(|peer| message(peer, 0)).collect(),
            receives: peers().map(|peer| message(peer, 1)).collect(),
        };
        let on = loaded.streams.get(stream).unwrap_or(&loaded.streams[0]);
        made.exchange(&part, scratch.at, on)?;
        settled("connecting a communicator")?;
        // Nothing waits for the stream itself: what never ends on it could not be aborted by this thread.
        while !is_idle(on) {
            let why = match shared.board.is_stopped() {
                true => Wait::Stopped,
                false if Instant::now() >= deadline => Wait::Late,
                false => {
                    std::thread::sleep(Duration::from_micros(50));
                    continue;
                }
            };
            // Freeing the scratch would wait for what never ends.
            made.abort(RELEASE);
            return Err(made.failed(why, rank, "the first message of a communicator", patience));
        }
        loaded.communicators.insert(stream, made);
        self.settled()
    }

    /// Waits until nothing runs on the streams of the rank.
    fn settled(&self) -> Result<(), CudaError> {
        let streams = self.loaded.iter().flat_map(|loaded| &loaded.streams);
        for stream in streams {
            stream.synchronize().map_err(self.card.failed("cuStreamSynchronize"))?;
        }
        Ok(())
    }

    /// Executes a pass and says how long it took.
    ///
    /// # Errors
    /// The driver, a kernel or NCCL fails; another rank fails; nothing ends before the deadline.
    pub fn execute(
        &mut self,
        options: ScriptOptions,
        execution: u64,
        patience: Duration,
    ) -> Result<RankTime, CudaError> {
        let (rank, card) = (self.index, Arc::clone(&self.card));
        let Some(loaded) = &mut self.loaded else { return Ok(RankTime::default()) };
        let shared = Arc::clone(&loaded.shared);
        let made = match loaded.scripts.get(&options) {
            Some(made) => Arc::clone(made),
            None => {
                let script = script(&shared.wave, rank, options)?;
                // Events that nobody reads a time from are cheaper without one.
                let timed = |event: u32| options.trace || event == START || event == END;
                let flags = |event| timed(event).then_some(CUevent_flags::CU_EVENT_DEFAULT);
                let events = (0..script.events)
                    .map(|event| card.context.new_event(flags(event)))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(card.failed("cuEventCreate"))?;
                let made = Arc::new((script, events));
                loaded.scripts.insert(options, Arc::clone(&made));
                made
            }
        };
        let (script, events) = (&made.0, &made.1);
        let deadline = Instant::now() + patience;
        let mut lane = RankLane {
            rank,
            card: &card,
            attention: self.attention.as_mut(),
            prepared: if options.pass == Pass::Forward { &loaded.forward } else { &loaded.backward },
            loaded,
            options,
            events,
            deadline,
            patience,
            hold: 0,
        };
        lane.hold = lane.holds(script);
        let began = Instant::now();
        let recorded = issue(script, &mut lane, &shared.board, execution, deadline)?;
        let issue_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ended(script, events, &recorded, deadline, patience)?;
        if shared.joint {
            self.all_ended(execution, deadline, patience)?;
        }
        let since_start = |event: u32| -> Result<f64, CudaError> {
            let ms = events[START as usize].elapsed_ms(&events[event as usize]);
            ms.map(|ms| f64::from(ms) * 1e6).map_err(card.failed("cuEventElapsedTime"))
        };
        let mut time = RankTime { ns: since_start(END)?.round() as u64, issue_ns, trace: Vec::new() };
        if options.trace {
            let body = shared.wave.ranks.get(rank).map(|body| body.pass(options.pass));
            for (at, begin) in &script.begins {
                let step = body.and_then(|b| b.streams.get(at.stream as usize)?.get(at.index as usize));
                if let (Some(step), Some(end)) = (step, script.ends.get(at)) {
                    time.trace.push(TraceEvent {
                        rank: rank as u32,
                        stream: at.stream,
                        start_ps: (since_start(*begin)? * 1e3).max(0.0) as u64,
                        end_ps: (since_start(*end)? * 1e3).max(0.0) as u64,
                        what: step.instr,
                        micro_batch: step.micro_batch,
                    });
                }
            }
        }
        Ok(time)
    }

    /// Waits for the end of a pass.
    fn ended(
        &self,
        script: &Script,
        events: &[CudaEvent],
        recorded: &[bool],
        deadline: Instant,
        patience: Duration,
    ) -> Result<(), CudaError> {
        let Some(loaded) = &self.loaded else { return Ok(()) };
        let mut checked = Instant::now();
        loop {
            let done = events[END as usize].try_is_complete().map_err(self.card.failed("what the card executes"))?;
            if done {
                return Ok(());
            }
            if loaded.shared.board.is_stopped() {
                return Err(CudaError::Elsewhere(self.index as u32));
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.hung(stuck(script, events, recorded), patience));
            }
            if now.duration_since(checked) > Duration::from_millis(200) {
                checked = now;
                loaded.shared.board.look();
                loaded.communicators.values().try_for_each(|communicator| communicator.health())?;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    pub(super) fn hung(&self, what: String, patience: Duration) -> CudaError {
        CudaError::Hung { rank: self.index as u32, what, seconds: patience.as_secs_f64() }
    }

    /// After a failure: aborts this rank's communicators and waits for the card. False when what runs on it does not end,
    /// so that nothing it uses may be freed: it is leaked.
    pub fn recover(&mut self) -> bool {
        let Some(loaded) = &self.loaded else { return true };
        loaded.communicators.values().for_each(|communicator| communicator.abort(RELEASE));
        let until = Instant::now() + SETTLE;
        for stream in &loaded.streams {
            while !is_idle(stream) {
                if Instant::now() >= until {
                    std::mem::forget(self.loaded.take());
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.unload();
        true
    }

    /// Sets all words of the arena.
    ///
    /// # Errors
    /// The driver fails.
    pub fn fill(&mut self, bits: u32) -> Result<(), CudaError> {
        let Some(loaded) = &self.loaded else { return Ok(()) };
        let words = loaded.body(self.index)?.arena_bytes / 4;
        // SAFETY: the words lie in the arena; nothing else runs.
        unsafe { cuMemsetD32Async(loaded.arena.at, bits, words as usize, loaded.streams[0].cu_stream()) }
            .result()
            .map_err(self.card.failed("cuMemsetD32Async"))?;
        self.settled()
    }

    /// Launches the kernel that makes inputs from a table of so many runs and elements.
    ///
    /// # Errors
    /// The driver fails.
    pub fn make<T: Copy>(&mut self, runs: &[T], elements: u64) -> Result<(), CudaError> {
        let Some(loaded) = &self.loaded else { return Ok(()) };
        if runs.is_empty() || elements == 0 {
            return Ok(());
        }
        let table = Memory::of(&self.card, runs)?;
        let (mut at, mut count, mut all) = (table.at, runs.len() as u32, elements);
        let mut arguments =
            [(&raw mut at).cast::<c_void>(), (&raw mut count).cast::<c_void>(), (&raw mut all).cast::<c_void>()];
        let blocks = elements.div_ceil(u64::from(THREADS)).min(1 << 16) as u32;
        // SAFETY: the kernel takes a table, its length and a number of elements; the table lives until the stream is idle.
        unsafe { launch(&self.card, &self.card.make_inputs, blocks, THREADS, &loaded.streams[0], &mut arguments) }?;
        self.settled()
    }

    /// First address of the arena; 0 where nothing is loaded.
    pub fn arena(&self) -> CUdeviceptr {
        self.loaded.as_ref().map_or(0, |loaded| loaded.arena.at)
    }

    fn bounds(&self, offset: u64, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        let loaded = self.loaded.as_ref().ok_or_else(|| CudaError::Program("nothing is loaded".to_owned()))?;
        match offset.checked_add(bytes) {
            Some(end) if end <= loaded.body(self.index)?.arena_bytes => Ok(loaded.arena.at + offset),
            _ => Err(CudaError::Program(format!("{bytes} bytes at byte {offset} leave the arena"))),
        }
    }

    /// Writes bytes into the arena.
    ///
    /// # Errors
    /// They leave the arena; the driver fails.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        let at = self.bounds(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies in the arena.
        unsafe { result::memcpy_htod_sync(at, bytes) }.map_err(self.card.failed("cuMemcpyHtoD"))
    }

    /// Reads `rows` pieces of `width` bytes that lie `pitch` bytes apart.
    ///
    /// # Errors
    /// They leave the arena; the driver fails.
    pub fn read(&self, offset: u64, width: u64, pitch: u64, rows: u64) -> Result<Vec<u8>, CudaError> {
        use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype, cuMemcpy2D_v2};
        let span =
            if rows == 0 { Some(0) } else { pitch.checked_mul(rows - 1).and_then(|skip| skip.checked_add(width)) };
        let at = self.bounds(offset, span.unwrap_or(u64::MAX))?;
        let mut bytes = vec![0u8; usize::try_from(width.saturating_mul(rows)).unwrap_or(0)];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        if pitch == width || rows == 1 {
            // SAFETY: the range lies in the arena and the buffer is as large.
            unsafe { result::memcpy_dtoh_sync(&mut bytes, at) }.map_err(self.card.failed("cuMemcpyDtoH"))?;
            return Ok(bytes);
        }
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: at,
            srcArray: std::ptr::null_mut(),
            srcPitch: pitch as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: bytes.as_mut_ptr().cast(),
            dstDevice: 0,
            dstArray: std::ptr::null_mut(),
            dstPitch: width as usize,
            WidthInBytes: width as usize,
            Height: rows as usize,
        };
        // SAFETY: all rows lie in the arena, and the buffer holds them without gaps.
        unsafe { cuMemcpy2D_v2(&copy) }.result().map_err(self.card.failed("cuMemcpy2D"))?;
        Ok(bytes)
    }
}

/// Whether nothing runs on a stream, or nothing ever will since it has failed.
fn is_idle(stream: &CudaStream) -> bool {
    // SAFETY: the stream lives.
    let status = unsafe { cudarc::driver::sys::cuStreamQuery(stream.cu_stream()) };
    status != cudarc::driver::sys::CUresult::CUDA_ERROR_NOT_READY
}

/// What has not ended, stream by stream.
fn stuck(script: &Script, events: &[CudaEvent], recorded: &[bool]) -> String {
    let done = |event: &u32| {
        let recorded = recorded.get(*event as usize).copied().unwrap_or(false);
        recorded && events.get(*event as usize).is_some_and(CudaEvent::is_complete)
    };
    if !done(&START) {
        return "the common start of all ranks".to_owned();
    }
    let mut first: HashMap<u32, InstrId> = HashMap::new();
    for (at, _) in script.ends.iter().filter(|(_, event)| !done(event)) {
        first.entry(at.stream).or_insert(*at);
    }
    let mut first: Vec<InstrId> = first.into_values().collect();
    first.sort_unstable();
    let names: Vec<String> =
        first.iter().map(|at| format!("instruction {} of stream {}", at.index, at.stream)).collect();
    if names.is_empty() { "the end of stream 0".to_owned() } else { names.join(", ") }
}
