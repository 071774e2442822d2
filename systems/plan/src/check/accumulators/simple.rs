//! The common shape of accumulators, proven in one pass over sorted rows: contributions, at most one departure after all of
//! them, arrivals at home only. Whatever does not fit, or is wrong, is left to the general sweep.

use std::sync::Arc;

use super::{Change, Event, Homes, Kind};
use crate::check::View;
use crate::{Mask, Move, OpId, Rows, Run, Span};

/// Rows that a group gains and loses.
struct Flow<'a> {
    view: &'a View<'a>,
    rank: u32,
    kind: Kind,
    contributed: &'a Contributed,
    departure: Option<(OpId, Span, bool)>,
    arrivals: Vec<Span>,
    rounded: bool,
}

/// Rows that launches on certain tiles contribute to, kept for the next rank with the same tiles.
#[derive(Default)]
pub(super) struct Contributed {
    key: Vec<(Span, Mask)>,
    keys: bool,
    /// Rows, each once.
    runs: Arc<[Run]>,
    /// Rows of all tiles, those of several tiles counted several times.
    rows: u64,
    /// Every tile has seen all keys of its rows.
    complete: bool,
}

impl Contributed {
    /// Makes sure of the rows of a group; false where they have strides.
    fn update(&mut self, view: &View<'_>, kind: Kind, group: &[Event]) -> bool {
        let spans = || {
            group.iter().filter_map(|e| match e.change {
                Change::Contribution(span, mask) => Some((span, mask)),
                _ => None,
            })
        };
        let keys = kind == Kind::KeyGradient;
        if spans().next().is_none() {
            return true;
        }
        if self.keys == keys && spans().eq(self.key.iter().copied()) {
            return true;
        }
        let tiles = &view.plan.pass(view.pass).tiles;
        let mut rows = Vec::new();
        let mut complete = true;
        for (span, mask) in spans() {
            for tile in &tiles[span.range()] {
                let starts = || view.plan.sequences[tile.seq as usize].binary_search(&tile.k.start).is_ok();
                complete &= mask == Mask::Causal && tile.k.stride == 1 && starts();
                rows.push((tile.seq, kind.rows(tile)));
            }
        }
        if rows.iter().any(|(_, r)| r.stride != 1) {
            return false;
        }
        let total = rows.iter().map(|(_, r)| u64::from(r.len)).sum();
        *self = Self { key: spans().collect(), keys, runs: Run::coalesce(&mut rows), rows: total, complete };
        true
    }
}

/// True when the group is of the common shape and conserves everything.
pub(super) fn conserved(
    view: &View<'_>,
    rank: u32,
    kind: Kind,
    group: &[Event],
    homes: &Homes,
    contributed: &mut Contributed,
) -> bool {
    if !homes.dense || !contributed.update(view, kind, group) {
        return false;
    }
    let none = Contributed::default();
    let any = group.iter().any(|e| matches!(e.change, Change::Contribution(..)));
    let contributed = if any { contributed } else { &none };
    Flow::of(view, rank, kind, group, contributed).is_some_and(|flow| flow.conserves(group, homes))
}

impl<'a> Flow<'a> {
    fn of(view: &'a View<'a>, rank: u32, kind: Kind, group: &[Event], contributed: &'a Contributed) -> Option<Self> {
        let mut flow = Self { view, rank, kind, contributed, departure: None, arrivals: Vec::new(), rounded: false };
        for event in group {
            match event.change {
                Change::Contribution(..) => {}
                Change::Arrival { span, rounded } => {
                    flow.rounded |= rounded;
                    flow.arrivals.push(span);
                }
                Change::Departure { span, needs_all_keys, .. } => {
                    if flow.departure.replace((event.op, span, needs_all_keys)).is_some() {
                        return None;
                    }
                }
            }
        }
        Some(flow)
    }

    fn moves(&self, span: Span, received: bool) -> impl Iterator<Item = &'a Move> {
        let table = &self.view.plan.pass(self.view.pass).moves[span.range()];
        let index = self.view.indices.get(span);
        let list = index.map_or(&[][..], |i| if received { i.received(self.rank) } else { i.sent(self.rank) });
        list.iter().map(|i| &table[*i as usize])
    }

    fn conserves(self, group: &[Event], homes: &Homes) -> bool {
        let home: Vec<(u32, Rows)> = homes.runs.iter().map(|run| (run.seq, run.rows)).collect();
        let own = Run::coalesce(&mut home.clone());
        let mut gained: u64 = 0;
        let mut all_gains = Vec::new();
        for span in &self.arrivals {
            let mut near = 0;
            for mv in self.moves(*span, true).filter(|mv| mv.from != mv.to) {
                if mv.rows.stride != 1 || Run::find_dense_near(&own, &mut near, mv.seq, mv.rows).is_none() {
                    return false;
                }
                if self.rounded {
                    gained += u64::from(mv.rows.len);
                    all_gains.push((mv.seq, mv.rows));
                }
            }
        }
        let ordered = |departure: OpId| {
            let mut contributions = group.iter().filter(|e| matches!(e.change, Change::Contribution(..)));
            contributions.all(|e| self.view.order.before(self.rank, e.op, departure))
        };
        if self.rounded {
            // Rounded values must be alone on their rows; it is enough that no two gains meet anywhere.
            gained += self.contributed.rows;
            all_gains.extend(self.contributed.runs.iter().map(|run| (run.seq, run.rows)));
            if total(&Run::coalesce(&mut all_gains)) != gained {
                return false;
            }
        }
        let Some((departure, span, needs_all_keys)) = self.departure else {
            let mut near = 0;
            let mut runs = self.contributed.runs.iter();
            return runs.all(|run| Run::find_dense_near(&own, &mut near, run.seq, run.rows).is_some());
        };
        if !ordered(departure) || needs_all_keys && !(self.contributed.complete && self.kind == Kind::Output) {
            return false;
        }
        let mut leaving = home.clone();
        let mut rows_leaving = total(&own);
        for mv in self.moves(span, false).filter(|mv| mv.from != mv.to) {
            if mv.rows.stride != 1 {
                return false;
            }
            rows_leaving += u64::from(mv.rows.len);
            leaving.push((mv.seq, mv.rows));
        }
        let local = self.moves(span, false).filter(|mv| mv.from == mv.to);
        let (mut near, mut near_made) = (0, 0);
        let mut brought = Vec::new();
        for mv in local {
            let made = &self.contributed.runs;
            if mv.rows.stride != 1
                || Run::find_dense_near(&own, &mut near, mv.seq, mv.rows).is_none()
                || Run::find_dense_near(made, &mut near_made, mv.seq, mv.rows).is_none()
            {
                return false;
            }
            brought.push((mv.seq, mv.rows));
        }
        let rows_brought: u64 = brought.iter().map(|(_, r)| u64::from(r.len)).sum();
        if total(&Run::coalesce(&mut brought)) != rows_brought {
            return false;
        }
        // Home and what leaves are disjoint, and together they are home and what was contributed.
        let leaving = Run::coalesce(&mut leaving);
        let mut contributed = home;
        contributed.extend(self.contributed.runs.iter().map(|run| (run.seq, run.rows)));
        let contributed = Run::coalesce(&mut contributed);
        total(&leaving) == rows_leaving && same_rows(&leaving, &contributed)
    }
}

fn total(runs: &Arc<[Run]>) -> u64 {
    runs.iter().map(|run| u64::from(run.rows.len)).sum()
}

fn same_rows(a: &[Run], b: &[Run]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.seq, a.rows) == (b.seq, b.rows))
}
