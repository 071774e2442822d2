use skewbench_cpu::{Inputs, RunOptions, needles};
use skewbench_exec::Program;
use skewbench_plan::Plan;

pub use skewbench_cpu::TOLERANCE;

use crate::finding::{Finding, Place, Seen};
use crate::guard::guarded;

/// Keys that dominate one row each, at most so many of them, at the bounds of tiles and documents.
const NEEDLES: usize = 64;

/// Runs a program with real data and compares it with dense attention.
pub(crate) fn numbers(plan: &Plan, program: &Program, seed: u64, at: Place, seen: &mut Seen) -> Result<(), Finding> {
    let inputs = Inputs::random(&plan.sequences, plan.shape, seed).with_needles(&needles(plan, NEEDLES));
    let run = || skewbench_cpu::verify(program, &inputs, &RunOptions::default());
    let report = guarded("cpu backend", run)?.map_err(|e| Finding::Numbers { at, what: e.to_string() })?;
    for tensor in report.tensors {
        match seen.errors.iter_mut().find(|(name, _)| *name == tensor.tensor) {
            Some((_, worst)) => *worst = worst.max(tensor.error),
            None => seen.errors.push((tensor.tensor, tensor.error)),
        }
    }
    Ok(())
}
