use std::io::{Read, Write};
use std::path::Path;

use super::{Column, ColumnType, Table};
use crate::{StoreError, durable};

impl Table {
    /// Writes the table as CSV with a header line. Numbers are written so that reading gives back the same bits.
    ///
    /// # Errors
    /// What the writer reports, as text of the [`StoreError::Table`] variant.
    pub fn write_csv(&self, to: impl Write) -> Result<(), StoreError> {
        let failed = |e: csv::Error| StoreError::Table(format!("cannot write csv: {e}"));
        let mut writer = csv::WriterBuilder::new().from_writer(to);
        writer.write_record(self.columns().map(|(name, _)| name)).map_err(failed)?;
        for row in 0..self.rows() {
            writer.write_record(self.columns().map(|(_, column)| text(column, row))).map_err(failed)?;
        }
        writer.flush().map_err(|e| failed(e.into()))
    }

    /// Writes the table to a CSV file, atomically and durably.
    ///
    /// # Errors
    /// Names the file and the system's reason.
    pub fn save_csv(&self, path: &Path) -> Result<(), StoreError> {
        durable::write_with(path, |w| self.write_csv(w).map_err(|e| StoreError::damaged(path, e)))
    }

    /// Reads CSV whose header is exactly the names of `schema`. `file` names the source in errors.
    ///
    /// # Errors
    /// Names file, line and column of what cannot be read.
    pub fn read_csv(from: impl Read, file: &Path, schema: &[(&str, ColumnType)]) -> Result<Self, StoreError> {
        let mut reader = csv::ReaderBuilder::new().has_headers(true).from_reader(from);
        let header = reader.headers().map_err(|e| StoreError::damaged(file, e))?;
        if !header.iter().eq(schema.iter().map(|(name, _)| *name)) {
            let wanted: Vec<_> = schema.iter().map(|(name, _)| *name).collect();
            let found: Vec<_> = header.iter().collect();
            return Err(StoreError::damaged(
                file,
                format!("columns are {}, not {}", found.join(","), wanted.join(",")),
            ));
        }
        let mut columns: Vec<Column> = schema.iter().map(|(_, of)| Column::empty(*of)).collect();
        for record in reader.records() {
            let record = record.map_err(|e| StoreError::damaged(file, e))?;
            for ((field, column), (name, _)) in record.iter().zip(&mut columns).zip(schema) {
                push(column, field).ok_or_else(|| {
                    let line = record.position().map_or(0, csv::Position::line);
                    StoreError::damaged(
                        file,
                        format!("line {line}: {name} is {field:?}, not {:?}", column.column_type()),
                    )
                })?;
            }
        }
        Self::from_columns(schema.iter().map(|(name, _)| *name).zip(columns)).map_err(|e| StoreError::damaged(file, e))
    }
}

fn text(column: &Column, row: usize) -> String {
    match column {
        Column::U32(v) => v.get(row).map(ToString::to_string),
        Column::U64(v) => v.get(row).map(ToString::to_string),
        Column::F64(v) => v.get(row).map(ToString::to_string),
        Column::Str(v) => v.get(row).map(str::to_owned),
        Column::Bool(v) => v.get(row).map(ToString::to_string),
    }
    .unwrap_or_default()
}

fn push(column: &mut Column, field: &str) -> Option<()> {
    match column {
        Column::U32(v) => v.push(field.parse().ok()?),
        Column::U64(v) => v.push(field.parse().ok()?),
        Column::F64(v) => v.push(field.parse().ok()?),
        Column::Str(v) => v.push(field),
        Column::Bool(v) => v.push(field.parse().ok()?),
    }
    Some(())
}
