//! The general proof: all rows that the events of a group touch, swept row by row.

use std::collections::HashMap;

use super::simple::sees_first_key;
use super::{Change, Event, Homes, Kind};
use crate::check::{View, heads_text, rows_text};
use crate::{HeadRange, Mask, PlanError, Rows, Run, Tile};

/// A stretch of rows that one event of the group touches.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stretch {
    seq: u32,
    class: (u32, u32),
    start: u32,
    end: u32,
    event: u32,
    all_keys: bool,
    /// What the rows of a tile have seen.
    seen: Seen,
    /// A move from the rank to itself.
    local: bool,
}

/// How many keys the rows of a tile see: the last row sees `keys`, and where the mask is diagonal each row before it one
/// fewer. No keys: not a tile.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    last_row: u32,
    keys: u32,
    /// Rows from one row to the next of a diagonal mask; 0 where all rows see the same.
    step: u32,
}

impl Seen {
    fn of(tile: &Tile, mask: Mask) -> Self {
        let keys = tile.k.len - u32::from(mask == Mask::CausalExclusive);
        Self { last_row: tile.q.last(), keys, step: if mask == Mask::Full { 0 } else { tile.q.stride } }
    }

    /// Keys that `row` sees; `None` where a diagonal mask leaves it less than none.
    fn at(self, row: u32) -> Option<u32> {
        let hidden = self.last_row.saturating_sub(row).checked_div(self.step).unwrap_or(0);
        self.keys.checked_sub(hidden)
    }
}

/// True when tiles that saw `seen` have together shown all keys to rows `[start, end)` of the class of `stretch`. Every pair
/// is computed once (`coverage`), so it is enough to count; counts are linear in the row, so the first and the last decide.
fn all_keys_seen(view: &View<'_>, seen: impl Iterator<Item = Seen> + Clone, stretch: &Stretch) -> bool {
    let (stride, class) = stretch.class;
    let bounds = &view.plan.sequences[stretch.seq as usize];
    [stretch.start, stretch.end - 1].into_iter().all(|index| {
        let row = index * stride + class;
        let document = bounds[bounds.partition_point(|b| *b <= row) - 1];
        let shown: Option<u64> = seen.clone().map(|s| s.at(row).map(u64::from)).sum();
        shown == Some(u64::from(row - document) + 1)
    })
}

impl Stretch {
    /// Sequence, class and first row as one number.
    fn place(&self) -> u128 {
        let (stride, class) = self.class;
        let lane = u64::from(stride) << 32 | u64::from(class);
        u128::from(self.seq) << 96 | u128::from(lane) << 32 | u128::from(self.start)
    }
}

/// Room to work in.
#[derive(Default)]
pub(super) struct Scratch {
    stretches: Vec<Stretch>,
    away: Vec<Stretch>,
    at_home: Vec<Stretch>,
    active: Vec<Stretch>,
}

fn stretches(view: &View<'_>, rank: u32, kind: Kind, group: &[Event], out: &mut Vec<Stretch>) {
    let table = view.plan.pass(view.pass);
    out.clear();
    let mut add = |event: usize, seq: u32, rows: Rows, (all_keys, seen): (bool, Seen), local: bool| {
        // The stride of a single row says nothing.
        let rows = if rows.len == 1 { Rows { stride: 1, ..rows } } else { rows };
        let start = rows.start / rows.stride;
        let class = (rows.stride, rows.class());
        out.push(Stretch { seq, class, start, end: start + rows.len, event: event as u32, all_keys, seen, local });
    };
    for (i, event) in group.iter().enumerate() {
        match event.change {
            Change::Contribution(span, mask) => {
                for tile in &table.tiles[span.range()] {
                    let all_keys = kind == Kind::Output && mask == Mask::Causal && sees_first_key(view, tile);
                    add(i, tile.seq, kind.rows(tile), (all_keys, Seen::of(tile, mask)), false);
                }
            }
            Change::Arrival { moves, .. } | Change::Departure { moves, .. } => {
                let index = view.indices.index(moves.id);
                let list = if event.departs() { index.sent(rank) } else { index.received(rank) };
                let table = view.indices.moves(table, moves.id);
                for mv in list.iter().map(|i| &table[*i as usize]) {
                    add(i, mv.seq, mv.rows, (false, Seen::default()), mv.from == mv.to);
                }
            }
        }
    }
    split_by_stride(out);
}

/// Where rows of one sequence come with several strides, all are expressed in the largest one.
fn split_by_stride(out: &mut Vec<Stretch>) {
    let Some(first) = out.first().map(|s| s.class.0) else { return };
    if out.iter().all(|s| s.class.0 == first) {
        return;
    }
    // By sequence, its largest stride.
    let mut widest: HashMap<u32, u32> = HashMap::new();
    for s in out.iter() {
        let widest = widest.entry(s.seq).or_default();
        *widest = s.class.0.max(*widest);
    }
    let mut split = Vec::with_capacity(out.len());
    for s in out.drain(..) {
        let stride = widest.get(&s.seq).copied().unwrap_or(1);
        if s.class.0 == stride {
            split.push(s);
        } else if s.class.0 == 1 {
            for first in s.start..s.end.min(s.start.saturating_add(stride)) {
                let rows = Rows::residue(first, s.end, first % stride, stride);
                let start = rows.start / stride;
                split.push(Stretch { class: (stride, first % stride), start, end: start + rows.len, ..s });
            }
        } else {
            // Strides that do not fit: row by row.
            for index in s.start..s.end {
                let row = index * s.class.0 + s.class.1;
                split.push(Stretch { class: (stride, row % stride), start: row / stride, end: row / stride + 1, ..s });
            }
        }
    }
    *out = split;
}

/// Says where and why a group does not conserve what its events add.
pub(super) fn conserved(
    view: &View<'_>,
    rank: u32,
    kind: Kind,
    heads: HeadRange,
    group: &[Event],
    homes: &Homes,
    scratch: &mut Scratch,
) -> Result<(), PlanError> {
    stretches(view, rank, kind, group, &mut scratch.stretches);
    let Scratch { stretches, away, at_home, active } = scratch;
    let fail = |s: &Stretch, start: u32, end: u32, what: String| {
        let (stride, class) = s.class;
        let rows = Rows { start: start * stride + class, len: end - start, stride };
        view.error(format!(
            "rank {rank}: {} of sequence {}, {}, {}: {what}",
            kind.name(),
            s.seq,
            rows_text(rows),
            heads_text(heads)
        ))
    };
    // What is home stays there: only rounded values must be alone, and nothing may leave. The rest is swept below.
    let rounds = group.iter().any(Event::is_rounded);
    away.clear();
    at_home.clear();
    for stretch in stretches.iter() {
        let mut row = stretch.start;
        while row < stretch.end {
            let mut until = stretch.end;
            let home = home_until(homes, stretch, row, &mut until);
            let piece = Stretch { start: row, end: until, ..*stretch };
            let event = &group[stretch.event as usize];
            if !home && stretch.local {
                let what = format!("{} adds to itself away from home", event.describe());
                return Err(fail(stretch, row, until, what));
            } else if !home {
                away.push(piece);
            } else if event.departs() && !stretch.local {
                let what = format!("{} takes away what is already home", event.describe());
                return Err(fail(stretch, row, until, what));
            } else if rounds && !stretch.local {
                at_home.push(piece);
            }
            row = until;
        }
    }
    local_moves(view, rank, group, stretches).map_err(|(taken, what)| fail(&taken, taken.start, taken.end, what))?;
    at_home.sort_by_key(Stretch::place);
    // One past the last row that some value before has reached, and that a rounded one has.
    let (mut lane, mut reached, mut rounded_to) = (None, 0, 0);
    for stretch in at_home.iter() {
        if lane.replace((stretch.seq, stretch.class)) != Some((stretch.seq, stretch.class)) {
            (reached, rounded_to) = (0, 0);
        }
        let rounded = group[stretch.event as usize].is_rounded();
        let meets = if rounded { reached } else { rounded_to };
        if stretch.start < meets {
            let what = "a partial sum arrives in bf16; partial sums travel in f32".into();
            return Err(fail(stretch, stretch.start, stretch.end.min(meets), what));
        }
        reached = reached.max(stretch.end);
        if rounded {
            rounded_to = rounded_to.max(stretch.end);
        }
    }
    // Tiles and moves mostly come in order: a stable sort merges what is sorted already.
    away.sort_by_key(Stretch::place);
    let mut rest = away.as_slice();
    while let Some(first) = rest.first() {
        let count = rest.partition_point(|s| (s.seq, s.class) <= (first.seq, first.class));
        let (lane, later) = rest.split_at(count);
        rest = later;
        active.clear();
        let mut next = lane.iter().peekable();
        let mut row = first.start;
        loop {
            active.retain(|s| s.end > row);
            while let Some(s) = next.next_if(|s| s.start <= row) {
                active.push(*s);
            }
            if active.is_empty() {
                match next.peek() {
                    Some(s) => row = s.start,
                    None => break,
                }
                continue;
            }
            let until = active.iter().map(|s| s.end).chain(next.peek().map(|s| s.start)).min().unwrap_or(row + 1);
            if !plainly_leaves(view, rank, group, active) {
                let rows = Stretch { start: row, end: until, ..*first };
                interval(view, rank, kind, group, active, &rows).map_err(|what| fail(first, row, until, what))?;
            }
            row = until;
        }
    }
    Ok(())
}

/// A local move takes home, once, what tiles that reach beyond the rank's own rows have computed for them.
fn local_moves(view: &View<'_>, rank: u32, group: &[Event], stretches: &[Stretch]) -> Result<(), (Stretch, String)> {
    let mut taken: Vec<&Stretch> = stretches.iter().filter(|s| s.local && group[s.event as usize].departs()).collect();
    if taken.is_empty() {
        return Ok(());
    }
    taken.sort_by_key(|s| s.place());
    let lane = |s: &Stretch| (s.seq, s.class);
    if let Some(twice) = taken.windows(2).find(|w| lane(w[0]) == lane(w[1]) && w[1].start < w[0].end) {
        let what = format!("{} takes a contribution that has already left", group[twice[1].event as usize].describe());
        return Err((Stretch { end: twice[0].end.min(twice[1].end), ..*twice[1] }, what));
    }
    let mut all_made: Vec<&Stretch> =
        stretches.iter().filter(|s| matches!(group[s.event as usize].change, Change::Contribution(..))).collect();
    all_made.sort_by_key(|s| s.place());
    // How far those of a lane reach up to each.
    let mut reach: Vec<u32> = Vec::with_capacity(all_made.len());
    for (i, s) in all_made.iter().enumerate() {
        let before = i.checked_sub(1).filter(|p| lane(all_made[*p]) == lane(s)).map_or(0, |p| reach[p]);
        reach.push(before.max(s.end));
    }
    for taken in taken {
        let departure = &group[taken.event as usize];
        let part = |s: &Stretch| Stretch { start: taken.start.max(s.start), end: taken.end.min(s.end), ..*taken };
        let past = all_made.partition_point(|s| (lane(s), s.start) < (lane(taken), taken.end));
        let meeting = (0..past).rev().take_while(|i| lane(all_made[*i]) == lane(taken) && reach[*i] > taken.start);
        let mut made: Vec<&Stretch> = meeting.map(|i| all_made[i]).filter(|s| s.end > taken.start).collect();
        made.reverse();
        if let Some(late) = made.iter().find(|s| !view.order.before(rank, group[s.event as usize].op, departure.op)) {
            let what = format!("{} does not wait for {}", departure.describe(), group[late.event as usize].describe());
            return Err((part(late), what));
        }
        let mut covered = taken.start;
        for s in &made {
            if s.start > covered {
                break;
            }
            covered = covered.max(s.end);
        }
        if covered < taken.end {
            let what = format!("{} takes a contribution that was never made", departure.describe());
            return Err((Stretch { start: covered, ..*taken }, what));
        }
        let needs_all_keys = matches!(departure.change, Change::Departure { needs_all_keys: true, .. });
        if let Some(partial) = made.iter().find(|s| needs_all_keys && !s.all_keys) {
            // Between two ends of tiles all rows have the same tiles.
            let edges = made.iter().flat_map(|s| [s.start, s.end]).filter(|e| taken.start < *e && *e < taken.end);
            let mut edges: Vec<u32> = edges.chain([taken.start, taken.end]).collect();
            edges.sort_unstable();
            edges.dedup();
            for edge in edges.windows(2) {
                let rows = Stretch { start: edge[0], end: edge[1], ..*taken };
                let here = made.iter().filter(|s| s.start <= rows.start && rows.end <= s.end);
                if !all_keys_seen(view, here.map(|s| s.seen), &rows) {
                    return Err((part(partial), missing_keys(departure)));
                }
            }
        }
    }
    Ok(())
}

fn missing_keys(departure: &Event) -> String {
    format!(
        "{} sends O without LSE, or keeps it for the backward, although other keys are still missing",
        departure.describe()
    )
}

/// The usual cases, without allocation: one departure after every contribution, which may carry a partial sum or takes the
/// one contribution that has seen all keys.
fn plainly_leaves(view: &View<'_>, rank: u32, group: &[Event], active: &[Stretch]) -> bool {
    let mut departure = None;
    let (mut gains, mut complete) = (0, true);
    for stretch in active {
        let event = &group[stretch.event as usize];
        match event.change {
            Change::Arrival { rounded: true, .. } => return false,
            Change::Departure { .. } if departure.is_some() => return false,
            Change::Departure { needs_all_keys, .. } => departure = Some((event.op, needs_all_keys)),
            _ => {
                gains += 1;
                complete &= stretch.all_keys;
            }
        }
    }
    let Some((departure, needs_all_keys)) = departure.filter(|_| gains > 0) else { return false };
    if needs_all_keys && (gains > 1 || !complete) {
        return false;
    }
    active.iter().map(|s| &group[s.event as usize]).all(|e| e.departs() || view.order.before(rank, e.op, departure))
}

/// Whether the rank is home of row `index` of the stretch's class; cuts `until` where that changes.
fn home_until(homes: &Homes, stretch: &Stretch, index: u32, until: &mut u32) -> bool {
    let (stride, class) = stretch.class;
    let row = index * stride + class;
    let cut = |until: &mut u32, edge: u32| {
        // First index of the class at or after the edge.
        let at = index + edge.saturating_sub(row).div_ceil(stride);
        if at > index {
            *until = (*until).min(at);
        }
    };
    if let Some((_, lanes)) = homes.lanes.as_ref().filter(|(of, _)| *of == stride) {
        let lane = (stretch.seq, class);
        let next = lanes.partition_point(|r| (r.seq, r.rows.class(), r.rows.start) <= (lane.0, lane.1, row));
        let in_lane = |run: &&Run| (run.seq, run.rows.class()) == lane;
        let before = next.checked_sub(1).and_then(|i| lanes.get(i)).filter(in_lane);
        if let Some(run) = before.filter(|run| row < run.rows.end()) {
            cut(until, run.rows.end());
            return true;
        }
        if let Some(run) = lanes.get(next).filter(in_lane) {
            cut(until, run.rows.start);
        }
        return false;
    }
    let first = homes.runs.partition_point(|r| r.seq < stretch.seq);
    let count = homes.runs[first..].partition_point(|r| r.seq == stretch.seq);
    let of_sequence = &homes.runs[first..first + count];
    if stride == 1 && homes.line.is_some() {
        let next = of_sequence.partition_point(|r| r.rows.start <= row);
        let held = next > 0 && row < of_sequence[next - 1].rows.end();
        if held {
            cut(until, of_sequence[next - 1].rows.end());
        } else if let Some(run) = of_sequence.get(next) {
            cut(until, run.rows.start);
        }
        return held;
    }
    let mut here = false;
    for run in of_sequence {
        let held = row >= run.rows.start && row < run.rows.end();
        let edge = if held { run.rows.end() } else { run.rows.start };
        if run.rows.stride == 1 {
            here |= held;
            cut(until, edge);
        } else if run.rows.stride == stride {
            if run.rows.class() == class {
                here |= held;
                cut(until, edge);
            }
        } else {
            here |= held && run.rows.class() == row % run.rows.stride;
            cut(until, row + 1);
        }
    }
    here
}

fn interval(
    view: &View<'_>,
    rank: u32,
    kind: Kind,
    group: &[Event],
    active: &[Stretch],
    rows: &Stretch,
) -> Result<(), String> {
    let before = |a: &Event, b: &Event| view.order.before(rank, a.op, b.op);
    let mut departures: Vec<&Event> = active.iter().map(|s| &group[s.event as usize]).filter(|e| e.departs()).collect();
    let gains: Vec<(&Event, Seen)> =
        active.iter().map(|s| (&group[s.event as usize], s.seen)).filter(|(e, _)| !e.departs()).collect();
    let rounded = gains.iter().find(|(g, _)| matches!(g.change, Change::Arrival { rounded: true, .. }));
    if let Some((arrival, _)) = rounded.filter(|_| gains.len() > 1) {
        return Err(format!("{} brings a partial sum in bf16; partial sums travel in f32", arrival.describe()));
    }
    let unrounded = departures.iter().find(|d| !matches!(d.change, Change::Departure { rounded: true, .. }));
    if let Some((_, departure)) = rounded.zip(unrounded) {
        return Err(format!("{} passes on in f32 what arrived in bf16", departure.describe()));
    }
    if departures.is_empty() {
        return Err(format!("a contribution is missing: what {} adds never leaves for home", gains[0].0.describe()));
    }
    departures.sort_unstable_by_key(|d| view.order.position(rank, d.op));
    for (gain, _) in &gains {
        let mut leaves = false;
        for departure in &departures {
            leaves |= before(gain, departure);
            if !before(gain, departure) && !before(departure, gain) {
                return Err(format!("{} and {} are not ordered", gain.describe(), departure.describe()));
            }
        }
        if !leaves {
            return Err(format!(
                "a contribution is missing: what {} adds comes after every departure",
                gain.describe()
            ));
        }
    }
    for (i, departure) in departures.iter().enumerate() {
        let since = i.checked_sub(1).map(|p| departures[p]);
        let taken = gains.iter().filter(|(g, _)| before(g, departure) && since.is_none_or(|s| !before(g, s)));
        if taken.clone().next().is_none() {
            return Err(format!(
                "{} takes a contribution that has already left or was never made",
                departure.describe()
            ));
        }
        let needs_all_keys = matches!(departure.change, Change::Departure { needs_all_keys: true, .. });
        if needs_all_keys && kind == Kind::Output {
            // What arrives may or may not lack something; only a rank's own tiles show that nothing does.
            let arrives = taken.clone().any(|(g, _)| matches!(g.change, Change::Arrival { .. }));
            if arrives || !all_keys_seen(view, taken.map(|(_, seen)| *seen), rows) {
                return Err(missing_keys(departure));
            }
        }
    }
    Ok(())
}
