use std::collections::BTreeSet;

use serde_json::Map;
use skewbench_exec::InstrKind;
use skewbench_plan::check::Limits;
use skewbench_plan::{AttentionShape, Domain, PackedSequence, Pass, PlaceContext, PlacedStep, Step};
use skewbench_sim::Pricing;
use skewbench_systems::registry::System;

use super::study::CaseFile;
use crate::cells::{Clock, Prepared, Resources, prepare, step_seed};
use crate::experiment::WorkloadFile;
use crate::failure::Failure;

/// One wave of a system, planned, checked and lowered.
pub(super) struct Wave {
    /// Its domains in the order of their ranks.
    pub domains: Vec<Prepared>,
}

impl Wave {
    /// Tokens of all sequences.
    pub fn tokens(&self) -> u64 {
        let sequences = self.domains.iter().flat_map(|domain| &domain.plan.sequences);
        sequences.map(|bounds| u64::from(bounds.last().copied().unwrap_or(0))).sum()
    }

    /// Unmasked pairs of all sequences, of one head.
    pub fn pairs(&self) -> u64 {
        let sequences = self.domains.iter().flat_map(|domain| &domain.plan.sequences);
        let lengths = sequences.flat_map(|bounds| bounds.windows(2).map(|w| u64::from(w[1] - w[0])));
        lengths.map(|l| l * (l + 1) / 2).sum()
    }

    /// True where a rank sends anything in a pass.
    pub fn sends(&self, pass: Pass) -> bool {
        let ranks = self.domains.iter().flat_map(|domain| &domain.program.pass(pass).ranks);
        let mut instrs = ranks.flat_map(|rank| rank.streams.iter().flatten());
        instrs.any(|instr| matches!(instr.kind, InstrKind::Transfer { .. }))
    }

    /// Pieces of heads that a rank computes one after another in the forward, at most.
    pub fn pieces(&self) -> u32 {
        let ranks = self.domains.iter().flat_map(|domain| &domain.program.forward.ranks);
        let of_rank = |rank: &skewbench_exec::RankProgram| {
            let launches = rank.streams.iter().flatten().filter_map(|instr| match instr.kind {
                InstrKind::Launch { q_heads, .. } => Some((q_heads.start, q_heads.end)),
                _ => None,
            });
            launches.collect::<BTreeSet<_>>().len() as u32
        };
        ranks.map(of_rank).max().unwrap_or(1).max(1)
    }
}

/// The step of a case: its documents, or the first windows of its workload.
///
/// # Errors
/// Unknown workloads, windows out of range.
pub(super) fn step_of(case: &CaseFile, seed: u64, resources: &mut Resources) -> Result<Step, Failure> {
    let gbs = case.sequences()?;
    let Some(name) = &case.workload else {
        let sequence = PackedSequence::new(case.documents.iter().copied());
        let window = u32::try_from(sequence.tokens())
            .map_err(|_| Failure::config(format!("case {}: more than {} tokens in a sequence", case.name, u32::MAX)))?;
        return Ok(Step { index: 0, window, sequences: vec![sequence; gbs as usize] });
    };
    let file =
        WorkloadFile { name: name.clone(), window_tokens: case.window_tokens, packing: None, cp: Some(case.layout.cp) };
    let key = resources.workload(&file)?;
    let source = resources.steps(&key, gbs, seed)?;
    source.chunk(0).first().cloned().ok_or_else(|| Failure::internal("a chunk without steps"))
}

/// Everything about a wave but its system.
pub(super) struct Setting<'a> {
    pub case: &'a CaseFile,
    pub shape: AttentionShape,
    pub seed: u64,
    pub pricing: &'a Pricing,
}

/// The waves of a step under a system.
///
/// # Errors
/// What the system refuses; a plan that the checker refuses; placements that keep documents for later steps.
pub(super) fn waves_of(
    name: &str,
    step: &Step,
    setting: &Setting<'_>,
    resources: &Resources,
) -> Result<Vec<Wave>, Failure> {
    let Setting { case, shape, seed, pricing } = *setting;
    let layout = case.layout.layout();
    layout
        .validate(u32::from(shape.q_heads), u32::from(shape.kv_heads), step.sequences.len() as u32, step.window)
        .map_err(|e| Failure::config(format!("case {}: {e}", case.name)))?;
    let system = resources.catalogue().system(name, &Map::new(), seed).map_err(Failure::config)?;
    let placement = system.placement();
    if placement.stateful() {
        return Err(Failure::config(format!(
            "{name} keeps documents for later steps, and a case is one step; compare it by time per token with --backend sim or replay"
        )));
    }
    let context = PlaceContext { layout, pool: system.pool(), seed: step_seed(seed, step.index), shape, cost: pricing };
    let placed = placement.placer().place(step, &context).map_err(Failure::config)?;
    (0..placed.waves.len()).map(|wave| one_wave(&system, &placed, wave, setting)).collect()
}

fn one_wave(system: &System, placed: &PlacedStep, wave: usize, setting: &Setting<'_>) -> Result<Wave, Failure> {
    let layout = setting.case.layout.layout();
    let domains = placed.domains(system.planner().scope(), layout.dp).into_iter().map(|range| {
        let members = &placed.waves[wave].sequences[range.start as usize..range.end as usize];
        let sequences: Vec<&PackedSequence> = members.iter().map(|s| &placed.sequences[*s as usize]).collect();
        let nodes = vec![0; sequences.len() * layout.cp as usize];
        let domain = Domain {
            sequences: &sequences,
            cp: layout.cp,
            shape: setting.shape,
            nodes: &nodes,
            cost: setting.pricing,
            time_factors: &[],
        };
        prepare(system, &domain, true, &Limits::default(), &Clock::default())
    });
    Ok(Wave { domains: domains.collect::<Result<_, _>>()? })
}
