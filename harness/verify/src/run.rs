use std::sync::{Arc, OnceLock};

use skewbench_plan::{
    Domain, FlopsCost, PackedSequence, PlaceContext, PlacedStep, Placement, Planner, Scope, SystemError,
};
use skewbench_sim::{Pricing, Profile};

use crate::finding::{Ending, Finding, Place, Seen};
use crate::{Case, domain, placement};

/// What runs the program of a verified plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Real data on the CPU, compared with dense attention.
    Cpu,
    /// The simulator: prices are plausible, complete and repeatable.
    Sim,
}

/// A system under verification.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Its placement.
    pub placement: &'a dyn Placement,
    /// Its planner.
    pub planner: &'a dyn Planner,
    /// Sequences of a pool, P.
    pub pool: u32,
}

/// Domains of a case that are planned at most: the first of each wave, then the next of each, and so on.
const DOMAINS: usize = 4;

/// A card that runs every shape at one rate, for placements and planners that ask for predicted times.
static COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };

fn pricing() -> Result<&'static Arc<Pricing>, Finding> {
    static PRICING: OnceLock<Result<Arc<Pricing>, String>> = OnceLock::new();
    let made =
        PRICING.get_or_init(|| Profile::named("h200").map(|p| Arc::new(Pricing::new(p))).map_err(|e| e.to_string()));
    made.as_ref().map_err(|what| Finding::Panic { part: "profile", what: what.clone() })
}

/// Runs one case through a system and a backend.
pub fn verify_case(subject: Subject<'_>, case: &Case, backend: Backend) -> Ending {
    match run(subject, case, backend) {
        Ok(seen) => Ending::Right(seen),
        Err(Ok(SystemError::Failed(what))) => Ending::Wrong(Finding::Failed { what }),
        Err(Ok(refused)) => Ending::Refused(refused),
        Err(Err(finding)) => Ending::Wrong(finding),
    }
}

fn run(subject: Subject<'_>, case: &Case, backend: Backend) -> Result<Seen, Result<SystemError, Finding>> {
    let pricing = pricing().map_err(Err)?;
    let layout = case.layout();
    let context =
        |step: u64| PlaceContext { layout, pool: subject.pool, seed: case.seed ^ step, shape: case.shape, cost: &COST };
    let placed = placement::place(subject.placement, &case.loaded(), context)?;
    let mut seen = Seen::default();
    for (at, step) in places(&placed, subject.planner.scope(), case.dp).into_iter().take(DOMAINS) {
        let members = &step.waves[at.wave].sequences[at.first as usize..at.end as usize];
        let sequences: Vec<&PackedSequence> = members.iter().map(|s| &step.sequences[*s as usize]).collect();
        let ranks = (at.first..at.end).flat_map(|dp| (0..case.cp).map(move |cp| layout.node(dp, cp)));
        let nodes: Vec<u32> = ranks.collect();
        let domain = Domain {
            sequences: &sequences,
            cp: case.cp,
            shape: case.shape,
            nodes: &nodes,
            cost: &**pricing,
            time_factors: &[],
        };
        domain::verify(subject.planner, &domain, pricing, backend, case.seed, at, &mut seen)?;
    }
    Ok(seen)
}

/// Domains of all steps, the first domain of every wave before the second of any.
fn places(placed: &[PlacedStep], scope: Scope, dp: u32) -> Vec<(Place, &PlacedStep)> {
    let mut all = Vec::new();
    for (number, step) in placed.iter().enumerate() {
        let domains: Vec<std::ops::Range<u32>> = match scope {
            Scope::Sequence => (0..dp).map(|r| r..r + 1).collect(),
            Scope::Pool => step.pools.clone(),
            Scope::Wave => std::iter::once(0..dp).collect(),
        };
        for wave in 0..step.waves.len() {
            all.extend(
                domains.iter().enumerate().map(|(order, range)| {
                    (order, Place { step: number, wave, first: range.start, end: range.end }, step)
                }),
            );
        }
    }
    all.sort_by_key(|(order, ..)| *order);
    all.into_iter().map(|(_, place, step)| (place, step)).collect()
}
