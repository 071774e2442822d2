use skewbench_exec::{Program, lower, outline};
use skewbench_plan::check::{Limits, check_facts, check_only, locate};
use skewbench_plan::{Domain, Facts, Layout, Plan, PlanError};
use skewbench_systems::registry::System;

use super::clock::{Clock, Phase};
use crate::failure::Failure;

/// Nodes of the ranks of a domain that starts at data-parallel rank `first`, counted from its first node.
pub(super) fn nodes(layout: &Layout, first: u32, sequences: u32) -> Vec<u32> {
    let all: Vec<u32> = (first..first + sequences)
        .flat_map(|dp_rank| (0..layout.cp).map(move |cp_rank| layout.node(dp_rank, cp_rank)))
        .collect();
    let base = all.iter().copied().min().unwrap_or(0);
    all.into_iter().map(|node| node - base).collect()
}

/// A planned, checked and lowered domain.
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// Its program.
    pub program: Program,
    /// Peak bytes of every rank; empty when the plan was not checked.
    pub peak_bytes: Vec<u64>,
}

/// Plans a domain, checks the plan and lowers it.
///
/// # Errors
/// When the system cannot plan it, or the checker refuses the plan.
pub fn prepare(
    system: &System,
    domain: &Domain<'_>,
    check: bool,
    limits: &Limits,
    clock: &Clock,
) -> Result<Prepared, Failure> {
    let plan = planned(system, domain, clock)?;
    let checking = || {
        let facts = Facts::of(&plan)?;
        if check || !system.planner().trusted() {
            let checked = check_facts(&plan, &facts, limits)?;
            return Ok((facts, checked.operands, checked.peak_bytes));
        }
        let operands = locate(&plan, &facts)?;
        Ok((facts, operands, Vec::new()))
    };
    let checked: Result<_, PlanError> = clock.time(Phase::Check, checking);
    let (facts, operands, peak_bytes) = checked.map_err(Failure::config)?;
    let program = clock.time(Phase::Lower, || lower(&plan, &facts, &operands)).map_err(Failure::internal)?;
    Ok(Prepared { plan, program, peak_bytes })
}

/// As [`prepare`], for a program that is only priced.
///
/// # Errors
/// As [`prepare`].
pub(super) fn prepare_outline(
    system: &System,
    domain: &Domain<'_>,
    check: bool,
    limits: &Limits,
    clock: &Clock,
) -> Result<Prepared, Failure> {
    let plan = planned(system, domain, clock)?;
    let checking = || {
        let facts = Facts::of(&plan)?;
        let checks = check || !system.planner().trusted();
        let peak_bytes = if checks { check_only(&plan, &facts, limits)? } else { Vec::new() };
        Ok((facts, peak_bytes))
    };
    let checked: Result<_, PlanError> = clock.time(Phase::Check, checking);
    let (facts, peak_bytes) = checked.map_err(Failure::config)?;
    let program = clock.time(Phase::Lower, || outline(&plan, &facts)).map_err(Failure::internal)?;
    Ok(Prepared { plan, program, peak_bytes })
}

fn planned(system: &System, domain: &Domain<'_>, clock: &Clock) -> Result<Plan, Failure> {
    clock.time(Phase::Plan, || system.planner().plan(domain)).map_err(Failure::config)
}
