//! Turns a finished run back into per-cell files, so that its failed cells can be computed again.

use std::path::Path;

use super::cell_file::{self, Outcome};
use super::{CELL_FOLDER, Cell, CellStatus, Run, cell_path};
use crate::{StoreError, durable};

/// Writes the file of every finished cell. The manifest still says complete, so a process killed meanwhile has changed nothing.
pub(super) fn reopen(dir: &Path, cells: &[Cell]) -> Result<(), StoreError> {
    durable::create_folder(&dir.join(CELL_FOLDER))?;
    let data = Run::load(dir)?;
    let timings = data.timings()?;
    let mut tables = Vec::new();
    for kind in data.kinds()? {
        let table = data.table(&kind)?;
        let ids = table.str("cell")?.clone();
        tables.push((kind, ids, table.without("cell"), 0));
    }
    for (cell, record) in cells.iter().zip(&data.cells) {
        // Rows are in planned order, so those of one cell follow those of the cell before it.
        let mut own = Vec::new();
        for (kind, ids, table, next) in &mut tables {
            let start = *next;
            while ids.get(*next) == Some(cell.id.as_str()) {
                *next += 1;
            }
            own.push((kind.clone(), table.slice(start, *next)));
        }
        if record.status == CellStatus::Finished {
            let timings = timings.get(&cell.id).cloned().unwrap_or_default();
            let outcome = Outcome::Finished { tables: own, timings };
            cell_file::write(&cell_path(dir, &cell.id), &cell.id, &outcome)?;
        }
    }
    Ok(())
}
