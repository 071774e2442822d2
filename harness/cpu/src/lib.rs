//! Runs a lowered [`skewbench_exec::Program`] with real numbers and compares what it leaves with dense attention.
//!
//! It is the very program that is priced and timed: this crate sees buffers, views, routes, calls and instructions, never
//! the plan that they come from. Every stream of every rank is a thread; each rank has its own buffers; what ranks
//! exchange are messages. Streams of a rank run concurrently as far as the program allows; additions to the results of a
//! rank take place one at a time, in one order that the program allows, so that results are the same bit by bit in every
//! run.
//!
//! Tensors are f32 and sums inside kernels and merges are f64. Whatever element type a buffer or a call names, the values
//! are carried in f32: this backend asks whether a program computes the right thing, and rounding to bf16 would hide
//! faults of up to one part in 256. So casts copy, and [`TOLERANCE`] can be tight.
//!
//! [`mod@reference`] is written from the definition of attention alone and shares no code with the interpreter.

mod compare;
mod error;
mod inputs;
mod kernel;
mod matrix;
mod memory;
mod pass;
mod processes;
pub mod reference;
mod run;
mod table;
mod transfers;
mod verify;

pub use compare::{Found, Place, Report, TOLERANCE, TensorReport, Wrong, compare};
pub use error::CpuError;
pub use inputs::{Inputs, Needle, needles};
pub use processes::{Processes, Transport};
pub use run::{Outputs, RunOptions, run};
pub use table::Table;
pub use verify::{measure, verify};
