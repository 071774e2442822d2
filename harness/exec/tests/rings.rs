//! Plans of rings and grids can be lowered, and every transfer of the plan is in the program.

use proptest::prelude::*;
use serde_json::{Value, json};
use skewbench_exec::{InstrKind, lower};
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, Pass, Plan, Work};
use skewbench_systems::registry::system;

const COST: FlopsCost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 5e10 };

fn planned(name: &str, options: &Value, sequence: &PackedSequence, cp: u32, shape: AttentionShape) -> Plan {
    let system = system(name, options.as_object().expect("an object")).expect("a system");
    let nodes: Vec<u32> = (0..cp).map(|rank| rank / 8).collect();
    let sequences = [sequence];
    let domain = Domain { sequences: &sequences, cp, shape, nodes: &nodes, cost: &COST, time_factors: &[] };
    system.planner().plan(&domain).expect("degrees fit")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn plans_of_rings_are_lowered(
        documents in prop::collection::vec(1u32..90, 1..8), windows in 1u32..4, window in 1u32..4,
        by_document in any::<bool>(), ring in 0usize..3,
    ) {
        let sequence = PackedSequence::new(documents);
        let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 64 };
        let shard = if by_document { "document" } else { "sequence" };
        let deal = ["basic", "zigzag", "striped"][ring];
        let of_deal = ["ring", "ring-zigzag", "ring-striped"][ring];
        let cases = [
            (of_deal, json!({"shard": shard})),
            ("usp", json!({"ulysses": 2, "ring": deal, "shard": shard})),
            ("loongtrain", json!({"hp": 2, "window": window, "shard": shard})),
        ];
        for (name, options) in cases {
            let plan = planned(name, &options, &sequence, 2 * windows * window, shape);
            let facts = Facts::of(&plan).expect("sound");
            let checked = check_facts(&plan, &facts, &Limits::default()).expect("right");
            let program = lower(&plan, &facts, &checked.operands);
            prop_assert!(program.is_ok(), "{name} {options}: {:?}", program.err());
            let Ok(program) = program else { continue };
            for (pass, lowered) in [(Pass::Forward, &program.forward), (Pass::Backward, &program.backward)] {
                for (rank, lowered) in plan.pass(pass).ranks.iter().zip(&lowered.ranks) {
                    let posts = rank.streams.iter().flatten().filter(|op| matches!(op.work, Work::Exchange(_))).count();
                    let transfers = lowered.streams.iter().flatten();
                    let transfers = transfers.filter(|i| matches!(i.kind, InstrKind::Transfer { .. })).count();
                    prop_assert_eq!(posts, transfers, "{} {}", name, options);
                }
            }
        }
    }
}
