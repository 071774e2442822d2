//! `skewbench report`: pages from stored runs.

use std::path::{Path, PathBuf};

use super::{output, run};
use crate::cells::Resources;
use crate::cli::ReportArgs;
use crate::failure::Failure;
use crate::present::{Loaded, Rendering, evaluate, render, write_summary};

/// Renders runs.
///
/// # Errors
/// Folders that are no runs, templates that cannot be used.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let folders: Vec<PathBuf> = args.runs.iter().flat_map(|run| run_folders(run)).collect();
    if folders.is_empty() {
        return Err(Failure::config(format!("{}: no run in this folder", args.runs[0].display())));
    }
    let out = args.out.clone().unwrap_or_else(|| args.runs[0].clone());
    let (rows, page) = render_folders(&folders, args.templates.as_deref(), &out)?;
    write_summary(&rows, &out.join("summary.json"))?;
    output::line(page.display())
}

/// Renders run folders into `out` and returns the summary rows with the path of the page.
///
/// # Errors
/// As [`run`].
pub fn render_folders(
    folders: &[PathBuf],
    templates: Option<&Path>,
    out: &Path,
) -> Result<(Vec<skewbench_store::SummaryRow>, PathBuf), Failure> {
    let mut resources = Resources::default();
    let mut experiments = Vec::new();
    for folder in folders {
        let loaded = Loaded::open(folder, &mut resources)?;
        experiments.push(loaded);
    }
    let experiments: Vec<_> = experiments
        .into_iter()
        .map(|loaded| {
            let values = evaluate(&loaded, &resources);
            (loaded, values)
        })
        .collect();
    let command = experiments
        .first()
        .and_then(|(l, _)| l.data.manifest.invocations.first())
        .map(|i| i.command.iter().skip(1).map(String::as_str).collect::<Vec<_>>().join(" "))
        .unwrap_or_default();
    let rendering =
        Rendering { experiments: &experiments, command: format!("skewbench {command}"), templates, out };
    render(&rendering, &resources, &run::reference()?)
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
