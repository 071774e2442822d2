use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use skewbench_cpu::{Inputs, Outputs};
use skewbench_plan::Pass;

use super::card::{Card, cards};
use super::inputs::Generated;
use super::options::{Execution, Placement, RankTime, SessionOptions, Transport};
use super::rank::{Rank, Shared};
use super::rendezvous::Rendezvous;
use super::sample::Held;
use super::script::ScriptOptions;
use super::state::{CardState, Monitor};
use super::tables::{self, MadeRun, NAN_WORD};
use super::wave::Wave;
use super::worker::{Job, Worker, worker};
use crate::CudaError;
use crate::attention::Attention;
use crate::steps::{DeviceProgram, Region};

/// Makes the attention kernels of a rank, in the rank's thread, for its card.
pub type AttentionFactory = Arc<dyn Fn(&Arc<CudaContext>) -> Result<Box<dyn Attention>, CudaError> + Send + Sync>;

/// Beyond its patience a rank has so long to say that it has failed, and then to free what it can. With the patience of the
/// options as it is, a failure is an error within a minute.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Ranks on cards, each with a thread of its own. A wave of programs is loaded, then executed any number of times.
///
/// [`Session::open`] has all ranks in this process, [`Session::join`] one of them; the results are the same. In the second
/// case all processes call the same methods with the same arguments in the same order, and each sees the memory and the
/// times of its own rank alone.
///
/// After an error of an execution the wave has to be loaded again; after one from which a card did not recover, and after
/// any when there are several processes, the session refuses everything: other processes have to be started.
pub struct Session {
    pub(super) options: SessionOptions,
    cards: Vec<Arc<Card>>,
    /// Ranks of this process.
    pub(super) ranks: BTreeMap<usize, Worker>,
    /// Number of all ranks.
    size: usize,
    monitor: Monitor,
    shared: Option<Arc<Shared>>,
    execution: u64,
    /// How many waves have been loaded.
    pub(super) loads: u64,
    /// A card did not recover.
    broken: bool,
    /// Other processes rely on this one no longer.
    pub(super) refused: bool,
    pub(super) others: Option<Arc<Rendezvous>>,
}

impl Session {
    /// Opens cards for so many ranks.
    ///
    /// # Errors
    /// [`CudaError::Cards`] when there are too few; a library is absent; the kernels do not start.
    pub fn open(ranks: usize, options: SessionOptions, attention: AttentionFactory) -> Result<Self, CudaError> {
        Self::start(0..ranks, ranks, options, &attention, None)
    }

    /// Starts these ranks of so many.
    pub(super) fn start(
        local: Range<usize>,
        size: usize,
        options: SessionOptions,
        attention: &AttentionFactory,
        others: Option<Arc<Rendezvous>>,
    ) -> Result<Self, CudaError> {
        let found = cards()?;
        let used = match options.placement {
            // A process that is shown one card alone has its rank there.
            Placement::OneEach if found == 1 && local.len() == 1 => 1,
            Placement::OneEach => size,
            Placement::Shared(most) => most.min(size).max(1),
        };
        if used > found {
            return Err(CudaError::Cards { needed: used, found });
        }
        let mut options = options;
        if matches!(options.placement, Placement::Shared(_)) {
            options.transport = Transport::CopyEngines;
        }
        let mut opened = BTreeMap::new();
        for card in local.clone().map(|rank| rank % used.max(1)) {
            if let std::collections::btree_map::Entry::Vacant(place) = opened.entry(card) {
                place.insert(Arc::new(Card::open(card)?));
            }
        }
        let cards: Vec<Arc<Card>> = opened.values().cloned().collect();
        for (a, b) in
            cards.iter().flat_map(|a| cards.iter().map(move |b| (a, b))).filter(|(a, b)| a.ordinal != b.ordinal)
        {
            a.reach(b)?;
        }
        let monitor = Monitor::new(cards.iter().map(|card| card.context.as_ref()));
        let mut session = Self {
            options,
            cards,
            ranks: BTreeMap::new(),
            size,
            monitor,
            shared: None,
            execution: 0,
            loads: 0,
            broken: false,
            refused: false,
            others,
        };
        let (ready, started) = channel();
        for index in local.clone() {
            if let Some(card) = opened.get(&(index % used.max(1))).cloned() {
                session.ranks.insert(index, worker(index, card, Arc::clone(attention), ready.clone())?);
            }
        }
        drop(ready);
        for _ in local {
            let late = |_| CudaError::Program("the thread of a rank did not start".to_owned());
            started.recv_timeout(session.options.patience).map_err(late)??;
        }
        Ok(session)
    }

    /// How the session runs; the transport is the one that is used.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// What every card does now; none where NVML does not know.
    pub fn states(&self) -> Vec<Option<CardState>> {
        self.monitor.states()
    }

    /// Loads the programs of the domains of a wave, whose ranks follow each other: memory, streams, tables, kernels,
    /// communicators. What was loaded before is freed.
    ///
    /// # Errors
    /// There are more ranks than the session has; the programs do not fit together; a card has too little memory; no
    /// kernel supports a call.
    pub fn load(&mut self, programs: &[DeviceProgram]) -> Result<(), CudaError> {
        let loaded = self.load_wave(programs);
        self.told(loaded)
    }

    fn load_wave(&mut self, programs: &[DeviceProgram]) -> Result<(), CudaError> {
        self.shared = None;
        self.loads += 1;
        let wave = Wave::new(programs)?;
        let nccl = self.options.transport == Transport::Nccl;
        if wave.ranks.len() > self.size {
            return Err(CudaError::Cards { needed: wave.ranks.len(), found: self.size });
        }
        if nccl {
            wave.one_order()?;
        }
        // By rank, the streams for which it joins a communicator: all ranks of a domain in the same order.
        let mut names = vec![Vec::new(); wave.ranks.len()];
        for domain in wave.domains.iter().filter(|domain| nccl && domain.len() > 1) {
            for stream in wave.exchanging(domain) {
                let name = self.nccl_name(domain.start, stream)?;
                domain.clone().for_each(|rank| names[rank].push((stream, name)));
            }
        }
        self.unload()?;
        let board = self.joint_board(&wave)?;
        let shared = Arc::new(Shared::new(wave, board));
        let (ranks, max_ctas) = (shared.wave.ranks.len(), self.options.nccl_max_ctas);
        let loading = Arc::clone(&shared);
        let patience = self.options.patience;
        let mut loaded = self.each(ranks, Some(&shared), patience, move |rank| rank.load(&loading)).map(drop);
        loaded = loaded.and_then(|()| self.meet(&shared));
        loaded = loaded.and_then(|()| {
            let joined = self.each(ranks, Some(&shared), patience + GRACE, move |rank| {
                let joins = names.get(rank.index).map(Vec::as_slice).unwrap_or_default();
                joins.iter().try_for_each(|&(stream, name)| rank.join(stream, name, max_ctas, patience))
            });
            joined.and_then(|_| self.meet_all("the end of loading", patience))
        });
        if let Err(error) = loaded {
            self.recover(&shared);
            return Err(error);
        }
        self.shared = Some(shared);
        Ok(())
    }

    /// Executes a pass of the loaded wave: all ranks start together. Returns what every rank took.
    ///
    /// # Errors
    /// Nothing is loaded; the first failure of a rank, [`CudaError::Hung`] when nothing ends within the patience of the
    /// options.
    pub fn execute(&mut self, pass: Pass, execution: Execution) -> Result<Vec<RankTime>, CudaError> {
        let shared = self.loaded()?;
        self.execution += 1;
        let (number, patience, transport) = (self.execution, self.options.patience, self.options.transport);
        let Execution { mode, trace, skip } = execution;
        let times = self.each(shared.wave.ranks.len(), Some(&shared), patience + GRACE, move |rank| {
            let skip = skip.filter(|(of, _)| *of == rank.index).map(|(_, call)| call);
            rank.execute(ScriptOptions { pass, mode, transport, trace, skip }, number, patience)
        });
        if times.is_err() {
            self.recover(&shared);
            self.shared = None;
        }
        self.told(times)
    }

    /// Fills all memory of the wave with a NaN, so that what is not written is noticed. Inputs are lost too.
    ///
    /// # Errors
    /// Nothing is loaded; the driver fails.
    pub fn poison(&mut self) -> Result<(), CudaError> {
        self.on_all(|rank| rank.fill(NAN_WORD)).map(drop)
    }

    /// Makes the inputs of every domain on the cards.
    ///
    /// # Errors
    /// Nothing is loaded; there are not as many inputs as domains; the driver fails.
    pub fn generate(&mut self, inputs: &[Generated]) -> Result<(), CudaError> {
        let shared = self.for_domains(inputs.len())?;
        let inputs: Arc<[Generated]> = inputs.into();
        self.on_all(move |rank| {
            let domain = shared.wave.domains.iter().position(|ranks| ranks.contains(&rank.index));
            let body = shared.wave.ranks.get(rank.index);
            let Some((inputs, body)) = domain.and_then(|domain| inputs.get(domain)).zip(body) else { return Ok(()) };
            let (runs, elements): (Vec<MadeRun>, u64) = tables::made_runs(&body.inputs, inputs, rank.arena())?;
            rank.make(&runs, elements)?;
            let places = tables::overwritten(&body.inputs, inputs);
            places.into_iter().try_for_each(|(offset, bytes)| rank.write(offset, &bytes))
        })
        .map(drop)
    }

    /// Puts the inputs of every domain on the cards, rounded to bf16.
    ///
    /// # Errors
    /// Nothing is loaded; inputs lack rows; the driver fails.
    pub fn upload(&mut self, inputs: &[Inputs]) -> Result<(), CudaError> {
        let shared = self.for_domains(inputs.len())?;
        for (domain, inputs) in shared.wave.domains.iter().zip(inputs) {
            for rank in domain.clone().filter(|rank| self.ranks.contains_key(rank)).collect::<Vec<_>>() {
                for region in shared.wave.ranks.get(rank).map(|body| body.inputs.as_slice()).unwrap_or_default() {
                    self.write(rank, region.offset, tables::encode(region, inputs)?)?;
                }
            }
        }
        Ok(())
    }

    /// Reads what a pass leaves (O and LSE, or the gradients) into the results of every domain. To be called before the next
    /// pass. Small cases only: everything is copied.
    ///
    /// # Errors
    /// Nothing is loaded; there are not as many results as domains; the driver fails.
    pub fn outputs(&mut self, pass: Pass, results: &mut [Outputs]) -> Result<(), CudaError> {
        let shared = self.for_domains(results.len())?;
        for (domain, results) in shared.wave.domains.iter().zip(results) {
            for rank in domain.clone().filter(|rank| self.ranks.contains_key(rank)).collect::<Vec<_>>() {
                let regions = shared.wave.ranks.get(rank).map(|body| body.outputs.as_slice()).unwrap_or_default();
                for region in regions.iter().filter(|region| tables::pass(region.tensor) == pass) {
                    let bytes = self.read(rank, region.offset, tables::bytes(region))?;
                    tables::decode(region, &bytes, results);
                }
            }
        }
        Ok(())
    }

    /// Writes bytes into the arena of a rank.
    ///
    /// # Errors
    /// Nothing is loaded; they leave the arena; the driver fails.
    pub fn write(&mut self, rank: usize, offset: u64, bytes: Vec<u8>) -> Result<(), CudaError> {
        self.on_one(rank, move |rank| rank.write(offset, &bytes))
    }

    /// Reads bytes of the arena of a rank.
    ///
    /// # Errors
    /// Nothing is loaded; they leave the arena; the driver fails.
    pub fn read(&mut self, rank: usize, offset: u64, bytes: u64) -> Result<Vec<u8>, CudaError> {
        self.on_one(rank, move |rank| rank.read(offset, bytes, bytes, 1))
    }

    fn loaded(&self) -> Result<Arc<Shared>, CudaError> {
        self.shared.clone().ok_or_else(|| CudaError::Program("no wave is loaded".to_owned()))
    }

    fn for_domains(&self, given: usize) -> Result<Arc<Shared>, CudaError> {
        let shared = self.loaded()?;
        let domains = shared.wave.domains.len();
        let wrong = || CudaError::Program(format!("{domains} domains are loaded and {given} inputs are given"));
        (domains == given).then_some(shared).ok_or_else(wrong)
    }

    fn on_all<T: Send + 'static>(
        &mut self,
        job: impl Fn(&mut Rank) -> Result<T, CudaError> + Send + Sync + 'static,
    ) -> Result<Vec<T>, CudaError> {
        let shared = self.loaded()?;
        self.each(shared.wave.ranks.len(), None, self.options.patience, job)
    }

    fn on_one<T: Send + 'static>(
        &mut self,
        rank: usize,
        job: impl FnOnce(&mut Rank) -> Result<T, CudaError> + Send + 'static,
    ) -> Result<T, CudaError> {
        self.loaded()?;
        let (answer, answers) = channel();
        self.send(rank, answer, job)?;
        let mut results = self.collect(&[rank], None, self.options.patience, &answers)?;
        results.pop().ok_or_else(|| CudaError::Program(format!("rank {rank} did not answer")))
    }

    /// Runs a job on those of the first `count` ranks that are in this process.
    pub(super) fn each<T: Send + 'static>(
        &mut self,
        count: usize,
        shared: Option<&Arc<Shared>>,
        patience: Duration,
        job: impl Fn(&mut Rank) -> Result<T, CudaError> + Send + Sync + 'static,
    ) -> Result<Vec<T>, CudaError> {
        let job = Arc::new(job);
        let (answer, answers) = channel();
        let ranks: Vec<usize> = self.ranks.range(..count).map(|(rank, _)| *rank).collect();
        for rank in ranks.iter().copied() {
            let job = Arc::clone(&job);
            self.send(rank, answer.clone(), move |rank| job(rank))?;
        }
        drop(answer);
        self.collect(&ranks, shared, patience, &answers)
    }

    fn send<T: Send + 'static>(
        &self,
        rank: usize,
        answer: Sender<(usize, Result<T, CudaError>)>,
        job: impl FnOnce(&mut Rank) -> Result<T, CudaError> + Send + 'static,
    ) -> Result<(), CudaError> {
        if self.broken || self.refused {
            let why = if self.broken { "a card did not recover from" } else { "the processes have parted after" };
            return Err(CudaError::Program(format!("{why} an earlier failure; start another process")));
        }
        let work: Job = Box::new(move |rank: &mut Rank| {
            let index = rank.index;
            let abnormal = |_| Err(CudaError::Program(format!("the thread of rank {index} ended abnormally")));
            let result = catch_unwind(AssertUnwindSafe(|| job(rank))).unwrap_or_else(abnormal);
            let _ = answer.send((index, result));
        });
        let place = if rank < self.size && self.others.is_some() { " in this process" } else { "" };
        let gone = || CudaError::Program(format!("there is no rank {rank}{place}"));
        let jobs = self.ranks.get(&rank).and_then(|worker| worker.jobs.as_ref()).ok_or_else(gone)?;
        jobs.send(work).map_err(|_| gone())
    }

    /// Waits for all answers. At the first failure the others are told to stop; a rank that says nothing at all is given
    /// up with its communicators.
    fn collect<T>(
        &mut self,
        ranks: &[usize],
        shared: Option<&Arc<Shared>>,
        patience: Duration,
        answers: &Receiver<(usize, Result<T, CudaError>)>,
    ) -> Result<Vec<T>, CudaError> {
        let mut deadline = Instant::now() + patience;
        let mut results: Vec<(usize, T)> = Vec::new();
        let mut failure: Option<CudaError> = None;
        let mut heard = 0;
        let mut aborted = false;
        let progress = || shared.map_or(0, |shared| shared.progress.load(Ordering::Relaxed));
        let mut seen = progress();
        while heard < ranks.len() {
            match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((rank, Ok(result))) => {
                    heard += 1;
                    results.push((rank, result));
                }
                Ok((_, Err(error))) => {
                    heard += 1;
                    let first = failure.as_ref().is_none_or(|before| matches!(before, CudaError::Elsewhere(_)));
                    if first && !matches!(error, CudaError::Elsewhere(_)) || failure.is_none() {
                        self.tell(&error);
                        failure = Some(error);
                    }
                    if let Some(shared) = shared {
                        shared.board.stop();
                        deadline = deadline.min(Instant::now() + GRACE);
                    }
                }
                // A rank that still prepares work does not hang.
                Err(RecvTimeoutError::Timeout) if failure.is_none() && progress() != seen => {
                    seen = progress();
                    deadline = Instant::now() + patience;
                }
                Err(RecvTimeoutError::Timeout) if !aborted => {
                    aborted = true;
                    deadline = Instant::now() + GRACE;
                    let error = failure.get_or_insert_with(|| silent(ranks, &results, patience)).clone();
                    self.tell(&error);
                    if let Some(shared) = shared.cloned() {
                        shared.board.stop();
                        // An abort may block as what it aborts does.
                        std::thread::spawn(move || shared.abort());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.broken = true;
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    failure.get_or_insert_with(|| CudaError::Program("the thread of a rank has ended".to_owned()));
                    self.broken = true;
                    break;
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        results.sort_by_key(|(rank, _)| *rank);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    /// After a failure: frees what can be freed.
    fn recover(&mut self, shared: &Arc<Shared>) {
        shared.board.stop();
        let refused = std::mem::take(&mut self.refused);
        let recovered = self.each(shared.wave.ranks.len(), None, 2 * GRACE, |rank| Ok(rank.recover()));
        self.refused |= refused;
        if recovered.is_ok_and(|all| all.into_iter().all(|recovered| recovered)) {
            return;
        }
        self.broken = true;
        // Events that a card still waits for must not go away.
        std::mem::forget(Arc::clone(shared));
    }
}

impl Held for Session {
    fn results(&self, domain: usize) -> Result<Vec<(usize, Vec<Region>)>, CudaError> {
        let shared = self.loaded()?;
        let ranks = shared.wave.domains.get(domain).cloned().unwrap_or_default();
        let of = |rank: usize| shared.wave.ranks.get(rank).map(|body| (rank, body.outputs.clone()));
        Ok(ranks.filter_map(of).collect())
    }

    fn read_rows(
        &mut self,
        rank: usize,
        region: &Region,
        (row, rows): (u32, u32),
        (head, heads): (u32, u32),
    ) -> Result<Vec<f32>, CudaError> {
        let each = u64::from(region.width) * region.element.bytes();
        let pitch = u64::from(region.heads.len()) * each;
        let offset = region.offset + u64::from(row) * pitch + u64::from(head) * each;
        let (width, rows) = (u64::from(heads) * each, u64::from(rows));
        let bytes = self.on_one(rank, move |rank| rank.read(offset, width, pitch, rows))?;
        Ok(tables::numbers(region.element, &bytes))
    }
}

/// The error for ranks of which nothing is heard: the first one that did not answer.
fn silent<T>(ranks: &[usize], heard: &[(usize, T)], patience: Duration) -> CudaError {
    let quiet = |rank: &usize| heard.iter().all(|(other, _)| other != rank);
    let rank = ranks.iter().copied().find(quiet).unwrap_or(0);
    let what = "a call of the driver or of NCCL".to_owned();
    CudaError::Hung { rank: rank as u32, what, seconds: patience.as_secs_f64() }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
        for worker in self.ranks.values_mut() {
            worker.jobs = None;
            let thread = worker.thread.take();
            // A thread that hangs in the driver is left behind; it does not keep the process alive.
            if let Some(thread) = thread.filter(|_| !self.broken) {
                let _ = thread.join();
            }
        }
        if self.broken {
            std::mem::forget(self.cards.clone());
        }
    }
}
