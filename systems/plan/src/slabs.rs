use std::collections::HashMap;
use std::sync::Arc;

use crate::check::intervals::{Interval, interval};
use crate::moves::MoveIndices;
use crate::near::last;
use crate::{CallMode, HeadRange, Part, PassPlan, Plan, Rows, Shard, Tensor, TensorSet};

/// Where rows on a rank come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The layer's input: Q, K, V and in the backward dO.
    Entry,
    /// The layer's output on its home rank, read by the backward: O and LSE.
    Exit,
    /// A call of this pass that this rank receives in.
    Call(u32),
    /// A call of the forward pass whose values this rank kept for the backward.
    Kept(u32),
}

/// A maximal contiguous piece of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Packed sequence.
    pub seq: u32,
    /// Rows of the run.
    pub rows: Rows,
    /// Row index inside the slab at which the run starts.
    pub offset: u32,
    /// Runs of several strides lie in the slab, so that a row may lie in a run that starts before the nearest one.
    pub mixed: bool,
}

/// All rows of the same tensors and heads that one provider puts on a rank: one buffer a tensor in the lowered program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    /// Where the rows come from.
    pub provider: Provider,
    /// Tensors of the slab.
    pub tensors: TensorSet,
    /// Query heads of its tensors that have query heads.
    pub q_heads: HeadRange,
    /// KV heads of its tensors that have KV heads.
    pub kv_heads: HeadRange,
    /// Runs, sorted by sequence and row.
    pub runs: Arc<[Run]>,
}

impl Slab {
    /// Rows in the slab.
    pub fn len(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.offset + run.rows.len)
    }

    /// True when the slab has no row.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// True when the slab holds all of `tensors` for `heads` (query or KV heads, as each tensor has).
    pub fn holds(&self, tensors: TensorSet, heads: HeadRange) -> bool {
        self.tensors.contains(tensors)
            && (!tensors.any_kv() || self.kv_heads.contains(heads))
            && (!tensors.any_q() || self.q_heads.contains(heads))
    }

    /// Index in the slab of `rows`, when one run holds them all; rows of a run need not be neighbours in it.
    pub fn find(&self, seq: u32, rows: Rows) -> Option<u32> {
        Run::find(&self.runs, seq, rows)
    }

    /// Index in the slab of `rows`, when they are neighbours in one run.
    pub fn find_dense(&self, seq: u32, rows: Rows) -> Option<u32> {
        Run::find_dense(&self.runs, seq, rows)
    }
}

impl Run {
    /// Index of `rows` in a buffer of these runs, when one run holds them all.
    pub fn find(runs: &[Self], seq: u32, rows: Rows) -> Option<u32> {
        Self::find_last(Self::up_to(runs, seq, rows), seq, rows, Self::may_hold)
    }

    /// Index of `rows` in a buffer of these runs, when they are neighbours in one run.
    pub fn find_dense(runs: &[Self], seq: u32, rows: Rows) -> Option<u32> {
        Self::find_last(Self::up_to(runs, seq, rows), seq, rows, Self::may_hold_dense)
    }

    /// [`Run::find_dense`] for rows that come in order: looks first where the last rows were found.
    #[inline]
    pub fn find_dense_near(runs: &[Self], near: &mut usize, seq: u32, rows: Rows) -> Option<u32> {
        let plain = Self::plain_near(runs, near, seq, rows);
        plain.unwrap_or_else(|| Self::find_last(&runs[..=*near], seq, rows, Self::may_hold_dense))
    }

    /// [`Run::find`] for rows that come in order: looks first where the last rows were found.
    #[inline]
    pub fn find_near(runs: &[Self], near: &mut usize, seq: u32, rows: Rows) -> Option<u32> {
        let plain = Self::plain_near(runs, near, seq, rows);
        plain.unwrap_or_else(|| Self::find_last(&runs[..=*near], seq, rows, Self::may_hold))
    }

    /// True when the rows, which do not begin before the run, are of its class.
    fn may_hold(&self, rows: Rows) -> bool {
        let stride = self.rows.stride;
        stride == 1 || (rows.len == 1 || stride == rows.stride) && (rows.start - self.rows.start).is_multiple_of(stride)
    }

    /// [`Run::may_hold`] for rows that are to be neighbours in the run.
    fn may_hold_dense(&self, rows: Rows) -> bool {
        let stride = self.rows.stride;
        (rows.len == 1 || stride == rows.stride) && (rows.start - self.rows.start).is_multiple_of(stride)
    }

    /// Runs that do not begin after the rows.
    fn up_to(runs: &[Self], seq: u32, rows: Rows) -> &[Self] {
        &runs[..runs.partition_point(|run| (run.seq, run.rows.start) <= (seq, rows.start))]
    }

    /// Index of contiguous rows in a contiguous run near the last one; none when that does not say whether they are there, and
    /// then `near` is the last run that does not begin after them.
    #[inline]
    fn plain_near(runs: &[Self], near: &mut usize, seq: u32, rows: Rows) -> Option<Option<u32>> {
        let place = (u64::from(seq) << 32) | u64::from(rows.start);
        let begins = |run: &Self| (u64::from(run.seq) << 32) | u64::from(run.rows.start);
        let Some(found) = last(runs.len(), *near, |i| begins(&runs[i]) <= place) else { return Some(None) };
        *near = found;
        let run = &runs[*near];
        if run.seq != seq {
            return Some(None);
        }
        let plain = !run.mixed && run.rows.stride == 1 && (rows.stride == 1 || rows.len == 1);
        plain.then(|| (rows.end() <= run.rows.end()).then(|| run.offset + rows.start - run.rows.start))
    }

    /// Index of the rows in one of these runs, which do not begin after them.
    fn find_last(runs: &[Self], seq: u32, rows: Rows, may_hold: impl Fn(&Self, Rows) -> bool) -> Option<u32> {
        let mut candidates = runs.iter().rev().take_while(|run| run.seq == seq).filter(|run| may_hold(run, rows));
        // Runs of one stride and class lie one after another: only the nearest can hold the rows.
        let run = candidates.find(|run| !run.mixed || rows.end() <= run.rows.end())?;
        (rows.end() <= run.rows.end()).then(|| run.offset + (rows.start - run.rows.start) / run.rows.stride)
    }

    /// Sorts rows and joins neighbours of the same stride and class into runs of a buffer that holds each row once.
    pub fn coalesce(rows: &mut [(u32, Rows)]) -> Arc<[Self]> {
        let mut runs = Vec::new();
        coalesce(rows, &mut runs);
        runs.into()
    }
}

/// The slabs of one rank in one pass. An operand must lie in one run of one slab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSlabs {
    /// Slabs in order of entry, exit, kept calls, calls.
    pub slabs: Vec<Slab>,
}

impl RankSlabs {
    /// Slabs of every rank in both passes of a plan, which share equal runs. The indices must have been made beside each
    /// other; what is out of range is left out.
    pub(crate) fn both(plan: &Plan, indices: [&MoveIndices; 2]) -> [Vec<Self>; 2] {
        let mut shared = SharedRuns::default();
        let first = forward(plan, indices[0], &mut shared);
        let second = backward(plan, indices, &first, &mut shared);
        [first, second]
    }

    /// Rows of the exit layout, which the backward has; none where they have gaps.
    pub(crate) fn home(&self) -> Option<Vec<Interval>> {
        let exit = self.slabs.iter().find(|slab| slab.provider == Provider::Exit);
        let runs: &[Run] = exit.map_or(&[], |slab| &slab.runs);
        runs.iter().map(|run| interval(run.seq, run.rows).filter(|_| !run.mixed)).collect()
    }

    fn add_part(&mut self, provider: Provider, part: &Part, tensors: TensorSet, runs: &Arc<[Run]>) {
        let (q_heads, kv_heads) = (part.q_heads, part.kv_heads);
        self.slabs.push(Slab { provider, tensors, q_heads, kv_heads, runs: runs.clone() });
    }
}

fn forward(plan: &Plan, indices: &MoveIndices, shared: &mut SharedRuns) -> Vec<RankSlabs> {
    let mut ranks = no_slabs(plan, &[&plan.forward]);
    let entry = TensorSet::Q.union(TensorSet::KV);
    add_shards(&mut ranks, &plan.entry, Provider::Entry, entry, (plan.shape.all_q(), plan.shape.all_kv()));
    add_copies(&mut ranks, &plan.forward, indices, shared);
    ranks
}

/// `known` are the slabs of the forward: the input comes again, and kept runs often do.
fn backward(plan: &Plan, indices: [&MoveIndices; 2], known: &[RankSlabs], shared: &mut SharedRuns) -> Vec<RankSlabs> {
    let mut ranks = no_slabs(plan, &[&plan.forward, &plan.backward]);
    let all_q = plan.shape.all_q();
    let entry = TensorSet::Q.union(TensorSet::KV).union(TensorSet::of(&[Tensor::DO]));
    for (rank, known) in ranks.iter_mut().zip(known) {
        let of_entry = known.slabs.first().filter(|slab| slab.provider == Provider::Entry);
        rank.slabs.extend(of_entry.map(|slab| Slab { tensors: entry, ..slab.clone() }));
    }
    let home = if lse_goes_home(&plan.forward) { TensorSet::O_LSE } else { TensorSet::of(&[Tensor::O]) };
    if plan.exit == plan.entry {
        // One layout, one set of runs: what is found in one is found in the other.
        for rank in &mut ranks {
            let runs = rank.slabs.first().map(|slab| slab.runs.clone());
            rank.slabs.extend(runs.map(|runs| Slab {
                provider: Provider::Exit,
                tensors: home,
                q_heads: all_q,
                kv_heads: HeadRange::EMPTY,
                runs,
            }));
        }
    } else {
        add_shards(&mut ranks, &plan.exit, Provider::Exit, home, (all_q, HeadRange::EMPTY));
    }
    for (call, of_call) in plan.forward.calls.iter().enumerate().filter(|(_, call)| call.keep) {
        let side = if of_call.mode == CallMode::Copy { Side::Received } else { Side::Sent };
        for (part, id) in of_call.parts.iter().zip(indices[0].parts(call)) {
            let mut tensors = part.tensors;
            if tensors.has(Tensor::O) {
                tensors = tensors.union(TensorSet::O_LSE);
            }
            for (rank, runs) in shared.of_span(&plan.forward, indices[0], *id, side, &ranks) {
                ranks[*rank as usize].add_part(Provider::Kept(call as u32), part, tensors, runs);
            }
        }
    }
    add_copies(&mut ranks, &plan.backward, indices[1], shared);
    ranks
}

/// Ranks without slabs, with room for those of the calls that bring any.
fn no_slabs(plan: &Plan, passes: &[&PassPlan]) -> Vec<RankSlabs> {
    let calls = passes.iter().flat_map(|pass| &pass.calls).filter(|call| call.mode == CallMode::Copy || call.keep);
    let room = calls.map(|call| call.parts.len()).sum::<usize>().min(16) + 2;
    (0..plan.ranks).map(|_| RankSlabs { slabs: Vec::with_capacity(room) }).collect()
}

fn add_copies(ranks: &mut [RankSlabs], table: &PassPlan, indices: &MoveIndices, shared: &mut SharedRuns) {
    for (call, of_call) in table.calls.iter().enumerate().filter(|(_, call)| call.mode == CallMode::Copy) {
        for (part, id) in of_call.parts.iter().zip(indices.parts(call)) {
            for (rank, runs) in shared.of_span(table, indices, *id, Side::Received, ranks) {
                ranks[*rank as usize].add_part(Provider::Call(call as u32), part, part.tensors, runs);
            }
        }
    }
}

/// True when every O that travels in the forward takes its LSE along, so that homes hold both.
fn lse_goes_home(forward: &PassPlan) -> bool {
    let mut parts = forward.calls.iter().filter(|c| c.mode == CallMode::Accumulate).flat_map(|c| &c.parts);
    parts.all(|part| !part.tensors.has(Tensor::O) || part.tensors.has(Tensor::Lse))
}

fn add_shards(
    ranks: &mut [RankSlabs],
    shards: &[Shard],
    provider: Provider,
    tensors: TensorSet,
    heads: (HeadRange, HeadRange),
) {
    let mut rows = vec![Vec::new(); ranks.len()];
    for shard in shards.iter().filter(|s| !s.rows.is_empty()) {
        if let Some(list) = rows.get_mut(shard.rank as usize) {
            list.push((shard.seq, shard.rows));
        }
    }
    for (rank, mut list) in ranks.iter_mut().zip(rows) {
        if !list.is_empty() {
            let runs = Run::coalesce(&mut list);
            rank.slabs.push(Slab { provider, tensors, q_heads: heads.0, kv_heads: heads.1, runs });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Sent,
    Received,
}

type RankRuns = Vec<(u32, Arc<[Run]>)>;

/// Runs by rank of each distinct list of moves, made once and shared by the head pieces and passes that refer to it.
#[derive(Default)]
struct SharedRuns {
    made: HashMap<(u32, Side), RankRuns>,
    /// Runs of the rank before: ranks that hold the same rows share them.
    last: Arc<[Run]>,
    /// The rows that `last` was made of, as they were listed: ranks that gather the same rows get them in one order.
    listed: Vec<(u32, Rows)>,
    rows: Vec<(u32, Rows)>,
    joined: Vec<Run>,
}

impl SharedRuns {
    /// How many slabs of a rank are looked at for the same runs.
    const LOOK_BACK: usize = 4;

    /// Runs of span `id` by rank; whoever looks rows up sees by the address that runs are those of another slab.
    fn of_span(
        &mut self,
        table: &PassPlan,
        indices: &MoveIndices,
        id: u32,
        side: Side,
        ranks: &[RankSlabs],
    ) -> &RankRuns {
        let Self { made, last, listed, rows, joined } = self;
        made.entry((indices.content(id), side)).or_insert_with(|| {
            let moves = indices.moves(table, id);
            let index = indices.index(id);
            let mut of_span = RankRuns::new();
            let lists: Vec<(u32, &[u32])> = match side {
                Side::Sent => index.senders().collect(),
                Side::Received => index.receivers().collect(),
            };
            let alike = |(a, b): (&u32, &u32)| {
                let (a, b) = (&moves[*a as usize], &moves[*b as usize]);
                (a.seq, a.rows) == (b.seq, b.rows)
            };
            let mut before: &[u32] = &[];
            for (rank, list) in lists {
                // Ranks that gather the same rows mostly get them in one order.
                if list.len() == before.len() && list.iter().zip(before).all(alike) {
                    of_span.push((rank, last.clone()));
                    continue;
                }
                rows.clear();
                rows.extend(
                    list.iter().map(|i| &moves[*i as usize]).filter(|m| !m.rows.is_empty()).map(|m| (m.seq, m.rows)),
                );
                if rows.is_empty() {
                    continue;
                }
                before = list;
                if rows == listed {
                    of_span.push((rank, last.clone()));
                    continue;
                }
                listed.clone_from(rows);
                coalesce(rows, joined);
                let slabs = ranks.get(rank as usize).map(|rank| rank.slabs.as_slice()).unwrap_or_default();
                let known = slabs.iter().rev().take(Self::LOOK_BACK).map(|slab| &slab.runs);
                let mut known = std::iter::once(&*last).chain(known);
                let runs = known.find(|runs| runs[..] == joined[..]).cloned();
                *last = runs.unwrap_or_else(|| Arc::from(&joined[..]));
                of_span.push((rank, last.clone()));
            }
            of_span
        })
    }
}

/// Puts the runs of `rows` into `runs`; sorts the rows for it.
fn coalesce(rows: &mut [(u32, Rows)], runs: &mut Vec<Run>) {
    let place = |(seq, r): &(u32, Rows)| (u64::from(*seq) << 32) | u64::from(r.start);
    let mut dense = rows.iter().all(|(_, r)| r.stride == 1);
    let mixed = !dense && settle_single_rows(rows);
    dense = dense || rows.iter().all(|(_, r)| r.stride == 1);
    runs.clear();
    if dense {
        // Rows mostly come as a few sorted lists, which a stable sort only merges.
        if !rows.is_sorted_by_key(place) {
            rows.sort_by_key(place);
        }
        for &(seq, next) in rows.iter() {
            match runs.last_mut() {
                Some(last) if last.seq == seq && u64::from(next.start) <= u64::from(last.rows.last()) + 1 => {
                    last.rows.len = last.rows.len.max(next.last() - last.rows.start + 1);
                }
                _ => runs.push(Run { seq, rows: next, offset: 0, mixed }),
            }
        }
    } else {
        let key = |(seq, r): &(u32, Rows)| {
            let of_seq = (u64::from(*seq) << 32) | u64::from(r.stride);
            (of_seq, (u64::from(r.class()) << 32) | u64::from(r.start))
        };
        // Keys take a division each, so that they are worked out once.
        let mut keyed: Vec<_> = rows.iter().map(|of| (key(of), *of)).collect();
        if !keyed.is_sorted_by_key(|(key, _)| *key) {
            keyed.sort_by_key(|(key, _)| *key);
            rows.iter_mut().zip(keyed).for_each(|(of, (_, sorted))| *of = sorted);
        }
        for &(seq, next) in rows.iter() {
            if let Some(last) = runs.last_mut() {
                let joins = last.seq == seq
                    && last.rows.stride == next.stride
                    && last.rows.class() == next.class()
                    && u64::from(next.start) <= u64::from(last.rows.last()) + u64::from(next.stride);
                if joins {
                    let len = (next.last() - last.rows.start) / next.stride + 1;
                    last.rows.len = last.rows.len.max(len);
                    continue;
                }
            }
            runs.push(Run { seq, rows: next, offset: 0, mixed });
        }
    }
    if !dense && !runs.is_sorted_by_key(|run| (run.seq, run.rows.start)) {
        runs.sort_unstable_by_key(|run| (run.seq, run.rows.start));
    }
    let mut offset = 0;
    for run in runs {
        run.offset = offset;
        offset += run.rows.len;
    }
}

/// The stride of a single row says nothing: single rows take the one stride of the others, so that rows that are named in
/// two ways lie in one run. Says whether longer rows have several strides.
fn settle_single_rows(rows: &mut [(u32, Rows)]) -> bool {
    let mut longer = rows.iter().map(|(_, r)| r).filter(|r| r.len > 1).map(|r| r.stride);
    let (stride, mixed) = match longer.next() {
        Some(first) if longer.all(|stride| stride == first) => (first, false),
        Some(_) => (1, true),
        None => {
            let mut strides = rows.iter().map(|(_, r)| r.stride).filter(|stride| *stride > 1);
            let first = strides.next().unwrap_or(1);
            (if strides.all(|stride| stride == first) { first } else { 1 }, false)
        }
    };
    for (_, r) in rows.iter_mut().filter(|(_, r)| r.len == 1) {
        r.stride = stride;
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::{Rows, Run};

    #[test]
    fn rows_are_found_whatever_stride_names_them() {
        let lists: [&[Rows]; 4] = [
            &[
                Rows { start: 3, len: 2, stride: 7 },
                Rows { start: 7, len: 1, stride: 7 },
                Rows { start: 10, len: 1, stride: 1 },
            ],
            &[Rows { start: 3, len: 1, stride: 7 }, Rows { start: 10, len: 1, stride: 7 }],
            &[Rows { start: 1, len: 4, stride: 5 }, Rows::range(7, 9), Rows { start: 12, len: 1, stride: 3 }],
            &[Rows::range(0, 4), Rows { start: 9, len: 1, stride: 4 }, Rows { start: 5, len: 1, stride: 2 }],
        ];
        for list in lists {
            let runs = Run::coalesce(&mut list.iter().map(|rows| (0, *rows)).collect::<Vec<_>>());
            let held: Vec<u32> = list.iter().flat_map(|r| (0..r.len).map(|i| r.start + i * r.stride)).collect();
            let mut near = 0;
            for row in 0..20 {
                let single = Rows { start: row, len: 1, stride: 1 };
                let wanted = held.contains(&row);
                assert_eq!(Run::find(&runs, 0, single).is_some(), wanted, "{row} in {runs:?}");
                assert_eq!(Run::find_dense(&runs, 0, single).is_some(), wanted, "{row} in {runs:?}");
                assert_eq!(Run::find_dense_near(&runs, &mut near, 0, single).is_some(), wanted, "{row} in {runs:?}");
                assert_eq!(Run::find_near(&runs, &mut near, 0, single).is_some(), wanted, "{row} in {runs:?}");
            }
            for rows in list {
                assert!(Run::find_dense(&runs, 0, *rows).is_some(), "{rows:?} in {runs:?}");
            }
        }
    }
}
