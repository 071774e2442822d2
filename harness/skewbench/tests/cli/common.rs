//! A folder of its own for every test, and the binary run inside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

/// Longest that a command of a test may take; only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(300);
/// The only files that may differ between identical runs.
const MAY_DIFFER: [&str; 7] = [
    "manifest.json",
    "timings.json",
    "events.jsonl",
    // The pages of planning times show what timings.json holds.
    "planning.html",
    "planning-time.csv",
    "planning-time.parquet",
    "planning-time-table.tex",
];

/// An experiment of a fraction of a second: two data-parallel groups of two cards on two nodes.
pub const TINY: &str = r#"title = "Tiny"
figure = "tiny"
kind = "waves"
description = "Straggler latency of every system on short windows."
gbs = 8
steps = 6
quick_steps = 1

[systems]
names = ["ulysses", "ulysses+sorted", "libra"]

[[workload]]
name = "paper-256k"
window_tokens = 8192

[layout]
dp = 2
cp = 2
cards_per_node = 2

[plot]
metrics = ["straggler_mean", "straggler_max"]
x = "system"
"#;

/// Blocks small enough that `libra` moves work between the groups of the tiny experiment.
pub const MOVING: &str = "--set options.libra.block=512";

/// How a command ended.
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// The single error line of a command that must have ended with this code.
    #[track_caller]
    pub fn error(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        let line = self.stderr.trim_end();
        assert!(line.starts_with("error: ") && !line.contains('\n'), "not one error line: {line}");
        assert!(!line.ends_with('.'), "{line}");
        line.trim_start_matches("error: ").to_owned()
    }
}

/// A temporary folder that commands run in.
pub struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A lab with `tiny.toml` in it.
    pub fn tiny() -> Self {
        let lab = Self::new();
        lab.write("tiny.toml", TINY);
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Runs the binary with words separated by spaces.
    pub fn run(&self, line: &str) -> Done {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub fn run_words(&self, words: &[&str]) -> Done {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_skewbench"));
        command.current_dir(self.folder.path()).env_remove("COLUMNS").timeout(LIMIT).args(words);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The binary, to be started and disturbed.
    pub fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_skewbench"));
        command.current_dir(self.folder.path()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    }

    /// Names in the lab, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Rows of a study's `summary.json`.
    pub fn summary(&self, study: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(study).join("summary.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Bytes of all files below a folder that identical runs share.
    pub fn shared_bytes(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(&self.path(folder), "", &mut files);
        files
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if !MAY_DIFFER.contains(&name.as_str()) && name != ".lock" {
            files.insert(path, std::fs::read(entry.path()).unwrap());
        }
    }
}

/// Names of files that differ, so that a failure prints names and not megabytes.
pub fn differing(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// A file of the repository.
pub fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
