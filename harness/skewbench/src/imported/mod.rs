//! Times that a user measured on a cluster of their own: read, put beside what the simulator predicts, and what a profile would
//! have to change to predict them.

mod accuracy;
mod fit;
mod predict;
mod profile;
mod read;

pub use accuracy::{Accuracy, WaveTimes, waves};
pub use fit::{Fit, Observation, PassFit, fit};
pub use predict::{Of, Setup, observations};
pub use profile::adapted;
pub use read::{Measured, TimedPass, Wave, parse, read};
