use std::sync::Arc;

use cudarc::driver::sys::{CUevent_flags, CUstream};
use cudarc::driver::{CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;
use skewbench_plan::{LaunchShape, Pass};

use super::packed::{PackedCall, packed};
use crate::CudaError;
use crate::attention::memory::{Buffer, allocate};
use crate::attention::{Attention, CallId, LaunchTimer};
use crate::libraries::{compile, driver, fail};

const SOURCE: &str = include_str!("timer.cu");

/// Times launches on one card, with the kernels that it is given.
pub struct CardTimer {
    kernels: Box<dyn Attention>,
    stream: Arc<CudaStream>,
    arena: Option<(u64, Buffer<u8>)>,
    fill_random: CudaFunction,
    count_nan: CudaFunction,
    seed: u64,
}

impl CardTimer {
    /// A timer on a stream of the card that `kernels` were opened for. `seed` starts the random operands.
    ///
    /// # Errors
    /// There is no NVRTC; the card refuses the helper kernels.
    pub fn new(stream: Arc<CudaStream>, kernels: Box<dyn Attention>, seed: u64) -> Result<Self, CudaError> {
        driver()?;
        let context = stream.context().clone();
        let card = context.ordinal();
        let capability = context.compute_capability().map_err(|e| fail(card, "cuDeviceGetAttribute", e))?;
        let binary = compile(card, "timer.cu", SOURCE, capability, &[])?;
        let module = context.load_module(Ptx::from_binary(binary)).map_err(|e| fail(card, "cuModuleLoadData", e))?;
        let function = |name| module.load_function(name).map_err(|e| fail(card, "cuModuleGetFunction", e));
        let (fill_random, count_nan) = (function("fill_random")?, function("count_nan")?);
        Ok(Self { kernels, stream, arena: None, fill_random, count_nan, seed })
    }

    /// The kernels.
    pub fn kernels(&self) -> &dyn Attention {
        &*self.kernels
    }

    /// Memory for a call, what the last call had where it is enough.
    fn arena(&mut self, bytes: u64) -> Result<u64, CudaError> {
        match &self.arena {
            Some((size, buffer)) if *size >= bytes => Ok(buffer.address),
            _ => {
                self.arena = None;
                let buffer = allocate(&self.stream, bytes.max(1))?;
                let address = buffer.address;
                self.arena = Some((bytes, buffer));
                Ok(address)
            }
        }
    }

    fn fill(&mut self, arena: u64, packed: &PackedCall) -> Result<(), CudaError> {
        for &(start, elements) in &packed.inputs {
            self.seed = self.seed.wrapping_add(1);
            let (address, seed) = (arena + start, self.seed);
            // SAFETY: the region lies in the arena.
            unsafe {
                self.stream
                    .launch_builder(&self.fill_random)
                    .arg(&address)
                    .arg(&elements)
                    .arg(&seed)
                    .launch(grid(elements))
            }
            .map_err(failed(&self.stream, "cuLaunchKernel(fill_random)"))?;
        }
        Ok(())
    }

    /// Makes every result of a call a number that is none.
    fn poison(&self, arena: u64, packed: &PackedCall) -> Result<(), CudaError> {
        let raw: CUstream = self.stream.cu_stream();
        for &(start, elements, bytes) in &packed.results {
            // SAFETY: the region lies in the arena.
            unsafe { result::memset_d8_async(arena + start, 0xff, (elements * bytes) as usize, raw) }
                .map_err(failed(&self.stream, "cuMemsetD8Async"))?;
        }
        Ok(())
    }

    /// An error where a result of a call is not a number.
    fn check(&self, arena: u64, packed: &PackedCall) -> Result<(), CudaError> {
        let count = self.stream.alloc_zeros::<u64>(1).map_err(failed(&self.stream, "cuMemAllocAsync"))?;
        for &(start, elements, bytes) in &packed.results {
            let (address, bytes) = (arena + start, bytes as u32);
            // SAFETY: the region lies in the arena; `count` is one word.
            unsafe {
                self.stream
                    .launch_builder(&self.count_nan)
                    .arg(&address)
                    .arg(&elements)
                    .arg(&bytes)
                    .arg(&count)
                    .launch(grid(elements))
            }
            .map_err(failed(&self.stream, "cuLaunchKernel(count_nan)"))?;
        }
        let found = self.stream.clone_dtoh(&count).map_err(failed(&self.stream, "cuMemcpyDtoHAsync"))?;
        self.stream.synchronize().map_err(failed(&self.stream, "cuStreamSynchronize"))?;
        match found[..] {
            [0] => Ok(()),
            _ => Err(CudaError::Program(format!(
                "{} of the results of a timed launch of {} are not numbers or were not written",
                found.first().copied().unwrap_or_default(),
                self.kernels.name()
            ))),
        }
    }

    fn run(&mut self, packed: &PackedCall, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let arena = self.arena(packed.arena_bytes)?;
        self.fill(arena, packed)?;
        let stream = self.stream.clone();
        if packed.call.pass == Pass::Backward {
            let forward = self.kernels.prepare(&packed.forward(), &stream)?;
            self.kernels.enqueue(forward, arena, &stream)?;
        }
        let call = self.kernels.prepare(&packed.call, &stream)?;
        self.poison(arena, packed)?;
        self.kernels.enqueue(call, arena, &stream)?;
        self.check(arena, packed)?;
        for _ in 0..warm_up {
            self.kernels.enqueue(call, arena, &stream)?;
        }
        self.samples(call, arena, repeats)
    }

    /// Device times of calls, each between two events.
    fn samples(&mut self, call: CallId, arena: u64, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let stream = self.stream.clone();
        let record =
            || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(failed(&stream, "cuEventRecord"));
        let mut events = Vec::with_capacity(repeats as usize);
        for _ in 0..repeats {
            let start = record()?;
            self.kernels.enqueue(call, arena, &stream)?;
            events.push((start, record()?));
        }
        stream.synchronize().map_err(failed(&self.stream, "cuStreamSynchronize"))?;
        events
            .iter()
            .map(|(start, end)| {
                let ms = start.elapsed_ms(end).map_err(failed(&self.stream, "cuEventElapsedTime"))?;
                Ok(f64::from(ms) * 1e6)
            })
            .collect()
    }
}

impl LaunchTimer for CardTimer {
    fn time(&mut self, launch: &LaunchShape<'_>, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let packed = packed(launch);
        if packed.call.slots.is_empty() {
            return Ok(vec![0.0; repeats as usize]);
        }
        let samples = self.run(&packed, warm_up, repeats);
        // Graphs stay; lengths, offsets and scratch of this launch go, so that the next one finds the memory.
        self.kernels.clear();
        samples
    }
}

/// Makes an error of the driver one of ours.
fn failed(stream: &CudaStream, call: &'static str) -> impl Fn(DriverError) -> CudaError {
    let card = stream.context().ordinal();
    move |e| fail(card, call, e)
}

fn grid(elements: u64) -> LaunchConfig {
    let blocks = elements.div_ceil(256).clamp(1, 4096) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_compiles() {
        for name in ["fill_random(", "count_nan("] {
            assert!(SOURCE.contains(&format!("extern \"C\" __global__ void {name}")), "{name}");
        }
        if let Err(error) = crate::libraries::nvrtc() {
            println!("skipped: {error}");
            return;
        }
        let binary = compile(0, "timer.cu", SOURCE, (9, 0), &[]).expect("it compiles");
        assert!(binary.starts_with(b"\x7fELF"));
    }

    #[test]
    fn a_compiler_error_is_shown() {
        match compile(0, "broken.cu", "extern \"C\" __global__ void broken( {", (9, 0), &[]) {
            Err(CudaError::Call { call, why, .. }) => {
                assert_eq!(call, "nvrtcCompileProgram(broken.cu)");
                assert!(why.contains("error"), "{why}");
            }
            Err(CudaError::Library { library, .. }) => println!("skipped: {library} is not here"),
            other => panic!("{other:?}"),
        }
    }
}
