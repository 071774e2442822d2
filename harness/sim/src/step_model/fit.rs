use super::Wait;

/// Why a published scaling cannot be met by any amount of token-wise work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// No time is given.
    #[error("no attention times given for {0}; pass at least one wave with one rank")]
    Empty(&'static str),
    /// The target lies outside what token-wise work of any size gives.
    #[error(
        "a scaling of {target} cannot be reached: no token-wise work gives {attention_only:.3}, unlimited work {limit:.3}"
    )]
    Unreachable {
        /// Scaling asked for.
        target: f64,
        /// Scaling of attention alone.
        attention_only: f64,
        /// Scaling with unlimited token-wise work.
        limit: f64,
    },
}

/// Attention of a step as time = constant + micro-batches x token-wise work of one.
struct StepLine {
    attention_ps: f64,
    waves: f64,
    sequences: f64,
}

impl StepLine {
    fn new(waves: &[Vec<u64>], wait: Wait, what: &'static str) -> Result<Self, FitError> {
        let ranks = waves.iter().map(Vec::len).min().unwrap_or(0);
        if ranks == 0 {
            return Err(FitError::Empty(what));
        }
        let attention_ps = match wait {
            Wait::PerMicroBatch => waves.iter().map(|wave| wave.iter().copied().max().unwrap_or(0) as f64).sum(),
            Wait::PerStep => {
                (0..ranks).map(|rank| waves.iter().map(|wave| wave[rank] as f64).sum::<f64>()).fold(0.0, f64::max)
            }
        };
        let sequences = waves.iter().map(|wave| wave.len() as f64).sum();
        Ok(Self { attention_ps, waves: waves.len() as f64, sequences })
    }
}

/// Picoseconds of token-wise work per micro-batch (both passes, all layers, in the unit of the attention times) at which the throughput of
/// `many` data-parallel ranks over that of `one` equals `target`.
///
/// Both are attention times by wave and rank, for any number of steps, without a pipeline. Time is linear in the work, so the answer is exact.
///
/// # Errors
/// When a side is empty or no positive finite amount of work gives the target.
pub fn fit_linear_ps(target: f64, many: &[Vec<u64>], one: &[Vec<u64>], wait: Wait) -> Result<f64, FitError> {
    let (many, one) = (StepLine::new(many, wait, "many ranks")?, StepLine::new(one, wait, "one rank")?);
    // target = (many.sequences / (many.attention + many.waves L)) / (one.sequences / (one.attention + one.waves L))
    let weight = many.sequences / one.sequences;
    let numerator = target * many.attention_ps - weight * one.attention_ps;
    let denominator = weight * one.waves - target * many.waves;
    let linear = numerator / denominator;
    if linear.is_finite() && linear > 0.0 {
        return Ok(linear);
    }
    let attention_only = weight * one.attention_ps / many.attention_ps;
    Err(FitError::Unreachable { target, attention_only, limit: weight * one.waves / many.waves })
}

/// Ratio of a full window's attention to its token-wise work at `window` tokens, given it at 256K: token-wise work per token does not depend on the
/// window, so the ratio grows with it (a(1M) = 4 a(256K)).
pub fn a_of_window(a_256k: f64, window: u32) -> f64 {
    a_256k * f64::from(window) / 262_144.0
}

#[cfg(test)]
mod tests {
    use super::{FitError, a_of_window, fit_linear_ps};
    use crate::step_model::Wait;

    #[test]
    fn the_fitted_work_gives_the_target() {
        let many = vec![vec![10, 40, 5, 20], vec![8, 8, 90, 1]];
        let one: Vec<Vec<u64>> = many.iter().flatten().map(|t| vec![*t]).collect();
        for wait in [Wait::PerMicroBatch, Wait::PerStep] {
            let target = if wait == Wait::PerMicroBatch { 2.5 } else { 3.0 };
            let linear = fit_linear_ps(target, &many, &one, wait).expect("reachable");
            let attention: f64 = match wait {
                Wait::PerMicroBatch => 40.0 + 90.0,
                Wait::PerStep => 95.0,
            };
            let scaling = (182.0 + 8.0 * linear) / (attention + 2.0 * linear);
            assert!((scaling - target).abs() < 1e-12, "{wait:?}: {scaling}");
        }
    }

    #[test]
    fn targets_out_of_reach_are_refused() {
        let many = vec![vec![10, 40]];
        let one = vec![vec![10], vec![40]];
        for target in [1.0, 2.0, 5.0, f64::NAN, -1.0] {
            let error = fit_linear_ps(target, &many, &one, Wait::PerMicroBatch);
            assert!(matches!(error, Err(FitError::Unreachable { .. })), "{target}");
        }
        assert_eq!(fit_linear_ps(2.0, &[], &one, Wait::PerStep), Err(FitError::Empty("many ranks")));
    }

    #[test]
    fn the_ratio_grows_with_the_window() {
        assert_eq!(a_of_window(2.65, 262_144), 2.65);
        assert_eq!(a_of_window(2.65, 1_048_576), 10.6);
    }
}
