use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUevent_flags, CUipcEventHandle, CUipcMemHandle};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::board::NoNews;
use super::card::Card;
use super::options::Transport;
use super::rank::{Arena, Context, Rank, Shared};
use super::wave::{Slot, Wave};
use crate::CudaError;

/// Bytes of a handle of memory or of an event.
const HANDLE: usize = 64;

/// An event that ranks wait for at each other, in this process or, if it was made so, in others.
#[derive(Debug)]
pub(super) struct SlotEvent {
    raw: CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: the driver lets any thread use an event; `drop` alone destroys it.
unsafe impl Send for SlotEvent {}
// SAFETY: as above.
unsafe impl Sync for SlotEvent {}

impl SlotEvent {
    /// A new event, without times.
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(card: &Card, between_processes: bool) -> Result<Self, CudaError> {
        let context = Arc::clone(&card.context);
        context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
        let shared = if between_processes { CUevent_flags::CU_EVENT_INTERPROCESS as u32 } else { 0 };
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 | shared;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is that of a live event; the card's context is current.
        unsafe { sys::cuEventCreate(&mut raw, flags) }.result().map_err(card.failed("cuEventCreate"))?;
        Ok(Self { raw, context })
    }

    fn open(card: &Card, handle: [u8; HANDLE], of: usize) -> Result<Self, CudaError> {
        let context = Arc::clone(&card.context);
        context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
        let handle = CUipcEventHandle { reserved: handle.map(|byte| byte as _) };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is that of a live event; the card's context is current. The driver refuses a wrong handle.
        unsafe { sys::cuIpcOpenEventHandle(&mut raw, handle) }
            .result()
            .map_err(card.failed(&format!("cuIpcOpenEventHandle of rank {of}")))?;
        Ok(Self { raw, context })
    }

    fn handle(&self, card: &Card) -> Result<[u8; HANDLE], CudaError> {
        let mut handle = CUipcEventHandle { reserved: [0; HANDLE] };
        // SAFETY: the event lives; the pointer is that of a live handle.
        unsafe { sys::cuIpcGetEventHandle(&mut handle, self.raw) }
            .result()
            .map_err(card.failed("cuIpcGetEventHandle"))?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    /// Records the event on a stream of its card.
    ///
    /// # Errors
    /// The driver fails.
    pub fn record(&self, stream: &CudaStream) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: the event lives.
        unsafe { result::event::record(self.raw, stream.cu_stream()) }
    }

    /// Makes a stream wait for the last record.
    ///
    /// # Errors
    /// The driver fails.
    pub fn wait(&self, stream: &CudaStream) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event and the stream live.
        unsafe { result::stream::wait_event(stream.cu_stream(), self.raw, flags) }
    }
}

impl Drop for SlotEvent {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the event is destroyed once. A failure leaves it to the context.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// What a rank uses of ranks in other processes. To be dropped before they free it.
#[derive(Debug, Default)]
pub(super) struct Peers {
    events: HashMap<u32, SlotEvent>,
    arenas: HashMap<usize, Opened>,
}

/// The arena of another process's rank, as this one sees it.
#[derive(Debug)]
struct Opened {
    arena: Arena,
    context: Arc<CudaContext>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the address came from cuIpcOpenMemHandle and is closed once.
            let _ = unsafe { sys::cuIpcCloseMemHandle(self.arena.at) };
        }
    }
}

impl Peers {
    pub fn event(&self, slot: u32) -> Option<&SlotEvent> {
        self.events.get(&slot)
    }

    pub fn arena(&self, rank: usize) -> Option<&Arena> {
        self.arenas.get(&rank).map(|opened| &opened.arena)
    }

    /// Opens what a rank needs of the ranks that are not in this process, from what they have exported, by rank.
    ///
    /// # Errors
    /// A rank has loaded another wave; the driver cannot open what it shares.
    pub fn open(
        card: &Card,
        shared: &Shared,
        rank: usize,
        transport: Transport,
        exported: &[Vec<u8>],
    ) -> Result<Self, CudaError> {
        let wave = &shared.wave;
        let (needed, receivers) = needs(wave, rank, transport);
        let mut peers = Self::default();
        let others = (0..wave.ranks.len()).filter(|of| shared.arenas.get(*of).and_then(OnceLock::get).is_none());
        for of in others {
            let export = exported.get(of).and_then(|bytes| Export::read(bytes));
            let export = export.filter(|export| export.wave == digest(wave, transport));
            let slots = exports(wave, of, transport);
            let Some(export) = export.filter(|export| export.events.len() == slots.len()) else {
                let why = "has loaded another wave, or has other options".to_owned();
                return Err(CudaError::Peer { rank: of as u32, why });
            };
            for (slot, handle) in slots.into_iter().zip(export.events).filter(|(slot, _)| needed.contains(slot)) {
                peers.events.insert(slot, SlotEvent::open(card, handle, of)?);
            }
            if receivers.contains(&of) {
                let context = Arc::clone(&card.context);
                let at = opened(card, export.arena, of)?;
                // An arena that was opened here is memory of this context, wherever it lies.
                let arena = Arena { at, context: Context(context.cu_ctx()) };
                peers.arenas.insert(of, Opened { arena, context });
            }
        }
        Ok(peers)
    }
}

fn opened(card: &Card, handle: [u8; HANDLE], of: usize) -> Result<CUdeviceptr, CudaError> {
    card.context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
    let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as _) };
    let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    let mut at = 0;
    // SAFETY: the pointer is that of a live address; the card's context is current. The driver refuses a wrong handle.
    unsafe { sys::cuIpcOpenMemHandle_v2(&mut at, handle, flags) }
        .result()
        .map_err(card.failed(&format!("cuIpcOpenMemHandle of rank {of}")))?;
    Ok(at)
}

impl Rank {
    /// What other processes need of this rank: bytes for [`Rank::meet`] of theirs.
    ///
    /// # Errors
    /// The driver cannot share it.
    pub fn export(&self, transport: Transport) -> Result<Vec<u8>, CudaError> {
        match &self.loaded {
            Some(loaded) => export(&self.card, &loaded.shared, self.index, transport, loaded.arena.at),
            None => Ok(Vec::new()),
        }
    }

    /// Opens what this rank needs of those of other processes, from what all have exported, by rank.
    ///
    /// # Errors
    /// As [`Peers::open`].
    pub fn meet(&mut self, transport: Transport, exported: &[Vec<u8>]) -> Result<(), CudaError> {
        let (card, rank) = (Arc::clone(&self.card), self.index);
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        loaded.peers = Peers::open(&card, &loaded.shared, rank, transport, exported)?;
        Ok(())
    }

    /// Closes what it has opened, so that the other processes may free it.
    pub fn part(&mut self) {
        if let Some(loaded) = &mut self.loaded {
            loaded.peers = Peers::default();
        }
    }

    /// Waits until all ranks, of other processes too, have ended an execution.
    ///
    /// # Errors
    /// Another rank fails, or has not ended before the deadline.
    pub fn all_ended(&self, execution: u64, deadline: Instant, patience: Duration) -> Result<(), CudaError> {
        let Some(shared) = self.loaded.as_ref().map(|loaded| &loaded.shared) else { return Ok(()) };
        let end = |rank: usize| (shared.wave.slots.len() + rank) as u32;
        shared.board.announce(end(self.index), execution);
        for other in 0..shared.wave.ranks.len() {
            loop {
                let seen = shared.board.version();
                if shared.board.has(end(other), execution) {
                    break;
                }
                shared.board.wait(seen, deadline).map_err(|why| match why {
                    NoNews::Stopped => CudaError::Elsewhere(self.index as u32),
                    NoNews::Late => self.hung(format!("the wait for rank {other} to end"), patience),
                })?;
            }
        }
        Ok(())
    }
}

fn export(
    card: &Card,
    shared: &Shared,
    rank: usize,
    transport: Transport,
    arena: CUdeviceptr,
) -> Result<Vec<u8>, CudaError> {
    card.context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
    let mut export = Export { wave: digest(&shared.wave, transport), arena: [0; HANDLE], events: Vec::new() };
    if transport == Transport::CopyEngines {
        let mut handle = CUipcMemHandle { reserved: [0; HANDLE] };
        // SAFETY: the address is that of an allocation of the current context; the pointer is that of a live handle.
        unsafe { sys::cuIpcGetMemHandle(&mut handle, arena) }.result().map_err(card.failed("cuIpcGetMemHandle"))?;
        export.arena = handle.reserved.map(|byte| byte as u8);
    }
    for slot in exports(&shared.wave, rank, transport) {
        let event = shared.events.get(slot as usize).and_then(OnceLock::get);
        let event = event.ok_or_else(|| CudaError::Program(format!("there is no shared event {slot}")))?;
        export.events.push(event.handle(card)?);
    }
    Ok(export.write())
}

/// What a rank publishes.
#[derive(Clone, Debug, PartialEq)]
struct Export {
    /// Of the wave and the transport: the same on all ranks.
    wave: u64,
    arena: [u8; HANDLE],
    events: Vec<[u8; HANDLE]>,
}

impl Export {
    fn write(&self) -> Vec<u8> {
        let events = self.events.iter().flatten();
        self.wave.to_le_bytes().iter().chain(&self.arena).chain(events).copied().collect()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (wave, rest) = bytes.split_first_chunk()?;
        let (arena, rest) = rest.split_first_chunk()?;
        let (events, rest) = rest.as_chunks();
        rest.is_empty().then(|| Self { wave: u64::from_le_bytes(*wave), arena: *arena, events: events.to_vec() })
    }
}

/// Slots of a rank that others may wait for, in order.
fn exports(wave: &Wave, rank: usize, transport: Transport) -> Vec<u32> {
    let used = |slot: &Slot| matches!(slot, Slot::Ready(_)) || transport == Transport::CopyEngines;
    let all = (0u32..).zip(&wave.slots);
    all.filter(|(_, slot)| slot.owner() == rank && used(slot)).map(|(number, _)| number).collect()
}

/// Slots for which a rank waits, and ranks into whose memory it writes.
fn needs(wave: &Wave, rank: usize, transport: Transport) -> (BTreeSet<u32>, BTreeSet<usize>) {
    let ready = (0u32..).zip(&wave.slots).filter(|(_, slot)| matches!(slot, Slot::Ready(other) if *other != rank));
    let (mut slots, mut ranks): (BTreeSet<u32>, BTreeSet<usize>) =
        (ready.map(|(slot, _)| slot).collect(), BTreeSet::new());
    for part in wave.parts(rank).filter(|_| transport == Transport::CopyEngines) {
        slots.extend(part.sends.iter().map(|sends| sends.posted).chain(part.arrivals.iter().copied()));
        ranks.extend(part.sends.iter().map(|sends| sends.to));
    }
    (slots, ranks)
}

/// A number that tells waves apart: ranks that agree on it name the same events and memory alike.
fn digest(wave: &Wave, transport: Transport) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&wave.slots, &wave.domains, transport).hash(&mut hasher);
    wave.ranks.iter().for_each(|rank| rank.arena_bytes.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Export, digest, exports, needs};
    use crate::run::options::Transport::{CopyEngines, Nccl};
    use crate::run::wave::tests::{domain, transfer};
    use crate::run::wave::{Slot, Wave};

    #[test]
    fn exports_are_read_as_they_were_written() {
        let export = Export { wave: 7, arena: [3; 64], events: vec![[1; 64], [2; 64]] };
        let bytes = export.write();
        assert_eq!(Export::read(&bytes), Some(export));
        assert_eq!(Export::read(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Export::read(&[]), None);
    }

    #[test]
    fn every_rank_exports_what_others_need() {
        let ring = |rank: u32| {
            let (next, before) = ((rank + 1) % 3, (rank + 2) % 3);
            vec![vec![transfer(0, &[(next, 0, 8)], &[(before, 8, 8)])]]
        };
        let wave = Wave::new(&[domain((0..3).map(ring).collect()), domain(vec![vec![vec![]]])]).expect("a wave");
        for transport in [CopyEngines, Nccl] {
            for rank in 0..4 {
                let others = (0..4).filter(|other| *other != rank);
                let offered: BTreeSet<u32> = others.flat_map(|other| exports(&wave, other, transport)).collect();
                let (slots, ranks) = needs(&wave, rank, transport);
                assert!(slots.is_subset(&offered));
                assert!(slots.iter().all(|slot| wave.slots[*slot as usize].owner() != rank));
                let sends = transport == CopyEngines && rank < 3;
                assert_eq!(ranks, if sends { BTreeSet::from([(rank + 1) % 3]) } else { BTreeSet::new() });
                assert_eq!(slots.len(), if sends { 5 } else { 3 });
            }
        }
        assert!(exports(&wave, 0, Nccl).iter().all(|slot| matches!(wave.slots[*slot as usize], Slot::Ready(0))));
        let other = Wave::new(&[domain((0..3).map(ring).collect())]).expect("a wave");
        assert_ne!(digest(&wave, Nccl), digest(&other, Nccl));
        assert_ne!(digest(&wave, Nccl), digest(&wave, CopyEngines));
    }
}
