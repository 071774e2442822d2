use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::describe::{check, selected_quantile};
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
        let at = |i: u32| samples.get(i as usize).copied().unwrap_or(f64::NAN);
        self.run(samples.len(), |indices| {
            // Four sums, because each addition waits for the one before it.
            let (fours, rest) = indices.as_chunks::<4>();
            let mut sums = [0.0; 4];
            for four in fours {
                for (sum, i) in sums.iter_mut().zip(four) {
                    *sum += at(*i);
                }
            }
            (sums.iter().sum::<f64>() + rest.iter().map(|i| at(*i)).sum::<f64>()) / samples.len() as f64
        })
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
        let mut values = Vec::with_capacity(self.resamples);
        match self.all_draws(count) {
            Some(draws) => values.extend(draws.chunks_exact(n).map(&mut statistic)),
            None => {
                let mut indices = vec![0; n];
                let mut random = stream(self.seed, self.name);
                values.extend((0..self.resamples).map(|_| {
                    self.draw(&mut random, count, &mut indices);
                    statistic(&indices)
                }));
            }
        }
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(StoreError::Statistics(format!("the statistic of a resample is {value}")));
        }
        Ok(Interval { low: selected_quantile(&mut values, 0.025), high: selected_quantile(&mut values, 0.975) })
    }

    /// Draws the indices of one resample.
    fn draw(&self, random: &mut ChaCha8Rng, n: u32, indices: &mut [u32]) {
        if self.block <= 1 {
            draw(random, n, indices);
        } else {
            draw_blocks(random, n, self.block, indices);
        }
    }

    /// The indices of all resamples one after another, remembered from the last time; none where there are too many.
    fn all_draws(&self, n: u32) -> Option<Arc<Vec<u32>>> {
        let count = self.resamples.checked_mul(n as usize).filter(|count| *count <= MOST_DRAWS)?;
        let key = (self.seed, self.name.to_owned(), n, self.block, self.resamples);
        let known = || DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(draws) = known().of.get(&key) {
            return Some(draws.clone());
        }
        let mut draws = vec![0; count];
        let mut random = stream(self.seed, self.name);
        draws.chunks_exact_mut(n as usize).for_each(|indices| self.draw(&mut random, n, indices));
        let draws = Arc::new(draws);
        let mut known = known();
        if known.count + count <= MOST_DRAWS && !known.of.contains_key(&key) {
            known.count += count;
            known.of.insert(key, draws.clone());
        }
        Some(draws)
    }
}

/// Indices that are remembered, over all streams.
const MOST_DRAWS: usize = 24 << 20;

/// Seed, name, samples, block and resamples.
type Settings = (u64, String, u32, usize, usize);

/// What was drawn so far: the figures of a report estimate thousands of quantities of the same steps, each metric with one
/// stream.
#[derive(Default)]
struct Drawn {
    of: HashMap<Settings, Arc<Vec<u32>>>,
    count: usize,
}

static DRAWN: LazyLock<Mutex<Drawn>> = LazyLock::new(Mutex::default);

/// Indices by multiplication instead of rejection, several of one random word: what the multiplication leaves below the point is
/// the fraction that the next index is taken from. With 4 indices for n of up to 2^12, 3 up to 2^16, 2 up to 2^24 and 1 above, the
/// probabilities of indices differ by less than 2^-16 of themselves.
fn draw(random: &mut ChaCha8Rng, n: u32, indices: &mut [u32]) {
    match n {
        ..=0x1000 => draw_each::<4>(random, n, indices),
        0x1001..=0x1_0000 => draw_each::<3>(random, n, indices),
        0x1_0001..=0x100_0000 => draw_each::<2>(random, n, indices),
        _ => draw_each::<1>(random, n, indices),
    }
}

fn draw_each<const EACH: usize>(random: &mut ChaCha8Rng, n: u32, indices: &mut [u32]) {
    let mut bytes = [0; 1024];
    for chunk in indices.chunks_mut(EACH * bytes.len() / 8) {
        let used = bytes.get_mut(..8 * chunk.len().div_ceil(EACH)).unwrap_or_default();
        random.fill_bytes(used);
        for (few, word) in chunk.chunks_mut(EACH).zip(used.as_chunks::<8>().0) {
            let mut fraction = u64::from_le_bytes(*word);
            for index in few {
                let product = u128::from(fraction) * u128::from(n);
                *index = (product >> 64) as u32;
                fraction = product as u64;
            }
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
