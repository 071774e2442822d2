use serde::{Deserialize, Serialize};
use skewbench_plan::SystemError;

use super::work::heaviest_first;
use super::{exact_cardinality_lpt, random, zigzag, zigzag_swap, zigzag_swap_all};

/// Algorithms that divide sequences into pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// Neighbours in loader order share a pool.
    Arrival,
    /// Neighbours of a seeded random order share a pool.
    Random,
    /// Neighbours by work share a pool, the heaviest in pool 0.
    Sorted,
    /// By work, in serpentine order.
    Zigzag,
    /// Zigzag with the one best swap between the heaviest and the lightest pool.
    ZigzagSwap,
    /// Zigzag with swaps until none helps.
    ZigzagSwapAll,
    /// Variance-reduced sequence placement: exact-cardinality LPT.
    Vrsp,
}

impl Grouping {
    /// All algorithms.
    pub const ALL: [Self; 7] =
        [Self::Arrival, Self::Random, Self::Sorted, Self::Zigzag, Self::ZigzagSwap, Self::ZigzagSwapAll, Self::Vrsp];

    /// The name that experiments use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Random => "random",
            Self::Sorted => "sorted",
            Self::Zigzag => "zigzag",
            Self::ZigzagSwap => "zigzag-swap",
            Self::ZigzagSwapAll => "zigzag-swap-all",
            Self::Vrsp => "vrsp",
        }
    }
}

/// Capacities of the pools of `sequences` sequences, `pool` at a time; the last pool is smaller where `pool` does not divide.
/// A pool of 0 counts as 1.
pub fn equal_capacities(sequences: u32, pool: u32) -> Vec<u32> {
    let pool = pool.max(1);
    (0..sequences.div_ceil(pool)).map(|i| pool.min(sequences - i * pool)).collect()
}

/// Divides items of the given work into groups of at most `capacities[group]` items; every item is in exactly one group.
/// `seed` is read by [`Grouping::Random`] alone.
///
/// # Errors
/// When the capacities hold fewer places than there are items.
pub fn group(work: &[u64], capacities: &[u32], grouping: Grouping, seed: u64) -> Result<Vec<Vec<u32>>, SystemError> {
    let places: u64 = capacities.iter().map(|&c| u64::from(c)).sum();
    if places < work.len() as u64 {
        let what = format!(
            "{} sequences do not fit into {} pools of {places} places in all; add pools or enlarge them",
            work.len(),
            capacities.len()
        );
        return Err(SystemError::Impossible(what));
    }
    Ok(match grouping {
        Grouping::Arrival => fill(0..work.len() as u32, capacities),
        Grouping::Random => fill(random::shuffled(work.len() as u32, seed), capacities),
        Grouping::Sorted => fill(heaviest_first(work), capacities),
        Grouping::Zigzag => zigzag::serpentine(heaviest_first(work), capacities),
        Grouping::ZigzagSwap => zigzag_swap::group(work, capacities),
        Grouping::ZigzagSwapAll => zigzag_swap_all::group(work, capacities),
        Grouping::Vrsp => exact_cardinality_lpt(work, capacities),
    })
}

/// Fills one group after another in the given order.
fn fill(order: impl IntoIterator<Item = u32>, capacities: &[u32]) -> Vec<Vec<u32>> {
    let mut order = order.into_iter();
    capacities.iter().map(|&c| order.by_ref().take(c as usize).collect()).collect()
}
