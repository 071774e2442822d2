use skewbench_store::StoreError;
use skewbench_store::stats::{Bootstrap, mean};

/// A value with its 95% interval and the number of steps behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// Value.
    pub value: f64,
    /// Ends of the interval, where there are at least two steps.
    pub interval: Option<(f64, f64)>,
    /// Steps.
    pub n: u64,
}

impl Estimated {
    /// A value without an interval.
    pub fn exact(value: f64, n: u64) -> Self {
        Self { value, interval: None, n }
    }

    /// The value and interval multiplied by a constant.
    pub fn scaled(self, by: f64) -> Self {
        Self { value: self.value * by, interval: self.interval.map(|(a, b)| (a * by, b * by)), n: self.n }
    }
}

/// How steps are drawn for an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Master seed.
    pub seed: u64,
    /// Consecutive steps that are drawn together; 1 where steps do not depend on one another.
    pub block: usize,
}

impl Draws {
    /// Steps drawn one by one.
    pub fn single(seed: u64) -> Self {
        Self { seed, block: 1 }
    }

    fn bootstrap(self, name: &str) -> Bootstrap<'_> {
        Bootstrap::new(self.seed, name).with_block(self.block)
    }
}

/// Mean over steps, with a bootstrap interval over steps.
///
/// # Errors
/// No steps, or one that is not finite.
pub fn estimate_mean(samples: &[f64], draws: Draws, name: &str) -> Result<Estimated, StoreError> {
    let interval = draws.bootstrap(name).mean(samples)?;
    Ok(with_interval(mean(samples), interval.low, interval.high, samples.len()))
}

/// Ratio of the means of two quantities of the same steps, drawn in pairs.
///
/// # Errors
/// As [`estimate_mean`]; a denominator that can be 0.
pub fn estimate_ratio(over: &[f64], under: &[f64], draws: Draws, name: &str) -> Result<Estimated, StoreError> {
    let interval = draws.bootstrap(name).ratio(over, under)?;
    Ok(with_interval(mean(over) / mean(under), interval.low, interval.high, over.len()))
}

/// A function of the sums of several quantities over the same steps, such as a ratio of rates.
///
/// # Errors
/// As [`estimate_mean`].
pub fn estimate_sums(
    columns: &[&[f64]],
    draws: Draws,
    name: &str,
    of: impl Fn(&[f64]) -> f64,
) -> Result<Estimated, StoreError> {
    let n = columns.first().map_or(0, |c| c.len());
    let mut sums = vec![0.0; columns.len()];
    let mut at = |indices: &[u32]| {
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum = indices.iter().fold(0.0, |sum, i| sum + column[*i as usize]);
        }
        of(&sums)
    };
    let value = at(&(0..n as u32).collect::<Vec<_>>());
    let interval = draws.bootstrap(name).run(n, at)?;
    Ok(with_interval(value, interval.low, interval.high, n))
}

fn with_interval(value: f64, low: f64, high: f64, n: usize) -> Estimated {
    Estimated { value, interval: (n > 1).then_some((low, high)), n: n as u64 }
}
