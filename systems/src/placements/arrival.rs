//! Loader order, wave by wave: what every system does that does not touch placement.

use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "arrival",
    summary: "sequences in loader order, wave by wave",
    source: "data loaders without a balancing sampler",
    stateful: false,
    options: &[],
    build: |_| Ok(Box::new(Pooled { grouping: Grouping::Arrival, measure: Measure::Pairs, deal: Deal::Arrival })),
};
