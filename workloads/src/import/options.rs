use std::path::{Path, PathBuf};
use std::time::Duration;

/// Format of a file of lengths or texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line; a field holds a length, a list of lengths, or a text. `.jsonl`, `.ndjson`.
    Jsonl,
    /// Comma-separated with a header line (`.csv`), or tab-separated (`.tsv`).
    Csv,
    /// Parquet; a column holds lengths, lists of lengths, or texts. `.parquet`, `.pq`.
    Parquet,
    /// NumPy array of integers, one dimension. `.npy`.
    Npy,
    /// One whole number a line. `.txt`, `.lengths` when there is no tokenizer.
    Lines,
    /// One document a file; a folder is walked. `.txt`, `.md` and folders when there is a tokenizer.
    Text,
}

/// What a list of integers in a field or column is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lists {
    /// Lengths of several documents.
    #[default]
    Lengths,
    /// Token ids of one document: its length is their number.
    Tokens,
}

/// How files are read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Format of every file; by suffix where none is given.
    pub format: Option<Format>,
    /// Field or column. Without one: `text` with a tokenizer, else the first there is of `tokens`, `length`,
    /// `lengths`, `num_tokens`, `n_tokens`, `token_count`.
    pub field: Option<String>,
    /// What lists are.
    pub lists: Lists,
    /// Hugging Face `tokenizer.json`: fields, columns and files hold texts. Texts are cut at line ends into pieces of
    /// at most 64 KiB, tokenised apart, without special tokens; truncation and padding of the file are ignored.
    pub tokenizer: Option<PathBuf>,
}

impl ReadOptions {
    /// Fields to look for, best first.
    pub(crate) fn fields(&self) -> Vec<&str> {
        match (&self.field, &self.tokenizer) {
            (Some(field), _) => vec![field],
            (None, Some(_)) => vec!["text"],
            (None, None) => vec!["tokens", "length", "lengths", "num_tokens", "n_tokens", "token_count"],
        }
    }

    pub(crate) fn format_of(&self, path: &Path) -> Option<Format> {
        self.format.or_else(|| {
            let text = self.tokenizer.is_some();
            match suffix(path)?.as_str() {
                "txt" | "md" if text => Some(Format::Text),
                "txt" | "lengths" => Some(Format::Lines),
                "jsonl" | "ndjson" => Some(Format::Jsonl),
                "csv" | "tsv" => Some(Format::Csv),
                "parquet" | "pq" => Some(Format::Parquet),
                "npy" => Some(Format::Npy),
                _ => None,
            }
        })
    }
}

pub(crate) fn suffix(path: &Path) -> Option<String> {
    path.extension().and_then(|s| s.to_str()).map(str::to_lowercase)
}

/// True for suffixes of formats of lengths.
pub(crate) fn is_known_suffix(path: &Path) -> bool {
    ReadOptions::default().format_of(path).is_some()
}

/// What [`import`](crate::import()) reads and writes.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// How files are read.
    pub read: ReadOptions,
    /// Parquet file that is written: one column `tokens` of unsigned 64-bit integers.
    pub out: PathBuf,
    /// Replace `out` if it exists.
    pub overwrite: bool,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input files read so far.
    pub bytes_read: u64,
    /// Bytes of all input files.
    pub bytes_total: u64,
    /// Documents so far.
    pub documents: u64,
    /// Tokens so far.
    pub tokens: u64,
    /// Bytes of text tokenised so far.
    pub text_bytes: u64,
}

/// What an import did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportReport {
    /// Files read.
    pub files: u64,
    /// Documents written.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Shortest document in tokens.
    pub min: u64,
    /// Longest document in tokens.
    pub max: u64,
    /// Texts and lists that were empty and left out.
    pub skipped_empty: u64,
    /// Files of a folder that were not UTF-8 text and left out.
    pub skipped_not_text: u64,
    /// Bytes of text that were tokenised.
    pub text_bytes: u64,
    /// Time from start to end.
    pub elapsed: Duration,
}

impl ImportReport {
    /// Megabytes (10^6 bytes) of text tokenised a second; nothing without a tokenizer.
    pub fn text_mb_per_s(&self) -> Option<f64> {
        (self.text_bytes > 0).then(|| self.text_bytes as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9))
    }

    /// Documents a second.
    pub fn documents_per_s(&self) -> f64 {
        self.documents as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}
