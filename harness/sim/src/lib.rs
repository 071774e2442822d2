//! Prices a [`skewbench_exec::Program`] on a machine profile by event simulation, and turns attention times into step times.
//!
//! - [`profile`]: what a card and its links were measured or assumed to do, with the source of every part.
//! - [`pricing`]: time of kernel calls and transfers from a profile, in integer picoseconds.
//! - [`event`]: the simulation of one program on a machine.
//! - [`step_model`]: linear work, pipeline, gradient reduction, memory.
//!
//! The same inputs give the same numbers on any x86-64 machine: integer time, stable ties, transcendental functions from `libm`.

mod error;
pub mod event;
mod machine;
pub mod pricing;
pub mod profile;
pub mod step_model;

pub use error::{ConfigError, SimError};
pub use event::{
    Launch, LaunchTimes, PassTimes, Runs, TraceEvent, WaveTimes, simulate, simulate_launches, simulate_networks,
    simulate_pass,
};
pub use machine::{LinearCost, Machine};
pub use pricing::{Pricing, TableError};
pub use profile::{Overrides, Profile, Transport};
