//! The file that names a program, and what a run remembers of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skewbench_config::{ConfigError, load_strict, parse_strict};
use skewbench_systems::registry;

use crate::protocol::Hello;
use crate::session::{Program, introduce};
use crate::{Ledger, options};

/// Longest time limit, one day.
const MOST_SECONDS: f64 = 86_400.0;

/// A manifest as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManifestFile {
    name: String,
    command: Vec<String>,
    #[serde(default = "minute")]
    timeout_s: f64,
    #[serde(default = "ten")]
    hello_timeout_s: f64,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    options: Map<String, Value>,
    #[serde(default)]
    files: Vec<String>,
}

impl ManifestFile {
    /// Reads and checks a text as a manifest of the name that it gives; nothing that it names is looked for.
    pub(crate) fn parse(text: &str, file_name: &str) -> Result<Self, ConfigError> {
        let file: Self = parse_strict(text, file_name)?;
        let refused = |what: String| ConfigError { file: file_name.to_owned(), line: None, what };
        file.check(&file.name).map_err(refused)?;
        Ok(file)
    }

    /// What is wrong with it whatever files there are; `stem` is the name of its file.
    fn check(&self, stem: &str) -> Result<(), String> {
        if self.name != stem {
            return Err(format!("name is {:?}; it must be that of the file, {stem:?}", self.name));
        }
        name(&self.name)?;
        for (key, seconds) in [("timeout_s", self.timeout_s), ("hello_timeout_s", self.hello_timeout_s)] {
            if !(seconds > 0.0 && seconds <= MOST_SECONDS) {
                return Err(format!("{key} = {seconds}; give seconds above 0 and at most {MOST_SECONDS}"));
            }
        }
        for (key, text) in [("summary", &self.summary), ("source", &self.source)] {
            if text.contains(char::is_control) {
                return Err(format!("{key} must be one line"));
            }
        }
        self.command().map(|_| ())
    }

    /// The program and its arguments.
    pub(crate) fn command(&self) -> Result<(&String, &[String]), String> {
        self.command.split_first().filter(|(first, _)| !first.is_empty()).ok_or_else(|| {
            "command is empty; give a program and its arguments, for example [\"python3\", \"mine.py\"]".to_owned()
        })
    }

    /// Time limits of an answer and of `hello`.
    pub(crate) fn limits(&self) -> (Duration, Duration) {
        (Duration::from_secs_f64(self.timeout_s), Duration::from_secs_f64(self.hello_timeout_s))
    }
}

fn minute() -> f64 {
    60.0
}

fn ten() -> f64 {
    10.0
}

/// What tells the cells of a program from those of another version of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Name of the system.
    pub name: String,
    /// Version that the program gives; absent when it did not say hello.
    pub version: Option<String>,
    /// Hash of the manifest and of the files that it names.
    pub fingerprint: String,
}

/// What a run remembers of a program, so that its results can be read without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Name of the system.
    pub name: String,
    /// Paths by which it was named.
    pub paths: Vec<String>,
    /// One line.
    pub summary: String,
    /// Where it is published.
    pub source: String,
    /// Its command, as the manifest gives it.
    pub command: Vec<String>,
    /// Values of options that the manifest sets.
    pub options: Map<String, Value>,
    /// Hash of the manifest and of the files that it names.
    pub fingerprint: String,
    /// What the program said about itself.
    pub hello: Option<Hello>,
    /// Why it said nothing.
    pub problem: Option<String>,
}

/// A program that systems can be made of.
#[derive(Debug)]
pub(crate) struct External {
    pub(crate) name: String,
    /// File that it was read from; none for a program that a run recorded.
    manifest: Option<PathBuf>,
    /// Paths by which it was named.
    paths: Mutex<BTreeSet<String>>,
    summary: String,
    source: String,
    command: Vec<String>,
    pub(crate) options: Map<String, Value>,
    fingerprint: String,
    /// None for a program that a run recorded: it can be described, not started.
    program: Option<Program>,
    hello: OnceLock<Result<Hello, String>>,
    pub(crate) ledger: Mutex<Ledger>,
}

impl External {
    /// Reads a manifest.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let refused = |what: String| ConfigError { file: path.display().to_string(), line: None, what };
        let file: ManifestFile = load_strict(path)?;
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        file.check(&stem).map_err(refused)?;
        let (timeout, hello_timeout) = file.limits();
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|e| refused(format!("its folder cannot be used: {e}")))?;
        let (first, arguments) = file.command().map_err(refused)?;
        // A bare name is looked for on PATH, as a shell would; anything with a folder in it starts at the manifest.
        let program = if first.contains('/') { folder.join(first) } else { PathBuf::from(first) };
        let named_files = arguments.iter().chain(Some(first).filter(|f| f.contains('/')));
        let mut files: Vec<&String> = named_files.filter(|word| folder.join(word).is_file()).collect();
        if let Some(missing) = file.files.iter().find(|f| !folder.join(f).is_file()) {
            return Err(refused(format!("files names {missing}, which is no file beside the manifest")));
        }
        files.extend(&file.files);
        let fingerprint = fingerprint(path, &folder, &files).map_err(refused)?;
        let arguments = arguments.to_vec();
        Ok(Self {
            summary: if file.summary.is_empty() { "an external program".to_owned() } else { file.summary },
            source: if file.source.is_empty() { "no source given".to_owned() } else { file.source },
            program: Some(Program {
                name: file.name.clone(),
                path: program,
                arguments,
                folder,
                timeout,
                hello_timeout,
            }),
            name: file.name,
            manifest: path.canonicalize().ok(),
            paths: Mutex::default(),
            command: file.command,
            options: file.options,
            fingerprint,
            hello: OnceLock::new(),
            ledger: Mutex::default(),
        })
    }

    /// A program as a run recorded it.
    ///
    /// # Errors
    /// When what it said about itself is nothing that a program may say.
    pub(crate) fn recorded(record: Record) -> Result<Self, ConfigError> {
        let refused = |what: String| ConfigError {
            file: format!("external system {} of the run", record.name),
            line: None,
            what,
        };
        name(&record.name).map_err(refused)?;
        if let Some(hello) = &record.hello {
            options::specs(&hello.options).map_err(refused)?;
        }
        let hello = record.hello.ok_or_else(|| record.problem.unwrap_or_else(|| "it said nothing".to_owned()));
        Ok(Self {
            name: record.name,
            manifest: None,
            paths: Mutex::new(record.paths.into_iter().collect()),
            summary: record.summary,
            source: record.source,
            command: record.command,
            options: record.options,
            fingerprint: record.fingerprint,
            program: None,
            hello: hello.into(),
            ledger: Mutex::default(),
        })
    }

    /// What the program says about itself; it is started once to be asked.
    pub(crate) fn hello(&self) -> Result<&Hello, &String> {
        let ask = || match &self.program {
            Some(program) => introduce(program, &self.ledger),
            None => Err("it is not there any more".to_owned()),
        };
        self.hello.get_or_init(ask).as_ref()
    }

    pub(crate) fn program(&self) -> Result<&Program, String> {
        let gone = || format!("external system {}: results of a run can be read without it, not made again", self.name);
        self.program.as_ref().ok_or_else(gone)
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            name: self.name.clone(),
            version: self.hello().ok().map(|h| h.version.clone()),
            fingerprint: self.fingerprint.clone(),
        }
    }

    pub(crate) fn record(&self) -> Record {
        let hello = self.hello();
        Record {
            name: self.name.clone(),
            paths: self.paths().iter().cloned().collect(),
            summary: self.summary.clone(),
            source: self.source.clone(),
            command: self.command.clone(),
            options: self.options.clone(),
            fingerprint: self.fingerprint.clone(),
            hello: hello.ok().cloned(),
            problem: hello.err().cloned(),
        }
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_named_by(&self, path: &str) -> bool {
        self.paths().contains(path)
    }

    pub(crate) fn add_path(&self, path: &str) {
        self.paths().insert(path.to_owned());
    }

    /// True when this is the manifest at `path`.
    pub(crate) fn is_manifest(&self, path: &Path) -> bool {
        self.manifest.is_some() && self.manifest == path.canonicalize().ok()
    }

    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    pub(crate) fn command(&self) -> &[String] {
        &self.command
    }

    /// Source with what tells this program from others of its name.
    pub(crate) fn full_source(&self) -> String {
        let version =
            self.hello().map_or_else(|_| "which said no hello".to_owned(), |h| format!("{} {}", h.name, h.version));
        let hash = self.fingerprint.get(..12).unwrap_or(&self.fingerprint);
        format!("{}; external program {version}, files {hash}", self.source)
    }

    pub(crate) fn note(&self, ledger: Ledger) {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).join(ledger);
    }

    pub(crate) fn take_ledger(&self) -> Ledger {
        std::mem::take(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Shared by all systems that are made of it.
pub(crate) type Shared = Arc<External>;

/// A name that can stand in pairs, tables and file names and is no built-in one.
fn name(name: &str) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!("name {name:?}: use a-z, 0-9, '-', '_' and '.', starting with a letter, at most 64"));
    }
    let built_in = registry::PLANNERS.iter().map(|p| p.name).chain(registry::PLACEMENTS.iter().map(|p| p.name));
    let systems = registry::SYSTEMS.iter().map(|s| s.name);
    if built_in.chain(systems).any(|known| known == name) {
        return Err(format!("name {name} is that of a built-in system, planner or placement; choose another"));
    }
    Ok(())
}

pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 64 && name.chars().all(plain)
}

fn fingerprint(manifest: &Path, folder: &Path, files: &[&String]) -> Result<String, String> {
    let mut hash = blake3::Hasher::new();
    let mut add = |label: &str, path: &Path| {
        let mut content = blake3::Hasher::new();
        let mut file = File::open(path).map_err(|e| format!("{} cannot be opened: {e}", path.display()))?;
        std::io::copy(&mut file, &mut content).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        hash.update(&(label.len() as u64).to_le_bytes());
        hash.update(label.as_bytes());
        hash.update(content.finalize().as_bytes());
        Ok::<_, String>(())
    };
    add("", manifest)?;
    for file in files {
        add(file, &folder.join(file))?;
    }
    Ok(hash.finalize().to_hex().to_string())
}
