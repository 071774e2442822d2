use std::sync::Arc;

use skewbench_plan::{HeadRange, Pass, Rows, Run, Span, Tensor, Tile};

use crate::arrivals::Arrivals;
use crate::home::{Home, RowList, repeated, total};

/// Partial sums of one tensor and head range on one rank.
pub(crate) struct Accumulator {
    pub(crate) tensor: Tensor,
    pub(crate) heads: HeadRange,
    /// Rows that do not go straight home: those of tiles that reach beyond home, and those that pass through.
    pub(crate) runs: Arc<[Run]>,
    /// Rows of `runs` that are home.
    pub(crate) strays: Arc<[(u32, Rows)]>,
    /// Some row at home gets more than one contribution from this rank.
    pub(crate) meets_home: bool,
    /// Buffer of `runs`, when there are any.
    pub(crate) away: Option<u32>,
    /// Tiles of the first launch that contributed.
    pub(crate) first_met: Option<Span>,
    first_meeting: (u64, Arc<[Run]>),
    /// Rows that some launch has contributed to so far.
    filled: Arc<[Run]>,
    /// Tiles that contribute, with the number of launches on them.
    spans: Vec<(Span, u32)>,
    /// Routes that bring rows which are not home.
    relays: Vec<u32>,
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
            strays: Arc::from([]),
            meets_home: false,
            away: None,
            first_met: None,
            first_meeting: (0, none.clone()),
            filled: none,
            spans: Vec::new(),
            relays: Vec::new(),
        }
    }

    pub(crate) fn add_launch(&mut self, span: Span) {
        self.add_launches(span, 1);
    }

    pub(crate) fn add_relay(&mut self, route: u32) {
        if !self.relays.contains(&route) {
            self.relays.push(route);
        }
    }

    fn add_launches(&mut self, span: Span, count: u32) {
        match self.spans.iter_mut().find(|(known, _)| *known == span) {
            Some((_, launches)) => *launches += count,
            None => self.spans.push((span, count)),
        }
    }

    /// Takes over another accumulator of the same tensor whose heads overlap.
    pub(crate) fn join(&mut self, other: &Self) {
        self.heads = HeadRange::new(self.heads.start.min(other.heads.start), self.heads.end.max(other.heads.end));
        let own = std::mem::replace(&mut self.spans, other.spans.clone());
        own.into_iter().for_each(|(span, count)| self.add_launches(span, count));
        let own = std::mem::replace(&mut self.relays, other.relays.clone());
        own.into_iter().for_each(|route| self.add_relay(route));
    }

    /// Fixes where contributions go once all are known; accumulators of the rank on the same tiles share what follows.
    pub(crate) fn close(&mut self, tiles: &[Tile], home: &Home, arrivals: &Arrivals, closed: &[Self]) {
        let alike = |a: &&Self| (a.tensor, &a.spans, &a.relays) == (self.tensor, &self.spans, &self.relays);
        if let Some(twin) = closed.iter().find(alike) {
            self.runs = twin.runs.clone();
            self.strays = twin.strays.clone();
            self.meets_home = twin.meets_home;
            return;
        }
        let (mut at_home, mut away) = (RowList::new(), RowList::new());
        let mut near = 0;
        for (span, launches) in &self.spans {
            let before = at_home.len();
            for tile in &tiles[span.range()] {
                let rows = rows_of(self.tensor, tile);
                let is_home = home.find_near(&mut near, tile.seq, rows).is_some();
                if is_home { &mut at_home } else { &mut away }.push((tile.seq, rows));
            }
            self.meets_home |= *launches > 1 && at_home.len() > before;
        }
        away.extend(self.relays.iter().flat_map(|route| arrivals.outside(*route)));
        self.runs = Run::coalesce(&mut away);
        away.clear();
        let mut strays = Vec::new();
        for run in self.runs.iter() {
            home.split(run.seq, run.rows, &mut strays, &mut away);
        }
        // Runs of one stride share no row, so that only rows of tiles that are home can meet others there; more rows than there
        // are at home cannot all be different ones.
        let may_meet = !at_home.is_empty() || self.runs.iter().any(|run| run.mixed);
        if may_meet && !self.meets_home {
            at_home.extend_from_slice(&strays);
            self.meets_home = total(at_home.iter().map(|(_, rows)| *rows)) > home.rows() || repeated(&mut at_home) > 0;
        }
        self.strays = strays.into();
    }

    /// True when nothing goes anywhere but straight home.
    pub(crate) fn at_home(&self) -> bool {
        self.runs.is_empty()
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
        if self.filled.is_empty() {
            self.filled = launch;
        } else if self.filled[..] != launch[..] {
            self.filled = union(&self.filled, &launch);
        }
        let met = held + given - total(self.filled.iter().map(|run| run.rows));
        if self.is_fresh() {
            self.first_met = Some(span);
            self.first_meeting = (met, self.filled.clone());
        }
        met
    }
}

/// True when all runs have one stride and those of `b` are of a class that no run of `a` is of: stripes of different ranks.
fn apart(a: &[Run], b: &[Run]) -> bool {
    let Some(first) = b.first().map(|run| run.rows).filter(|rows| rows.stride > 1) else { return false };
    let of_stride = |run: &Run| run.rows.stride == first.stride && !run.mixed;
    b.iter().all(|run| of_stride(run) && run.rows.class() == first.class())
        && a.iter().all(|run| of_stride(run) && run.rows.class() != first.class())
}

/// Union of two sorted lists of runs; offsets have no meaning.
fn union(a: &[Run], b: &[Run]) -> Arc<[Run]> {
    if apart(a, b) {
        let mut out = [a, b].concat();
        out.sort_by_key(|run| (u64::from(run.seq) << 32) | u64::from(run.rows.start));
        return out.into();
    }
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
