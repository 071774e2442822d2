use std::path::{Path, PathBuf};

/// Why lengths cannot be read or written. Nothing has been written when one is returned.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line of a text format is bad.
    #[error("{}:{line}: {what}", file.display())]
    Line {
        /// File.
        file: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong and what to do.
        what: String,
    },
    /// A row of a binary format is bad.
    #[error("{}: row {row}: {what}", file.display())]
    Row {
        /// File.
        file: PathBuf,
        /// Row, from 1.
        row: u64,
        /// What is wrong and what to do.
        what: String,
    },
    /// A file as a whole is bad.
    #[error("{}: {what}", file.display())]
    File {
        /// File.
        file: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// The caller has asked to stop.
    #[error("interrupted; nothing was written")]
    Stopped,
    /// The options do not go together.
    #[error("{0}")]
    Options(String),
}

impl ImportError {
    pub(crate) fn line(file: &Path, line: u64, what: impl Into<String>) -> Self {
        Self::Line { file: file.to_owned(), line, what: what.into() }
    }

    pub(crate) fn row(file: &Path, row: u64, what: impl Into<String>) -> Self {
        Self::Row { file: file.to_owned(), row, what: what.into() }
    }

    pub(crate) fn file(file: &Path, what: impl Into<String>) -> Self {
        Self::File { file: file.to_owned(), what: what.into() }
    }

    pub(crate) fn read(file: &Path, error: &std::io::Error) -> Self {
        Self::file(file, format!("cannot be read: {error}"))
    }
}
