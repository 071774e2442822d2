//! DistCA: core attention disaggregation (arXiv 2510.18121; public planner at hao-ai-lab/DistCA, revision 2afd219).
//!
//! Every rank is an *attention server* for all ranks of the wave, in place: the same rank runs the linear layers of its
//! own tokens and the attention that the planner gives it.
//!
//! - **Linear layers.** Documents of the wave in order (sequences in the order of their data-parallel ranks) fill ranks
//!   0, 1, ... up to ceil(tokens / ranks). A document that a rank cannot take whole is nested over ranks: each takes what
//!   fits, half from the front and half from the back of what is left. Packed sequences and context-parallel groups have
//!   no other meaning to it: DP x CP only says how many servers there are.
//! - **Balance.** Servers below the mean load, neediest first, take work until their deficit is at most `tolerance` x mean.
//!   The next item is the one of all servers with a surplus that sends the fewest elements a pair; it moves whole or by
//!   its innermost pairs of rows, each of which costs L + 1 pairs of a document of L tokens. Loads are exact pairs.
//! - **Communication.** One all-to-all takes the query rows of moved items and the keys that every server's rows see,
//!   each key row once a server; a second one takes O home. The backward sends Q, K, V, dO, O and LSE again
//!   (`resend_qkv`) or dO alone, and takes dQ (final, bf16) and dK, dV (partial, f32) home. With nested documents keys
//!   travel even when nothing is balanced.
//! - **Ping-pong.** The sequences of the wave are cut into two micro-batches of equal count and like work, each filled
//!   and balanced over all ranks. Transfers take turns on one stream: dispatch of ping, dispatch of pong under the
//!   attention of ping, return of ping under the attention of pong, return of pong. A wave of one sequence is one
//!   micro-batch, and nothing overlaps.
//!
//! Chosen here, and what it changes:
//!
//! - The published runtime also hides the first dispatch and the last return under linear layers of the other micro-batch.
//!   A wave here is attention alone, so they are exposed.
//! - It raises the tolerance until transfers fit a buffer. Here `tolerance` is used as given.
//! - It accepts even lengths only and its data loader rounds lengths up to multiples of 16. Here an odd item's outermost
//!   row has no partner and moves only with the whole item; the pairs of rows further in still cost the same. With
//!   `round` = 16 fill and balance see lengths and ranks' shares that are rounded up, as published, and the rows that do
//!   not exist are left out of the plan: it computes no padding.
//! - It takes the hidden size for the width of Q and hidden / heads for the dimension of a head. Here both come from the
//!   shape: query heads x head dimension elements a query row, 2 x KV heads x head dimension a key row.
//! - It charges a move for the keys of the whole document (`kv_charge = "document"`) though a server gets those up to
//!   its last row; `"shard"` charges those. Neither knows what a server has already.
//! - Rows at home are read in place where all of their keys are there too, instead of travelling through the exchange. Where
//!   head and tail touch they are one tile.
//! - With `resend_qkv = false` LSE goes home as well, though nobody reads it there but the ranks' own rows.
//! - Equal priorities go to the first item in list order, as by the published stable sort.
//!
//! The tolerance bounds the deficit of servers and not the surplus: with seven servers 9% below the mean and one 63%
//! above, 0.1 moves nothing. If no server gave up for want of a pair of rows that fits, max / mean is at most
//! 1 + tolerance x (ranks - 1). What holds always is that a server that received work is not above the mean and no other
//! is above what the fill gave it.

mod balance;
mod fill;
mod halves;
mod options;
mod passes;
mod routes;
#[cfg(test)]
mod tests;

use skewbench_plan::{Accounting, Domain, Pass, Plan, Planner, Scope, SystemError};

pub use options::{DistCaOptions, KvCharge};

use super::libra::check_domain;
use crate::registry::PlannerEntry;
use balance::{Price, balance};
use fill::{Document, Item, documents, fill, loads};
use halves::halves;
use options::OPTIONS;
use routes::Routes;

/// Registry entry.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "distca",
    summary: "documents fill ranks in order, then head-tail pairs of rows move to ranks below the mean load",
    source: "DistCA, arXiv 2510.18121; planner at hao-ai-lab/DistCA 2afd219",
    scope: Scope::Wave,
    options: OPTIONS,
    build: |options| Ok(Box::new(DistCa::new(options.section::<DistCaOptions>(OPTIONS)?)?)),
};

/// The planner.
#[derive(Clone, Copy, Debug)]
pub struct DistCa {
    options: DistCaOptions,
}

/// One of the sets of sequences that are filled and balanced together.
struct MicroBatch {
    documents: Vec<Document>,
    filled: Vec<Item>,
}

impl DistCa {
    /// A planner with these options.
    ///
    /// # Errors
    /// When [`DistCaOptions::validate`] refuses them.
    pub fn new(options: DistCaOptions) -> Result<Self, SystemError> {
        options.validate()?;
        Ok(Self { options })
    }

    /// The layout of every micro-batch before it is balanced.
    fn filled(&self, domain: &Domain<'_>) -> Result<(u32, Vec<MicroBatch>), SystemError> {
        let ranks = check_domain(domain)?;
        let lengths = || domain.sequences.iter().flat_map(|s| s.documents());
        let squares = |&len: &u32| {
            let len = u128::from(len) + u128::from(self.options.round);
            len * len
        };
        let most = lengths().map(squares).sum::<u128>() * u128::from(domain.shape.q_heads);
        // A document is at most one piece a rank and each move adds one, of two tiles at most.
        let pieces = lengths().count() as u64 + 2 * u64::from(ranks);
        if most > u128::from(u64::MAX) || pieces > u64::from(u32::MAX / 4) {
            return Err(SystemError::Impossible(format!(
                "a wave of {} documents on {ranks} ranks has more pairs x query heads or more pieces than can be \
                 counted; use fewer or shorter sequences",
                lengths().count()
            )));
        }
        let batches = halves(domain.sequences, self.options.ping_pong).into_iter().map(|members| {
            let documents = documents(domain.sequences, &members, self.options.round);
            MicroBatch { filled: fill(&documents, ranks, self.options.round), documents }
        });
        Ok((ranks, batches.collect()))
    }
}

impl Planner for DistCa {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn scope(&self) -> Scope {
        ENTRY.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let (ranks, batches) = self.filled(domain)?;
        let shape = domain.shape;
        let price = Price::new(shape, self.options.kv_charge);
        let longest = batches.iter().flat_map(|b| &b.documents).map(|d| d.rounded).max();
        let routes: Vec<Routes> = batches
            .into_iter()
            .map(|MicroBatch { documents, filled }| {
                let mut balanced = filled.clone();
                balance(&mut balanced, &documents, ranks, self.options.tolerance, price);
                Routes::new(&documents, &filled, balanced, ranks)
            })
            .collect::<Result<_, SystemError>>()?;
        let entry: Vec<_> = routes.iter().flat_map(|routes| &routes.homes).copied().collect();
        let of_pass = |pass| passes::pass(pass, &routes, shape, ranks, self.options.resend_qkv);
        let mut plan = Plan {
            planner: self.name().to_owned(),
            shape,
            sequences: domain.sequences.iter().map(|s| Plan::bounds(s.documents())).collect(),
            ranks,
            exit: entry.clone(),
            entry,
            forward: of_pass(Pass::Forward),
            backward: of_pass(Pass::Backward),
            accounting: Accounting {
                largest_tile: longest.map_or(0, |len| (u64::from(len) + 1) * u64::from(shape.q_heads)),
                ..Accounting::default()
            },
        };
        let idle = (0..ranks as usize).filter(|&rank| routes.iter().all(|r| r.server_tiles[rank].is_empty()));
        plan.accounting.idle_ranks = idle.count() as u32;
        Ok(plan)
    }

    /// What the fill gave the heaviest server, or the mean: of every micro-batch, summed. It is all that holds always, and
    /// far above what the tolerance suggests.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let (ranks, batches) = self.filled(domain)?;
        let mut most = vec![0u64; ranks as usize];
        for batch in &batches {
            let loads = loads(&batch.filled, ranks);
            let mean = loads.iter().sum::<u64>().div_ceil(u64::from(ranks));
            // The balancer adds in f64, whose rounding may lift a server by less than that.
            let mean = mean + (mean >> 40);
            for (most, load) in most.iter_mut().zip(loads) {
                *most = most.saturating_add(load.max(mean));
            }
        }
        let most = most.into_iter().max().unwrap_or(0);
        Ok(most.saturating_mul(u64::from(domain.shape.q_heads)))
    }
}
