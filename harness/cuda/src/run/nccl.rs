use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::nccl::sys::{ncclComm, ncclDataType_t, ncclUniqueId};

use crate::CudaError;
use crate::libraries::{Nccl, nccl};
use crate::steps::Exchange;

/// A rank's end of a communicator. There is one for every stream of a domain that exchanges, so that calls of different
/// streams need no common order.
#[derive(Debug)]
pub(super) struct Communicator {
    raw: AtomicPtr<ncclComm>,
    card: usize,
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
    /// Joins the others; returns when all have joined. The card's context is current.
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
        let mut config = table.config(true, max_ctas);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointers are those of live values; the current context is that of the rank's card.
        let status = unsafe { (table.comm_init_rank_config)(&mut raw, ranks as c_int, id, rank as c_int, &mut config) };
        table.check(status, card, "ncclCommInitRankConfig")?;
        Ok(Arc::new(Self { raw: AtomicPtr::new(raw), card }))
    }

    /// Enqueues a rank's part in a call.
    ///
    /// # Errors
    /// NCCL fails.
    pub fn exchange(&self, part: &Exchange, arena: CUdeviceptr, stream: &CudaStream) -> Result<(), CudaError> {
        let table = nccl()?;
        // SAFETY: groups are of this thread alone.
        table.check(unsafe { (table.group_start)() }, self.card, "ncclGroupStart")?;
        let enqueued = self.messages(table, part, arena, stream);
        // SAFETY: ends the group that was started above, whether or not all of it was accepted.
        let ended = table.check(unsafe { (table.group_end)() }, self.card, "ncclGroupEnd");
        enqueued.and(ended)
    }

    fn messages(
        &self,
        table: &Nccl,
        part: &Exchange,
        arena: CUdeviceptr,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let raw = self.raw.load(Ordering::Acquire);
        if raw.is_null() {
            return Err(CudaError::Program("the communicator has been aborted".to_owned()));
        }
        let bytes = ncclDataType_t::ncclUint8;
        for message in part.sends.iter().filter(|message| message.bytes > 0) {
            let (from, count) = ((arena + message.offset) as *const c_void, message.bytes as usize);
            // SAFETY: the bytes lie in the arena, which lives as long as the streams; the communicator is not freed.
            let status = unsafe { (table.send)(from, count, bytes, message.peer as c_int, raw, stream.cu_stream()) };
            table.check(status, self.card, "ncclSend")?;
        }
        for message in part.receives.iter().filter(|message| message.bytes > 0) {
            let (to, count) = ((arena + message.offset) as *mut c_void, message.bytes as usize);
            // SAFETY: as above.
            let status = unsafe { (table.recv)(to, count, bytes, message.peer as c_int, raw, stream.cu_stream()) };
            table.check(status, self.card, "ncclRecv")?;
        }
        Ok(())
    }

    /// Whether what goes on in the background has failed.
    ///
    /// # Errors
    /// It has.
    pub fn health(&self) -> Result<(), CudaError> {
        let (table, raw) = (nccl()?, self.raw.load(Ordering::Acquire));
        if raw.is_null() {
            return Ok(());
        }
        let mut status = 0;
        // SAFETY: the communicator is not freed; the pointer is that of a live integer.
        let asked = unsafe { (table.comm_get_async_error)(raw, &mut status) };
        table.check(asked, self.card, "ncclCommGetAsyncError")?;
        table.check(status, self.card, "what NCCL does in the background")
    }

    /// Stops what runs and frees the communicator. Any thread may call it, once or more.
    pub fn abort(&self) {
        let raw = self.raw.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if let (false, Ok(table)) = (raw.is_null(), nccl()) {
            // SAFETY: the swap gives the communicator to one caller alone.
            unsafe { (table.comm_abort)(raw) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let raw = *self.raw.get_mut();
        if let (false, Ok(table)) = (raw.is_null(), nccl()) {
            // SAFETY: nobody else holds it, and its work has ended.
            unsafe { (table.comm_destroy)(raw) };
        }
    }
}
