use skewbench_plan::{PackedSequence, PlaceContext, PlacedStep, Placement, Step, SystemError};

use crate::finding::Finding;
use crate::guard::guarded;

/// Places all steps in order, twice, and checks what every placement must keep: each wave has one sequence a data-parallel
/// rank, each sequence runs once, pools partition the ranks, no document is lost, duplicated or cut, and work stays below
/// the bound that the placement declares.
///
/// # Errors
/// `Err(Ok(_))` when the placement refuses the steps, `Err(Err(_))` when it is wrong.
pub fn place(
    placement: &dyn Placement,
    steps: &[Step],
    context: impl Fn(u64) -> PlaceContext<'static> + Copy,
) -> Result<Vec<PlacedStep>, Result<SystemError, Finding>> {
    let placed = run(placement, steps, context)?;
    if run(placement, steps, context)? != placed {
        return Err(Err(Finding::Unrepeatable { part: "placement" }));
    }
    let wrong = |step: usize, what: String| Err(Err(Finding::Placement { step, what }));
    let mut waiting = 0u64;
    for (index, step) in placed.iter().enumerate() {
        waiting += steps.get(index).map_or(0, Step::tokens);
        let ran: u64 = step.sequences.iter().map(PackedSequence::tokens).sum();
        if waiting.checked_sub(ran) != Some(step.delayed_tokens) {
            let what = format!("{waiting} tokens were there, {ran} ran, and {} are said to wait", step.delayed_tokens);
            return wrong(index, what);
        }
        waiting -= ran;
        if let Err(what) = shape(step, context(0).layout.dp) {
            return wrong(index, what);
        }
        let Some(delivered) = steps.get(index) else { continue };
        let same = documents(delivered.sequences.iter()) == documents(step.sequences.iter());
        // A late document may take the place of another one of its length.
        let swapped = !step.late.is_empty() || step.delayed_tokens > 0;
        if step.preserved != same && (step.preserved || !swapped) {
            let what = format!(
                "says preserved = {}, but the documents of the step are {}the delivered ones",
                step.preserved,
                if same { "" } else { "not " }
            );
            return wrong(index, what);
        }
        if !placement.stateful() && !same {
            return wrong(index, "a stateless placement changed the documents of the step".to_owned());
        }
        if let Some(bound) = placement.load_bound(delivered, &context(delivered.index)) {
            let worker = bound.over.heaviest(step);
            if worker.1 > bound.pairs {
                let what = format!(
                    "{} {} has {} pairs, above the declared bound of {}",
                    bound.over.name(),
                    worker.0,
                    worker.1,
                    bound.pairs
                );
                return wrong(index, what);
            }
        }
    }
    let delivered = documents(steps.iter().flat_map(|s| &s.sequences));
    let ran = documents(placed.iter().flat_map(|s| &s.sequences));
    if delivered != ran {
        let what = format!(
            "{} documents of {} tokens were delivered, {} of {} ran once everything was drained",
            delivered.len(),
            total(&delivered),
            ran.len(),
            total(&ran)
        );
        return wrong(placed.len(), what);
    }
    if placed.last().is_some_and(|s| s.delayed_tokens > 0) {
        return wrong(placed.len() - 1, "tokens still wait after the last step".to_owned());
    }
    Ok(placed)
}

fn run(
    placement: &dyn Placement,
    steps: &[Step],
    context: impl Fn(u64) -> PlaceContext<'static>,
) -> Result<Vec<PlacedStep>, Result<SystemError, Finding>> {
    let all = || {
        let mut placer = placement.placer();
        let mut placed =
            steps.iter().map(|step| placer.place(step, &context(step.index))).collect::<Result<Vec<_>, _>>()?;
        placed.extend(placer.finish(&context(steps.len() as u64))?);
        Ok(placed)
    };
    guarded("placement", all).map_err(Err)?.map_err(Ok)
}

fn shape(step: &PlacedStep, dp: u32) -> Result<(), String> {
    let mut runs = vec![0u32; step.sequences.len()];
    for (number, wave) in step.waves.iter().enumerate() {
        if wave.sequences.len() != dp as usize {
            return Err(format!("wave {number} has {} sequences for {dp} data-parallel ranks", wave.sequences.len()));
        }
        for sequence in &wave.sequences {
            let Some(runs) = runs.get_mut(*sequence as usize) else {
                return Err(format!(
                    "wave {number} runs sequence {sequence}, and the step has {}",
                    step.sequences.len()
                ));
            };
            *runs += 1;
        }
    }
    if let Some(sequence) = runs.iter().position(|runs| *runs != 1) {
        return Err(format!("sequence {sequence} runs {} times", runs[sequence]));
    }
    let mut next = 0;
    for pool in &step.pools {
        if pool.start != next || pool.end <= pool.start {
            return Err(format!("pools {:?} do not partition {dp} data-parallel ranks", step.pools));
        }
        next = pool.end;
    }
    if next == dp { Ok(()) } else { Err(format!("pools {:?} do not partition {dp} data-parallel ranks", step.pools)) }
}

/// All document lengths, sorted.
fn documents<'a>(sequences: impl Iterator<Item = &'a PackedSequence>) -> Vec<u32> {
    let mut all: Vec<u32> = sequences.flat_map(|s| s.documents().iter().copied()).collect();
    all.sort_unstable();
    all
}

fn total(documents: &[u32]) -> u64 {
    documents.iter().map(|l| u64::from(*l)).sum()
}
