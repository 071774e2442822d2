use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::cell_file::{self, Outcome};
use super::share::{remove_worker_files, removed};
use super::{
    CELL_FOLDER, CELL_SUFFIX, CHECKSUMS, Checksums, FAILURES, Manifest, PLANNED_CELLS, Run, RunStatus, TIMINGS,
    cell_path, file_sum, table_path,
};
use crate::durable::{self, Pending};
use crate::table::at;
use crate::{StoreError, TableWriter};

impl Run {
    /// Merges the tables of all cells, in planned order and with a leading `cell` column, into one Parquet file a kind; records
    /// checksums; marks the run complete; removes per-cell files. A finished run is left as it is.
    ///
    /// # Errors
    /// [`StoreError::Incomplete`] when planned cells have no result, or what the system reports.
    pub fn seal(self) -> Result<Manifest, StoreError> {
        let dir = self.dir.clone();
        match self.seal_here() {
            // Another process sealed it meanwhile, and removed the files of the cells.
            Err(e) => sealed(&dir).ok().flatten().ok_or(e),
            done => done,
        }
    }

    fn seal_here(mut self) -> Result<Manifest, StoreError> {
        if let Some(manifest) = sealed(&self.dir)? {
            self.tidy_up()?;
            return Ok(manifest);
        }
        // A cell that failed may have a result by now, or none while it is tried again.
        self.look_at_failures()?;
        let missing = self.pending().len();
        if missing > 0 {
            return Err(StoreError::Incomplete { dir: self.dir.clone(), missing, planned: self.cells.len() });
        }
        let (failures, timings) = self.merge()?;
        let (finished, failed) = (timings.len(), failures.len());
        // A process that was stopped for long finds the run sealed by another, who had all that it lacks now.
        if let Some(manifest) = sealed(&self.dir)? {
            return Ok(manifest);
        }
        self.merge_workers()?;
        durable::write_json(&self.dir.join(FAILURES), &failures)?;
        let timings = json!({ "sealed": jiff::Timestamp::now().to_string(), "cells": timings });
        durable::write_json(&self.dir.join(TIMINGS), &timings)?;
        let kinds: Vec<String> = self.state().schemas.keys().cloned().collect();
        let shared = kinds.iter().map(|kind| table_path(&self.dir, kind));
        let shared = shared.chain([self.dir.join(PLANNED_CELLS), self.dir.join(FAILURES)]);
        let sums: Checksums = shared
            .map(|path| {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                Ok((name, file_sum(&path)?))
            })
            .collect::<Result<_, StoreError>>()?;
        durable::write_json(&self.dir.join(CHECKSUMS), &sums)?;
        if let Some(manifest) = sealed(&self.dir)? {
            return Ok(manifest);
        }
        let manifest = Manifest { status: RunStatus::Complete, finished, failed, ..self.manifest.clone() };
        manifest.write(&self.dir)?;
        self.tidy_up()?;
        self.event("sealed", &json!({ "finished": manifest.finished, "failed": manifest.failed }))?;
        Ok(manifest)
    }

    /// Writes the table files in one pass over the cells.
    fn merge(&self) -> Result<(Vec<Value>, BTreeMap<String, Value>), StoreError> {
        let schemas = self.state().schemas.clone();
        let mut files =
            schemas.keys().map(|kind| Pending::create(&table_path(&self.dir, kind))).collect::<Result<Vec<_>, _>>()?;
        let mut failures = Vec::new();
        let mut timings = BTreeMap::new();
        {
            let mut writers = BTreeMap::new();
            for ((kind, schema), file) in schemas.iter().zip(&mut files) {
                let mut schema = schema.clone();
                schema.insert(0, ("cell".to_owned(), crate::ColumnType::Str));
                let path = file.path().to_owned();
                writers
                    .insert(kind.as_str(), (TableWriter::new(file.writer(), &schema).map_err(|e| at(&path, e))?, path));
            }
            for cell in &self.cells {
                match cell_file::read(&cell_path(&self.dir, &cell.id), &cell.id)? {
                    Outcome::Failed { reason } => {
                        failures.push(json!({ "cell": cell.id, "coordinates": cell.coordinates, "reason": reason }));
                    }
                    Outcome::Finished { tables, timings: spent } => {
                        timings.insert(cell.id.to_string(), json!(spent));
                        for (kind, table) in tables {
                            let (writer, path) = writers.get_mut(kind.as_str()).ok_or_else(|| StoreError::Cell {
                                cell: cell.id.to_string(),
                                what: format!("table {kind} appeared after the run was opened"),
                            })?;
                            writer.append(&table.with_leading("cell", cell.id.as_str())?).map_err(|e| at(path, e))?;
                        }
                    }
                }
            }
            for (writer, path) in writers.into_values() {
                writer.finish().map_err(|e| at(&path, e))?;
            }
        }
        for file in files {
            file.commit()?;
        }
        Ok((failures, timings))
    }

    /// Removes what a process may have left that was killed after it sealed the run; others may do so at the same time.
    pub(super) fn tidy_up(&self) -> Result<(), StoreError> {
        match self.remove_cell_files() {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn remove_cell_files(&self) -> Result<(), StoreError> {
        remove_worker_files(&self.dir)?;
        let folder = self.dir.join(CELL_FOLDER);
        if !folder.exists() {
            return Ok(());
        }
        durable::sweep(&folder)?;
        for name in durable::list(&folder)?.iter().filter(|name| name.ends_with(CELL_SUFFIX)) {
            let path = folder.join(name);
            removed(&path, fs::remove_file(&path))?;
        }
        // Files that are not ours stay, and so does the folder; the check reports it.
        if durable::list(&folder)?.is_empty() {
            removed(&folder, fs::remove_dir(&folder))?;
        }
        durable::sync_folder(&self.dir)
    }
}

/// The manifest of a run that is sealed.
pub(super) fn sealed(dir: &Path) -> Result<Option<Manifest>, StoreError> {
    let manifest = Manifest::read(dir)?;
    Ok((manifest.status == RunStatus::Complete).then_some(manifest))
}
