//! Greedy placements beside the exact optimum of a mixed-integer program (good_lp with microlp) on tiny cases.
//!
//! Measured over the cases of these tests, load of the heaviest pool or worker over the least possible:
//!
//! | what | cases | mean | worst | may exceed the optimum by |
//! |---|---|---|---|---|
//! | VRSP: sequences in pools of equal size | 60 | 1.0035 | 1.0943 | a third less 1/(3m), proven for up to three places in m pools |
//! | TAP at tau = 0: blocks on workers | 60 | 1.0013 | 1.0311 | the heaviest block, proven |
//! | `tap-calibrated` on FLOPs: granules of 128 rows on workers | 60 | 1.1275 | 1.3316 | two granules, tested |
//!
//! A worker of the last row has two or three granules at most, which it takes in neighbouring rows: no larger case than this one is as coarse.

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, microlp, variable};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Pass, row_pairs};
use skewbench_systems::balance::Loads;
use skewbench_systems::placements::exact_cardinality_lpt;
use skewbench_systems::registry::system;

const CASES: u64 = 60;

/// The least heaviest load of `bins` bins that hold all items, each bin at most `places` of them.
fn optimum(items: &[u64], bins: usize, places: usize) -> f64 {
    let mut variables = ProblemVariables::new();
    let heaviest = variables.add(variable().min(0.0));
    let holds: Vec<Vec<_>> = items
        .iter()
        .enumerate()
        // Bins are alike: item i is in one of the first i + 1.
        .map(|(i, _)| (0..bins).map(|b| variables.add(variable().integer().min(0).max(u8::from(b <= i)))).collect())
        .collect();
    let scale = items.iter().copied().max().unwrap_or(1).max(1) as f64;
    let mut model = variables.minimise(heaviest).using(microlp);
    for row in &holds {
        model = model.with(constraint!(row.iter().copied().sum::<Expression>() == 1));
    }
    for bin in 0..bins {
        let column = || holds.iter().map(|row| row[bin]);
        let load: Expression = column().zip(items).map(|(held, item)| held * (*item as f64 / scale)).sum();
        model = model.with(constraint!(load <= heaviest));
        model = model.with(constraint!(column().sum::<Expression>() <= places as f64));
    }
    model.solve().unwrap().value(heaviest) * scale
}

/// Mean and worst of ours over the optimum; `case` returns ours, the optimum, and what ours may exceed it by.
fn survey(what: &str, case: impl Fn(&mut ChaCha8Rng) -> (u64, f64, f64)) -> (f64, f64) {
    let ratios: Vec<f64> = (0..CASES)
        .map(|seed| {
            let (ours, best, slack) = case(&mut ChaCha8Rng::seed_from_u64(seed));
            let ours = ours as f64;
            assert!(ours >= best * (1.0 - 1e-6), "{what}, case {seed}: {ours} below the optimum {best}");
            assert!(
                ours <= best + slack + 1e-6 * best,
                "{what}, case {seed}: {ours}, optimum {best}, may exceed it by {slack}"
            );
            ours / best
        })
        .collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    println!("{what}: mean {mean:.4}, worst {worst:.4}");
    (mean, worst)
}

/// Long-tailed work, as packed sequences have it.
fn work(rng: &mut ChaCha8Rng) -> u64 {
    let heavy = rng.random_range(0..4) == 0;
    if heavy { rng.random_range(300..1000) } else { rng.random_range(10..120) }
}

#[test]
fn vrsp_is_close_to_the_optimum() {
    let (mean, worst) = survey("VRSP", |rng| {
        let (pools, places) = [(2, 3), (3, 3), (2, 4), (3, 2)][rng.random_range(0..4)];
        let items: Vec<u64> = (0..pools * places).map(|_| work(rng)).collect();
        let groups = exact_cardinality_lpt(&items, &vec![places as u32; pools]);
        let ours = Loads::of_groups(&items, &groups).work.into_iter().max().unwrap_or(0);
        let best = optimum(&items, pools, places);
        let proven = if places <= 3 { best * (1.0 / 3.0 - 1.0 / (3.0 * pools as f64)) } else { f64::INFINITY };
        (ours, best, proven)
    });
    assert!(mean < 1.0036 && worst < 1.0944, "{mean} {worst}");
}

fn heaviest_rank(name: &str, given: Value, sequences: &[PackedSequence], shape: AttentionShape) -> u64 {
    let options: Map<String, Value> = given.as_object().cloned().unwrap_or_default();
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes = vec![0; sequences.len()];
    let cost = FlopsCost { flops_per_s: 5e14, bytes_per_s: 4e11 };
    let domain = Domain { sequences: &sequences, cp: 1, shape, nodes: &nodes, cost: &cost, time_factors: &[] };
    let plan = system(name, &options).unwrap().planner().plan(&domain).unwrap();
    plan.load(Pass::Forward).into_iter().max().unwrap_or(0)
}

/// Pairs of blocks of `block` rows of every sequence, each a single document.
fn blocks(sequences: &[PackedSequence], block: u32) -> Vec<u64> {
    let of = |length: u32| (0..length).step_by(block as usize).map(move |a| row_pairs(a, (a + block).min(length)));
    sequences.iter().flat_map(|s| s.documents()).flat_map(|length| of(*length)).collect()
}

fn single_documents(rng: &mut ChaCha8Rng, block: u32) -> Vec<PackedSequence> {
    let long = block * rng.random_range(3..7) - rng.random_range(0..block);
    let count = rng.random_range(1..3);
    let mut lengths = vec![long];
    lengths.extend((0..count).map(|_| rng.random_range(1..2 * block)));
    lengths.into_iter().map(|length| PackedSequence::new([length])).collect()
}

#[test]
fn tap_is_close_to_the_optimum() {
    let (mean, worst) = survey("TAP", |rng| {
        let sequences = single_documents(rng, 64);
        let tiles = blocks(&sequences, 64);
        let shape = AttentionShape { q_heads: 1, kv_heads: 1, head_dim: 64 };
        let ours = heaviest_rank("libra", json!({"B": 64, "tau": 0.0}), &sequences, shape);
        let largest = tiles.iter().copied().max().unwrap_or(0);
        (ours, optimum(&tiles, sequences.len(), tiles.len()), largest as f64)
    });
    assert!(mean < 1.0014 && worst < 1.0312, "{mean} {worst}");
}

#[test]
fn calibrated_is_close_to_the_optimum() {
    let (mean, worst) = survey("calibrated", |rng| {
        let sequences = single_documents(rng, 128);
        let granules = blocks(&sequences, 128);
        let shape = AttentionShape { q_heads: 1, kv_heads: 1, head_dim: 64 };
        let given = json!({"balance": "flops", "count_transfers": false, "max_flops": 10.0});
        let ours = heaviest_rank("libra-calibrated", given, &sequences, shape);
        let largest = granules.iter().copied().max().unwrap_or(0);
        (ours, optimum(&granules, sequences.len(), granules.len()), 2.0 * largest as f64)
    });
    assert!(mean < 1.1276 && worst < 1.3317, "{mean} {worst}");
}
