use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::describe::{check, sorted_quantile};
use crate::StoreError;

/// A 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// 2.5th percentile.
    pub low: f64,
    /// 97.5th percentile.
    pub high: f64,
}

/// The random stream of a name below a master seed.
pub fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    let mut hasher = blake3::Hasher::new_derive_key("skewbench 2026 named random stream");
    hasher.update(&seed.to_le_bytes());
    hasher.update(name.as_bytes());
    ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
}

/// Percentile bootstrap with its own random stream: the same settings and samples give the same interval.
///
/// Never bootstrap a maximum (or any extreme): a resample's maximum is the sample's own with probability 1 - 1/e, whatever the
/// tail, so the interval means nothing. Take the maximum per step first, then bootstrap its mean over steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bootstrap<'a> {
    /// Number of resamples.
    pub resamples: usize,
    /// Master seed.
    pub seed: u64,
    /// Name of the stream below the seed; intervals that must be independent need different names.
    pub name: &'a str,
    /// Consecutive samples that are drawn together, for systems whose steps depend on earlier ones (deferred documents); 1 for
    /// independent samples. Blocks wrap around at the end (circular block bootstrap of Politis and Romano).
    pub block: usize,
}

impl<'a> Bootstrap<'a> {
    /// 2000 resamples of independent samples.
    pub fn new(seed: u64, name: &'a str) -> Self {
        Self { resamples: 2000, seed, name, block: 1 }
    }

    /// Draws blocks of so many consecutive samples.
    pub fn with_block(self, block: usize) -> Self {
        Self { block: block.max(1), ..self }
    }

    /// Interval of the mean.
    ///
    /// # Errors
    /// No samples, or one that is not finite.
    pub fn mean(&self, samples: &[f64]) -> Result<Interval, StoreError> {
        check(samples)?;
        let total = |indices: &[u32]| indices.iter().filter_map(|i| samples.get(*i as usize)).sum::<f64>();
        self.run(samples.len(), |indices| total(indices) / samples.len() as f64)
    }

    /// Interval of mean(`numerator`) / mean(`denominator`), drawn in pairs.
    ///
    /// # Errors
    /// No samples, different numbers of them, one that is not finite, or a denominator whose resamples can be 0.
    pub fn ratio(&self, numerator: &[f64], denominator: &[f64]) -> Result<Interval, StoreError> {
        check(numerator)?;
        check(denominator)?;
        if numerator.len() != denominator.len() {
            let what = format!("{} samples cannot be paired with {}", numerator.len(), denominator.len());
            return Err(StoreError::Statistics(what));
        }
        let pairs: Vec<(f64, f64)> = numerator.iter().copied().zip(denominator.iter().copied()).collect();
        self.run(pairs.len(), |indices| {
            let sums =
                indices.iter().filter_map(|i| pairs.get(*i as usize)).fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
            sums.0 / sums.1
        })
    }

    /// Interval of any statistic: a function of the indices that a resample draws from `0..n`.
    ///
    /// # Errors
    /// No samples, more than 2^31 of them, or a statistic that is not finite on some resample.
    pub fn run(&self, n: usize, mut statistic: impl FnMut(&[u32]) -> f64) -> Result<Interval, StoreError> {
        let count = u32::try_from(n).ok().filter(|n| (1..1 << 31).contains(n));
        let count = count.ok_or_else(|| StoreError::Statistics(format!("{n} samples cannot be resampled")))?;
        if self.resamples == 0 {
            return Err(StoreError::Statistics("an interval needs at least one resample".to_owned()));
        }
        let mut random = stream(self.seed, self.name);
        let mut indices = vec![0; n];
        let mut values = Vec::with_capacity(self.resamples);
        for _ in 0..self.resamples {
            if self.block <= 1 {
                draw(&mut random, count, &mut indices);
            } else {
                draw_blocks(&mut random, count, self.block, &mut indices);
            }
            values.push(statistic(&indices));
        }
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(StoreError::Statistics(format!("the statistic of a resample is {value}")));
        }
        values.sort_unstable_by(f64::total_cmp);
        Ok(Interval { low: sorted_quantile(&values, 0.025), high: sorted_quantile(&values, 0.975) })
    }
}

/// Indices by multiplication instead of rejection: for n samples their probabilities differ by less than n / 2^32.
fn draw(random: &mut ChaCha8Rng, n: u32, indices: &mut [u32]) {
    for chunk in indices.chunks_mut(256) {
        let mut bytes = [0; 1024];
        let used = bytes.get_mut(..4 * chunk.len()).unwrap_or_default();
        random.fill_bytes(used);
        for (index, word) in chunk.iter_mut().zip(used.as_chunks::<4>().0) {
            *index = scale(u32::from_le_bytes(*word), n);
        }
    }
}

fn draw_blocks(random: &mut ChaCha8Rng, n: u32, block: usize, indices: &mut [u32]) {
    for chunk in indices.chunks_mut(block) {
        let mut index = scale(random.next_u32(), n);
        for slot in chunk {
            *slot = index;
            index = if index + 1 == n { 0 } else { index + 1 };
        }
    }
}

fn scale(random: u32, n: u32) -> u32 {
    ((u64::from(random) * u64::from(n)) >> 32) as u32
}
