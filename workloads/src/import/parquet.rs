use std::io::SeekFrom;
use std::path::Path;
use std::sync::Arc;

use polars_core::error::PolarsResult;
use polars_core::prelude::{ArrowDataType, Column, DataFrame, DataType};
use polars_io::SerReader;
use polars_io::mmap::MmapBytesReader;
use polars_io::parquet::metadata::FileMetadataRef;
use polars_io::parquet::read::{ParallelStrategy, ParquetReader, infer_schema};
use skewbench_config::shielded;

use super::error::ImportError;
use super::intake::Intake;
use super::jsonl::missing;
use super::length;
use super::options::{Lists, ReadOptions};
use super::pages;

/// Rows decoded at a time.
const ROWS: usize = 1 << 17;

/// Reads the wanted column, some rows at a time.
pub(crate) fn read(
    mut reader: impl MmapBytesReader,
    file: &Path,
    options: &ReadOptions,
    intake: &mut Intake<'_>,
) -> Result<(), ImportError> {
    let size = check_ends(&mut reader, file)?;
    let (metadata, schema) = guard(file, || {
        let metadata = open(&mut reader)?;
        let schema = infer_schema(&metadata)?;
        Ok((metadata, schema))
    })?;
    let names: Vec<String> = schema.iter_names().map(ToString::to_string).collect();
    let fields = options.fields();
    let field = fields
        .iter()
        .find(|field| names.iter().any(|n| n == *field))
        .ok_or_else(|| ImportError::file(file, missing("column", &fields, &names)))?;
    if names.iter().filter(|name| name == field).count() > 1 {
        return Err(ImportError::file(file, format!("there are several columns {field:?}; rename all but one")));
    }
    if let Some(unread) = schema.get(field).map(|f| &f.dtype).filter(|kind| !is_read(kind)) {
        let what = "save it as integers of 32 or 64 bits, lists of these, or texts";
        return Err(ImportError::file(file, format!("the column {field:?} is of type {unread:?}; {what}")));
    }
    guard(file, || Ok(pages::check(&mut reader, size, &metadata, field)))?.map_err(|why| bad(file, &why))?;
    let rows = metadata.num_rows;
    let mut first = 0;
    let mut group_end = 0;
    let mut groups = metadata.row_groups.iter();
    while first < rows {
        // A slice that ends with its row group never decodes a group twice for its last rows.
        while group_end <= first {
            match groups.next() {
                Some(group) => group_end += group.num_rows(),
                None => return Err(ImportError::file(file, "row groups hold fewer rows than the file promises")),
            }
        }
        let count = ROWS.min(group_end - first).min(rows - first);
        let frame = guard(file, || rows_of(&mut reader, &metadata, &[field], first, count))?;
        let column = frame.column(field).map_err(|e| bad(file, &e.to_string()))?;
        if column.len() != count {
            return Err(bad(file, &format!("rows {} to {} cannot be read", first + 1, first + count)));
        }
        take(column, first as u64, file, options, intake)?;
        first += count;
        intake.bytes((size as f64 * count as f64 / rows as f64) as u64);
    }
    Ok(())
}

/// True of types that this build of the decoder has.
fn is_read(kind: &ArrowDataType) -> bool {
    use ArrowDataType as T;
    match kind {
        T::Int32 | T::Int64 | T::UInt32 | T::UInt64 | T::Float32 | T::Float64 => true,
        T::Utf8 | T::LargeUtf8 | T::Utf8View => true,
        T::List(item) | T::LargeList(item) => is_read(&item.dtype),
        _ => false,
    }
}

/// Metadata of the file, its key-value pairs left out. Among them is the Arrow schema of the writer, which asks for
/// types, dictionaries above all, that this build of the decoder does not have; Parquet's own types say enough.
pub(crate) fn open(reader: &mut impl MmapBytesReader) -> PolarsResult<FileMetadataRef> {
    let mut metadata = ParquetReader::new(reader).get_metadata()?.as_ref().clone();
    metadata.key_value_metadata = None;
    Ok(Arc::new(metadata))
}

/// `count` rows of these columns.
pub(crate) fn rows_of(
    reader: &mut impl MmapBytesReader,
    metadata: &FileMetadataRef,
    columns: &[&str],
    first: usize,
    count: usize,
) -> PolarsResult<DataFrame> {
    let mut parquet = ParquetReader::new(reader)
        .with_slice(Some((first, count)))
        .with_columns(Some(columns.iter().map(ToString::to_string).collect()))
        .read_parallel(ParallelStrategy::None);
    parquet.set_metadata(metadata.clone());
    parquet.finish()
}

fn bad(file: &Path, why: &str) -> ImportError {
    ImportError::file(file, format!("not a Parquet file that can be read: {why}"))
}

/// Both ends of a Parquet file carry its magic number; a copy that was cut short lacks the second.
fn check_ends(reader: &mut impl MmapBytesReader, file: &Path) -> Result<u64, ImportError> {
    let mut check = || -> std::io::Result<(u64, [u8; 4], [u8; 4])> {
        let (mut head, mut tail) = ([0; 4], [0; 4]);
        let size = reader.seek(SeekFrom::End(0))?;
        if size >= 12 {
            reader.seek(SeekFrom::Start(0))?;
            reader.read_exact(&mut head)?;
            reader.seek(SeekFrom::End(-4))?;
            reader.read_exact(&mut tail)?;
        }
        reader.seek(SeekFrom::Start(0))?;
        Ok((size, head, tail))
    };
    match check().map_err(|e| ImportError::read(file, &e))? {
        (size, head, tail) if &head == b"PAR1" && &tail == b"PAR1" => Ok(size),
        (_, head, _) if &head == b"PAR1" => {
            Err(ImportError::file(file, "the Parquet file is truncated; copy it again"))
        }
        _ => Err(ImportError::file(file, "not a Parquet file; rename it to what it is")),
    }
}

/// Runs the decoder. It trusts metadata in places: a damaged file may make it panic instead of returning an error.
fn guard<T>(file: &Path, decode: impl FnOnce() -> PolarsResult<T>) -> Result<T, ImportError> {
    let result = shielded(decode).map_err(|why| bad(file, &format!("it is damaged: {why}")))?;
    result.map_err(|e| bad(file, &e.to_string()))
}

fn take(
    column: &Column,
    first: u64,
    file: &Path,
    options: &ReadOptions,
    intake: &mut Intake<'_>,
) -> Result<(), ImportError> {
    let error = |row: usize, what: String| ImportError::row(file, first + row as u64 + 1, what);
    let cast = |to: &DataType| guard(file, || column.cast(to));
    let wants_text = intake.counter().is_some();
    let null = || "the length is null; fill or leave out the row".to_owned();
    match column.dtype() {
        DataType::String if wants_text => {
            let texts = column.str().map_err(|e| bad(file, &e.to_string()))?;
            for text in texts.iter() {
                intake.text(text.unwrap_or_default().to_owned())?;
            }
        }
        DataType::String => {
            return Err(error(0, "the column holds texts; give a tokenizer.json, or name a column of lengths".into()));
        }
        _ if wants_text => {
            return Err(error(0, "the column holds no texts; leave the tokenizer out".into()));
        }
        DataType::List(_) => {
            let lists = column.list().map_err(|e| bad(file, &e.to_string()))?;
            for (row, list) in lists.amortized_iter().enumerate() {
                let list = list.as_ref().map(|l| l.as_ref());
                match list {
                    Some(list) if !list.is_empty() => match options.lists {
                        Lists::Tokens => intake.length(list.len() as u64)?,
                        Lists::Lengths => {
                            let items = guard(file, || list.cast(&DataType::Int64))?;
                            for item in items.i64().map_err(|e| bad(file, &e.to_string()))?.iter() {
                                let length = item.ok_or_else(null).and_then(|v| length::from_i128(v.into()));
                                intake.length(length.map_err(|what| error(row, what))?)?;
                            }
                        }
                    },
                    _ => intake.skipped_empty += 1,
                }
            }
        }
        DataType::Float32 | DataType::Float64 => {
            let column = cast(&DataType::Float64)?;
            let values = column.f64().map_err(|e| bad(file, &e.to_string()))?;
            for (row, value) in values.iter().enumerate() {
                let length = value.ok_or_else(null).and_then(length::from_f64);
                intake.length(length.map_err(|what| error(row, what))?)?;
            }
        }
        kind if kind.is_unsigned_integer() => {
            let column = cast(&DataType::UInt64)?;
            let values = column.u64().map_err(|e| bad(file, &e.to_string()))?;
            for (row, value) in values.iter().enumerate() {
                let length = value.ok_or_else(null).and_then(length::from_u64);
                intake.length(length.map_err(|what| error(row, what))?)?;
            }
        }
        kind if kind.is_integer() => {
            let column = cast(&DataType::Int64)?;
            let values = column.i64().map_err(|e| bad(file, &e.to_string()))?;
            for (row, value) in values.iter().enumerate() {
                let length = value.ok_or_else(null).and_then(|v| length::from_i128(v.into()));
                intake.length(length.map_err(|what| error(row, what))?)?;
            }
        }
        kind => {
            return Err(error(0, format!("the column is of type {kind}; name one of integers, lists or texts")));
        }
    }
    Ok(())
}
