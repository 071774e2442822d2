use crate::experiment::Objective;
use crate::metrics::{StepView, WavesView};

/// The objective of every step, in picoseconds (a token).
pub fn by_step(objective: Objective, view: &WavesView) -> Vec<f64> {
    match objective {
        Objective::Mean => view.by_step(StepView::straggler_mean_ps),
        Objective::Max => view.by_step(StepView::straggler_max_ps),
        Objective::TimePerToken => {
            // Over the mean tokens of a step, so that the mean over steps is time over tokens of everything that ran.
            let tokens = view.by_step_with_drain(StepView::tokens);
            let mean = tokens.iter().sum::<f64>() / tokens.len() as f64;
            view.by_step_with_drain(|step| step.attention_ps() / mean)
        }
    }
}
