use std::cmp::Reverse;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::exact_lpt::PerPlace;
use crate::{Accepts, DefaultValue, OptionSpec};

/// How finished pools are dealt to the waves of a step.
///
/// arXiv 2607.23250 groups sequences into pools and does not say which pools share a wave, yet only those wait for each other.
/// `Sorted` is the default: among all deals of equal pools it has the least sum over waves of the heaviest pool, it moves no
/// data, and it cannot change the heaviest pool of the step, so the published placement is never charged with an unlucky deal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deal {
    /// In order of pool id: the pools of wave 0 come first.
    Arrival,
    /// Heaviest pools first, so that pools of one wave are alike.
    #[default]
    Sorted,
}

/// The option `deal` of placements that group by work.
pub(crate) const DEAL: OptionSpec = OptionSpec {
    name: "deal",
    alias: None,
    default: DefaultValue::Text("sorted"),
    accepts: Accepts::Choice(&["sorted", "arrival"]),
    summary: "pools are dealt to waves heaviest first, or in order of their id",
};

impl Deal {
    /// Deals `groups` to `waves` waves of the given pools and returns the sequences of every wave by data-parallel rank.
    /// Group `wave x pools + p` was made for the width of pool `p`; groups trade places only with groups of the same width.
    pub(crate) fn waves(self, groups: &[Vec<u32>], work: &[u64], waves: usize, pools: &[Range<u32>]) -> Vec<Vec<u32>> {
        let mut order: Vec<usize> = (0..groups.len()).collect();
        if self == Self::Sorted {
            let loads: Vec<u64> = groups.iter().map(|g| load(g, work)).collect();
            let mut widths: Vec<u32> = pools.iter().map(|p| p.end - p.start).collect();
            widths.sort_unstable();
            widths.dedup();
            for width in widths {
                let slots: Vec<usize> = (0..groups.len())
                    .filter(|g| pools.get(g % pools.len().max(1)).is_some_and(|p| p.end - p.start == width))
                    .collect();
                let mut sorted = slots.clone();
                sorted.sort_by_key(|&g| Reverse(loads[g]));
                for (slot, group) in slots.into_iter().zip(sorted) {
                    order[slot] = group;
                }
            }
        }
        let mut dealt = order.iter().map(|&g| groups[g].as_slice());
        (0..waves).map(|_| dealt.by_ref().take(pools.len()).flatten().copied().collect()).collect()
    }
}

/// Work of a group.
pub(crate) fn load(group: &[u32], work: &[u64]) -> u64 {
    group.iter().fold(0u64, |sum, &item| sum.saturating_add(work[item as usize]))
}

/// Index of the heaviest group that has places, by work per place; the lowest index on a tie.
pub(crate) fn heaviest(loads: &[PerPlace]) -> Option<usize> {
    (0..loads.len()).filter(|&g| loads[g].places > 0).max_by(|&a, &b| loads[a].cmp(loads[b]).then(b.cmp(&a)))
}
