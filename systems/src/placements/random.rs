//! A seeded random order, dealt wave by wave: the comparator of arXiv 2607.23250, figures 4 and 8.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Deal, Grouping, Measure, Pooled};
use crate::registry::PlacementEntry;

/// Registry entry.
pub const ENTRY: PlacementEntry = PlacementEntry {
    name: "random",
    summary: "sequences in a seeded random order, wave by wave",
    source: "arXiv 2607.23250, random grouping (fig. 4, fig. 8)",
    stateful: false,
    options: &[],
    build: |_| Ok(Box::new(Pooled { grouping: Grouping::Random, measure: Measure::Pairs, deal: Deal::Arrival })),
};

/// The indices `0..n` in a random order that depends on `seed` alone.
pub(crate) fn shuffled(n: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    order
}
