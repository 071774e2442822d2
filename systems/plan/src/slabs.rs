use crate::{CallMode, HeadRange, OpId, Pass, Plan, Rows, Span, TensorSet, Work};

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
    pub runs: Vec<Run>,
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

    /// Index in the slab of `rows`, when they lie in one run of it.
    pub fn find(&self, seq: u32, rows: Rows) -> Option<u32> {
        let before = self.runs.partition_point(|run| (run.seq, run.rows.start) <= (seq, rows.start));
        let mut candidates = self.runs[..before].iter().rev().take_while(|run| run.seq == seq);
        if rows.stride == 1 {
            let run = candidates.find(|run| run.rows.stride == 1)?;
            return (rows.end() <= run.rows.end()).then(|| run.offset + rows.start - run.rows.start);
        }
        candidates.find_map(|run| {
            let inside = rows.end() <= run.rows.end();
            if run.rows.stride == 1 {
                inside.then(|| run.offset + rows.start - run.rows.start)
            } else {
                (inside && run.rows.stride == rows.stride && run.rows.class() == rows.class())
                    .then(|| run.offset + (rows.start - run.rows.start) / rows.stride)
            }
        })
    }
}

/// The slabs of one rank in one pass. An operand must lie in one run of one slab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSlabs {
    /// Slabs in order of entry, exit, kept calls, calls.
    pub slabs: Vec<Slab>,
    /// Where this rank posts each call that it takes part in, sorted by call.
    pub posts: Vec<(u32, OpId)>,
}

impl RankSlabs {
    /// Where the rank posts a call of the pass.
    pub fn post(&self, call: u32) -> Option<OpId> {
        self.posts.binary_search_by_key(&call, |p| p.0).ok().map(|i| self.posts[i].1)
    }

    /// Slabs of every rank in one pass of a plan. Indices out of range are left out; the checker reports them.
    pub fn of(plan: &Plan, pass: Pass) -> Vec<Self> {
        let mut ranks = vec![Self::default(); plan.ranks as usize];
        let (entry, q, kv) = match pass {
            Pass::Forward => (TensorSet::Q.union(TensorSet::KV), plan.shape.all_q(), plan.shape.all_kv()),
            Pass::Backward => (
                TensorSet::Q.union(TensorSet::KV).union(TensorSet::of(&[crate::Tensor::DO])),
                plan.shape.all_q(),
                plan.shape.all_kv(),
            ),
        };
        let mut gather = Gather::new(plan.ranks);
        for shard in &plan.entry {
            gather.add(shard.rank, shard.seq, shard.rows);
        }
        gather.flush(&mut ranks, Provider::Entry, entry, q, kv);
        if pass == Pass::Backward {
            for shard in &plan.exit {
                gather.add(shard.rank, shard.seq, shard.rows);
            }
            gather.flush(&mut ranks, Provider::Exit, TensorSet::O_LSE, q, HeadRange::EMPTY);
            for (index, call) in plan.forward.calls.iter().enumerate().filter(|(_, call)| call.keep) {
                let provider = Provider::Kept(index as u32);
                for part in &call.parts {
                    for mv in moves(&plan.forward.moves, part.moves) {
                        let holder = if call.mode == CallMode::Copy { mv.to } else { mv.from };
                        gather.add(holder, mv.seq, mv.rows);
                    }
                    gather.flush(&mut ranks, provider, part.tensors, part.q_heads, part.kv_heads);
                }
            }
        }
        let table = plan.pass(pass);
        for (index, call) in table.calls.iter().enumerate().filter(|(_, call)| call.mode == CallMode::Copy) {
            for part in &call.parts {
                for mv in moves(&table.moves, part.moves) {
                    gather.add(mv.to, mv.seq, mv.rows);
                }
                gather.flush(&mut ranks, Provider::Call(index as u32), part.tensors, part.q_heads, part.kv_heads);
            }
        }
        for (slabs, rank) in ranks.iter_mut().zip(&table.ranks) {
            for (stream, ops) in rank.streams.iter().enumerate() {
                for (index, op) in ops.iter().enumerate() {
                    if let Work::Exchange(call) = op.work {
                        slabs.posts.push((call, OpId { stream: stream as u8, index: index as u32 }));
                    }
                }
            }
            slabs.posts.sort_unstable_by_key(|p| p.0);
        }
        ranks
    }
}

fn moves(table: &[crate::Move], span: Span) -> &[crate::Move] {
    table.get(span.range()).unwrap_or_default()
}

/// Rows gathered for one slab of every rank; only touched ranks are visited when it is flushed.
struct Gather {
    rows: Vec<Vec<(u32, Rows)>>,
    touched: Vec<u32>,
}

impl Gather {
    fn new(ranks: u32) -> Self {
        Self { rows: vec![Vec::new(); ranks as usize], touched: Vec::new() }
    }

    fn add(&mut self, rank: u32, seq: u32, rows: Rows) {
        if let Some(list) = self.rows.get_mut(rank as usize).filter(|_| !rows.is_empty()) {
            if list.is_empty() {
                self.touched.push(rank);
            }
            list.push((seq, rows));
        }
    }

    fn flush(
        &mut self,
        ranks: &mut [RankSlabs],
        provider: Provider,
        tensors: TensorSet,
        q_heads: HeadRange,
        kv_heads: HeadRange,
    ) {
        for rank in self.touched.drain(..) {
            let list = &mut self.rows[rank as usize];
            let runs = coalesce(list);
            list.clear();
            ranks[rank as usize].slabs.push(Slab { provider, tensors, q_heads, kv_heads, runs });
        }
    }
}

/// Sorts rows and joins neighbours of the same stride and class into runs.
fn coalesce(rows: &mut [(u32, Rows)]) -> Vec<Run> {
    rows.sort_unstable_by_key(|(seq, r)| (*seq, r.stride, r.class(), r.start));
    let mut runs: Vec<Run> = Vec::new();
    for &(seq, next) in rows.iter() {
        if let Some(last) = runs.last_mut() {
            let joins = last.seq == seq
                && last.rows.stride == next.stride
                && last.rows.class() == next.class()
                && next.start <= last.rows.start + last.rows.len * last.rows.stride;
            if joins {
                let len = (next.last() - last.rows.start) / next.stride + 1;
                last.rows.len = last.rows.len.max(len);
                continue;
            }
        }
        runs.push(Run { seq, rows: next, offset: 0 });
    }
    runs.sort_unstable_by_key(|run| (run.seq, run.rows.start));
    let mut offset = 0;
    for run in &mut runs {
        run.offset = offset;
        offset += run.rows.len;
    }
    runs
}
