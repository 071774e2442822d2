//! Variance-reduced sequence placement of Libra (arXiv 2607.23250): exact-cardinality longest-processing-time first.
//!
//! All sequences of an optimizer step, heaviest first, each into the lightest pool that still has one of its P places free.
//! Left open by the source and chosen here: equal sequences go in loader order, equally light pools by id; where P does not
//! divide DP the last pool of a wave is smaller and pools are compared by load per place; finished pools are dealt to waves
//! by the option `deal` (see [`Deal`] for why `sorted` is the default).

use skewbench_plan::{Placement, Placer};

use super::deal::DEAL;
use super::work::{WORK, WORK_TIME};
use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "vrsp",
    summary: "heaviest first, each sequence into the lightest pool with a free place",
    source: "arXiv 2607.23250, variance-reduced sequence placement",
    stateful: false,
    options: &[WORK, DEAL],
    build: |options| {
        let (measure, deal) = (options.get::<Measure>(&WORK)?, options.get::<Deal>(&DEAL)?);
        Ok(Box::new(Pooled { grouping: Grouping::Vrsp, measure, deal }))
    },
};

/// Registry entry of the same placement on predicted time (ours).
pub const TIME_ENTRY: PlacementEntry = PlacementEntry {
    name: "vrsp-time",
    summary: "heaviest first by predicted time, each sequence into the lightest pool with a free place",
    source: "arXiv 2607.23250, variance-reduced sequence placement; predicted time instead of FLOPs is ours",
    options: &[WORK_TIME, DEAL],
    build: |options| {
        let (measure, deal) = (options.get::<Measure>(&WORK_TIME)?, options.get::<Deal>(&DEAL)?);
        Ok(Box::new(OnTime(Pooled { grouping: Grouping::Vrsp, measure, deal })))
    },
    ..ENTRY
};

/// The placement under the name of [`TIME_ENTRY`].
struct OnTime(Pooled);

impl Placement for OnTime {
    fn name(&self) -> &str {
        TIME_ENTRY.name
    }

    fn placer(&self) -> Box<dyn Placer + '_> {
        self.0.placer()
    }
}
