use std::sync::Arc;

use serde::Deserialize;

use crate::error::WorkloadError;
use crate::math::{EXP, Exp, normal_quantile};
use crate::rng::Draws;

/// Longest document that any source may hold: 2^40 tokens.
pub(crate) const MAX_LENGTH: u64 = 1 << 40;

/// A lognormal distribution: the logarithm of a length is normal with mean `mu` and standard deviation `sigma`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lognormal {
    /// Mean of the logarithm; exp(mu) is the median in tokens.
    pub mu: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

impl Lognormal {
    /// Mean of min(length, cap) in tokens.
    pub fn truncated_mean(&self, cap: f64) -> f64 {
        let z = (libm::log(cap) - self.mu) / self.sigma;
        libm::exp(self.mu + self.sigma * self.sigma / 2.0) * normal_cdf(z - self.sigma) + cap * normal_cdf(-z)
    }
}

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2)
}

/// How lengths are spread inside a bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Within {
    /// The logarithm of the length is uniform.
    LogUniform,
    /// The length is uniform.
    Uniform,
}

/// A bin of a histogram of lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Smallest length in tokens, at least 1.
    pub lower: u64,
    /// One past the largest length in tokens.
    pub upper: u64,
    /// Relative number of documents.
    pub documents: f64,
}

impl Bin {
    /// Mean of min(length, cap) in tokens, with lengths taken as continuous.
    fn truncated_mean(&self, within: Within, cap: f64) -> f64 {
        let (lower, upper) = (self.lower as f64, self.upper as f64);
        let cut = cap.clamp(lower, upper);
        match within {
            _ if cap <= lower => cap,
            Within::Uniform => ((cut * cut - lower * lower) / 2.0 + cut * (upper - cut)) / (upper - lower),
            Within::LogUniform => ((cut - lower) + cut * libm::log(upper / cut)) / libm::log(upper / lower),
        }
    }
}

/// Where document lengths come from. Documents are independent draws, so a stream of them never ends; a list of
/// lengths is drawn from with replacement.
#[derive(Clone, Debug)]
pub struct LengthSource(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    TwoLognormals {
        body: Lognormal,
        long: Lognormal,
        long_weight: f64,
        min: u64,
    },
    /// `logs` holds every bin's lower edge and the logarithm of upper over lower edge.
    Histogram {
        bins: Vec<Bin>,
        within: Within,
        alias: Alias,
        logs: Vec<(f64, f64)>,
    },
    Lists {
        pools: Vec<Pool>,
        alias: Alias,
    },
}

/// Lengths drawn with equal probability, and the pool's share of all documents.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) lengths: Lengths,
    pub(crate) documents: f64,
}

/// A list of lengths in the narrowest type that holds it: a file may hold 10^8 of them.
#[derive(Debug)]
pub(crate) enum Lengths {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Lengths {
    /// The list, narrowed if its longest length allows it.
    pub(crate) fn new(list: Vec<u64>) -> Self {
        if list.iter().all(|&l| l <= u64::from(u32::MAX)) {
            Self::Narrow(list.into_iter().map(|l| l as u32).collect())
        } else {
            Self::Wide(list)
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Narrow(list) => list.len(),
            Self::Wide(list) => list.len(),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Narrow(list) => Box::new(list.iter().map(|&l| u64::from(l))),
            Self::Wide(list) => Box::new(list.iter().copied()),
        }
    }

    #[inline]
    fn draw(&self, draws: &mut Draws) -> u64 {
        match self {
            Self::Narrow(list) => u64::from(list[draws.below(list.len())]),
            Self::Wide(list) => list[draws.below(list.len())],
        }
    }

    /// Mean of min(length, cap).
    pub(crate) fn truncated_mean(&self, cap: u64) -> f64 {
        self.iter().map(|l| l.min(cap) as f64).sum::<f64>() / self.len() as f64
    }
}

impl LengthSource {
    /// Two lognormal modes. A share `long_token_share` of the tokens is in the long mode when documents are truncated
    /// to `fit_window` tokens; it is turned into a share of documents by the modes' truncated means. Lengths below
    /// `min` become `min`.
    ///
    /// # Errors
    /// A parameter is not finite or out of range.
    pub fn two_lognormals(
        body: Lognormal,
        long: Lognormal,
        long_token_share: f64,
        fit_window: u64,
        min: u64,
    ) -> Result<Self, WorkloadError> {
        for (name, mode) in [("body", body), ("long", long)] {
            let usual = mode.mu.abs() <= 28.0 && mode.sigma > 0.0 && mode.sigma <= 8.0;
            if !usual {
                return Err(WorkloadError::Source(format!(
                    "{name} has mu = {}, sigma = {}; mu is -28 to 28 and sigma above 0 and at most 8",
                    mode.mu, mode.sigma
                )));
            }
        }
        if !(0.0..=1.0).contains(&long_token_share) {
            return Err(WorkloadError::Source(format!("long_token_share = {long_token_share}; it is 0 to 1")));
        }
        if fit_window == 0 || min == 0 || min > MAX_LENGTH {
            return Err(WorkloadError::Source(format!("fit_window = {fit_window}, min = {min}; both are at least 1")));
        }
        let cap = fit_window as f64;
        let long_weight = document_share(long_token_share, body.truncated_mean(cap), long.truncated_mean(cap));
        Ok(Self(Arc::new(Kind::TwoLognormals { body, long, long_weight, min })))
    }

    /// A histogram of lengths.
    ///
    /// # Errors
    /// There is no bin, or a bin is empty, upside down or has a weight that is negative or not finite.
    pub fn histogram(bins: Vec<Bin>, within: Within) -> Result<Self, WorkloadError> {
        for bin in &bins {
            if bin.lower == 0 || bin.upper <= bin.lower || bin.upper > MAX_LENGTH {
                return Err(WorkloadError::Source(format!(
                    "bin from {} to below {}; edges rise from at least 1 to at most 2^40",
                    bin.lower, bin.upper
                )));
            }
        }
        let alias = Alias::new(&bins.iter().map(|b| b.documents).collect::<Vec<_>>())?;
        let logs = bins.iter().map(|b| (b.lower as f64, libm::log(b.upper as f64 / b.lower as f64))).collect();
        Ok(Self(Arc::new(Kind::Histogram { bins, within, alias, logs })))
    }

    /// A list of lengths, drawn from with replacement.
    ///
    /// # Errors
    /// The list is empty or holds a length of 0 or above 2^40.
    pub fn list(lengths: Vec<u64>) -> Result<Self, WorkloadError> {
        Self::pools(vec![Pool { lengths: Lengths::new(lengths), documents: 1.0 }])
    }

    pub(crate) fn pools(pools: Vec<Pool>) -> Result<Self, WorkloadError> {
        for pool in &pools {
            if pool.lengths.len() == 0 {
                return Err(WorkloadError::Source("a list of lengths is empty".into()));
            }
            if let Some(bad) = pool.lengths.iter().find(|&l| l == 0 || l > MAX_LENGTH) {
                return Err(WorkloadError::Source(format!("a length is {bad}; lengths are 1 to 2^40 tokens")));
            }
        }
        let alias = Alias::new(&pools.iter().map(|p| p.documents).collect::<Vec<_>>())?;
        Ok(Self(Arc::new(Kind::Lists { pools, alias })))
    }

    /// Mean of min(length, window): tokens a document brings to a window when it is cut there.
    pub fn mean_tokens(&self, window: u32) -> f64 {
        let cap = f64::from(window);
        match &*self.0 {
            Kind::TwoLognormals { body, long, long_weight, min } => {
                let mean = (1.0 - long_weight) * body.truncated_mean(cap) + long_weight * long.truncated_mean(cap);
                mean.max((*min as f64).min(cap))
            }
            Kind::Histogram { bins, within, alias, .. } => {
                bins.iter().zip(&alias.shares).map(|(b, share)| share * b.truncated_mean(*within, cap)).sum()
            }
            Kind::Lists { pools, alias } => pools
                .iter()
                .zip(&alias.shares)
                .map(|(p, share)| share * p.lengths.truncated_mean(u64::from(window)))
                .sum(),
        }
    }

    /// Share of documents in the long mode of a two-mode source or the second pool of a mix.
    pub fn long_document_share(&self) -> Option<f64> {
        match &*self.0 {
            Kind::TwoLognormals { long_weight, .. } => Some(*long_weight),
            Kind::Lists { alias, .. } => alias.shares.get(1).copied(),
            Kind::Histogram { .. } => None,
        }
    }

    /// The lengths themselves where the source is one list: statistics of it need no sample.
    pub(crate) fn as_list(&self) -> Option<&Lengths> {
        match &*self.0 {
            Kind::Lists { pools, .. } => match &pools[..] {
                [only] => Some(&only.lengths),
                _ => None,
            },
            _ => None,
        }
    }

    /// Fills `out` with independent document lengths in tokens, each 1 to 2^40.
    pub(crate) fn fill(&self, draws: &mut Draws, out: &mut [u64]) {
        let exp: &Exp = &EXP;
        match &*self.0 {
            Kind::TwoLognormals { body, long, long_weight, min } => {
                // One uniform number serves for the mode and for the length inside it.
                let (in_long, in_body) = (1.0 / long_weight, 1.0 / (1.0 - long_weight));
                let max = MAX_LENGTH as f64;
                for slot in out {
                    let u = draws.unit();
                    let log = if u < *long_weight {
                        long.mu + long.sigma * normal_quantile(u * in_long)
                    } else {
                        body.mu + body.sigma * normal_quantile((u - long_weight) * in_body)
                    };
                    *slot = ((exp.of(log.clamp(-1.0, 30.0)) + 0.5).min(max) as u64).max(*min);
                }
            }
            Kind::Histogram { bins, within, alias, logs } => {
                for slot in out {
                    let at = alias.draw(draws);
                    let bin = &bins[at];
                    *slot = match within {
                        Within::Uniform => bin.lower + draws.below((bin.upper - bin.lower) as usize) as u64,
                        Within::LogUniform => {
                            let (lower, log_ratio) = logs[at];
                            let length = lower * exp.of(draws.unit() * log_ratio);
                            (length as u64).clamp(bin.lower, bin.upper - 1)
                        }
                    };
                }
            }
            Kind::Lists { pools, alias } => {
                for slot in out {
                    let pool = if pools.len() == 1 { 0 } else { alias.draw(draws) };
                    *slot = pools[pool].lengths.draw(draws);
                }
            }
        }
    }

    /// Feeds everything that determines the drawn lengths to a hash.
    pub(crate) fn hash_into(&self, hash: &mut blake3::Hasher) {
        let mut number = |x: f64| {
            hash.update(&x.to_bits().to_le_bytes());
        };
        match &*self.0 {
            Kind::TwoLognormals { body, long, long_weight, min } => {
                [1.0, body.mu, body.sigma, long.mu, long.sigma, *long_weight, *min as f64]
                    .into_iter()
                    .for_each(&mut number);
            }
            Kind::Histogram { bins, within, .. } => {
                [2.0, if *within == Within::Uniform { 1.0 } else { 0.0 }, bins.len() as f64]
                    .into_iter()
                    .for_each(&mut number);
                for bin in bins {
                    [bin.lower as f64, bin.upper as f64, bin.documents].into_iter().for_each(&mut number);
                }
            }
            Kind::Lists { pools, .. } => {
                [3.0, pools.len() as f64].into_iter().for_each(&mut number);
                for pool in pools {
                    [pool.documents, pool.lengths.len() as f64].into_iter().for_each(&mut number);
                    // 2^40 is exact in an f64.
                    pool.lengths.iter().for_each(|l| number(l as f64));
                }
            }
        }
    }
}

/// Share of documents in the long mode for a share of tokens in it and the modes' mean lengths.
pub(crate) fn document_share(token_share: f64, mean_body: f64, mean_long: f64) -> f64 {
    let (long, body) = (token_share / mean_long, (1.0 - token_share) / mean_body);
    long / (long + body)
}

/// Walker's alias table: one draw from a discrete distribution costs one random number.
#[derive(Debug)]
struct Alias {
    shares: Vec<f64>,
    /// Of 2^32: below it the cell itself is drawn, else the other.
    cells: Vec<(u64, u32)>,
}

impl Alias {
    fn new(weights: &[f64]) -> Result<Self, WorkloadError> {
        let total: f64 = weights.iter().sum();
        if weights.iter().any(|w| !w.is_finite() || *w < 0.0) || !total.is_finite() || total <= 0.0 {
            return Err(WorkloadError::Source(format!(
                "weights {weights:?}; they are finite, at least 0 and not all 0"
            )));
        }
        let shares: Vec<f64> = weights.iter().map(|w| w / total).collect();
        let n = shares.len();
        let mut scaled: Vec<f64> = shares.iter().map(|s| s * n as f64).collect();
        let mut cells = vec![(1u64 << 32, 0u32); n];
        for (i, cell) in cells.iter_mut().enumerate() {
            cell.1 = i as u32;
        }
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..n).partition(|&i| scaled[i] < 1.0);
        while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
            cells[s] = ((scaled[s] * 4_294_967_296.0) as u64, l as u32);
            scaled[l] -= 1.0 - scaled[s];
            if scaled[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Ok(Self { shares, cells })
    }

    #[inline]
    fn draw(&self, draws: &mut Draws) -> usize {
        let bits = draws.bits64();
        let cell = (((bits >> 32) * self.cells.len() as u64) >> 32) as usize;
        let (keep_below, other) = self.cells[cell];
        if u64::from(bits as u32) < keep_below { cell } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(source: &LengthSource, n: usize) -> Vec<u64> {
        let mut out = vec![0; n];
        source.fill(&mut Draws::new(5, "test", 0), &mut out);
        out
    }

    fn mean(lengths: &[u64], cap: u64) -> f64 {
        lengths.iter().map(|&l| l.min(cap) as f64).sum::<f64>() / lengths.len() as f64
    }

    #[test]
    fn token_share_becomes_the_document_weight_of_the_fit() {
        let body = Lognormal { mu: 7.0, sigma: 1.2 };
        let weight = |long, share, window| {
            LengthSource::two_lognormals(body, long, share, window, 16).unwrap().long_document_share().unwrap()
        };
        assert!((weight(Lognormal { mu: 11.3, sigma: 0.8 }, 0.3319, 262_144) - 0.01086).abs() < 2e-5);
        assert!((weight(Lognormal { mu: 12.3629, sigma: 1.0 }, 0.3256, 1_048_576) - 0.00322).abs() < 1e-5);
    }

    #[test]
    fn sampled_means_agree_with_the_formulas() {
        let bins = |within| {
            let bins = [(1, 64, 3.0), (64, 4096, 1.0), (4096, 1 << 20, 0.5)];
            let bins = bins.map(|(lower, upper, documents)| Bin { lower, upper, documents }).to_vec();
            LengthSource::histogram(bins, within).unwrap()
        };
        let body = Lognormal { mu: 7.0, sigma: 1.2 };
        let long = Lognormal { mu: 11.3, sigma: 0.8 };
        let sources = [
            LengthSource::two_lognormals(body, long, 0.33, 262_144, 16).unwrap(),
            bins(Within::LogUniform),
            bins(Within::Uniform),
            LengthSource::list((1..2000).collect()).unwrap(),
        ];
        for source in &sources {
            let lengths = sample(source, 1_000_000);
            for cap in [1000u32, 262_144] {
                let (is, formula) = (mean(&lengths, u64::from(cap)), source.mean_tokens(cap));
                assert!((is / formula - 1.0).abs() < 0.015, "{source:?}: {is} against {formula}");
            }
        }
    }

    #[test]
    fn alias_table_draws_the_weights() {
        let alias = Alias::new(&[1.0, 0.0, 5.0, 2.0]).unwrap();
        let mut draws = Draws::new(1, "test", 0);
        let mut counts = [0u32; 4];
        for _ in 0..80_000 {
            counts[alias.draw(&mut draws)] += 1;
        }
        assert_eq!(counts[1], 0);
        for (count, share) in counts.iter().zip([0.125, 0.0, 0.625, 0.25]) {
            assert!((f64::from(*count) / 80_000.0 - share).abs() < 0.006);
        }
    }

    #[test]
    fn impossible_sources_are_refused() {
        let fine = Lognormal { mu: 7.0, sigma: 1.2 };
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let mode = Lognormal { mu: 7.0, sigma: bad };
            assert!(LengthSource::two_lognormals(mode, fine, 0.3, 1024, 16).is_err());
        }
        assert!(LengthSource::two_lognormals(fine, fine, f64::NAN, 1024, 16).is_err());
        assert!(LengthSource::two_lognormals(fine, fine, 0.5, 0, 16).is_err());
        assert!(LengthSource::list(vec![]).is_err());
        assert!(LengthSource::list(vec![3, 0]).is_err());
        assert!(LengthSource::list(vec![(1 << 40) + 1]).is_err());
        assert!(LengthSource::histogram(vec![], Within::Uniform).is_err());
        assert!(LengthSource::histogram(vec![Bin { lower: 4, upper: 4, documents: 1.0 }], Within::Uniform).is_err());
        assert!(
            LengthSource::histogram(vec![Bin { lower: 4, upper: 5, documents: f64::NAN }], Within::Uniform).is_err()
        );
    }

    #[test]
    fn lengths_stay_in_range_at_extreme_parameters() {
        let wild = Lognormal { mu: 28.0, sigma: 8.0 };
        let source = LengthSource::two_lognormals(wild, wild, 0.5, 1 << 20, 1).unwrap();
        assert!(sample(&source, 10_000).iter().all(|l| (1..=MAX_LENGTH).contains(l)));
        let tiny = Lognormal { mu: -28.0, sigma: 1.0 };
        let source = LengthSource::two_lognormals(tiny, tiny, 0.5, 1 << 20, 1).unwrap();
        assert!(sample(&source, 1_000).iter().all(|l| *l == 1));
    }
}
