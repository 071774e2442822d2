//! LoongTrain (arXiv 2406.18485): 2D attention, head-parallel x context-parallel, with a double ring.
//!
//! CP ranks are d_hp x d_cp. As in [`usp`](super::usp), an all-to-all inside every head-parallel group makes head shards of
//! sequence shards around the rings of d_cp positions, with zigzag rows. The ring is cut into windows of w positions. The
//! inner ring rotates keys and values inside every window; meanwhile an outer ring, on a stream of its own, takes what every
//! position had when its window began on to the same place of the next window, so every rank sends to another window at once.
//! The backward runs both rings again and two more for dK and dV: inside a window sums hop one step behind, and after its
//! last step they go on to the next window, each on a stream of its own.
//!
//! Options. `hp`: d_hp, a divisor of CP of at most the query heads; "auto" is the largest that divides the query heads and is
//! at most the number of ranks of the CP group that share a node. Where it exceeds the KV heads they are replicated, as the
//! source does, and their gradients are summed in f32 at home. `window`: w, a divisor of d_cp; "auto" is the largest that is
//! at most the square root of d_cp, as MagiAttention's benchmark of LoongTrain picks it (w = 1 and w = d_cp are one plain
//! ring). `placement`: `head-first` puts the ranks of a head-parallel group next to each other, so that all-to-alls stay
//! inside a node, `context-first` those of a ring. That the source means this by the two names is unverified; both orders
//! exist in public code. `shard`: see [`ring`](super::ring).
//!
//! Left open by the source and chosen here: packed documents (its code takes sequences of one length), and that a position
//! on which a window begins keeps its own contribution to dK and dV until the sum of the others is back, so that sums make
//! w - 1 hops in a window. Differs from the public code: that casts the sums to bf16 between windows. Here partial sums
//! travel in f32 everywhere, because the checker accepts nothing else, and the outer hops of dK and dV take twice the bytes.

use serde::{Deserialize, Serialize};
use skewbench_plan::{Domain, Plan, Planner, Scope, SystemError};

use super::cp_group::CpGroup;
use super::ring::{Deal, Grid, ShardBy, build, divisors, load_bound, shard_option};
use super::usp::head_shards;
use crate::registry::PlannerEntry;
use crate::{Accepts, DefaultValue, OptionSpec};

const HP: OptionSpec = OptionSpec {
    name: "hp",
    alias: Some("d_hp"),
    default: DefaultValue::Text("auto"),
    accepts: Accepts::IntegerOrAuto { min: 1, max: 1 << 16 },
    summary: "head-parallel degree, a divisor of CP; auto = the largest that divides the query heads and fits a node",
};

const WINDOW: OptionSpec = OptionSpec {
    name: "window",
    alias: Some("w"),
    default: DefaultValue::Text("auto"),
    accepts: Accepts::IntegerOrAuto { min: 1, max: 1 << 16 },
    summary: "positions of an inner ring, a divisor of d_cp = CP / hp; auto = the largest of at most sqrt(d_cp)",
};

const OPTIONS: &[OptionSpec] = &[
    HP,
    WINDOW,
    OptionSpec {
        name: "placement",
        alias: None,
        default: DefaultValue::Text("head-first"),
        accepts: Accepts::Choice(&["head-first", "context-first"]),
        summary: "whose ranks are neighbours: those of a head-parallel group, or those of a ring",
    },
    shard_option("document"),
];

/// Registry entry.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "loongtrain",
    summary: "all-to-all inside head-parallel groups around double rings",
    source: "LoongTrain, arXiv 2406.18485",
    scope: Scope::Sequence,
    options: OPTIONS,
    build: |options| Ok(Box::new(LoongTrain { options: options.section(OPTIONS)? })),
};

/// Whose ranks are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DevicePlacement {
    /// Those of a head-parallel group.
    HeadFirst,
    /// Those of a ring.
    ContextFirst,
}

/// Options of [`LoongTrain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoongTrainOptions {
    /// Head-parallel degree; `None` chooses it.
    pub hp: Option<u32>,
    /// Positions of an inner ring; `None` chooses it.
    pub window: Option<u32>,
    /// Whose ranks are neighbours.
    pub placement: DevicePlacement,
    /// What is dealt.
    pub shard: ShardBy,
}

/// The planner.
#[derive(Clone, Copy, Debug)]
pub struct LoongTrain {
    /// Options.
    pub options: LoongTrainOptions,
}

impl LoongTrain {
    fn grid(&self, group: &CpGroup, domain: &Domain<'_>) -> Result<Grid, SystemError> {
        let LoongTrainOptions { hp, window, placement, .. } = self.options;
        let refuse = |option, value: u32, why| SystemError::Option { option, value: value.to_string(), why };
        let q_heads = group.shape.q_heads;
        let heads = match hp {
            None => head_shards(group, domain, q_heads),
            Some(hp) if !group.cp.is_multiple_of(hp) => {
                return Err(refuse(HP.name, hp, format!("does not divide cp = {}; choose a divisor", group.cp)));
            }
            Some(hp) if hp > u32::from(q_heads) => {
                let why = format!("is above the {q_heads} query heads; choose a smaller degree");
                return Err(refuse(HP.name, hp, why));
            }
            Some(hp) => hp,
        };
        let ring = group.cp / heads;
        let window = match window {
            None => divisors(ring).rev().find(|w| u64::from(*w) * u64::from(*w) <= u64::from(ring)).unwrap_or(1),
            Some(window) if !ring.is_multiple_of(window) => {
                let why = format!("does not divide the {ring} positions of a ring (cp / hp); choose a divisor");
                return Err(refuse(WINDOW.name, window, why));
            }
            Some(window) => window,
        };
        // Windows of one position are a ring of windows, which is one ring.
        let window = if window == 1 { ring } else { window };
        Ok(Grid { heads, ring, window, heads_first: placement == DevicePlacement::HeadFirst })
    }
}

impl Planner for LoongTrain {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn scope(&self) -> Scope {
        ENTRY.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let grid = self.grid(&group, domain)?;
        build(ENTRY.name, group, grid, Deal::Zigzag, self.options.shard)
    }

    /// The bound of the ring times the query heads of the widest head shard.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let grid = self.grid(&group, domain)?;
        load_bound(&group, &grid, Deal::Zigzag, self.options.shard)
    }
}
