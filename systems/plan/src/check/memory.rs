//! Peak bytes of every rank, by the lifetimes of its slabs and accumulators.

use super::{View, operands::LastUse};
use crate::{CallMode, Dtype, OpId, Pass, Plan, Provider, Tensor, TensorSet, Work};

/// Adds up what each rank holds over both passes.
pub(super) struct Meter {
    /// Inputs, outputs and gradients of the layer, held throughout.
    resident: Vec<u64>,
    /// What the forward leaves for the backward.
    kept: Vec<u64>,
    peaks: Vec<u64>,
}

/// Bytes of one row of all tensors in the set.
fn row_bytes(plan: &Plan, tensors: TensorSet, dtype: Dtype, q_heads: u32, kv_heads: u32) -> u64 {
    let heads = |t: Tensor| u64::from(if t.is_kv() { kv_heads } else { q_heads });
    tensors.iter().map(|t| t.row_bytes(plan.shape.head_dim, dtype) * heads(t)).sum()
}

impl Meter {
    pub(super) fn new(plan: &Plan) -> Self {
        let (q, kv) = (u32::from(plan.shape.q_heads), u32::from(plan.shape.kv_heads));
        let input = TensorSet::Q.union(TensorSet::KV).union(TensorSet::of(&[Tensor::DO]));
        let output = TensorSet::O_LSE.union(TensorSet::DQ).union(TensorSet::DKV);
        let mut resident = vec![0; plan.ranks as usize];
        for (shards, tensors) in [(&plan.entry, input), (&plan.exit, output)] {
            let bytes = row_bytes(plan, tensors, Dtype::Bf16, q, kv);
            for shard in shards {
                resident[shard.rank as usize] += u64::from(shard.rows.len) * bytes;
            }
        }
        Self { peaks: resident.clone(), kept: vec![0; resident.len()], resident }
    }

    pub(super) fn peaks(self) -> Vec<u64> {
        self.peaks
    }

    pub(super) fn add(&mut self, view: &View<'_>, uses: &LastUse) {
        let plan = view.plan;
        let table = plan.pass(view.pass);
        let mut changes: Vec<(u32, bool, u64)> = Vec::new();
        for rank in 0..plan.ranks {
            changes.clear();
            let r = rank as usize;
            let mut keeps = 0;
            for (slab, last) in view.slabs[r].slabs.iter().zip(uses.of(r)) {
                let Provider::Call(call) = slab.provider else { continue };
                let Some(post) = view.order.post(rank, call) else { continue };
                let bytes = u64::from(slab.len())
                    * row_bytes(plan, slab.tensors, Dtype::Bf16, slab.q_heads.len(), slab.kv_heads.len());
                let start = view.order.position(rank, post);
                changes.push((start, true, bytes));
                if view.pass == Pass::Forward && table.calls[call as usize].keep {
                    keeps += bytes;
                } else {
                    changes.push((start.max(*last) + 1, false, bytes));
                }
            }
            keeps += self.accumulators(view, rank, &mut changes);
            let mut held = self.resident[r] + self.kept[r];
            let mut peak = held;
            changes.sort_unstable();
            for (_, grows, bytes) in &changes {
                held = if *grows { held + bytes } else { held - bytes };
                peak = peak.max(held);
            }
            self.peaks[r] = self.peaks[r].max(peak);
            if view.pass == Pass::Forward {
                self.kept[r] = keeps;
            }
        }
    }

    /// Accumulators away from home live from the first launch or arrival before a departure until that departure; what
    /// arrives anywhere is staged while its call lasts. Returns the bytes that the forward keeps.
    fn accumulators(&self, view: &View<'_>, rank: u32, changes: &mut Vec<(u32, bool, u64)>) -> u64 {
        let plan = view.plan;
        let table = plan.pass(view.pass);
        let compute = table.ranks[rank as usize].streams.first();
        let first_launch = compute.and_then(|ops| ops.iter().position(|op| matches!(op.work, Work::Launch(_))));
        let mut keeps = 0;
        for (index, post) in view.order.posts(rank) {
            let (index, call) = (*index, &table.calls[*index as usize]);
            if call.mode != CallMode::Accumulate {
                continue;
            }
            let at = view.order.position(rank, *post);
            for (part, id) in call.parts.iter().zip(view.indices.parts(index as usize)) {
                let (sent, received) = view.indices.index(*id).rows(rank);
                let bytes = row_bytes(plan, part.tensors, call.dtype, part.q_heads.len(), part.kv_heads.len());
                let (sent, received) = (sent * bytes, received * bytes);
                let start = launch_before(view, rank, part.q_heads, part.kv_heads, *post)
                    .or(first_launch.map(|i| OpId { stream: crate::COMPUTE, index: i as u32 }))
                    .map_or(at, |op| view.order.position(rank, op).min(at));
                changes.push((start, true, sent));
                if call.keep {
                    keeps += sent;
                } else {
                    changes.push((at + 1, false, sent));
                }
                changes.push((at, true, received));
                changes.push((at + 1, false, received));
            }
        }
        keeps
    }
}

/// The first launch on the heads that is over before `post`.
fn launch_before(
    view: &View<'_>,
    rank: u32,
    q_heads: crate::HeadRange,
    kv_heads: crate::HeadRange,
    post: OpId,
) -> Option<OpId> {
    let ops = view.plan.pass(view.pass).ranks[rank as usize].streams.first()?;
    ops.iter().enumerate().find_map(|(index, op)| {
        let Work::Launch(launch) = op.work else { return None };
        let id = OpId { stream: crate::COMPUTE, index: index as u32 };
        let heads = launch.q_heads.overlaps(q_heads) || view.plan.shape.kv_of(launch.q_heads).overlaps(kv_heads);
        (heads && view.order.before(rank, id, post)).then_some(id)
    })
}
