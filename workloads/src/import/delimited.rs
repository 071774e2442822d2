use std::io::{BufRead, Read};
use std::path::Path;

use super::error::ImportError;
use super::intake::Intake;
use super::jsonl::missing;
use super::length;
use super::options::ReadOptions;

/// Longest line that is taken into memory.
const MAX_LINE: u64 = 1 << 30;

/// The bytes of a text in UTF-8 after its byte order mark, if it has one.
pub(crate) fn unmarked<R: BufRead>(mut reader: R, file: &Path) -> Result<R, ImportError> {
    let start = reader.fill_buf().map_err(|e| ImportError::read(file, &e))?;
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") {
        return Err(ImportError::file(file, "the text is UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"));
    }
    let mark = if start.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    reader.consume(mark);
    Ok(reader)
}

/// Reads a line with its end into `line`; false at the end of the file.
pub(crate) fn read_line(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    file: &Path,
    number: u64,
) -> Result<bool, ImportError> {
    line.clear();
    let count = reader.take(MAX_LINE).read_until(b'\n', line).map_err(|e| ImportError::read(file, &e))?;
    if count as u64 == MAX_LINE {
        return Err(ImportError::line(file, number, "the line is longer than 1 GiB; is this the right format?"));
    }
    Ok(count > 0)
}

/// Reads one whole number a line; blank lines are allowed.
pub(crate) fn read_lines(reader: impl BufRead, file: &Path, intake: &mut Intake<'_>) -> Result<(), ImportError> {
    let mut reader = unmarked(reader, file)?;
    let mut line = Vec::new();
    let mut number = 0;
    while read_line(&mut reader, &mut line, file, number + 1)? {
        number += 1;
        intake.bytes(line.len() as u64);
        if !line.trim_ascii().is_empty() {
            intake.length(length::from_text(&line).map_err(|what| ImportError::line(file, number, what))?)?;
        }
    }
    Ok(())
}

/// Reads the wanted column of a table with a header line.
pub(crate) fn read_table(
    reader: impl BufRead,
    delimiter: u8,
    file: &Path,
    options: &ReadOptions,
    intake: &mut Intake<'_>,
) -> Result<(), ImportError> {
    let mut table = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(unmarked(reader, file)?);
    let headers: Vec<String> = table
        .byte_headers()
        .map_err(|e| bad_table(file, &e))?
        .iter()
        .map(|h| String::from_utf8_lossy(h).trim().to_owned())
        .collect();
    let fields = options.fields();
    let column = fields
        .iter()
        .find_map(|field| headers.iter().position(|h| h == field))
        .ok_or_else(|| ImportError::line(file, 1, missing("column", &fields, &headers)))?;
    let named = &headers[column];
    if headers.iter().filter(|h| *h == named).count() > 1 {
        return Err(ImportError::line(file, 1, format!("there are several columns {named:?}; rename all but one")));
    }
    let mut record = csv::ByteRecord::new();
    let mut at = 0;
    while table.read_byte_record(&mut record).map_err(|e| bad_table(file, &e))? {
        let here = table.position().byte();
        intake.bytes(here - at);
        at = here;
        let line = record.position().map_or(0, csv::Position::line);
        let cell = record.get(column).unwrap_or_default();
        let error = |what: String| ImportError::line(file, line, what);
        if intake.counter().is_some() {
            let text = std::str::from_utf8(cell).map_err(|_| error("the text is not UTF-8".into()))?;
            intake.text(text.to_owned())?;
        } else {
            intake.length(length::from_text(cell).map_err(error)?)?;
        }
    }
    Ok(())
}

fn bad_table(file: &Path, error: &csv::Error) -> ImportError {
    match error.kind() {
        csv::ErrorKind::Io(e) => ImportError::read(file, e),
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => ImportError::line(
            file,
            pos.as_ref().map_or(0, csv::Position::line),
            format!("{len} columns where the header has {expected_len}; is the file truncated?"),
        ),
        _ => ImportError::file(file, format!("not a table: {error}")),
    }
}
