//! Traces of a wave in the JSON format of Chrome's tracing, which Perfetto opens: a process a rank, a track a stream, a slice an
//! instruction, an arrow from every send to its receive.
//!
//! A trace is written from a [`Program`](skewbench_exec::Program), the plan that it was lowered from (which knows documents), and the
//! events of any backend that ran it; the clock is named in the trace, so that simulated and measured time cannot be confused. Times are whole nanoseconds,
//! written in microseconds as the format wants them. A trace never grows beyond a number of bytes: details of slices go first, then the
//! last slices, and the trace says what it left out.

mod describe;
mod events;
#[cfg(test)]
mod tests;
mod write;

pub use events::{Event, of_times, of_traces};
pub use write::{TraceOptions, write_trace};
