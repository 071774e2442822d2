use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, result};
use cudarc::nvrtc::Ptx;

use crate::CudaError;
use crate::libraries::{compile, driver, fail};

/// Kernels that move, merge and make rows.
const SOURCE: &str = include_str!("rows.cu");

/// An open card with our kernels.
#[derive(Debug)]
pub(super) struct Card {
    pub ordinal: usize,
    pub context: Arc<CudaContext>,
    pub move_rows: CudaFunction,
    pub merge_rows: CudaFunction,
    pub make_inputs: CudaFunction,
    pub hold: CudaFunction,
    /// Lowest and highest priority of streams.
    pub priorities: (i32, i32),
}

/// How many cards this process sees.
///
/// # Errors
/// There is no driver.
pub fn cards() -> Result<usize, CudaError> {
    driver()?;
    let count = CudaContext::device_count().map_err(|error| fail(0, "cuDeviceGetCount", error))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

impl Card {
    /// Opens a card and compiles our kernels for it.
    ///
    /// # Errors
    /// There is no such card; NVRTC is absent.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        driver()?;
        let failed = |call: &'static str| move |error| fail(ordinal, call, error);
        let context = CudaContext::new(ordinal).map_err(failed("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: all work of several streams is ordered by events of ours; nothing relies on cudarc's own tracking.
        unsafe { context.disable_event_tracking() };
        let capability = context.compute_capability().map_err(failed("cuDeviceGetAttribute"))?;
        let binary = compile(ordinal, "rows.cu", SOURCE, capability, &[])?;
        let module = context.load_module(Ptx::from_binary(binary)).map_err(failed("cuModuleLoadData"))?;
        let function = |name: &'static str| {
            module.load_function(name).map_err(|error| fail(ordinal, &format!("cuModuleGetFunction({name})"), error))
        };
        let priorities = result::stream::get_priority_range().map_err(failed("cuCtxGetStreamPriorityRange"))?;
        Ok(Self {
            ordinal,
            move_rows: function("move_rows")?,
            merge_rows: function("merge_rows")?,
            make_inputs: function("make_inputs")?,
            hold: function("hold")?,
            context,
            priorities,
        })
    }

    /// Lets this card write into the memory of another, where the two can. Where they cannot, the driver copies through
    /// the host.
    ///
    /// # Errors
    /// The driver fails.
    pub fn reach(&self, other: &Self) -> Result<(), CudaError> {
        let failed = |call: &str, error| fail(self.ordinal, &format!("{call} of card {}", other.ordinal), error);
        let mut can = 0;
        // SAFETY: both devices exist; the pointer is that of a live integer.
        unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.context.cu_device(), other.context.cu_device()) }
            .result()
            .map_err(|error| failed("cuDeviceCanAccessPeer", error))?;
        if can == 0 {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(|error| failed("cuCtxSetCurrent", error))?;
        // SAFETY: both contexts live as long as the cards.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) } {
            sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            status => Err(failed("cuCtxEnablePeerAccess", DriverError(status))),
        }
    }

    /// An error of a call of the driver.
    pub fn failed(&self, call: &str) -> impl FnOnce(DriverError) -> CudaError {
        let (card, call) = (self.ordinal, call.to_owned());
        move |error| fail(card, &call, error)
    }
}

/// Memory of a card, freed with its owner.
#[derive(Debug)]
pub(super) struct Memory {
    context: Arc<CudaContext>,
    pub at: CUdeviceptr,
}

impl Memory {
    /// Allocates so many bytes.
    ///
    /// # Errors
    /// [`CudaError::Memory`] when so much is not free.
    pub fn new(card: &Card, bytes: u64) -> Result<Self, CudaError> {
        let context = Arc::clone(&card.context);
        context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
        // SAFETY: the context is current; the memory is freed by `drop` alone.
        match unsafe { result::malloc_sync(usize::try_from(bytes.max(16)).unwrap_or(usize::MAX)) } {
            Ok(at) => Ok(Self { context, at }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let free = result::mem_get_info().map_or(0, |(free, _)| free as u64);
                Err(CudaError::Memory { card: card.ordinal, needed: bytes, free })
            }
            Err(error) => Err(fail(card.ordinal, &format!("cuMemAlloc of {bytes} bytes"), error)),
        }
    }

    /// Memory that holds these values.
    ///
    /// # Errors
    /// No memory is left; the copy fails.
    pub fn of<T: Copy>(card: &Card, values: &[T]) -> Result<Self, CudaError> {
        let memory = Self::new(card, size_of_val(values) as u64)?;
        if !values.is_empty() {
            // SAFETY: the allocation is as large as the values, which are plain data.
            unsafe { result::memcpy_htod_sync(memory.at, values) }.map_err(card.failed("cuMemcpyHtoD"))?;
        }
        Ok(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the address came from cuMemAlloc and is freed once. A failure leaves the memory to the context.
            let _ = unsafe { result::free_sync(self.at) };
        }
    }
}

/// Launches a kernel of one-dimensional blocks.
///
/// # Safety
/// The arguments are those of the kernel, and what they point to lives until the kernel has ended.
///
/// # Errors
/// The driver refuses the launch.
pub(super) unsafe fn launch(
    card: &Card,
    kernel: &CudaFunction,
    blocks: u32,
    threads: u32,
    stream: &CudaStream,
    arguments: &mut [*mut std::ffi::c_void],
) -> Result<(), CudaError> {
    let (grid, block) = ((blocks, 1, 1), (threads, 1, 1));
    // SAFETY: by this function's contract.
    unsafe { result::launch_kernel(kernel.cu_function(), grid, block, 0, stream.cu_stream(), arguments) }
        .map_err(card.failed("cuLaunchKernel"))
}
