//! Accepts a plan only if every pair is computed once, on data that has arrived, and every result gets home.
//!
//! Five questions, in this order: are all indices inside their tables and do the shards partition the sequences
//! (`shape`); does every rank get to the end of its streams (`order`); is every unmasked pair of every document and
//! head computed exactly once (`coverage`); is every operand on its rank, in one piece, when a tile or a transfer
//! starts (`operands`); does every contribution to an accumulator arrive home exactly once (`accumulators`).
//! Peak memory follows from the answers (`memory`).

mod accumulators;
mod coverage;
pub(crate) mod intervals;
mod memory;
mod operands;
pub(crate) mod order;
mod sends;
pub(crate) mod shape;

use crate::{Facts, MoveIndices, Operands, Order, Pass, Plan, PlanError, RankSlabs, TensorSet};

/// What a plan may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that a rank may hold at once for the layer's attention; no limit when `None`.
    pub memory_bytes: Option<u64>,
}

/// What the checker learned about a plan that it accepts.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Peak bytes a rank holds for the layer's attention, inputs, outputs and kept operands included.
    pub peak_bytes: Vec<u64>,
    /// Where the operands of launches lie, forward and backward.
    pub operands: [Operands; 2],
}

/// One pass with what the questions share.
pub(crate) struct View<'a> {
    plan: &'a Plan,
    pass: Pass,
    indices: &'a MoveIndices,
    slabs: &'a [RankSlabs],
    order: &'a Order,
}

impl View<'_> {
    fn error(&self, what: String) -> PlanError {
        error(self.plan, self.pass, what)
    }
}

pub(crate) fn error(plan: &Plan, pass: Pass, what: String) -> PlanError {
    PlanError { planner: plan.planner.clone(), pass: pass_name(pass), what }
}

fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
    }
}

/// Rows for messages: `rows 3..17` or `rows 3..17 by 4`.
fn rows_text(rows: crate::Rows) -> String {
    if rows.stride == 1 {
        format!("rows {}..{}", rows.start, rows.end())
    } else {
        format!("rows {}..{} by {}", rows.start, rows.end(), rows.stride)
    }
}

fn heads_text(heads: crate::HeadRange) -> String {
    format!("heads {}..{}", heads.start, heads.end)
}

fn tensors_text(tensors: TensorSet) -> String {
    tensors.iter().map(crate::Tensor::name).collect::<Vec<_>>().join(", ")
}

/// Checks both passes of a plan.
///
/// # Errors
/// The first violation found, with its rank, operation, packed sequence and rows.
pub fn check(plan: &Plan, limits: &Limits) -> Result<Checked, PlanError> {
    check_facts(plan, &Facts::of(plan)?, limits)
}

/// [`check`] for a plan whose [`Facts`] are known already.
///
/// # Errors
/// As [`check`].
pub fn check_facts(plan: &Plan, facts: &Facts, limits: &Limits) -> Result<Checked, PlanError> {
    examine(plan, facts, limits, operands::Memos::default())
}

/// Peak bytes of every rank of a plan that [`check_facts`] accepts, for those who do not ask where operands lie.
///
/// # Errors
/// As [`check`].
pub fn check_only(plan: &Plan, facts: &Facts, limits: &Limits) -> Result<Vec<u64>, PlanError> {
    examine(plan, facts, limits, operands::Memos::forgetful()).map(|checked| checked.peak_bytes)
}

fn examine<'a>(
    plan: &'a Plan,
    facts: &'a Facts,
    limits: &Limits,
    mut memos: operands::Memos<'a>,
) -> Result<Checked, PlanError> {
    let mut meter = memory::Meter::new(plan);
    let mut accepted = coverage::Accepted::default();
    let mut conserved = accumulators::Proofs::new(plan);
    let mut located = [Operands::default(), Operands::default()];
    for (slot, pass) in [Pass::Forward, Pass::Backward].into_iter().enumerate() {
        let of_pass = facts.pass(pass);
        let view = View { plan, pass, indices: &of_pass.indices, slabs: &of_pass.slabs, order: &of_pass.order };
        coverage::check(&view, &mut accepted)?;
        let (operands, uses) = operands::check(&view, &mut memos)?;
        located[slot] = operands;
        accumulators::check(&view, &mut conserved)?;
        meter.add(&view, &uses);
    }
    let peak_bytes = meter.peaks();
    let over = limits.memory_bytes.and_then(|limit| Some((limit, peak_bytes.iter().position(|peak| *peak > limit)?)));
    if let Some((limit, rank)) = over {
        let what = format!(
            "rank {rank} holds {} bytes at its peak, above the limit of {limit}; use more ranks, smaller pieces, or raise the limit",
            peak_bytes[rank]
        );
        return Err(PlanError { planner: plan.planner.clone(), pass: "memory", what });
    }
    Ok(Checked { peak_bytes, operands: located })
}

/// Locates the operands of all launches without checking anything else, for plans that are trusted.
///
/// # Errors
/// When an operand is not on its rank.
pub fn locate(plan: &Plan, facts: &Facts) -> Result<[Operands; 2], PlanError> {
    let mut memos = operands::Memos::default();
    let mut of = |pass| {
        let of_pass = facts.pass(pass);
        let view = View { plan, pass, indices: &of_pass.indices, slabs: &of_pass.slabs, order: &of_pass.order };
        operands::locate(&view, &mut memos)
    };
    Ok([of(Pass::Forward)?, of(Pass::Backward)?])
}
