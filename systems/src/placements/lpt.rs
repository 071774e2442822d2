//! LPT of a step's sequences over the data-parallel ranks with equal counts, no attention moved.
//!
//! Balances the ranks over the whole step; inside a rank sequences run heaviest first, so that the sequences of one wave are
//! alike too.

use skewbench_plan::{PlaceContext, PlacedStep, Placement, PlacementBound, Placer, Step, SystemError, Worker};

use super::pooled::{placed, waves_of};
use super::work::{WORK, lpt_bound};
use super::{Measure, exact_cardinality_lpt};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "lpt",
    summary: "exact-cardinality LPT over data-parallel ranks, heaviest first inside a rank",
    source: "longest-processing-time first (Graham 1969) with equal counts",
    stateful: false,
    options: &[WORK],
    build: |options| Ok(Box::new(Lpt { measure: options.get::<Measure>(&WORK)? })),
};

/// The placement.
#[derive(Clone, Copy, Debug)]
pub struct Lpt {
    /// What counts as work.
    pub measure: Measure,
}

impl Placement for Lpt {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn placer(&self) -> Box<dyn Placer + '_> {
        Box::new(*self)
    }

    /// The mean of the ranks and one sequence.
    fn load_bound(&self, step: &Step, context: &PlaceContext<'_>) -> Option<PlacementBound> {
        let pairs = lpt_bound(step, self.measure, context.layout.dp)?;
        Some(PlacementBound { over: Worker::Rank, pairs })
    }
}

impl Placer for Lpt {
    fn place(&mut self, step: &Step, context: &PlaceContext<'_>) -> Result<PlacedStep, SystemError> {
        let waves = waves_of(step, context)?;
        let work = self.measure.on(&step.sequences, context.shape, context.cost);
        let ranks = exact_cardinality_lpt(&work, &vec![waves as u32; context.layout.dp as usize]);
        let waves = (0..waves).map(|w| ranks.iter().filter_map(|rank| rank.get(w).copied()).collect()).collect();
        Ok(placed(step, context, waves))
    }
}
