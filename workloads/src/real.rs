//! Real document lengths that ship with the project (data/real_lengths.parquet, described in data/real_lengths_sources.txt).

use std::io::Cursor;
use std::sync::LazyLock;

use polars_core::error::PolarsResult;
use polars_core::prelude::DataType;

use crate::error::WorkloadError;
use crate::import::parquet;
use crate::source::{LengthSource, Lengths, Pool, document_share};

static PARQUET: &[u8] = include_bytes!("../data/real_lengths.parquet");
const FILE: &str = "real_lengths.parquet";

/// Rows of one kind are alternatives for documents: subtrees hold files, repositories hold both.
struct Rows {
    files: Vec<u64>,
    /// Folders and whole repositories.
    groups: Vec<u64>,
}

static ROWS: LazyLock<Result<Rows, String>> = LazyLock::new(|| rows().map_err(|e| e.to_string()));

fn rows() -> PolarsResult<Rows> {
    let mut reader = Cursor::new(PARQUET);
    let metadata = parquet::open(&mut reader)?;
    let frame = parquet::rows_of(&mut reader, &metadata, &["kind", "tokens"], 0, metadata.num_rows)?;
    let kinds = frame.column("kind")?.str()?;
    let tokens = frame.column("tokens")?.cast(&DataType::UInt64)?;
    let mut rows = Rows { files: Vec::new(), groups: Vec::new() };
    for (kind, tokens) in kinds.iter().zip(tokens.u64()?.iter()) {
        match (kind, tokens) {
            // A file of no tokens is no document.
            (Some("file"), Some(tokens)) if tokens > 0 => rows.files.push(tokens),
            (Some("subtree" | "repo"), Some(tokens)) if tokens > 0 => rows.groups.push(tokens),
            _ => {}
        }
    }
    Ok(rows)
}

/// Files below fit_window / 32 tokens, mixed with files, folders and repositories from fit_window / 16 to below
/// `long_below` tokens so that these hold a share `long_token_share` of the tokens after truncation to `fit_window`.
pub(crate) fn mix(long_token_share: f64, fit_window: u64, long_below: u64) -> Result<LengthSource, WorkloadError> {
    let rows = ROWS.as_ref().map_err(|why| WorkloadError::BuiltIn { file: FILE, why: why.clone() })?;
    let short = rows.files.iter().copied().filter(|&l| l < fit_window / 32);
    let all = rows.files.iter().chain(&rows.groups).copied();
    let long = all.filter(|l| (fit_window / 16..long_below).contains(l));
    let (short, long) = (Lengths::new(short.collect()), Lengths::new(long.collect()));
    let weight = document_share(long_token_share, short.truncated_mean(fit_window), long.truncated_mean(fit_window));
    LengthSource::pools(vec![
        Pool { lengths: short, documents: 1.0 - weight },
        Pool { lengths: long, documents: weight },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_rows_are_the_documented_ones() {
        let rows = ROWS.as_ref().unwrap();
        let count = |list: &[u64], lower: u64, upper: u64| list.iter().filter(|l| (lower..upper).contains(*l)).count();
        // Pools of the fitted mixes: rows short / long.
        for (window, short, long) in [(262_144u64, 288_422, 9_702), (1_048_576, 298_155, 4_025)] {
            assert_eq!(count(&rows.files, 1, window / 32), short);
            let below = 4 * window;
            assert_eq!(count(&rows.files, window / 16, below) + count(&rows.groups, window / 16, below), long);
        }
    }
}
