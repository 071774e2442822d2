use std::collections::HashSet;

use proptest::prelude::*;
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{
    AttentionShape, CallMode, Domain, FlopsCost, PackedSequence, Pass, Plan, Planner, SystemError, Tensor, Work,
};

use super::{Libra, LibraOptions};

const COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

fn try_plan(
    options: LibraOptions,
    pool: &[PackedSequence],
    cp: u32,
    shape: AttentionShape,
) -> Result<Plan, SystemError> {
    let sequences: Vec<&PackedSequence> = pool.iter().collect();
    let nodes = vec![0; pool.len() * cp as usize];
    Libra::new(options)?.plan(&Domain {
        sequences: &sequences,
        cp,
        shape,
        nodes: &nodes,
        cost: &COST,
        time_factors: &[],
    })
}

fn plan(options: LibraOptions, pool: &[PackedSequence], cp: u32, shape: AttentionShape) -> Plan {
    try_plan(options, pool, cp, shape).unwrap()
}

fn shape(q_heads: u16, kv_heads: u16) -> AttentionShape {
    AttentionShape { q_heads, kv_heads, head_dim: 64 }
}

fn pool(documents: &[&[u32]]) -> Vec<PackedSequence> {
    documents.iter().map(|d| PackedSequence::new(d.iter().copied())).collect()
}

/// (receiver, sequence, row, head) of everything that is copied, with whether it is a key or a query row.
fn copied(plan: &Plan, pass: Pass) -> Vec<(bool, u32, u32, u32, u16)> {
    let table = plan.pass(pass);
    let mut rows = Vec::new();
    for call in table.calls.iter().filter(|c| c.mode == CallMode::Copy) {
        for part in &call.parts {
            let keys = part.tensors.has(Tensor::K);
            let heads = if keys { part.kv_heads } else { part.q_heads };
            for mv in &table.moves[part.moves.range()] {
                for row in mv.rows.start..mv.rows.end() {
                    rows.extend((heads.start..heads.end).map(|head| (keys, mv.to, mv.seq, row, head)));
                }
            }
        }
    }
    rows
}

fn verify(plan: &Plan, pool: &[PackedSequence], options: &LibraOptions) -> Result<(), TestCaseError> {
    check(plan, &Limits::default()).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let total: u64 = pool.iter().map(|s| s.pairs()).sum::<u64>() * u64::from(plan.shape.q_heads);
    let mean = total.div_ceil(u64::from(plan.ranks));
    for pass in [Pass::Forward, Pass::Backward] {
        let loads = plan.load(pass);
        prop_assert_eq!(loads.iter().sum::<u64>(), total);
        let target = (mean as f64 * (1.0 + options.tau)) as u64 + 1;
        let bound = target.max(mean + plan.accounting.largest_tile);
        prop_assert!(loads.iter().all(|&load| load <= bound), "{:?} above {}", loads, bound);
        prop_assert_eq!(loads.iter().filter(|&&l| l == 0).count() as u32, plan.accounting.idle_ranks);
        let rows = copied(plan, pass);
        let distinct: HashSet<_> = rows.iter().collect();
        prop_assert_eq!(distinct.len(), rows.len(), "a row is fetched twice");
        let table = plan.pass(pass);
        let spans = table.calls.iter().flat_map(|c| &c.parts).map(|p| p.moves.end as usize);
        prop_assert_eq!(spans.max().unwrap_or(0), table.moves.len(), "moves that no call refers to");
    }
    Ok(())
}

fn documents() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        3 => prop::collection::vec(prop_oneof![Just(1), 1..40u32, 1..400u32], 1..12),
        1 => prop::collection::vec(1..4u32, 100..300),
        1 => (1..1500u32).prop_map(|l| vec![l]),
        1 => (prop::collection::vec(1..9u32, 0..30), 200..900u32).prop_map(|(mut d, long)| { d.push(long); d }),
    ]
}

fn options() -> impl Strategy<Value = LibraOptions> {
    let block = prop_oneof![Just(None), Just(Some(u32::MAX)), (1..9u32).prop_map(Some), (9..300u32).prop_map(Some)];
    let count = || prop_oneof![4 => 1..6u32, 1 => Just(u32::MAX)];
    let tau = prop_oneof![Just(0.0), Just(0.03), 0.0..1.0];
    (tau, count(), block, count(), any::<bool>()).prop_map(|(tau, pieces, block, head_shards, resend)| LibraOptions {
        tau,
        pieces,
        block,
        head_shards,
        resend,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_of_any_domain_are_right(
        documents in prop::collection::vec(documents(), 1..=8),
        cp in 1..=9u32,
        (kv, group) in (1..=4u16, 1..=4u16),
        options in options(),
    ) {
        let pool: Vec<PackedSequence> = documents.into_iter().map(PackedSequence::new).collect();
        let shape = shape(kv * group, kv);
        let made = plan(options, &pool, cp, shape);
        verify(&made, &pool, &options)?;
        prop_assert_eq!(made, plan(options, &pool, cp, shape));
    }

    #[test]
    fn equal_sequences_stay_at_home(
        documents in documents(),
        sequences in 1..=8usize,
        options in options(),
    ) {
        let pool = vec![PackedSequence::new(documents); sequences];
        let made = plan(options, &pool, 1, shape(8, 2));
        for pass in [Pass::Forward, Pass::Backward] {
            prop_assert!(made.pass(pass).moves.is_empty() && made.pass(pass).calls.is_empty());
        }
    }
}

#[test]
fn thousands_of_short_documents() {
    let options = LibraOptions { block: Some(512), ..LibraOptions::default() };
    let short: Vec<u32> = (0..4000).map(|i| 1 + i % 5).collect();
    let pool = pool(&[&short, &[12_000]]);
    let made = plan(options, &pool, 4, shape(4, 2));
    verify(&made, &pool, &options).unwrap();
}

#[test]
fn a_long_document_is_shared_out_within_the_target() {
    let options = LibraOptions { block: Some(64), ..LibraOptions::default() };
    let pool = pool(&[&[16_384], &[512; 32], &[1024; 16], &[2048; 8]]);
    for resend in [false, true] {
        let options = LibraOptions { resend, ..options };
        let made = plan(options, &pool, 4, shape(8, 2));
        verify(&made, &pool, &options).unwrap();
        let loads = made.load(Pass::Forward);
        let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
        assert!(loads.iter().all(|&load| load as f64 <= 1.03 * mean));
        let mut fetched: Vec<u32> = made.forward.moves.iter().filter(|m| m.seq == 0).map(|m| m.to).collect();
        fetched.sort_unstable();
        fetched.dedup();
        assert!(fetched.len() > 4, "only {fetched:?} work on the long document");
    }
}

#[test]
fn keeping_operands_sends_less_in_the_backward() {
    let pool = pool(&[&[4096], &[64; 64]]);
    let bytes = |resend| {
        let options = LibraOptions { block: Some(128), resend, ..LibraOptions::default() };
        let made = plan(options, &pool, 2, shape(4, 4));
        let table = &made.backward;
        let parts = table.calls.iter().filter(|c| c.mode == CallMode::Copy).flat_map(|c| c.parts.iter());
        parts.map(|p| p.tensors.iter().count()).sum::<usize>()
    };
    assert!(bytes(false) < bytes(true));
}

#[test]
fn dispatches_lead_and_returns_follow() {
    let options = LibraOptions { block: Some(64), ..LibraOptions::default() };
    let made = plan(options, &pool(&[&[1024], &[16; 64]]), 2, shape(8, 2));
    for rank in &made.forward.ranks {
        let streams = &rank.streams;
        assert_eq!(streams.len(), 3);
        assert!(streams[1].iter().all(|op| op.after.is_empty() && matches!(op.work, Work::Exchange(_))));
        assert_eq!(streams[0].len(), 4, "one launch a head piece");
        assert!(streams[0].iter().flat_map(|op| &op.after).all(|dep| dep.stream == 1));
        assert!(streams[2].iter().flat_map(|op| &op.after).all(|dep| dep.stream == 0));
    }
}

#[test]
fn every_size_of_one_works() {
    let made = plan(LibraOptions::default(), &pool(&[&[1]]), 1, shape(1, 1));
    check(&made, &Limits::default()).unwrap();
    let made = plan(LibraOptions::default(), &pool(&[&[1], &[2]]), 9, shape(1, 1));
    check(&made, &Limits::default()).unwrap();
    assert_eq!(made.accounting.idle_ranks, 16);
}

#[test]
fn the_default_block_follows_the_longest_sequence() {
    assert_eq!(LibraOptions::default().block_tokens(262_144), 4096);
    assert_eq!(LibraOptions::default().block_tokens(1 << 20), 8192);
}

#[test]
fn bad_input_is_refused() {
    for options in [
        LibraOptions { tau: f64::NAN, ..LibraOptions::default() },
        LibraOptions { tau: -0.1, ..LibraOptions::default() },
        LibraOptions { pieces: 0, ..LibraOptions::default() },
        LibraOptions { block: Some(0), ..LibraOptions::default() },
        LibraOptions { head_shards: 0, ..LibraOptions::default() },
    ] {
        assert!(matches!(Libra::new(options), Err(SystemError::Option { .. })), "{options:?}");
    }
    let defaults = LibraOptions::default();
    let one = pool(&[&[8]]);
    assert!(try_plan(defaults, &[], 1, shape(1, 1)).is_err());
    assert!(try_plan(defaults, &one, 0, shape(1, 1)).is_err());
    assert!(try_plan(defaults, &one, 1, shape(4, 3)).is_err());
    assert!(try_plan(defaults, &one, 1, shape(0, 0)).is_err());
    assert!(try_plan(defaults, &pool(&[&[u32::MAX, 1]]), 1, shape(1, 1)).is_err());
    assert!(try_plan(defaults, &pool(&[&[u32::MAX], &[u32::MAX]]), 1, shape(32, 4)).is_err());
    let fine = LibraOptions { block: Some(1), head_shards: 32, ..defaults };
    assert!(try_plan(fine, &pool(&[&[1 << 28]]), 1, shape(32, 4)).is_err());
    let parsed: Result<LibraOptions, _> = serde_json::from_str(r#"{"peices": 2}"#);
    assert!(parsed.is_err());
    assert_eq!(serde_json::from_str::<LibraOptions>("{}").unwrap(), defaults);
}
