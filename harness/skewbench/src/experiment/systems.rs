//! Which systems take part, and what tuning may do to them.

use std::collections::BTreeSet;

use skewbench_systems::registry;

use super::{Expanded, TunedFile};
use crate::failure::{Failure, nearest};

impl Expanded {
    /// Systems of the experiment, or of the run in their place, each once and in order.
    ///
    /// # Errors
    /// None, or one that does not exist; options of one that does not exist.
    pub(super) fn resolve_systems(&self) -> Result<Vec<String>, Failure> {
        let e = &self.found.experiment;
        let mut names: Vec<String> = self.scale.systems.clone();
        if names.is_empty() {
            names.clone_from(&e.systems.names);
            let capabilities = e.systems.with.iter().map(|c| c.parse()).collect::<Result<Vec<_>, _>>();
            let capabilities = capabilities.map_err(|error| self.at_key("with", error))?;
            if !capabilities.is_empty() {
                names.extend(registry::systems_with(&capabilities).into_iter().map(String::from));
            }
        }
        if names.is_empty() {
            return Err(self.at_key("systems", "no system; name some in systems.names or select them by systems.with"));
        }
        let mut names = names
            .iter()
            .map(|name| {
                self.catalogue.admit(name).map_err(|error| {
                    let failure = Failure::from(error);
                    if self.scale.systems.is_empty() { self.in_file("names", failure) } else { failure }
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        if let Some(name) = e.options.keys().find(|name| self.catalogue.describe(name).is_err()) {
            return Err(self.at_key(&format!("options.{name}"), "options of a system that does not exist"));
        }
        Ok(names)
    }

    /// Refuses tuning that could not run, or would be reported on its own steps.
    ///
    /// # Errors
    /// The key that asks for it, and why.
    pub(super) fn check_tuning(&self) -> Result<(), Failure> {
        let e = &self.found.experiment;
        for entry in &e.tuned {
            let made = self.catalogue.system(&entry.system, &entry.options, self.seed);
            made.map_err(|error| self.at_key("tuned", error))?;
        }
        if !e.systems.tuned {
            return Ok(());
        }
        let tune = &e.tune;
        if [tune.configurations, tune.steps, tune.quick_configurations, tune.quick_steps].contains(&0) {
            return Err(self.at_key("tune", "0 configurations or steps; give at least 1 of each"));
        }
        if tune.seed == self.seed {
            let what = format!("seed {} is that of the reported steps; tune on another", tune.seed);
            return Err(self.at_key("tune", what));
        }
        let known = self.systems.iter().filter_map(|s| self.catalogue.describe(s).ok()).flat_map(|d| d.options);
        let known: Vec<&str> = known.flat_map(|o| std::iter::once(o.name).chain(o.alias)).collect();
        match tune.keep.iter().find(|k| !known.contains(&k.as_str())) {
            Some(other) => {
                let hint = nearest(other, known.iter().copied());
                Err(self.at_key("tune", format!("keep: no system has an option {other}{hint}")))
            }
            None => Ok(()),
        }
    }

    /// What tuning chose for a system on a workload.
    pub fn tuned(&self, workload: usize, system: &str) -> Option<&TunedFile> {
        let key = &self.workloads.get(workload)?.0;
        self.found.experiment.tuned.iter().find(|t| {
            t.system == system
                && (&t.dataset, t.window_tokens, &t.packing) == (&key.name, key.window_tokens, &key.packing)
        })
    }
}
