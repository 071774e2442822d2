use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::cell_file::{self, Outcome};
use super::{
    CELL_FOLDER, CHECKSUMS, Cell, CellId, Checksums, EVENTS, FAILURES, LOCK, MANIFEST, Manifest, PLANNED_CELLS,
    RunStatus, TIMINGS, Timings, WORKER_FOLDER, cell_path, kind_of, table_path,
};
use crate::durable::TEMP_PREFIX;
use crate::table::{read_parquet_columns, visit_parquet_columns};
use crate::{Column, StoreError, Table, durable};

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellStatus {
    /// Its tables are there.
    Finished,
    /// It failed.
    Failed {
        /// Why.
        reason: String,
    },
    /// It has not been computed yet.
    Missing,
}

/// A planned cell with what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRecord {
    /// Its id, which the `cell` column of every table holds.
    pub id: CellId,
    /// What tells it apart.
    pub coordinates: Map<String, Value>,
    /// What became of it.
    pub status: CellStatus,
}

/// A run folder opened for reading, finished or not.
#[derive(Clone, Debug)]
pub struct RunData {
    dir: PathBuf,
    /// The manifest.
    pub manifest: Manifest,
    /// Planned cells, in order.
    pub cells: Vec<CellRecord>,
    checksums: Checksums,
}

#[derive(Deserialize)]
pub(super) struct Failure {
    pub(super) cell: CellId,
    pub(super) reason: String,
}

#[derive(Deserialize)]
struct SealedTimings {
    cells: BTreeMap<String, Timings>,
}

impl super::Run {
    /// Opens a run folder for reading.
    ///
    /// # Errors
    /// Not a run, another schema version, or files that are not what was written.
    pub fn load(dir: &Path) -> Result<RunData, StoreError> {
        let manifest = Manifest::read(dir)?;
        let complete = manifest.status == RunStatus::Complete;
        let checksums = if complete { durable::read_json(&dir.join(CHECKSUMS))? } else { Checksums::new() };
        let known = |name: &str| [PLANNED_CELLS, FAILURES].contains(&name) || kind_of(name).is_some();
        if let Some(name) = checksums.keys().find(|name| !known(name)) {
            let what = format!("lists {}, which is no file of a run", name.escape_debug());
            return Err(StoreError::damaged(&dir.join(CHECKSUMS), what));
        }
        let json = |name: &str| -> Result<Vec<u8>, StoreError> {
            let path = dir.join(name);
            if complete { sealed(&path, &checksums) } else { durable::read(&path, durable::MAX_JSON_BYTES) }
        };
        let planned: Vec<Cell> = durable::parse_json(&json(PLANNED_CELLS)?, &dir.join(PLANNED_CELLS))?;
        if !manifest.is_of(&planned) {
            let what = format!("its inputs and the cells of {PLANNED_CELLS} are not those of the hash in it");
            return Err(StoreError::damaged(&dir.join(MANIFEST), what));
        }
        let failures: Vec<Failure> =
            if complete { durable::parse_json(&json(FAILURES)?, &dir.join(FAILURES))? } else { Vec::new() };
        let reasons: BTreeMap<CellId, String> = failures.into_iter().map(|f| (f.cell, f.reason)).collect();
        let cells = planned.into_iter().map(|cell| {
            let status = if complete {
                reasons
                    .get(&cell.id)
                    .map_or(CellStatus::Finished, |reason| CellStatus::Failed { reason: reason.clone() })
            } else {
                match unsealed(dir, &cell.id)? {
                    Some(Outcome::Finished { .. }) => CellStatus::Finished,
                    Some(Outcome::Failed { reason }) => CellStatus::Failed { reason },
                    None => CellStatus::Missing,
                }
            };
            Ok(CellRecord { id: cell.id, coordinates: cell.coordinates, status })
        });
        let cells = cells.collect::<Result<Vec<_>, StoreError>>()?;
        Ok(RunData { dir: dir.to_owned(), manifest, cells, checksums })
    }
}

impl RunData {
    /// The run folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kinds of tables, sorted.
    ///
    /// # Errors
    /// What the system reports.
    pub fn kinds(&self) -> Result<Vec<String>, StoreError> {
        if self.manifest.status == RunStatus::Complete {
            return Ok(self.checksums.keys().filter_map(|name| kind_of(name)).map(str::to_owned).collect());
        }
        Ok(self.unsealed_tables(|_| true)?.into_keys().collect())
    }

    /// A whole table with its leading `cell` column.
    ///
    /// # Errors
    /// No such kind, or a file that is not what was sealed.
    pub fn table(&self, kind: &str) -> Result<Table, StoreError> {
        self.read(kind, None)
    }

    /// Tables of one cell without a `cell` column; nothing when it has not finished.
    ///
    /// # Errors
    /// A file that is not what was written.
    pub fn cell_tables(&self, id: &CellId) -> Result<Option<Vec<(String, Table)>>, StoreError> {
        if self.manifest.status != RunStatus::Complete {
            return Ok(match unsealed(&self.dir, id)? {
                Some(Outcome::Finished { tables, .. }) => Some(tables),
                _ => None,
            });
        }
        let mut tables = Vec::new();
        for kind in self.kinds()? {
            let table = self.table(&kind)?;
            let cells = table.str("cell")?;
            let rows: Vec<usize> = (0..table.rows()).filter(|row| cells.get(*row) == Some(id.as_str())).collect();
            if !rows.is_empty() {
                tables.push((kind, table.select(&rows).without("cell")));
            }
        }
        Ok((!tables.is_empty()).then_some(tables))
    }

    /// Some columns of a table.
    ///
    /// # Errors
    /// As [`table`](Self::table), or no such column.
    pub fn table_columns(&self, kind: &str, columns: &[&str]) -> Result<Table, StoreError> {
        self.read(kind, Some(columns))
    }

    /// Cells that failed, with reasons.
    pub fn failures(&self) -> impl Iterator<Item = (&CellRecord, &str)> {
        self.cells.iter().filter_map(|cell| match &cell.status {
            CellStatus::Failed { reason } => Some((cell, reason.as_str())),
            _ => None,
        })
    }

    /// Wall-clock quantities by cell.
    ///
    /// # Errors
    /// A file that is not what was written.
    pub fn timings(&self) -> Result<BTreeMap<CellId, Timings>, StoreError> {
        let mut all = BTreeMap::new();
        if self.manifest.status == RunStatus::Complete {
            let mut sealed: SealedTimings = durable::read_json(&self.dir.join(TIMINGS))?;
            all.extend(self.cells.iter().filter_map(|c| Some((c.id.clone(), sealed.cells.remove(c.id.as_str())?))));
        } else {
            for cell in &self.cells {
                if let Some(Outcome::Finished { timings, .. }) = unsealed(&self.dir, &cell.id)? {
                    all.insert(cell.id.clone(), timings);
                }
            }
        }
        Ok(all)
    }

    /// Shows the columns of a sealed table one after another, so that memory holds one of them at a time.
    ///
    /// # Errors
    /// As [`table`](Self::table), and what `visit` refuses.
    pub(crate) fn visit_sealed(
        &self,
        kind: &str,
        visit: impl FnMut(&str, Column) -> Result<(), String>,
    ) -> Result<(), StoreError> {
        let path = table_path(&self.dir, kind);
        visit_parquet_columns(&sealed(&path, &self.checksums)?, &path, None, visit)
    }

    /// Everything in the folder that no result is read from: of an unfinished run torn files of cells, copies of another
    /// cell's and files of no planned cell, which count as not computed; of any run files that are no part of it.
    ///
    /// # Errors
    /// What the system reports.
    pub fn damage(&self) -> Result<Vec<String>, StoreError> {
        let complete = self.manifest.status == RunStatus::Complete;
        let mut problems = if complete { Vec::new() } else { damaged_cells(&self.dir, &self.cells)? };
        problems.extend(strangers(&self.dir, self.manifest.status, self.checksums.keys())?);
        Ok(problems)
    }

    fn read(&self, kind: &str, columns: Option<&[&str]>) -> Result<Table, StoreError> {
        let missing = || StoreError::Table(format!("{} has no table {kind}", self.dir.display()));
        if self.manifest.status == RunStatus::Complete {
            let path = table_path(&self.dir, kind);
            if !self.checksums.contains_key(&name_of(&path)) {
                return Err(missing());
            }
            return read_parquet_columns(&sealed(&path, &self.checksums)?, &path, columns);
        }
        let table = self.unsealed_tables(|k| k == kind)?.remove(kind).ok_or_else(missing)?;
        let Some(names) = columns else { return Ok(table) };
        let picked = names.iter().map(|name| match table.column(name) {
            Some(column) => Ok((*name, column.clone())),
            None => Err(StoreError::Table(format!("{kind} has no column {name}"))),
        });
        Table::from_columns(picked.collect::<Result<Vec<_>, _>>()?)
    }

    fn unsealed_tables(&self, wanted: impl Fn(&str) -> bool) -> Result<BTreeMap<String, Table>, StoreError> {
        let mut merged: BTreeMap<String, Table> = BTreeMap::new();
        for cell in &self.cells {
            let Some(Outcome::Finished { tables, .. }) = unsealed(&self.dir, &cell.id)? else { continue };
            for (kind, table) in tables.into_iter().filter(|(kind, _)| wanted(kind)) {
                let table = table.with_leading("cell", cell.id.as_str())?;
                match merged.get_mut(&kind) {
                    Some(rows) => rows.append(&table)?,
                    None => {
                        merged.insert(kind, table);
                    }
                }
            }
        }
        Ok(merged)
    }
}

/// What a cell of an unfinished run left; nothing when its file is absent or torn.
fn unsealed(dir: &Path, id: &CellId) -> Result<Option<Outcome>, StoreError> {
    let path = cell_path(dir, id);
    if !path.exists() {
        return Ok(None);
    }
    match cell_file::read(&path, id) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(e @ StoreError::Io { .. }) => Err(e),
        Err(_) => Ok(None),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The bytes of a file of a sealed run, if they are those that were sealed.
fn sealed(path: &Path, sums: &Checksums) -> Result<Vec<u8>, StoreError> {
    let sum = sums.get(&name_of(path)).ok_or_else(|| StoreError::damaged(path, format!("is not in {CHECKSUMS}")))?;
    let bytes = durable::read(path, sum.bytes)?;
    if blake3::hash(&bytes).to_hex().as_str() != sum.blake3 {
        return Err(StoreError::damaged(
            path,
            format!("is not the file that was sealed ({CHECKSUMS}); restore it, or move the run away and run it again"),
        ));
    }
    Ok(bytes)
}

/// Files in the folder of a run that are no part of it: copies of its files, and what others left there.
pub(crate) fn strangers<'a>(
    dir: &Path,
    status: RunStatus,
    sealed: impl Iterator<Item = &'a String>,
) -> Result<Vec<String>, StoreError> {
    let mut known: BTreeSet<&str> =
        [MANIFEST, TIMINGS, EVENTS, PLANNED_CELLS, FAILURES, CHECKSUMS, LOCK].into_iter().collect();
    known.extend(sealed.map(String::as_str));
    let names = durable::list(dir)?;
    let under_way = status != RunStatus::Complete;
    if under_way {
        known.extend([CELL_FOLDER, WORKER_FOLDER]);
    }
    // Of a run under way sealing may have been interrupted: its tables are written again.
    let ours =
        |name: &str| known.contains(name) || name.starts_with(TEMP_PREFIX) || (under_way && kind_of(name).is_some());
    Ok(names
        .iter()
        .filter(|name| !ours(name) && !is_remainder(dir, name))
        .map(|name| format!("{} is not part of the run", name.escape_debug()))
        .collect())
}

/// True for what is left of a folder that sealing removed.
pub(crate) fn is_remainder(dir: &Path, name: &str) -> bool {
    [CELL_FOLDER, WORKER_FOLDER].contains(&name) && durable::is_remainder(&dir.join(name))
}

/// What is wrong with the files of an unfinished run's cells: torn ones, copies of another cell's, and those of no planned cell.
pub(crate) fn damaged_cells(dir: &Path, cells: &[CellRecord]) -> Result<Vec<String>, StoreError> {
    let folder = dir.join(CELL_FOLDER);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let planned: BTreeMap<PathBuf, &CellId> = cells.iter().map(|cell| (cell_path(dir, &cell.id), &cell.id)).collect();
    let mut problems = Vec::new();
    for name in durable::list(&folder)?.iter().filter(|name| !name.starts_with(TEMP_PREFIX)) {
        let path = folder.join(name);
        match planned.get(&path) {
            None => {
                problems.push(format!("{CELL_FOLDER}/{} is the file of no planned cell", name.escape_debug()));
            }
            Some(id) => match cell_file::read(&path, id) {
                Err(StoreError::Damaged { what, .. }) => problems.push(format!("{CELL_FOLDER}/{name} {what}")),
                Err(e) => return Err(e),
                Ok(_) => {}
            },
        }
    }
    Ok(problems)
}
