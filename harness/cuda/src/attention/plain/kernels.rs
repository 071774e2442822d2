use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use skewbench_plan::Pass;

use super::tiles::{shared_bytes, slot_table, tile, tile_table};
use crate::CudaError;
use crate::attention::memory::{Buffer, Scratch, upload};
use crate::attention::valid::valid;
use crate::attention::{Attention, CallId};
use crate::libraries::{compile, driver, fail};
use crate::steps::{AttendCall, AttendMask};

const SOURCE: &str = include_str!("plain.cu");

/// Attention in plain CUDA C.
pub struct Plain {
    calls: Vec<Prepared>,
    scratch: Scratch,
    kernels: HashMap<u32, Kernels>,
    context: Arc<CudaContext>,
}

/// The kernels for one head_dim.
#[derive(Clone)]
struct Kernels {
    forward: CudaFunction,
    row_sums: CudaFunction,
    backward_q: CudaFunction,
    backward_kv: CudaFunction,
}

struct Prepared {
    pass: Pass,
    arguments: Arguments,
    kernels: Kernels,
    head_dim: u32,
    sums_bytes: u64,
    _slots: Buffer<i64>,
    row_tiles: (u32, Buffer<i32>),
    key_tiles: (u32, Buffer<i32>),
}

/// `Call` of the source.
#[derive(Clone, Copy)]
#[repr(C)]
struct Arguments {
    arena: u64,
    slots: u64,
    tiles: u64,
    delta: u64,
    q_heads: i32,
    kv_heads: i32,
    strides: [i32; 7],
    mask: i32,
    scale: f32,
}

// SAFETY: plain numbers in the layout of the source's structure.
unsafe impl DeviceRepr for Arguments {}

/// The widest head that the kernels hold.
const WIDEST: u32 = 256;
/// Most heads: blocks along the second dimension of a grid.
const MOST_HEADS: u32 = 65_535;

impl Plain {
    /// Opens the card of a context.
    ///
    /// # Errors
    /// There is no driver or no NVRTC.
    pub fn open(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        driver()?;
        crate::libraries::nvrtc()?;
        Ok(Self { calls: Vec::new(), scratch: Scratch::default(), kernels: HashMap::new(), context: context.clone() })
    }

    fn kernels(&mut self, head_dim: u32) -> Result<Kernels, CudaError> {
        if let Some(kernels) = self.kernels.get(&head_dim) {
            return Ok(kernels.clone());
        }
        let card = self.context.ordinal();
        let capability = self.context.compute_capability().map_err(|e| fail(card, "cuDeviceGetAttribute", e))?;
        let options = [format!("-DD={head_dim}"), format!("-DTILE={}", tile(head_dim))];
        let binary = compile(card, "plain.cu", SOURCE, capability, &options)?;
        let module =
            self.context.load_module(Ptx::from_binary(binary)).map_err(|e| fail(card, "cuModuleLoadData", e))?;
        let function = |name: &str, operands, scores| {
            let function = module.load_function(name).map_err(|e| fail(card, "cuModuleGetFunction", e))?;
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function
                .set_attribute(attribute, shared_bytes(head_dim, operands, scores) as i32)
                .map_err(|e| fail(card, "cuFuncSetAttribute", e))?;
            Ok(function)
        };
        let kernels = Kernels {
            forward: function("forward", 3, 1)?,
            row_sums: function("row_sums", 0, 0)?,
            backward_q: function("backward_q", 4, 1)?,
            backward_kv: function("backward_kv", 4, 2)?,
        };
        self.kernels.insert(head_dim, kernels.clone());
        Ok(kernels)
    }
}

impl Attention for Plain {
    fn name(&self) -> &'static str {
        "plain CUDA C"
    }

    fn prepare(&mut self, call: &AttendCall, stream: &Arc<CudaStream>) -> Result<CallId, CudaError> {
        valid(self.name(), call)?;
        if call.head_dim > WIDEST || call.q_heads > MOST_HEADS {
            return Err(CudaError::Unsupported {
                kernel: "plain CUDA C",
                what: format!("{}:{} heads of {}", call.q_heads, call.kv_heads, call.head_dim),
                why: format!("it takes a head_dim up to {WIDEST} and up to {MOST_HEADS} heads"),
            });
        }
        let card = self.context.ordinal();
        self.context.bind_to_thread().map_err(|e| fail(card, "cuCtxSetCurrent", e))?;
        let kernels = self.kernels(call.head_dim)?;
        let rows: u64 = call.slots.iter().map(|s| u64::from(s.q_rows)).sum();
        let sums_bytes = if call.pass == Pass::Backward { rows * u64::from(call.q_heads) * 4 } else { 0 };
        self.scratch.reserve(stream, sums_bytes)?;
        let slots = upload(stream, &slot_table(call))?;
        let tiles = |table: Vec<i32>| Ok((table.len() as u32 / 2, upload(stream, &table)?));
        let s = call.strides;
        let arguments = Arguments {
            arena: 0,
            slots: slots.address,
            tiles: 0,
            delta: 0,
            q_heads: call.q_heads as i32,
            kv_heads: call.kv_heads as i32,
            strides: [s.q, s.kv, s.o, s.lse, s.d_o, s.dq, s.dkv].map(|s| s as i32),
            mask: match call.mask {
                AttendMask::Full => 0,
                AttendMask::TopLeft => 1,
                AttendMask::BottomRight => 2,
            },
            scale: (call.head_dim as f32).sqrt().recip(),
        };
        self.calls.push(Prepared {
            pass: call.pass,
            arguments,
            kernels,
            head_dim: call.head_dim,
            sums_bytes,
            _slots: slots,
            row_tiles: tiles(tile_table(call, |s| s.q_rows))?,
            key_tiles: tiles(tile_table(call, |s| s.k_rows))?,
        });
        Ok(CallId(self.calls.len() - 1))
    }

    fn enqueue(&mut self, call: CallId, arena: CUdeviceptr, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let call = self
            .calls
            .get(call.0)
            .ok_or_else(|| CudaError::Program(format!("attention call {} was not prepared", call.0)))?;
        let delta = self.scratch.address(stream, call.sums_bytes)?;
        let card = self.context.ordinal();
        let launch = |function: &CudaFunction, (count, tiles): &(u32, Buffer<i32>), heads: i32, operands, scores| {
            if *count == 0 {
                return Ok(());
            }
            let arguments = Arguments { arena, delta, tiles: tiles.address, ..call.arguments };
            let configuration = LaunchConfig {
                grid_dim: (*count, heads as u32, 1),
                block_dim: (256, 1, 1),
                shared_mem_bytes: shared_bytes(call.head_dim, operands, scores),
            };
            // SAFETY: the kernel takes this one structure; its tables were uploaded on this stream and name operands that
            // the caller vouches for.
            unsafe { stream.launch_builder(function).arg(&arguments).launch(configuration) }
                .map(drop)
                .map_err(|e| fail(card, "cuLaunchKernel(plain.cu)", e))
        };
        let (kernels, heads, kv_heads) = (&call.kernels, call.arguments.q_heads, call.arguments.kv_heads);
        match call.pass {
            Pass::Forward => launch(&kernels.forward, &call.row_tiles, heads, 3, 1),
            Pass::Backward => {
                launch(&kernels.row_sums, &call.row_tiles, heads, 0, 0)?;
                launch(&kernels.backward_q, &call.row_tiles, heads, 4, 1)?;
                launch(&kernels.backward_kv, &call.key_tiles, kv_heads, 4, 2)
            }
        }
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.scratch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_has_all_kernels() {
        for name in ["forward", "row_sums", "backward_q", "backward_kv"] {
            assert!(
                SOURCE.contains(&format!("extern \"C\" __global__ void __launch_bounds__(256) {name}(const Call")),
                "{name}"
            );
        }
    }

    #[test]
    fn the_source_compiles() {
        if let Err(error) = crate::libraries::nvrtc() {
            println!("skipped: {error}");
            return;
        }
        for (head_dim, capability) in [(33, (9, 0)), (128, (8, 0)), (256, (9, 0))] {
            let options = [format!("-DD={head_dim}"), format!("-DTILE={}", tile(head_dim))];
            let binary = compile(0, "plain.cu", SOURCE, capability, &options).expect("it compiles");
            assert!(binary.starts_with(b"\x7fELF"), "{head_dim}");
        }
    }
}
