use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skewbench_external::Catalogue;
use skewbench_sim::step_model::Model;
use skewbench_sim::{Overrides, Pricing, Profile};
use skewbench_workloads::{Packing, Workload, preset};

use super::memo::Memo;
use super::{MachineKey, StepSource, WorkloadKey};
use crate::experiment::{Expanded, Experiment, Scale, WorkloadFile};
use crate::failure::Failure;
use crate::replay::Session;

type SourceKey = (String, u32, u64);

/// Models and profiles, without changes, of the points of a sweep by their names.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    models: BTreeMap<String, Model>,
    profiles: BTreeMap<String, Profile>,
}

/// What cells name and computing them needs: workloads, machines, models, and steps that several cells share.
#[derive(Default)]
pub struct Resources {
    workloads: BTreeMap<String, Workload>,
    machines: BTreeMap<String, Arc<Pricing>>,
    models: BTreeMap<String, Model>,
    recorded: Vec<WorkloadKey>,
    /// As they are without an experiment's changes, by name.
    profiles: BTreeMap<String, Profile>,
    /// Machines that were opened, by profile and the changes to it.
    opened: BTreeMap<(String, String), MachineKey>,
    sources: Mutex<BTreeMap<SourceKey, Arc<StepSource>>>,
    catalogue: Catalogue,
    pub(super) memo: Memo,
    replay: Session,
}

impl Resources {
    /// Takes workloads, profile and model from what a run recorded, so that nothing but the run is needed to read it.
    ///
    /// # Errors
    /// When the record is not one that this version writes.
    pub fn recall(&mut self, experiment: &Experiment, scale: &Scale, inputs: &Value) -> Result<(), Failure> {
        fn part<T: serde::de::DeserializeOwned>(inputs: &Value, key: &str) -> Result<T, Failure> {
            let value = inputs.get(key).cloned().unwrap_or_default();
            serde_json::from_value(value).map_err(|e| Failure::config(format!("manifest.json: inputs.{key}: {e}")))
        }
        self.recorded = part(inputs, "workloads")?;
        self.opened.clear();
        let externals = part::<Option<Vec<skewbench_external::Record>>>(inputs, "externals")?.unwrap_or_default();
        self.catalogue = Catalogue::recorded(externals)?;
        self.models.insert(experiment.model.clone(), part(inputs, "model")?);
        if let Some(profile) = part::<Option<Profile>>(inputs, "profile")? {
            let name = scale.profile.as_ref().unwrap_or(&experiment.profile);
            profile.validate("manifest.json").map_err(Failure::config)?;
            self.profiles.insert(name.clone(), profile);
        }
        let swept = part::<Option<Named>>(inputs, "swept")?.unwrap_or_default();
        for profile in swept.profiles.values() {
            profile.validate("manifest.json").map_err(Failure::config)?;
        }
        self.models.extend(swept.models);
        self.profiles.extend(swept.profiles);
        Ok(())
    }

    /// What the points of a sweep need to be read again; `None` where nothing is swept.
    pub fn named(&self, expanded: &Expanded) -> Option<Named> {
        let mut named = Named::default();
        for (_, point) in &expanded.points {
            named.models.insert(point.found.experiment.model.clone(), point.model.clone());
            let profile = self.profiles.get(point.profile()).filter(|_| point.machine.is_some());
            named.profiles.extend(profile.map(|profile| (point.profile().to_owned(), profile.clone())));
        }
        (!expanded.points.is_empty()).then_some(named)
    }

    /// What was timed on a card.
    pub fn replay(&self) -> &Session {
        &self.replay
    }

    /// All systems that names can mean.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Opens a workload.
    ///
    /// # Errors
    /// Unknown preset or packing, an unreadable file, a window out of range.
    pub fn workload(&mut self, file: &WorkloadFile) -> Result<WorkloadKey, Failure> {
        // A preset's own window and packing, written out, so that one preset at two windows is two workloads.
        let defaults = preset(&file.name).ok();
        let file = &WorkloadFile {
            window_tokens: file.window_tokens.or_else(|| defaults.map(|d| d.window)),
            packing: file.packing.clone().or_else(|| defaults.map(|d| d.packing.to_string())),
            ..file.clone()
        };
        let recorded = self.recorded.iter().find(|w| {
            w.name == file.name
                && file.window_tokens.is_none_or(|tokens| tokens == w.window_tokens)
                && file.packing.as_ref().is_none_or(|p| p.parse::<Packing>().is_ok_and(|p| p.to_string() == w.packing))
        });
        if let Some(key) = recorded {
            return Ok(key.clone());
        }
        let packing = file.packing.as_deref().map(str::parse).transpose().map_err(Failure::config)?;
        let workload = Workload::open(&file.name, file.window_tokens, packing).map_err(workload_failure)?;
        let key = WorkloadKey {
            name: file.name.clone(),
            window_tokens: workload.window(),
            packing: workload.packing().to_string(),
            description: workload.description().to_owned(),
            fingerprint: workload.fingerprint(),
        };
        self.workloads.insert(key.fingerprint.clone(), workload);
        Ok(key)
    }

    /// The workload of a key.
    ///
    /// # Errors
    /// When no workload of that fingerprint has been opened.
    pub fn opened(&self, key: &WorkloadKey) -> Result<&Workload, Failure> {
        self.workloads
            .get(&key.fingerprint)
            .ok_or_else(|| Failure::internal(format!("workload {} was not opened", key.name)))
    }

    /// Steps of a workload.
    ///
    /// # Errors
    /// When a step would not fit in memory.
    pub fn steps(&self, key: &WorkloadKey, gbs: u32, seed: u64) -> Result<Arc<StepSource>, Failure> {
        let workload = self.opened(key)?;
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = (key.fingerprint.clone(), gbs, seed);
        if let Some(source) = sources.get(&slot) {
            return Ok(source.clone());
        }
        let source = Arc::new(StepSource::new(workload, gbs, seed)?);
        sources.insert(slot, source.clone());
        Ok(source)
    }

    /// Name of a profile in what is stored: that of a file is its own name with the beginning of the hash of what it holds,
    /// under which [`Resources::machine`] finds it from then on.
    ///
    /// # Errors
    /// An unreadable file, a value that no machine can have.
    pub fn content_name(&mut self, name: &str) -> Result<String, Failure> {
        if !looks_like_file(name, "json") {
            return Ok(name.to_owned());
        }
        let profile = profile_file(name)?;
        let named = format!("{}@{}", profile.name, &fingerprint(&profile)?[..12]);
        self.profiles.insert(named.clone(), profile);
        Ok(named)
    }

    /// Opens a machine profile, by name or file, with an experiment's changes.
    ///
    /// # Errors
    /// Unknown profile, unreadable file, a value that no machine can have.
    pub fn machine(&mut self, name: &str, overrides: &Overrides) -> Result<MachineKey, Failure> {
        let asked = (name.to_owned(), serde_json::to_string(overrides).map_err(Failure::internal)?);
        if let Some(opened) = self.opened.get(&asked) {
            return Ok(opened.clone());
        }
        let profile = if let Some(profile) = self.profiles.get(name) {
            profile.clone()
        } else if looks_like_file(name, "json") {
            profile_file(name)?
        } else {
            Profile::named(name).map_err(Failure::usage)?
        };
        self.profiles.entry(name.to_owned()).or_insert_with(|| profile.clone());
        let profile = overrides.apply(&profile, name).map_err(Failure::config)?;
        let fingerprint = fingerprint(&profile)?;
        self.machines.entry(fingerprint.clone()).or_insert_with(|| Arc::new(Pricing::new(profile)));
        let key = MachineKey { profile: name.to_owned(), fingerprint };
        self.opened.insert(asked, key.clone());
        Ok(key)
    }

    /// The machine of a key.
    ///
    /// # Errors
    /// When no machine of that fingerprint has been opened.
    pub fn pricing(&self, key: &MachineKey) -> Result<&Arc<Pricing>, Failure> {
        self.machines
            .get(&key.fingerprint)
            .ok_or_else(|| Failure::internal(format!("profile {} was not opened", key.profile)))
    }

    /// Opens a model, by name or file.
    ///
    /// # Errors
    /// Unknown model, unreadable file, impossible sizes.
    pub fn model(&mut self, name: &str) -> Result<Model, Failure> {
        if let Some(model) = self.models.get(name) {
            return Ok(model.clone());
        }
        let model = if looks_like_file(name, "toml") {
            let text = std::fs::read_to_string(name).map_err(|e| Failure::config(format!("{name}: {e}")))?;
            let mut models = Model::parse_list(&text, name).map_err(Failure::config)?;
            if models.len() != 1 {
                return Err(Failure::config(format!("{name}: {} models; give one [[model]] table", models.len())));
            }
            models.remove(0)
        } else {
            Model::named(name).map_err(Failure::usage)?
        };
        self.models.insert(name.to_owned(), model.clone());
        Ok(model)
    }
}

/// A workload's error: an unknown name is a matter of usage, anything else of input.
pub fn workload_failure(error: skewbench_workloads::WorkloadError) -> Failure {
    match error {
        skewbench_workloads::WorkloadError::UnknownPreset { .. } => Failure::usage(error),
        _ => Failure::config(error),
    }
}

fn profile_file(path: &str) -> Result<Profile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::config(format!("{path}: {e}")))?;
    Profile::parse(&text, path).map_err(Failure::config)
}

/// Hash of all that a profile holds.
fn fingerprint(profile: &Profile) -> Result<String, Failure> {
    let text = serde_json::to_string(profile).map_err(Failure::internal)?;
    Ok(blake3::hash(text.as_bytes()).to_hex().to_string())
}

fn looks_like_file(name: &str, suffix: &str) -> bool {
    name.contains(['/', '\\']) || Path::new(name).extension().is_some_and(|e| e == suffix)
}
