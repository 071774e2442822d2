use std::sync::Arc;

use skewbench_plan::{HeadRange, Pass, Rows, Run, Span, Tensor, Tile};

/// Partial sums of one tensor and head range on one rank.
pub(crate) struct Accumulator {
    pub(crate) tensor: Tensor,
    pub(crate) heads: HeadRange,
    /// All rows that tiles of the rank contribute to.
    pub(crate) runs: Arc<[Run]>,
    /// Buffer of rows that are not home, when there are any.
    pub(crate) away: Option<u32>,
    /// Rows that some launch has contributed to so far.
    filled: Vec<(u32, Rows)>,
    spans: Vec<Span>,
}

/// Tensors that launches of a pass contribute to; LSE goes with O, dV with dK.
pub(crate) fn contributions(pass: Pass) -> &'static [Tensor] {
    match pass {
        Pass::Forward => &[Tensor::O],
        Pass::Backward => &[Tensor::DQ, Tensor::DK],
    }
}

pub(crate) fn rows_of(tensor: Tensor, tile: &Tile) -> Rows {
    if tensor.is_kv() { tile.k } else { tile.q }
}

impl Accumulator {
    pub(crate) fn new(tensor: Tensor, heads: HeadRange) -> Self {
        Self { tensor, heads, runs: Arc::from([]), away: None, filled: Vec::new(), spans: Vec::new() }
    }

    pub(crate) fn add_span(&mut self, span: Span) {
        if !self.spans.contains(&span) {
            self.spans.push(span);
        }
    }

    /// Fixes the runs once all launches are known.
    pub(crate) fn close(&mut self, tiles: &[Tile]) {
        let mut rows: Vec<(u32, Rows)> = self
            .spans
            .iter()
            .flat_map(|span| &tiles[span.range()])
            .map(|tile| (tile.seq, rows_of(self.tensor, tile)))
            .collect();
        self.runs = Run::coalesce(&mut rows);
    }

    /// True when every row that is contributed to lies in a run of `home`.
    pub(crate) fn at_home(&self, home: &[Run]) -> bool {
        self.runs.iter().all(|run| Run::find_dense(home, run.seq, run.rows).is_some())
    }

    /// Counts the rows of a launch that meet a partial sum: those contributed before or twice by the launch itself.
    pub(crate) fn meet(&mut self, tiles: &[Tile]) -> u64 {
        let mut rows: Vec<(u32, Rows)> = tiles.iter().map(|t| (t.seq, rows_of(self.tensor, t))).collect();
        let given = total(&rows);
        let held = total(&self.filled);
        rows.append(&mut self.filled);
        let runs = Run::coalesce(&mut rows);
        self.filled.extend(runs.iter().map(|run| (run.seq, run.rows)));
        held + given - total(&self.filled)
    }
}

fn total(rows: &[(u32, Rows)]) -> u64 {
    rows.iter().map(|(_, r)| u64::from(r.len)).sum()
}
