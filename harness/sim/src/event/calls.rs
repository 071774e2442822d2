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

/// Flows of a route table by rank.
pub(super) struct RouteIndex {
    range: RankRange,
    start: Vec<u32>,
    /// Indices of the flows that each rank sends or receives.
    incident: Vec<u32>,
    /// Rows that each rank sends and receives inside its node.
    intra_rows: Vec<[u64; 2]>,
}

impl RouteIndex {
    fn new(table: &RouteTable, nodes: &[u32]) -> Option<Self> {
        let flows = || table.flows.iter().enumerate().filter(|(_, flow)| real(flow));
        let range = RankRange::of(flows().flat_map(|(_, flow)| [flow.from, flow.to]));
        let mut start = vec![0u32; range.len as usize + 1];
        let mut intra_rows = vec![[0u64; 2]; range.len as usize];
        for (_, flow) in flows() {
            let same = nodes.get(flow.from as usize)? == nodes.get(flow.to as usize)?;
            for (end, rank) in [flow.from, flow.to].into_iter().enumerate() {
                let index = range.index(rank)?;
                start[index + 1] += 1;
                if same {
                    intra_rows[index][end] = intra_rows[index][end].saturating_add(flow.rows);
                }
            }
        }
        for i in 1..start.len() {
            start[i] += start[i - 1];
        }
        let mut next = start.clone();
        let mut incident = vec![0u32; start.last().map_or(0, |n| *n as usize)];
        for (flow_index, flow) in flows() {
            for rank in [flow.from, flow.to] {
                let slot = &mut next[range.index(rank)?];
                incident[*slot as usize] = flow_index as u32;
                *slot += 1;
            }
        }
        Some(Self { range, start, incident, intra_rows })
    }

    /// Indices of the flows that `rank` sends or receives.
    pub(super) fn incident(&self, rank: u32) -> &[u32] {
        self.range.index(rank).map_or(&[], |i| &self.incident[self.start[i] as usize..self.start[i + 1] as usize])
    }
}

/// A flow that crosses a link.
pub(super) fn real(flow: &Flow) -> bool {
    flow.from != flow.to && flow.rows > 0
}

/// What the simulation keeps of one rank's part in a call.
#[derive(Clone, Copy, Default)]
pub(super) struct Post {
    pub(super) posted: bool,
    /// Flows that have not been released.
    pub(super) remaining: u32,
    /// End of the released ones.
    pub(super) end: u64,
    /// Flat stream and index of the instruction; `u32::MAX` where the rank does not post the call.
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
        let mut calls = Self { routes, ranges: Vec::with_capacity(places.len()), posts: Vec::new() };
        for (number, (call, places)) in program.calls.iter().zip(&places).enumerate() {
            let range = RankRange::of(places.iter().map(|place| place.0));
            let base = calls.posts.len();
            calls.ranges.push((range, base));
            calls.posts.resize(base + range.len as usize, Post { stream: NOT_POSTED, ..Post::default() });
            for &(rank, stream, index) in places {
                let post = range.index(rank).map(|i| &mut calls.posts[base + i]);
                let post = post.filter(|post| post.stream == NOT_POSTED);
                let twice = || broken(rank, "a call that the rank posts twice");
                *post.ok_or_else(twice)? = Post { stream, index, ..Post::default() };
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
                    let never = format!("its peers wait in call {number}, which rank {rank} never posts");
                    let slot = slot.ok_or(SimError::Stuck { rank, stream: 0, index: 0, what: never })?;
                    calls.posts[base + slot].remaining += degree;
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

    /// Place of a rank's part in a call; every rank that has a flow in the call has one.
    #[inline]
    pub(super) fn slot(&self, call: u32, rank: u32) -> usize {
        let (range, base) = self.ranges[call as usize];
        base + rank.wrapping_sub(range.low) as usize
    }
}
