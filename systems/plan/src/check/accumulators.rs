//! Every contribution to an accumulator arrives home exactly once.
//!
//! A tile contributes to the accumulators of its own rank: O with LSE for its rows in the forward, dQ for its rows and
//! dK, dV for its keys in the backward. A move of an `Accumulate` call takes all that the sender's accumulator holds and
//! adds it to the receiver's. So values are conserved if, on every rank, each contribution or arrival is ordered against
//! each departure of the same rows and heads, a departure has something to take, and only homes (the exit layout) end
//! up with anything.

mod simple;
mod sweep;

use super::View;
use super::intervals::{Interval, interval, join};
use crate::{
    CallMode, Dtype, HeadRange, Mask, OpId, Order, Pass, Plan, PlanError, Rows, Run, Span, Tensor, Tile, Work,
};

/// One kind of accumulator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Output,
    QueryGradient,
    KeyGradient,
}

impl Kind {
    fn of(pass: Pass) -> &'static [Self] {
        match pass {
            Pass::Forward => &[Self::Output],
            Pass::Backward => &[Self::QueryGradient, Self::KeyGradient],
        }
    }

    fn tensor(self) -> Tensor {
        match self {
            Self::Output => Tensor::O,
            Self::QueryGradient => Tensor::DQ,
            Self::KeyGradient => Tensor::DK,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Output => "O",
            Self::QueryGradient => "dQ",
            Self::KeyGradient => "dK and dV",
        }
    }

    fn rows(self, tile: &Tile) -> Rows {
        if self == Self::KeyGradient { tile.k } else { tile.q }
    }
}

/// A span of moves: its number in the pass, and the number that equal spans of both passes share.
#[derive(Clone, Copy)]
struct Moves {
    id: u32,
    content: u32,
}

#[derive(Clone, Copy)]
enum Change {
    /// A launch on the tiles of a span.
    Contribution(Span, Mask),
    /// Moves that arrive, and whether they come rounded to bf16.
    Arrival { moves: Moves, rounded: bool },
    /// Moves that leave, whether the sender keeps a copy or sends O without LSE, and whether they go as bf16.
    Departure { moves: Moves, needs_all_keys: bool, rounded: bool },
}

impl Change {
    /// True when whatever proves this change sound proves the other one.
    fn proves(self, other: Self) -> bool {
        match (self, other) {
            (Self::Contribution(tiles, mask), Self::Contribution(others, other)) => (tiles, mask) == (others, other),
            (Self::Arrival { moves, rounded }, Self::Arrival { moves: others, rounded: other }) => {
                (moves.content, rounded) == (others.content, other)
            }
            (
                Self::Departure { moves, needs_all_keys, rounded },
                Self::Departure { moves: others, needs_all_keys: other_needs, rounded: other },
            ) => (moves.content, rounded) == (others.content, other) && (needs_all_keys || !other_needs),
            _ => false,
        }
    }
}

/// What one operation of a rank does to accumulators of some heads.
#[derive(Clone, Copy)]
struct Event {
    op: OpId,
    heads: HeadRange,
    change: Change,
}

impl Event {
    fn departs(&self) -> bool {
        matches!(self.change, Change::Departure { .. })
    }

    fn is_rounded(&self) -> bool {
        matches!(self.change, Change::Arrival { rounded: true, .. })
    }

    fn describe(&self) -> String {
        let what = match self.change {
            Change::Contribution(..) => "launch",
            Change::Arrival { .. } => "arrival",
            Change::Departure { .. } => "departure",
        };
        format!("the {what} at operation {}.{}", self.op.stream, self.op.index)
    }
}

/// Runs of the exit layout on one rank, sorted by sequence and row.
#[derive(Clone, Default)]
struct Homes {
    runs: Vec<Run>,
    /// The runs as intervals; none when a run has a stride.
    line: Option<Vec<Interval>>,
    /// The stride of all runs, above 1, and the runs sorted by sequence, class and row.
    lanes: Option<(u32, Vec<Run>)>,
}

/// Groups of events of one rank, on different heads or in different passes, that were proven sound.
#[derive(Default)]
struct Proven {
    events: Vec<Event>,
    groups: Vec<std::ops::Range<usize>>,
}

/// What both passes share: homes, and proofs for query rows, which mostly go the same ways forward and backward.
pub(super) struct Proofs<'a> {
    homes: Vec<Homes>,
    simple: simple::Simple<'a>,
    scratch: sweep::Scratch,
    /// Order and tiles of the forward, and its groups by rank.
    forward: Option<(&'a Order, &'a [Tile], Vec<Proven>)>,
}

impl<'a> Proofs<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let mut homes = vec![Homes::default(); plan.ranks as usize];
        for shard in &plan.exit {
            homes[shard.rank as usize].runs.push(Run { seq: shard.seq, rows: shard.rows, offset: 0, mixed: false });
        }
        for home in &mut homes {
            home.runs.sort_unstable_by_key(|r| (r.seq, r.rows.start));
            home.line = home.runs.iter().map(|run| interval(run.seq, run.rows)).collect();
            home.line.iter_mut().for_each(join);
            let stride = home.runs.first().map_or(1, |r| r.rows.stride);
            if stride > 1 && home.runs.iter().all(|r| r.rows.stride == stride) {
                let mut lanes = home.runs.clone();
                lanes.sort_unstable_by_key(|r| (r.seq, r.rows.class(), r.rows.start));
                home.lanes = Some((stride, lanes));
            }
        }
        Self { homes, simple: simple::Simple::default(), scratch: sweep::Scratch::default(), forward: None }
    }
}

pub(super) fn check<'a>(view: &View<'a>, proofs: &mut Proofs<'a>) -> Result<(), PlanError> {
    let tiles = view.plan.pass(view.pass).tiles.as_slice();
    proofs.simple.turn_to(tiles);
    let known = proofs.forward.take().filter(|(_, of_forward, _)| *of_forward == tiles);
    let mut of_ranks = Vec::new();
    let (mut events, mut bounds, mut group) = (Vec::new(), Vec::new(), Vec::new());
    for kind in Kind::of(view.pass) {
        for rank in 0..view.plan.ranks {
            gather(view, rank, *kind, &mut events);
            bounds.clear();
            bounds.extend(events.iter().flat_map(|e| [e.heads.start, e.heads.end]));
            bounds.sort_unstable();
            bounds.dedup();
            let of_forward = known.as_ref().filter(|_| *kind != Kind::KeyGradient);
            let mut proven = Proven::default();
            for cut in bounds.windows(2) {
                let heads = HeadRange::new(cut[0], cut[1]);
                group.clear();
                group.extend(events.iter().filter(|e| e.heads.contains(heads)));
                let again = group.is_empty()
                    || proven.proves(view.order, view.order, rank, &group)
                    || of_forward
                        .is_some_and(|(order, _, all)| all[rank as usize].proves(order, view.order, rank, &group));
                if again {
                    continue;
                }
                let home = &proofs.homes[rank as usize];
                let line = home.line.as_deref();
                if !line.is_some_and(|line| proofs.simple.conserved(view, rank, *kind, &group, line)) {
                    sweep::conserved(view, rank, *kind, heads, &group, home, &mut proofs.scratch)?;
                }
                proven.add(&group);
            }
            if view.pass == Pass::Forward {
                of_ranks.push(proven);
            }
        }
    }
    if view.pass == Pass::Forward {
        proofs.forward = Some((view.order, tiles, of_ranks));
    }
    Ok(())
}

impl Proven {
    /// How many groups are compared with a new one, and how many events are compared with each other.
    const LOOK_BACK: usize = 8;
    const EVENTS: usize = 64;

    fn add(&mut self, group: &[Event]) {
        let start = self.events.len();
        self.events.extend_from_slice(group);
        self.groups.push(start..self.events.len());
    }

    /// True when one of the groups does on its heads, in its order, all that `group` does, and in the same order.
    fn proves(&self, order: &Order, group_order: &Order, rank: u32, group: &[Event]) -> bool {
        let same = |known: &[Event]| {
            known.len() == group.len()
                && known.iter().zip(group).all(|(a, b)| a.change.proves(b.change))
                && (0..known.len()).all(|i| {
                    (0..known.len()).all(|j| {
                        order.before(rank, known[i].op, known[j].op)
                            == group_order.before(rank, group[i].op, group[j].op)
                    })
                })
        };
        let known = self.groups.iter().rev().take(Self::LOOK_BACK).filter_map(|range| self.events.get(range.clone()));
        group.len() <= Self::EVENTS && known.into_iter().any(same)
    }
}

/// Puts what the operations of a rank do to one kind of accumulator into `events`.
fn gather(view: &View<'_>, rank: u32, kind: Kind, events: &mut Vec<Event>) {
    let table = view.plan.pass(view.pass);
    events.clear();
    for (index, op) in (0..).zip(table.ranks[rank as usize].streams.first().into_iter().flatten()) {
        if let Work::Launch(launch) = op.work {
            let heads = if kind == Kind::KeyGradient { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
            let op = OpId { stream: crate::COMPUTE, index };
            events.push(Event { op, heads, change: Change::Contribution(launch.tiles, launch.mask) });
        }
    }
    for (call, op) in view.order.posts(rank) {
        let of_call = &table.calls[*call as usize];
        if of_call.mode != CallMode::Accumulate {
            continue;
        }
        let parts = of_call.parts.iter().zip(view.indices.parts(*call as usize));
        for (part, id) in parts.filter(|(part, _)| part.tensors.has(kind.tensor())) {
            let index = view.indices.index(*id);
            let moves = Moves { id: *id, content: view.indices.content(*id) };
            let heads = part.heads(kind.tensor());
            let rounded = of_call.dtype == Dtype::Bf16;
            if !index.received(rank).is_empty() {
                events.push(Event { op: *op, heads, change: Change::Arrival { moves, rounded } });
            }
            if !index.sent(rank).is_empty() {
                let needs_all_keys = kind == Kind::Output && (of_call.keep || !part.tensors.has(Tensor::Lse));
                events.push(Event { op: *op, heads, change: Change::Departure { moves, needs_all_keys, rounded } });
            }
        }
    }
}
