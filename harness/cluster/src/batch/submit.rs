use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::Command;

use super::BatchError;

/// Characters kept of what `sbatch` says.
const MOST_SAID: usize = 2000;

/// What became of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Slurm took it, under this number.
    Job(String),
    /// Slurm would take it; what it says about that.
    Would(String),
}

/// Hands a script with its arguments to `sbatch`; with `test_only`, asks whether it would be taken. Arguments reach the script
/// as they are: no shell reads them on the way.
///
/// # Errors
/// No `sbatch`, and what it refuses.
pub fn submit(script: &str, arguments: &[OsString], test_only: bool) -> Result<Submitted, BatchError> {
    let failed = |action: &'static str| move |source| BatchError::Io { action, source };
    // Slurm keeps a copy of its own.
    let mut file = tempfile::Builder::new()
        .prefix("skewbench-")
        .suffix(".sbatch")
        .tempfile()
        .map_err(failed("create a file for the script"))?;
    file.write_all(script.as_bytes()).and_then(|()| file.flush()).map_err(failed("write the script"))?;
    let mut command = Command::new("sbatch");
    command.arg("--parsable");
    if test_only {
        command.arg("--test-only");
    }
    let output = command.arg(file.path()).args(arguments).output().map_err(|e| match e.kind() {
        ErrorKind::NotFound => BatchError::NoSlurm,
        _ => failed("run sbatch")(e),
    })?;
    let said = spoken(&output.stderr);
    if !output.status.success() {
        return Err(BatchError::Refused { status: output.status.to_string(), said });
    }
    if test_only {
        return Ok(Submitted::Would(said));
    }
    let printed = spoken(&output.stdout);
    // NUMBER, or NUMBER;CLUSTER.
    let job = printed.split(';').next().unwrap_or_default();
    if job.is_empty() || !job.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BatchError::NoJob(printed));
    }
    Ok(Submitted::Job(job.to_owned()))
}

/// What a program printed, on one line and bounded.
fn spoken(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").chars().filter(|c| !c.is_control()).take(MOST_SAID).collect()
}
