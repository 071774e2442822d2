//! `skewbench report`: pages from stored runs.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use skewbench_cluster::batch::shell_word;

use super::folder::ReportFolder;
use super::{output, run};
use crate::cells::Resources;
use crate::cli::ReportArgs;
use crate::failure::Failure;
use crate::present::{Loaded, Rendering, RunGroup, evaluate, render, write_summary};

/// Renders runs.
///
/// # Errors
/// Folders that are no runs, templates that cannot be used.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let runs = args.runs.iter().map(|path| NamedRun::open(path)).collect::<Result<Vec<_>, _>>()?;
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [run]) if runs[0].folders == [run.clone()] => beside(run),
        (None, [study]) => study.clone(),
        (None, _) => return Err(Failure::usage("several runs need a folder for their report; give one with --out")),
    };
    let folder = ReportFolder::open(&out, &[])?;
    let (rows, page) = render_runs(&runs, args.templates.as_deref(), &out)?;
    write_summary(&rows, &out.join("summary.json"))?;
    folder.finish()?;
    output::line(page.display())?;
    run::judge(&rows)
}

/// A run with the folders of its experiments.
pub struct NamedRun {
    name: String,
    folders: Vec<PathBuf>,
}

impl NamedRun {
    /// The run at a path that a user gave, named after the last part of the path.
    ///
    /// # Errors
    /// A path without runs.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let folders = run_folders(path);
        if folders.is_empty() {
            return Err(Failure::config(format!("{}: no run in this folder", path.display())));
        }
        let last = path.canonicalize().ok().and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
        Ok(Self { name: last.unwrap_or_else(|| path.display().to_string()), folders })
    }

    /// The folders of its experiments.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

/// Renders runs into `out` and returns the summary rows with the path of the page.
///
/// # Errors
/// As [`run()`].
pub fn render_runs(
    runs: &[NamedRun],
    templates: Option<&Path>,
    out: &Path,
) -> Result<(Vec<skewbench_store::SummaryRow>, PathBuf), Failure> {
    let mut resources = Resources::default();
    let mut experiments = Vec::new();
    let mut groups: Vec<RunGroup> = Vec::new();
    for run in runs {
        let first = experiments.len();
        for folder in &run.folders {
            experiments.push(Loaded::open(folder, &mut resources)?);
        }
        let taken = groups.iter().filter(|group| group.path_name == run.name).count();
        let name = if taken == 0 { run.name.clone() } else { format!("{} ({})", run.name, taken + 1) };
        groups.push(RunGroup { path_name: run.name.clone(), name, experiments: first..experiments.len() });
    }
    let experiments: Vec<_> = experiments
        .into_par_iter()
        .map(|loaded| {
            let values = evaluate(&loaded, &resources);
            (loaded, values)
        })
        .collect();
    let invocation = experiments.first().and_then(|(l, _)| l.data.manifest.invocations.first());
    let command = command(invocation.map_or(&[], |i| &i.command));
    let rendering = Rendering { experiments: &experiments, runs: groups, command, templates, out };
    sweep(out);
    sweep(&out.join("data"));
    render(&rendering, &resources, &run::reference()?)
}

/// Renders the experiments of one run into `out`.
///
/// # Errors
/// As [`render_runs`].
pub fn render_folders(
    folders: &[PathBuf],
    templates: Option<&Path>,
    out: &Path,
) -> Result<(Vec<skewbench_store::SummaryRow>, PathBuf), Failure> {
    render_runs(&[NamedRun { name: "run".into(), folders: folders.to_vec() }], templates, out)
}

/// The command line of this process, as reports quote it.
pub(super) fn this_command() -> String {
    command(&std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>())
}

/// The command line that gives a run's numbers: without what decides only where they go and how fast.
fn command(line: &[String]) -> String {
    const WITH_VALUE: [&str; 4] = ["--out", "--threads", "--format", "--templates"];
    const ALONE: [&str; 2] = ["--force", "--requeue"];
    let mut words = vec!["skewbench".to_owned()];
    let mut rest = line.iter().skip(1);
    while let Some(word) = rest.next() {
        if WITH_VALUE.contains(&word.as_str()) {
            rest.next();
        } else if !ALONE.contains(&word.as_str())
            && !WITH_VALUE.iter().any(|flag| word.starts_with(&format!("{flag}=")))
        {
            // Whoever copies the line runs the words of the run's author, and nothing else.
            words.push(shell_word(word));
        }
    }
    words.join(" ")
}

/// Folder of the report of a single run, which itself holds nothing but what was sealed.
fn beside(run: &Path) -> PathBuf {
    let name = run.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_else(|| "run".into());
    run.with_file_name(format!("{name}-report"))
}

/// Removes what a process left that was killed while it wrote a page or a summary.
fn sweep(folder: &Path) {
    let unfinished = |name: &str| {
        let part = name.strip_prefix('.').and_then(|n| n.strip_suffix(".part"));
        let temporary =
            name.strip_prefix(".tmp").is_some_and(|n| n.len() == 6 && n.bytes().all(|b| b.is_ascii_alphanumeric()));
        temporary || part.and_then(|n| n.rsplit_once('.')).is_some_and(|(_, pid)| pid.parse::<u32>().is_ok())
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if unfinished(&entry.file_name().to_string_lossy()) {
            // A file that cannot be removed does no harm but to stay.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Run folders at or below a path: the path itself, the folders of its `run` folder, or its own folders.
pub fn run_folders(path: &Path) -> Vec<PathBuf> {
    let is_run = |p: &Path| p.join("manifest.json").is_file();
    if is_run(path) {
        return vec![path.to_owned()];
    }
    for parent in [path.join("run"), path.to_owned()] {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| is_run(p)).collect();
        if !folders.is_empty() {
            folders.sort_by_key(|p| sort_key(p));
            return folders;
        }
    }
    Vec::new()
}

/// Folders in the order of the numbers in their names.
fn sort_key(path: &Path) -> (String, u64, String) {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let number = name[digits..].chars().take_while(char::is_ascii_digit).collect::<String>();
    (name[..digits].to_owned(), number.parse().unwrap_or(0), name)
}
