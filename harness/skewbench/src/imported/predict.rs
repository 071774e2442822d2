use std::sync::Arc;

use rayon::prelude::*;
use skewbench_plan::check::Limits;
use skewbench_plan::{Domain, Layout, PackedSequence, Pass, Scope, Work};
use skewbench_sim::step_model::{Model, Recompute, StageLinear};
use skewbench_sim::{Machine, PassTimes, Pricing, Runs, simulate};
use skewbench_systems::registry::System;

use super::{Measured, Observation, TimedPass, Wave};
use crate::cells::{Clock, prepare};
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// What was timed on a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Of {
    /// Attention kernels of one layer alone.
    Kernels,
    /// Attention of one layer with its transfers, from its start to the rank's end.
    #[default]
    Attention,
    /// A micro-batch through all layers: attention with its transfers and token-wise work.
    Step,
}

impl Of {
    /// What it is in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Kernels => "attention kernels of one layer",
            Self::Attention => "attention of one layer with its transfers",
            Self::Step => "a micro-batch through all layers",
        }
    }
}

/// What ran when the times were measured.
pub struct Setup<'a> {
    /// System; its planner says who does what, its placement is the file's.
    pub system: &'a System,
    /// Layout.
    pub layout: Layout,
    /// Model.
    pub model: &'a Model,
    /// Profile that predicts.
    pub pricing: &'a Arc<Pricing>,
    /// What was timed.
    pub of: Of,
    /// What the backward computes again, of token-wise work.
    pub recompute: Recompute,
}

/// What is predicted of a rank in a pass, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Predicted {
    kernels: f64,
    rest: f64,
    launches: f64,
}

/// Every time beside what is predicted of it, in the order of waves, passes and ranks.
///
/// # Errors
/// A wave that the system cannot plan; an interruption.
pub fn observations(measured: &Measured, setup: &Setup<'_>) -> Result<Vec<Observation>, Failure> {
    let waves: Vec<Vec<Observation>> = measured
        .waves
        .par_iter()
        .enumerate()
        .map(|(index, wave)| {
            check_interrupted()?;
            let predicted =
                setup.wave(wave).map_err(|f| Failure { message: format!("wave {}: {f}", wave.number), ..f })?;
            let rows = wave.times.iter().flat_map(|(pass, times)| {
                times.iter().zip(&predicted).enumerate().map(|(rank, (ns, predicted))| {
                    let of = |p: &Predicted, q: &Predicted| Predicted {
                        kernels: p.kernels + q.kernels,
                        rest: p.rest + q.rest,
                        launches: p.launches + q.launches,
                    };
                    let [forward, backward] = predicted;
                    let p = match pass {
                        TimedPass::Forward => *forward,
                        TimedPass::Backward => *backward,
                        TimedPass::Both => of(forward, backward),
                    };
                    Observation {
                        wave: index,
                        rank,
                        pass: *pass,
                        measured: *ns,
                        kernels: p.kernels,
                        rest: p.rest,
                        launches: p.launches,
                    }
                })
            });
            Ok(rows.collect())
        })
        .collect::<Result<_, Failure>>()?;
    Ok(waves.into_iter().flatten().collect())
}

impl Setup<'_> {
    /// Both passes of every rank of a wave.
    fn wave(&self, wave: &Wave) -> Result<Vec<[Predicted; 2]>, Failure> {
        let together = match self.system.planner().scope() {
            Scope::Sequence => 1,
            Scope::Pool => self.system.pool().min(self.layout.dp).max(1) as usize,
            Scope::Wave => wave.sequences.len(),
        };
        let mut ranks = Vec::new();
        for (i, sequences) in wave.sequences.chunks(together).enumerate() {
            ranks.extend(self.domain((i * together) as u32, sequences)?);
        }
        Ok(ranks)
    }

    fn domain(&self, first: u32, sequences: &[PackedSequence]) -> Result<Vec<[Predicted; 2]>, Failure> {
        let layout = &self.layout;
        let places = (first..).take(sequences.len()).flat_map(|dp| (0..layout.cp).map(move |cp| (dp, cp)));
        let nodes: Vec<u32> = places.map(|(dp, cp)| layout.node(dp, cp)).collect();
        let refs: Vec<&PackedSequence> = sequences.iter().collect();
        let domain = Domain {
            sequences: &refs,
            cp: layout.cp,
            shape: self.model.shape(layout.tp),
            nodes: &nodes,
            cost: &**self.pricing,
            time_factors: &[],
        };
        let made = prepare(self.system, &domain, true, &Limits::default(), &Clock::default())?;
        let machine =
            Machine { cards_per_node: layout.cards_per_node, ..Machine::new(self.pricing.clone(), nodes.clone()) };
        let times = simulate(&made.program, &machine, Runs::default()).map_err(Failure::internal)?;
        let linear = StageLinear::layer(self.model, self.pricing.profile(), layout.tp, self.recompute);
        let ranks = (0..nodes.len()).map(|rank| {
            let tokens = sequences[rank / layout.cp as usize].tokens() as f64 / f64::from(layout.cp);
            let launches = |pass: Pass| {
                let ops = made.plan.pass(pass).ranks[rank].streams.iter().flatten();
                ops.filter(|op| matches!(op.work, Work::Launch(_))).count() as f64
            };
            [
                self.rank(&times.forward, rank, tokens * linear.forward_ps_per_token, launches(Pass::Forward)),
                self.rank(&times.backward, rank, tokens * linear.backward_ps_per_token, launches(Pass::Backward)),
            ]
        });
        Ok(ranks.collect())
    }

    fn rank(&self, times: &PassTimes, rank: usize, linear_ps: f64, launches: f64) -> Predicted {
        let kernels = times.launch_ps[rank] as f64 * 1e-3;
        let rest = times.rank_end_ps[rank] as f64 * 1e-3 - kernels;
        match self.of {
            Of::Kernels => Predicted { kernels, rest: 0.0, launches },
            Of::Attention => Predicted { kernels, rest, launches },
            Of::Step => {
                let layers = f64::from(self.model.layers);
                Predicted {
                    kernels: kernels * layers,
                    rest: (rest + linear_ps * 1e-3) * layers,
                    launches: launches * layers,
                }
            }
        }
    }
}
