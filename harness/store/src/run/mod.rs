//! Run folders: `manifest.json`, `timings.json`, `events.jsonl` (these three may differ between identical runs), `cells.json`,
//! `failures.json`, `checksums.json` and one Parquet file a kind of table. While a run is under way, `cells/` holds one
//! checksummed file a finished cell; they are merged when the run is sealed. Of several processes that work on one run, each has
//! files of its own in `workers/` until then.

mod cell;
mod cell_file;
mod environment;
mod host;
mod load;
mod manifest;
mod open;
mod reopen;
mod seal;
mod share;
mod work;

use std::path::{Path, PathBuf};

pub use cell::{Cell, CellId};
pub use environment::collect_environment;
pub use host::{Host, host_name, today};
pub use load::{CellRecord, CellStatus, RunData};
pub(crate) use load::{damaged_cells, is_remainder, strangers};
pub(crate) use manifest::{Checksums, file_sum};
pub use manifest::{GitState, Invocation, Manifest, RunInputs, RunStatus, SCHEMA_VERSION};
pub(crate) use open::Found;
pub use open::{OpenOptions, Opened};
pub use share::Worker;
pub use work::{Run, Timings};

/// Kind of the main table of a run.
pub const MAIN_KIND: &str = "samples";

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const TIMINGS: &str = "timings.json";
pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const PLANNED_CELLS: &str = "cells.json";
pub(crate) const FAILURES: &str = "failures.json";
pub(crate) const CHECKSUMS: &str = "checksums.json";
pub(crate) const LOCK: &str = ".lock";
pub(crate) const CELL_FOLDER: &str = "cells";
pub(crate) const WORKER_FOLDER: &str = "workers";
const CELL_SUFFIX: &str = ".cell";
const TABLE_SUFFIX: &str = ".parquet";

fn cell_path(dir: &Path, id: &CellId) -> PathBuf {
    dir.join(CELL_FOLDER).join(format!("{id}{CELL_SUFFIX}"))
}

pub(crate) fn table_path(dir: &Path, kind: &str) -> PathBuf {
    dir.join(format!("{kind}{TABLE_SUFFIX}"))
}

/// The kind of table that a file name stands for.
pub(crate) fn kind_of(file: &str) -> Option<&str> {
    file.strip_suffix(TABLE_SUFFIX).filter(|kind| is_kind(kind))
}

fn is_kind(kind: &str) -> bool {
    !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}
