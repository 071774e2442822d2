use std::sync::Arc;

use skewbench_cpu::{Needle, needles};
use skewbench_cuda::attention::{Attention, CuDnn, CuDnnOptions, Plain};
use skewbench_cuda::run::{
    AttentionFactory, CardState, Execution, Generated, Mode, SampleOptions, Sampler, Session, SessionOptions, Transport,
};
use skewbench_cuda::steps::{StepOptions, device_program};
use skewbench_plan::Pass;

use super::waves::Wave;
use crate::cells::Prepared;
use crate::cli::Kernel;
use crate::failure::{Exit, Failure};

/// Keys that dominate one row each, at the bounds of tiles and documents, at most.
const NEEDLES: usize = 64;

/// Pairs of sampled rows, and of sampled keys, of a domain at most: a second of a host's cores.
const MOST_PAIRS: u64 = 16 << 20;

/// What executes waves.
pub(super) trait Bench {
    /// Makes a wave ready: nothing of it is timed.
    ///
    /// # Errors
    /// The wave does not fit, or no kernel supports one of its calls.
    fn load(&mut self, wave: &Wave, transport: Transport) -> Result<(), Failure>;

    /// Gives the loaded wave random inputs with needles; all else is poisoned. Without, a wave would run on whatever its
    /// memory holds, and a card is faster on zeros.
    ///
    /// # Errors
    /// A card that fails.
    fn fill(&mut self, wave: &Wave, seed: u64) -> Result<(), Failure>;

    /// Computes the wave on the inputs that it was filled with and compares sampled rows with dense attention in f64. Returns
    /// the largest error by tensor.
    ///
    /// # Errors
    /// A result that is wrong; a card that fails.
    fn verify(&mut self, wave: &Wave, seed: u64) -> Result<Vec<(&'static str, f64)>, Failure>;

    /// Executes a pass of the loaded wave once; nanoseconds of every rank.
    ///
    /// # Errors
    /// A card that fails or hangs.
    fn execute(&mut self, pass: Pass, mode: Mode) -> Result<Vec<u64>, Failure>;

    /// What the cards do now.
    fn states(&self) -> Vec<Option<CardState>>;
}

/// Attention kernels of every rank.
pub fn factory(kernel: Kernel, repeatable: bool) -> AttentionFactory {
    Arc::new(move |context| {
        let made: Box<dyn Attention> = match kernel {
            Kernel::Cudnn => Box::new(CuDnn::open(context, CuDnnOptions { repeatable, ..CuDnnOptions::default() })?),
            Kernel::Plain => Box::new(Plain::open(context)?),
        };
        Ok(made)
    })
}

/// Cards of this host, one a rank.
pub(super) struct OnCards {
    session: Option<(Transport, Session)>,
    ranks: usize,
}

impl OnCards {
    /// Opens as many cards.
    ///
    /// # Errors
    /// A library or card that is absent.
    pub fn open(ranks: usize) -> Result<Self, Failure> {
        let mut this = Self { session: None, ranks };
        this.session(Transport::CopyEngines)?;
        Ok(this)
    }

    fn session(&mut self, transport: Transport) -> Result<&mut Session, Failure> {
        if self.session.as_ref().is_none_or(|(of, _)| *of != transport) {
            self.session = None;
            let options = SessionOptions { transport, ..SessionOptions::default() };
            let opened = Session::open(self.ranks, options, factory(Kernel::Cudnn, false))?;
            self.session = Some((transport, opened));
        }
        self.loaded()
    }

    fn loaded(&mut self) -> Result<&mut Session, Failure> {
        let session = self.session.as_mut().map(|(_, session)| session);
        session.ok_or_else(|| Failure::internal("no cards are open"))
    }
}

/// Inputs of every domain of a wave, with their needles.
fn inputs(wave: &Wave, seed: u64) -> Vec<(Generated, Vec<Needle>)> {
    let of = |(number, Prepared { plan, .. }): (usize, &Prepared)| {
        let needles = needles(plan, NEEDLES);
        let made = Generated::new(seed, number as u32, plan.shape).with_needles(&plan.sequences, &needles);
        (made, needles)
    };
    wave.domains.iter().enumerate().map(of).collect()
}

impl Bench for OnCards {
    fn load(&mut self, wave: &Wave, transport: Transport) -> Result<(), Failure> {
        let programs = wave.domains.iter().map(|domain| device_program(&domain.program, StepOptions::default()));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        self.session(transport)?.load(&programs).map_err(Failure::from)
    }

    fn fill(&mut self, wave: &Wave, seed: u64) -> Result<(), Failure> {
        let session = self.loaded()?;
        session.poison()?;
        let inputs: Vec<Generated> = inputs(wave, seed).into_iter().map(|(inputs, _)| inputs).collect();
        session.generate(&inputs).map_err(Failure::from)
    }

    fn verify(&mut self, wave: &Wave, seed: u64) -> Result<Vec<(&'static str, f64)>, Failure> {
        let session = self.loaded()?;
        let options = SampleOptions { seed, most_pairs: MOST_PAIRS, ..SampleOptions::default() };
        let mut samplers: Vec<Sampler> = inputs(wave, seed)
            .into_iter()
            .zip(&wave.domains)
            .enumerate()
            .map(|(number, ((made, needles), domain))| {
                Sampler::new(number, made, &domain.plan.sequences, &needles, options)
            })
            .collect();
        let whole = Execution::of(Mode::Whole);
        session.execute(Pass::Forward, whole)?;
        samplers.iter_mut().try_for_each(|sampler| sampler.forward(session))?;
        session.execute(Pass::Backward, whole)?;
        samplers.iter_mut().try_for_each(|sampler| sampler.backward(session))?;
        let mut worst: Vec<(&'static str, f64)> = Vec::new();
        for report in samplers.iter().map(Sampler::report) {
            report.verdict().map_err(|e| Failure::new(Exit::Verification, e))?;
            for tensor in report.tensors {
                match worst.iter_mut().find(|(name, _)| *name == tensor.tensor) {
                    Some((_, error)) => *error = error.max(tensor.error),
                    None => worst.push((tensor.tensor, tensor.error)),
                }
            }
        }
        Ok(worst)
    }

    fn execute(&mut self, pass: Pass, mode: Mode) -> Result<Vec<u64>, Failure> {
        let times = self.loaded()?.execute(pass, Execution::of(mode))?;
        Ok(times.into_iter().map(|time| time.ns).collect())
    }

    fn states(&self) -> Vec<Option<CardState>> {
        self.session.as_ref().map(|(_, session)| session.states()).unwrap_or_default()
    }
}
