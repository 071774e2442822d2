use std::io::{ErrorKind, Write};

use comfy_table::{Table, presets};
use serde_json::{Map, Value};

use crate::cli::Format;
use crate::failure::Failure;
use crate::present::quote;
use crate::terminal::printable;

/// Writes a line to standard output; a reader that has gone away is no error.
pub fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::config(format!("standard output: {e}"))),
        _ => Ok(()),
    }
}

/// Prints records that all have the same keys.
pub fn records(rows: &[Map<String, Value>], format: Format) -> Result<(), Failure> {
    let header: Vec<&str> = rows.first().map(|r| r.keys().map(String::as_str).collect()).unwrap_or_default();
    match format {
        Format::Json => line(serde_json::to_string_pretty(rows).map_err(Failure::internal)?),
        Format::Jsonl => rows.iter().try_for_each(|r| line(serde_json::to_string(r).map_err(Failure::internal)?)),
        Format::Csv => {
            line(header.join(","))?;
            rows.iter().try_for_each(|r| line(r.values().map(|v| quote(&cell(v))).collect::<Vec<_>>().join(",")))
        }
        Format::Human => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            table.set_header(header);
            for row in rows {
                table.add_row(row.values().map(cell));
            }
            line(printable(&table.to_string()))
        }
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
