use skewbench_plan::{Cost, HeadRange, LaunchShape, Mask, Pass, TileShape};

use super::options::Balance;
use crate::planners::libra::grid::Sequence;

/// Rows of a document are divided at multiples of this many, counted from where the work begins: a block of the kernels.
pub(super) const UNIT: u32 = 128;

/// Tiles below 10 microseconds are never launched alone: no card starts a launch in much less.
const SMALL_PS: u64 = 10_000_000;

/// Tiles of fewer rows may leave multiprocessors idle.
const SCARCE_ROWS: u32 = 32 * UNIT;

/// Prices of tiles and launches.
#[derive(Clone, Copy)]
pub(super) struct Prices<'a> {
    pub cost: &'a dyn Cost,
    pub head_dim: u16,
    pub balance: Balance,
    /// Launches may be split by mask.
    pub split: bool,
}

impl Prices<'_> {
    /// Picoseconds of a launch; 0 without tiles.
    pub fn launch(&self, pass: Pass, mask: Mask, heads: HeadRange, tiles: &[TileShape]) -> u64 {
        if tiles.is_empty() { 0 } else { self.cost.launch_ps(&self.shape(pass, mask, heads.len(), tiles)) }
    }

    fn shape<'t>(&self, pass: Pass, mask: Mask, q_heads: u32, tiles: &'t [TileShape]) -> LaunchShape<'t> {
        LaunchShape { pass, mask, q_heads, kv_heads: 1, head_dim: self.head_dim, tiles }
    }

    /// Picoseconds that a tile adds: of a launch of its own, or of a larger one, whichever is less.
    fn alone_or_among(&self, pass: Pass, mask: Mask, heads: u32, q: u32, k: u32) -> u64 {
        let tile = [TileShape { q, k }];
        let shape = self.shape(pass, mask, heads, &tile);
        let among = self.cost.marginal_ps(&shape);
        if among <= SMALL_PS { among } else { self.cost.launch_ps(&shape).min(among) }
    }

    /// True when a launch of its own costs a tile less than a share in a larger one.
    pub fn better_alone(&self, pass: Pass, mask: Mask, heads: HeadRange, tile: TileShape, overhead: u64) -> bool {
        let tile = [tile];
        let shape = self.shape(pass, mask, heads.len(), &tile);
        let among = self.cost.marginal_ps(&shape);
        among > overhead && self.cost.launch_ps(&shape) < among
    }

    /// Picoseconds of a launch without work.
    pub fn launch_overhead(&self, pass: Pass, mask: Mask, heads: HeadRange) -> u64 {
        self.cost.launch_ps(&self.shape(pass, mask, heads.len(), &[]))
    }

    /// Price of the causal rows `q` that see at most `k` keys, both passes: picoseconds, or pairs x query heads.
    fn tile(&self, heads: u32, q: u32, k: u32) -> f64 {
        if self.balance == Balance::Flops {
            return Mask::Causal.pairs(q, k) as f64 * f64::from(heads);
        }
        let ps = |pass, mask, q, k| self.alone_or_among(pass, mask, heads, q, k) as f64;
        let forward = ps(Pass::Forward, Mask::Causal, q, k);
        let whole = ps(Pass::Backward, Mask::Causal, q, k);
        if q < k && self.split {
            let split = ps(Pass::Backward, Mask::Full, q, k - q) + ps(Pass::Backward, Mask::Causal, q, q);
            return forward + whole.min(split);
        }
        forward + whole
    }

    /// Price of rows `[start, end)`.
    pub fn rows(&self, sequence: &Sequence, heads: u32, start: u32, end: u32) -> f64 {
        parts(sequence, start, end).map(|part| self.tile(heads, part.rows(), part.keys())).sum()
    }

    /// Price of rows `[start, end)` in launches of their own, which take at least as long as their longest tile alone.
    pub fn job(&self, sequence: &Sequence, heads: u32, start: u32, end: u32) -> f64 {
        self.alone_at_least(sequence, heads, start, end, self.rows(sequence, heads, start, end))
    }

    fn alone_at_least(&self, sequence: &Sequence, heads: u32, start: u32, end: u32, sum: f64) -> f64 {
        let most_keys = parts(sequence, start, end).max_by_key(|part| part.keys());
        let Some(part) = most_keys.filter(|part| self.balance == Balance::Time && part.rows() < SCARCE_ROWS) else {
            return sum;
        };
        let tile = [TileShape { q: part.rows(), k: part.keys() }];
        let alone = |pass| self.cost.launch_ps(&self.shape(pass, Mask::Causal, heads, &tile)) as f64;
        sum.max(alone(Pass::Forward) + alone(Pass::Backward))
    }

    /// Pairs of rows `[start, end)`.
    pub fn pairs(sequence: &Sequence, start: u32, end: u32) -> u64 {
        parts(sequence, start, end).map(|part| Mask::Causal.pairs(part.rows(), part.keys())).sum()
    }

    /// The row at which the price from `start` on is nearest to `price`, or the first at which the pairs x query heads have reached `pairs`;
    /// from `start` to `end`. With the price of the rows before it, as [`Prices::job`].
    pub fn take(&self, sequence: &Sequence, heads: u32, rows: (u32, u32), price: f64, pairs: f64) -> (u32, f64) {
        let (start, end) = rows;
        let [below, above] = advance(sequence, start, end, price, |q, k| self.tile(heads, q, k));
        let (row, sum) = if price.is_finite() && price - below.1 < above.1 - price { below } else { above };
        let count = f64::from(heads);
        let most = Self::pairs(sequence, start, row) as f64 * count;
        if most <= pairs {
            return (row, self.alone_at_least(sequence, heads, start, row, sum));
        }
        let [_, (row, _)] = advance(sequence, start, row, pairs, |q, k| Mask::Causal.pairs(q, k) as f64 * count);
        (row, self.job(sequence, heads, start, row))
    }
}

/// The last row at which a sum over tiles from `start` on is below `budget`, and the first at which it is not, in steps of [`UNIT`], with the
/// sums; twice `end` when all of it is below.
fn advance(sequence: &Sequence, start: u32, end: u32, budget: f64, of: impl Fn(u32, u32) -> f64) -> [(u32, f64); 2] {
    let mut done = 0.0;
    for part in parts(sequence, start, end) {
        let whole = of(part.rows(), part.keys());
        if done + whole < budget {
            done += whole;
            continue;
        }
        let units = part.rows().div_ceil(UNIT);
        let row = |unit: u32| part.start + unit.saturating_mul(UNIT).min(part.rows());
        let reaches = |unit: u32| done + of(row(unit) - part.start, row(unit) - part.document);
        let (unit, below, above) = first_above(units, budget, (done, done + whole), reaches);
        return [(row(unit - 1), below), (row(unit), above)];
    }
    [(end, done); 2]
}

/// The first of the units `1..=units` at which a rising function, `ends` before the first and at the last, has reached `budget`. Guesses by
/// proportion, for prices are nearly linear in rows, and halves what is left when that does not help. With its value and that of the unit before.
fn first_above(units: u32, budget: f64, ends: (f64, f64), of: impl Fn(u32) -> f64) -> (u32, f64, f64) {
    let (mut low, mut high) = (0, units);
    let (mut below, mut above) = ends;
    let mut guesses = 0;
    while low + 1 < high {
        let share = if above > below { (budget - below) / (above - below) } else { 0.5 };
        let guess = low + (f64::from(high - low) * share) as u32 + guesses % 2;
        let unit = if guesses < 6 { guess.clamp(low + 1, high - 1) } else { low + (high - low) / 2 };
        let found = of(unit);
        if found >= budget {
            (high, above) = (unit, found);
        } else {
            (low, below) = (unit, found);
        }
        guesses += 1;
    }
    (high, below, above)
}

/// Rows `[start, end)` of a document that begins at `document`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DocumentPart {
    pub document: u32,
    pub start: u32,
    pub end: u32,
}

impl DocumentPart {
    pub fn rows(self) -> u32 {
        self.end - self.start
    }

    pub fn keys(self) -> u32 {
        self.end - self.document
    }
}

/// Rows `[start, end)` by document.
pub(super) fn parts(sequence: &Sequence, start: u32, end: u32) -> impl Iterator<Item = DocumentPart> + '_ {
    let first = sequence.documents.partition_point(|&bound| bound <= start).saturating_sub(1);
    let bounds = sequence.documents.get(first..).unwrap_or_default();
    bounds.windows(2).take_while(move |d| d[0] < end).map(move |d| DocumentPart {
        document: d[0],
        start: d[0].max(start),
        end: d[1].min(end),
    })
}
