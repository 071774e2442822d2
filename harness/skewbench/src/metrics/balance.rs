use skewbench_store::{StoreError, Table};

/// Per-step values of one pool size and grouping.
#[derive(Clone, Debug, PartialEq)]
pub struct BalanceView {
    /// Pool size.
    pub pool: u32,
    /// Grouping.
    pub grouping: String,
    /// R - 1 over all pools of each step.
    pub r_minus_1: Vec<f64>,
    /// Waiting inside the waves of each step.
    pub wave_r: Vec<f64>,
}

impl BalanceView {
    /// Splits a cell's table by pool size and grouping, in the order of the cell.
    ///
    /// # Errors
    /// When a column is missing.
    pub fn all(table: &Table) -> Result<Vec<Self>, StoreError> {
        let (pools, groupings) = (table.u32("pool")?, table.str("grouping")?);
        let (r, waiting) = (table.f64("r_minus_1")?, table.f64("wave_r")?);
        let mut views: Vec<Self> = Vec::new();
        for row in 0..table.rows() {
            let grouping = groupings.get(row).unwrap_or_default();
            let slot = views.iter().position(|v| v.pool == pools[row] && v.grouping == grouping);
            let slot = slot.unwrap_or_else(|| {
                views.push(Self {
                    pool: pools[row],
                    grouping: grouping.to_owned(),
                    r_minus_1: Vec::new(),
                    wave_r: Vec::new(),
                });
                views.len() - 1
            });
            views[slot].r_minus_1.push(r[row]);
            views[slot].wave_r.push(waiting[row]);
        }
        Ok(views)
    }
}

/// Moments of the windows of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowsView {
    /// Mean of x.
    pub mean_x: f64,
    /// Coefficient of variation of x.
    pub cv_x: f64,
    /// Steps.
    pub steps: u64,
}

impl WindowsView {
    /// Reads a cell's table.
    ///
    /// # Errors
    /// When a column is missing.
    pub fn of(table: &Table) -> Result<Self, StoreError> {
        let mean = |column: &str| table.f64(column).map(skewbench_store::stats::mean);
        let (mean_x, square) = (mean("mean_x")?, mean("mean_squared_x")?);
        let cv_x = (square - mean_x * mean_x).max(0.0).sqrt() / mean_x;
        Ok(Self { mean_x, cv_x, steps: table.rows() as u64 })
    }

    /// R - 1 of random grouping by the published approximation: CV / sqrt(P) x sqrt(2 ln(D / P)), D sequences a step.
    pub fn published_formula(&self, pool: u32, sequences: u32) -> f64 {
        let pools = f64::from(sequences) / f64::from(pool);
        self.cv_x / f64::from(pool).sqrt() * (2.0 * pools.ln().max(0.0)).sqrt()
    }
}
