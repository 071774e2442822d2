//! Cards of this host: studies whose waves they execute, and verification of programs on them.

mod bench;
mod blocks;
mod layer;
mod log;
mod measure;
mod predict;
mod run;
mod study;
mod verify;
mod waves;

pub use bench::factory;
pub use predict::{Predicted, predict};
pub use run::run_studies;
pub use study::{CaseFile, FoundStudy, LayoutFile, StudyFile, find_study, studies};
pub use verify::{CardOptions, Cards};
