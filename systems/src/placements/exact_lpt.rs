use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::work::heaviest_first;

/// Work of a group with its number of places, compared per place: groups of different size wait for each other too, and a
/// group of c sequences has the ranks of c sequences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerPlace {
    pub(crate) load: u64,
    pub(crate) places: u32,
}

impl PerPlace {
    pub(crate) fn cmp(self, other: Self) -> Ordering {
        let left = u128::from(self.load) * u128::from(other.places);
        left.cmp(&(u128::from(other.load) * u128::from(self.places)))
    }
}

struct Open {
    work: PerPlace,
    id: u32,
}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> Ordering {
        self.work.cmp(other.work).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

/// Longest-processing-time first with exact cardinalities (arXiv 2607.23250, VRSP): all items, heaviest first, each into the
/// lightest group that still has one of its `capacities[group]` places free. Equal items go in order of index, equally light
/// groups in order of id. Items beyond all places are left out; [`super::group`] refuses such input.
///
/// The source has groups of one size. Groups of different size are compared by load per place. Returns the items of every
/// group, heaviest first. O(n log n + n log groups).
pub fn exact_cardinality_lpt(work: &[u64], capacities: &[u32]) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> =
        capacities.iter().map(|&c| Vec::with_capacity(work.len().min(c as usize))).collect();
    let mut open: BinaryHeap<Reverse<Open>> = (0..)
        .zip(capacities)
        .filter(|(_, places)| **places > 0)
        .map(|(id, &places)| Reverse(Open { work: PerPlace { load: 0, places }, id }))
        .collect();
    for item in heaviest_first(work) {
        let Some(mut lightest) = open.peek_mut() else { break };
        let Reverse(group) = &mut *lightest;
        let items = &mut groups[group.id as usize];
        items.push(item);
        group.work.load = group.work.load.saturating_add(work[item as usize]);
        if items.len() == group.work.places as usize {
            PeekMut::pop(lightest);
        }
    }
    groups
}
