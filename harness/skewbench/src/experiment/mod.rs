//! Experiments: TOML files that say what is run and drawn.

mod expand;
mod file;
mod find;

pub use expand::{At, Expanded, Scale, expand};
pub use file::{
    Axis, Experiment, Fitted, Kind, LayoutFile, Metric, Plot, StepModelFile, Sweep, SystemsFile, WorkloadFile,
};
pub use find::{Found, experiments, find, recorded};
