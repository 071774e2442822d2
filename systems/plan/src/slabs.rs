use std::collections::HashMap;
use std::sync::Arc;

use crate::moves::{MoveIndex, MoveIndices};
use crate::{CallMode, HeadRange, Move, Pass, PassPlan, Plan, Rows, Shard, Span, Tensor, TensorSet};

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
        tensors.iter().all(|t| {
            let held = if t.is_kv() { self.kv_heads } else { self.q_heads };
            self.tensors.has(t) && held.contains(heads)
        })
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
        Self::find_by(runs, seq, rows, |run| {
            run.rows.stride == 1
                || rows.len == 1 && rows.start % run.rows.stride == run.rows.class()
                || run.rows.stride == rows.stride && run.rows.class() == rows.class()
        })
    }

    /// Index of `rows` in a buffer of these runs, when they are neighbours in one run.
    pub fn find_dense(runs: &[Self], seq: u32, rows: Rows) -> Option<u32> {
        Self::find_by(runs, seq, rows, |run| {
            let stride = run.rows.stride;
            rows.start % stride == run.rows.class() && (rows.len == 1 || stride == rows.stride)
        })
    }

    /// [`Run::find_dense`] for rows that come in order: looks first where the last rows were found.
    pub fn find_dense_near(runs: &[Self], near: &mut usize, seq: u32, rows: Rows) -> Option<u32> {
        let place = (seq, rows.start);
        let holds = |i: usize| {
            let here = runs.get(i).is_some_and(|run| (run.seq, run.rows.start) <= place);
            here && runs.get(i + 1).is_none_or(|run| (run.seq, run.rows.start) > place)
        };
        if !holds(*near) {
            *near = if holds(*near + 1) {
                *near + 1
            } else {
                runs.partition_point(|run| (run.seq, run.rows.start) <= place).checked_sub(1)?
            };
        }
        let run = &runs[*near];
        let plain = run.seq == seq && run.rows.stride == 1 && (rows.stride == 1 || rows.len == 1);
        if plain && rows.end() <= run.rows.end() {
            return Some(run.offset + rows.start - run.rows.start);
        }
        Self::find_dense(runs, seq, rows)
    }

    fn find_by(runs: &[Self], seq: u32, rows: Rows, fits: impl Fn(&Self) -> bool) -> Option<u32> {
        let before = runs.partition_point(|run| (run.seq, run.rows.start) <= (seq, rows.start));
        let mut candidates = runs[..before].iter().rev().take_while(|run| run.seq == seq);
        let run = candidates.find(|run| fits(run))?;
        (rows.end() <= run.rows.end()).then(|| run.offset + (rows.start - run.rows.start) / run.rows.stride)
    }

    /// Sorts rows and joins neighbours of the same stride and class into runs of a buffer that holds each row once.
    pub fn coalesce(rows: &mut [(u32, Rows)]) -> Arc<[Self]> {
        coalesce(rows)
    }
}

/// The slabs of one rank in one pass. An operand must lie in one run of one slab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSlabs {
    /// Slabs in order of entry, exit, kept calls, calls.
    pub slabs: Vec<Slab>,
}

impl RankSlabs {
    /// Slabs of every rank in one pass of a plan. Indices out of range are left out; the checker reports them.
    pub fn of(plan: &Plan, pass: Pass, indices: &MoveIndices) -> Vec<Self> {
        let mut ranks = vec![Self::default(); plan.ranks as usize];
        let (all_q, all_kv) = (plan.shape.all_q(), plan.shape.all_kv());
        let mut entry = TensorSet::Q.union(TensorSet::KV);
        if pass == Pass::Backward {
            entry = entry.union(TensorSet::of(&[Tensor::DO]));
        }
        add_shards(&mut ranks, &plan.entry, Provider::Entry, entry, (all_q, all_kv));
        if pass == Pass::Backward {
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
            let forward = MoveIndices::of(&plan.forward, plan.ranks);
            let mut builder = Builder::new(&plan.forward, &forward);
            for (index, call) in plan.forward.calls.iter().enumerate().filter(|(_, call)| call.keep) {
                let side = if call.mode == CallMode::Copy { Side::Received } else { Side::Sent };
                for part in &call.parts {
                    let mut tensors = part.tensors;
                    if tensors.has(Tensor::O) {
                        tensors = tensors.union(TensorSet::O_LSE);
                    }
                    for (rank, runs) in builder.runs(part.moves, side) {
                        let slab = Slab {
                            provider: Provider::Kept(index as u32),
                            tensors,
                            q_heads: part.q_heads,
                            kv_heads: part.kv_heads,
                            runs: runs.clone(),
                        };
                        ranks[*rank as usize].slabs.push(slab);
                    }
                }
            }
        }
        let table = plan.pass(pass);
        let mut builder = Builder::new(table, indices);
        for (index, call) in table.calls.iter().enumerate().filter(|(_, call)| call.mode == CallMode::Copy) {
            for part in &call.parts {
                for (rank, runs) in builder.runs(part.moves, Side::Received) {
                    let slab = Slab {
                        provider: Provider::Call(index as u32),
                        tensors: part.tensors,
                        q_heads: part.q_heads,
                        kv_heads: part.kv_heads,
                        runs: runs.clone(),
                    };
                    ranks[*rank as usize].slabs.push(slab);
                }
            }
        }
        ranks
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
            let runs = coalesce(&mut list);
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

/// Runs by rank of each distinct span of moves, made once and shared by the head pieces that refer to it.
struct Builder<'a> {
    pass: &'a PassPlan,
    indices: &'a MoveIndices,
    made: HashMap<(usize, Side), RankRuns>,
    last: Arc<[Run]>,
}

impl<'a> Builder<'a> {
    fn new(pass: &'a PassPlan, indices: &'a MoveIndices) -> Self {
        Self { pass, indices, made: HashMap::new(), last: Arc::from([]) }
    }

    fn runs(&mut self, span: Span, side: Side) -> &RankRuns {
        let Self { pass, indices, made, last } = self;
        made.entry((indices.id(span), side)).or_insert_with(|| {
            let moves = pass.moves.get(span.range()).unwrap_or_default();
            let ranks = pass.ranks.len() as u32;
            indices.get(span).map(|index| runs_by_rank(moves, index, ranks, side, last)).unwrap_or_default()
        })
    }
}

fn runs_by_rank(moves: &[Move], index: &MoveIndex, ranks: u32, side: Side, last: &mut Arc<[Run]>) -> RankRuns {
    let mut rows = Vec::new();
    (0..ranks)
        .filter_map(|rank| {
            let list = if side == Side::Sent { index.sent(rank) } else { index.received(rank) };
            rows.clear();
            rows.extend(
                list.iter().map(|i| &moves[*i as usize]).filter(|m| !m.rows.is_empty()).map(|m| (m.seq, m.rows)),
            );
            (!rows.is_empty()).then(|| {
                // Ranks that hold the same rows share them, and whoever looks rows up sees that they do.
                let runs = coalesce(&mut rows);
                if runs != *last {
                    *last = runs;
                }
                (rank, last.clone())
            })
        })
        .collect()
}

fn coalesce(rows: &mut [(u32, Rows)]) -> Arc<[Run]> {
    if rows.iter().all(|(_, r)| r.stride == 1) {
        // Rows mostly come as a few sorted lists, which a stable sort only merges.
        rows.sort_by_key(|(seq, r)| (u64::from(*seq) << 32) | u64::from(r.start));
    } else {
        rows.sort_unstable_by_key(|(seq, r)| (*seq, r.stride, r.class(), r.start));
    }
    let mut runs: Vec<Run> = Vec::new();
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
        runs.push(Run { seq, rows: next, offset: 0 });
    }
    if !runs.is_sorted_by_key(|run| (run.seq, run.rows.start)) {
        runs.sort_unstable_by_key(|run| (run.seq, run.rows.start));
    }
    let mut offset = 0;
    for run in &mut runs {
        run.offset = offset;
        offset += run.rows.len;
    }
    runs.into()
}
