use serde::{Deserialize, Serialize};
use skewbench_plan::{Domain, Plan, Planner, Scope, SystemError};

use super::{Deal, Grid, ShardBy, build, load_bound};
use crate::planners::cp_group::CpGroup;
use crate::registry::PlannerEntry;
use crate::{Accepts, DefaultValue, OptionSpec};

/// The option `shard` of a planner.
pub(crate) const fn shard_option(default: &'static str) -> OptionSpec {
    OptionSpec {
        name: "shard",
        alias: None,
        default: DefaultValue::Text(default),
        accepts: Accepts::Choice(&["document", "sequence"]),
        summary: "what is dealt to the ranks of a ring: every document, or the packed sequence as a whole",
    }
}

const BY_DOCUMENT: OptionSpec = shard_option("document");
const BY_SEQUENCE: OptionSpec = shard_option("sequence");

/// Registry entry of the ring on contiguous shards.
pub const NAIVE: PlannerEntry = PlannerEntry {
    name: "ring",
    summary: "keys and values rotate between ranks that hold contiguous rows",
    source: "ring attention, arXiv 2310.01889",
    scope: Scope::Sequence,
    options: &[BY_DOCUMENT],
    build: |options| Ok(Box::new(Ring { deal: Deal::Contiguous, options: options.section(&[BY_DOCUMENT])? })),
};

/// Registry entry of the ring on zigzag shards.
pub const ZIGZAG: PlannerEntry = PlannerEntry {
    name: "ring-zigzag",
    summary: "keys and values rotate between ranks that hold a chunk from either end",
    source: "ring attention, arXiv 2310.01889; zigzag shards as in ring-flash-attention",
    scope: Scope::Sequence,
    options: &[BY_DOCUMENT],
    build: |options| Ok(Box::new(Ring { deal: Deal::Zigzag, options: options.section(&[BY_DOCUMENT])? })),
};

/// Registry entry of the ring on striped shards.
pub const STRIPED: PlannerEntry = PlannerEntry {
    name: "ring-striped",
    summary: "keys and values rotate between ranks that hold every CP-th row",
    source: "striped attention, arXiv 2311.09431",
    scope: Scope::Sequence,
    options: &[BY_SEQUENCE],
    build: |options| Ok(Box::new(Ring { deal: Deal::Striped, options: options.section(&[BY_SEQUENCE])? })),
};

/// Options of [`Ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingOptions {
    /// What is dealt.
    pub shard: ShardBy,
}

/// The planner of one ring over all ranks of a CP group.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// How rows are dealt.
    pub deal: Deal,
    /// Options.
    pub options: RingOptions,
}

impl Ring {
    fn entry(self) -> &'static PlannerEntry {
        match self.deal {
            Deal::Contiguous => &NAIVE,
            Deal::Zigzag => &ZIGZAG,
            Deal::Striped => &STRIPED,
        }
    }
}

impl Planner for Ring {
    fn name(&self) -> &str {
        self.entry().name
    }

    fn scope(&self) -> Scope {
        self.entry().scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let group = CpGroup::of(domain, self.name())?;
        let grid = Grid::ring(group.cp);
        build(self.name(), group, grid, self.deal, self.options.shard)
    }

    /// The load of the rank whose rows see the most keys.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let group = CpGroup::of(domain, self.name())?;
        let grid = Grid::ring(group.cp);
        load_bound(&group, &grid, self.deal, self.options.shard)
    }
}
