use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cell::canonical;
use super::environment::{collect_environment, value_without_secrets, variables, without_secrets};
use super::{Cell, Host, MANIFEST};
use crate::{StoreError, durable};

/// Version of the folder format.
pub const SCHEMA_VERSION: u64 = 1;

/// State of the source tree that a program was built from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitState {
    /// Commit, if known.
    pub revision: Option<String>,
    /// True when the tree had changes that no commit holds.
    pub dirty: bool,
}

/// All that defines a run, given by whoever starts it.
#[derive(Clone, Debug, Default)]
pub struct RunInputs {
    /// Command line. Recorded, not part of the inputs' hash.
    pub command: Vec<String>,
    /// The experiment, resolved: every default written out.
    pub experiment: String,
    /// Every other input that was used: profile, workload files by hash, models.
    pub inputs: Value,
    /// Master seed and whatever else is seeded.
    pub seeds: BTreeMap<String, u64>,
    /// Source tree. Recorded, not part of the inputs' hash.
    pub git: GitState,
    /// Versions of libraries. Recorded, not part of the inputs' hash.
    pub libraries: BTreeMap<String, String>,
    /// Cards and drivers, if any. Recorded, not part of the inputs' hash.
    pub devices: Value,
    /// Planned cells, in the order of the result.
    pub cells: Vec<Cell>,
}

impl RunInputs {
    /// Hash of what the result depends on: experiment, inputs, seeds and planned cells.
    pub fn hash(&self) -> String {
        hash_inputs(&self.experiment, &self.inputs, &self.seeds, &self.cells)
    }
}

fn hash_inputs(experiment: &str, inputs: &Value, seeds: &BTreeMap<String, u64>, cells: &[Cell]) -> String {
    let defining = json!({
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment,
        "inputs": inputs,
        "seeds": seeds,
        "cells": cells.iter().map(|c| json!([c.id, c.coordinates])).collect::<Vec<_>>(),
    });
    blake3::hash(canonical(&defining).as_bytes()).to_hex().to_string()
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Cells are missing or the run is not sealed.
    Running,
    /// Sealed.
    Complete,
}

/// One process that worked on the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// Command line.
    pub command: Vec<String>,
    /// Source tree.
    pub git: GitState,
    /// Versions of libraries.
    pub libraries: BTreeMap<String, String>,
    /// Machine.
    pub host: Host,
    /// Cards and drivers.
    pub devices: Value,
    /// Allow-listed environment variables.
    pub environment: BTreeMap<String, String>,
    /// Where the process ran and what started it, if it was one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Value>,
}

impl Invocation {
    /// This process.
    pub(super) fn of(inputs: &RunInputs, launch: Option<Value>) -> Self {
        Self {
            command: inputs.command.iter().map(|word| without_secrets(word)).collect(),
            git: inputs.git.clone(),
            libraries: inputs.libraries.clone(),
            host: Host::current(),
            devices: inputs.devices.clone(),
            environment: collect_environment(variables()),
            launch: launch.as_ref().map(value_without_secrets),
        }
    }
}

/// `manifest.json`: what was run, by what, on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the folder format.
    pub schema_version: u64,
    /// How far the run is.
    pub status: RunStatus,
    /// Planned cells.
    pub planned: usize,
    /// Finished cells when the manifest was written.
    pub finished: usize,
    /// Failed cells when the manifest was written.
    pub failed: usize,
    /// [`RunInputs::hash`].
    pub inputs_hash: String,
    /// The resolved experiment.
    pub experiment: String,
    /// blake3 of the experiment's text.
    pub experiment_hash: String,
    /// Every other input.
    pub inputs: Value,
    /// Seeds.
    pub seeds: BTreeMap<String, u64>,
    /// Processes that worked on the run, one an interruption.
    pub invocations: Vec<Invocation>,
}

impl Manifest {
    pub(super) fn new(inputs: &RunInputs) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            status: RunStatus::Running,
            planned: inputs.cells.len(),
            finished: 0,
            failed: 0,
            inputs_hash: inputs.hash(),
            experiment: inputs.experiment.clone(),
            experiment_hash: blake3::hash(inputs.experiment.as_bytes()).to_hex().to_string(),
            inputs: inputs.inputs.clone(),
            seeds: inputs.seeds.clone(),
            invocations: Vec::new(),
        }
    }

    pub(super) fn add_invocation(&mut self, inputs: &RunInputs) {
        let invocation = Invocation::of(inputs, None);
        if self.invocations.last() != Some(&invocation) {
            self.invocations.push(invocation);
        }
    }

    /// Reads the manifest of a run folder.
    pub(crate) fn read(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST);
        if !path.is_file() {
            return Err(StoreError::NotARun { dir: dir.to_owned(), what: format!("there is no {MANIFEST}") });
        }
        let value: Value = durable::read_json(&path)?;
        match value.get("schema_version").and_then(Value::as_u64) {
            Some(SCHEMA_VERSION) => {}
            Some(found) => return Err(StoreError::Version { path, found, supported: SCHEMA_VERSION }),
            None => return Err(StoreError::damaged(&path, "has no schema_version")),
        }
        serde_json::from_value(value).map_err(|e| StoreError::damaged(&path, format!("is not a manifest: {e}")))
    }

    /// True when the inputs, with these planned cells, are those that the manifest was written for.
    pub(super) fn is_of(&self, cells: &[Cell]) -> bool {
        hash_inputs(&self.experiment, &self.inputs, &self.seeds, cells) == self.inputs_hash
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), StoreError> {
        durable::write_json(&dir.join(MANIFEST), self)
    }

    /// Which inputs differ from those of the manifest, if any.
    pub(super) fn difference(&self, inputs: &RunInputs) -> Option<String> {
        if self.inputs_hash == inputs.hash() {
            return None;
        }
        let mut parts = Vec::new();
        if self.experiment != inputs.experiment {
            parts.push("experiment");
        }
        if canonical(&self.inputs) != canonical(&inputs.inputs) {
            parts.push("input files");
        }
        if self.seeds != inputs.seeds {
            parts.push("seeds");
        }
        if parts.is_empty() {
            parts.push("planned cells");
        }
        Some(format!("different {}", parts.join(", ")))
    }
}

/// Hash and size of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileSum {
    pub(crate) blake3: String,
    pub(crate) bytes: u64,
}

/// `checksums.json`: every file that identical runs share.
pub(crate) type Checksums = BTreeMap<String, FileSum>;

pub(crate) fn file_sum(path: &Path) -> Result<FileSum, StoreError> {
    let mut file = durable::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let bytes = std::io::copy(&mut file, &mut hasher).map_err(StoreError::io("read", path))?;
    Ok(FileSum { blake3: hasher.finalize().to_hex().to_string(), bytes })
}
