use serde::{Deserialize, Serialize};
use skewbench_plan::{AttentionShape, Cost, PackedSequence, Step, TileShape};

use crate::call_time::causal_call_ps;
use crate::{Accepts, DefaultValue, OptionSpec};

/// What a placement counts as the work of a packed sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Unmasked (query, key) pairs, exact.
    #[default]
    Pairs,
    /// Sum of squared document lengths, the proxy of published algorithms.
    LSquared,
    /// Predicted picoseconds of a kernel call on the whole sequence, forward and backward, on one card.
    Time,
}

/// The option `work` of every placement that compares sequences.
pub(crate) const WORK: OptionSpec = OptionSpec {
    name: "work",
    alias: None,
    default: DefaultValue::Text("pairs"),
    accepts: Accepts::Choice(&["pairs", "l_squared", "time"]),
    summary: "work of a sequence: its exact unmasked pairs, the sum of its squared document lengths, or its predicted time",
};

/// [`WORK`] of placements that compare predicted times.
pub(crate) const WORK_TIME: OptionSpec = OptionSpec { default: DefaultValue::Text("time"), ..WORK };

impl Measure {
    /// Work of one sequence where no machine is known: [`Measure::Time`] is then taken to be in proportion to the pairs.
    pub fn of(self, sequence: &PackedSequence) -> u64 {
        match self {
            Self::Pairs | Self::Time => sequence.pairs(),
            Self::LSquared => u64::try_from(sequence.l_squared()).unwrap_or(u64::MAX),
        }
    }

    /// Work of every sequence on cards that `cost` predicts.
    pub fn on(self, sequences: &[PackedSequence], shape: AttentionShape, cost: &dyn Cost) -> Vec<u64> {
        if self != Self::Time {
            return self.of_all(sequences);
        }
        let mut tiles = Vec::new();
        let mut time = |sequence: &PackedSequence| {
            tiles.clear();
            tiles.extend(sequence.documents().iter().map(|&len| TileShape { q: len, k: len }));
            causal_call_ps(&tiles, shape, cost)
        };
        sequences.iter().map(&mut time).collect()
    }

    /// Work of every sequence, as [`Measure::of`].
    pub fn of_all(self, sequences: &[PackedSequence]) -> Vec<u64> {
        sequences.iter().map(|s| self.of(s)).collect()
    }
}

/// Indices of all items, heaviest first; equal items in order of index.
pub(crate) fn heaviest_first(work: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..work.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| work[b as usize].cmp(&work[a as usize]).then(a.cmp(&b)));
    order
}

/// Pairs that no group of exact-cardinality LPT exceeds when `groups` groups have as many places each: the mean and the
/// heaviest sequence (list scheduling, Graham 1969; that full groups do not break it is tested). `None` for another measure of
/// work, which bounds no pairs.
pub(crate) fn lpt_bound(step: &Step, measure: Measure, groups: u32) -> Option<u64> {
    let pairs = step.sequences.iter().map(PackedSequence::pairs);
    let (total, heaviest) = pairs.fold((0u64, 0), |(sum, most), p| (sum.saturating_add(p), most.max(p)));
    (measure == Measure::Pairs && groups > 0).then(|| (total / u64::from(groups)).saturating_add(heaviest))
}
