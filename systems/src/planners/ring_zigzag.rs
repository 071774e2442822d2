//! Ring attention (arXiv 2310.01889) with zigzag shards: rank r of R holds chunks r and 2R-1-r, keys and values rotate.
//!
//! At step s a rank attends to the keys that started on rank r - s while those of the next step arrive; two receive buffers
//! suffice, so the transfer for step s + 1 starts when the attention of step s - 1 is over. Every rank forwards what it
//! received, needed or not. The backward rotates keys and values again; dK and dV follow the ring one step behind, in f32,
//! each rank adding its contribution before it passes them on, and the last hop brings them home.
//!
//! Chunk bounds are floor(i L / 2R), so no length has to be divisible by 2R. The option `shard` cuts every document into 2R
//! chunks ("document", as ring-flash-attention does for packed sequences: every rank then has the same share of every
//! document's pairs, up to rounding) or the packed sequence as a whole ("sequence": fewer and longer tiles, but a rank's
//! share of pairs depends on where documents begin). Chosen here: a rank's two chunks are one where they touch; what a
//! rank computed on its own keys stays at home, so sums make R - 1 hops where ring-flash-attention makes R; and sums that
//! nobody has contributed to yet are not sent, where it sends zeros. Both choices spare the ring transfers. Documents of
//! fewer than 2R tokens cannot be cut evenly: their tokens fall to few ranks, which the plan's entry layout shows.

mod build;
mod shards;

use serde::{Deserialize, Serialize};
use skewbench_plan::{Domain, Plan, Planner, Scope, SystemError};

use super::cp_group::CpGroup;
use crate::registry::PlannerEntry;
use crate::{Accepts, DefaultValue, OptionSpec};
use build::build;
use shards::Shards;

const SHARD: OptionSpec = OptionSpec {
    name: "shard",
    alias: None,
    default: DefaultValue::Text("document"),
    accepts: Accepts::Choice(&["document", "sequence"]),
    summary: "what is cut into 2 CP chunks: every document, or the packed sequence as a whole",
};

/// Registry entry.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "ring-zigzag",
    summary: "keys and values rotate between ranks that hold a chunk from either end",
    source: "ring attention, arXiv 2310.01889; zigzag shards as in ring-flash-attention",
    scope: Scope::Sequence,
    options: &[SHARD],
    build: |options| Ok(Box::new(RingZigzag { options: options.section(&[SHARD])? })),
};

/// What is cut into 2 CP chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardBy {
    /// Every document.
    #[default]
    Document,
    /// The packed sequence as a whole.
    Sequence,
}

/// Options of [`RingZigzag`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingZigzagOptions {
    /// What is cut into chunks.
    pub shard: ShardBy,
}

/// The planner.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingZigzag {
    /// Options.
    pub options: RingZigzagOptions,
}

impl Planner for RingZigzag {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn scope(&self) -> Scope {
        ENTRY.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let shards = Shards::new(&group, self.options.shard);
        Ok(build(group, shards))
    }

    /// The rank whose rows see the most keys.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let shards = Shards::new(&group, self.options.shard);
        let starts = |document: u32| group.bounds[document as usize];
        let seen = |held: &[shards::Held]| -> u64 {
            let ranges = held.iter().flat_map(|h| h.ranges().map(|(_, range)| (starts(h.document), range)));
            ranges.map(|(start, (from, to))| skewbench_plan::row_pairs(from - start, to - start)).sum()
        };
        let most = shards.held.iter().map(|held| seen(held)).max().unwrap_or(0);
        Ok(most * u64::from(group.shape.q_heads))
    }
}
