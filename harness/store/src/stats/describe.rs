use serde::{Deserialize, Serialize};

use crate::StoreError;

/// Modified z-scores beyond this are outliers (Iglewicz and Hoaglin, 1993).
const OUTLIER_SCORE: f64 = 3.5;
/// MAD of a normal distribution, in standard deviations.
const NORMAL_MAD: f64 = 0.6745;
/// Standard deviation of a normal distribution, in mean absolute deviations: sqrt(pi / 2).
const NORMAL_MEAN_DEVIATION: f64 = 1.253_314;

/// What samples look like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard error of the mean; 0 for one sample.
    pub standard_error: f64,
    /// Median.
    pub median: f64,
    /// Median absolute deviation from the median, not scaled.
    pub mad: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample. Never bootstrap it: resamples of a maximum say nothing about the tail beyond it.
    pub max: f64,
    /// 99th percentile (type 7).
    pub p99: f64,
    /// Samples whose modified z-score is above 3.5. They are counted, never dropped.
    pub outliers: usize,
}

impl Summary {
    /// Describes samples.
    ///
    /// # Errors
    /// No samples, or one that is not finite.
    pub fn of(samples: &[f64]) -> Result<Self, StoreError> {
        check(samples)?;
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let ends = sorted.first().zip(sorted.last());
        let (min, max) = ends.map_or((f64::NAN, f64::NAN), |(a, b)| (*a, *b));
        Ok(Self {
            n: samples.len(),
            mean: mean(samples),
            standard_error: standard_error(samples),
            median: sorted_quantile(&sorted, 0.5),
            mad: mad(samples),
            min,
            max,
            p99: sorted_quantile(&sorted, 0.99),
            outliers: outliers(samples),
        })
    }
}

/// Refuses empty samples and samples that are not finite.
pub(super) fn check(samples: &[f64]) -> Result<(), StoreError> {
    if samples.is_empty() {
        return Err(StoreError::Statistics("there are no samples".to_owned()));
    }
    match samples.iter().position(|x| !x.is_finite()) {
        Some(i) => {
            Err(StoreError::Statistics(format!("sample {i} is {}", samples.get(i).copied().unwrap_or(f64::NAN))))
        }
        None => Ok(()),
    }
}

/// Arithmetic mean; NaN without samples.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Standard error of the mean with n - 1 in the variance; 0 for fewer than two samples.
pub fn standard_error(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let (n, centre) = (samples.len() as f64, mean(samples));
    let squares: f64 = samples.iter().map(|x| (x - centre) * (x - centre)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

/// Quantile `q` in [0, 1], type 7 of Hyndman and Fan (linear between order statistics); NaN without samples.
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    selected_quantile(&mut samples.to_vec(), q)
}

/// [`quantile`] of samples whose order is of no more use.
pub(super) fn selected_quantile(samples: &mut [f64], q: f64) -> f64 {
    let Some(last) = samples.len().checked_sub(1) else { return f64::NAN };
    let position = q.clamp(0.0, 1.0) * last as f64;
    let (_, low, above) = samples.select_nth_unstable_by((position as usize).min(last), f64::total_cmp);
    let low = *low;
    between(position, low, above.iter().copied().min_by(f64::total_cmp).unwrap_or(low))
}

pub(super) fn sorted_quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position as usize;
    let at = |i: usize| sorted.get(i.min(last)).copied().unwrap_or(f64::NAN);
    between(position, at(below), at(below + 1))
}

/// The quantile at a position between two order statistics.
fn between(position: f64, low: f64, high: f64) -> f64 {
    let share = position.fract();
    // Exact at order statistics, also where the neighbour is infinite.
    if share == 0.0 { low } else { low + share * (high - low) }
}

/// Median; NaN without samples.
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// Median absolute deviation from the median, not scaled; NaN without samples.
pub fn mad(samples: &[f64]) -> f64 {
    let centre = median(samples);
    let deviations: Vec<f64> = samples.iter().map(|x| (x - centre).abs()).collect();
    median(&deviations)
}

/// Number of samples whose modified z-score, 0.6745 (x - median) / MAD, is beyond 3.5. Where more than half of the samples are
/// equal, the MAD is 0 and the mean absolute deviation takes its place.
pub fn outliers(samples: &[f64]) -> usize {
    let centre = median(samples);
    let deviations: Vec<f64> = samples.iter().map(|x| (x - centre).abs()).collect();
    let spread = median(&deviations) / NORMAL_MAD;
    let spread = if spread > 0.0 { spread } else { mean(&deviations) * NORMAL_MEAN_DEVIATION };
    deviations.iter().filter(|d| spread > 0.0 && **d / spread > OUTLIER_SCORE).count()
}
