use crate::cells::WavesCell;
use crate::experiment::Objective;
use crate::metrics::WavesView;

/// The objective of every step, in picoseconds (a token).
pub fn by_step(objective: Objective, cell: &WavesCell, view: &WavesView) -> Vec<f64> {
    let tokens = f64::from(cell.gbs) * f64::from(cell.workload.window_tokens);
    view.by_step(|step| match objective {
        Objective::Mean => step.straggler_mean_ps(),
        Objective::Max => step.straggler_max_ps(),
        Objective::TimePerToken => step.total_ps(0.0, true) / tokens,
    })
}
