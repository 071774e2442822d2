use std::io::{Cursor, Write};
use std::path::Path;

use polars_core::prelude::{DataFrame, DataType, IntoColumn, NamedFrom, Series};
use polars_io::SerReader;
use polars_io::parquet::read::{ParallelStrategy, ParquetReader};
use polars_io::parquet::write::{BatchedWriter, ParquetCompression, ParquetWriter};
use skewbench_config::shielded;

use super::{Column, ColumnType, StrColumn, Table, pages};
use crate::{StoreError, durable};

/// Rows of every row group but the last: fixed, so that equal content has equal bytes however it was put together.
const ROW_GROUP: usize = 1 << 17;
/// Largest Parquet file that is read.
const MAX_FILE_BYTES: u64 = 1 << 36;

/// Writes a table to Parquet piece by piece with the memory of one row group.
pub struct TableWriter<W: Write> {
    writer: BatchedWriter<W>,
    pending: Table,
}

impl<W: Write + Send> TableWriter<W> {
    /// Starts a file of the given columns.
    ///
    /// # Errors
    /// No columns, bad names, or what the writer reports.
    pub fn new(to: W, schema: &[(String, ColumnType)]) -> Result<Self, StoreError> {
        let pending = Table::empty(schema.iter().cloned())?;
        if schema.is_empty() {
            return Err(StoreError::Table("a table without columns cannot be written".to_owned()));
        }
        let frame = to_frame(&pending)?;
        let writer = ParquetWriter::new(to)
            .with_compression(ParquetCompression::Zstd(None))
            .batched(frame.schema())
            .map_err(failed)?;
        Ok(Self { writer, pending })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Another schema than the file's, or what the writer reports.
    pub fn append(&mut self, table: &Table) -> Result<(), StoreError> {
        self.pending.append(table)?;
        let full = self.pending.rows() / ROW_GROUP * ROW_GROUP;
        for start in (0..full).step_by(ROW_GROUP) {
            self.write_group(start, start + ROW_GROUP)?;
        }
        if full > 0 {
            self.pending = self.pending.slice(full, self.pending.rows());
        }
        Ok(())
    }

    /// Writes what is left and the footer.
    ///
    /// # Errors
    /// What the writer reports.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if self.pending.rows() > 0 {
            self.write_group(0, self.pending.rows())?;
        }
        self.writer.finish().map_err(failed).map(|_| ())
    }

    fn write_group(&mut self, start: usize, end: usize) -> Result<(), StoreError> {
        let frame = to_frame(&self.pending.slice(start, end))?;
        self.writer.write_batch(&frame).map_err(failed)
    }
}

impl Table {
    /// Writes the table as Parquet: zstd, fixed row groups, no dates; equal tables give equal bytes.
    ///
    /// # Errors
    /// A table without columns, or what the writer reports.
    pub fn write_parquet(&self, to: impl Write + Send) -> Result<(), StoreError> {
        let mut writer = TableWriter::new(to, &self.schema())?;
        writer.append(self)?;
        writer.finish()
    }

    /// Writes the table to a Parquet file, atomically and durably.
    ///
    /// # Errors
    /// Names the file and the cause.
    pub fn save_parquet(&self, path: &Path) -> Result<(), StoreError> {
        durable::write_with(path, |w| self.write_parquet(w).map_err(|e| at(path, e)))
    }

    /// Reads a Parquet file that this crate wrote. The file is not trusted.
    ///
    /// # Errors
    /// Names the file and what is wrong with it: torn, altered, nulls, types that tables do not have.
    pub fn load_parquet(path: &Path) -> Result<Self, StoreError> {
        Self::parse_parquet(durable::read(path, MAX_FILE_BYTES)?, path)
    }

    /// Reads a Parquet file from memory; `file` names it in errors.
    ///
    /// # Errors
    /// As [`load_parquet`](Self::load_parquet).
    pub fn parse_parquet(bytes: Vec<u8>, file: &Path) -> Result<Self, StoreError> {
        read_parquet_columns(&bytes, file, None)
    }
}

/// Reads the named columns, or all.
pub(crate) fn read_parquet_columns(bytes: &[u8], file: &Path, columns: Option<&[&str]>) -> Result<Table, StoreError> {
    let mut table = Table::new();
    visit_parquet_columns(bytes, file, columns, |name, column| table.add(name, column).map_err(|e| e.to_string()))?;
    Ok(table)
}

/// Reads the named columns, or all, one after another: beside the file, memory holds one column and what `visit` keeps.
pub(crate) fn visit_parquet_columns(
    bytes: &[u8],
    file: &Path,
    columns: Option<&[&str]>,
    mut visit: impl FnMut(&str, Column) -> Result<(), String>,
) -> Result<(), StoreError> {
    shielded(|| {
        let reader = || ParquetReader::new(Cursor::new(bytes)).read_parallel(ParallelStrategy::None);
        let mut first = reader();
        let metadata = first.get_metadata().map_err(|e| e.to_string())?.clone();
        let groups = &metadata.row_groups;
        for group in groups {
            if group.num_rows() > ROW_GROUP {
                return Err(format!("has {} rows in a row group; tables have {ROW_GROUP}", group.num_rows()));
            }
            for column in group.parquet_columns() {
                let range = column.byte_range();
                let chunk = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
                let chunk =
                    chunk.and_then(|(start, end)| bytes.get(start..end)).ok_or("a column lies outside the file")?;
                if usize::try_from(column.num_values()).ok() != Some(group.num_rows()) {
                    return Err("the columns of a row group have different lengths".to_owned());
                }
                pages::check(chunk, group.num_rows())?;
            }
        }
        let rows = groups.iter().try_fold(0usize, |n, group| n.checked_add(group.num_rows()));
        if rows != Some(metadata.num_rows) {
            return Err("its row groups do not have the rows that it claims".to_owned());
        }
        let names: Vec<String> = match columns {
            Some(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            None => first.schema().map_err(|e| e.to_string())?.iter_names().map(|name| name.to_string()).collect(),
        };
        for name in names {
            let mut one = reader().with_columns(Some(vec![name.clone()]));
            one.set_metadata(metadata.clone());
            let frame = one.finish().map_err(|e| e.to_string())?;
            let [column] = frame.columns() else { return Err(format!("column {name} cannot be told from others")) };
            let column = from_series(column.as_materialized_series())?;
            if Some(column.len()) != rows {
                return Err(format!("column {name} has {} rows", column.len()));
            }
            drop(frame);
            visit(&name, column)?;
        }
        Ok(())
    })
    .map_err(|why| format!("is not a valid parquet file: {why}"))
    .flatten()
    .map_err(|what| StoreError::damaged(file, what))
}

fn failed(error: polars_core::prelude::PolarsError) -> StoreError {
    StoreError::Table(format!("cannot write parquet: {error}"))
}

pub(crate) fn at(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Table(what) => StoreError::damaged(path, what),
        other => other,
    }
}

fn to_frame(table: &Table) -> Result<DataFrame, StoreError> {
    let series = table.columns().map(|(name, column)| {
        let name = name.into();
        match column {
            Column::U32(v) => Series::new(name, v),
            Column::U64(v) => Series::new(name, v),
            Column::F64(v) => Series::new(name, v),
            Column::Str(v) => Series::new(name, v.iter().collect::<Vec<_>>()),
            Column::Bool(v) => Series::new(name, v),
        }
        .into_column()
    });
    DataFrame::new(table.rows(), series.collect()).map_err(failed)
}

fn from_series(series: &Series) -> Result<Column, String> {
    let name = series.name().as_str();
    if series.null_count() > 0 {
        return Err(format!("column {name} has {} missing values", series.null_count()));
    }
    let text = |e: polars_core::prelude::PolarsError| e.to_string();
    Ok(match series.dtype() {
        DataType::UInt32 => Column::U32(series.u32().map_err(text)?.into_no_null_iter().collect()),
        DataType::UInt64 => Column::U64(series.u64().map_err(text)?.into_no_null_iter().collect()),
        DataType::Float64 => Column::F64(series.f64().map_err(text)?.into_no_null_iter().collect()),
        DataType::Boolean => Column::Bool(series.bool().map_err(text)?.iter().flatten().collect()),
        DataType::String => Column::Str(series.str().map_err(text)?.iter().flatten().collect::<StrColumn>()),
        other => return Err(format!("column {name} is {other}; tables hold u32, u64, f64, strings and flags")),
    })
}
