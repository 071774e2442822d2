//! By work, dealt to waves: the heaviest DP sequences run in one wave, and no attention is moved.
//!
//! The trivial baseline that arXiv 2607.23250 does not compare with. It removes much of the waiting between data-parallel
//! ranks for free and none of the spread of times from wave to wave that a pipeline sees.

use super::work::WORK;
use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "sorted",
    summary: "sequences by work, the heaviest DP in one wave, no attention moved",
    source: "trivial baseline, ours",
    stateful: false,
    options: &[WORK],
    build: |options| {
        let measure = options.get::<Measure>(&WORK)?;
        Ok(Box::new(Pooled { grouping: Grouping::Sorted, measure, deal: Deal::Arrival }))
    },
};
