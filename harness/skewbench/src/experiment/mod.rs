//! Experiments: TOML files that say what is run and drawn.

mod expand;
mod file;
mod find;
mod points;
mod systems;
mod tune;

pub use expand::{At, Expanded, Scale, expand};
pub use file::{
    Axis, Experiment, Fitted, Kind, LayoutFile, Metric, Plot, SpreadFile, StepModelFile, Sweep, SystemsFile, Variant,
    WorkloadFile,
};
pub use find::{Found, experiments, find, made, recorded};
pub use points::{describe, short_name};
pub use tune::{Objective, SearchRecord, TuneFile, TunedFile};
