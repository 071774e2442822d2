use std::sync::{Condvar, Mutex, PoisonError};

use skewbench_cpu::{Inputs, Outputs, Report, Table, compare, reference};
use skewbench_cuda::run::{Execution, Mode, Placement, Session, SessionOptions, cards, rounded};
use skewbench_cuda::steps::{StepOptions, device_program};
use skewbench_cuda::{BF16_TOLERANCE, CudaError};
use skewbench_exec::Program;
use skewbench_plan::{AttentionShape, Pass};
use skewbench_verify::{Case, Runner};

use super::bench::factory;
use crate::cli::Kernel;
use crate::failure::Failure;

/// Data- and context-parallel ranks of a case at most: every rank has kernels of its own on a card that it shares.
const MOST: (u32, u32) = (2, 4);
/// Sessions that build and run at once, so that building graphs does not wait for one thread.
const SESSIONS: usize = 4;

/// How programs are verified on cards.
#[derive(Clone, Copy, Debug)]
pub struct CardOptions {
    /// Attention kernels.
    pub kernel: Kernel,
    /// Sums are added in one order; every program runs twice, and its results must be the same bit by bit.
    pub repeatable: bool,
}

/// Runs programs of verified plans on the cards of this host. Programs of more ranks than cards share them.
pub struct Cards {
    options: CardOptions,
    cards: usize,
    idle: Mutex<Vec<Session>>,
    returned: Condvar,
}

impl Cards {
    /// Opens the cards.
    ///
    /// # Errors
    /// A library or card that is absent.
    pub fn open(options: CardOptions) -> Result<Self, Failure> {
        let cards = cards()?;
        let this = Self { options, cards, idle: Mutex::default(), returned: Condvar::new() };
        let threads = rayon::current_num_threads().clamp(1, SESSIONS);
        let sessions = (0..threads).map(|_| this.shared()).collect::<Result<Vec<_>, _>>()?;
        *this.idle.lock().unwrap_or_else(PoisonError::into_inner) = sessions;
        Ok(this)
    }

    fn shared(&self) -> Result<Session, Failure> {
        let options = SessionOptions { placement: Placement::Shared(self.cards), ..SessionOptions::default() };
        let factory = factory(self.options.kernel, self.options.repeatable);
        Session::open((MOST.0 * MOST.1) as usize, options, factory).map_err(Failure::from)
    }

    fn with_session<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        let mut session = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                match idle.pop() {
                    Some(session) => break session,
                    None => idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        let result = work(&mut session);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        self.returned.notify_one();
        result
    }

    fn run(&self, session: &mut Session, program: &Program, inputs: &Inputs) -> Result<Outputs, String> {
        let text = |e: CudaError| e.to_string();
        let options = StepOptions { repeatable: self.options.repeatable };
        session.load(&[device_program(program, options).map_err(text)?]).map_err(text)?;
        let mut once = || -> Result<Outputs, CudaError> {
            let mut outputs = vec![Outputs::unwritten(inputs)];
            session.poison()?;
            session.upload(std::slice::from_ref(inputs))?;
            for pass in [Pass::Forward, Pass::Backward] {
                session.execute(pass, Execution::of(Mode::Whole))?;
                session.outputs(pass, &mut outputs)?;
            }
            outputs.pop().ok_or_else(|| CudaError::Program("no outputs came back".to_owned()))
        };
        let outputs = once().map_err(text)?;
        if self.options.repeatable && !same(&outputs, &once().map_err(text)?, inputs.sequences.len()) {
            return Err("two executions gave different bits".to_owned());
        }
        Ok(outputs)
    }
}

/// Every bit of every result of so many sequences.
fn same(a: &Outputs, b: &Outputs, sequences: usize) -> bool {
    let pairs: [(&Table, &Table); 5] = [(&a.o, &b.o), (&a.lse, &b.lse), (&a.dq, &b.dq), (&a.dk, &b.dk), (&a.dv, &b.dv)];
    let bits = |table: &Table, seq: usize| -> Vec<u32> { table.sequence(seq).iter().map(|x| x.to_bits()).collect() };
    pairs.iter().all(|(a, b)| (0..sequences).all(|seq| bits(a, seq) == bits(b, seq)))
}

impl Runner for Cards {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn tolerance(&self) -> f64 {
        BF16_TOLERANCE
    }

    fn adapt(&self, case: Case) -> Case {
        let sequences = case.steps.iter().map(Vec::len).min().unwrap_or(0);
        let dp = (1..=MOST.0.min(case.dp)).rev().find(|dp| sequences.is_multiple_of(*dp as usize)).unwrap_or(1);
        // Kernels of matrix units take heads of multiples of eight elements; those in use have 64 or 128.
        let head_dim = if case.shape.head_dim >= 16 { 128 } else { 64 };
        Case { dp, cp: case.cp.min(MOST.1), shape: AttentionShape { head_dim, ..case.shape }, ..case }
    }

    fn measure(&self, program: &Program, inputs: Inputs) -> Result<Report, String> {
        let inputs = rounded(inputs);
        let outputs = self.with_session(|session| self.run(session, program, &inputs))?;
        // Not while a session is held: the reference runs in the pool that the waiting cases run in.
        Ok(compare(&inputs, &outputs, &reference::attention(&inputs)))
    }
}
