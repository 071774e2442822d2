use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skewbench_plan::{Placement, Planner, Scope, SystemError};

use super::RegistryError;
use super::error::nearest;
use crate::{OptionSpec, Options};

/// A placement that systems may name.
#[derive(Clone, Copy, Debug)]
pub struct PlacementEntry {
    /// Name in pairs.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// True when steps must be placed in order.
    pub stateful: bool,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Makes it from validated options.
    pub build: fn(&Options) -> Result<Box<dyn Placement>, SystemError>,
}

/// A planner that systems may name.
#[derive(Clone, Copy, Debug)]
pub struct PlannerEntry {
    /// Name in pairs.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// Which ranks plan together.
    pub scope: Scope,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Makes it from validated options.
    pub build: fn(&Options) -> Result<Box<dyn Planner>, SystemError>,
}

/// A published pair with a name of its own.
#[derive(Clone, Copy, Debug)]
pub struct NamedSystem {
    /// Name.
    pub name: &'static str,
    /// Its planner.
    pub planner: &'static str,
    /// Its placement.
    pub placement: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Where it is published.
    pub source: &'static str,
}

/// What systems may be selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// Attention moves between the CP groups of different sequences.
    MovesAttention,
    /// Attention stays in the CP group of its sequence.
    KeepsAttention,
    /// Sequences do not run in loader order.
    ChangesPlacement,
    /// Sequences run in loader order.
    KeepsPlacement,
    /// A step's placement depends on the steps before it.
    Stateful,
    /// Every step is placed on its own.
    Stateless,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 6] = [
        Self::MovesAttention,
        Self::KeepsAttention,
        Self::ChangesPlacement,
        Self::KeepsPlacement,
        Self::Stateful,
        Self::Stateless,
    ];

    /// The name that experiments use.
    pub fn name(self) -> &'static str {
        match self {
            Self::MovesAttention => "moves-attention",
            Self::KeepsAttention => "keeps-attention",
            Self::ChangesPlacement => "changes-placement",
            Self::KeepsPlacement => "keeps-placement",
            Self::Stateful => "stateful",
            Self::Stateless => "stateless",
        }
    }

    /// True when a pair has the capability.
    pub(crate) fn of(self, scope: Scope, placement: &str, stateful: bool) -> bool {
        let moves = scope != Scope::Sequence;
        let changes = placement != crate::placements::arrival::ENTRY.name;
        match self {
            Self::MovesAttention => moves,
            Self::KeepsAttention => !moves,
            Self::ChangesPlacement => changes,
            Self::KeepsPlacement => !changes,
            Self::Stateful => stateful,
            Self::Stateless => !stateful,
        }
    }
}

impl FromStr for Capability {
    type Err = RegistryError;

    fn from_str(name: &str) -> Result<Self, RegistryError> {
        Self::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| RegistryError::Capability {
            name: name.to_owned(),
            hint: nearest(name, Self::ALL.map(Self::name)),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}
