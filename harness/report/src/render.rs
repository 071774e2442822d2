//! Writes the report.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::ReportError;
use crate::export;
use crate::figure::Figure;
use crate::model::{Download, Site};
use crate::names::{Names, usable};
use crate::palette::Looks;
use crate::templates::Templates;
use crate::view::{FigureFile, MOST_LATEX_ROWS};
use crate::{pages, pdf, pgfplots};

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The first page.
    pub index: PathBuf,
    /// All files, `index.html` last.
    pub files: Vec<PathBuf>,
    /// Their size together.
    pub bytes: u64,
}

/// Renders a report into a folder: `index.html` and the other pages with their `style.css`, and for each figure `data/<id>.csv`, `-table.tex`, `.tex`, `.svg`
/// and `.pdf` and, where the model carries one, `.parquet`.
///
/// `templates` names a folder whose files replace the built-in templates of the same name. Everything is made in
/// memory first and each file then replaced in one step, so a fault in model or templates leaves the folder as it was. Folders
/// and files are their owner's only (modes 0700 and 0600); a folder that exists keeps its mode.
///
/// # Errors
/// A figure id or page name that cannot be a file name or is used twice, a table row longer than its header, a download outside
/// the folder, a faulty template (with file and line), a folder that cannot be written.
pub fn render(site: &Site, templates: Option<&Path>, out: &Path) -> Result<Rendered, ReportError> {
    check(site)?;
    let names = Names::new(site)?;
    let templates = Templates::load(templates)?;
    let looks = pages::looks(site);
    let data = out.join("data");
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for page in pages::render(site, &names, &templates, &looks)? {
        for (figure, picture) in &page.figures {
            figure_files(figure, picture, &looks, &data, &mut files)?;
        }
        files.push((out.join(page.file), page.text.into_bytes()));
    }
    // Before the first page, which comes last.
    files.insert(0, (out.join("style.css"), pages::style(&templates)?.into_bytes()));
    create_folder(&data).map_err(ReportError::io("cannot create folder", &data))?;
    for (path, bytes) in &files {
        replace(path, bytes)?;
    }
    Ok(Rendered {
        index: out.join("index.html"),
        bytes: files.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
        files: files.into_iter().map(|(path, _)| path).collect(),
    })
}

/// The files beside the pages that hold a figure's data and picture.
fn figure_files(
    figure: &Figure,
    picture: &FigureFile,
    looks: &Looks,
    data: &Path,
    files: &mut Vec<(PathBuf, Vec<u8>)>,
) -> Result<(), ReportError> {
    let file = |suffix: &str| data.join(format!("{}{suffix}", figure.id));
    files.push((file(".csv"), export::csv(figure).into_bytes()));
    if figure.table.rows.len() <= MOST_LATEX_ROWS {
        files.push((file("-table.tex"), export::latex(figure).into_bytes()));
    }
    if let Some(parquet) = &figure.parquet {
        files.push((file(".parquet"), parquet.clone()));
    }
    // A figure without a panel is a table alone.
    if !figure.panels.is_empty() {
        let fault = |message: String| ReportError::Draw { figure: figure.id.clone(), message };
        files.push((file(".pdf"), pdf::of_svg(&picture.svg).map_err(fault)?));
        files.push((file(".svg"), picture.svg.clone().into_bytes()));
    }
    if pgfplots::possible(figure) {
        files.push((file(".tex"), pgfplots::document(figure, looks).into_bytes()));
    }
    Ok(())
}

fn check(site: &Site) -> Result<(), ReportError> {
    let mut ids = BTreeSet::new();
    for figure in pages::figures(site) {
        let id = &figure.id;
        if !usable(id) {
            return Err(ReportError::FigureId { id: id.clone() });
        }
        if !ids.insert(id) {
            return Err(ReportError::DuplicateFigure { id: id.clone() });
        }
        let columns = figure.table.columns.len();
        if let Some((row, cells)) = figure.table.rows.iter().enumerate().find(|(_, cells)| cells.len() > columns) {
            return Err(ReportError::Row { figure: id.clone(), row: row + 1, cells: cells.len(), columns });
        }
    }
    match site.downloads.iter().find(|download| !stays_below(download)) {
        Some(Download { label, href, .. }) => Err(ReportError::Download { label: label.clone(), href: href.clone() }),
        None => Ok(()),
    }
}

fn stays_below(download: &Download) -> bool {
    let href = &download.href;
    !href.is_empty()
        && !href.starts_with('/')
        && !href.contains([':', '\\'])
        && !href.chars().any(char::is_control)
        && href.split('/').all(|part| part != "..")
}

/// Writes beside the file, then puts it in place: a reader sees the old bytes or the new ones.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = create_file(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        // The first fault is the one to report.
        let _ = fs::remove_file(&beside);
    }
    placed.map_err(ReportError::io("cannot write", path))
}

/// Creates a folder and its missing parents, for their owner only.
fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates a file for its owner only, in place of what a process of the same number left.
fn create_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
