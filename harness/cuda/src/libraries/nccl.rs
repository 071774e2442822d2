use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;
use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use super::open::{open, table};
use crate::CudaError;

const REMEDY: &str =
    "pip install nvidia-nccl-cu13 and put its lib folder on LD_LIBRARY_PATH, or use --backend replay or sim";

table! {
    /// What we call of NCCL. Every function returns a status: 0 is success, 7 that it goes on in the background (only with
    /// communicators that do not block).
    Nccl("libnccl.so.2", REMEDY) {
        /// Version, as 22809 for 2.28.9.
        get_version = "ncclGetVersion": (*mut c_int) -> c_int;
        /// Makes the name under which ranks meet.
        get_unique_id = "ncclGetUniqueId": (*mut ncclUniqueId) -> c_int;
        /// Joins: communicator, ranks, name, own rank.
        comm_init_rank = "ncclCommInitRank": (*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> c_int;
        /// Joins with a configuration.
        comm_init_rank_config = "ncclCommInitRankConfig":
            (*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> c_int;
        /// Stops what runs and frees the communicator.
        comm_abort = "ncclCommAbort": (ncclComm_t) -> c_int;
        /// Announces that no more calls follow.
        comm_finalize = "ncclCommFinalize": (ncclComm_t) -> c_int;
        /// Frees the communicator after its work.
        comm_destroy = "ncclCommDestroy": (ncclComm_t) -> c_int;
        /// Status of what goes on in the background.
        comm_get_async_error = "ncclCommGetAsyncError": (ncclComm_t, *mut c_int) -> c_int;
        /// Starts a group of calls.
        group_start = "ncclGroupStart": () -> c_int;
        /// Issues the group.
        group_end = "ncclGroupEnd": () -> c_int;
        /// Sends: from, elements, type, peer.
        send = "ncclSend": (*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> c_int;
        /// Receives: to, elements, type, peer.
        recv = "ncclRecv": (*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, CUstream) -> c_int;
        /// Gathers from all: from, to, elements of one rank, type.
        all_gather = "ncclAllGather":
            (*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, CUstream) -> c_int;
        /// Sums and scatters: from, to, elements of one rank, type, operation.
        reduce_scatter = "ncclReduceScatter":
            (*const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t, CUstream) -> c_int;
        /// Text of a status.
        get_error_string = "ncclGetErrorString": (c_int) -> *const c_char;
        /// Details of the last failure.
        get_last_error = "ncclGetLastError": (ncclComm_t) -> *const c_char;
    }
}

impl Nccl {
    /// Status of success.
    pub const SUCCESS: c_int = 0;
    /// Status of what goes on in the background.
    pub const IN_PROGRESS: c_int = 7;

    /// Version, as 22809 for 2.28.9; 0 where the library does not tell.
    pub fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: the pointer is that of a live integer.
        let status = unsafe { (self.get_version)(&mut version) };
        if status == Self::SUCCESS { version } else { 0 }
    }

    /// A configuration in which all is left to NCCL, except whether calls block and, if given, how many thread blocks a
    /// kernel has at most.
    pub fn config(&self, blocking: bool, max_ctas: Option<c_int>) -> ncclConfig_t {
        const UNDEFINED: c_int = c_int::MIN;
        ncclConfig_t {
            size: size_of::<ncclConfig_t>(),
            magic: 0xcafe_beef,
            version: self.version().clamp(0, 22800) as u32,
            blocking: c_int::from(blocking),
            cgaClusterSize: UNDEFINED,
            minCTAs: UNDEFINED,
            maxCTAs: max_ctas.unwrap_or(UNDEFINED),
            netName: std::ptr::null(),
            splitShare: UNDEFINED,
            trafficClass: UNDEFINED,
            commName: std::ptr::null(),
            collnetEnable: UNDEFINED,
            CTAPolicy: UNDEFINED,
            shrinkShare: UNDEFINED,
            nvlsCTAs: UNDEFINED,
            nChannelsPerNetPeer: UNDEFINED,
            nvlinkCentricSched: UNDEFINED,
        }
    }

    /// An error unless the status of `call` is success, or goes on in the background.
    ///
    /// # Errors
    /// The status is a failure.
    pub fn check(&self, status: c_int, card: usize, call: &str) -> Result<(), CudaError> {
        if status == Self::SUCCESS || status == Self::IN_PROGRESS {
            return Ok(());
        }
        let text = |pointer: *const c_char| {
            if pointer.is_null() {
                return String::new();
            }
            // SAFETY: NCCL returns null or a string that ends with a zero and lives until the next call of this thread.
            unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned()
        };
        // SAFETY: any status may be asked for; the last error needs no communicator.
        let (name, detail) =
            unsafe { (text((self.get_error_string)(status)), text((self.get_last_error)(std::ptr::null_mut()))) };
        let why = if detail.is_empty() { format!("{status} {name}") } else { format!("{status} {name}: {detail}") };
        Err(CudaError::Call { card, call: call.to_owned(), why })
    }
}

/// NCCL, opened at the first call.
///
/// # Errors
/// `libnccl.so.2` is absent or lacks a function.
pub fn nccl() -> Result<&'static Nccl, CudaError> {
    static OPENED: OnceLock<Result<Nccl, CudaError>> = OnceLock::new();
    OPENED
        .get_or_init(|| {
            let (library, file) = open(&["libnccl.so.2"], REMEDY)?;
            Nccl::bind(library, file)
        })
        .as_ref()
        .map_err(Clone::clone)
}
