//! Zigzag, then the one swap of two sequences between the heaviest and the lightest pool that helps most.
//!
//! A comparator of arXiv 2607.23250 (fig. 8), of which only the name "zigzag-with-swap" is public; this is how we read it.
//! A swap helps when the heavier of the two pools is strictly lighter than the heaviest was; the best swap leaves that pool
//! lightest, the first in order of positions on a tie. Pools are compared by load per place.

use super::deal::{DEAL, heaviest, load};
use super::exact_lpt::PerPlace;
use super::work::{WORK, heaviest_first};
use super::zigzag::serpentine;
use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "zigzag-swap",
    summary: "zigzag, then the one best swap between the heaviest and the lightest pool",
    source: "arXiv 2607.23250, zigzag-with-swap (fig. 8), as we read its name",
    stateful: false,
    options: &[WORK, DEAL],
    build: |options| {
        let (measure, deal) = (options.get::<Measure>(&WORK)?, options.get::<Deal>(&DEAL)?);
        Ok(Box::new(Pooled { grouping: Grouping::ZigzagSwap, measure, deal }))
    },
};

/// Groups that swaps may improve, with their loads.
pub(crate) struct Swaps<'a> {
    work: &'a [u64],
    pub(crate) groups: Vec<Vec<u32>>,
    loads: Vec<PerPlace>,
}

impl<'a> Swaps<'a> {
    /// The zigzag grouping.
    pub(crate) fn new(work: &'a [u64], capacities: &[u32]) -> Self {
        let groups = serpentine(heaviest_first(work), capacities);
        let loads = groups
            .iter()
            .zip(capacities)
            .map(|(group, &places)| PerPlace { load: load(group, work), places })
            .collect();
        Self { work, groups, loads }
    }

    /// The heaviest group and all others with places, lightest first.
    pub(crate) fn heaviest_and_others(&self) -> Option<(usize, Vec<usize>)> {
        let heavy = heaviest(&self.loads)?;
        let mut others: Vec<usize> =
            (0..self.groups.len()).filter(|&g| g != heavy && self.loads[g].places > 0).collect();
        others.sort_by(|&a, &b| self.loads[a].cmp(self.loads[b]));
        Some((heavy, others))
    }

    /// Makes the best swap between two groups, `heavy` being the heavier, if one helps.
    pub(crate) fn swap(&mut self, heavy: usize, light: usize) -> bool {
        let (before, below) = (self.loads[heavy], self.loads[light]);
        let mut best = before;
        let mut found = None;
        for (i, &a) in self.groups[heavy].iter().enumerate() {
            for (j, &b) in self.groups[light].iter().enumerate() {
                let Some(shift) = self.work[a as usize].checked_sub(self.work[b as usize]).filter(|d| *d > 0) else {
                    continue;
                };
                let lower = PerPlace { load: before.load.saturating_sub(shift), ..before };
                let upper = PerPlace { load: below.load.saturating_add(shift), ..below };
                let worse = if lower.cmp(upper).is_lt() { upper } else { lower };
                if worse.cmp(best).is_lt() {
                    best = worse;
                    found = Some((i, j, lower, upper));
                }
            }
        }
        let Some((i, j, lower, upper)) = found else { return false };
        let moved = self.groups[heavy][i];
        self.groups[heavy][i] = std::mem::replace(&mut self.groups[light][j], moved);
        (self.loads[heavy], self.loads[light]) = (lower, upper);
        true
    }
}

/// Zigzag with at most one swap.
pub(crate) fn group(work: &[u64], capacities: &[u32]) -> Vec<Vec<u32>> {
    let mut swaps = Swaps::new(work, capacities);
    if let Some((heavy, others)) = swaps.heaviest_and_others()
        && let Some(&light) = others.first()
    {
        swaps.swap(heavy, light);
    }
    swaps.groups
}
