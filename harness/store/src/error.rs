use std::path::{Path, PathBuf};

/// Why a run folder, a table or an archive cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, e.g. "write".
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is torn, altered or not what its name says.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A table cannot be built or does not have what was asked for.
    #[error("table: {0}")]
    Table(String),
    /// The planned cells make no run.
    #[error("{0}")]
    Plan(String),
    /// The folder holds a run of other inputs.
    #[error("{} holds a run of other inputs ({what}); choose another folder or use --force, which keeps the old run under another name", dir.display())]
    OtherInputs {
        /// The run folder.
        dir: PathBuf,
        /// Which inputs differ.
        what: String,
    },
    /// The folder is not a run.
    #[error("{} is not a run folder: {what}", dir.display())]
    NotARun {
        /// The folder.
        dir: PathBuf,
        /// Why not.
        what: String,
    },
    /// Another process works in the folder.
    #[error("{} is in use by another process; wait for it to end or choose another folder", dir.display())]
    Locked {
        /// The run folder.
        dir: PathBuf,
    },
    /// The folder was written by another version of the format.
    #[error("{} has schema version {found}, this program reads {supported}; use the version that wrote it", path.display())]
    Version {
        /// The manifest.
        path: PathBuf,
        /// Version found.
        found: u64,
        /// Version supported.
        supported: u64,
    },
    /// A cell is unknown, planned twice, finished twice or has tables that do not fit the other cells.
    #[error("cell {cell}: {what}")]
    Cell {
        /// Its id.
        cell: String,
        /// What is wrong.
        what: String,
    },
    /// A run cannot be sealed or exported yet.
    #[error("{}: {missing} of {planned} planned cells are not finished; run the same command again to resume", dir.display())]
    Incomplete {
        /// The run folder.
        dir: PathBuf,
        /// Cells without a result.
        missing: usize,
        /// Planned cells.
        planned: usize,
    },
    /// Nothing is overwritten.
    #[error("{} exists already; choose another name or move it away", path.display())]
    Exists {
        /// What is in the way.
        path: PathBuf,
    },
    /// Statistics were asked of samples that have none.
    #[error("statistics: {0}")]
    Statistics(String),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.to_string() }
    }
}
