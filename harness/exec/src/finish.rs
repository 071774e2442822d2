use std::sync::Arc;

use skewbench_plan::{CallMode, Dtype, HeadRange, Provider, Rows, Run, Slab, Span, Tensor};

use crate::arrivals::heads;
use crate::home::{repeated, total};
use crate::lower::{RankLowering, instr};
use crate::{Instr, InstrId, InstrKind, PassProgram, TransferCall, TransferPart};

/// Rows of accumulators that are home, and how many of them no call moves there.
type Settled<'a> = (&'a Arc<[(u32, Rows)]>, u64);

impl RankLowering<'_> {
    /// A call, with what it needs before and after.
    pub(crate) fn exchange(&self, program: &PassProgram, call: u32, out: &mut Vec<Instr>) {
        let transfer = &program.calls[call as usize];
        let rows = |part: &TransferPart| program.routes[part.routes as usize].rows[self.rank as usize];
        let pack: u64 = transfer
            .parts
            .iter()
            .map(|part| {
                let gathers = transfer.mode == CallMode::Copy && self.slices_heads(call, part);
                (rows(part).local + if gathers { rows(part).sent } else { 0 }) * part.row_bytes
            })
            .sum();
        if pack > 0 {
            out.push(instr(InstrKind::Pack { call, bytes: pack }));
        }
        out.push(instr(InstrKind::Transfer { call }));
        if transfer.mode == CallMode::Accumulate {
            let merged = |part| rows(part).received * self.merged_row_bytes(transfer, part);
            let bytes: u64 = transfer.parts.iter().map(merged).sum();
            if bytes > 0 {
                out.push(instr(InstrKind::Merge { call, bytes }));
            }
        }
    }

    /// Bytes of one row of a part that must be merged: all of it in f32; in bf16 what meets f32 sums here.
    fn merged_row_bytes(&self, transfer: &TransferCall, part: &TransferPart) -> u64 {
        if transfer.dtype == Dtype::F32 {
            return part.row_bytes;
        }
        let passes_on = self.arrivals.outside(part.routes).next().is_some();
        let summed = |tensor: Tensor| {
            let result = match tensor {
                Tensor::Lse => Tensor::O,
                Tensor::DV => Tensor::DK,
                other => other,
            };
            passes_on || self.at_home.iter().any(|home| home.tensor == result && home.summed)
        };
        let row = |tensor: Tensor| tensor.row_bytes(self.plan.shape.head_dim, transfer.dtype);
        part.tensors.iter().filter(|t| summed(*t)).map(|t| row(t) * u64::from(heads(part, t).len())).sum()
    }

    /// True when the part carries only some heads of a tensor that the rank holds with more heads side by side.
    fn slices_heads(&self, call: u32, part: &TransferPart) -> bool {
        let earlier = |slab: &&Slab| !matches!(slab.provider, Provider::Call(other) if other >= call);
        let slabs = &self.facts.slabs[self.rank as usize].slabs;
        part.tensors.iter().any(|tensor| {
            let (part_heads, slab_heads): (HeadRange, fn(&Slab) -> HeadRange) =
                if tensor.is_kv() { (part.kv_heads, |s| s.kv_heads) } else { (part.q_heads, |s| s.q_heads) };
            let mut holders =
                slabs.iter().filter(earlier).filter(|s| s.tensors.has(tensor) && slab_heads(s).contains(part_heads));
            !holders.any(|s| slab_heads(s) == part_heads)
        })
    }

    /// What the rank does once its launches and calls are over.
    pub(crate) fn finish(&self, program: &mut PassProgram, lowered: &mut [Vec<Instr>]) {
        let adds = last_additions(program, lowered);
        let (added, rounded) = self.settled_bytes();
        if let Some(compute) = lowered.first_mut().filter(|_| added + rounded > 0) {
            let after = events(program, &adds);
            compute.push(Instr { after, ..instr(InstrKind::Settle { added, rounded }) });
        }
        self.round_sums(program, lowered, &adds);
    }

    /// Bytes of rows that are home but lie in accumulators because their tiles reach beyond the rank's own rows: those
    /// that go to sums, and those that go to exit buffers.
    fn settled_bytes(&self) -> (u64, u64) {
        let mut known: Vec<Settled<'_>> = Vec::new();
        let (mut added, mut rounded) = (0, 0);
        for accumulator in self.accumulators.iter().filter(|a| !a.strays.is_empty()) {
            let moved = Run::coalesce(&mut self.arrivals.local(accumulator.tensor, accumulator.heads));
            // Head pieces on the same tiles share their rows, and mostly no row of them stays by a call.
            let twin = known.iter().find(|(strays, _)| moved.is_empty() && Arc::ptr_eq(strays, &accumulator.strays));
            let rows = match twin {
                Some((_, rows)) => *rows,
                None => {
                    let mut both: Vec<_> = moved.iter().map(|run| (run.seq, run.rows)).collect();
                    both.extend_from_slice(&accumulator.strays);
                    total(accumulator.strays.iter().map(|(_, rows)| *rows)) - repeated(&mut both)
                }
            };
            if moved.is_empty() {
                known.push((&accumulator.strays, rows));
            }
            let bytes =
                rows * u64::from(accumulator.heads.len()) * self.result_row_bytes(accumulator.tensor, Dtype::F32);
            let summed = self.at_home.iter().any(|home| home.tensor == accumulator.tensor && home.summed);
            *(if summed { &mut added } else { &mut rounded }) += bytes;
        }
        (added, rounded)
    }

    /// After the last addition, the finished sums of the rank's own rows become bf16.
    fn round_sums(&self, program: &mut PassProgram, lowered: &mut [Vec<Instr>], adds: &[InstrId]) {
        let shape = self.plan.shape;
        let summed = self.at_home.iter().filter(|home| home.summed);
        let row_bytes: u64 = summed
            .map(|home| match home.tensor {
                Tensor::DK => 2 * u64::from(shape.kv_heads) * home.tensor.row_bytes(shape.head_dim, Dtype::F32),
                _ => u64::from(shape.q_heads) * home.tensor.row_bytes(shape.head_dim, Dtype::F32),
            })
            .sum();
        let bytes = self.home.rows() * row_bytes;
        if bytes == 0 {
            return;
        }
        // Sums are complete once all streams have added to them and the compute stream has run out.
        let last = adds.last().map_or(0, |last| last.stream);
        let mut wait: Vec<InstrId> = adds.iter().copied().filter(|add| add.stream != last).collect();
        let end = lowered.first().and_then(|compute| compute.len().checked_sub(1));
        wait.extend(end.filter(|_| last != 0).map(|end| InstrId { stream: 0, index: end as u32 }));
        let after = events(program, &wait);
        if let Some(stream) = lowered.get_mut(last as usize) {
            stream.push(Instr { after, ..instr(InstrKind::Cast { bytes }) });
        }
    }
}

/// The last instruction of every transfer stream that adds to sums of its rank.
fn last_additions(program: &PassProgram, lowered: &[Vec<Instr>]) -> Vec<InstrId> {
    let accumulates =
        |call: u32| program.calls.get(call as usize).is_some_and(|call| call.mode == CallMode::Accumulate);
    let adds = |instr: &Instr| match instr.kind {
        InstrKind::Merge { .. } => true,
        InstrKind::Pack { call, .. } => accumulates(call),
        _ => false,
    };
    let streams = lowered.iter().enumerate().skip(1);
    streams
        .filter_map(|(s, list)| Some(InstrId { stream: s as u32, index: list.iter().rposition(adds)? as u32 }))
        .collect()
}

fn events(program: &mut PassProgram, list: &[InstrId]) -> Span {
    let start = program.events.len() as u32;
    program.events.extend_from_slice(list);
    Span { start, end: program.events.len() as u32 }
}
