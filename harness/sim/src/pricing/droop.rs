/// Octaves that are told apart, from 1 ms; longer calls are as slow as the longest.
const OCTAVES: usize = 11;
const FIRST_NS: f64 = 1e6;
/// Share of the way from an octave to the next from which on a call tells of the next.
const NEAR: f64 = 0.25;

/// Factor of a call's time by its length: clocks fall under the power limit when all multiprocessors work for long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Droop([f64; OCTAVES]);

impl Droop {
    /// No droop.
    pub(crate) fn none() -> Self {
        Self([1.0; OCTAVES])
    }

    /// Factor of a call that would take `ns`, linear between octaves.
    #[inline]
    pub(crate) fn at(&self, ns: f64) -> f64 {
        match place(ns) {
            Some((octave, share)) => self.0[octave] + (self.0[octave + 1] - self.0[octave]) * share,
            None if ns < FIRST_NS => self.0[0],
            None => self.0[OCTAVES - 1],
        }
    }

    /// Medians of what was measured at octaves from 4 ms, none below that of a shorter call. `seen`: nanoseconds and factor.
    pub(crate) fn fit(seen: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut at: [Vec<f64>; OCTAVES] = std::array::from_fn(|_| Vec::new());
        for (ns, factor) in seen {
            if let Some((octave, share)) = place(ns).filter(|_| factor.is_finite()) {
                // Calls midway speak for both, since few are long and clocks differ.
                if share < 1.0 - NEAR {
                    at[octave].push(factor);
                }
                if share >= NEAR {
                    at[octave + 1].push(factor);
                }
            }
        }
        let mut droop = Self::none();
        let mut least = 1.0f64;
        for (factor, mut seen) in droop.0.iter_mut().zip(at).skip(2) {
            seen.sort_by(f64::total_cmp);
            // One call alone may have met any clock.
            if seen.len() >= 2 {
                least = least.max(seen[seen.len() / 2].min(2.0));
            }
            *factor = least;
        }
        droop
    }
}

/// Octave and the share of the way to the next.
#[inline]
fn place(ns: f64) -> Option<(usize, f64)> {
    let scaled = ns / FIRST_NS;
    // Exponent and mantissa of a double are its octave and its share.
    let octave = ((scaled.to_bits() >> 52) as usize).checked_sub(1023).filter(|octave| octave + 1 < OCTAVES)?;
    Some((octave, scaled / (1u64 << octave) as f64 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::Droop;

    #[test]
    fn factors_are_medians_that_never_fall() {
        let droop =
            Droop::fit([(8e6, 1.1), (8.1e6, 1.3), (7.9e6, 1.2), (16e6, 1.1), (16e6, 1.0), (64e6, 9.0)].into_iter());
        assert_eq!([0.0, 1e5, 1e6, 2e6].map(|ns| droop.at(ns)), [1.0; 4]);
        assert_eq!(droop.at(8e6), 1.2);
        assert!((droop.at(6e6) - 1.1).abs() < 1e-12);
        assert_eq!([16e6, 1e9, 1e30].map(|ns| droop.at(ns)), [1.2; 3]);
    }
}
