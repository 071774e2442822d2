//! Attention kernel calls on a card.

mod cudnn;
mod memory;
mod plain;
mod timer;
mod valid;

pub use cudnn::{BuiltGraph, CuDnn, CuDnnOptions};
pub use plain::Plain;
pub use timer::{CardTimer, PackedCall, packed};

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;

use crate::CudaError;
use crate::steps::AttendCall;

/// A call that has been prepared, by the kernels that prepared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub usize);

/// Kernels of one card, used by one thread.
pub trait Attention {
    /// Which implementation this is.
    fn name(&self) -> &'static str;

    /// All graphs that were built, in order, with the time that each took; none where kernels do without.
    fn built(&self) -> &[BuiltGraph] {
        &[]
    }

    /// Builds all that a call needs: its graph, where no call of the same shape bucket has built it, its lengths and offsets
    /// on the card, and scratch. Never timed.
    ///
    /// # Errors
    /// The call breaks what [`AttendCall`] promises; no kernel supports it; no memory is left.
    fn prepare(&mut self, call: &AttendCall, stream: &Arc<CudaStream>) -> Result<CallId, CudaError>;

    /// Enqueues a prepared call on a stream, whose operands lie in the arena that starts at `arena`. Calls of one stream
    /// share scratch; calls of different streams do not.
    ///
    /// # Errors
    /// The library refuses the call.
    fn enqueue(&mut self, call: CallId, arena: CUdeviceptr, stream: &Arc<CudaStream>) -> Result<(), CudaError>;

    /// Forgets all prepared calls and frees what they hold; graphs stay.
    fn clear(&mut self);
}

/// Times launches on a card.
pub trait LaunchTimer {
    /// Device times of `repeats` calls of a launch, nanoseconds, after `warm_up` untimed ones. Operands are fresh random
    /// numbers.
    ///
    /// # Errors
    /// No kernel supports the launch; no memory is left; the card fails.
    fn time(
        &mut self,
        launch: &skewbench_plan::LaunchShape<'_>,
        warm_up: u32,
        repeats: u32,
    ) -> Result<Vec<f64>, CudaError>;
}
