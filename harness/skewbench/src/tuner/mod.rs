//! The tuner: searches the options of every system alike, on steps that no result is reported on.
//!
//! A search starts from the options that the experiment gives and moves over a grid of candidate values ([`Space`]) by
//! [`search`], which is deterministic. Every configuration that it tries is a cell of simulated waves on the tuning seed, stored in a
//! run folder a stage, so that an interrupted search goes on where it stopped. What it chose is written into the experiment.

mod objective;
mod search;
mod space;
mod study;

pub use objective::by_step;
pub use search::{Best, Point, search};
pub use space::{Axis, Space};
pub use study::{fragment, tune, wants_tuning};
