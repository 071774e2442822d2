//! `skewbench results`.

use std::path::{Path, PathBuf};

use skewbench_store::StoreError;

use super::output;
use super::report::run_folders;
use crate::cli::ResultsCommand;
use crate::failure::{Exit, Failure};
use crate::scheduler::store_failure;

/// Suffix of archives.
const ARCHIVE: &str = ".tar.zst";

/// Checks, exports and imports runs.
///
/// # Errors
/// A run that is not whole (exit 12), or a file that cannot be read or written.
pub fn run(command: &ResultsCommand) -> Result<(), Failure> {
    match command {
        ResultsCommand::Check { run } => check(run),
        ResultsCommand::Export { run, out } => export(run, out),
        ResultsCommand::Import { archive, out } => import(archive, out),
    }
}

fn folders(run: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folders = run_folders(run);
    if folders.is_empty() {
        return Err(Failure::config(format!("{}: no run in this folder", run.display())));
    }
    Ok(folders)
}

fn check(run: &Path) -> Result<(), Failure> {
    let mut problems = 0;
    for folder in folders(run)? {
        let report = match skewbench_store::check(&folder) {
            Ok(report) => report,
            Err(error @ StoreError::Damaged { .. }) => {
                output::line(format!("{}: NOT sound\n  {error}", folder.display()))?;
                problems += 1;
                continue;
            }
            Err(error) => return Err(store_failure(error)),
        };
        output::line(format!(
            "{}: {} of {} cells finished, {} failed, {} rows in {} files, {}",
            folder.display(),
            report.finished,
            report.planned,
            report.failed,
            report.rows,
            report.files,
            if report.is_sound() { "sound" } else { "NOT sound" }
        ))?;
        report.problems.iter().try_for_each(|p| output::line(format!("  {p}")))?;
        problems += report.problems.len();
    }
    if problems > 0 {
        return Err(Failure::new(Exit::Verification, format!("{problems} problems in {}", run.display())));
    }
    Ok(())
}

/// One run becomes one archive; a folder of several runs becomes a folder of archives.
fn export(run: &Path, out: &Path) -> Result<(), Failure> {
    let folders = folders(run)?;
    if let [one] = folders.as_slice() {
        skewbench_store::export(one, out).map_err(store_failure)?;
        return output::line(out.display());
    }
    std::fs::create_dir(out).map_err(|e| {
        let runs = folders.len();
        Failure::config(format!("{}: {e}; {runs} runs are exported into a new folder of archives", out.display()))
    })?;
    for folder in folders {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let archive = out.join(format!("{name}{ARCHIVE}"));
        skewbench_store::export(&folder, &archive).map_err(store_failure)?;
        output::line(archive.display())?;
    }
    Ok(())
}

/// An archive becomes a run folder; a folder of archives becomes a folder of runs.
fn import(archive: &Path, out: &Path) -> Result<(), Failure> {
    if !archive.is_dir() {
        skewbench_store::import(archive, out).map_err(store_failure)?;
        return output::line(out.display());
    }
    let failed = |e: std::io::Error| Failure::config(format!("{}: {e}", archive.display()));
    let mut names = std::fs::read_dir(archive)
        .map_err(failed)?
        .map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, Failure>>()?;
    names.retain(|name| name.ends_with(ARCHIVE));
    names.sort_unstable();
    if names.is_empty() {
        return Err(Failure::config(format!("{}: no archive *{ARCHIVE} in this folder", archive.display())));
    }
    if out.symlink_metadata().is_ok() {
        return Err(Failure::config(format!("{} exists already; choose another name or move it away", out.display())));
    }
    for name in names {
        let folder = out.join("run").join(name.trim_end_matches(ARCHIVE));
        skewbench_store::import(&archive.join(&name), &folder).map_err(store_failure)?;
        output::line(folder.display())?;
    }
    Ok(())
}
