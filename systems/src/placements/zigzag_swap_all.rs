//! Zigzag, then swaps with the heaviest pool until none helps: what zigzag-with-swap would be if it did not stop at one.
//!
//! Ours. Each round makes the best swap between the heaviest pool and the lightest pool that has one which helps. A swap
//! leaves both pools strictly lighter than the heaviest was, so the loads in descending order fall lexicographically and the
//! rounds end.

use super::deal::DEAL;
use super::work::WORK;
use super::zigzag_swap::Swaps;
use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "zigzag-swap-all",
    summary: "zigzag, then swaps with the heaviest pool until none helps",
    source: "ours, zigzag-with-swap carried to its end",
    stateful: false,
    options: &[WORK, DEAL],
    build: |options| {
        let (measure, deal) = (options.get::<Measure>(&WORK)?, options.get::<Deal>(&DEAL)?);
        Ok(Box::new(Pooled { grouping: Grouping::ZigzagSwapAll, measure, deal }))
    },
};

/// Zigzag with swaps until none helps.
pub(crate) fn group(work: &[u64], capacities: &[u32]) -> Vec<Vec<u32>> {
    let mut swaps = Swaps::new(work, capacities);
    while let Some((heavy, others)) = swaps.heaviest_and_others() {
        if !others.into_iter().any(|light| swaps.swap(heavy, light)) {
            break;
        }
    }
    swaps.groups
}
