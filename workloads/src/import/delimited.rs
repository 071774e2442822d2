use std::io::{BufRead, Read};
use std::path::Path;

use super::error::ImportError;
use super::intake::Intake;
use super::jsonl::missing;
use super::length;
use super::options::ReadOptions;

/// Longest line that is taken into memory.
const MAX_LINE: u64 = 1 << 30;

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
pub(crate) fn read_lines(mut reader: impl BufRead, file: &Path, intake: &mut Intake<'_>) -> Result<(), ImportError> {
    let mut line = Vec::new();
    let mut number = 0;
    while read_line(&mut reader, &mut line, file, number + 1)? {
        number += 1;
        intake.bytes(line.len() as u64);
        let start = if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) } else { &line };
        if !start.trim_ascii().is_empty() {
            intake.length(length::from_text(start).map_err(|what| ImportError::line(file, number, what))?)?;
        }
    }
    Ok(())
}

/// Reads the wanted column of a table with a header line.
pub(crate) fn read_table(
    reader: impl Read,
    delimiter: u8,
    file: &Path,
    options: &ReadOptions,
    intake: &mut Intake<'_>,
) -> Result<(), ImportError> {
    let mut table = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(reader);
    let headers: Vec<String> = table
        .byte_headers()
        .map_err(|e| bad_table(file, &e))?
        .iter()
        .map(|h| String::from_utf8_lossy(h.strip_prefix(b"\xef\xbb\xbf").unwrap_or(h)).trim().to_owned())
        .collect();
    let fields = options.fields();
    let column = fields
        .iter()
        .find_map(|field| headers.iter().position(|h| h == field))
        .ok_or_else(|| ImportError::line(file, 1, missing("column", &fields, &headers)))?;
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
