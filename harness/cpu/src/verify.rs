use skewbench_exec::Program;

use crate::{CpuError, Inputs, Report, RunOptions, TOLERANCE, compare, reference, run};

/// Runs a program and says how far its results are from dense attention, right or wrong.
///
/// # Errors
/// As [`run`].
pub fn measure(program: &Program, inputs: &Inputs, options: &RunOptions) -> Result<Report, CpuError> {
    let outputs = run(program, inputs, options)?;
    Ok(compare(inputs, &outputs, &reference::attention(inputs)))
}

/// [`measure`], with results beyond [`TOLERANCE`](crate::TOLERANCE) as an error.
///
/// # Errors
/// As [`run`], and [`CpuError::Wrong`].
pub fn verify(program: &Program, inputs: &Inputs, options: &RunOptions) -> Result<Report, CpuError> {
    let report = measure(program, inputs, options)?;
    report.within(TOLERANCE)?;
    Ok(report)
}
