use skewbench_plan::SystemError;

use super::shards::{ShardBy, Shards};
use super::{Deal, Grid};
use crate::planners::cp_group::CpGroup;

/// Pairs x query heads that no rank of a grid exceeds: the pairs of the heaviest ring position times the query heads of the
/// widest head shard. Some rank reaches it.
///
/// *Zigzag of every document.* With Q = floor(L / 2R) no position has more pairs of a document of L rows than L (Q + 1), nor
/// fewer than L Q; so positions differ by at most L, the pairs of the document's longest row. Proof. Positions 0 to c - 1 hold
/// the first floor(z) and the last ceil(z) rows, z = c L / 2R. The first a rows have a (a + 1) / 2 pairs and the last b have
/// b L - b (b - 1) / 2. With a = b = z (z whole) that is z L + z; with b = a + 1 it is ceil(z) L. Position c has the
/// difference of two such sums: L (ceil(z') - ceil(z)), plus z' if z' = z + L / 2R is whole, less z if z is. Let 2R not
/// divide L, so that z and z' are not both whole. If z is whole, ceil(z') - z = Q + 1 and the position has L (Q + 1) - z; if
/// z' is whole, z' - ceil(z) = Q and it has L Q + z'; if neither is, it has L Q or L (Q + 1). Since z and z' are at most L / 2,
/// all lie in [L Q, L (Q + 1)], and position 0 (z = 0, whole) has L (Q + 1). Where 2R divides L every position has Q (L + 1).
/// Position 0 is the heaviest for every document, so the sum over documents is its load.
///
/// *All others*: the pairs of every position's rows, summed over documents, where row x of a document has x + 1; the
/// greatest. For stripes that is an arithmetic series a document.
///
/// # Errors
/// As the planner.
pub(crate) fn load_bound(group: &CpGroup, grid: &Grid, deal: Deal, by: ShardBy) -> Result<u64, SystemError> {
    let pairs = if deal == Deal::Zigzag && by == ShardBy::Document {
        group.documents().map(|(start, end)| zigzag(end - start, grid.ring)).sum()
    } else {
        Shards::new(group, grid.ring, deal, by).pairs(group).into_iter().max().unwrap_or(0)
    };
    Ok(pairs * u64::from(group.shape.q_heads.div_ceil(grid.heads as u16)))
}

/// The most pairs that a position has of a zigzag document.
fn zigzag(len: u32, ring: u32) -> u64 {
    let (len, chunks) = (u64::from(len), 2 * u64::from(ring));
    if len.is_multiple_of(chunks) { len / chunks * (len + 1) } else { len * (len / chunks + 1) }
}
