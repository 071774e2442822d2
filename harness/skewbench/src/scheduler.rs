//! Computes the cells of one or several runs, each distinct cell once, and stores it in every run that planned it; alone, or
//! beside other processes that do the same.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use serde_json::{Map, Value, json};
use skewbench_cluster::{Loss, Owner};
use skewbench_external::Ledger;
use skewbench_store::{
    Cell, CellId, CellStatus, GitState, OpenOptions, Opened, Run, RunInputs, RunStatus, StoreError, Table, Timings,
};

use crate::cells::{self, CellSpec, Resources};
use crate::experiment::Expanded;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::share::{Board, Names, Session, Turn, Turns, begin_retry};
use crate::terminal::printable;

/// Bytes of the standard error of programs that a process keeps in the event logs.
const MOST_STANDARD_ERROR: usize = 16 << 20;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static NOTHING_TO_LOSE: AtomicBool = AtomicBool::new(false);

/// An error once the process has been asked to stop; long computations ask between steps.
///
/// # Errors
/// [`Exit::Interrupted`].
pub fn check_interrupted() -> Result<(), Failure> {
    if is_interrupted() {
        return Err(Failure::new(Exit::Interrupted, "interrupted; the same command goes on from the finished cells"));
    }
    Ok(())
}

/// True once the process has been asked to stop.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// From here on an interruption stops programs that are waited for and is seen by [`check_interrupted`].
pub fn watch_interruptions() {
    // A second handler is refused by the library; the first stays in force for the process.
    let _already_set = ctrlc::set_handler(|| {
        skewbench_external::cancel();
        if INTERRUPTED.swap(true, Ordering::SeqCst) || NOTHING_TO_LOSE.load(Ordering::SeqCst) {
            // Asked twice, or nothing is lost: cells on disk are safe, those under way are lost either way.
            skewbench_external::kill_all();
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    });
}

/// From here on the first interruption ends the process: for long work that writes nothing.
pub fn end_when_interrupted() {
    NOTHING_TO_LOSE.store(true, Ordering::SeqCst);
}

/// What became of the cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Cells that were planned, over all runs.
    pub planned: usize,
    /// Cells that earlier processes had finished.
    pub reused: usize,
    /// Distinct cells that were computed.
    pub computed: usize,
    /// Cells that failed, over all runs.
    pub failed: usize,
    /// This process sealed the runs, or found them so; of several that share cells one does.
    pub sealed: bool,
    /// Cells that were left to other processes that live: `cell ID: who has it`.
    pub left: Vec<String>,
}

/// How runs are opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Set aside folders of other inputs.
    pub force: bool,
    /// Try failed cells again.
    pub requeue: bool,
    /// Command line, for the manifest.
    pub command: Vec<String>,
    /// The card that launches are timed on, for the manifest; null where there is none.
    pub devices: Value,
    /// Other processes that compute the same cells.
    pub session: Option<Session>,
}

/// The maps of a cell's coordinates, as the store keeps them.
fn coordinates(cell: &CellSpec) -> Map<String, Value> {
    match cell.coordinates() {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// What a run of an experiment depends on. [`Resources::recall`] reads it back.
pub fn inputs(expanded: &Expanded, resources: &Resources, options: &Options) -> RunInputs {
    let git =
        GitState { revision: Some(env!("SKEWBENCH_REVISION").to_owned()), dirty: env!("SKEWBENCH_DIRTY") == "true" };
    let mut all = json!({
        "program": { "version": env!("CARGO_PKG_VERSION"), "revision": git.revision, "dirty": git.dirty, "changes": env!("SKEWBENCH_CHANGES") },
        "id": expanded.found.id,
        "scale": expanded.scale,
        "model": expanded.model,
        "profile": expanded.machine.as_ref().and_then(|m| resources.pricing(m).ok()).map(|p| p.profile()),
        "workloads": expanded.workloads.iter().map(|(w, _)| w).collect::<Vec<_>>(),
    });
    if let Some(named) = resources.named(expanded) {
        all["swept"] = json!(named);
    }
    let externals = expanded.externals();
    if !externals.is_empty() {
        all["externals"] = json!(externals);
    }
    RunInputs {
        command: options.command.clone(),
        experiment: expanded.found.text.clone(),
        inputs: all,
        seeds: [("master".to_owned(), expanded.seed)].into(),
        git,
        libraries: [("rustc".to_owned(), env!("SKEWBENCH_RUSTC").to_owned())].into(),
        devices: options.devices.clone(),
        cells: expanded.cells.iter().map(|cell| Cell::new(&cell.inputs(), coordinates(cell))).collect(),
    }
}

/// A run with the cells that it stores.
struct Job {
    run: Run,
    ids: HashSet<CellId>,
}

/// Opens a run for this process alone, or beside others.
fn open(dir: &Path, inputs: &RunInputs, options: &Options) -> Result<(Run, Opened), Failure> {
    let Some(session) = &options.session else {
        let open = OpenOptions { replace_other: options.force, retry_failed: options.requeue };
        return Run::open(dir, inputs, open).map_err(store_failure);
    };
    Run::join(dir, inputs, &session.worker()).map_err(store_failure)
}

/// Opens sealed runs for their failed cells, once a submission.
fn reopen(runs: &[(&Path, RunInputs)], session: &Session) -> Result<(), Failure> {
    for (dir, inputs) in runs {
        let manifest = Run::manifest_of(dir).map_err(store_failure)?;
        let sealed = manifest.filter(|manifest| manifest.status == RunStatus::Complete && manifest.failed > 0);
        if sealed.is_some_and(|manifest| !session.worked_on(&manifest)) {
            Run::reopen_failed(dir, inputs).map_err(store_failure)?;
        }
    }
    Ok(())
}

/// The runs of a study, for [`Turns`].
struct Cells<'a> {
    jobs: &'a [Job],
    ids: &'a [CellId],
}

impl Cells<'_> {
    fn holders(&self, cell: usize) -> impl Iterator<Item = (&Run, &CellId)> {
        let id = &self.ids[cell];
        self.jobs.iter().filter(move |job| job.ids.contains(id)).map(move |job| (&job.run, id))
    }
}

/// A cell is missing where one of several runs lacks it, and failed where it failed in one.
fn worst(a: CellStatus, b: CellStatus) -> CellStatus {
    match (a, b) {
        (CellStatus::Missing, _) | (_, CellStatus::Missing) => CellStatus::Missing,
        (failed @ CellStatus::Failed { .. }, _) | (_, failed) => failed,
    }
}

impl Board for Cells<'_> {
    fn known(&self, cell: usize) -> CellStatus {
        self.holders(cell).map(|(run, id)| run.known(id)).fold(CellStatus::Finished, worst)
    }

    fn look_again(&self) -> Result<(), Failure> {
        self.jobs.iter().try_for_each(|job| job.run.look_again()).map_err(store_failure)
    }

    fn look_at_failures(&self) -> Result<(), Failure> {
        self.jobs.iter().try_for_each(|job| job.run.look_at_failures()).map_err(store_failure)
    }

    fn result_of(&self, cell: usize) -> Result<CellStatus, Failure> {
        let mut all = CellStatus::Finished;
        for (run, id) in self.holders(cell) {
            all = worst(all, run.result_of(id).map_err(store_failure)?);
        }
        Ok(all)
    }

    fn retry(&self, cell: usize) {
        self.holders(cell).for_each(|(run, id)| run.retry(id));
    }

    fn is_sealed(&self) -> Result<bool, Failure> {
        for job in self.jobs {
            if !job.run.is_sealed().map_err(store_failure)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn taken_over(&self, cell: usize, owner: &Owner, loss: Loss) -> Result<(), Failure> {
        eprintln!("cell {} was {owner}'s; {loss}", self.ids[cell]);
        for (run, id) in self.holders(cell) {
            let fields = json!({ "cell": id, "from": owner, "why": loss.to_string() });
            run.event("cell_taken_over", &fields).map_err(store_failure)?;
        }
        Ok(())
    }
}

/// Runs experiments, each into its own folder. `before` is given all distinct cells before the first is computed, finished ones
/// too, since what it chooses depends on all; none where all are finished.
///
/// # Errors
/// A folder that cannot be used, a store that cannot be written, an interruption, or what `before` refuses. A cell that fails
/// is no error.
pub fn execute(
    experiments: &[(&Expanded, &Path)],
    resources: &Resources,
    options: &Options,
    before: impl FnOnce(&[&CellSpec]) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut jobs = Vec::new();
    let session = options.session.as_ref();
    let plans: Vec<(&Path, RunInputs)> =
        experiments.iter().map(|(expanded, dir)| (*dir, inputs(expanded, resources, options))).collect();
    let names = Names::of(plans.iter().map(|(dir, inputs)| (*dir, inputs)));
    let retry = match session {
        Some(session) if options.requeue => Some(begin_retry(session, &names, || reopen(&plans, session))?),
        _ => None,
    };
    for (dir, inputs) in &plans {
        let (run, opened) = open(dir, inputs, options)?;
        outcome.planned += inputs.cells.len();
        outcome.reused += match opened {
            Opened::Fresh => 0,
            Opened::Resumed { finished } => finished,
            Opened::Complete => inputs.cells.len(),
        };
        jobs.push(Job { run, ids: inputs.cells.iter().map(|c| c.id.clone()).collect() });
    }
    if outcome.reused > 0 {
        eprintln!("reusing {} finished cells of {}", outcome.reused, outcome.planned);
    }
    let mut told = BTreeSet::new();
    tell_damage(&jobs, &mut told);

    let mut distinct: Vec<(CellId, &CellSpec)> = Vec::new();
    let mut known = HashSet::new();
    for ((expanded, _), (_, inputs)) in experiments.iter().zip(&plans) {
        for (cell, spec) in inputs.cells.iter().zip(&expanded.cells) {
            if known.insert(&cell.id) {
                distinct.push((cell.id.clone(), spec));
            }
        }
    }
    let finished = |id: &CellId| jobs.iter().any(|job| job.ids.contains(id) && job.run.is_finished(id));
    let unfinished = distinct.iter().any(|(id, _)| !finished(id));
    before(&distinct.iter().filter(|_| unfinished).map(|(_, cell)| *cell).collect::<Vec<_>>())?;
    cells::expect(distinct.iter().filter(|(id, _)| !finished(id)).map(|(_, cell)| *cell), resources);
    let progress = Progress::new("cells", distinct.len() as u64);
    let all: Vec<CellId> = distinct.iter().map(|(id, _)| id.clone()).collect();
    let board = Cells { jobs: &jobs, ids: &all };
    let mut room = MOST_STANDARD_ERROR;
    let mut turns = Turns::new(session, &names, &all, retry);
    std::thread::scope(|scope| {
        let mut stores = Stores { scope, under_way: VecDeque::new() };
        while let Some(Turn { cell: turn, given_up }) = turns.next(&board)? {
            let (id, cell) = distinct[turn].clone();
            let waiting: Vec<&Job> =
                jobs.iter().filter(|job| job.ids.contains(&id) && !job.run.is_finished(&id)).collect();
            let name = describe(cell);
            if waiting.is_empty() {
                progress.advance(1, &name);
                continue;
            }
            check_interrupted()?;
            outcome.computed += 1;
            let started = Instant::now();
            let result = match (stored(&jobs, &id)?, given_up) {
                (Some(tables), _) => Ok((tables, Timings::new())),
                (None, Some(why)) => Err(Failure::new(Exit::Unavailable, why)),
                (None, None) => cells::compute(cell, resources).map(|computed| {
                    let named = computed.tables.into_iter().map(|(kind, table)| (kind.to_owned(), table));
                    (named.collect::<Named>(), computed.timings)
                }),
            };
            if result.is_err() {
                // A program that was stopped by the interruption has not failed.
                check_interrupted()?;
            }
            let (result, mut timings) = match result {
                Ok((tables, timings)) => (Ok(tables), timings),
                Err(failure) => (Err(failure), Timings::new()),
            };
            timings.insert("cell_s".to_owned(), started.elapsed().as_secs_f64());
            let ledger = resources.catalogue().take_ledger();
            timings.extend(ledger.timings().into_iter().map(|(name, value)| (name.to_owned(), value)));
            keep_standard_error(&waiting, &id, &ledger, &mut room)?;
            let result = match ledger.complaint {
                Some(complaint) => result.and(Err(Failure::config(complaint))),
                None => result,
            };
            if turns.is_ours()? {
                let failed = result.is_err();
                let runs: Vec<&Run> = waiting.iter().map(|job| &job.run).collect();
                if session.is_none() {
                    stores.add(move || store(&runs, &id, result, &timings))?;
                } else {
                    match store(&runs, &id, result, &timings) {
                        // Processes that took this one for lost have ended the run.
                        Err(_) if board.is_sealed()? => {}
                        other => other?,
                    }
                }
                turns.over(turn, failed)?;
            }
            progress.advance(1, &name);
        }
        stores.end()
    })?;
    progress.finish();
    tell_damage(&jobs, &mut told);
    let seal = turns.take_seal();
    outcome.left = turns.left().map(|(id, owner)| format!("cell {id}: {owner}")).collect();
    outcome.sealed = session.is_none() || seal.is_some();
    drop(turns);
    if outcome.sealed {
        for job in jobs {
            outcome.failed += job.run.seal().map_err(store_failure)?.failed;
        }
    }
    if let (Some(session), Some(seal)) = (session, &seal)
        && session.is_stage()
    {
        session.claims.release(seal)?;
    }
    Ok(outcome)
}

type Named = Vec<(String, Table)>;

fn store(runs: &[&Run], id: &CellId, result: Result<Named, Failure>, timings: &Timings) -> Result<(), Failure> {
    for run in runs {
        match &result {
            Ok(tables) => run.finish_cell(id, tables.clone(), timings.clone()),
            Err(failure) => run.fail_cell(id, &failure.message),
        }
        .map_err(store_failure)?;
    }
    Ok(())
}

/// Cells that are written while the next ones are computed: a write waits for the disk, not for the processor.
struct Stores<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    under_way: VecDeque<ScopedJoinHandle<'scope, Result<(), Failure>>>,
}

impl<'scope> Stores<'scope, '_> {
    /// Writes at once; more would only hold more tables.
    const MOST: usize = 4;

    /// Begins a write; fails when one before it has failed.
    fn add(&mut self, write: impl FnOnce() -> Result<(), Failure> + Send + 'scope) -> Result<(), Failure> {
        while self.under_way.len() >= Self::MOST || self.under_way.front().is_some_and(ScopedJoinHandle::is_finished) {
            self.wait()?;
        }
        self.under_way.push_back(self.scope.spawn(write));
        Ok(())
    }

    /// Waits for all writes.
    fn end(mut self) -> Result<(), Failure> {
        while !self.under_way.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let write = self.under_way.pop_front().map(ScopedJoinHandle::join);
        write.unwrap_or(Ok(Ok(()))).map_err(|_| Failure::internal("a cell could not be written"))?
    }
}

/// Names files of cells that are not what was written; these cells are computed again.
fn tell_damage(jobs: &[Job], told: &mut BTreeSet<String>) {
    for what in jobs.iter().flat_map(|job| job.run.damaged_cells()) {
        if told.insert(what.clone()) {
            eprintln!("{}; the cell is computed again", printable(&what));
        }
    }
}

/// Notes what programs wrote to standard error in the runs' event logs, as long as there is room for it.
fn keep_standard_error(waiting: &[&Job], id: &CellId, ledger: &Ledger, room: &mut usize) -> Result<(), Failure> {
    for text in &ledger.standard_error {
        let fits = text.text.len() <= *room;
        let (kept, dropped) = if fits {
            (text.text.as_str(), text.dropped_bytes)
        } else {
            ("", text.dropped_bytes + text.text.len() as u64)
        };
        *room -= kept.len();
        let fields = json!({ "cell": id, "system": text.system, "text": kept, "dropped_bytes": dropped });
        for job in waiting {
            job.run.event("external_standard_error", &fields).map_err(store_failure)?;
        }
    }
    Ok(())
}

/// Tables of a cell that another run of this process holds already.
fn stored(jobs: &[Job], id: &CellId) -> Result<Option<Named>, Failure> {
    let Some(holder) = jobs.iter().find(|job| job.ids.contains(id) && job.run.is_finished(id)) else {
        return Ok(None);
    };
    let data = Run::load(holder.run.dir()).map_err(store_failure)?;
    data.cell_tables(id).map_err(store_failure)
}

fn describe(cell: &CellSpec) -> String {
    match cell {
        CellSpec::Balance(c) => format!("{} grouping", c.workload.name),
        CellSpec::Waves(c) => {
            format!("{} {} dp={} cp={} p={}", c.workload.name, c.system, c.layout.dp, c.layout.cp, c.pool())
        }
        CellSpec::Kernels(c) => format!("kernels of {}", c.machine.profile),
        CellSpec::Spread(c) => format!("one call of {} tokens on many cards", c.tokens),
    }
}

/// A store error as a failure of configuration or input.
pub fn store_failure(error: StoreError) -> Failure {
    Failure::config(error)
}
