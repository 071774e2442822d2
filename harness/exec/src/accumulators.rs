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
    /// Tiles of the first launch that contributed.
    pub(crate) first_met: Option<Span>,
    first_meeting: (u64, Arc<[Run]>),
    /// Rows that some launch has contributed to so far.
    filled: Arc<[Run]>,
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
        let none: Arc<[Run]> = Arc::from([]);
        Self {
            tensor,
            heads,
            runs: none.clone(),
            away: None,
            first_met: None,
            first_meeting: (0, none.clone()),
            filled: none,
            spans: Vec::new(),
        }
    }

    pub(crate) fn add_span(&mut self, span: Span) {
        if !self.spans.contains(&span) {
            self.spans.push(span);
        }
    }

    /// Takes over another accumulator of the same tensor whose heads overlap.
    pub(crate) fn join(&mut self, other: &Self) {
        self.heads = HeadRange::new(self.heads.start.min(other.heads.start), self.heads.end.max(other.heads.end));
        let own = std::mem::take(&mut self.spans);
        self.spans.extend_from_slice(&other.spans);
        own.into_iter().for_each(|span| self.add_span(span));
    }

    /// Fixes the runs once all launches are known; accumulators on the same tiles share them.
    pub(crate) fn close<'a>(&mut self, tiles: &[Tile], mut closed: impl Iterator<Item = &'a Self>) {
        if let Some(twin) = closed.find(|a| a.tensor == self.tensor && a.spans == self.spans) {
            self.runs = twin.runs.clone();
            return;
        }
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

    /// Tiles that contribute.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Rows of `home` that tiles contribute to which are not wholly home.
    pub(crate) fn home_rows(&self, tiles: &[Tile], home: &[Run]) -> u64 {
        let mut near = 0;
        let mut rows: Vec<(u32, Rows)> = self
            .spans
            .iter()
            .flat_map(|span| &tiles[span.range()])
            .map(|tile| (tile.seq, rows_of(self.tensor, tile)))
            .filter(|(seq, rows)| Run::find_dense_near(home, &mut near, *seq, *rows).is_none())
            .collect();
        let reach = Run::coalesce(&mut rows);
        let mut both: Vec<(u32, Rows)> = reach.iter().chain(home).map(|run| (run.seq, run.rows)).collect();
        total(reach.iter().chain(home).map(|run| run.rows)) - total(Run::coalesce(&mut both).iter().map(|run| run.rows))
    }

    /// True before any launch has contributed.
    pub(crate) fn is_fresh(&self) -> bool {
        self.first_met.is_none()
    }

    /// What the first launch met, and which rows it left filled.
    pub(crate) fn first_meeting(&self) -> (u64, Arc<[Run]>) {
        self.first_meeting.clone()
    }

    /// A first launch that meets what another accumulator's first launch on the same tiles met.
    pub(crate) fn meet_like(&mut self, span: Span, met: u64, filled: Arc<[Run]>) -> u64 {
        self.first_met = Some(span);
        self.first_meeting = (met, filled.clone());
        self.filled = filled;
        met
    }

    /// Counts the rows of a launch that meet a partial sum: those contributed before or twice by the launch itself.
    pub(crate) fn meet(&mut self, span: Span, tiles: &[Tile]) -> u64 {
        let mut rows: Vec<(u32, Rows)> = tiles.iter().map(|t| (t.seq, rows_of(self.tensor, t))).collect();
        let given = total(rows.iter().map(|(_, r)| *r));
        let held = total(self.filled.iter().map(|run| run.rows));
        let launch = Run::coalesce(&mut rows);
        self.filled = if self.filled.is_empty() { launch } else { union(&self.filled, &launch) };
        let met = held + given - total(self.filled.iter().map(|run| run.rows));
        if self.is_fresh() {
            self.first_met = Some(span);
            self.first_meeting = (met, self.filled.clone());
        }
        met
    }
}

/// Union of two sorted lists of runs; offsets have no meaning.
fn union(a: &[Run], b: &[Run]) -> Arc<[Run]> {
    if a.iter().chain(b).any(|run| run.rows.stride != 1) {
        let mut rows: Vec<(u32, Rows)> = a.iter().chain(b).map(|run| (run.seq, run.rows)).collect();
        return Run::coalesce(&mut rows);
    }
    let mut out: Vec<Run> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let key = |run: &&Run| (run.seq, run.rows.start);
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if key(x) <= key(y) => a.next(),
            (Some(_), None) => a.next(),
            _ => b.next(),
        };
        let Some(next) = next else { return out.into() };
        match out.last_mut().filter(|last| last.seq == next.seq && next.rows.start <= last.rows.end()) {
            Some(last) => last.rows.len = last.rows.len.max(next.rows.end() - last.rows.start),
            None => out.push(*next),
        }
    }
}

fn total(rows: impl Iterator<Item = Rows>) -> u64 {
    rows.map(|r| u64::from(r.len)).sum()
}
