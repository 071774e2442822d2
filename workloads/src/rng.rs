use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random draws of one chunk.
///
/// Everything that turns bits into numbers is written out in this crate or comes from `libm`: neither the platform's math
/// library nor a release of a distribution crate can change the lengths that a seed stands for.
#[derive(Clone, Debug)]
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    /// Draws number `stream` of the family `name` below the master seed.
    pub(crate) fn new(seed: u64, name: &str, stream: u64) -> Self {
        let mut key = blake3::Hasher::new_derive_key("skewbench workloads random streams v1");
        key.update(&seed.to_le_bytes());
        key.update(name.as_bytes());
        let mut rng = ChaCha8Rng::from_seed(*key.finalize().as_bytes());
        rng.set_stream(stream);
        Self(rng)
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in (0, 1), neither end included: (k + 1/2) / 2^52.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.bits64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// Uniform in 0..n; the bias is below n / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits64()) * n as u128) >> 64) as usize
    }

    /// Fisher-Yates shuffle.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::normal_quantile;

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let mut draws = Draws::new(1, "test", 0);
        let n = 400_000;
        let (mut sum, mut squares, mut beyond_two, mut counts) = (0.0, 0.0, 0u32, [0u32; 3]);
        for _ in 0..n {
            let z = normal_quantile(draws.unit());
            sum += z;
            squares += z * z;
            beyond_two += u32::from(z > 2.0);
            counts[draws.below(3)] += 1;
        }
        let n = f64::from(n);
        assert!((sum / n).abs() < 0.006);
        assert!((squares / n - 1.0).abs() < 0.01);
        assert!((f64::from(beyond_two) / n - 0.02275).abs() < 0.001);
        assert!(counts.iter().all(|c| (f64::from(*c) / n - 1.0 / 3.0).abs() < 0.003));
    }

    #[test]
    fn streams_and_families_differ_and_repeat() {
        let first = |name, stream| Draws::new(7, name, stream).bits64();
        assert_eq!(first("a", 0), first("a", 0));
        assert_ne!(first("a", 0), first("a", 1));
        assert_ne!(first("a", 0), first("b", 0));
    }

    #[test]
    fn shuffle_permutes() {
        let mut items: Vec<u32> = (0..100).collect();
        Draws::new(3, "test", 9).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
