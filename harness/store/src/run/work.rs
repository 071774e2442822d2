use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::cell_file::{self, Outcome};
use super::environment::{value_without_secrets, without_secrets};
use super::{Cell, CellId, EVENTS, Manifest, cell_path};
use crate::durable::Identity;
use crate::{ColumnType, StoreError, Table};

/// Wall-clock quantities of a cell; units in the names.
pub type Timings = BTreeMap<String, f64>;

/// A run folder that this process works on; other processes are kept out until it is dropped.
#[derive(Debug)]
pub struct Run {
    pub(super) dir: PathBuf,
    pub(super) cells: Vec<Cell>,
    pub(super) index: HashMap<CellId, usize>,
    pub(super) state: Mutex<State>,
    pub(super) events: Mutex<File>,
    pub(super) manifest: Manifest,
    /// Closing the file releases the lock.
    pub(super) _lock: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellState {
    Finished,
    Failed,
}

#[derive(Debug, Default)]
pub(super) struct State {
    done: HashMap<CellId, CellState>,
    /// Files of cells that are not what was written, by cell.
    damaged: BTreeMap<CellId, String>,
    pub(super) schemas: BTreeMap<String, Vec<(String, ColumnType)>>,
    /// The manifest that said last that the run is under way.
    pub(super) under_way: Option<Identity>,
}

impl State {
    pub(super) fn set(&mut self, id: &CellId, to: CellState) {
        self.done.insert(id.clone(), to);
    }

    /// Notes that a cell's file is not what was written.
    pub(super) fn note_damage(&mut self, id: &CellId, what: &StoreError) {
        self.damaged.insert(id.clone(), what.to_string());
    }

    pub(super) fn known(&self, id: &CellId) -> Option<CellState> {
        self.done.get(id).copied()
    }

    /// Makes a cell that failed count as missing.
    pub(super) fn forget_failure(&mut self, id: &CellId) {
        if self.done.get(id) == Some(&CellState::Failed) {
            self.done.remove(id);
        }
    }

    pub(super) fn failures(&self) -> Vec<CellId> {
        self.done.iter().filter(|(_, state)| **state == CellState::Failed).map(|(id, _)| id.clone()).collect()
    }

    fn count(&self, of: CellState) -> usize {
        self.done.values().filter(|s| **s == of).count()
    }

    pub(super) fn finished(&self) -> usize {
        self.count(CellState::Finished)
    }

    pub(super) fn failed(&self) -> usize {
        self.count(CellState::Failed)
    }
}

impl Run {
    /// The run folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest as it was when the run was opened.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Planned cells that have no result yet, in planned order.
    pub fn pending(&self) -> Vec<&Cell> {
        if self.manifest.status == super::RunStatus::Complete {
            return Vec::new();
        }
        let state = self.state();
        self.cells.iter().filter(|cell| !state.done.contains_key(&cell.id)).collect()
    }

    /// True when the cell has finished or failed and need not be computed.
    pub fn is_finished(&self, cell: &CellId) -> bool {
        let complete = self.manifest.status == super::RunStatus::Complete;
        if complete { self.index.contains_key(cell) } else { self.state().done.contains_key(cell) }
    }

    /// Number of cells that finished so far.
    pub fn finished(&self) -> usize {
        self.state().finished()
    }

    /// Number of cells that failed so far.
    pub fn failed(&self) -> usize {
        self.state().failed()
    }

    /// Files of cells that were found torn, copied or changed, each with what is wrong; their cells count as missing.
    pub fn damaged_cells(&self) -> Vec<String> {
        self.state().damaged.values().cloned().collect()
    }

    /// Stores a finished cell: when this returns, it is never lost. Callable from many threads.
    ///
    /// # Errors
    /// [`StoreError::Cell`] for a cell that is not planned, has a result already, or whose tables have other columns than those
    /// of other cells; or what the system reports.
    pub fn finish_cell(&self, cell: &CellId, tables: Vec<(String, Table)>, timings: Timings) -> Result<(), StoreError> {
        self.accepts(cell)?;
        if let Some((name, value)) = timings.iter().find(|(_, value)| !value.is_finite()) {
            return Err(StoreError::Cell { cell: cell.to_string(), what: format!("timing {name} is {value}") });
        }
        self.state().fit(cell.as_str(), &tables)?;
        cell_file::write(&cell_path(&self.dir, cell), cell, &Outcome::Finished { tables, timings })?;
        self.state().set(cell, CellState::Finished);
        self.event("cell_finished", &json!({ "cell": cell }))
    }

    /// Stores that a cell failed, and why. Callable from many threads.
    ///
    /// # Errors
    /// As [`finish_cell`](Self::finish_cell).
    pub fn fail_cell(&self, cell: &CellId, reason: &str) -> Result<(), StoreError> {
        self.accepts(cell)?;
        let reason = without_secrets(reason);
        cell_file::write(&cell_path(&self.dir, cell), cell, &Outcome::Failed { reason: reason.clone() })?;
        self.state().set(cell, CellState::Failed);
        self.event("cell_failed", &json!({ "cell": cell, "reason": reason }))
    }

    /// Appends a line to `events.jsonl` with the time, a name and fields of its own, without secrets of the environment that
    /// may stand in them.
    ///
    /// # Errors
    /// What the system reports.
    pub fn event(&self, name: &str, fields: &Value) -> Result<(), StoreError> {
        let mut line = json!({ "time": jiff::Timestamp::now().to_string(), "event": name });
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields.iter().map(|(key, value)| (key.clone(), value_without_secrets(value))));
        }
        let line = format!("{line}\n");
        let mut file = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(StoreError::io("write", &self.dir.join(EVENTS)))
    }

    fn accepts(&self, cell: &CellId) -> Result<(), StoreError> {
        let refused = |what: &str| Err(StoreError::Cell { cell: cell.to_string(), what: what.to_owned() });
        if !self.index.contains_key(cell) {
            return refused("is not planned");
        }
        if self.is_finished(cell) { refused("has a result already") } else { Ok(()) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panics elsewhere leaves the state whole: every change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
