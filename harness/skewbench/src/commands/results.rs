//! `skewbench results`.

use super::output;
use crate::cli::ResultsCommand;
use crate::failure::{Exit, Failure};
use crate::scheduler::store_failure;

/// Checks, exports and imports runs.
///
/// # Errors
/// A run that is not whole (exit 12), or a file that cannot be read or written.
pub fn run(command: &ResultsCommand) -> Result<(), Failure> {
    match command {
        ResultsCommand::Check { run } => {
            let mut folders = super::report::run_folders(run);
            folders.sort();
            let mut problems = 0;
            for folder in &folders {
                let report = skewbench_store::check(folder).map_err(store_failure)?;
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
        ResultsCommand::Export { run, out } => {
            skewbench_store::export(run, out).map_err(store_failure)?;
            output::line(out.display())
        }
        ResultsCommand::Import { archive, out } => {
            skewbench_store::import(archive, out).map_err(store_failure)?;
            output::line(out.display())
        }
    }
}
