use serde::{Deserialize, Serialize};

use super::bootstrap::Bootstrap;
use super::describe::{check, mean};
use crate::StoreError;

/// Pairs below which no verdict is given.
const MIN_PAIRS: usize = 5;

/// Which way of a quantity is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Times.
    LowerIsBetter,
    /// Rates.
    HigherIsBetter,
}

/// How two systems are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareOptions<'a> {
    /// Which way is better.
    pub direction: Direction,
    /// Relative difference that is no difference, e.g. 0.01.
    pub same_within: f64,
    /// How the interval is found.
    pub bootstrap: Bootstrap<'a>,
}

impl<'a> CompareOptions<'a> {
    /// Times, 1% is no difference.
    pub fn times(bootstrap: Bootstrap<'a>) -> Self {
        Self { direction: Direction::LowerIsBetter, same_within: 0.01, bootstrap }
    }

    /// Rates, 1% is no difference.
    pub fn rates(bootstrap: Bootstrap<'a>) -> Self {
        Self { direction: Direction::HigherIsBetter, ..Self::times(bootstrap) }
    }
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval is within the margin of no difference.
    Same,
    /// The interval excludes 1 on the better side.
    Faster,
    /// The interval excludes 1 on the worse side.
    Slower,
    /// Neither.
    Unclear,
}

/// A paired comparison of two systems on the same batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// mean(subject) / mean(baseline).
    pub ratio: f64,
    /// Lower end of its 95% interval.
    pub ci_low: f64,
    /// Upper end of its 95% interval.
    pub ci_high: f64,
    /// Pairs.
    pub n: usize,
    /// What it means.
    pub verdict: Verdict,
    /// Why, when unclear.
    pub reason: Option<String>,
}

impl Comparison {
    /// True when there are so few pairs that no verdict is given.
    pub fn too_few(&self) -> bool {
        self.n < MIN_PAIRS
    }
}

/// Compares `subject` with `baseline`; sample i of both belongs to the same batch.
///
/// # Errors
/// No samples, different numbers of them, samples that are not finite, or a baseline that is not positive.
pub fn compare(baseline: &[f64], subject: &[f64], options: &CompareOptions<'_>) -> Result<Comparison, StoreError> {
    check(baseline)?;
    check(subject)?;
    if baseline.iter().any(|x| *x <= 0.0) {
        return Err(StoreError::Statistics("the baseline has samples that are not above 0".to_owned()));
    }
    let interval = options.bootstrap.ratio(subject, baseline)?;
    let ratio = mean(subject) / mean(baseline);
    let (low, high, n) = (interval.low, interval.high, subject.len());
    let better_below = options.direction == Direction::LowerIsBetter;
    let (verdict, reason) = if n < MIN_PAIRS {
        (Verdict::Unclear, Some(format!("{n} pairs, fewer than {MIN_PAIRS}")))
    } else if low >= 1.0 - options.same_within && high <= 1.0 + options.same_within {
        (Verdict::Same, None)
    } else if high < 1.0 {
        (if better_below { Verdict::Faster } else { Verdict::Slower }, None)
    } else if low > 1.0 {
        (if better_below { Verdict::Slower } else { Verdict::Faster }, None)
    } else {
        let width = 100.0 * (high - low);
        (Verdict::Unclear, Some(format!("the interval contains 1 and is {width:.1}% wide; more steps would narrow it")))
    };
    Ok(Comparison { ratio, ci_low: low, ci_high: high, n, verdict, reason })
}
