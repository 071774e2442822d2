//! Experiments: TOML files that say what is run and drawn.

mod expand;
mod file;
mod find;
mod tune;

pub use expand::{At, Expanded, Scale, expand};
pub use file::{
    Axis, Experiment, Fitted, Kind, LayoutFile, Metric, Plot, StepModelFile, Sweep, SystemsFile, WorkloadFile,
};
pub use find::{Found, experiments, find, recorded};
pub use tune::{Objective, SearchRecord, TuneFile, TunedFile};
