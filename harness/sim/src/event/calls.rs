use skewbench_exec::{Flow, InstrKind, RouteTable};

use super::costs::Priced;
use crate::{Machine, SimError};

/// Ranks that a route table or a call touches, as one contiguous range with an array element each.
#[derive(Clone, Copy)]
pub(super) struct RankRange {
    low: u32,
    len: u32,
}

impl RankRange {
    fn of(ranks: impl Iterator<Item = u32>) -> Self {
        let (low, high) = ranks.fold((u32::MAX, 0), |(low, high), r| (low.min(r), high.max(r)));
        if low > high { Self { low: 0, len: 0 } } else { Self { low, len: high - low + 1 } }
    }

    fn index(self, rank: u32) -> Option<usize> {
        let index = rank.wrapping_sub(self.low);
        (index < self.len).then_some(index as usize)
    }
}

/// A flow as one of its ends sees it.
#[derive(Clone, Copy, Default)]
pub(super) struct Incident {
    pub(super) peer: u32,
    /// This end receives.
    pub(super) receives: bool,
    /// Both ends are on one node.
    pub(super) same_node: bool,
    pub(super) rows: u64,
}

/// Flows of a route table by rank.
pub(super) struct RouteIndex {
    range: RankRange,
    start: Vec<u32>,
    incident: Vec<Incident>,
    /// Rows that each rank sends and receives inside its node.
    intra_rows: Vec<[u64; 2]>,
    /// Rows that each rank sends to other nodes.
    inter_rows: Vec<u64>,
}

impl RouteIndex {
    fn new(table: &RouteTable, nodes: &[u32]) -> Option<Self> {
        let flows = || table.flows.iter().filter(|flow| real(flow));
        let same_node = |flow: &Flow| Some(nodes.get(flow.from as usize)? == nodes.get(flow.to as usize)?);
        let range = RankRange::of(flows().flat_map(|flow| [flow.from, flow.to]));
        let mut start = vec![0u32; range.len as usize + 1];
        let mut intra_rows = vec![[0u64; 2]; range.len as usize];
        let mut inter_rows = vec![0u64; range.len as usize];
        for flow in flows() {
            let same = same_node(flow)?;
            for (end, rank) in [flow.from, flow.to].into_iter().enumerate() {
                let index = range.index(rank)?;
                start[index + 1] += 1;
                if same {
                    intra_rows[index][end] = intra_rows[index][end].saturating_add(flow.rows);
                } else if end == 0 {
                    inter_rows[index] = inter_rows[index].saturating_add(flow.rows);
                }
            }
        }
        for i in 1..start.len() {
            start[i] += start[i - 1];
        }
        let mut next = start.clone();
        let mut incident = vec![Incident::default(); start.last().map_or(0, |n| *n as usize)];
        for flow in flows() {
            let same_node = same_node(flow)?;
            for (rank, peer, receives) in [(flow.from, flow.to, false), (flow.to, flow.from, true)] {
                let slot = &mut next[range.index(rank)?];
                incident[*slot as usize] = Incident { peer, receives, same_node, rows: flow.rows.min(i64::MAX as u64) };
                *slot += 1;
            }
        }
        Some(Self { range, start, incident, intra_rows, inter_rows })
    }

    /// Rank, rows that it sends inside its node, rows that it sends to other nodes.
    pub(super) fn sent(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let low = self.range.low as usize;
        self.intra_rows
            .iter()
            .zip(&self.inter_rows)
            .enumerate()
            .map(move |(i, (intra, inter))| (low + i, intra[0], *inter))
    }

    /// Flows that `rank` sends or receives.
    pub(super) fn incident(&self, rank: u32) -> &[Incident] {
        self.range.index(rank).map_or(&[], |i| &self.incident[self.start[i] as usize..self.start[i + 1] as usize])
    }
}

/// A flow that crosses a link.
fn real(flow: &Flow) -> bool {
    flow.from != flow.to && flow.rows > 0
}

/// How far one rank's part in a call is.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// End of the released flows.
    pub(super) end: u64,
    /// Flows that have not been released.
    pub(super) remaining: u32,
    pub(super) posted: bool,
}

/// One rank's part in a call.
#[derive(Clone, Copy)]
pub(super) struct Post {
    /// Flat stream and index of the instruction; [`NOT_POSTED`] where the rank does not post the call.
    pub(super) stream: u32,
    pub(super) index: u32,
    /// Picoseconds a byte of what the rank sends and receives inside its node.
    pub(super) intra_ps_per_byte: [f64; 2],
}

const NOT_POSTED: u32 = u32::MAX;

/// Calls of a pass, ready to be run several times.
pub(super) struct Calls {
    pub(super) routes: Vec<RouteIndex>,
    ranges: Vec<(RankRange, usize)>,
    pub(super) posts: Vec<Post>,
    /// Every part before any flow is released.
    pub(super) fresh: Vec<Progress>,
}

impl Calls {
    pub(super) fn new(priced: &Priced<'_>, machine: &Machine) -> Result<Self, SimError> {
        let program = priced.program;
        let mut places = vec![Vec::new(); program.calls.len()];
        for (flat, stream) in priced.streams.iter().enumerate() {
            for (index, instr) in stream.instrs.iter().enumerate() {
                if let InstrKind::Transfer { call } = instr.kind {
                    places[call as usize].push((stream.rank, flat as u32, index as u32));
                }
            }
        }
        let broken = |rank, what: &'static str| SimError::Index { rank, stream: 0, index: 0, what };
        let routes = program
            .routes
            .iter()
            .map(|table| RouteIndex::new(table, &machine.nodes).ok_or_else(|| broken(0, "a rank of its flows")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut calls = Self { routes, ranges: Vec::with_capacity(places.len()), posts: Vec::new(), fresh: Vec::new() };
        for (number, (call, places)) in program.calls.iter().zip(&places).enumerate() {
            let range = RankRange::of(places.iter().map(|place| place.0));
            let base = calls.posts.len();
            calls.ranges.push((range, base));
            let none = Post { stream: NOT_POSTED, index: 0, intra_ps_per_byte: [0.0; 2] };
            calls.posts.resize(base + range.len as usize, none);
            calls.fresh.resize(calls.posts.len(), Progress::default());
            for &(rank, stream, index) in places {
                let post = range.index(rank).map(|i| &mut calls.posts[base + i]);
                let post = post.filter(|post| post.stream == NOT_POSTED);
                let twice = || broken(rank, "a call that the rank posts twice");
                *post.ok_or_else(twice)? = Post { stream, index, ..none };
            }
            let mut intra_bytes = vec![[0u64; 2]; range.len as usize];
            for part in &call.parts {
                let route = calls.routes.get(part.routes as usize).ok_or_else(|| broken(0, "a route table"))?;
                for (i, rows) in route.intra_rows.iter().enumerate() {
                    let degree = route.start[i + 1] - route.start[i];
                    if degree == 0 {
                        continue;
                    }
                    let rank = route.range.low + i as u32;
                    let slot = range.index(rank).filter(|slot| calls.posts[base + slot].stream != NOT_POSTED);
                    let slot = slot.ok_or_else(|| {
                        let what = format!("its peers wait in call {number}, which rank {rank} never posts");
                        SimError::Stuck { rank, stream: 0, index: 0, what }
                    })?;
                    calls.fresh[base + slot].remaining += degree;
                    for end in [0, 1] {
                        let bytes = rows[end].saturating_mul(part.row_bytes);
                        intra_bytes[slot][end] = intra_bytes[slot][end].saturating_add(bytes);
                    }
                }
            }
            let link = machine.pricing.intra();
            for (post, bytes) in calls.posts[base..].iter_mut().zip(intra_bytes) {
                post.intra_ps_per_byte = bytes.map(|bytes| link.ps_per_byte(bytes));
            }
        }
        Ok(calls)
    }

    /// Place of rank 0's part in a call, from which other ranks' parts follow, wrapping; every rank that has a flow in the call has one.
    #[inline]
    pub(super) fn origin(&self, call: u32) -> usize {
        let (range, base) = self.ranges[call as usize];
        base.wrapping_sub(range.low as usize)
    }
}
