//! Theorems about placements.

use proptest::prelude::*;
use skewbench_plan::{AttentionShape, FlopsCost, Layout, PackedSequence, PlaceContext, Step};
use skewbench_systems::balance::{Loads, StepBalance};
use skewbench_systems::placements::{Deal, Grouping, Measure, Pooled, equal_capacities, exact_cardinality_lpt, group};
use skewbench_systems::registry::{PLACEMENTS, system};

/// Work that repeats often, so that ties are met.
fn work(max: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![0u64..6, 0u64..1000, 0u64..1 << 50], 1..max)
}

fn heaviest(work: &[u64], groups: &[Vec<u32>]) -> u64 {
    Loads::of_groups(work, groups).work.into_iter().max().unwrap_or(0)
}

/// The least heaviest load over all divisions into groups of the given capacities.
fn optimum(work: &[u64], capacities: &[u32]) -> u64 {
    fn go(work: &[u64], loads: &mut [u64], free: &mut [u32], best: &mut u64) {
        let Some((&item, rest)) = work.split_first() else {
            *best = (*best).min(loads.iter().copied().max().unwrap_or(0));
            return;
        };
        for g in 0..loads.len() {
            if free[g] > 0 && loads[g] + item < *best && !(0..g).any(|o| (loads[o], free[o]) == (loads[g], free[g])) {
                loads[g] += item;
                free[g] -= 1;
                go(rest, loads, free, best);
                loads[g] -= item;
                free[g] += 1;
            }
        }
    }
    let mut best = u64::MAX;
    go(work, &mut vec![0; capacities.len()], &mut capacities.to_vec(), &mut best);
    best
}

proptest! {
    #[test]
    fn every_item_is_in_one_group_of_exact_size(work in work(150), pool in 1u32..20, seed: u64) {
        let capacities = equal_capacities(work.len() as u32, pool);
        for grouping in Grouping::ALL {
            let groups = group(&work, &capacities, grouping, seed).unwrap();
            let sizes: Vec<u32> = groups.iter().map(|g| g.len() as u32).collect();
            prop_assert_eq!(&sizes, &capacities, "{}", grouping.name());
            let mut seen: Vec<u32> = groups.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..work.len() as u32).collect::<Vec<_>>(), "{}", grouping.name());
            prop_assert_eq!(group(&work, &capacities, grouping, seed).unwrap(), groups, "{}", grouping.name());
        }
    }

    #[test]
    fn capacities_may_differ_and_be_zero(capacities in prop::collection::vec(0u32..6, 1..12), seed: u64) {
        let places: u32 = capacities.iter().sum();
        let work: Vec<u64> = (0..places).map(|i| u64::from(i) * 37 % 11).collect();
        for grouping in Grouping::ALL {
            let groups = group(&work, &capacities, grouping, seed).unwrap();
            prop_assert!(groups.iter().zip(&capacities).all(|(g, c)| g.len() as u32 == *c), "{}", grouping.name());
            let mut more = work.clone();
            more.push(1);
            prop_assert!(group(&more, &capacities, grouping, seed).is_err());
        }
    }

    #[test]
    fn swaps_never_hurt(work in work(150), pool in 1u32..20) {
        let capacities = equal_capacities(work.len() as u32, pool);
        let r = |grouping| Loads::of_groups(&work, &group(&work, &capacities, grouping, 0).unwrap()).r();
        let (zigzag, one, all) = (r(Grouping::Zigzag), r(Grouping::ZigzagSwap), r(Grouping::ZigzagSwapAll));
        prop_assert!(one <= zigzag, "{one} {zigzag}");
        prop_assert!(all <= one, "{all} {one}");
    }

    /// Pairs: the largest meets the smallest, which is optimal. Triples: at most 4/3 - 1/(3m) of the optimum
    /// (Kellerer and Woeginger 1993, "A tight bound for 3-partitioning").
    #[test]
    fn exact_cardinality_lpt_keeps_its_bound(work in prop::collection::vec(0u64..60, 9), m in 2usize..5, k in 1u32..4) {
        let capacities = vec![k; m];
        let work = &work[..work.len().min(m * k as usize)];
        prop_assume!(work.len() == m * k as usize);
        let ours = heaviest(work, &exact_cardinality_lpt(work, &capacities));
        let best = optimum(work, &capacities);
        if k <= 2 {
            prop_assert_eq!(ours, best);
        } else {
            prop_assert!(3 * m as u64 * ours <= (4 * m as u64 - 1) * best, "{} {}", ours, best);
        }
    }

    /// Without exhausted groups exact-cardinality LPT is list scheduling: the heaviest load exceeds the mean by less than an item.
    #[test]
    fn lpt_bound_when_places_do_not_bind(work in work(60), m in 1usize..9) {
        let groups = exact_cardinality_lpt(&work, &vec![work.len() as u32; m]);
        let (mean, max) = (work.iter().sum::<u64>() / m as u64, *work.iter().max().unwrap());
        prop_assert!(heaviest(&work, &groups) <= mean + max);
        let pairs = Loads { places: vec![1; m], ..Loads::of_groups(&work, &groups) };
        prop_assert!(pairs.r() >= 1.0 || work.iter().all(|w| *w == 0));
    }

    /// Full groups do not break it where all groups have as many places: the heaviest and the lightest differ by one item.
    #[test]
    fn lpt_bound_when_places_bind(work in work(80), m in 1usize..7) {
        let places = work.len() / m;
        let work = &work[..places * m];
        prop_assume!(!work.is_empty());
        let groups = exact_cardinality_lpt(work, &vec![places as u32; m]);
        let loads = Loads::of_groups(work, &groups).work;
        let (heaviest, lightest) = (*loads.iter().max().unwrap(), *loads.iter().min().unwrap());
        prop_assert!(heaviest - lightest <= *work.iter().max().unwrap());
    }

    #[test]
    fn dealing_sorted_pools_waits_least(lengths in lengths(), dp in 1u32..6, waves in 1usize..6, pool in 1u32..4) {
        prop_assume!(dp % pool.min(dp) == 0);
        let step = step(&lengths, dp as usize * waves);
        let context = context(Layout::dp_cp(dp, 1), pool, 1);
        let wave_r = |deal| {
            let pooled = Pooled { grouping: Grouping::Vrsp, measure: Measure::Pairs, deal };
            let placed = skewbench_plan::Placement::placer(&pooled).place(&step, &context).unwrap();
            StepBalance::of_pools(&placed, &Measure::Pairs.of_all(&placed.sequences)).wave_r()
        };
        prop_assert!(wave_r(Deal::Sorted) <= wave_r(Deal::Arrival) + 1e-9);
    }

    #[test]
    fn every_placement_runs_each_document_once(
        lengths in lengths(), dp in 1u32..9, waves in 1usize..5, pool in 1u32..10, seed: u64,
    ) {
        let step = step(&lengths, dp as usize * waves);
        let context = context(Layout::dp_cp(dp, 2), pool, seed);
        for entry in PLACEMENTS {
            let system = system(&format!("ulysses+{}", entry.name), &serde_json::Map::new()).unwrap();
            prop_assert_eq!(system.placement().name(), entry.name);
            let mut placer = system.placement().placer();
            let placed = placer.place(&step, &context).unwrap();
            if entry.stateful {
                // What it holds back or brings in is its own tests' matter.
                prop_assert_eq!(&placed, &system.placement().placer().place(&step, &context).unwrap());
            } else {
                prop_assert_eq!(&placed, &placer.place(&step, &context).unwrap());
                prop_assert!(placed.preserved && placed.late.is_empty() && placed.delayed_tokens == 0);
                prop_assert_eq!(documents(&placed.sequences), documents(&step.sequences));
                prop_assert_eq!(placer.finish(&context).unwrap(), []);
            }
            prop_assert_eq!(placed.waves.len(), waves);
            prop_assert!(placed.waves.iter().all(|w| w.sequences.len() == dp as usize));
            let mut seen: Vec<u32> = placed.waves.iter().flat_map(|w| w.sequences.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..placed.sequences.len() as u32).collect::<Vec<_>>());
            prop_assert_eq!(placed.pools.last().map(|p| p.end), Some(dp));
            let balance = StepBalance::of_pools(&placed, &Measure::Pairs.of_all(&placed.sequences));
            prop_assert!(balance.r() >= 1.0 - 1e-12 && balance.wave_r() >= -1e-12);
            prop_assert!((0.0..1.0).contains(&(balance.waiting() + 1e-12)));
        }
    }
}

/// Lengths of all documents, sorted.
fn documents(sequences: &[PackedSequence]) -> Vec<u32> {
    let mut all: Vec<u32> = sequences.iter().flat_map(|s| s.documents().iter().copied()).collect();
    all.sort_unstable();
    all
}

fn lengths() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![Just(1u32), 1u32..50, 1u32..100_000], 1..40)
}

const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

fn context(layout: Layout, pool: u32, seed: u64) -> PlaceContext<'static> {
    PlaceContext { layout, pool, seed, shape: AttentionShape { q_heads: 8, kv_heads: 2, head_dim: 64 }, cost: &COST }
}

/// `gbs` sequences of one to three of the lengths.
fn step(lengths: &[u32], gbs: usize) -> Step {
    let document = |i: usize| lengths[i % lengths.len()];
    let sequences = (0..gbs).map(|i| PackedSequence::new((0..=i % 3).map(|j| document(i * 7 + j)))).collect();
    Step { index: 0, window: 300_000, sequences }
}

#[test]
fn sorted_runs_the_heaviest_sequences_together() {
    let step = step(&[5, 900, 17, 3000, 40, 1, 77, 12_000], 8);
    let context = context(Layout::dp_cp(2, 1), 8, 0);
    let system = system("ulysses+sorted", &serde_json::Map::new()).unwrap();
    let placed = system.placement().placer().place(&step, &context).unwrap();
    let order: Vec<u64> =
        placed.waves.iter().flat_map(|w| &w.sequences).map(|&s| step.sequences[s as usize].pairs()).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
}

#[test]
fn steps_that_do_not_fit_are_refused() {
    for name in PLACEMENTS.iter().map(|p| p.name) {
        let system = system(&format!("ulysses+{name}"), &serde_json::Map::new()).unwrap();
        let mut placer = system.placement().placer();
        for (gbs, dp) in [(8, 3), (0, 1), (8, 0), (4, 8)] {
            let error = placer.place(&step(&[9], gbs), &context(Layout::dp_cp(dp, 1), 8, 0)).unwrap_err().to_string();
            assert!(error.contains(&format!("gbs = {gbs}")), "{error}");
        }
    }
}

#[test]
fn balance_of_a_small_step() {
    let placed = skewbench_plan::PlacedStep {
        sequences: Vec::new(),
        waves: [vec![0, 1, 2], vec![3, 4, 5]].map(|sequences| skewbench_plan::Wave { sequences }).to_vec(),
        pools: vec![0..2, 2..3],
        preserved: true,
        late: Vec::new(),
        delayed_tokens: 0,
    };
    let work = [6, 2, 1, 4, 4, 7];
    // Per place: wave 0 has 4 and 1 of mean 3, wave 1 has 4 and 7 of mean 5; the step has mean 4.
    let pools = StepBalance::of_pools(&placed, &work);
    assert_eq!(pools.r(), 7.0 / 4.0);
    assert_eq!(pools.wave_r(), (4.0 + 7.0) / (3.0 + 5.0) - 1.0);
    assert_eq!(pools.waiting(), 1.0 - 8.0 / 11.0);
    let ranks = StepBalance::of_ranks(&placed, &work);
    assert_eq!(ranks.wave_r(), (6.0 + 7.0) / 8.0 - 1.0);
    assert_eq!(Loads::default().r(), 1.0);
}

#[test]
fn vrsp_fills_the_lightest_pool_with_room() {
    // 9 | 8 | 7, then 3 to the pool of 7, 2 to the pool of 8, 1 to the pool of 9.
    let groups = exact_cardinality_lpt(&[1, 9, 2, 8, 3, 7], &[2, 2, 2]);
    assert_eq!(groups, [[1, 0], [3, 2], [5, 4]]);
    // The pool of 1 + 1 is lightest but full when the last item comes.
    assert_eq!(exact_cardinality_lpt(&[9, 1, 1, 1], &[2, 2]), [[0, 3], [1, 2]]);
}
