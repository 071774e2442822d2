use crate::CudaError;
use crate::run::Transport;

/// Times kernels that move rows on a card.
pub trait CopyTimer {
    /// Device times of `repeats` kernels that copy rows of `bytes` in all: read once and written once, nanoseconds.
    ///
    /// # Errors
    /// No memory is left; the card fails.
    fn copy_ns(&mut self, bytes: u64, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError>;

    /// The same of kernels that merge outputs of `bytes` into f32 sums: read once, sums read and written.
    ///
    /// # Errors
    /// As [`copy_ns`](Self::copy_ns).
    fn merge_ns(&mut self, bytes: u64, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError>;
}

/// Repeats of attention and an exchange, alone and at once, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlap {
    /// Attention alone.
    pub compute_alone_ns: Vec<f64>,
    /// The exchange alone.
    pub transfer_alone_ns: Vec<f64>,
    /// Attention while the exchange runs all the time.
    pub compute_together_ns: Vec<f64>,
    /// The exchange while attention runs all the time.
    pub transfer_together_ns: Vec<f64>,
}

/// Times exchanges between the cards of a host.
pub trait LinkTimer {
    /// Times of `repeats` exchanges in which every card sends and receives `bytes`, nanoseconds.
    ///
    /// # Errors
    /// A library is absent; no memory is left; a card fails.
    fn exchange_ns(
        &mut self,
        transport: Transport,
        bytes: u64,
        warm_up: u32,
        repeats: u32,
    ) -> Result<Vec<f64>, CudaError>;

    /// What attention and an exchange do to each other, `repeats` times.
    ///
    /// # Errors
    /// As [`exchange_ns`](Self::exchange_ns).
    fn overlap(&mut self, transport: Transport, repeats: u32) -> Result<Overlap, CudaError>;
}
