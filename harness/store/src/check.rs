use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use crate::durable::{self, TEMP_PREFIX};
use crate::run::{
    CELL_FOLDER, CHECKSUMS, Checksums, EVENTS, FAILURES, LOCK, MANIFEST, Manifest, PLANNED_CELLS, TIMINGS,
    WORKER_FOLDER, damaged_cells, file_sum, kind_of,
};
use crate::{CellStatus, Run, RunStatus, StoreError, units};

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// How far the run is.
    pub status: RunStatus,
    /// Planned cells.
    pub planned: usize,
    /// Finished cells.
    pub finished: usize,
    /// Failed cells.
    pub failed: usize,
    /// Files whose checksum was compared.
    pub files: usize,
    /// Rows of all tables.
    pub rows: usize,
    /// Everything that is wrong; empty for a sound run.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// True when nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks a run folder: schema version, checksums of all sealed files, planned = finished + failed, readable tables, known
/// units, no torn cell, no foreign file.
///
/// # Errors
/// Only when the folder is not a run of this schema version or cannot be read; all else is in the report.
pub fn check(dir: &Path) -> Result<CheckReport, StoreError> {
    let manifest = Manifest::read(dir)?;
    let mut report = CheckReport {
        status: manifest.status,
        planned: manifest.planned,
        finished: 0,
        failed: 0,
        files: 0,
        rows: 0,
        problems: Vec::new(),
    };
    let mut known: BTreeSet<String> =
        [MANIFEST, TIMINGS, EVENTS, PLANNED_CELLS, FAILURES, CHECKSUMS, LOCK].map(str::to_owned).into();
    if manifest.status == RunStatus::Complete {
        match check_sums(dir, &mut report) {
            Ok(names) => known.extend(names),
            Err(e) => report.problems.push(e.to_string()),
        }
    } else {
        known.extend([CELL_FOLDER, WORKER_FOLDER].map(str::to_owned));
        // Sealing may have been interrupted.
        known.extend(durable::list(dir)?.into_iter().filter(|name| kind_of(name).is_some()));
        report.problems.push("the run is not finished; run the same command again to resume it".to_owned());
    }
    if let Err(e) = check_content(dir, &manifest, &mut report) {
        report.problems.push(e.to_string());
    }
    let foreign =
        durable::list(dir)?.into_iter().filter(|name| !known.contains(name) && !name.starts_with(TEMP_PREFIX));
    report.problems.extend(foreign.map(|name| format!("{name} is not part of the run")));
    Ok(report)
}

fn check_sums(dir: &Path, report: &mut CheckReport) -> Result<Vec<String>, StoreError> {
    let sums: Checksums = durable::read_json(&dir.join(CHECKSUMS))?;
    for (name, expected) in &sums {
        report.files += 1;
        if name != PLANNED_CELLS && name != FAILURES && kind_of(name).is_none() {
            report.problems.push(format!("{CHECKSUMS} lists {name}, which is not a file of a run"));
            continue;
        }
        match file_sum(&dir.join(name)) {
            Ok(found) if found == *expected => {}
            Ok(_) => report.problems.push(format!("{name} is not the file that was sealed")),
            Err(e) => report.problems.push(e.to_string()),
        }
    }
    Ok(sums.into_keys().collect())
}

fn check_content(dir: &Path, manifest: &Manifest, report: &mut CheckReport) -> Result<(), StoreError> {
    let run = Run::load(dir)?;
    report.finished = run.cells.iter().filter(|c| c.status == CellStatus::Finished).count();
    report.failed = run.failures().count();
    let missing = run.cells.len() - report.finished - report.failed;
    let sealed = manifest.status == RunStatus::Complete;
    if run.cells.len() != manifest.planned
        || (sealed && (manifest.finished, manifest.failed) != (report.finished, report.failed))
    {
        report.problems.push(format!(
            "the manifest counts {} planned, {} finished and {} failed cells; the files hold {}, {} and {}",
            manifest.planned,
            manifest.finished,
            manifest.failed,
            run.cells.len(),
            report.finished,
            report.failed
        ));
    }
    if !sealed {
        report.problems.extend(damaged_cells(dir, &run.cells)?);
    }
    if missing > 0 {
        report.problems.push(format!("{missing} of {} planned cells have no whole result", run.cells.len()));
    }
    if blake3::hash(manifest.experiment.as_bytes()).to_hex().as_str() != manifest.experiment_hash {
        report.problems.push("the manifest's experiment does not have the hash beside it".to_owned());
    }
    let ids: BTreeSet<&str> = run.cells.iter().map(|c| c.id.as_str()).collect();
    for kind in run.kinds()? {
        let table = match run.table(&kind) {
            Ok(table) => table,
            Err(e) => {
                report.problems.push(e.to_string());
                continue;
            }
        };
        report.rows += table.rows();
        report.problems.extend(units::unknown_units(&table).into_iter().map(|what| format!("{kind}: {what}")));
        match table.str("cell") {
            Ok(cells) => {
                let unknown = cells.distinct().iter().filter(|id| !ids.contains(id.as_str()));
                report.problems.extend(unknown.map(|id| format!("{kind}: cell {id} is not planned")));
            }
            Err(e) => report.problems.push(format!("{kind}: {e}")),
        }
    }
    Ok(())
}
