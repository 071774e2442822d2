use skewbench_store::stats::{mean, median, quantile};

use super::Observation;

/// How far predictions are from measured times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Median of |predicted / measured - 1| over ranks and waves.
    pub median: f64,
    /// Its 95th percentile.
    pub p95: f64,
    /// Correlation of predicted and measured times; none where either is always the same.
    pub correlation: Option<f64>,
    /// Median of |predicted / measured - 1| of the slowest rank of every wave.
    pub wave_median: f64,
    /// Its 95th percentile.
    pub wave_p95: f64,
    /// Slowest rank over the mean rank, mean over waves, as predicted.
    pub straggler: f64,
    /// Share of the waves whose slowest rank is the one that is predicted to be.
    pub same_slowest: f64,
}

/// A wave by its ranks, all its passes together.
#[derive(Clone, Debug, PartialEq)]
pub struct WaveTimes {
    /// Measured nanoseconds of every rank.
    pub measured: Vec<f64>,
    /// Predicted ones.
    pub predicted: Vec<f64>,
}

/// Times of every wave by rank, all passes together.
pub fn waves(observations: &[Observation], predicted: &dyn Fn(&Observation) -> f64) -> Vec<WaveTimes> {
    let ranks = observations.iter().map(|o| o.rank + 1).max().unwrap_or(0);
    let count = observations.iter().map(|o| o.wave + 1).max().unwrap_or(0);
    let mut waves = vec![WaveTimes { measured: vec![0.0; ranks], predicted: vec![0.0; ranks] }; count];
    for o in observations {
        waves[o.wave].measured[o.rank] += o.measured;
        waves[o.wave].predicted[o.rank] += predicted(o);
    }
    waves
}

impl WaveTimes {
    /// Slowest over mean rank.
    pub fn straggler(times: &[f64]) -> f64 {
        times.iter().copied().fold(0.0, f64::max) / mean(times)
    }

    /// The slowest rank, the first of several.
    pub fn slowest(times: &[f64]) -> usize {
        times.iter().enumerate().max_by(|(i, a), (j, b)| a.total_cmp(b).then(j.cmp(i))).map_or(0, |(i, _)| i)
    }

    /// Predicted over measured time of the wave, each of its own slowest rank.
    pub fn ratio(&self) -> f64 {
        let max = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        max(&self.predicted) / max(&self.measured)
    }
}

impl Accuracy {
    /// Of predictions that a function makes.
    pub fn of(observations: &[Observation], predicted: &dyn Fn(&Observation) -> f64) -> Self {
        let ours: Vec<f64> = observations.iter().map(predicted).collect();
        let theirs: Vec<f64> = observations.iter().map(|o| o.measured).collect();
        let errors: Vec<f64> = ours.iter().zip(&theirs).map(|(p, m)| (p / m - 1.0).abs()).collect();
        let waves = waves(observations, predicted);
        let of_waves: Vec<f64> = waves.iter().map(|w| (w.ratio() - 1.0).abs()).collect();
        let hits = waves.iter().filter(|w| WaveTimes::slowest(&w.measured) == WaveTimes::slowest(&w.predicted));
        Self {
            median: median(&errors),
            p95: quantile(&errors, 0.95),
            correlation: correlation(&ours, &theirs),
            wave_median: median(&of_waves),
            wave_p95: quantile(&of_waves, 0.95),
            straggler: mean(&waves.iter().map(|w| WaveTimes::straggler(&w.predicted)).collect::<Vec<_>>()),
            same_slowest: hits.count() as f64 / waves.len().max(1) as f64,
        }
    }
}

/// Pearson's correlation.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (x, y) = (mean(a), mean(b));
    let sum = |of: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(p, q)| of(p - x, q - y)).sum::<f64>();
    let (xx, yy) = (sum(&|p, _| p * p), sum(&|_, q| q * q));
    (xx > 0.0 && yy > 0.0).then(|| sum(&|p, q| p * q) / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imported::TimedPass;

    #[test]
    fn errors_of_ranks_and_waves() {
        let of = |wave, rank, measured, kernels| Observation {
            wave,
            rank,
            pass: TimedPass::Both,
            measured,
            kernels,
            rest: 0.0,
            launches: 1.0,
        };
        let all = [of(0, 0, 10.0, 11.0), of(0, 1, 30.0, 33.0), of(1, 0, 20.0, 10.0), of(1, 1, 10.0, 20.0)];
        let accuracy = Accuracy::of(&all, &Observation::predicted);
        assert!((accuracy.median - 0.3).abs() < 1e-9, "{accuracy:?}");
        // The slowest ranks: 33 against 30, and 20 against 20 on another rank.
        assert!((accuracy.wave_median - 0.05).abs() < 1e-9, "{accuracy:?}");
        assert_eq!(accuracy.same_slowest, 0.5);
        assert!((accuracy.straggler - (33.0 / 22.0 + 20.0 / 15.0) / 2.0).abs() < 1e-9);
        assert!(accuracy.correlation.unwrap() > 0.0);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(correlation(&[1.0, 2.0], &[2.0, 4.0]), Some(1.0));
    }
}
