//! Several processes that work on one run, on one host or on several that share a file system.
//!
//! Which of them computes which cell is not decided here. Each writes the cells that it computes, and files of its own in
//! `workers/`: what it is, and what happened. The one that seals the run merges them.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cell_file::{self, Outcome};
use super::manifest::Invocation;
use super::open::{index_cells, look, open_events, other_inputs, owner_only};
use super::seal::sealed;
use super::work::{CellState, State};
use super::{
    CELL_FOLDER, CellId, EVENTS, Found, LOCK, MANIFEST, Manifest, OpenOptions, Opened, PLANNED_CELLS, Run, RunInputs,
    RunStatus, WORKER_FOLDER, cell_path,
};
use crate::durable;
use crate::{CellStatus, StoreError};

/// Largest description of a process.
const MAX_WORKER_BYTES: u64 = 1 << 20;
/// Largest log of what happened.
const MAX_EVENT_BYTES: u64 = 1 << 30;

/// One of the processes that work on a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// A name of letters, digits and dashes that no other process has.
    pub name: String,
    /// Where it runs and what started it, for the manifest.
    pub launch: Value,
}

impl Run {
    /// Opens a run folder beside other processes: creates it, or takes part in what it holds. A run that is complete stays so.
    ///
    /// # Errors
    /// As [`Run::open`]; [`StoreError::Locked`] where a process works that did not join.
    pub fn join(dir: &Path, inputs: &RunInputs, worker: &Worker) -> Result<(Self, Opened), StoreError> {
        let gone = |e: &StoreError| matches!(e, StoreError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        match Self::enter(dir, inputs, worker) {
            // Another process sealed the run meanwhile, and removed the folders of the cells.
            Err(e) if gone(&e) && sealed(dir).is_ok_and(|found| found.is_some()) => Self::enter(dir, inputs, worker),
            other => other,
        }
    }

    fn enter(dir: &Path, inputs: &RunInputs, worker: &Worker) -> Result<(Self, Opened), StoreError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if worker.name.is_empty() || !worker.name.bytes().all(plain) {
            return Err(StoreError::Plan(format!("{:?} is no name of a process", worker.name)));
        }
        let index = index_cells(&inputs.cells)?;
        match look(dir)? {
            Found::Nothing => durable::create_folder(dir)?,
            Found::Run => {
                other_inputs(dir, inputs, OpenOptions::default())?;
            }
        }
        let lock = share_lock(dir)?;
        // Of several that start at once the manifest decides whose the folder is.
        let manifest_path = dir.join(MANIFEST);
        if !manifest_path.exists() {
            durable::write_new(&manifest_path, &durable::json(&manifest_path, &Manifest::new(inputs))?)?;
        }
        other_inputs(dir, inputs, OpenOptions::default())?;
        let mut manifest = Manifest::read(dir)?;
        if manifest.status == RunStatus::Running {
            write_plan(dir, inputs)?;
        }
        let workers = dir.join(WORKER_FOLDER);
        let log = workers.join(format!("{}.jsonl", worker.name));
        let events = if manifest.status == RunStatus::Complete {
            open_events(&dir.join(EVENTS))?
        } else {
            durable::create_folder(&dir.join(CELL_FOLDER))?;
            durable::create_folder(&workers)?;
            let about = workers.join(format!("{}.json", worker.name));
            durable::write_json(&about, &Invocation::of(inputs, Some(worker.launch.clone())))?;
            let events = open_events(&log)?;
            manifest = Manifest::read(dir)?;
            events
        };
        let mut run = Self {
            dir: dir.to_owned(),
            cells: inputs.cells.clone(),
            index,
            state: State::default().into(),
            events: events.into(),
            manifest,
            _lock: lock,
        };
        if run.manifest.status == RunStatus::Complete {
            // Another process sealed it, before or meanwhile.
            run.events = open_events(&dir.join(EVENTS))?.into();
            run.tidy_up()?;
            return Ok((run, Opened::Complete));
        }
        run.look_again()?;
        let finished = run.finished();
        run.event("joined", &json!({ "worker": worker.name, "finished": finished }))?;
        let opened = if finished + run.failed() == 0 { Opened::Fresh } else { Opened::Resumed { finished } };
        Ok((run, opened))
    }

    /// Turns a sealed run with failed cells back into one that is under way, for these cells to be computed again. One process
    /// at a time may do so. False when there is nothing to do.
    ///
    /// # Errors
    /// What the system reports.
    pub fn reopen_failed(dir: &Path, inputs: &RunInputs) -> Result<bool, StoreError> {
        if !matches!(look(dir)?, Found::Run) {
            return Ok(false);
        }
        let mut manifest = Manifest::read(dir)?;
        if manifest.status != RunStatus::Complete || manifest.failed == 0 || manifest.difference(inputs).is_some() {
            return Ok(false);
        }
        super::reopen::reopen(dir, &inputs.cells)?;
        manifest.status = RunStatus::Running;
        manifest.write(dir)?;
        Ok(true)
    }

    /// Looks for results of other processes.
    ///
    /// # Errors
    /// What the system reports; a torn or foreign file is no error, its cell counts as missing and the event log names it.
    pub fn look_again(&self) -> Result<(), StoreError> {
        let missing: Vec<CellId> = self.pending().into_iter().map(|cell| cell.id.clone()).collect();
        // One listing in place of a question for every cell: folders are shared with many.
        let folder = self.dir.join(CELL_FOLDER);
        let names: BTreeSet<String> = match durable::list(&folder) {
            Ok(names) => names.into_iter().collect(),
            Err(_) if !folder.exists() => return Ok(()),
            Err(e) => return Err(e),
        };
        for id in missing {
            let name = cell_path(Path::new(""), &id).file_name().map(|n| n.to_string_lossy().into_owned());
            if name.is_some_and(|name| names.contains(&name)) {
                self.result_of(&id)?;
            }
        }
        Ok(())
    }

    /// Looks again at cells that are known to have failed: others may try them anew.
    ///
    /// # Errors
    /// As [`look_again`](Self::look_again).
    pub fn look_at_failures(&self) -> Result<(), StoreError> {
        let failed = self.state().failures();
        for id in failed {
            self.retry(&id);
            self.result_of(&id)?;
        }
        Ok(())
    }

    /// What has become of a cell, by whichever process.
    ///
    /// # Errors
    /// As [`look_again`](Self::look_again).
    pub fn result_of(&self, id: &CellId) -> Result<CellStatus, StoreError> {
        let path = cell_path(&self.dir, id);
        match cell_file::read(&path, id) {
            Ok(Outcome::Finished { tables, .. }) => {
                let fits = self.state().fit(id.as_str(), &tables);
                match fits {
                    Ok(()) => {
                        self.state().set(id, CellState::Finished);
                        Ok(CellStatus::Finished)
                    }
                    Err(e) => self.damaged(id, &e),
                }
            }
            Ok(Outcome::Failed { reason }) => {
                self.state().set(id, CellState::Failed);
                Ok(CellStatus::Failed { reason })
            }
            Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(CellStatus::Missing),
            Err(e @ StoreError::Io { .. }) => Err(e),
            Err(e) => self.damaged(id, &e),
        }
    }

    /// What has become of a cell, as far as this process knows; that a cell of a sealed run failed is not looked up.
    pub fn known(&self, id: &CellId) -> CellStatus {
        // The guard must go before the next question takes it.
        let known = self.state().known(id);
        match known {
            Some(CellState::Failed) => CellStatus::Failed { reason: String::new() },
            None if !self.is_finished(id) => CellStatus::Missing,
            _ => CellStatus::Finished,
        }
    }

    /// The manifest of a run folder; none where there is no run.
    ///
    /// # Errors
    /// A manifest that is not what was written.
    pub fn manifest_of(dir: &Path) -> Result<Option<Manifest>, StoreError> {
        if dir.join(MANIFEST).exists() { Manifest::read(dir).map(Some) } else { Ok(None) }
    }

    /// Forgets that a cell failed, so that it can be computed again.
    pub fn retry(&self, id: &CellId) {
        self.state().forget_failure(id);
    }

    /// True when another process has sealed the run since it was opened.
    ///
    /// # Errors
    /// As [`Run::load`].
    pub fn is_sealed(&self) -> Result<bool, StoreError> {
        // Asked for every cell, and manifests of many cells are long.
        let identity = durable::identity(&self.dir.join(MANIFEST))?;
        if self.state().under_way == Some(identity) {
            return Ok(false);
        }
        let sealed = Manifest::read(&self.dir)?.status == RunStatus::Complete;
        self.state().under_way = (!sealed).then_some(identity);
        Ok(sealed)
    }

    fn damaged(&self, id: &CellId, what: &StoreError) -> Result<CellStatus, StoreError> {
        self.damage(&mut self.state(), id, what)?;
        Ok(CellStatus::Missing)
    }

    /// Takes what processes that joined have left into the manifest and the event log.
    pub(super) fn merge_workers(&mut self) -> Result<(), StoreError> {
        let folder = self.dir.join(WORKER_FOLDER);
        if !folder.exists() {
            return Ok(());
        }
        let mut lines = BTreeSet::new();
        let logs: Vec<PathBuf> = worker_files(&folder, ".jsonl")?;
        for path in logs.iter().chain([&self.dir.join(EVENTS)]).filter(|path| path.exists()) {
            let bytes = durable::read(path, MAX_EVENT_BYTES)?;
            // A line of an event begins with its time; half a line, of a process that was killed, is kept as it is.
            lines.extend(bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec));
        }
        let mut all = Vec::new();
        for line in lines {
            all.extend(line);
            all.push(b'\n');
        }
        durable::write(&self.dir.join(EVENTS), &all)?;
        self.events = open_events(&self.dir.join(EVENTS))?.into();
        for path in worker_files(&folder, ".json")? {
            let bytes = durable::read(&path, MAX_WORKER_BYTES)?;
            match serde_json::from_slice::<Invocation>(&bytes) {
                Ok(invocation) if self.manifest.invocations.contains(&invocation) => {}
                Ok(invocation) => self.manifest.invocations.push(invocation),
                // No result is in it: where one of the processes ran is then not known.
                Err(e) => {
                    let name = path.file_name().map(|name| name.to_string_lossy());
                    self.event("worker_damaged", &json!({ "file": name, "what": e.to_string() }))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the planned cells, unless they are there. Those of another study may be, whose process ended before its manifest.
fn write_plan(dir: &Path, inputs: &RunInputs) -> Result<(), StoreError> {
    let path = dir.join(PLANNED_CELLS);
    let plan = durable::json(&path, &inputs.cells)?;
    if path.is_file() && durable::read(&path, plan.len() as u64).is_ok_and(|found| found == plan) {
        return Ok(());
    }
    durable::write(&path, &plan)
}

/// Files of processes, sorted by name.
pub(super) fn worker_files(folder: &Path, suffix: &str) -> Result<Vec<PathBuf>, StoreError> {
    let names = durable::list(folder)?;
    Ok(names.iter().filter(|name| name.ends_with(suffix)).map(|name| folder.join(name)).collect())
}

/// Keeps out processes that did not join. Where the file system has no locks between nodes, nothing keeps them out; what is
/// shared does not rest on this lock.
fn share_lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let mut options = File::options();
    let file =
        owner_only(options.read(true).write(true).create(true)).open(&path).map_err(StoreError::io("open", &path))?;
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(e)) => Err(StoreError::io("lock", &path)(e)),
    }
}

/// Removes files of processes that joined a run which is sealed.
pub(super) fn remove_worker_files(dir: &Path) -> Result<(), StoreError> {
    let folder = dir.join(WORKER_FOLDER);
    if !folder.exists() {
        return Ok(());
    }
    for path in worker_files(&folder, ".jsonl")?.into_iter().chain(worker_files(&folder, ".json")?) {
        removed(&path, fs::remove_file(&path))?;
    }
    durable::sweep(&folder)?;
    if durable::list(&folder)?.is_empty() { removed(&folder, fs::remove_dir(&folder)) } else { Ok(()) }
}

/// What came of removing something that another process may remove at the same time.
pub(super) fn removed(path: &Path, result: std::io::Result<()>) -> Result<(), StoreError> {
    match result {
        // A process that came too late to take part removes what it put there itself.
        Err(e) if [ErrorKind::NotFound, ErrorKind::DirectoryNotEmpty].contains(&e.kind()) => Ok(()),
        other => other.map_err(StoreError::io("remove", path)),
    }
}
