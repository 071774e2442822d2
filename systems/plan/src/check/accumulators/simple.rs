//! The common shape of accumulators, proven by walking sorted intervals: every row that launches and arrivals add to is
//! home and stays, or leaves exactly once, after all that was added to it. Whatever does not fit, or is wrong, is left to
//! the general sweep.

use std::collections::HashMap;

use super::{Change, Event, Kind};
use crate::check::View;
use crate::check::intervals::{Interval, common, holds, interval, join, length};
use crate::near::last;
use crate::{Mask, Move, Span, Tile};

/// Rows that a launch adds to: a range of [`Simple::rows`].
#[derive(Clone, Copy)]
struct Added {
    start: usize,
    end: usize,
    /// No row has a stride.
    dense: bool,
    /// Every tile has seen all keys of its rows.
    complete: bool,
}

/// Rows that are home, or that leave in one departure.
#[derive(Clone, Copy)]
struct Piece {
    at: Interval,
    /// Index of the departure in the group, or [`HOME`].
    event: u32,
    /// One gain has reached all of it.
    covered: bool,
}

const HOME: u32 = u32::MAX;

/// Rows of launches so far, and room to work in.
#[derive(Default)]
pub(super) struct Simple<'a> {
    tiles: &'a [Tile],
    added: HashMap<(Span, Mask, bool), Added>,
    rows: Vec<Interval>,
    of_launches: Vec<(u32, Added)>,
    pieces: Vec<Piece>,
    local: Vec<Interval>,
    united: Vec<Interval>,
    gains: Vec<(Interval, bool)>,
}

impl<'a> Simple<'a> {
    /// Turns to the tiles of a pass; the backward usually has those of the forward.
    pub(super) fn turn_to(&mut self, tiles: &'a [Tile]) {
        if self.tiles != tiles {
            *self = Self { tiles, ..Self::default() };
        }
    }

    /// True when the group is of the common shape and conserves everything.
    pub(super) fn conserved(
        &mut self,
        view: &View<'_>,
        rank: u32,
        kind: Kind,
        group: &[Event],
        home: &[Interval],
    ) -> bool {
        self.prove(view, rank, kind, group, home).is_some()
    }

    fn prove(&mut self, view: &View<'_>, rank: u32, kind: Kind, group: &[Event], home: &[Interval]) -> Option<()> {
        self.of_launches.clear();
        let mut complete = kind == Kind::Output;
        for (index, event) in (0..).zip(group) {
            if let Change::Contribution(span, mask) = event.change {
                let added = self.added(view, kind, span, mask);
                complete &= added.complete;
                self.of_launches.push((index, added.dense.then_some(added)?));
            }
        }
        if self.plainly_home(view, rank, group, complete, home).is_none() {
            self.placed(view, rank, group, complete, home)?;
        }
        let rounds = group.iter().any(Event::is_rounded);
        if rounds { self.rounded_alone(view, rank, group) } else { Some(()) }
    }

    /// What most groups come to: all that arrives is home, and what leaves, in one call after all launches, goes home. Then
    /// nothing leaves twice or is home as well, and it is enough to count: launches have added to all that leaves, and to
    /// nothing else but what is home.
    fn plainly_home(
        &mut self,
        view: &View<'_>,
        rank: u32,
        group: &[Event],
        complete: bool,
        home: &[Interval],
    ) -> Option<()> {
        let mut departure = None;
        for event in group {
            let (Change::Arrival { moves, .. } | Change::Departure { moves, .. }) = event.change else { continue };
            view.indices.go_home(moves.id).then_some(())?;
            if let Change::Departure { needs_all_keys, .. } = event.change {
                (complete || !needs_all_keys).then_some(())?;
                departure.replace(event).is_none().then_some(())?;
            }
        }
        let Self { of_launches, rows, united, local, .. } = self;
        united.clear();
        united.extend(of_launches.iter().flat_map(|(_, added)| &rows[added.start..added.end]));
        join(united);
        local.clear();
        let (mut near, mut leaving) = (0, 0);
        if let Some(departure) = departure {
            let ordered =
                |(launch, _): &(u32, Added)| view.order.before(rank, group[*launch as usize].op, departure.op);
            of_launches.iter().all(ordered).then_some(())?;
            for mv in moves(view, rank, departure) {
                let at = interval(mv.seq, mv.rows)?;
                if mv.from == mv.to {
                    local.push(at);
                } else {
                    holds(united, &mut near, at).then_some(())?;
                    leaving += at.1 - at.0;
                }
            }
        }
        (length(united) == leaving + common(united, home)).then_some(())?;
        self.local_moves(home)
    }

    /// The group looked at row by row: every row that it gains is home or leaves later, and all that leaves has been gained.
    fn placed(&mut self, view: &View<'_>, rank: u32, group: &[Event], complete: bool, home: &[Interval]) -> Option<()> {
        let needs_all_keys = self.places(view, rank, group, home)?;
        (complete || !needs_all_keys).then_some(())?;
        self.local_moves(home)?;
        let mut arrives = false;
        for at in 0..self.of_launches.len() {
            let (index, added) = self.of_launches[at];
            let gain = Gain { view, rank, group, index, may_leave: true };
            let mut near = 0;
            for row in added.start..added.end {
                gain.reach(&mut self.pieces, &mut near, self.rows[row])?;
            }
        }
        for (index, event) in (0..).zip(group) {
            let Change::Arrival { rounded, .. } = event.change else { continue };
            arrives = true;
            let gain = Gain { view, rank, group, index, may_leave: !rounded && !needs_all_keys };
            let (mut near, mut near_home) = (0, 0);
            for mv in moves(view, rank, event).filter(|mv| mv.from != mv.to) {
                let rows = interval(mv.seq, mv.rows)?;
                // What is home is a piece of its own and stays; most rows arrive there, far fewer than leave.
                if !holds(home, &mut near_home, rows) {
                    gain.reach(&mut self.pieces, &mut near, rows)?;
                }
            }
        }
        if self.pieces.iter().any(|piece| piece.event != HOME && !piece.covered) {
            self.covered_together(view, rank, group, arrives)?;
        }
        Some(())
    }

    /// Rows that a launch on the tiles adds to.
    fn added(&mut self, view: &View<'_>, kind: Kind, span: Span, mask: Mask) -> Added {
        let Self { tiles, added, rows, united, .. } = self;
        *added.entry((span, mask, kind == Kind::KeyGradient)).or_insert_with(|| {
            let (mut dense, mut complete) = (true, mask == Mask::Causal);
            united.clear();
            for tile in &tiles[span.range()] {
                match interval(tile.seq, kind.rows(tile)) {
                    Some(of_tile) => united.push(of_tile),
                    None => dense = false,
                }
                complete = complete && kind != Kind::KeyGradient && sees_first_key(view, tile);
            }
            join(united);
            let start = rows.len();
            rows.extend_from_slice(united);
            Added { start, end: rows.len(), dense, complete }
        })
    }

    /// Fills `pieces` with what is home and what leaves, `local` with what moves from the rank to itself. Returns whether
    /// a departure needs rows that have seen all keys.
    fn places(&mut self, view: &View<'_>, rank: u32, group: &[Event], home: &[Interval]) -> Option<bool> {
        self.pieces.clear();
        self.local.clear();
        let mut any_needs = false;
        for (index, event) in (0..).zip(group) {
            let Change::Departure { needs_all_keys, .. } = event.change else { continue };
            any_needs |= needs_all_keys;
            let local_before = self.local.len();
            for mv in moves(view, rank, event) {
                let at = interval(mv.seq, mv.rows)?;
                if mv.from == mv.to {
                    self.local.push(at);
                } else {
                    self.pieces.push(Piece { at, event: index, covered: false });
                }
            }
            let ordered = |(launch, _): &(u32, Added)| view.order.before(rank, group[*launch as usize].op, event.op);
            if self.local.len() > local_before && !self.of_launches.iter().all(ordered) {
                return None;
            }
        }
        self.pieces.extend(home.iter().map(|at| Piece { at: *at, event: HOME, covered: false }));
        if !self.pieces.is_sorted_by_key(|piece| piece.at.0) {
            self.pieces.sort_by_key(|piece| piece.at.0);
        }
        self.pieces.windows(2).all(|w| w[0].at.1 <= w[1].at.0).then_some(any_needs)
    }

    /// What a rank moves to itself is home, has been computed, and moves once.
    fn local_moves(&mut self, home: &[Interval]) -> Option<()> {
        let Self { local, of_launches, rows, united, .. } = self;
        if local.is_empty() {
            return Some(());
        }
        if !local.is_sorted_by_key(|at| at.0) {
            local.sort_by_key(|at| at.0);
        }
        let computed = if let [(_, only)] = of_launches[..] {
            &rows[only.start..only.end]
        } else {
            united.clear();
            united.extend(of_launches.iter().flat_map(|(_, added)| &rows[added.start..added.end]));
            join(united);
            united
        };
        let (mut near_home, mut near) = (0, 0);
        let there = local.iter().all(|at| holds(home, &mut near_home, *at) && holds(computed, &mut near, *at));
        (there && local.windows(2).all(|w| w[0].1 <= w[1].0)).then_some(())
    }

    /// Whatever leaves and is not reached by one gain is reached by several together.
    fn covered_together(&mut self, view: &View<'_>, rank: u32, group: &[Event], arrives: bool) -> Option<()> {
        let Self { of_launches, rows, united, pieces, .. } = self;
        united.clear();
        united.extend(of_launches.iter().flat_map(|(_, added)| &rows[added.start..added.end]));
        if arrives {
            let events = group.iter().filter(|e| matches!(e.change, Change::Arrival { .. }));
            let arriving = events.flat_map(|e| moves(view, rank, e)).filter(|mv| mv.from != mv.to);
            united.extend(arriving.filter_map(|mv| interval(mv.seq, mv.rows)));
        }
        join(united);
        let mut near = 0;
        let mut open = pieces.iter().filter(|piece| piece.event != HOME && !piece.covered);
        open.all(|piece| holds(united, &mut near, piece.at)).then_some(())
    }

    /// No other gain meets one that arrives rounded.
    fn rounded_alone(&mut self, view: &View<'_>, rank: u32, group: &[Event]) -> Option<()> {
        let Self { of_launches, rows, gains, .. } = self;
        gains.clear();
        for (_, added) in of_launches {
            gains.extend(rows[added.start..added.end].iter().map(|at| (*at, false)));
        }
        for event in group {
            let Change::Arrival { rounded, .. } = event.change else { continue };
            for mv in moves(view, rank, event).filter(|mv| mv.from != mv.to) {
                gains.push((interval(mv.seq, mv.rows)?, rounded));
            }
        }
        gains.sort_by_key(|(at, _)| at.0);
        // One past the last row that some gain before has reached, and that a rounded one has.
        let (mut reached, mut rounded_to) = (0, 0);
        for (at, rounded) in gains {
            if at.0 < if *rounded { reached } else { rounded_to } {
                return None;
            }
            reached = reached.max(at.1);
            if *rounded {
                rounded_to = rounded_to.max(at.1);
            }
        }
        Some(())
    }
}

/// A causal tile from the first key of its document on has seen all keys of its rows.
pub(super) fn sees_first_key(view: &View<'_>, tile: &Tile) -> bool {
    tile.k.stride == 1 && view.plan.sequences[tile.seq as usize].binary_search(&tile.k.start).is_ok()
}

/// Moves with which a call's event adds or takes.
fn moves<'a>(view: &View<'a>, rank: u32, event: &Event) -> impl Iterator<Item = &'a Move> {
    let (id, list) = match event.change {
        Change::Contribution(..) => (None, &[][..]),
        Change::Arrival { moves, .. } => (Some(moves.id), view.indices.index(moves.id).received(rank)),
        Change::Departure { moves, .. } => (Some(moves.id), view.indices.index(moves.id).sent(rank)),
    };
    let table = id.map_or(&[][..], |id| view.indices.moves(view.plan.pass(view.pass), id));
    list.iter().map(|i| &table[*i as usize])
}

/// One event that adds to accumulators.
struct Gain<'a> {
    view: &'a View<'a>,
    rank: u32,
    group: &'a [Event],
    index: u32,
    /// What it adds may leave again.
    may_leave: bool,
}

impl Gain<'_> {
    /// Walks over the pieces that hold the rows; none when some rows are in no piece or leave too early.
    fn reach(&self, pieces: &mut [Piece], near: &mut usize, rows: Interval) -> Option<()> {
        *near = last(pieces.len(), *near, |i| pieces[i].at.0 <= rows.0)?;
        let mut row = rows.0;
        loop {
            let piece = pieces.get_mut(*near)?;
            if row < piece.at.0 || piece.at.1 <= row {
                return None;
            }
            if piece.event != HOME {
                let (gain, departure) = (&self.group[self.index as usize], &self.group[piece.event as usize]);
                if !self.may_leave || !self.view.order.before(self.rank, gain.op, departure.op) {
                    return None;
                }
                piece.covered |= rows.0 <= piece.at.0 && piece.at.1 <= rows.1;
            }
            if rows.1 <= piece.at.1 {
                return Some(());
            }
            row = piece.at.1;
            *near += 1;
        }
    }
}
