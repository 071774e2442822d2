//! What can go wrong.

use std::path::PathBuf;

use thiserror::Error;

/// Why a report was not written. Nothing is left half-written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A template does not parse or does not render.
    #[error(
        "template {file}, line {line}, column {column}: {message}; correct it, or leave out the templates folder to use the built-in ones"
    )]
    Template {
        /// File of the template; the bare name for a built-in one.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the engine says.
        message: String,
    },
    /// The templates as a whole do not fit together (a parent or an included file is missing, a loop).
    #[error("templates{}: {message}", folder.as_ref().map(|f| format!(" in {}", f.display())).unwrap_or_default())]
    Templates {
        /// Folder of the user's templates.
        folder: Option<PathBuf>,
        /// What the engine says.
        message: String,
    },
    /// The templates folder is not one.
    #[error("templates folder {0} is not a folder; give one that holds index.html, or leave the option out")]
    NoTemplates(PathBuf),
    /// A figure's id cannot name a file or an anchor.
    #[error(
        "figure id {id:?} is not usable; use lower-case letters, digits, '-', '_' and '.', starting with a letter or digit, at most 80 characters"
    )]
    FigureId {
        /// The id.
        id: String,
    },
    /// A page's name cannot name a file, or another page has it.
    #[error(
        "page name {name:?} is not usable; use lower-case letters, digits, '-', '_' and '.', starting with a letter or digit, at most 80 characters, not index, method, environment, gaps or runs, and each once"
    )]
    PageName {
        /// The name.
        name: String,
    },
    /// Two figures share an id.
    #[error("figure id {id:?} is used twice; give each figure its own")]
    DuplicateFigure {
        /// The id.
        id: String,
    },
    /// A row of a table is longer than its header.
    #[error("table of figure {figure:?}, row {row}: {cells} cells for {columns} columns; name every column")]
    Row {
        /// Figure.
        figure: String,
        /// Row, from 1.
        row: usize,
        /// Cells of the row.
        cells: usize,
        /// Columns of the table.
        columns: usize,
    },
    /// A download that leaves the report's folder.
    #[error("download {label:?} points to {href:?}, which is not below the report; use a relative path without '..'")]
    Download {
        /// Text of the link.
        label: String,
        /// Target.
        href: String,
    },
    /// A figure could not be drawn.
    #[error("figure {figure:?} could not be drawn: {message}")]
    Draw {
        /// Figure.
        figure: String,
        /// What the drawing library says.
        message: String,
    },
    /// A file or folder could not be read or written.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// "cannot write" or the like.
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ReportError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
