//! DistCA's plans: what the public planner promises, and what it does not.

mod oracle;
#[path = "../benches/windows/mod.rs"]
mod windows;

use oracle::interpret;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{
    AttentionShape, COMPUTE, CallMode, Domain, FlopsCost, PackedSequence, Pass, Plan, Scope, SystemError, Work,
};
use skewbench_systems::registry::system;
use windows::{Windows, windows};

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };
const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };

/// The plan of a wave with the load that its planner promises not to exceed.
fn planned(
    options: &Value,
    sequences: &[PackedSequence],
    cp: u32,
    shape: AttentionShape,
) -> Result<(Plan, u64), SystemError> {
    let made = system("distca", options.as_object().unwrap()).unwrap();
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes = vec![0; sequences.len() * cp as usize];
    let domain = Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] };
    Ok((made.planner().plan(&domain)?, made.planner().load_bound(&domain)?))
}

fn plan(options: &Value, sequences: &[PackedSequence], cp: u32) -> Plan {
    planned(options, sequences, cp, SHAPE).unwrap().0
}

/// Max over mean of the load.
fn imbalance(plan: &Plan) -> f64 {
    let loads = plan.load(Pass::Forward);
    loads.iter().copied().max().unwrap() as f64 * loads.len() as f64 / loads.iter().sum::<u64>() as f64
}

fn options() -> impl Strategy<Value = Value> {
    let tolerance = prop_oneof![Just(0.0), Just(0.1), Just(10.0), 0.0..1.0];
    let round = prop_oneof![3 => Just(1u32), 2 => Just(16), 1 => 2u32..9, 1 => Just(4096)];
    (tolerance, any::<bool>(), any::<bool>(), round, any::<bool>()).prop_map(
        |(tolerance, ping_pong, resend_qkv, round, shard)| {
            let kv_charge = if shard { "shard" } else { "document" };
            json!({ "tolerance": tolerance, "ping_pong": ping_pong, "resend_qkv": resend_qkv, "round": round,
                "kv_charge": kv_charge })
        },
    )
}

fn sequence() -> impl Strategy<Value = PackedSequence> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(1u32), 1u32..40, 1u32..700], 1..12),
        2 => (1u32..5000).prop_map(|window| vec![window]),
        1 => prop::collection::vec(1u32..4, 1000..1500),
        1 => Just(vec![]),
    ]
    .prop_map(PackedSequence::new)
}

fn shape() -> impl Strategy<Value = AttentionShape> {
    (1u16..5, 1u16..5).prop_map(|(kv, group)| AttentionShape { q_heads: kv * group, kv_heads: kv, head_dim: 64 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_right_and_within_their_bound(
        sequences in prop::collection::vec(sequence(), 1..9), cp in 1u32..10, shape in shape(), options in options(),
    ) {
        let (plan, bound) = planned(&options, &sequences, cp, shape).unwrap();
        if let Err(error) = check(&plan, &Limits::default()) {
            return Err(TestCaseError::fail(format!("{options}: {error}")));
        }
        let most = plan.load(Pass::Forward).into_iter().max().unwrap_or(0);
        prop_assert!(most <= bound, "{most} is above {bound}");
        prop_assert_eq!(plan.load(Pass::Forward), plan.load(Pass::Backward));
        prop_assert_eq!(&plan, &planned(&options, &sequences, cp, shape).unwrap().0);
        if options["round"] == json!(1) {
            // Each micro-batch fills ranks up to its share of tokens, rounded up.
            let batches = if options["ping_pong"] == json!(true) { 2 } else { 1 };
            let tokens: u64 = sequences.iter().map(PackedSequence::tokens).sum();
            let most = tokens / u64::from(plan.ranks) + batches;
            for rank in 0..plan.ranks {
                let held: u64 = plan.entry.iter().filter(|s| s.rank == rank).map(|s| u64::from(s.rows.len)).sum();
                prop_assert!(held <= most, "rank {rank} holds {held} of {tokens} tokens");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn an_independent_interpreter_agrees(
        sequences in prop::collection::vec(prop::collection::vec(1u32..9, 1..4), 1..4), cp in 1u32..4,
        kv in 1u16..3, group in 1u16..3, options in options(),
    ) {
        let sequences: Vec<PackedSequence> = sequences.into_iter().map(PackedSequence::new).collect();
        let shape = AttentionShape { q_heads: kv * group, kv_heads: kv, head_dim: 64 };
        let (plan, _) = planned(&options, &sequences, cp, shape).unwrap();
        prop_assert_eq!(interpret(&plan, 4), Ok(()), "{}", options);
    }
}

/// Seven ranks a little below the mean and one far above: no deficit exceeds a tenth of the mean, and nothing moves.
#[test]
fn seven_light_servers_and_a_heavy_one() {
    let heavy = PackedSequence::new([1000].into_iter().chain([1; 24]));
    let light = PackedSequence::new([746].into_iter().chain([1; 278]));
    let mut sequences = vec![light; 8];
    sequences[0] = heavy;
    let at = |tolerance: f64| plan(&json!({ "tolerance": tolerance, "ping_pong": false }), &sequences, 1);
    let stuck = at(0.1);
    assert!((1.62..1.64).contains(&imbalance(&stuck)), "{}", imbalance(&stuck));
    assert!(stuck.forward.calls.is_empty() && stuck.backward.calls.is_empty());
    assert!(imbalance(&at(0.05)) < 1.0 + 7.0 * 0.05);
    // What is left is less than a pair of rows of each light server.
    let (pairs, mean) = (1001.0, (500_500.0 + 7.0 * 278_631.0 + 24.0 + 7.0 * 278.0) / 8.0);
    assert!(imbalance(&at(0.0)) < 1.0 + 7.0 * pairs / mean, "{}", imbalance(&at(0.0)));
}

/// Max over mean of the load, one window a rank: the mean of six draws, and the largest.
fn drawn(options: &Value, tokens: u32, ranks: usize) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let found: Vec<f64> =
        (0..6).map(|_| imbalance(&plan(options, &windows(Windows { count: ranks, tokens }, &mut rng), 1))).collect();
    (found.iter().sum::<f64>() / found.len() as f64, found.iter().copied().fold(0.0, f64::max))
}

/// Lengths rounded to 16 and one micro-batch, as the public planner was measured.
fn as_measured(tolerance: f64) -> Value {
    json!({ "tolerance": tolerance, "round": 16, "ping_pong": false })
}

/// The public planner, on windows of the presets (one draw a size, others than these), reached 1.04, 1.64, 1.50 (256K) and
/// 1.05, 1.13, 1.17 (1M) at 8, 64, 128 ranks and tolerance 0.1. Draws scatter widely, since the tolerance does not bound the
/// surplus, so the means of several are tested. With ping-pong, the default, nothing was measured: two halves that are
/// balanced apart must do as well together.
#[test]
fn balance_is_where_the_public_planner_has_it() {
    for (options, tokens, ranks, most) in [
        (as_measured(0.1), 1 << 18, 8, 1.15),
        (as_measured(0.1), 1 << 18, 64, 1.70),
        (as_measured(0.1), 1 << 18, 128, 1.70),
        (as_measured(0.1), 1 << 20, 8, 1.15),
        (as_measured(0.1), 1 << 20, 64, 1.25),
        (as_measured(0.1), 1 << 20, 128, 1.30),
        (json!({}), 1 << 20, 64, 1.25),
    ] {
        let (mean, largest) = drawn(&options, tokens, ranks);
        assert!((1.0..=most).contains(&mean), "{options}, {tokens} x {ranks}: mean {mean}, largest {largest}");
    }
}

/// The public planner reached 1.00, 1.02, 1.04 (256K) and 1.02, 1.04, 1.05 (1M) at 8, 64, 128 ranks and tolerance 0.02. The
/// bound of a single draw is wider, for one of 128 ranks of 256K reaches 1.09 with the published algorithm too.
#[test]
fn a_tight_tolerance_balances_every_size() {
    for tokens in [1 << 18, 1 << 20] {
        for ranks in [8, 16, 32, 64, 128] {
            let (mean, largest) = drawn(&as_measured(0.02), tokens, ranks);
            assert!(mean < 1.06 && largest < 1.12, "{tokens} x {ranks}: mean {mean}, largest {largest}");
            let (loose, _) = drawn(&as_measured(0.1), tokens, ranks);
            assert!(mean < loose, "{tokens} x {ranks}: mean {mean}, at 0.1 {loose}");
        }
    }
}

/// The emulation is Libra's planner with another scope, and differs in nothing else.
#[test]
fn the_global_pool_is_libra_over_all_ranks() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let sequences = windows(Windows { count: 5, tokens: 1 << 16 }, &mut rng);
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes = vec![0; 15];
    let domain = Domain { sequences: &sequences, cp: 3, shape: SHAPE, nodes: &nodes, cost: &COST, time_factors: &[] };
    let options = json!({ "B": 1000, "M": 3 });
    let [pool, global] = ["libra-tap", "distca-pool"].map(|name| system(name, options.as_object().unwrap()).unwrap());
    assert_eq!((pool.planner().scope(), global.planner().scope()), (Scope::Pool, Scope::Wave));
    assert_eq!(pool.planner().load_bound(&domain), global.planner().load_bound(&domain));
    let mut plan = global.planner().plan(&domain).unwrap();
    assert_eq!(plan.planner, "tap-global");
    plan.planner = "tap".to_owned();
    assert_eq!(plan, pool.planner().plan(&domain).unwrap());
}

/// A rank's operations as (stream, micro-batch, what) in order.
fn schedule(plan: &Plan, pass: Pass, rank: usize) -> Vec<(u8, u16, char)> {
    let table = plan.pass(pass);
    let streams = (0u8..).zip(&table.ranks[rank].streams);
    let name = |work: Work| match work {
        Work::Launch(_) => 'A',
        Work::Exchange(call) if table.calls[call as usize].mode == CallMode::Copy => 'D',
        Work::Exchange(_) => 'R',
        Work::Linear { .. } => 'L',
    };
    streams.flat_map(|(stream, ops)| ops.iter().map(move |op| (stream, op.micro_batch, name(op.work)))).collect()
}

#[test]
fn one_micro_batch_travels_while_the_other_is_computed() {
    let sequences = [[4096], [4096], [1024], [1024]].map(PackedSequence::new);
    let made = plan(&json!({}), &sequences, 2);
    let forward = [(0, 0, 'A'), (0, 1, 'A'), (1, 0, 'D'), (1, 1, 'D'), (1, 0, 'R'), (1, 1, 'R')];
    let (sent, computed): (Vec<_>, Vec<_>) = forward.iter().partition(|op| op.0 > 0);
    for rank in 0..8 {
        let found = schedule(&made, Pass::Forward, rank);
        let order: Vec<_> = found.iter().filter(|op| op.0 > 0).collect();
        // A rank posts what it has rows in: always in this order.
        assert!(order.is_sorted_by_key(|op| sent.iter().position(|other| *other == **op)), "{found:?}");
        assert_eq!(found.iter().filter(|op| op.0 == COMPUTE).copied().collect::<Vec<_>>(), computed, "{rank}");
    }
    // Nothing makes a dispatch wait, and attention waits for its own micro-batch alone.
    for op in made.forward.ranks.iter().flat_map(|rank| rank.streams.get(1).into_iter().flatten()) {
        let Work::Exchange(call) = op.work else { continue };
        assert!(made.forward.calls[call as usize].mode == CallMode::Accumulate || op.after.is_empty());
    }
    let alone = plan(&json!({}), &sequences[..1], 2);
    assert!(alone.forward.ranks.iter().all(|rank| rank.streams.iter().flatten().all(|op| op.micro_batch == 0)));
}

#[test]
fn servers_that_keep_what_they_got_are_sent_gradients_alone() {
    let sequences = [vec![4001], vec![15; 266]].map(PackedSequence::new);
    let bytes = |plan: &Plan, pass| -> u64 {
        let table = plan.pass(pass);
        let copies = table.calls.iter().filter(|call| call.mode == CallMode::Copy).flat_map(|call| &call.parts);
        let rows = |part: &skewbench_plan::Part| -> u64 {
            table.moves[part.moves.range()].iter().filter(|mv| mv.from != mv.to).map(|mv| u64::from(mv.rows.len)).sum()
        };
        copies.map(|part| rows(part) * part.row_bytes(128, skewbench_plan::Dtype::Bf16)).sum()
    };
    let of = |resend: bool| plan(&json!({ "resend_qkv": resend, "tolerance": 0.0, "ping_pong": false }), &sequences, 1);
    let (again, kept) = (of(true), of(false));
    assert_eq!(bytes(&again, Pass::Forward), bytes(&kept, Pass::Forward));
    assert!(bytes(&kept, Pass::Backward) > 0);
    assert!(bytes(&kept, Pass::Backward) < bytes(&kept, Pass::Forward));
    assert!(bytes(&again, Pass::Backward) > bytes(&again, Pass::Forward));
    assert!(kept.forward.calls.iter().all(|call| call.keep) && !again.forward.calls.iter().any(|call| call.keep));
}
