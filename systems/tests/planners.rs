//! Plans of every planner over hard sequences.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Pass, Plan, Planner, Scope, SystemError};
use skewbench_systems::registry::{PLANNERS, system};

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };

fn plan(
    planner: &dyn Planner,
    sequences: &[PackedSequence],
    cp: u32,
    shape: AttentionShape,
) -> Result<Plan, SystemError> {
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes: Vec<u32> = (0..sequences.len() as u32 * cp).map(|rank| rank / 8).collect();
    planner.plan(&Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] })
}

fn options(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

type Run = Box<dyn Fn(&[PackedSequence], u32, AttentionShape) -> Result<Plan, SystemError>>;

/// Every planner with every value of the options that change the shape of its plans.
fn variants() -> Vec<(String, Run)> {
    let mut variants = vec![
        ("ulysses".to_owned(), json!({})),
        ("wlb".to_owned(), json!({"sharding": "auto"})),
        ("wlb".to_owned(), json!({"sharding": "document", "gather": "needed"})),
        ("wlb".to_owned(), json!({"sharding": "sequence", "regather": true})),
        ("usp".to_owned(), json!({"replicate_kv": true, "ring": "striped"})),
        ("loongtrain".to_owned(), json!({"placement": "context-first"})),
    ];
    for name in ["ring", "ring-zigzag", "ring-striped", "usp", "loongtrain"] {
        for shard in ["document", "sequence"] {
            variants.push((name.to_owned(), json!({"shard": shard})));
        }
    }
    for (resend, pieces, shards) in [(true, 4, 1), (false, 3, 2)] {
        let given = json!({"resend": resend, "M": pieces, "H": shards, "B": 7});
        variants.extend(["libra", "distca-pool"].map(|name| (name.to_owned(), given.clone())));
    }
    for (resend, ping_pong) in [(true, true), (true, false), (false, true), (false, false)] {
        let given = json!({"resend_qkv": resend, "ping_pong": ping_pong, "tolerance": 0.0});
        variants.push(("distca".to_owned(), given));
    }
    for (round, tolerance) in [(16, 0.1), (3, 0.5), (4096, 10.0)] {
        variants.push((
            "distca".to_owned(),
            json!({"round": round, "tolerance": tolerance, "kv_charge": "shard", "ping_pong": round == 3}),
        ));
    }
    for (resend, pieces, shards) in [(true, 3, 2), (false, 2, 4)] {
        variants.push(("libra-calibrated".to_owned(), json!({"resend": resend, "M": pieces, "H": shards})));
    }
    variants
        .into_iter()
        .map(|(name, given)| {
            let label = format!("{name} {given}");
            let made = system(&name, &options(given)).unwrap();
            let run = move |sequences: &[PackedSequence], cp: u32, shape: AttentionShape| {
                let one = if made.planner().scope() == Scope::Sequence { &sequences[..1] } else { sequences };
                plan(made.planner(), one, cp, shape)
            };
            (label, Box::new(run) as _)
        })
        .collect()
}

fn documents() -> impl Strategy<Value = PackedSequence> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(1u32), 1u32..40, 1u32..700], 1..12),
        1 => (1u32..5000).prop_map(|window| vec![window]),
        1 => prop::collection::vec(1u32..4, 1000..1500),
        1 => Just(vec![]),
    ]
    .prop_map(PackedSequence::new)
}

fn shapes() -> impl Strategy<Value = AttentionShape> {
    (1u16..5, 1u16..5).prop_map(|(kv, group)| AttentionShape { q_heads: kv * group, kv_heads: kv, head_dim: 64 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn plans_compute_every_pair_and_pass_the_checker(
        sequences in prop::collection::vec(documents(), 1..4), cp in 1u32..10, shape in shapes(),
    ) {
        for (label, run) in variants() {
            let plan = run(&sequences, cp, shape).unwrap();
            let pairs: u64 = sequences[..plan.sequences.len()].iter().map(PackedSequence::pairs).sum();
            for pass in [Pass::Forward, Pass::Backward] {
                let load: u64 = plan.load(pass).iter().sum();
                prop_assert_eq!(load, pairs * u64::from(shape.q_heads), "{} {:?}", label, pass);
            }
            if let Err(error) = check(&plan, &Limits::default()) {
                return Err(TestCaseError::fail(format!("{label}: {error}")));
            }
            let busy = plan.load(Pass::Forward).iter().filter(|l| **l > 0).count() as u32;
            prop_assert_eq!(plan.accounting.idle_ranks, plan.ranks - busy, "{}", label);
        }
    }


    #[test]
    fn ulysses_is_balanced_over_heads(sequence in documents(), cp in 1u32..5) {
        let ulysses = system("ulysses", &Map::new()).unwrap();
        let shape = AttentionShape { q_heads: 12, kv_heads: 4, head_dim: 64 };
        let load = plan(ulysses.planner(), std::slice::from_ref(&sequence), cp, shape).unwrap().load(Pass::Forward);
        prop_assert!(load.iter().all(|l| *l == sequence.pairs() * 12 / u64::from(cp)), "{load:?}");
    }
}

#[test]
fn ulysses_reports_idle_ranks_and_replicated_heads() {
    let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 128 };
    let sequence = [PackedSequence::new([100, 1, 27])];
    let accounting =
        |cp| plan(system("ulysses", &Map::new()).unwrap().planner(), &sequence, cp, shape).unwrap().accounting;
    assert_eq!((accounting(2).idle_ranks, accounting(2).replicated_kv_heads), (0, 0));
    assert_eq!((accounting(4).idle_ranks, accounting(4).replicated_kv_heads), (0, 2));
    assert_eq!((accounting(6).idle_ranks, accounting(6).replicated_kv_heads), (2, 2));
    let strict = system("ulysses", &options(json!({"refuse_idle": true}))).unwrap();
    assert!(plan(strict.planner(), &sequence, 4, shape).is_ok());
    let error = plan(strict.planner(), &sequence, 6, shape).unwrap_err().to_string();
    assert!(error.contains("cp = 6 is above the 4 query heads"), "{error}");
}

#[test]
fn impossible_domains_are_refused() {
    let good = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 128 };
    let sequence = [PackedSequence::new([10])];
    let longest = [PackedSequence::new([u32::MAX, 5])];
    for entry in PLANNERS {
        let made = system(&format!("{}+arrival", entry.name), &Map::new()).unwrap();
        let planner = made.planner();
        assert_eq!((planner.name(), planner.scope()), (entry.name, entry.scope));
        assert!(plan(planner, &[], 2, good).is_err());
        assert!(plan(planner, &sequence, 0, good).is_err());
        assert!(plan(planner, &longest, 2, good).is_err());
        for (q_heads, kv_heads) in [(0, 1), (4, 0), (4, 3)] {
            assert!(plan(planner, &sequence, 2, AttentionShape { q_heads, kv_heads, head_dim: 64 }).is_err());
        }
        if entry.scope == Scope::Sequence {
            assert!(plan(planner, &[sequence[0].clone(), sequence[0].clone()], 2, good).is_err());
        }
    }
}
