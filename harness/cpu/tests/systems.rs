//! Programs of all planners and of the hard cases compute attention.

mod support;

use proptest::prelude::*;
use skewbench_cpu::{CpuError, Inputs, Report, RunOptions, TOLERANCE, run, verify};
use skewbench_exec::InstrKind;
use skewbench_plan::Plan;
use support::{hard_cases, inputs, lowered, of_planners, shape};

/// Runs a plan on seeded inputs.
fn verified(plan: &Plan, seed: u64) -> Result<Report, CpuError> {
    let program = lowered(plan).unwrap_or_else(|e| panic!("{}: {e}", plan.planner));
    verify(&program, &inputs(plan, seed), &RunOptions::default())
}

#[test]
fn small_programs_of_all_planners_and_hard_cases_are_right() {
    let cases: [([&[u32]; 2], u32, _); 4] = [
        ([&[5, 1, 4], &[3, 2]], 2, shape(4, 2, 8)),
        ([&[70], &[1, 1, 130]], 3, shape(2, 1, 16)),
        ([&[1], &[1]], 4, shape(3, 3, 5)),
        ([&[129, 64, 1, 2], &[33]], 5, shape(6, 3, 4)),
    ];
    for (documents, ranks, shape) in cases {
        for plan in of_planners(&documents, ranks, shape).into_iter().chain(hard_cases(documents, ranks, shape)) {
            let report = verified(&plan, 7).unwrap_or_else(|e| panic!("{} on {documents:?}: {e}", plan.planner));
            assert!(report.worst() <= TOLERANCE, "{}: {report:?}", plan.planner);
        }
    }
}

#[test]
fn results_are_the_same_bit_by_bit_in_every_run() {
    let documents: [&[u32]; 2] = [&[90, 1, 38], &[120, 9]];
    let shape = shape(4, 2, 16);
    for plan in of_planners(&documents, 3, shape).into_iter().chain(hard_cases(documents, 3, shape)) {
        let (program, inputs) = (lowered(&plan).unwrap(), inputs(&plan, 3));
        let once = || {
            let out = run(&program, &inputs, &RunOptions::default()).unwrap();
            [out.o, out.lse, out.dq, out.dk, out.dv]
        };
        let first = once();
        for _ in 0..3 {
            assert_eq!(once(), first, "{}", plan.planner);
        }
    }
}

#[test]
fn needles_dominate_the_rows_that_see_them() {
    let plan = &of_planners(&[&[40, 9], &[30]], 2, shape(4, 2, 64))[1];
    let needled = inputs(plan, 1);
    let plain = Inputs::random(&plan.sequences, plan.shape, 1);
    assert_eq!((&needled.q, &needled.v), (&plain.q, &plain.v));
    assert_ne!(needled.k, plain.k);
    let needles = skewbench_cpu::needles(plan, 64);
    assert!(needles.iter().any(|n| n.key <= n.row) && needles.iter().any(|n| n.key > n.row), "{needles:?}");
    for (turn, needle) in needles.iter().enumerate() {
        let head = (turn % 2) as u16;
        let query = needled.q.at(needle.seq, needle.row, head).unwrap();
        let key = needled.k.at(needle.seq, needle.key, 0).unwrap();
        let score: f32 = query.iter().zip(key).map(|(a, b)| a * b).sum::<f32>() / 8.0;
        let seen = needle.row + 1 - if needle.seq == 0 && needle.row >= 40 { 40 } else { 0 };
        assert!((f64::from(score) - (9.0 * f64::from(seen)).ln()).abs() < 1e-3, "{needle:?}: {score}");
    }
}

#[test]
fn a_trace_has_every_instruction_in_the_order_of_its_stream() {
    for plan in of_planners(&[&[40, 9], &[30]], 2, shape(4, 2, 8)) {
        let program = lowered(&plan).unwrap();
        let options = RunOptions { trace: true, ..RunOptions::default() };
        let outputs = run(&program, &inputs(&plan, 1), &options).unwrap();
        for (trace, table) in [(outputs.forward_trace, &program.forward), (outputs.backward_trace, &program.backward)] {
            let instrs = table.ranks.iter().flat_map(|r| &r.streams).flatten();
            assert!(trace.iter().map(|e| e.what).eq(instrs.map(|i| i.kind)), "{}", plan.planner);
            assert!(trace.iter().all(|e| e.start_ps <= e.end_ps));
            let streams = trace.chunk_by(|a, b| (a.rank, a.stream) == (b.rank, b.stream));
            assert!(streams.into_iter().all(|s| s.is_sorted_by_key(|e| e.start_ps)));
            assert!(trace.iter().any(|e| matches!(e.what, InstrKind::Launch { .. })));
        }
    }
}

fn documents() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(1u32), 1u32..20, 1u32..150], 1..6),
        1 => (1u32..400).prop_map(|window| vec![window]),
        1 => prop::collection::vec(1u32..4, 60..100),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn programs_of_all_planners_are_right(
        sequences in prop::collection::vec(documents(), 1..4), cp in 1u32..10,
        (kv, group, dim) in (1u16..5, 1u16..5, 1u16..20), seed in any::<u64>(),
    ) {
        let documents: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
        for plan in of_planners(&documents, cp, shape(kv * group, kv, dim)) {
            if let Err(error) = verified(&plan, seed) {
                return Err(TestCaseError::fail(format!("{}: {error}", plan.planner)));
            }
        }
    }

    #[test]
    fn hard_cases_are_right(
        first in documents(), second in documents(), ranks in 1u32..7, (kv, group) in (1u16..4, 1u16..4),
        seed in any::<u64>(),
    ) {
        for plan in hard_cases([&first, &second], ranks, shape(kv * group, kv, 8)) {
            if let Err(error) = verified(&plan, seed) {
                return Err(TestCaseError::fail(format!("{}: {error}", plan.planner)));
            }
        }
    }
}
