use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::nccl::sys::{ncclComm, ncclDataType_t, ncclUniqueId};

use super::owned::{Handle, Owned, Wait};
use crate::CudaError;
use crate::libraries::{Nccl, nccl};
use crate::steps::Exchange;

/// A rank's end of a communicator. There is one for every stream of a domain that exchanges, so that calls of different
/// streams need no common order. No call of it blocks: what goes on in the background is asked for, so that it can be
/// aborted at any time.
#[derive(Debug)]
pub(super) struct Communicator {
    owned: Owned<Raw>,
    card: usize,
}

struct Raw {
    comm: *mut ncclComm,
    table: &'static Nccl,
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.comm.fmt(f)
    }
}

// SAFETY: NCCL lets any thread use a communicator, one at a time, which `Owned` sees to.
unsafe impl Send for Raw {}

impl Handle for Raw {
    fn status(&self) -> c_int {
        let mut status = 0;
        // SAFETY: the communicator has not been freed, as `Owned` has it; the pointer is that of a live integer.
        let asked = unsafe { (self.table.comm_get_async_error)(self.comm, &mut status) };
        if asked == Nccl::SUCCESS { status } else { asked }
    }

    fn abort(self) {
        // SAFETY: the caller has given the communicator up, and nobody else has it.
        unsafe { (self.table.comm_abort)(self.comm) };
    }

    fn destroy(self) {
        // SAFETY: as above; its work has ended.
        unsafe { (self.table.comm_destroy)(self.comm) };
    }
}

/// A new name under which the ranks of a communicator meet.
///
/// # Errors
/// NCCL is absent or fails.
pub(super) fn name() -> Result<ncclUniqueId, CudaError> {
    let table = nccl()?;
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the pointer is that of a live name.
    let status = unsafe { (table.get_unique_id)(&mut id) };
    table.check(status, 0, "ncclGetUniqueId")?;
    Ok(id)
}

impl Communicator {
    /// Begins to join the others; [`Self::settle`] waits until all have. The card's context is current.
    ///
    /// # Errors
    /// NCCL fails.
    pub fn join(
        id: ncclUniqueId,
        ranks: usize,
        rank: usize,
        card: usize,
        max_ctas: Option<i32>,
    ) -> Result<Arc<Self>, CudaError> {
        let table = nccl()?;
        let mut config = table.config(false, max_ctas);
        let mut comm = std::ptr::null_mut();
        // SAFETY: the pointers are those of live values; the current context is that of the rank's card.
        let status =
            unsafe { (table.comm_init_rank_config)(&mut comm, ranks as c_int, id, rank as c_int, &mut config) };
        table.check(status, card, "ncclCommInitRankConfig")?;
        if comm.is_null() {
            return Err(CudaError::Program("ncclCommInitRankConfig gave no communicator".to_owned()));
        }
        Ok(Arc::new(Self { owned: Owned::new(Raw { comm, table }), card }))
    }

    /// Waits until nothing of this rank's calls goes on in the background: all have joined, or what was enqueued is on its
    /// stream. Aborts what has not ended in time.
    ///
    /// # Errors
    /// NCCL fails; it has not ended before the deadline; `stopped` says that another rank has failed.
    pub fn settle(&self, deadline: Instant, stopped: impl Fn() -> bool) -> Result<(), Wait> {
        self.owned.settle(deadline, stopped)
    }

    /// Enqueues a rank's part in a call; [`Self::settle`] waits until it is on the stream.
    ///
    /// # Errors
    /// NCCL fails; the communicator has been aborted.
    pub fn exchange(&self, part: &Exchange, arena: CUdeviceptr, stream: &CudaStream) -> Result<(), CudaError> {
        let enqueued = self.owned.with(|raw| {
            let table = raw.table;
            // SAFETY: groups are of this thread alone.
            table.check(unsafe { (table.group_start)() }, self.card, "ncclGroupStart")?;
            let enqueued = self.messages(raw, part, arena, stream);
            // SAFETY: ends the group that was started above, whether or not all of it was accepted.
            let ended = table.check(unsafe { (table.group_end)() }, self.card, "ncclGroupEnd");
            enqueued.and(ended)
        });
        enqueued.unwrap_or_else(|| Err(CudaError::Program("the communicator has been aborted".to_owned())))
    }

    fn messages(&self, raw: &Raw, part: &Exchange, arena: CUdeviceptr, stream: &CudaStream) -> Result<(), CudaError> {
        let (table, comm) = (raw.table, raw.comm);
        let bytes = ncclDataType_t::ncclUint8;
        for message in part.sends.iter().filter(|message| message.bytes > 0) {
            let (from, count) = ((arena + message.offset) as *const c_void, message.bytes as usize);
            // SAFETY: the bytes lie in the arena, which lives as long as the streams; the communicator is lent to us.
            let status = unsafe { (table.send)(from, count, bytes, message.peer as c_int, comm, stream.cu_stream()) };
            table.check(status, self.card, "ncclSend")?;
        }
        for message in part.receives.iter().filter(|message| message.bytes > 0) {
            let (to, count) = ((arena + message.offset) as *mut c_void, message.bytes as usize);
            // SAFETY: as above.
            let status = unsafe { (table.recv)(to, count, bytes, message.peer as c_int, comm, stream.cu_stream()) };
            table.check(status, self.card, "ncclRecv")?;
        }
        Ok(())
    }

    /// Whether what goes on in the background has failed.
    ///
    /// # Errors
    /// It has.
    pub fn health(&self) -> Result<(), CudaError> {
        let status = self.owned.with(Handle::status);
        status.map_or(Ok(()), |status| nccl()?.check(status, self.card, "what NCCL does in the background"))
    }

    /// The error for a wait that did not end well.
    pub fn failed(&self, why: Wait, rank: usize, what: &str, patience: Duration) -> CudaError {
        match why {
            Wait::Stopped => CudaError::Elsewhere(rank as u32),
            Wait::Late => CudaError::Hung { rank: rank as u32, what: what.to_owned(), seconds: patience.as_secs_f64() },
            Wait::Gone => CudaError::Program(format!("{what}: the communicator has been aborted")),
            Wait::Failed(status) => {
                let why = nccl().and_then(|table| table.check(status, self.card, what)).err();
                why.unwrap_or_else(|| CudaError::Program(format!("{what} failed")))
            }
        }
    }

    /// Stops what runs and frees the communicator, unless a thread does not give it back within `wait`. Any thread may call
    /// it, once or more.
    pub fn abort(&self, wait: Duration) {
        self.owned.abort(wait);
    }
}
