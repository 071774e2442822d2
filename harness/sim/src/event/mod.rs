//! Event simulation of a program.
//!
//! **Streams.** Every rank's streams run in order; an instruction starts when its stream is free and the instructions it names have ended.
//!
//! **Calls.** A flow from i to j is released when both have posted the call; a rank's part ends when all its flows have ended.
//!
//! **Links.** Every rank has injection and ejection into its node's domain and a port to the network (its own, or a share of the node's); with
//! oversubscription every node has an uplink of its ranks' share. Each link is a work-conserving server: a flow is queued on every link of
//! its path when it is released and ends when the last of them has served it, plus the latency. So a call that is released at once takes its
//! bottleneck's bytes over bandwidth, as long as under max-min fair sharing or less (`tests/sim/links.rs` compares the two).
//! Within a node the time of a byte follows the link table at the bytes that the card sends (receives) in the call.
//!
//! **Overlap.** A kernel of the compute stream is prolonged by `1 / compute_rate - 1` of the time in which its rank had a transfer under way,
//! counted when it ends. A flow gets `transfer_rate` of its own card's links as long as that card's compute stream is known, at release, to stay
//! busy: the running kernel and those after it whose dependencies have ended. Kernels on other streams (pack, merge) neither slow nor are slowed.
//!
//! Time is in integer picoseconds; simultaneous events are taken by rank, stream, instruction.

mod calls;
mod costs;
mod engine;
mod links;
mod times;

pub use times::{
    Launch, LaunchTimes, PassTimes, Runs, TraceEvent, WaveTimes, simulate, simulate_launches, simulate_networks,
    simulate_pass,
};
