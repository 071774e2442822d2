//! Cards of this host: studies whose waves they execute, and verification of programs on them.

mod bench;
mod log;
mod measure;
mod run;
mod study;
mod verify;
mod waves;

pub use run::run_studies;
pub use study::{Carrier, CaseFile, FoundStudy, LayoutFile, StudyFile, find_study, studies};
pub use verify::{CardOptions, Cards};
