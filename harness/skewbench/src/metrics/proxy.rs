use skewbench_store::{StoreError, Table};

/// FLOPs against time among the ranks of one pool in one wave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProxyView {
    /// Time of the slowest rank's launches over the largest that FLOPs predict, less one. FLOPs predict for a rank its share of
    /// the pool's FLOPs times the pool's launch time.
    pub error: f64,
    /// True when the rank with most FLOPs is the slowest.
    pub hit: bool,
}

impl ProxyView {
    /// From the launch times and loads of a pool's ranks; `None` where nothing is computed.
    pub fn of(times: &[u64], loads: &[u64]) -> Option<Self> {
        let (time, load): (u64, u64) = (times.iter().sum(), loads.iter().sum());
        let slowest = times.iter().copied().max().filter(|t| *t > 0)?;
        let heaviest = loads.iter().copied().max().filter(|l| *l > 0)?;
        let predicted = heaviest as f64 * (time as f64 / load as f64);
        let hit = times.iter().zip(loads).any(|(t, l)| *t == slowest && *l == heaviest);
        Some(Self { error: slowest as f64 / predicted - 1.0, hit })
    }

    /// Pools of `ranks` ranks each, of all waves of a cell's rank table; the last pool of a wave may be smaller.
    ///
    /// # Errors
    /// When a column is missing.
    pub fn all(table: &Table, ranks: u32) -> Result<Vec<Self>, StoreError> {
        let (wave, rank) = (table.u32("wave")?, table.u32("rank")?);
        let (times, loads) = (table.u64("launches_ps")?, table.u64("load_pairs")?);
        let key = |row: usize| (wave[row], rank[row] / ranks.max(1));
        let mut rows: Vec<usize> = (0..table.rows()).collect();
        rows.sort_by_key(|row| (key(*row), rank[*row]));
        let pools = rows.chunk_by(|a, b| key(*a) == key(*b));
        let pick = |rows: &[usize], of: &[u64]| rows.iter().map(|row| of[*row]).collect::<Vec<_>>();
        Ok(pools.filter_map(|rows| Self::of(&pick(rows, times), &pick(rows, loads))).collect())
    }
}
