use std::sync::{Arc, OnceLock};

use skewbench_cpu::{Inputs, Report};
use skewbench_exec::Program;
use skewbench_plan::{
    Domain, FlopsCost, PackedSequence, PlaceContext, PlacedStep, Placement, Planner, Scope, SystemError,
};
use skewbench_sim::{Pricing, Profile};

use crate::finding::{Ending, Finding, Place, Seen};
use crate::{Case, domain, placement};

/// Runs programs with real data elsewhere than on the CPU.
pub trait Runner: Sync {
    /// Name of the backend.
    fn name(&self) -> &'static str;

    /// Largest error of a right program, as [`TOLERANCE`](crate::TOLERANCE) is for the CPU.
    fn tolerance(&self) -> f64;

    /// The case that stands for a drawn one, where kernels lack some sizes or there is no room for so many ranks.
    fn adapt(&self, case: Case) -> Case;

    /// Runs a program and compares what it leaves with dense attention.
    ///
    /// # Errors
    /// Why it does not run to its end.
    fn measure(&self, program: &Program, inputs: Inputs) -> Result<Report, String>;
}

/// What runs the program of a verified plan.
#[derive(Clone, Copy)]
pub enum Backend<'a> {
    /// Real data on the CPU, compared with dense attention.
    Cpu,
    /// The simulator: prices are plausible, complete and repeatable.
    Sim,
    /// Real data elsewhere.
    Runner(&'a dyn Runner),
}

impl Backend<'_> {
    /// Those that every machine has.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Sim];

    /// Name as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Sim => "sim",
            Self::Runner(runner) => runner.name(),
        }
    }

    /// Largest error of a right program.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Cpu | Self::Sim => crate::TOLERANCE,
            Self::Runner(runner) => runner.tolerance(),
        }
    }
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

/// Domains of a case that are planned, where it has as many; more where the last step has more waves.
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
pub fn verify_case(subject: Subject<'_>, case: &Case, backend: Backend<'_>) -> Ending {
    let case = &match backend {
        Backend::Runner(runner) => runner.adapt(case.clone()),
        Backend::Cpu | Backend::Sim => case.clone(),
    };
    match run(subject, case, backend) {
        Ok(seen) => Ending::Right(seen),
        Err(Ok(SystemError::Failed(what))) => Ending::Wrong(Finding::Failed { what }),
        Err(Ok(refused)) => Ending::Refused(refused),
        Err(Err(finding)) => Ending::Wrong(finding),
    }
}

fn run(subject: Subject<'_>, case: &Case, backend: Backend<'_>) -> Result<Seen, Result<SystemError, Finding>> {
    let pricing = pricing().map_err(Err)?;
    let layout = case.layout();
    let context =
        |step: u64| PlaceContext { layout, pool: subject.pool, seed: case.seed ^ step, shape: case.shape, cost: &COST };
    let placed = placement::place(subject.placement, &case.loaded(), context)?;
    let mut seen = Seen::default();
    for (at, step) in places(&placed, subject.planner.scope(), case.dp, case.seed) {
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

/// The domains that are planned: one of each wave of the last step, which drains placements that keep state, then one of
/// every other wave, then the next of each. Which wave and which domain come first turns with the seed, so that over many
/// cases all steps and all ranks are reached.
fn places(placed: &[PlacedStep], scope: Scope, dp: u32, seed: u64) -> Vec<(Place, &PlacedStep)> {
    let waves = |number: usize| (0..placed[number].waves.len()).map(move |wave| (number, wave));
    let last = placed.len().saturating_sub(1);
    let mut order: Vec<(usize, usize)> = (0..last).flat_map(waves).collect();
    let count = order.len().max(1) as u64;
    order.rotate_left((seed % count) as usize);
    let drained = placed.last().map_or(0, |step| step.waves.len());
    order.splice(0..0, (0..drained).map(|wave| (last, wave)));
    let mut all = Vec::new();
    for (turn, (number, wave)) in order.into_iter().enumerate() {
        let step = &placed[number];
        let mut domains = step.domains(scope, dp);
        let count = domains.len().max(1) as u64;
        domains.rotate_left((seed.wrapping_add(turn as u64) % count) as usize);
        let place = |range: std::ops::Range<u32>| Place { step: number, wave, first: range.start, end: range.end };
        all.extend(domains.into_iter().enumerate().map(|(round, range)| (round, place(range), step)));
    }
    all.sort_by_key(|(round, ..)| *round);
    all.into_iter().map(|(_, place, step)| (place, step)).take(DOMAINS.max(drained)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skewbench_plan::Wave;

    use super::*;

    /// Steps of so many waves, four data-parallel ranks in two pools.
    fn steps(waves: &[u32]) -> Vec<PlacedStep> {
        let wave = |wave: u32| Wave { sequences: (4 * wave..4 * wave + 4).collect() };
        let step = |waves: &u32| PlacedStep {
            waves: (0..*waves).map(wave).collect(),
            pools: vec![0..2, 2..4],
            sequences: Vec::new(),
            preserved: true,
            late: Vec::new(),
            delayed_tokens: 0,
        };
        waves.iter().map(step).collect()
    }

    #[test]
    fn the_last_step_is_always_planned_and_all_domains_over_many_seeds() {
        let placed = steps(&[2, 2, 1, 2]);
        for scope in [Scope::Sequence, Scope::Pool, Scope::Wave] {
            let mut reached = BTreeSet::new();
            for seed in 0..60 {
                let found = places(&placed, scope, 4, seed);
                assert_eq!(found.len(), DOMAINS);
                let last: Vec<usize> = found.iter().filter(|(at, _)| at.step == 3).map(|(at, _)| at.wave).collect();
                assert_eq!(last, [0, 1]);
                reached.extend(found.iter().map(|(at, _)| (at.step, at.wave, at.first)));
            }
            let domains = match scope {
                Scope::Sequence => 4,
                Scope::Pool => 2,
                Scope::Wave => 1,
            };
            assert_eq!(reached.len(), 7 * domains, "{scope:?}: {reached:?}");
        }
        assert_eq!(places(&steps(&[1, 9]), Scope::Wave, 4, 5).len(), 9);
        assert_eq!(places(&steps(&[1]), Scope::Sequence, 4, 5).len(), 4);
        assert!(places(&[], Scope::Pool, 4, 5).is_empty());
    }
}
