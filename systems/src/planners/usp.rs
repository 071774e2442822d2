//! USP (arXiv 2405.07719): a grid of Ulysses groups and rings.
//!
//! CP ranks are U x R. The rows of a sequence are dealt to the R positions of a ring and those of a position are cut into U
//! contiguous pieces. An all-to-all inside every Ulysses group turns the U pieces of Q, K, V into head shards of the whole
//! position, every head shard attends over its ring ([`ring`](super::ring)), and a second all-to-all takes O home. The
//! backward takes dO there, runs the rings with the Q, K, V, O and LSE that head shards kept, and takes dQ, dK, dV home.
//!
//! Options. `ulysses`: the degree U, a divisor of CP; "auto" is the largest divisor of CP that divides the KV heads (with
//! `replicate_kv`: the query heads) and is at most the number of ranks of the CP group that share a node. `replicate_kv`: the
//! source requires U to divide the KV heads; true lifts that up to the query heads by sending a KV head to every head shard
//! that reads it, with its gradients summed in f32 at home. `ring`: how rows are dealt, `basic` (contiguous), `zigzag` or
//! `striped`. `ulysses_low`: the ranks of a Ulysses group are neighbours (true, so that all-to-alls stay inside a node) or
//! those of a ring are. `shard`: see [`ring`](super::ring).
//!
//! The source leaves packed documents open (its code takes sequences of one length), and the choice of U; both are chosen as
//! said. Zigzag is the default because the authors found it no slower than stripes. The transfers of all rings of a step form
//! one call, and an all-to-all is one call of all Ulysses groups: only ranks that exchange rows wait for each other.

use serde::{Deserialize, Serialize};
use skewbench_plan::{Domain, Plan, Planner, Scope, SystemError};

use super::cp_group::CpGroup;
use super::ring::{Deal, Grid, ShardBy, build, divisors, load_bound, shard_option};
use crate::registry::PlannerEntry;
use crate::{Accepts, DefaultValue, OptionSpec};

const ULYSSES: OptionSpec = OptionSpec {
    name: "ulysses",
    alias: Some("U"),
    default: DefaultValue::Text("auto"),
    accepts: Accepts::IntegerOrAuto { min: 1, max: 1 << 16 },
    summary: "Ulysses degree, a divisor of CP; auto = the largest that divides the KV heads and fits a node",
};

const OPTIONS: &[OptionSpec] = &[
    ULYSSES,
    OptionSpec {
        name: "replicate_kv",
        alias: None,
        default: DefaultValue::Flag(false),
        accepts: Accepts::Flag,
        summary: "send a KV head to several head shards where the Ulysses degree does not divide the KV heads",
    },
    OptionSpec {
        name: "ring",
        alias: None,
        default: DefaultValue::Text("zigzag"),
        accepts: Accepts::Choice(&["basic", "zigzag", "striped"]),
        summary: "how rows are dealt to the positions of a ring",
    },
    OptionSpec {
        name: "ulysses_low",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "the ranks of a Ulysses group are neighbours; false: those of a ring",
    },
    shard_option("document"),
];

/// Registry entry.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "usp",
    summary: "all-to-all inside Ulysses groups around a ring of every head shard",
    source: "USP, arXiv 2405.07719",
    scope: Scope::Sequence,
    options: OPTIONS,
    build: |options| Ok(Box::new(Usp { options: options.section(OPTIONS)? })),
};

/// Options of [`Usp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UspOptions {
    /// Ulysses degree; `None` chooses it.
    pub ulysses: Option<u32>,
    /// KV heads may go to several head shards.
    pub replicate_kv: bool,
    /// How rows are dealt to the positions of a ring.
    pub ring: Deal,
    /// The ranks of a Ulysses group are neighbours.
    pub ulysses_low: bool,
    /// What is dealt.
    pub shard: ShardBy,
}

/// The planner.
#[derive(Clone, Copy, Debug)]
pub struct Usp {
    /// Options.
    pub options: UspOptions,
}

impl Usp {
    fn grid(&self, group: &CpGroup, domain: &Domain<'_>) -> Result<Grid, SystemError> {
        let UspOptions { ulysses, replicate_kv, ulysses_low, .. } = self.options;
        let shape = group.shape;
        let shared = if replicate_kv { shape.q_heads } else { shape.kv_heads };
        let heads = match ulysses {
            None => head_shards(group, domain, shared),
            Some(degree) => {
                let heads = u32::from(shared);
                let fits = if replicate_kv { degree <= heads } else { heads.is_multiple_of(degree) };
                let why = match (group.cp.is_multiple_of(degree), fits, replicate_kv) {
                    (true, true, _) => None,
                    (false, ..) => Some(format!("does not divide cp = {}; choose a divisor", group.cp)),
                    (_, _, true) => Some(format!("is above the {heads} query heads; choose a smaller degree")),
                    (_, _, false) => Some(format!(
                        "does not divide the {heads} KV heads; choose a divisor or set replicate_kv = true"
                    )),
                };
                if let Some(why) = why {
                    return Err(SystemError::Option { option: ULYSSES.name, value: degree.to_string(), why });
                }
                degree
            }
        };
        let ring = group.cp / heads;
        Ok(Grid { heads, ring, window: ring, heads_first: ulysses_low })
    }
}

/// The largest divisor of CP that divides `heads` and is at most the ranks of the CP group that share a node.
pub(super) fn head_shards(group: &CpGroup, domain: &Domain<'_>, heads: u16) -> u32 {
    let mut nodes: Vec<u32> = domain.nodes.iter().copied().take(group.cp as usize).collect();
    nodes.sort_unstable();
    let neighbours = nodes.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(1);
    let fits = |degree: &u32| u32::from(heads).is_multiple_of(*degree) && *degree as usize <= neighbours;
    divisors(group.cp).rev().find(fits).unwrap_or(1)
}

impl Planner for Usp {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn scope(&self) -> Scope {
        ENTRY.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let grid = self.grid(&group, domain)?;
        build(ENTRY.name, group, grid, self.options.ring, self.options.shard)
    }

    /// The bound of the ring times the query heads of the widest head shard.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let grid = self.grid(&group, domain)?;
        load_bound(&group, &grid, self.options.ring, self.options.shard)
    }
}
