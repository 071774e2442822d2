//! Runs, samples and statistics: what an experiment leaves on disk and the numbers that are derived from it.
//!
//! A [`Run`] is a folder that survives being killed at any moment; a [`Table`] is what it stores; [`stats`] derives numbers
//! from samples; [`SummaryRow`] and [`Reference`] put them beside published ones. Of the workspace, this crate knows
//! only the one that reads configuration.

mod archive;
mod check;
mod durable;
mod error;
mod reference;
mod run;
pub mod stats;
mod summary;
mod table;
pub mod units;

pub use archive::{export, import, import_folder};
pub use check::{CheckReport, check};
pub use durable::{beside, create_folder};
pub use error::StoreError;
pub use reference::{Agreement, FIGURES, Judgement, Reference, ReferenceEntry};
pub use run::{
    Cell, CellId, CellRecord, CellStatus, GitState, Host, Invocation, MAIN_KIND, Manifest, OpenOptions, Opened, Run,
    RunData, RunInputs, RunStatus, SCHEMA_VERSION, Timings, Worker, collect_environment, host_name, today,
};
pub use skewbench_config::{ConfigError, load_strict, parse_strict, parse_strict_json};
pub use summary::{Kind, RowStatus, SummaryKey, SummaryRow, SummaryValue};
pub use table::{Column, ColumnType, StrColumn, Table, TableWriter};
