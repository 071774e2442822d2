use std::sync::Arc;

use serde_json::{Map, Value};
use skewbench_plan::{Placement, Planner, Scope, SystemError};

use super::system::{POOL, unknown_option};
use super::{Capability, Description, PlacementEntry, PlannerEntry, RegistryError, System};
use crate::{OptionSpec, Options};

/// Makes half of a system from validated options.
pub type Build<T> = Arc<dyn Fn(&Options) -> Result<Box<T>, SystemError> + Send + Sync>;

/// A planner that a system can be made with, built in or not.
#[derive(Clone)]
pub struct PlannerPart {
    /// Name in pairs.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Where it is published.
    pub source: String,
    /// Which ranks plan together.
    pub scope: Scope,
    /// Its options.
    pub options: Vec<OptionSpec>,
    /// Makes it.
    pub build: Build<dyn Planner>,
}

/// A placement that a system can be made with, built in or not.
#[derive(Clone)]
pub struct PlacementPart {
    /// Name in pairs.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Where it is published.
    pub source: String,
    /// True when steps must be placed in order.
    pub stateful: bool,
    /// Its options.
    pub options: Vec<OptionSpec>,
    /// Makes it.
    pub build: Build<dyn Placement>,
}

impl From<&'static PlannerEntry> for PlannerPart {
    fn from(entry: &'static PlannerEntry) -> Self {
        Self {
            name: entry.name.to_owned(),
            summary: entry.summary.to_owned(),
            source: entry.source.to_owned(),
            scope: entry.scope,
            options: entry.options.to_vec(),
            build: Arc::new(entry.build),
        }
    }
}

impl From<&'static PlacementEntry> for PlacementPart {
    fn from(entry: &'static PlacementEntry) -> Self {
        Self {
            name: entry.name.to_owned(),
            summary: entry.summary.to_owned(),
            source: entry.source.to_owned(),
            stateful: entry.stateful,
            options: entry.options.to_vec(),
            build: Arc::new(entry.build),
        }
    }
}

/// What a system is made of.
#[derive(Clone)]
pub struct Parts {
    /// Its planner.
    pub planner: PlannerPart,
    /// Its placement.
    pub placement: PlacementPart,
    /// Summary and source of a pair that has a name of its own.
    pub named: Option<(String, String)>,
}

impl Parts {
    /// All options of the system.
    pub fn options(&self) -> Vec<OptionSpec> {
        std::iter::once(&POOL).chain(&self.placement.options).chain(&self.planner.options).copied().collect()
    }

    /// True when the system has the capability.
    pub(super) fn has(&self, capability: Capability) -> bool {
        capability.of(self.planner.scope, &self.placement.name, self.placement.stateful)
    }

    /// Describes the system under `name`.
    pub fn describe(&self, name: &str) -> Description {
        let (planner, placement) = (&self.planner, &self.placement);
        let (summary, source) = self.named.clone().unwrap_or_else(|| {
            (format!("{}; {}", planner.summary, placement.summary), format!("{}; {}", planner.source, placement.source))
        });
        Description {
            name: name.to_owned(),
            planner: planner.name.clone(),
            placement: placement.name.clone(),
            summary,
            source,
            capabilities: Capability::ALL.into_iter().filter(|c| self.has(*c)).collect(),
            options: self.options(),
        }
    }

    /// Makes the system under `name` with the given options.
    ///
    /// # Errors
    /// When an option is unknown (the error names the nearest), or a value is not accepted.
    pub fn system(&self, name: &str, options: &Map<String, Value>) -> Result<System, RegistryError> {
        let specs = self.options();
        let value = |source| RegistryError::Value { system: name.to_owned(), source };
        let options = Options::resolve(&specs, options).map_err(|problem| match problem {
            Ok(refused) => value(refused),
            Err(unknown) => unknown_option(name, &specs, unknown.option),
        })?;
        let placement = (self.placement.build)(&options).map_err(value)?;
        let planner = (self.planner.build)(&options).map_err(value)?;
        let pool = options.get(&POOL).map_err(value)?;
        Ok(System::new(name, placement, planner, options, pool))
    }
}
