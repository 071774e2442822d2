use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError};

use crate::CudaError;
use crate::libraries::fail;

/// Memory of the card, freed in the order of the stream that it was made on, and only to be used there.
pub(super) struct Buffer<T> {
    slice: CudaSlice<T>,
    /// Where it starts. Kept, since asking the slice issues an event.
    pub address: CUdeviceptr,
}

impl<T> Buffer<T> {
    fn new(slice: CudaSlice<T>) -> Self {
        let stream = slice.stream().clone();
        let address = slice.device_ptr(&stream).0;
        Self { slice, address }
    }
}

/// Scratch of every stream: calls of one stream follow each other and share it.
#[derive(Default)]
pub(super) struct Scratch {
    streams: HashMap<usize, Buffer<u8>>,
}

/// Scratch grows by multiples of this many bytes, so that it rarely does.
const GROWTH: u64 = 64 << 20;

impl Scratch {
    /// Makes sure that calls on a stream find so many bytes. What was enqueued there before keeps its memory until it ends.
    pub fn reserve(&mut self, stream: &Arc<CudaStream>, bytes: u64) -> Result<(), CudaError> {
        let number = stream.cu_stream() as usize;
        if self.streams.get(&number).is_some_and(|s| s.slice.len() as u64 >= bytes) {
            return Ok(());
        }
        // Freed first: both may not fit, and the free is ordered behind what runs on the stream.
        self.streams.remove(&number);
        let buffer = allocate(stream, bytes.max(1).next_multiple_of(GROWTH))?;
        self.streams.insert(number, buffer);
        Ok(())
    }

    /// Address of the scratch of a stream.
    pub fn address(&self, stream: &Arc<CudaStream>, bytes: u64) -> Result<CUdeviceptr, CudaError> {
        match self.streams.get(&(stream.cu_stream() as usize)) {
            Some(buffer) if buffer.slice.len() as u64 >= bytes => Ok(buffer.address),
            _ => Err(CudaError::Program(
                "an attention call was enqueued on a stream that it was not prepared for".to_owned(),
            )),
        }
    }

    /// Frees all, each on its stream.
    pub fn clear(&mut self) {
        self.streams.clear();
    }
}

/// Memory of the card, not initialised, freed on the stream.
///
/// # Errors
/// There is too little.
pub(super) fn allocate(stream: &Arc<CudaStream>, bytes: u64) -> Result<Buffer<u8>, CudaError> {
    // SAFETY: bytes of any value are valid; all kernels write before they read.
    unsafe { stream.alloc::<u8>(bytes as usize) }
        .map(Buffer::new)
        .map_err(|e| out_of_memory(stream.context(), bytes, e))
}

/// Copies words to the card.
///
/// # Errors
/// There is too little memory; the copy fails.
pub(super) fn upload<T: DeviceRepr>(stream: &Arc<CudaStream>, words: &[T]) -> Result<Buffer<T>, CudaError> {
    let copied = if words.is_empty() {
        // SAFETY: nothing reads an element of an empty table; the driver refuses to allocate nothing.
        unsafe { stream.alloc::<T>(1) }
    } else {
        stream.clone_htod(words)
    };
    copied.map(Buffer::new).map_err(|e| out_of_memory(stream.context(), size_of_val(words) as u64, e))
}

fn out_of_memory(context: &Arc<CudaContext>, needed: u64, error: DriverError) -> CudaError {
    let card = context.ordinal();
    if error.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return fail(card, "cuMemAllocAsync", error);
    }
    let free = context.mem_get_info().map_or(0, |(free, _)| free as u64);
    CudaError::Memory { card, needed, free }
}
