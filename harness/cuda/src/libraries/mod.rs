//! NVIDIA's libraries, opened at run time by their versioned names.
//!
//! Only what we call is bound, from a file that we have chosen: a library that is not there is an error that says what to
//! install, never a failure to start.

mod cublaslt;
mod cudnn;
mod driver;
mod nccl;
mod nvrtc;
mod open;
mod probe;

pub use cublaslt::{CublasLtTable, cublaslt};
pub use cudnn::{CuDnnTable, cudnn};
pub use driver::{driver, fail};
pub use nccl::{Nccl, nccl};
pub use nvrtc::{NvrtcTable, compile, nvrtc};
pub use probe::{Found, Opened, probe};
