//! WLB-LLM: nothing is lost over long streams of steps, and plans are right for every kind of shards.

mod oracle;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{
    AttentionShape, Cost, Domain, FlopsCost, LaunchShape, Layout, PackedSequence, Pass, PlaceContext, PlacedStep, Plan,
    Step,
};
use skewbench_systems::registry::{System, system};

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };
const WINDOW: u32 = 1000;

fn made(name: &str, given: &Value) -> System {
    system(name, given.as_object().unwrap()).unwrap()
}

fn context(dp: u32) -> PlaceContext<'static> {
    let shape = AttentionShape { q_heads: 8, kv_heads: 2, head_dim: 64 };
    PlaceContext { layout: Layout::dp_cp(dp, 2), pool: 8, seed: 0, shape, cost: &COST }
}

/// A window of one document, of single tokens, of documents of odd lengths, or of one long document and a rest.
fn window(rng: &mut ChaCha8Rng) -> PackedSequence {
    let mut left = WINDOW;
    let mut documents = Vec::new();
    let longest = match rng.random_range(0..5) {
        0 => return PackedSequence::new([WINDOW]),
        1 if rng.random_range(0..4) == 0 => 1,
        2 => 2 * rng.random_range(1..400) + 1,
        3 => {
            documents.push(rng.random_range(WINDOW / 2..WINDOW));
            left -= documents[0];
            300
        }
        _ => 120,
    };
    while left > 0 {
        documents.push(rng.random_range(1..=longest.min(left)));
        left -= documents[documents.len() - 1];
    }
    PackedSequence::new(documents)
}

fn stream(steps: u64, gbs: u32, seed: u64) -> Vec<Step> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..steps)
        .map(|index| Step { index, window: WINDOW, sequences: (0..gbs).map(|_| window(&mut rng)).collect() })
        .collect()
}

/// All steps that a placement makes of a stream, and how many of them come after its end.
fn place_all(system: &System, steps: &[Step], dp: u32) -> (Vec<PlacedStep>, usize) {
    let mut placer = system.placement().placer();
    let mut placed: Vec<PlacedStep> = steps.iter().map(|step| placer.place(step, &context(dp)).unwrap()).collect();
    let extra = placer.finish(&context(dp)).unwrap();
    assert_eq!(placer.finish(&context(dp)).unwrap(), [], "the queues are empty after the drain");
    let count = extra.len();
    placed.extend(extra);
    (placed, count)
}

fn documents<'a>(sequences: impl IntoIterator<Item = &'a PackedSequence>) -> Vec<u32> {
    let mut all: Vec<u32> = sequences.into_iter().flat_map(|s| s.documents().iter().copied()).collect();
    all.sort_unstable();
    all
}

fn deferral() -> impl Strategy<Value = Value> {
    let lmax = prop_oneof![Just(1.0), Just(1.3), Just(2.0), Just(3.0)];
    let outlier = prop_oneof![Just(0.0), Just(0.3), Just(0.5), Just(1.0)];
    let packing = (lmax, prop_oneof![Just("pairs"), Just("l_squared")], prop_oneof![Just("sorted"), Just("arrival")]);
    let linear = prop_oneof![Just(0u64), Just(300), Just(1 << 40)];
    (packing, linear, 0u32..5, outlier, prop_oneof![Just(0u32), 1u32..6, Just(40)]).prop_map(
        |((lmax, work, deal), linear_tokens, levels, outlier, max_delay)| {
            json!({
                "lmax": lmax, "work": work, "deal": deal, "linear_tokens": linear_tokens, "levels": levels,
                "outlier": outlier, "max_delay": max_delay,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_doubled_over_long_streams(
        options in deferral(), steps in 1u64..300, dp in 1u32..5, waves in 1u32..5, seed: u64,
    ) {
        let gbs = dp * waves;
        let steps = stream(steps, gbs, seed);
        let (placed, extra) = place_all(&made("wlb", &options), &steps, dp);
        let delivered = documents(steps.iter().flat_map(|s| &s.sequences));
        prop_assert_eq!(documents(placed.iter().flat_map(|p| &p.sequences)), delivered);

        let max_delay = options["max_delay"].as_u64().unwrap();
        let limit = (options["lmax"].as_f64().unwrap() * f64::from(WINDOW)) as u64;
        let mut waiting = 0;
        for (i, step) in placed.iter().enumerate() {
            let fresh: u64 = steps.get(i).map_or(0, |s| s.sequences.iter().map(PackedSequence::tokens).sum());
            let run: u64 = step.sequences.iter().map(PackedSequence::tokens).sum();
            waiting = waiting + fresh - run;
            prop_assert_eq!(step.delayed_tokens, waiting);
            prop_assert!(step.late.iter().all(|l| l.steps >= 1 && u64::from(l.steps) <= max_delay), "{:?}", step.late);
            let late: u64 = step.late.iter().map(|l| u64::from(l.tokens)).sum();
            prop_assert!(late <= run);

            // Documents that may wait no longer always fit within two windows.
            let longest = step.sequences.iter().map(PackedSequence::tokens).max().unwrap_or(0);
            let overdue = step.late.iter().any(|l| u64::from(l.steps) == max_delay) || max_delay == 0;
            prop_assert!(longest <= limit || (overdue && limit < 2 * u64::from(WINDOW)), "{} {}", longest, limit);

            prop_assert!(!step.waves.is_empty() && step.waves.len() <= waves as usize);
            prop_assert!(i >= steps.len() || step.waves.len() == waves as usize);
            prop_assert!(step.waves.iter().all(|w| w.sequences.len() == dp as usize));
            let mut seen: Vec<u32> = step.waves.iter().flat_map(|w| w.sequences.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..step.sequences.len() as u32).collect::<Vec<_>>());
            prop_assert_eq!(step.pools.last().map(|p| p.end), Some(dp));

            let empty = step.sequences.iter().filter(|s| s.documents().is_empty()).count();
            prop_assert!(empty == 0 || waiting == 0, "{empty} empty micro-batches while {waiting} tokens wait");
            let same = steps.get(i).is_some_and(|s| documents(&s.sequences) == documents(&step.sequences));
            prop_assert!(same || !step.preserved);
            prop_assert!(i < steps.len() || !step.preserved);
        }
        prop_assert_eq!(waiting, 0);
        prop_assert!(extra as u64 <= max_delay.max(1));
        prop_assert_eq!(place_all(&made("wlb", &options), &steps, dp).0, placed);
    }

    #[test]
    fn without_deferral_steps_keep_their_documents(dp in 1u32..5, waves in 1u32..5, seed: u64) {
        let steps = stream(20, dp * waves, seed);
        let alone = made("wlb-no-deferral", &json!({}));
        prop_assert!(!alone.placement().stateful());
        let (placed, extra) = place_all(&alone, &steps, dp);
        prop_assert_eq!(extra, 0);
        for (step, placed) in steps.iter().zip(&placed) {
            prop_assert_eq!(documents(&step.sequences), documents(&placed.sequences));
            prop_assert!(placed.preserved && placed.late.is_empty() && placed.delayed_tokens == 0);
            prop_assert!(placed.sequences.iter().all(|s| s.tokens() <= 2 * u64::from(WINDOW)));
            prop_assert_eq!(&alone.placement().placer().place(step, &context(dp)).unwrap(), placed);
        }
        // A queue in which nothing may wait is none.
        prop_assert_eq!(place_all(&made("wlb", &json!({"max_delay": 0})), &steps, dp), (placed, 0));
    }
}

#[test]
fn documents_beyond_every_limit_still_run() {
    let sequences = [vec![5000], vec![3, 4000], vec![1], vec![]].map(PackedSequence::new).to_vec();
    let step = Step { index: 0, window: WINDOW, sequences };
    for name in ["wlb", "wlb-no-deferral"] {
        let (placed, _) = place_all(&made(name, &json!({})), std::slice::from_ref(&step), 2);
        assert_eq!(documents(placed.iter().flat_map(|p| &p.sequences)), [1, 3, 4000, 5000], "{name}");
    }
}

/// Long documents wait until there is one a micro-batch, and then run together.
#[test]
fn outliers_run_when_there_is_one_a_micro_batch() {
    let system = made("wlb", &json!({"levels": 1, "linear_tokens": 0}));
    let mut placer = system.placement().placer();
    let with_outlier = |outlier: u32| {
        let small = [PackedSequence::new([outlier, 100, 100]), PackedSequence::new([90, 90, 90, 90])];
        Step { index: 0, window: WINDOW, sequences: small.to_vec() }
    };
    let first = placer.place(&with_outlier(800), &context(2)).unwrap();
    assert_eq!((first.delayed_tokens, first.preserved, first.late.len()), (800, false, 0));
    assert_eq!(
        first.sequences.iter().map(|s| s.documents().to_vec()).collect::<Vec<_>>(),
        [[100, 90, 90], [100, 90, 90]]
    );
    let second = placer.place(&with_outlier(700), &context(2)).unwrap();
    assert_eq!((second.delayed_tokens, second.preserved), (0, false));
    assert_eq!(second.late, [skewbench_plan::LateDocument { tokens: 800, steps: 1 }]);
    let longest: Vec<u32> = second.sequences.iter().filter_map(|s| s.documents().iter().copied().max()).collect();
    assert_eq!(longest, [800, 700]);
    assert_eq!(placer.finish(&context(2)).unwrap(), []);
}

/// A long document weighs more than its tokens: it shares its micro-batch with fewer, unless linear work is all that counts.
#[test]
fn micro_batches_even_out_work_and_not_tokens() {
    let sequences = vec![PackedSequence::new([900, 100]), PackedSequence::new([100; 10])];
    let step = Step { index: 0, window: WINDOW, sequences };
    let tokens = |options: Value| -> Vec<u64> {
        let system = made("wlb-no-deferral", &options);
        let placed = system.placement().placer().place(&step, &context(2)).unwrap();
        placed.sequences.iter().map(PackedSequence::tokens).collect()
    };
    for work in ["l_squared", "pairs"] {
        assert_eq!(tokens(json!({"work": work, "linear_tokens": 0})), [900, 1100]);
        assert_eq!(tokens(json!({"work": work, "linear_tokens": 1u64 << 40})), [1000, 1000]);
        assert_eq!(tokens(json!({"work": work, "linear_tokens": 0, "lmax": 1.0})), [1000, 1000], "Lmax is kept");
    }
}

#[test]
fn a_drain_needs_ranks() {
    let mut layout = context(2);
    layout.layout.dp = 0;
    let system = made("wlb", &json!({}));
    let mut placer = system.placement().placer();
    placer.place(&stream(1, 4, 7)[0], &context(2)).unwrap();
    assert!(placer.finish(&layout).unwrap_err().to_string().contains("dp = 0"));
}

fn plan(options: &Value, sequence: &PackedSequence, cp: u32, shape: AttentionShape, cost: &dyn Cost) -> (Plan, u64) {
    let system = made("wlb+arrival", options);
    let nodes: Vec<u32> = (0..cp).map(|rank| rank / 8).collect();
    let domain = Domain { sequences: &[sequence], cp, shape, nodes: &nodes, cost, time_factors: &[] };
    (system.planner().plan(&domain).unwrap(), system.planner().load_bound(&domain).unwrap())
}

fn planner_options() -> Vec<Value> {
    let mut all = Vec::new();
    for sharding in ["auto", "sequence", "document"] {
        for gather in ["all", "needed"] {
            for regather in [false, true] {
                all.push(json!({"sharding": sharding, "gather": gather, "regather": regather}));
            }
        }
    }
    all
}

fn shapes() -> impl Strategy<Value = AttentionShape> {
    (1u16..5, 1u16..5).prop_map(|(kv, group)| AttentionShape { q_heads: kv * group, kv_heads: kv, head_dim: 64 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_right_pair_by_pair(
        lengths in prop::collection::vec(prop_oneof![Just(1u32), 1u32..6, 1u32..25], 0..6), cp in 1u32..10, shape in shapes(),
    ) {
        let sequence = PackedSequence::new(lengths);
        for options in planner_options() {
            let (plan, bound) = plan(&options, &sequence, cp, shape, &COST);
            if let Err(error) = check(&plan, &Limits::default()) {
                return Err(TestCaseError::fail(format!("{options}: {error}")));
            }
            prop_assert_eq!(oracle::interpret(&plan, 2), Ok(()), "{}", options);
            for pass in [Pass::Forward, Pass::Backward] {
                let load = plan.load(pass);
                prop_assert!(load.iter().all(|load| *load <= bound), "{options}: {load:?} above {bound}");
            }
        }
    }

    /// Chunks of a document differ by at most a row, so ranks differ by few rows' pairs.
    #[test]
    fn documents_are_shared_evenly(len in 1000u32..60_000, cp in 1u32..17) {
        let shape = AttentionShape { q_heads: 1, kv_heads: 1, head_dim: 64 };
        let (plan, bound) = plan(&json!({"sharding": "document"}), &PackedSequence::new([len]), cp, shape, &COST);
        let load = plan.load(Pass::Forward);
        let (max, min) = (load.iter().max().unwrap(), load.iter().min().unwrap());
        prop_assert_eq!(*max, bound);
        prop_assert!(max - min <= u64::from(len) * 2 * u64::from(cp), "{load:?}");
    }
}

/// A card on which every tile costs at least 128 rows.
struct Rounded;

impl Cost for Rounded {
    fn launch_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        launch.tiles.iter().map(|t| u64::from(t.q.next_multiple_of(128)) * u64::from(t.k)).sum()
    }

    fn transfer_ps(&self, bytes: u64, _: bool) -> u64 {
        bytes
    }
}

#[test]
fn the_faster_shards_are_chosen() {
    let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 128 };
    let chosen = |documents: Vec<u32>, cost: &dyn Cost| {
        let sequence = PackedSequence::new(documents);
        let by = |sharding: &str| plan(&json!({"sharding": sharding}), &sequence, 4, shape, cost).0;
        let auto = by("auto");
        assert_ne!(by("sequence"), by("document"));
        if auto == by("sequence") { "sequence" } else { "document" }
    };
    // One long document before many short ones: its first rows and the short ones fall to rank 0.
    let skewed: Vec<u32> = std::iter::once(40_000).chain([100; 400]).collect();
    assert_eq!(chosen(skewed, &COST), "document");
    // Documents of the length of a chunk fill whole tiles by sequence and eighths of them by document.
    assert_eq!(chosen(vec![128; 8], &Rounded), "sequence");
}

#[test]
fn needed_rows_are_fewer_and_rank_0_needs_all() {
    let shape = AttentionShape { q_heads: 2, kv_heads: 1, head_dim: 64 };
    let received = |gather: &str, rank: u32| -> u32 {
        let options = json!({"gather": gather, "sharding": "document"});
        let plan = plan(&options, &PackedSequence::new([800, 400]), 4, shape, &COST).0;
        plan.forward.moves.iter().filter(|m| m.to == rank && m.from != rank).map(|m| m.rows.len).sum()
    };
    assert_eq!([0, 1, 2, 3].map(|rank| received("all", rank)), [900; 4]);
    assert_eq!([0, 1, 2, 3].map(|rank| received("needed", rank)), [900, 750, 600, 450]);
}

#[test]
fn short_documents_spread_over_the_ranks() {
    let shape = AttentionShape { q_heads: 2, kv_heads: 1, head_dim: 64 };
    let plan = plan(&json!({"sharding": "document"}), &PackedSequence::new([1; 80]), 4, shape, &COST).0;
    let rows = |rank| plan.entry.iter().filter(|s| s.rank == rank).map(|s| s.rows.len).sum::<u32>();
    assert_eq!([0, 1, 2, 3].map(rows), [20; 4]);
}
