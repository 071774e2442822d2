use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::cell_file::{self, Outcome};
use super::work::{CellState, State};
use super::{
    CELL_FOLDER, Cell, EVENTS, LOCK, MANIFEST, Manifest, PLANNED_CELLS, Run, RunInputs, RunStatus, WORKER_FOLDER,
    cell_path,
};
use crate::StoreError;
use crate::durable::{self, TEMP_PREFIX};

/// What to do with what the folder holds already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Rename a run of other inputs to `<name>.old-N` instead of refusing.
    pub replace_other: bool,
    /// Compute cells that failed again.
    pub retry_failed: bool,
}

/// What the folder held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Nothing.
    Fresh,
    /// An unfinished run of the same inputs.
    Resumed {
        /// Cells that need not be computed again.
        finished: usize,
    },
    /// A finished run of the same inputs.
    Complete,
}

pub(crate) enum Found {
    Nothing,
    Run,
}

impl Run {
    /// Opens a run folder for work: creates it, or resumes what it holds. Nothing is written before the inputs are accepted.
    ///
    /// # Errors
    /// [`StoreError::Plan`] for no or repeated cells, [`StoreError::OtherInputs`], [`StoreError::Locked`],
    /// [`StoreError::NotARun`], or what the system reports.
    pub fn open(dir: &Path, inputs: &RunInputs, options: OpenOptions) -> Result<(Self, Opened), StoreError> {
        let index = index_cells(&inputs.cells)?;
        let replace = match look(dir)? {
            Found::Nothing => {
                durable::create_folder(dir)?;
                false
            }
            Found::Run => other_inputs(dir, inputs, options)?,
        };
        let mut lock = lock_folder(dir)?;
        // Another process may have come first between the look and the lock.
        let replace = replace || (matches!(look(dir)?, Found::Run) && other_inputs(dir, inputs, options)?);
        if replace {
            let old = free_name(dir);
            fs::rename(dir, &old).map_err(StoreError::io("rename", dir))?;
            durable::create_folder(dir)?;
            lock = lock_folder(dir)?;
        }
        durable::sweep(dir)?;
        let (mut manifest, opened) = match look(dir)? {
            Found::Nothing => (start(dir, inputs)?, Opened::Fresh),
            Found::Run => {
                let manifest = Manifest::read(dir)?;
                let opened = match manifest.status {
                    RunStatus::Complete if options.retry_failed && manifest.failed > 0 => {
                        super::reopen::reopen(dir, &inputs.cells)?;
                        Opened::Resumed { finished: 0 }
                    }
                    RunStatus::Complete => Opened::Complete,
                    RunStatus::Running => Opened::Resumed { finished: 0 },
                };
                (manifest, opened)
            }
        };
        let mut run = Self {
            dir: dir.to_owned(),
            cells: inputs.cells.clone(),
            index,
            state: State::default().into(),
            events: open_events(&dir.join(EVENTS))?.into(),
            manifest: manifest.clone(),
            _lock: lock,
        };
        if opened == Opened::Complete {
            // The process may have been killed between sealing and tidying up.
            run.tidy_up()?;
            return Ok((run, opened));
        }
        durable::create_folder(&dir.join(CELL_FOLDER))?;
        durable::sweep(&dir.join(CELL_FOLDER))?;
        let state = run.survey(options.retry_failed)?;
        let opened = match opened {
            Opened::Resumed { .. } => Opened::Resumed { finished: state.finished() },
            other => other,
        };
        manifest.status = RunStatus::Running;
        (manifest.finished, manifest.failed) = (state.finished(), state.failed());
        manifest.add_invocation(inputs);
        manifest.write(dir)?;
        run.state = state.into();
        run.manifest = manifest;
        run.event("opened", &serde_json::json!({ "finished": run.finished() }))?;
        Ok((run, opened))
    }

    /// Which cells have a whole file. Torn and foreign ones count as missing and are written again.
    fn survey(&self, retry_failed: bool) -> Result<State, StoreError> {
        let mut state = State::default();
        for cell in &self.cells {
            let path = cell_path(&self.dir, &cell.id);
            if !path.exists() {
                continue;
            }
            match cell_file::read(&path, &cell.id) {
                Ok(Outcome::Finished { tables, .. }) => match state.fit(cell.id.as_str(), &tables) {
                    Ok(()) => state.set(&cell.id, CellState::Finished),
                    Err(e) => self.damage(&mut state, &cell.id, &e)?,
                },
                Ok(Outcome::Failed { .. }) if retry_failed => {}
                Ok(Outcome::Failed { .. }) => state.set(&cell.id, CellState::Failed),
                Err(e @ StoreError::Io { .. }) => return Err(e),
                Err(e) => self.damage(&mut state, &cell.id, &e)?,
            }
        }
        Ok(state)
    }

    /// Notes a file that is not what was written, and keeps it in the log.
    pub(super) fn damage(&self, state: &mut State, id: &super::CellId, what: &StoreError) -> Result<(), StoreError> {
        state.note_damage(id, what);
        self.event("cell_damaged", &serde_json::json!({ "cell": id, "what": what.to_string() }))
    }
}

pub(super) fn index_cells(cells: &[Cell]) -> Result<HashMap<super::CellId, usize>, StoreError> {
    if cells.is_empty() {
        return Err(StoreError::Plan("no cells are planned; the experiment's sweeps are empty".to_owned()));
    }
    let mut index = HashMap::new();
    for (i, cell) in cells.iter().enumerate() {
        if let Some(first) = index.insert(cell.id.clone(), i) {
            let text = |i: usize| cells.get(i).map(|c| serde_json::Value::Object(c.coordinates.clone()).to_string());
            let (a, b) = (text(first).unwrap_or_default(), text(i).unwrap_or_default());
            return Err(StoreError::Plan(format!("cells {a} and {b} have the same inputs; remove one")));
        }
    }
    Ok(index)
}

/// What a folder holds; a folder of anything but a run is refused.
pub(super) fn look(dir: &Path) -> Result<Found, StoreError> {
    if !dir.exists() {
        return Ok(Found::Nothing);
    }
    let not_a_run = |what: String| StoreError::NotARun { dir: dir.to_owned(), what };
    if !dir.is_dir() {
        return Err(not_a_run("it is a file".to_owned()));
    }
    let names = durable::list(dir)?;
    if names.iter().any(|n| n == MANIFEST) {
        return Ok(Found::Run);
    }
    // These are what a process leaves that is killed before its manifest is written.
    let ours = |n: &String| {
        [LOCK, PLANNED_CELLS, CELL_FOLDER, WORKER_FOLDER, EVENTS].contains(&n.as_str()) || n.starts_with(TEMP_PREFIX)
    };
    match names.iter().find(|n| !ours(n)) {
        None => Ok(Found::Nothing),
        Some(name) => Err(not_a_run(format!("it holds {name} but no {MANIFEST}; choose an empty or new folder"))),
    }
}

/// True when the folder's run must be moved away, an error when it must but may not be.
pub(super) fn other_inputs(dir: &Path, inputs: &RunInputs, options: OpenOptions) -> Result<bool, StoreError> {
    let problem = match Manifest::read(dir) {
        Ok(manifest) => match manifest.difference(inputs) {
            None => return Ok(false),
            Some(what) => StoreError::OtherInputs { dir: dir.to_owned(), what },
        },
        Err(e @ (StoreError::Damaged { .. } | StoreError::Version { .. })) => e,
        Err(e) => return Err(e),
    };
    if options.replace_other { Ok(true) } else { Err(problem) }
}

fn lock_folder(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file =
        owner_only(File::options().write(true).create(true)).open(&path).map_err(StoreError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(StoreError::io("lock", &path)(e)),
    }
}

pub(super) fn owner_only(options: &mut fs::OpenOptions) -> &mut fs::OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// First free `<name>.old-N` beside the folder.
fn free_name(dir: &Path) -> PathBuf {
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let candidate = |n: u32| durable::parent(dir).join(format!("{name}.old-{n}"));
    let mut n = 1;
    while candidate(n).exists() {
        n += 1;
    }
    candidate(n)
}

fn start(dir: &Path, inputs: &RunInputs) -> Result<Manifest, StoreError> {
    let cells = dir.join(CELL_FOLDER);
    if cells.exists() {
        // Left by a process that died before its manifest was written: no cell can be finished.
        fs::remove_dir_all(&cells).map_err(StoreError::io("remove", &cells))?;
    }
    durable::write_json(&dir.join(PLANNED_CELLS), &inputs.cells)?;
    Ok(Manifest::new(inputs))
}

pub(super) fn open_events(path: &Path) -> Result<File, StoreError> {
    use std::io::{Read, Seek, SeekFrom, Write};
    let failed = |e| StoreError::io("open", path)(e);
    let mut file = owner_only(File::options().read(true).append(true).create(true)).open(path).map_err(failed)?;
    // A killed process may have left half a line.
    if file.metadata().map_err(failed)?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(failed)?;
        if last != *b"\n" {
            file.write_all(b"\n").map_err(failed)?;
        }
    }
    Ok(file)
}

impl State {
    /// Remembers the schema of each kind of table; refuses tables that do not fit those of other cells.
    pub(super) fn fit(&mut self, cell: &str, tables: &[(String, crate::Table)]) -> Result<(), StoreError> {
        let refused = |what: String| Err(StoreError::Cell { cell: cell.to_owned(), what });
        let mut new = BTreeMap::new();
        for (kind, table) in tables {
            let schema = table.schema();
            if !super::is_kind(kind) || new.contains_key(kind) {
                return refused(format!("table kind {kind:?} occurs twice or is not of a-z, 0-9 and _"));
            }
            if schema.is_empty() || table.column("cell").is_some() {
                return refused(format!("table {kind} has no columns, or one named cell, which sealing adds"));
            }
            match self.schemas.get(kind) {
                Some(known) if *known != schema => {
                    return refused(format!("table {kind} has columns {schema:?}, those of other cells are {known:?}"));
                }
                _ => new.insert(kind.clone(), schema),
            };
        }
        self.schemas.extend(new);
        Ok(())
    }
}
