//! By work, dealt to pools in serpentine order: pools 0, 1, ..., n-1, n-1, ..., 1, 0, 0, ...
//!
//! A comparator of arXiv 2607.23250 (fig. 8), of which only the name is public. Pools that are full are passed over, which
//! matters only where pools differ in size.

use super::deal::DEAL;
use super::work::WORK;
use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "zigzag",
    summary: "sequences by work, dealt to pools in serpentine order",
    source: "arXiv 2607.23250, zigzag (fig. 8)",
    stateful: false,
    options: &[WORK, DEAL],
    build: |options| {
        let (measure, deal) = (options.get::<Measure>(&WORK)?, options.get::<Deal>(&DEAL)?);
        Ok(Box::new(Pooled { grouping: Grouping::Zigzag, measure, deal }))
    },
};

/// Deals items in the given order to groups, serpentine, passing over full groups.
pub(crate) fn serpentine(order: Vec<u32>, capacities: &[u32]) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = capacities.iter().map(|_| Vec::new()).collect();
    let mut open: Vec<usize> = (0..groups.len()).filter(|&g| capacities[g] > 0).collect();
    let mut items = order.into_iter();
    loop {
        for &g in &open {
            match items.next() {
                Some(item) => groups[g].push(item),
                None => return groups,
            }
        }
        open.retain(|&g| groups[g].len() < capacities[g] as usize);
        if open.is_empty() {
            return groups;
        }
        open.reverse();
    }
}
