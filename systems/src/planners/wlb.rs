//! WLB-LLM's context parallelism (OSDI'25, arXiv 2503.17924): K and V are gathered by the whole CP group before the
//! attention, dK and dV are reduced after it, and each sequence is sharded by document or as a whole, whichever is predicted
//! to be faster.
//!
//! As in the public kernels of its artifact, found in DistCA (arXiv 2510.18121):
//!
//! - **Shards.** What is sharded is cut into 2 CP chunks of equal length and rank r gets chunks r and 2 CP - 1 - r. By
//!   document: every document is cut, and the tokens that are left go one each to the next chunks, round-robin, where the
//!   next document goes on; so documents shorter than 2 CP tokens also spread over all ranks. By sequence: the packed
//!   sequence is cut, whatever documents lie in it.
//! - **Launches.** The front chunks of a rank are one kernel call, its back chunks another, each on the keys of a document
//!   from its first to the last that the chunk sees. With CP = 1 nothing is cut and there is one call.
//! - **Transfers.** One all-gather of K and V, not overlapped; gathered rows are kept for the backward (option `regather`
//!   gathers them again and spares the memory). One reduce-scatter of dK and dV after the backward; partial sums travel in
//!   f32, as in every plan. Every rank gathers all rows, also those behind its last query; option `gather = "needed"`, ours,
//!   leaves these out.
//!   Gathered rows need no reordering here (DistCA leaves it out of its timings by default): a slab is addressed in the
//!   order of the packed sequence.
//!
//! Chosen here: the reduce-scatter leaves out sums to which a rank has contributed nothing, where the artifact sends zeros;
//! rank 0 sends and rank CP - 1 receives as much either way, so the slowest rank is not spared. The choice of the shards
//! compares the predicted times of a rank's launches, forward and backward, as they would run, at the slowest rank; transfers
//! are left out as both kinds of shards gather the same rows. Equally fast: by sequence. That the paper predicts the latency
//! of kernels too, because short shards use them badly, is unverified, and so is how it does. Option `sharding` fixes the
//! choice.

mod build;
mod cut;
mod predict;

use serde::{Deserialize, Serialize};
use skewbench_plan::{Domain, Plan, Planner, Scope, SystemError};

use super::cp_group::CpGroup;
use crate::registry::PlannerEntry;
use crate::{Accepts, DefaultValue, OptionSpec};
use build::build;
use cut::Cut;

const SHARDING: OptionSpec = OptionSpec {
    name: "sharding",
    alias: None,
    default: DefaultValue::Text("auto"),
    accepts: Accepts::Choice(&["auto", "sequence", "document"]),
    summary: "what is cut into 2 CP chunks: the packed sequence, every document, or what is predicted to be faster",
};

const GATHER: OptionSpec = OptionSpec {
    name: "gather",
    alias: None,
    default: DefaultValue::Text("all"),
    accepts: Accepts::Choice(&["all", "needed"]),
    summary: "key rows that a rank gathers: all of the sequence, or those that its queries see",
};

const REGATHER: OptionSpec = OptionSpec {
    name: "regather",
    alias: None,
    default: DefaultValue::Flag(false),
    accepts: Accepts::Flag,
    summary: "the backward gathers K and V again; false keeps what the forward gathered",
};

const OPTIONS: &[OptionSpec] = &[SHARDING, GATHER, REGATHER];

/// Registry entry.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "wlb",
    summary: "keys and values gathered by the CP group, shards by document or by sequence as predicted faster",
    source: "WLB-LLM, arXiv 2503.17924; kernels of its artifact as in DistCA, arXiv 2510.18121",
    scope: Scope::Sequence,
    options: OPTIONS,
    build: |options| Ok(Box::new(Wlb { options: options.section(OPTIONS)? })),
};

/// What is cut into 2 CP chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharding {
    /// What is predicted to be faster.
    #[default]
    Auto,
    /// The packed sequence as a whole.
    Sequence,
    /// Every document.
    Document,
}

/// Key rows that a rank gathers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gather {
    /// All rows of the sequence.
    #[default]
    All,
    /// Rows that its queries see.
    Needed,
}

/// Options of [`Wlb`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WlbOptions {
    /// What is cut into chunks.
    pub sharding: Sharding,
    /// Key rows that a rank gathers.
    pub gather: Gather,
    /// The backward gathers again.
    pub regather: bool,
}

/// The planner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wlb {
    /// Options.
    pub options: WlbOptions,
}

impl Planner for Wlb {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn scope(&self) -> Scope {
        ENTRY.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let cut = match self.options.sharding {
            Sharding::Sequence => Cut::of_sequence(&group),
            Sharding::Document => Cut::of_documents(&group),
            Sharding::Auto => {
                let (sequence, documents) = (Cut::of_sequence(&group), Cut::of_documents(&group));
                let slowest = |cut| predict::slowest_rank_ps(cut, group.shape, domain.cost);
                if slowest(&documents) < slowest(&sequence) { documents } else { sequence }
            }
        };
        Ok(build(group, &cut, self.options))
    }

    /// The rank whose rows see the most keys; where the choice depends on predicted times, of either kind of shards.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let by_sequence = || Cut::of_sequence(&group).most_pairs();
        let by_document = || Cut::of_documents(&group).most_pairs();
        let pairs = match self.options.sharding {
            Sharding::Sequence => by_sequence(),
            Sharding::Document => by_document(),
            Sharding::Auto => by_sequence().max(by_document()),
        };
        Ok(pairs * u64::from(group.shape.q_heads))
    }
}
