//! Wrong plans and programs are caught by the numbers alone, without the checker, by messages that say what and where.

#[path = "../../../systems/tests/mutants/mod.rs"]
mod mutants;
mod support;

use std::collections::BTreeMap;

use mutants::{layout_mutants, mutants};
use skewbench_cpu::{CpuError, Inputs, RunOptions, compare, reference, run, verify};
use skewbench_exec::{InstrKind, PassProgram, Program};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{HeadRange, Mask, Pass, Plan, Span};
use support::{hard_cases, inputs, lowered, of_planners, shape};

/// Faults that need not change a number: those of order, which a run may survive by luck; the element type, which this
/// backend does not round to; what is computed or kept but never used; local moves that find nothing left to move; and
/// the stride and the full mask of a single row.
fn may_go_unseen(plan: &Plan, what: &str) -> bool {
    let order = ["dependency", "one earlier", "on a stream of its own", "(linear)"];
    let numbers = ["another dtype", "keep flipped", "of another stride", ": Full"];
    order.iter().chain(&numbers).any(|kind| what.contains(kind)) || is_of_local_move(plan, what)
}

fn number_after(text: &str, word: &str) -> Option<usize> {
    let (_, rest) = text.split_once(word)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Whether the mutant with this name changes a move of the plan that stays on its rank.
fn is_of_local_move(plan: &Plan, what: &str) -> bool {
    let table = plan.pass(if what.starts_with("Forward") { Pass::Forward } else { Pass::Backward });
    let span = match (number_after(what, "call "), number_after(what, "part ")) {
        (Some(call), Some(part)) => table.calls[call].parts[part].moves,
        _ => Span { start: 0, end: table.moves.len() as u32 },
    };
    let changed = number_after(what, "move ").and_then(|at| table.moves[span.range()].get(at));
    changed.is_some_and(|mv| mv.from == mv.to)
}

fn caught(plan: &Plan) -> Result<(), String> {
    let program = lowered(plan)?;
    verify(&program, &inputs(plan, 5), &RunOptions::default()).map(|_| ()).map_err(|e| e.to_string())
}

fn plans() -> Vec<Plan> {
    let documents: [&[u32]; 2] = [&[5, 1, 7], &[3, 2]];
    let shape = shape(4, 2, 16);
    of_planners(&documents, 2, shape).into_iter().take(5).chain(hard_cases(documents, 2, shape)).collect()
}

#[test]
fn every_wrong_plan_is_caught_without_the_checker() {
    let mut unseen = BTreeMap::new();
    for plan in plans() {
        caught(&plan).unwrap_or_else(|e| panic!("{}: {e}", plan.planner));
        let all = [Pass::Forward, Pass::Backward].into_iter().flat_map(|pass| mutants(&plan, pass));
        for (i, (what, mutant)) in all.chain(layout_mutants(&plan)).enumerate() {
            // Tiles, masks and heads all, of the others some.
            if !(what.contains("tile") || what.contains("launch") || i % 5 == 0) {
                continue;
            }
            match caught(&mutant) {
                Ok(()) if may_go_unseen(&plan, &what) => {}
                Ok(()) => {
                    if let Err(refusal) = check(&mutant, &Limits::default()) {
                        unseen.insert(format!("{}: {what}", plan.planner), refusal.what);
                    }
                }
                Err(error) => {
                    let place = ["rank ", "row ", "rows ", "sequence ", "layout", "call "];
                    assert!(place.iter().any(|p| error.contains(p)), "{}: {what}: {error}", plan.planner);
                }
            }
        }
    }
    assert!(unseen.is_empty(), "{}: {unseen:#?}", unseen.len());
}

/// What verification says of a program after a change; none where the change does not apply.
fn after(plan: &Plan, change: impl Fn(&mut Program) -> bool) -> Option<String> {
    let mut program = lowered(plan).unwrap();
    if !change(&mut program) {
        return None;
    }
    let found = verify(&program, &inputs(plan, 5), &RunOptions::default());
    Some(found.expect_err(&plan.planner).to_string())
}

fn instrs(pass: &mut PassProgram) -> impl Iterator<Item = &mut InstrKind> {
    pass.ranks.iter_mut().flat_map(|rank| &mut rank.streams).flatten().map(|instr| &mut instr.kind)
}

fn replace(pass: &mut PassProgram, wanted: impl Fn(&InstrKind) -> bool) -> bool {
    let found = instrs(pass).find(|kind| wanted(kind));
    found.map(|kind| *kind = InstrKind::Linear { tokens: 0 }).is_some()
}

/// Messages of all plans to which a change applies, at least one.
fn messages(change: impl Fn(&mut Program) -> bool) -> Vec<String> {
    let found: Vec<String> = plans().iter().filter_map(|plan| after(plan, &change)).collect();
    assert!(!found.is_empty());
    found
}

fn all_contain(found: &[String], parts: &[&str]) {
    assert!(found.iter().all(|error| parts.iter().any(|part| error.contains(part))), "{found:#?}");
}

#[test]
fn a_dropped_tile_is_named() {
    let found = messages(|program| {
        let kind = instrs(&mut program.forward).find(|k| matches!(k, InstrKind::Launch { .. }));
        let Some(InstrKind::Launch { tiles, .. }) = kind else { return false };
        tiles.end -= 1;
        true
    });
    all_contain(&found, &["O of sequence", "merges results of a launch that met none"]);
}

#[test]
fn a_mask_off_by_one_is_named() {
    let found = messages(|program| {
        let kind = instrs(&mut program.forward).find(|k| matches!(k, InstrKind::Launch { .. }));
        let Some(InstrKind::Launch { mask, .. }) = kind else { return false };
        *mask = Mask::CausalExclusive;
        true
    });
    all_contain(&found, &["O of sequence"]);
    let found = messages(|program| {
        let tile = program.forward.tiles.iter_mut().find(|tile| tile.k_rows > 1);
        tile.map(|tile| tile.k_rows -= 1).is_some()
    });
    all_contain(&found, &["O of sequence"]);
}

#[test]
fn swapped_heads_are_named() {
    let found = messages(|program| {
        let kind = instrs(&mut program.backward).find(|k| matches!(k, InstrKind::Launch { .. }));
        let Some(InstrKind::Launch { q_heads, .. }) = kind else { return false };
        let of_one = q_heads.len() > 1;
        *q_heads = HeadRange::new(q_heads.start + 1, q_heads.end);
        of_one
    });
    all_contain(&found, &["dQ of sequence", "dK of sequence"]);
}

#[test]
fn lost_contributions_are_named() {
    let merge = |kind: &InstrKind| matches!(kind, InstrKind::Merge { .. });
    all_contain(
        &messages(|program| replace(&mut program.backward, merge)),
        &["still holds d", "dQ of", "dK of", "takes d"],
    );
    let settle = |kind: &InstrKind| matches!(kind, InstrKind::Settle { .. });
    all_contain(&messages(|program| replace(&mut program.backward, settle)), &["still holds d"]);
    let cast = |kind: &InstrKind| matches!(kind, InstrKind::Cast { .. });
    all_contain(&messages(|program| replace(&mut program.backward, cast)), &["was never written"]);
}

#[test]
fn merges_of_launches_that_are_missing_or_too_many_are_named() {
    let merge = |kind: &InstrKind| matches!(kind, InstrKind::MergeLocal { .. });
    let missing = |program: &mut Program| replace(&mut program.backward, merge);
    all_contain(&messages(missing), &["a launch adds to results of launches, and no merge of them follows"]);
    let added = messages(|program| {
        let transfer = instrs(&mut program.forward).find(|k| matches!(k, InstrKind::Linear { .. }));
        transfer.map(|kind| *kind = InstrKind::MergeLocal { bytes: 1 }).is_some()
    });
    all_contain(&added, &["merges results of a launch that met none"]);
}

#[test]
fn a_reference_that_is_missing_or_not_a_number_is_an_infinite_error() {
    let plan = &of_planners(&[&[9, 4], &[6]], 2, shape(4, 2, 8))[0];
    let (program, inputs) = (lowered(plan).unwrap(), inputs(plan, 5));
    let outputs = run(&program, &inputs, &RunOptions::default()).unwrap();
    let dense = reference::attention(&inputs);
    assert!(compare(&inputs, &outputs, &dense).worst() < 1e-5);
    let mut broken = dense.clone();
    broken.dk.at_mut(0, 3, 1).unwrap()[2] = f32::NAN;
    let report = compare(&inputs, &outputs, &broken);
    assert!(report.worst().is_infinite());
    let text = report.verdict().unwrap_err().to_string();
    assert!(
        text.contains("dK of sequence 0") && text.contains("row 3") && text.contains("no finite reference"),
        "{text}"
    );
    let shorter = Inputs::random(&[vec![0, 9]], plan.shape, 5);
    let report = compare(&inputs, &outputs, &reference::attention(&shorter));
    assert!(report.tensors.iter().all(|t| t.error.is_infinite()), "{report:?}");
}

#[test]
fn a_program_that_hangs_is_an_error_that_names_the_instruction() {
    let plan = &of_planners(&[&[40, 9], &[30]], 3, shape(4, 2, 8))[1];
    let late = after(plan, |program| {
        let stream = &mut program.forward.ranks[1].streams[1];
        stream[1].kind = InstrKind::Linear { tokens: 0 };
        true
    });
    let late = late.unwrap();
    assert!(late.contains(", stream 1, instruction") && late.contains("rank 1 never begins call 1"), "{late}");
    let cycle = after(plan, |program| {
        let table = &mut program.backward;
        let (compute, transfers) = (0, 1);
        let first = skewbench_exec::InstrId { stream: compute, index: 0 };
        let start = table.events.len() as u32;
        table.events.push(skewbench_exec::InstrId { stream: transfers, index: 0 });
        table.events.push(first);
        let span = |from| Span { start: from, end: from + 1 };
        table.ranks[2].streams[compute as usize][0].after = span(start);
        table.ranks[2].streams[transfers as usize][0].after = span(start + 1);
        true
    });
    let cycle = cycle.unwrap();
    assert!(cycle.contains("rank 2, stream") && cycle.contains("instruction 0 never starts"), "{cycle}");
    assert!(cycle.contains("stream 0, instruction 0") && cycle.contains("stream 1, instruction 0"), "{cycle}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = &of_planners(&[&[40, 9], &[30]], 2, shape(4, 2, 8))[0];
    let program = lowered(plan).unwrap();
    let refused = |inputs: &Inputs, options: RunOptions| verify(&program, inputs, &options).unwrap_err();
    let other = &of_planners(&[&[40, 8], &[30]], 2, shape(4, 2, 8))[0];
    let error = refused(&inputs(other, 1), RunOptions::default());
    assert!(matches!(error, CpuError::Inputs(_)) && error.to_string().contains("row 48"), "{error}");
    let mut narrow = inputs(plan, 1);
    narrow.shape.head_dim = 4;
    assert!(matches!(refused(&narrow, RunOptions::default()), CpuError::Inputs(_)));
    let little = RunOptions { memory_bytes: 1000, ..RunOptions::default() };
    assert!(matches!(refused(&inputs(plan, 1), little), CpuError::Memory { limit: 1000, .. }));
}
