//! The folder that a study is written to: what it may hold already, and what happens to the rest.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use skewbench_store::{Run, RunInputs};

use crate::failure::Failure;
use crate::scheduler::store_failure;

/// Folder of a study's runs below its own.
const RUNS: &str = "run";

/// Lies in the folder of a report that is not whole yet, so that what an interrupted process left is known as its own.
const UNFINISHED: &str = ".unfinished";

/// The folder that a report is written to, apart from the folder of a study.
pub(super) struct ReportFolder<'a>(&'a Path);

impl<'a> ReportFolder<'a> {
    /// Accepts a folder that is new, empty, or holds a report, whole or not: `summary.json`, or what `also` names.
    ///
    /// # Errors
    /// A folder of other files, one that cannot be written to.
    pub(super) fn open(out: &'a Path, also: &[&str]) -> Result<Self, Failure> {
        let holds = |name: &str| out.join(name).exists();
        let known = holds(RUNS) || holds("summary.json") || also.iter().any(|name| holds(name)) || holds(UNFINISHED);
        let refuse = |what: String| Failure::config(format!("{}: {what}", out.display()));
        if !known && fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(refuse("holds files and no report; choose an empty or new folder with --out".into()));
        }
        if !known {
            skewbench_store::create_folder(out).map_err(store_failure)?;
            File::create(out.join(UNFINISHED)).map_err(|e| refuse(format!("cannot be written to: {e}")))?;
        }
        Ok(Self(out))
    }

    /// The report is whole.
    ///
    /// # Errors
    /// A mark that cannot be removed.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let mark = self.0.join(UNFINISHED);
        match fs::remove_file(&mark) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::config(format!("{}: cannot be removed: {e}", mark.display())))
            }
            _ => Ok(()),
        }
    }
}

/// Folder of an experiment's run below the study's folder.
pub(super) fn run_folder(out: &Path, id: &str) -> PathBuf {
    out.join(RUNS).join(id.replace(['/', '\\'], "-"))
}

/// Accepts a folder that is new, empty, or holds runs of exactly these inputs. Any other study in it is refused, or moved
/// aside as `<name>.old-N`, so that no report is ever overwritten by that of other inputs. Nothing is written otherwise.
///
/// # Errors
/// A folder of other inputs without `force`, one that no study was written to, one that another process works in.
pub(super) fn claim(out: &Path, runs: &[(PathBuf, RunInputs)], force: bool) -> Result<(), Failure> {
    if out.symlink_metadata().is_err() {
        return Ok(());
    }
    let refuse = |what: String| Err(Failure::config(format!("{}: {what}", out.display())));
    if !out.is_dir() {
        return refuse("is not a folder; choose another with --out".into());
    }
    let names = list(out)?;
    if !names.iter().any(|name| name == RUNS) {
        return match names.first() {
            None => Ok(()),
            Some(name) => refuse(format!("holds {name} and no run; choose an empty or new folder with --out")),
        };
    }
    let Some(other) = other_study(out, runs)? else { return Ok(()) };
    if !force {
        return refuse(format!(
            "holds a run of other inputs ({other}); choose another folder with --out, or use --force, which keeps the old one under another name (processes with --share do not: move it away before they start)"
        ));
    }
    for name in list(&out.join(RUNS))? {
        let lock = out.join(RUNS).join(name).join(".lock");
        if File::open(lock).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock))) {
            return refuse(
                "is in use by another process; wait for it to end or choose another folder with --out".into(),
            );
        }
    }
    set_aside(out)
}

/// Keeps a folder under the first free `<name>.old-N`.
///
/// # Errors
/// A folder that cannot be renamed.
pub(crate) fn set_aside(out: &Path) -> Result<(), Failure> {
    let old = free_name(out);
    fs::rename(out, &old).map_err(|e| Failure::config(format!("cannot rename {}: {e}", out.display())))?;
    eprintln!("kept the old run as {}", old.display());
    Ok(())
}

/// What is in the folder that these runs do not account for.
fn other_study(out: &Path, runs: &[(PathBuf, RunInputs)]) -> Result<Option<String>, Failure> {
    for name in list(&out.join(RUNS))? {
        let Some((dir, inputs)) =
            runs.iter().find(|(dir, _)| dir.file_name().is_some_and(|f| f.to_string_lossy() == name))
        else {
            return Ok(Some(format!("{RUNS}/{name} is no part of what was asked for")));
        };
        // Without a manifest no cell is finished; a damaged one is for the store to judge.
        let Ok(manifest) = Run::load(dir).map(|run| run.manifest) else { continue };
        if manifest.inputs_hash != inputs.hash() {
            let what = if manifest.experiment != inputs.experiment {
                "experiment"
            } else if manifest.seeds != inputs.seeds {
                "seed"
            } else {
                "scale, systems, profile or program"
            };
            return Ok(Some(format!("{RUNS}/{name}: another {what}")));
        }
    }
    Ok(None)
}

fn list(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |e: std::io::Error| Failure::config(format!("cannot list {}: {e}", folder.display()));
    let mut names = fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, Failure>>()?;
    names.sort_unstable();
    Ok(names)
}

/// First free `<name>.old-N` beside the folder.
fn free_name(folder: &Path) -> PathBuf {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_else(|| "run".into());
    (1u32..).map(|n| folder.with_file_name(format!("{name}.old-{n}"))).find(|p| !p.exists()).unwrap_or_default()
}
