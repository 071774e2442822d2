//! Ulysses (arXiv 2309.14509): an all-to-all turns sequence shards into head shards, one kernel call a rank computes whole
//! documents, a second all-to-all turns the output back.
//!
//! The sequence is sharded contiguously with bounds floor(i L / CP); lengths that CP does not divide need no padding. Rank r
//! gets piece r of CP near-equal pieces of the query heads with the KV heads that they read. Left open by the source, which
//! predates grouped-query attention, and chosen here: a KV head that several pieces read is sent to each of them (reported
//! as replicated) and its gradients are summed in f32 at home; with CP above the query heads some ranks get no attention
//! (reported as idle) unless the option `refuse_idle` makes that an error. As in training with saved activations, the
//! backward uses the Q, K, V, O and LSE that head shards kept, so it moves dO there and dQ, dK, dV back.

use serde::{Deserialize, Serialize};
use skewbench_plan::{
    Accounting, COMPUTE, Call, CallMode, Domain, Dtype, HeadRange, Launch, Mask, Move, OpId, Part, PassPlan, Plan,
    Planner, Rows, Scope, Shard, Span, SystemError, Tensor, TensorSet, Tile, Work,
};

use super::cp_group::{CpGroup, bound};
use crate::registry::PlannerEntry;
use crate::{Accepts, DefaultValue, OptionSpec};

const REFUSE_IDLE: OptionSpec = OptionSpec {
    name: "refuse_idle",
    alias: None,
    default: DefaultValue::Flag(false),
    accepts: Accepts::Flag,
    summary: "refuse CP above the query heads instead of leaving ranks idle",
};

/// Registry entry.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "ulysses",
    summary: "all-to-all between sequence shards and head shards",
    source: "DeepSpeed-Ulysses, arXiv 2309.14509",
    scope: Scope::Sequence,
    options: &[REFUSE_IDLE],
    build: |options| Ok(Box::new(Ulysses { options: options.section(&[REFUSE_IDLE])? })),
};

/// Options of [`Ulysses`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UlyssesOptions {
    /// CP above the query heads is an error.
    pub refuse_idle: bool,
}

/// The planner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ulysses {
    /// Options.
    pub options: UlyssesOptions,
}

/// Stream of all transfers.
const TRANSFER: u8 = 1;

impl Planner for Ulysses {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn scope(&self) -> Scope {
        ENTRY.scope
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let heads = u32::from(group.shape.q_heads);
        if self.options.refuse_idle && group.cp > heads {
            return Err(SystemError::Option {
                option: REFUSE_IDLE.name,
                value: "true".to_owned(),
                why: format!("cp = {} is above the {heads} query heads; lower cp or accept idle ranks", group.cp),
            });
        }
        Ok(Layouts::new(&group).plan(group))
    }

    /// The most query heads that a rank gets.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let group = CpGroup::of(domain, ENTRY.name)?;
        let heads = u64::from(group.shape.q_heads).div_ceil(u64::from(group.cp));
        Ok(domain.sequences.iter().map(|s| s.pairs()).sum::<u64>() * heads)
    }
}

/// Who holds what in the two layouts between which the all-to-alls go.
struct Layouts {
    /// Rank and rows of each sequence shard.
    shards: Vec<(u32, Rows)>,
    /// Rank, query heads and KV heads of each head shard.
    heads: Vec<(u32, HeadRange, HeadRange)>,
    /// KV heads that more than one head shard reads.
    shared_kv_heads: u32,
}

impl Layouts {
    fn new(group: &CpGroup) -> Self {
        let CpGroup { tokens, cp, shape, .. } = *group;
        let rows = |r| Rows::range(bound(tokens, r, cp), bound(tokens, r + 1, cp));
        let shards = (0..cp).map(|r| (r, rows(r))).filter(|(_, rows)| !rows.is_empty()).collect();
        let heads: Vec<_> = (0..cp)
            .filter(|_| tokens > 0)
            .map(|r| (r, HeadRange::piece(shape.q_heads, r, cp)))
            .filter(|(_, q)| !q.is_empty())
            .map(|(r, q)| (r, q, shape.kv_of(q)))
            .collect();
        let readers = |head: u16| heads.iter().filter(|(_, _, kv)| kv.start <= head && head < kv.end).count();
        let shared_kv_heads = (0..shape.kv_heads).filter(|&h| readers(h) > 1).count() as u32;
        Self { shards, heads, shared_kv_heads }
    }

    fn plan(&self, group: CpGroup) -> Plan {
        let tiles: Vec<Tile> = group
            .documents()
            .map(|(start, end)| Rows::range(start, end))
            .map(|rows| Tile { seq: 0, q: rows, k: rows })
            .collect();
        let mut forward = PassPlan::new(group.cp);
        let mut backward = PassPlan::new(group.cp);
        if group.cp > 1 && group.tokens > 0 {
            forward.moves = self.moves();
            backward.moves = forward.moves.clone();
            forward.calls = vec![
                self.dispatch(TensorSet::Q.union(TensorSet::KV), true),
                self.collect(TensorSet::of(&[Tensor::O]), Dtype::Bf16, true),
            ];
            backward.calls = vec![self.dispatch(TensorSet::of(&[Tensor::DO]), false)];
            if self.shared_kv_heads == 0 {
                backward.calls.push(self.collect(TensorSet::DQ.union(TensorSet::DKV), Dtype::Bf16, false));
            } else {
                backward.calls.push(self.collect(TensorSet::DQ, Dtype::Bf16, false));
                backward.calls.push(self.collect(TensorSet::DKV, Dtype::F32, false));
            }
        }
        backward.tiles = tiles.clone();
        forward.tiles = tiles;
        self.schedule(&mut forward);
        self.schedule(&mut backward);
        let shards: Vec<Shard> = self.shards.iter().map(|&(rank, rows)| Shard { rank, seq: 0, rows }).collect();
        Plan {
            planner: ENTRY.name.to_owned(),
            shape: group.shape,
            sequences: vec![group.bounds],
            ranks: group.cp,
            entry: shards.clone(),
            exit: shards,
            forward,
            backward,
            accounting: Accounting {
                idle_ranks: group.cp - self.heads.len() as u32,
                replicated_kv_heads: self.shared_kv_heads,
                ..Accounting::default()
            },
        }
    }

    /// For each head shard the moves to it from every sequence shard, then for each the moves back. Rows that stay on their
    /// rank are local moves, so that documents lie in one piece beside the rows that arrive.
    fn moves(&self) -> Vec<Move> {
        let pairs = || {
            self.heads.iter().flat_map(|&(head, ..)| self.shards.iter().map(move |&(home, rows)| (head, home, rows)))
        };
        let there = pairs().map(|(head, home, rows)| Move { from: home, to: head, seq: 0, rows });
        let back = pairs().map(|(head, home, rows)| Move { from: head, to: home, seq: 0, rows });
        there.chain(back).collect()
    }

    fn dispatch(&self, tensors: TensorSet, keep: bool) -> Call {
        Call { mode: CallMode::Copy, dtype: Dtype::Bf16, parts: self.parts(tensors, 0), keep }
    }

    fn collect(&self, tensors: TensorSet, dtype: Dtype, keep: bool) -> Call {
        Call { mode: CallMode::Accumulate, dtype, parts: self.parts(tensors, self.heads.len()), keep }
    }

    /// One part a head shard; their moves start at list `first` of the table.
    fn parts(&self, tensors: TensorSet, first: usize) -> Vec<Part> {
        let span = |i: usize| {
            let start = (first + i) * self.shards.len();
            Span { start: start as u32, end: (start + self.shards.len()) as u32 }
        };
        let part = |(i, &(_, q_heads, kv_heads)): (usize, _)| Part { moves: span(i), tensors, q_heads, kv_heads };
        self.heads.iter().enumerate().map(part).collect()
    }

    /// Posts the first call, computes, posts the other calls, on every rank that takes part.
    fn schedule(&self, pass: &mut PassPlan) {
        let tiles = Span { start: 0, end: pass.tiles.len() as u32 };
        let calls = pass.calls.len() as u32;
        let mut takes_part = vec![false; pass.ranks.len()];
        for rank in self.shards.iter().map(|s| s.0).chain(self.heads.iter().map(|h| h.0)) {
            takes_part[rank as usize] = true;
        }
        let mut heads = self.heads.iter().peekable();
        for (rank, streams) in (0u32..).zip(&mut pass.ranks) {
            let work = heads.next_if(|h| h.0 == rank);
            if !takes_part[rank as usize] {
                continue;
            }
            let arrived: Vec<OpId> =
                (calls > 0).then(|| streams.push(TRANSFER, Work::Exchange(0), Vec::new())).into_iter().collect();
            let computed: Vec<OpId> = work
                .map(|&(_, q_heads, _)| {
                    streams.push(COMPUTE, Work::Launch(Launch { tiles, mask: Mask::Causal, q_heads }), arrived)
                })
                .into_iter()
                .collect();
            for call in 1..calls {
                streams.push(TRANSFER, Work::Exchange(call), computed.clone());
            }
        }
    }
}
