use serde::Serialize;
use serde_json::{Map, Value};
use skewbench_plan::{Placement, Planner};

use super::error::nearest;
use super::{Capability, NamedSystem, PLACEMENTS, PLANNERS, Parts, RegistryError, SYSTEMS};
use crate::{Accepts, DefaultValue, OptionSpec, Options};

/// The option that every system has: metrics are over pools even where attention stays in its sequence.
pub(super) const POOL: OptionSpec = OptionSpec {
    name: "pool",
    alias: Some("P"),
    default: DefaultValue::Integer(8),
    accepts: Accepts::Integer { min: 1, max: 1 << 20 },
    summary: "sequences of a pool; cut to DP where DP is smaller",
};

/// A placement with a planner, ready to use.
pub struct System {
    name: String,
    placement: Box<dyn Placement>,
    planner: Box<dyn Planner>,
    options: Options,
    pool: u32,
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

impl System {
    pub(super) fn new(
        name: &str,
        placement: Box<dyn Placement>,
        planner: Box<dyn Planner>,
        options: Options,
        pool: u32,
    ) -> Self {
        Self { name: name.to_owned(), placement, planner, options, pool }
    }

    /// The name by which it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its placement.
    pub fn placement(&self) -> &dyn Placement {
        &*self.placement
    }

    /// Its planner.
    pub fn planner(&self) -> &dyn Planner {
        &*self.planner
    }

    /// Its options, every one with a value.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Sequences of a pool, P, before it is cut to DP.
    pub fn pool(&self) -> u32 {
        self.pool
    }

    /// True when it has the capability.
    pub fn has(&self, capability: Capability) -> bool {
        capability.of(self.planner.scope(), self.placement.name(), self.placement.stateful())
    }
}

/// What a listing says about a system.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Name.
    pub name: String,
    /// Its planner.
    pub planner: String,
    /// Its placement.
    pub placement: String,
    /// One line.
    pub summary: String,
    /// Where it is published.
    pub source: String,
    /// What it may be selected by.
    pub capabilities: Vec<Capability>,
    /// Its options with their defaults.
    pub options: Vec<OptionSpec>,
}

/// The named systems.
pub fn systems() -> Vec<Description> {
    SYSTEMS.iter().filter_map(|s| describe(s.name).ok()).collect()
}

/// Names of the named systems that have all of the capabilities.
pub fn systems_with(capabilities: &[Capability]) -> Vec<&'static str> {
    let has_all = |named: &NamedSystem| parts(named.name).is_ok_and(|parts| capabilities.iter().all(|c| parts.has(*c)));
    SYSTEMS.iter().filter(|s| has_all(s)).map(|s| s.name).collect()
}

/// Describes a named system or any pair `planner+placement`.
///
/// # Errors
/// When the name is unknown; the error names the nearest.
pub fn describe(name: &str) -> Result<Description, RegistryError> {
    Ok(parts(name)?.describe(name))
}

/// Makes a named system or any pair `planner+placement` with the given options.
///
/// # Errors
/// When the name or an option is unknown (the error names the nearest), or a value is not accepted.
pub fn system(name: &str, options: &Map<String, Value>) -> Result<System, RegistryError> {
    parts(name)?.system(name, options)
}

pub(super) fn unknown_option(system: &str, specs: &[OptionSpec], option: String) -> RegistryError {
    let hint = nearest(&option, specs.iter().flat_map(|s| std::iter::once(s.name).chain(s.alias)));
    let known = specs.iter().map(|s| format!("{} ({})", s.name, s.accepts)).collect::<Vec<_>>().join(", ");
    RegistryError::Option { system: system.to_owned(), option, hint, known }
}

/// What a named system or any pair `planner+placement` is made of.
///
/// # Errors
/// When the name is unknown; the error names the nearest.
pub fn parts(name: &str) -> Result<Parts, RegistryError> {
    let named = SYSTEMS.iter().find(|s| s.name == name);
    let (planner, placement) = match (named, name.split_once('+')) {
        (Some(named), _) => (named.planner, named.placement),
        (None, Some(pair)) => pair,
        (None, None) => {
            let known: Vec<&str> = SYSTEMS.iter().map(|s| s.name).collect();
            return Err(RegistryError::System {
                name: name.to_owned(),
                hint: nearest(name, known.iter().copied()),
                known: known.join(", "),
            });
        }
    };
    let half = |kind, wanted: &str, known: Vec<&str>| RegistryError::Half {
        kind,
        name: wanted.to_owned(),
        pair: name.to_owned(),
        hint: nearest(wanted, known.iter().copied()),
        known: known.join(", "),
    };
    let planner = PLANNERS
        .iter()
        .find(|p| p.name == planner)
        .ok_or_else(|| half("planner", planner, PLANNERS.iter().map(|p| p.name).collect()))?;
    let placement = PLACEMENTS
        .iter()
        .find(|p| p.name == placement)
        .ok_or_else(|| half("placement", placement, PLACEMENTS.iter().map(|p| p.name).collect()))?;
    Ok(Parts {
        planner: planner.into(),
        placement: placement.into(),
        named: named.map(|n| (n.summary.to_owned(), n.source.to_owned())),
    })
}
