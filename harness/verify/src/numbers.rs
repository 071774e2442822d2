use skewbench_cpu::{Inputs, Report, RunOptions, needles};
use skewbench_exec::Program;
use skewbench_plan::Plan;

pub use skewbench_cpu::TOLERANCE;

use crate::finding::{Finding, Place, Seen};
use crate::guard::guarded;
use crate::run::Runner;

/// Keys that dominate one row each, at most so many of them, at the bounds of tiles and documents.
const NEEDLES: usize = 64;

/// Inputs of a plan that no wrong mask gets by.
fn inputs(plan: &Plan, seed: u64) -> Inputs {
    Inputs::random(&plan.sequences, plan.shape, seed).with_needles(&needles(plan, NEEDLES))
}

/// Runs a program with real data on the CPU and compares it with dense attention.
pub(crate) fn on_cpu(plan: &Plan, program: &Program, seed: u64, at: Place, seen: &mut Seen) -> Result<(), Finding> {
    let inputs = inputs(plan, seed);
    let run = || skewbench_cpu::verify(program, &inputs, &RunOptions::default());
    let report = guarded("cpu backend", run)?.map_err(|e| Finding::Numbers { at, what: e.to_string() })?;
    note(report, seen);
    Ok(())
}

/// The same elsewhere.
pub(crate) fn on_runner(
    runner: &dyn Runner,
    plan: &Plan,
    program: &Program,
    seed: u64,
    at: Place,
    seen: &mut Seen,
) -> Result<(), Finding> {
    let wrong = |what| Finding::Numbers { at, what };
    let run = || runner.measure(program, inputs(plan, seed));
    let report = guarded(runner.name(), run)?.map_err(wrong)?;
    report.within(runner.tolerance()).map_err(|e| wrong(e.to_string()))?;
    note(report, seen);
    Ok(())
}

fn note(report: Report, seen: &mut Seen) {
    for tensor in report.tensors {
        match seen.errors.iter_mut().find(|(name, _)| *name == tensor.tensor) {
            Some((_, worst)) => *worst = worst.max(tensor.error),
            None => seen.errors.push((tensor.tensor, tensor.error)),
        }
    }
}
