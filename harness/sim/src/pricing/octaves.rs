/// Smallest size that is told apart: 2^7 = 128, a block of the kernels.
pub(crate) const FIRST_OCTAVE: u32 = 7;
/// Largest size that is told apart: 2^22; beyond it times grow in proportion.
pub(crate) const LAST_OCTAVE: u32 = 22;
/// Nodes of an axis.
pub(crate) const NODES: usize = (LAST_OCTAVE - FIRST_OCTAVE + 1) as usize;

const STEPS: usize = 256;

/// Octave of `size` on an axis and the share of the way to the next, linear in `size`.
#[inline]
pub(crate) fn linear_place(size: u32) -> (usize, f64) {
    let size = size.clamp(1 << FIRST_OCTAVE, 1 << LAST_OCTAVE);
    let octave = (31 - size.leading_zeros()).min(LAST_OCTAVE - 1);
    let base = 1u32 << octave;
    ((octave - FIRST_OCTAVE) as usize, f64::from(size - base) / f64::from(base))
}

/// log2(1 + x) for x in [0, 1] by table, exact at both ends.
#[derive(Clone, Debug)]
pub(crate) struct Log2Table([f64; STEPS + 2]);

impl Log2Table {
    pub(crate) fn new() -> Self {
        let mut table = [1.0; STEPS + 2];
        for (i, value) in table.iter_mut().enumerate().take(STEPS) {
            *value = libm::log2(1.0 + i as f64 / STEPS as f64);
        }
        Self(table)
    }

    /// Octave of `size` on an axis and the share of the way to the next, linear in log2.
    #[inline]
    pub(crate) fn place(&self, size: u32) -> (usize, f64) {
        let (octave, share) = linear_place(size);
        let scaled = share * STEPS as f64;
        let step = (scaled as usize).min(STEPS);
        let (low, high) = (self.0[step], self.0[step + 1]);
        (octave, low + (high - low) * (scaled - step as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_OCTAVE, Log2Table, NODES};

    #[test]
    fn table_is_close_to_log2_exact_at_octaves_and_monotone() {
        let table = Log2Table::new();
        let mut before = 0.0;
        for size in (128..70_000).chain([1 << 20, (1 << 22) - 1, 1 << 22]) {
            let (octave, share) = table.place(size);
            assert!(octave + 1 < NODES);
            let found = (octave as u32 + FIRST_OCTAVE) as f64 + share;
            assert!((found - libm::log2(f64::from(size))).abs() < 3e-6, "{size}");
            assert!(found >= before);
            if u32::is_power_of_two(size) {
                assert_eq!(found, f64::from(size.trailing_zeros()));
            }
            before = found;
        }
        assert_eq!(table.place(1), table.place(128));
        assert_eq!(table.place(u32::MAX), table.place(1 << 22));
    }
}
