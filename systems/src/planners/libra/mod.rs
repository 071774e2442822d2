//! Libra's pooled attention: tiled attention pooling (TAP) and its Pipeliner (arXiv 2607.23250).
//!
//! Published: inside a pool each packed sequence is cut into SH-tiles, a block of B query tokens x one of H head
//! shards; a greedy, communication-aware placer balances exact FLOPs under the soft target C = (1 + tau) x mean load;
//! KV groups (K and V of one document for one head shard) are fetched once a worker; Q, K, V and O travel in M head
//! pieces so that only the first dispatch and the last return are exposed. The paper's text beyond its abstract,
//! captions and a review is not public, so these are choices:
//!
//! - **Homes.** Q, K, V, O and their gradients live in contiguous shards, bounds floor(i L / CP), of every packed
//!   sequence over its own context-parallel ranks.
//! - **SH-tiles.** The grid starts at the start of the sequence. A block is placed whole, however many documents it
//!   touches: it has one home and one set of query rows. On its worker it is one kernel tile a document (`Mask::Causal`
//!   against the document's prefix), cut further only where the worker's own shard begins or ends, so that rows which
//!   are at home are read and written in place.
//! - **Load** is exact pairs x query heads, the same in both passes.
//! - **Order.** Heaviest first; equal loads by sequence, block, head shard.
//! - **Choice.** Among workers that stay within C the one that adds the fewest bytes, over both passes: query rows that
//!   are not at home there (Q, O, LSE and what the backward sends for them) and key rows that it neither owns nor
//!   already fetches. Ties: lower load, then lower rank. When none stays within C, the least loaded worker, ties by
//!   bytes, then rank (published).
//! - **KV groups.** A worker fetches the longest prefix it needs of a document, each row once from the row's home. Head
//!   shards that read the same KV heads share the fetch.
//! - **Head pieces** are near-equal cuts of the query heads; a head shard takes part in the pieces that it overlaps. A
//!   KV head travels with the first piece that uses it; its dK and dV accumulate over the pieces that share it and
//!   leave with the last. Where a piece's KV heads came in different calls, its kernel call is split. M and H above the
//!   query heads are cut down to them; the plan shows how many pieces it has by its calls.
//! - **Backward.** Workers free what they received, so Q, K, V are sent again with dO, O, LSE (`resend`), or keep it
//!   together with the O and LSE that they computed, and only dO is sent. dQ rows are complete on one worker (bf16); dK
//!   and dV are partial sums (f32), reduced at their homes on arrival.
//!
//! `tap` plans the P sequences of a pool together; `tap-global` plans all sequences of a wave together, with the same
//! tiles, placer and head pieces over one global pool. That is how the paper emulates DistCA: it isolates what pools cost
//! and save, and is not DistCA's own planner ([`super::distca`]).

mod assigned;
pub(super) mod grid;
mod heads;
mod options;
mod pipeline;
mod place;
pub(super) mod routes;
#[cfg(test)]
mod tests;

use skewbench_plan::{Accounting, AttentionShape, Domain, PackedSequence, Plan, Planner, Scope, SystemError};

pub use assigned::{TileAssignment, plan_assignment};
pub use options::LibraOptions;

use grid::Grid;
use heads::HeadCut;
use place::{Assignment, RowBytes};
use routes::Routes;

/// Ranks that tiles are placed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Pool,
    Wave,
}

/// Tiled attention pooling with pipelined head pieces.
#[derive(Clone, Copy, Debug)]
pub struct Libra {
    options: LibraOptions,
    reach: Reach,
}

impl Libra {
    /// Plans the ranks of one pool together.
    ///
    /// # Errors
    /// When [`LibraOptions::validate`] refuses the options.
    pub fn new(options: LibraOptions) -> Result<Self, SystemError> {
        options.validate()?;
        Ok(Self { options, reach: Reach::Pool })
    }

    /// Plans all ranks of a wave together, as one global pool.
    ///
    /// # Errors
    /// When [`LibraOptions::validate`] refuses the options.
    pub fn global(options: LibraOptions) -> Result<Self, SystemError> {
        Ok(Self { reach: Reach::Wave, ..Self::new(options)? })
    }

    /// The blocks and head shards of a checked domain, and its head pieces.
    fn tiles(&self, domain: &Domain<'_>) -> Result<(Grid, HeadCut), SystemError> {
        let longest = domain.sequences.iter().map(|s| s.tokens()).max().unwrap_or(0);
        let block = self.options.block_tokens(longest);
        let cut = HeadCut::new(domain.shape, self.options.head_shards, self.options.pieces);
        check_tiles(domain.sequences, block, cut.shards.len() as u64)?;
        Ok((Grid::new(domain.sequences, domain.cp, block), cut))
    }
}

impl Planner for Libra {
    fn name(&self) -> &str {
        match self.reach {
            Reach::Pool => "tap",
            Reach::Wave => "tap-global",
        }
    }

    fn scope(&self) -> Scope {
        match self.reach {
            Reach::Pool => Scope::Pool,
            Reach::Wave => Scope::Wave,
        }
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let ranks = check_domain(domain)?;
        let (grid, cut) = self.tiles(domain)?;
        let bytes = RowBytes::new(domain.shape, self.options.resend);
        let assignment = place::place(&grid, &cut, bytes, self.options.tau, ranks)?;
        Ok(assemble(self.name(), domain.shape, grid, &cut, &assignment, self.options.resend))
    }

    /// The greedy placer's guarantee: the target (1 + tau) x mean, or a worker that was below the mean and took one tile.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let ranks = check_domain(domain)?;
        let (grid, cut) = self.tiles(domain)?;
        let widest = cut.shards.iter().map(|shard| u64::from(shard.len())).max().unwrap_or(0);
        let largest = grid.blocks.iter().map(|block| block.pairs).max().unwrap_or(0) * widest;
        let total: u64 = domain.sequences.iter().map(|s| s.pairs()).sum::<u64>() * u64::from(domain.shape.q_heads);
        let mean = total.div_ceil(u64::from(ranks));
        let target = (mean as f64 * (1.0 + self.options.tau)) as u64 + 1;
        Ok(target.max(mean + largest))
    }
}

/// The plan of SH-tiles whose workers are known.
fn assemble(
    planner: &str,
    shape: AttentionShape,
    grid: Grid,
    cut: &HeadCut,
    assignment: &Assignment,
    resend: bool,
) -> Plan {
    let ranks = assignment.loads.len() as u32;
    let routes = Routes::new(&grid, cut, &assignment.worker, ranks);
    let (forward, backward) = pipeline::passes(cut, &routes, ranks, resend);
    let entry = grid.homes();
    Plan {
        planner: planner.to_owned(),
        shape,
        sequences: grid.sequences.into_iter().map(|s| s.documents).collect(),
        ranks,
        exit: entry.clone(),
        entry,
        forward,
        backward,
        accounting: Accounting {
            idle_ranks: assignment.loads.iter().filter(|&&load| load == 0).count() as u32,
            largest_tile: assignment.largest,
            ..Accounting::default()
        },
    }
}

/// Refuses grids whose tiles cannot be numbered. A worker cuts a document's part of a block into three tiles at most.
fn check_tiles(sequences: &[&PackedSequence], block: u32, shards: u64) -> Result<(), SystemError> {
    let parts: u64 = sequences.iter().map(|s| s.tokens().div_ceil(u64::from(block)) + s.documents().len() as u64).sum();
    let tiles = parts.saturating_mul(3 * shards);
    if tiles > u64::from(u32::MAX) {
        return Err(SystemError::Impossible(format!(
            "blocks of {block} tokens x {shards} head shards cut the pool into up to {tiles} tiles, at most {} are \
             supported; choose larger blocks or fewer head shards",
            u32::MAX
        )));
    }
    Ok(())
}

/// Refuses domains whose ranks, rows or heads cannot be numbered; returns the number of ranks.
pub(crate) fn check_domain(domain: &Domain<'_>) -> Result<u32, SystemError> {
    let shape = domain.shape;
    let AttentionShape { q_heads, kv_heads, head_dim } = shape;
    if q_heads == 0 || kv_heads == 0 || head_dim == 0 || !q_heads.is_multiple_of(kv_heads) {
        return Err(SystemError::Impossible(format!(
            "{q_heads} query heads cannot share {kv_heads} KV heads of dimension {head_dim}; all must be at least 1 and \
             the KV heads divide the query heads"
        )));
    }
    if let Some(i) = domain.sequences.iter().position(|s| s.tokens() > u64::from(u32::MAX)) {
        return Err(SystemError::Impossible(format!(
            "packed sequence {i} has {} tokens; at most {} are supported",
            domain.sequences[i].tokens(),
            u32::MAX
        )));
    }
    let ranks = domain.sequences.len() as u64 * u64::from(domain.cp);
    match u32::try_from(ranks) {
        Ok(ranks) if ranks > 0 => Ok(ranks),
        _ => Err(SystemError::Impossible(format!(
            "{} packed sequences with {} context-parallel ranks each have {ranks} ranks; at least 1 and at most {} are \
             supported",
            domain.sequences.len(),
            domain.cp,
            u32::MAX
        ))),
    }
}
