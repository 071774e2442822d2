//! Assignments of unequal blocks become plans that the checker accepts.

use proptest::prelude::*;
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence, Pass};
use skewbench_systems::planners::libra::{TileAssignment, plan_assignment};

#[derive(Clone, Debug)]
struct Case {
    sequences: Vec<Vec<u32>>,
    cp: u32,
    shape: AttentionShape,
    assignment: TileAssignment,
}

fn case() -> impl Strategy<Value = Case> {
    let sequences = prop::collection::vec(prop::collection::vec(1u32..40, 1..6), 1..4);
    (sequences, 1u32..5, 1u16..4, 1u16..4, 1u32..6, any::<bool>(), prop::collection::vec(any::<(u8, u16)>(), 400))
        .prop_map(|(sequences, cp, kv_heads, group, pieces, resend, noise)| {
            let shape = AttentionShape { q_heads: kv_heads * group, kv_heads, head_dim: 8 };
            let ranks = sequences.len() as u32 * cp;
            let mut noise = noise.into_iter().cycle();
            let head_shards = u32::from(noise.next().unwrap().1) % u32::from(shape.q_heads) + 1;
            let (mut ends, mut workers) = (Vec::new(), Vec::new());
            for documents in &sequences {
                let tokens: u32 = documents.iter().sum();
                let mut of_sequence = Vec::new();
                let mut end = 0;
                while end < tokens {
                    end = (end + u32::from(noise.next().unwrap().0) % 30 + 1).min(tokens);
                    of_sequence.push(end);
                    workers.extend((0..head_shards).map(|_| u32::from(noise.next().unwrap().1) % ranks));
                }
                ends.push(of_sequence);
            }
            let assignment = TileAssignment { head_shards, pieces, resend, ends, workers };
            Case { sequences, cp, shape, assignment }
        })
}

fn with_domain<T>(case: &Case, run: impl FnOnce(&Domain<'_>) -> T) -> T {
    let sequences: Vec<PackedSequence> =
        case.sequences.iter().map(|s| PackedSequence::new(s.iter().copied())).collect();
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes = vec![0; sequences.len() * case.cp as usize];
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    run(&Domain {
        sequences: &sequences,
        cp: case.cp,
        shape: case.shape,
        nodes: &nodes,
        cost: &cost,
        time_factors: &[],
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_accepts_any_assignment(case in case()) {
        let plan = with_domain(&case, |domain| plan_assignment("given", domain, &case.assignment)).unwrap();
        check(&plan, &Limits::default()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let pairs: u64 = case.sequences.iter().flatten().map(|l| u64::from(*l) * (u64::from(*l) + 1) / 2).sum();
        for pass in [Pass::Forward, Pass::Backward] {
            prop_assert_eq!(plan.load(pass).iter().sum::<u64>(), pairs * u64::from(case.shape.q_heads));
        }
        prop_assert_eq!(plan.planner, "given");
    }

    #[test]
    fn wrong_assignments_are_refused_without_a_panic(case in case(), at in any::<prop::sample::Index>(), to in any::<u32>()) {
        let mut wrong = case.clone();
        let slot = at.get(&wrong.assignment.ends).len().min(1);
        prop_assume!(slot == 1);
        let seq = at.index(wrong.assignment.ends.len());
        wrong.assignment.ends[seq][0] = to;
        let made = with_domain(&wrong, |domain| plan_assignment("given", domain, &wrong.assignment));
        if let Ok(plan) = made {
            check(&plan, &Limits::default()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        }
        let mut wrong = case.clone();
        let slot = at.index(wrong.assignment.workers.len());
        wrong.assignment.workers[slot] = (wrong.sequences.len() as u32 * wrong.cp).saturating_add(to);
        prop_assert!(with_domain(&wrong, |domain| plan_assignment("given", domain, &wrong.assignment)).is_err());
        wrong.assignment.workers.pop();
        prop_assert!(with_domain(&wrong, |domain| plan_assignment("given", domain, &wrong.assignment)).is_err());
    }
}
