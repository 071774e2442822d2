use std::collections::BTreeSet;
use std::sync::Arc;

use rayon::prelude::*;
use skewbench_cuda::CudaError;
use skewbench_cuda::run::Transport;

use super::log::{Log, Place};
use super::measure::Plan;
use super::study::CaseFile;
use super::waves::{Setting, Wave, step_of, waves_of};
use crate::cells::Resources;
use crate::failure::Failure;
use crate::scheduler::check_interrupted;
use crate::shipped::Failed;

/// A case with one count of heads and one transport, its systems planned.
pub(super) struct Block<'a> {
    pub case: &'a CaseFile,
    pub heads: (u16, u16),
    pub carrier: Transport,
    pub samples: u32,
    pub warm_up: u32,
    pub apart: u32,
    pub rounds: u32,
    pub entrants: Vec<Entrant>,
}

/// A system in a block.
pub(super) struct Entrant {
    pub name: String,
    /// Its waves; blocks of other transports share them.
    pub waves: Arc<Vec<Wave>>,
    /// Forward and backward of all waves, executed whole and timed.
    pub taken: u32,
    pub standing: Standing,
}

/// What becomes of a system in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is measured.
    In,
    /// It failed and is measured no longer.
    Failed,
    /// Some of it was left out, since the budget was spent.
    LeftOut,
}

impl Block<'_> {
    /// The case, heads and transport in a few words.
    pub fn name(&self) -> String {
        format!("{} {}:{} {}", self.case.name, self.heads.0, self.heads.1, self.transport())
    }

    /// Ranks in text.
    pub fn layout(&self) -> String {
        layout(self.case)
    }

    /// What carries its transfers, in tables.
    pub fn transport(&self) -> &'static str {
        transport(self.case, self.carrier)
    }

    /// A row about what a system could not do here.
    pub fn failed(&self, system: &str, reason: impl std::fmt::Display) -> Failed {
        failed(self.case, self.heads, self.carrier, system, reason)
    }

    /// Where one of its waves stands in tables.
    pub fn place<'p>(&'p self, system: &'p str, wave: u32) -> Place<'p> {
        Place { system, case: &self.case.name, heads: self.heads, transport: self.transport(), wave }
    }
}

fn layout(case: &CaseFile) -> String {
    format!("dp={},cp={}", case.layout.dp, case.layout.cp)
}

fn transport(case: &CaseFile, carrier: Transport) -> &'static str {
    if case.ranks() == 1 { "none" } else { carrier.name() }
}

fn failed(
    case: &CaseFile,
    heads: (u16, u16),
    carrier: Transport,
    system: &str,
    reason: impl std::fmt::Display,
) -> Failed {
    Failed {
        system: system.to_owned(),
        case: case.name.clone(),
        layout: layout(case),
        transport: transport(case, carrier).to_owned(),
        reason: format!("{}:{} heads: {reason}", heads.0, heads.1),
    }
}

/// Plans every case under all of its systems. What cannot be planned, or needs more cards than there are, is a row of
/// failures; a case of unknown documents, too.
///
/// # Errors
/// A log that cannot be written, an unknown profile, an interruption.
pub(super) fn resolve<'a>(
    plan: &Plan<'a>,
    resources: &mut Resources,
    log: &mut Log,
) -> Result<Vec<Block<'a>>, Failure> {
    let machine = resources.machine(plan.profile, &Default::default())?;
    let pricing = resources.pricing(&machine)?.clone();
    let study = plan.study;
    let mut blocks = Vec::new();
    for case in &study.cases {
        let systems = if case.systems.is_empty() || plan.chosen { &plan.systems } else { &case.systems };
        let carriers = if case.transports.is_empty() { &study.transports } else { &case.transports };
        // Ranks that send nothing to each other are the same under every transport.
        let carriers = if case.ranks() == 1 { &carriers[..1] } else { &carriers[..] };
        let needed = case.ranks() as usize;
        let seed = plan.seed_of(case);
        let step = if needed > plan.ranks {
            Err(CudaError::Cards { needed, found: plan.ranks }.into())
        } else {
            step_of(case, seed, resources)
        };
        for heads in &case.heads {
            check_interrupted()?;
            let shape = CaseFile::shape(*heads, study.head_dim);
            let setting = Setting { case, shape, seed, pricing: &pricing };
            let planned: Vec<Result<Arc<Vec<Wave>>, Failure>> = match &step {
                Ok(step) => {
                    let resources = &*resources;
                    let waves = |system: &String| waves_of(system, step, &setting, resources).map(Arc::new);
                    systems.par_iter().map(waves).collect()
                }
                Err(why) => systems.iter().map(|_| Err(why.clone())).collect(),
            };
            for carrier in carriers {
                let mut entrants = Vec::new();
                for (system, waves) in systems.iter().zip(&planned) {
                    match waves {
                        Ok(waves) => entrants.push(Entrant {
                            name: system.clone(),
                            waves: Arc::clone(waves),
                            taken: 0,
                            standing: Standing::In,
                        }),
                        Err(why) => log.failed(&failed(case, *heads, *carrier, system, why))?,
                    }
                }
                blocks.push(Block {
                    case,
                    heads: *heads,
                    carrier: *carrier,
                    samples: case.samples.unwrap_or(study.samples),
                    warm_up: case.warm_up.unwrap_or(study.warm_up),
                    apart: case.apart.unwrap_or(study.apart),
                    rounds: case.rounds.unwrap_or(study.rounds),
                    entrants,
                });
            }
        }
    }
    Ok(blocks)
}

/// Blocks by round, in the order in which they are measured: every block once before any twice. Blocks of one transport stay
/// together, and the transport that ends a round begins the next, since another one starts cards and kernels anew.
pub(super) fn rounds(blocks: &[Block<'_>]) -> Vec<(u32, usize)> {
    let carriers: Vec<&'static str> = blocks.iter().fold(Vec::new(), |mut known, block| {
        if !known.contains(&block.carrier.name()) {
            known.push(block.carrier.name());
        }
        known
    });
    let most = blocks.iter().map(|block| block.rounds).max().unwrap_or(0);
    let mut order = Vec::new();
    for round in 0..most {
        let turned = |at: usize| if round % 2 == 0 { at } else { carriers.len() - 1 - at };
        for carrier in (0..carriers.len()).map(turned).map(|at| carriers[at]) {
            let here = |(_, block): &(usize, &Block<'_>)| block.carrier.name() == carrier && block.rounds > round;
            order.extend(blocks.iter().enumerate().filter(here).map(|(number, _)| (round, number)));
        }
    }
    order
}

/// Tokens of a rank of the cases that have these heads, for the token-wise work beside them. Cases without a step, which are
/// failures already, have none.
pub(super) fn tokens_of_ranks(plan: &Plan<'_>, heads: (u16, u16), resources: &mut Resources) -> BTreeSet<u32> {
    let cases = plan.study.cases.iter().filter(|case| case.heads.contains(&heads));
    cases
        .filter_map(|case| Some(step_of(case, plan.seed_of(case), resources).ok()?.window / case.layout.cp.max(1)))
        .collect()
}
