//! `skewbench results`.

use std::path::{Path, PathBuf};

use skewbench_store::StoreError;

use super::output;
use super::report::run_folders;
use crate::cells::Resources;
use crate::cli::ResultsCommand;
use crate::failure::{Exit, Failure};
use crate::present::Loaded;
use crate::scheduler::store_failure;
use crate::terminal::printable;

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
        ResultsCommand::Import { source, out } => import(source, out),
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
        let mut report = match skewbench_store::check(&folder) {
            Ok(report) => report,
            Err(error @ StoreError::Damaged { .. }) => {
                output::line(printable(&format!("{}: NOT sound\n  {error}", folder.display())))?;
                problems += 1;
                continue;
            }
            Err(error) => return Err(store_failure(error)),
        };
        // Tables may be whole as files and lack what the experiment has.
        if report.is_sound()
            && let Err(failure) = Loaded::open(&folder, &mut Resources::default())
        {
            report.problems.push(failure.message);
        }
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
        report.problems.iter().try_for_each(|p| output::line(printable(&format!("  {p}"))))?;
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
    let above = out.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let inside = |folder: &PathBuf| folder.canonicalize().ok().zip(above.canonicalize().ok());
    if folders.iter().filter_map(inside).any(|(folder, above)| above.starts_with(folder)) {
        let what = "lies in the run, which would no longer be what was sealed; choose a place outside";
        return Err(Failure::config(format!("{}: {what}", out.display())));
    }
    if let [one] = folders.as_slice() {
        skewbench_store::export(one, out).map_err(store_failure)?;
        return output::line(out.display());
    }
    if out.symlink_metadata().is_ok() {
        let runs = folders.len();
        let what = format!("exists already; {runs} runs are exported into a new folder of archives");
        return Err(Failure::config(format!("{}: {what}", out.display())));
    }
    skewbench_store::create_folder(out).map_err(store_failure)?;
    for folder in folders {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let archive = out.join(format!("{name}{ARCHIVE}"));
        skewbench_store::export(&folder, &archive).map_err(store_failure)?;
        output::line(archive.display())?;
    }
    Ok(())
}

/// An archive or a run folder becomes a run folder; a folder of several becomes a folder of runs.
fn import(source: &Path, out: &Path) -> Result<(), Failure> {
    if !source.is_dir() {
        skewbench_store::import(source, out).map_err(store_failure)?;
        return output::line(out.display());
    }
    if source.join("manifest.json").symlink_metadata().is_ok() {
        skewbench_store::import_folder(source, out).map_err(store_failure)?;
        return output::line(out.display());
    }
    let archives: Vec<PathBuf> = entries(source)?.into_iter().filter(|path| name(path).ends_with(ARCHIVE)).collect();
    let runs = if archives.is_empty() { runs_of(source)? } else { archives };
    if runs.is_empty() {
        let what = format!("no archive *{ARCHIVE} and no run in this folder");
        return Err(Failure::config(format!("{}: {what}", source.display())));
    }
    if out.symlink_metadata().is_ok() {
        return Err(Failure::config(format!("{} exists already; choose another name or move it away", out.display())));
    }
    let folder = |run: &Path| Path::new("run").join(name(run).trim_end_matches(ARCHIVE));
    let above = out.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    skewbench_store::create_folder(above).map_err(store_failure)?;
    let failed = |e: std::io::Error| Failure::config(format!("{}: {e}", out.display()));
    // All of the runs or none.
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    let staged = builder.prefix(".tmp-import-").tempdir_in(above).map_err(failed)?;
    for run in &runs {
        let import = if run.is_dir() { skewbench_store::import_folder } else { skewbench_store::import };
        import(run, &staged.path().join(folder(run))).map_err(store_failure)?;
    }
    let staged = staged.keep();
    std::fs::rename(&staged, out).map_err(|e| {
        // The rename's failure is what matters; what cannot be removed stays under its temporary name.
        let _ = std::fs::remove_dir_all(&staged);
        failed(e)
    })?;
    runs.iter().try_for_each(|run| output::line(printable(&out.join(folder(run)).display().to_string())))
}

/// Run folders of a study that was sent; links are not followed.
fn runs_of(study: &Path) -> Result<Vec<PathBuf>, Failure> {
    let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let inner = study.join("run");
    let parent = if is_folder(&inner) { inner } else { study.to_owned() };
    let folders = entries(&parent)?.into_iter();
    Ok(folders.filter(|path| is_folder(path) && path.join("manifest.json").symlink_metadata().is_ok()).collect())
}

/// What lies in a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e: std::io::Error| Failure::config(format!("{}: {e}", folder.display()));
    let found = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths = found.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<Vec<_>, Failure>>()?;
    paths.sort_unstable();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
