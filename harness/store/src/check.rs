use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde::Serialize;

use crate::durable;
use crate::run::{
    CHECKSUMS, CellRecord, Checksums, FAILURES, Manifest, PLANNED_CELLS, damaged_cells, file_sum, kind_of, strangers,
};
use crate::{CellStatus, Column, ColumnType, Run, RunData, RunStatus, StoreError, StrColumn, units};

/// Problems of one kind of a table that are named.
const MOST_PROBLEMS: usize = 16;

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
    let mut sealed = Vec::new();
    if manifest.status == RunStatus::Complete {
        match check_sums(dir, &mut report) {
            Ok(names) => sealed = names,
            Err(e) => report.problems.push(e.to_string()),
        }
    } else {
        report.problems.push("the run is not finished; run the same command again to resume it".to_owned());
    }
    if let Err(e) = check_content(dir, &manifest, &mut report) {
        report.problems.push(e.to_string());
    }
    report.problems.extend(strangers(dir, manifest.status, sealed.iter())?);
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
    if sealed { check_sealed(&run, report) } else { check_cells(&run, report) }
}

/// The tables of a sealed run, a column at a time.
fn check_sealed(run: &RunData, report: &mut CheckReport) -> Result<(), StoreError> {
    for kind in run.kinds()? {
        let mut schema = Vec::new();
        let mut rows = 0;
        let mut problems = Vec::new();
        let seen = run.visit_sealed(&kind, |name, column| {
            rows = column.len();
            schema.push((name.to_owned(), column.column_type()));
            match (name, &column) {
                ("unit", Column::Str(units)) => problems.extend(units::unknown_names(units)),
                ("cell", Column::Str(cells)) => problems.extend(wrong_order(cells, &run.cells)),
                _ => {}
            }
            Ok(())
        });
        if let Err(e) = seen {
            report.problems.push(e.to_string());
            continue;
        }
        if schema.first().is_none_or(|first| *first != ("cell".to_owned(), ColumnType::Str)) {
            problems.push("its first column is not cell".to_owned());
        }
        problems.extend(units::unknown_columns(&schema));
        report.rows += rows;
        report.problems.extend(problems.into_iter().map(|what| format!("{kind}: {what}")));
    }
    Ok(())
}

/// What tells rows of a merged table that were duplicated, swapped or added: cells stand in planned order, each once, and
/// those that failed have none.
fn wrong_order(cells: &StrColumn, planned: &[CellRecord]) -> Vec<String> {
    let places: HashMap<&str, usize> = planned.iter().enumerate().map(|(i, c)| (c.id.as_str(), i)).collect();
    let mut problems = Vec::new();
    let (mut last_code, mut next) = (None, 0);
    for (row, code) in cells.codes().iter().enumerate() {
        if last_code == Some(code) {
            continue;
        }
        last_code = Some(code);
        let id = cells.get(row).unwrap_or_default();
        match places.get(id) {
            None => problems.push(format!("cell {id} is not planned")),
            Some(place) if planned.get(*place).is_some_and(|c| matches!(c.status, CellStatus::Failed { .. })) => {
                problems.push(format!("cell {id} failed and has rows from row {row}"));
            }
            Some(place) if *place < next => {
                problems.push(format!("rows of cell {id} stand twice or out of order, from row {row}"));
            }
            Some(place) => next = place + 1,
        }
        // A shuffled table would be reported row by row.
        if problems.len() == MOST_PROBLEMS {
            problems.push("and more of the kind".to_owned());
            break;
        }
    }
    problems
}

/// The tables of the cells of an unfinished run, a cell at a time.
fn check_cells(run: &RunData, report: &mut CheckReport) -> Result<(), StoreError> {
    let mut schemas: BTreeMap<String, Vec<(String, ColumnType)>> = BTreeMap::new();
    let mut problems = BTreeSet::new();
    for cell in run.cells.iter().filter(|cell| cell.status == CellStatus::Finished) {
        for (kind, table) in run.cell_tables(&cell.id)?.unwrap_or_default() {
            report.rows += table.rows();
            problems.extend(units::unknown_units(&table).into_iter().map(|what| format!("{kind}: {what}")));
            let schema = table.schema();
            if *schemas.entry(kind.clone()).or_insert_with(|| schema.clone()) != schema {
                problems.insert(format!("{kind}: cell {} has other columns than those before it", cell.id));
            }
        }
    }
    report.problems.extend(problems);
    Ok(())
}
