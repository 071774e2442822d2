use super::octaves::{NODES, linear_place};

/// Blocks per multiprocessor from which a single call counts as one that fills the card.
const FULL_BLOCKS: f64 = 4.0;

/// Rows or keys of a block.
pub(crate) const BLOCK: u32 = 128;

/// Which kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Causal, as many rows as keys.
    Square,
    /// Causal, aligned at the bottom right.
    BottomRight,
    /// No mask.
    Rectangle,
}

/// A call of one tile with its measured time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    pub(crate) heads: u32,
    pub(crate) q: u32,
    pub(crate) k: u32,
    /// Nanoseconds.
    pub(crate) ns: f64,
}

/// Time that a tile takes of a full card, in nanoseconds a head.
#[derive(Clone, Debug)]
pub(crate) struct Throughput {
    /// Masked pairs that are skipped, as a share of q (q - 1) / 2.
    skipped: f64,
    pair_ns: f64,
    /// Cost of a block of rows; 0 backward.
    row_block_ns: f64,
    /// Cost of a block of keys; 0 forward.
    key_block_ns: f64,
    /// Factor of the pairs' cost by octave of the keys.
    by_keys: [f64; NODES],
}

impl Throughput {
    /// Fits both coefficients by least squares of the relative error, then the factor of each octave by the mean residual.
    pub(crate) fn fit(kernel: Kernel, backward: bool, sms: u32, overhead_ns: f64, rows: &[Observation]) -> Self {
        let skipped = match (kernel, backward) {
            (Kernel::Rectangle, _) | (Kernel::BottomRight, true) => 0.0,
            _ => 1.0,
        };
        let mut fitted = Self { skipped, pair_ns: 1.0, row_block_ns: 0.0, key_block_ns: 0.0, by_keys: [1.0; NODES] };
        let blocks =
            |row: &Observation| f64::from(if backward { row.k } else { row.q }.div_ceil(BLOCK)) * f64::from(row.heads);
        let full = |row: &&Observation| blocks(row) >= FULL_BLOCKS * f64::from(sms);
        let mut chosen: Vec<&Observation> = rows.iter().filter(full).collect();
        if chosen.len() < 2 {
            chosen = rows.iter().collect();
        }
        let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for row in &chosen {
            let ns = row.ns - overhead_ns;
            let u = fitted.pairs(row.q, row.k) * f64::from(row.heads) / ns;
            let v = blocks(row) / ns;
            uu += u * u;
            uv += u * v;
            vv += v * v;
            u1 += u;
            v1 += v;
        }
        let determinant = uu * vv - uv * uv;
        let (mut pair, mut block) = ((u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant);
        // A cost cannot be negative; without the other term the best single coefficient is u1 / uu.
        if !(pair > 0.0 && block >= 0.0) {
            (pair, block) = (u1 / uu, 0.0);
        }
        fitted.pair_ns = pair;
        if backward {
            fitted.key_block_ns = block;
        } else {
            fitted.row_block_ns = block;
        }
        let mut sums = [(0.0, 0u32); NODES];
        for row in &chosen {
            let heads = f64::from(row.heads);
            let pairs = fitted.pairs(row.q, row.k) * pair * heads;
            let left = row.ns - overhead_ns - blocks(row) * block;
            if left > 0.0 {
                let (octave, share) = linear_place(row.k);
                let nearest = octave + usize::from(share >= 0.5);
                sums[nearest].0 += libm::log2(left / pairs);
                sums[nearest].1 += 1;
            }
        }
        let known: Vec<(f64, f64)> = sums
            .iter()
            .enumerate()
            .filter(|(_, (_, n))| *n > 0)
            .map(|(i, (sum, n))| (i as f64, sum / f64::from(*n)))
            .collect();
        let mut floor = 0.0f64;
        for (i, factor) in fitted.by_keys.iter_mut().enumerate() {
            let log = super::nodes::interpolate(&known, i as f64, |v| *v).unwrap_or(0.0);
            // Twice the keys must not cost less than before.
            *factor = libm::exp2(log.clamp(-1.0, 1.0)).max(floor);
            floor = 0.55 * *factor;
        }
        fitted
    }

    #[inline]
    fn pairs(&self, q: u32, k: u32) -> f64 {
        let (q, k) = (f64::from(q), f64::from(k));
        q * k - self.skipped * (q * (q - 1.0) * 0.5)
    }

    /// Nanoseconds of a full card for one head of a tile with at least one row and key.
    #[inline]
    pub(crate) fn card_ns(&self, q: u32, k: u32) -> f64 {
        let (octave, share) = linear_place(k);
        let factor = self.by_keys[octave] + (self.by_keys[octave + 1] - self.by_keys[octave]) * share;
        self.pairs(q, k) * (self.pair_ns * factor)
            + f64::from(q.div_ceil(BLOCK)) * self.row_block_ns
            + f64::from(k.div_ceil(BLOCK)) * self.key_block_ns
    }
}
