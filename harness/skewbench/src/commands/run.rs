//! `skewbench run`, and what it shares with `reproduce`.

use std::path::{Path, PathBuf};

use skewbench_store::{Reference, RowStatus, SummaryRow};

use super::folder::{claim, run_folder};
use super::validate::{validate, validate_together};
use super::{output, report, reproduce};
use crate::calibrate::Journal;
use crate::card::{Card, OPERANDS_SEED};
use crate::cards::{find_study, run_studies, studies};
use crate::cells::Resources;
use crate::cli::{Backend, CommonRunArgs, RunArgs};
use crate::experiment::{Expanded, Found, Scale, expand, experiments, find};
use crate::failure::{Exit, Failure};
use crate::present::{NOT_COMPUTED, print_summary, write_summary};
use crate::replay::{Timing, prepare};
use crate::scheduler::{Options, Outcome, execute, inputs, store_failure, watch_interruptions};
use crate::share::{Session, Share};
use crate::tuner::{tune, wants_tuning};

const REFERENCE: &str = include_str!("../../../../results/reference/paper.toml");

/// File of timed launches in the folder of a study.
const LAUNCHES: &str = "launches.jsonl";

/// Most threads that a user may ask for; more would be a slip.
const MOST_THREADS: usize = 1024;

/// Published numbers.
///
/// # Errors
/// Never for the file that is shipped.
pub fn reference() -> Result<Reference, Failure> {
    Reference::parse(REFERENCE, "results/reference/paper.toml").map_err(Failure::internal)
}

/// Experiments with everything resolved, before anything is written.
pub struct Study {
    experiments: Vec<Expanded>,
    resources: Resources,
    scale: Scale,
    changes: Vec<String>,
}

impl Study {
    /// Resolves experiments; `changes` are what the command line set in them, for messages.
    ///
    /// # Errors
    /// As [`expand`], and what no run could give.
    pub fn new(found: Vec<Found>, scale: Scale, changes: &[String]) -> Result<Self, Failure> {
        let mut resources = Resources::default();
        // Runs name a profile by what it holds, not by where its file lies.
        let profile = scale.profile.as_deref().map(|name| resources.content_name(name)).transpose()?;
        let named = Scale { profile, ..scale.clone() };
        let experiments: Vec<Expanded> =
            found.iter().map(|f| expand(f, &named, &mut resources)).collect::<Result<_, _>>()?;
        for expanded in &experiments {
            validate(expanded, changes)?;
            for (workload, _) in &expanded.workloads {
                resources.steps(workload, expanded.gbs(), expanded.seed)?;
            }
        }
        validate_together(&experiments)?;
        Ok(Self { experiments, resources, scale, changes: changes.to_vec() })
    }

    /// The study with tuned options where its experiments ask for them. Stages of tuning are stored beside the folder of the study.
    fn tuned(self, out: &Path, options: &Options) -> Result<Self, Failure> {
        if !self.experiments.iter().any(|e| wants_tuning(&e.found.experiment)) {
            return Ok(self);
        }
        // Processes that share the study find it however its folder is spelled.
        let folder = skewbench_store::beside(out, "tuning").map_err(store_failure)?;
        eprintln!("stages of tuning: {}", folder.display());
        let tune_one = |e: &Expanded| {
            let folder = folder.join(e.found.id.replace(['/', '\\'], "-"));
            if wants_tuning(&e.found.experiment) {
                tune(&e.found, &self.scale, &folder, options)
            } else {
                Ok(e.found.clone())
            }
        };
        let found = self.experiments.iter().map(tune_one).collect::<Result<Vec<_>, _>>()?;
        Self::new(found, self.scale, &self.changes)
    }

    /// A folder name that tells the study from others.
    pub fn name(&self, stem: &str) -> String {
        let mut hash = blake3::Hasher::new();
        for expanded in &self.experiments {
            hash.update(inputs(expanded, &self.resources, &Options::default()).hash().as_bytes());
        }
        format!("{stem}-{}", &hash.finalize().to_hex()[..12])
    }

    /// Prints what would be run.
    fn list(&self) -> Result<(), Failure> {
        for expanded in &self.experiments {
            output::line(format!("{}: {} cells", expanded.found.id, expanded.cells.len()))?;
            for cell in &expanded.cells {
                output::line(format!("  {}  {}", Expanded::id(cell), cell.coordinates()))?;
            }
        }
        Ok(())
    }
}

/// Runs experiments, or lists what would be run.
///
/// # Errors
/// Unknown experiments or systems, a folder of other inputs, failed cells (exit 21).
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    if args.common.backend == Backend::Cuda {
        return on_cards(args);
    }
    if args.experiments.is_empty() {
        if args.list {
            return experiments().try_for_each(output::line);
        }
        return Err(Failure::usage("no experiment; name some, or list them with skewbench run --list"));
    }
    let found: Vec<Found> = args.experiments.iter().map(|name| find(name, &args.changes)).collect::<Result<_, _>>()?;
    if let Some(twice) = found.iter().enumerate().find(|(i, f)| found[..*i].iter().any(|g| g.id == f.id)) {
        return Err(Failure::usage(format!("experiment {} is named twice", twice.1.id)));
    }
    let stem = if let [one] = found.as_slice() { one.id.replace(['/', '\\'], "-") } else { "study".into() };
    // A list says what would be run, for which no card is needed.
    let card = if args.list { None } else { reproduce::open_card(&args.common)? };
    let scale = Scale {
        quick: args.quick,
        systems: Vec::new(),
        seed: args.common.seed,
        profile: args.common.profile.clone(),
        replay: card.as_ref().map(|card| card.key(args.common.budget)),
    };
    let study = Study::new(found, scale, &args.changes)?;
    if args.list {
        return study.list();
    }
    let out = args.common.out.clone().unwrap_or_else(|| PathBuf::from("results/runs").join(study.name(&stem)));
    finish(study, &args.common, card, &out, args.requeue)
}

/// Runs studies for cards, or lists them.
fn on_cards(args: &RunArgs) -> Result<(), Failure> {
    if args.experiments.is_empty() {
        if args.list {
            return studies().try_for_each(output::line);
        }
        return Err(Failure::usage("no study; name some, or list them with skewbench run --backend cuda --list"));
    }
    if let Some(change) = args.changes.first() {
        return Err(Failure::usage(format!(
            "--set {change}: studies for cards take no changes; edit a copy of the file"
        )));
    }
    let find = || args.experiments.iter().map(|name| find_study(name)).collect::<Result<Vec<_>, _>>();
    run_studies(find, &[], &args.common)
}

/// What running a study left.
pub struct Done {
    /// Its runs.
    pub folders: Vec<PathBuf>,
    /// What became of the cells.
    pub outcome: Outcome,
    /// Rows of its summary.
    pub rows: Vec<SummaryRow>,
    /// Its report; none where another process that shares the cells renders it.
    pub page: Option<PathBuf>,
}

/// Runs a study into a folder, on a card where its cells name one, renders it and prints its summary.
///
/// # Errors
/// What keeps the folder from being used or the report from being written, and failed cells (exit 21).
pub fn finish(
    study: Study,
    common: &CommonRunArgs,
    card: Option<Card>,
    out: &Path,
    requeue: bool,
) -> Result<(), Failure> {
    let Done { outcome, rows, page, .. } = carry_out(study, common, card, out, requeue)?;
    let Some(page) = page else {
        elsewhere(&outcome);
        return Ok(());
    };
    print_summary(&rows, common.format)?;
    eprintln!("{} cells computed, {} reused, {} failed", outcome.computed, outcome.reused, outcome.failed);
    eprintln!("report: {}", page.display());
    if outcome.failed > 0 {
        let what =
            "some cells failed; the report and summary.json say which and why, --requeue of run tries them again";
        return judge(&rows).and(Err(Failure::new(Exit::Cells, what)));
    }
    judge(&rows)
}

/// Says how a process ends that shares the cells of a study with others, one of which renders the report.
pub fn elsewhere(outcome: &Outcome) {
    const MOST: usize = 5;
    eprintln!("{} cells computed here; whoever ends last renders the report", outcome.computed);
    if outcome.left.is_empty() {
        return;
    }
    outcome.left.iter().take(MOST).for_each(|left| eprintln!("left to who computes it: {left}"));
    if let Some(more) = outcome.left.len().checked_sub(MOST).filter(|more| *more > 0) {
        eprintln!("and {more} more");
    }
    eprintln!("should one of these processes be lost, submit the same command again");
}

/// Tunes a study where it asks for that, runs it into a folder and renders it.
///
/// # Errors
/// What keeps the folder from being used or the report from being written; a cell that fails is no error.
pub fn carry_out(
    study: Study,
    common: &CommonRunArgs,
    card: Option<Card>,
    out: &Path,
    requeue: bool,
) -> Result<Done, Failure> {
    if let Some(threads) = common.threads {
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(Failure::usage(format!("--threads {threads}; give 1 to {MOST_THREADS}")));
        }
        // Built once per process; a second study of the same process keeps the first pool.
        let _already_built = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    if let Some(templates) = common.templates.as_deref().filter(|t| !t.is_dir()) {
        return Err(Failure::config(format!(
            "--templates {}: not a folder; give one that holds index.html",
            templates.display()
        )));
    }
    let command = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let devices = serde_json::to_value(card.as_ref().map(|card| &card.info)).map_err(Failure::internal)?;
    // Ranks that wait for each other are to leave nothing behind.
    watch_interruptions();
    let session = Share::of(common)?.map(|share| share.begin(out)).transpose()?;
    let mut options = Options { force: common.force, requeue, command, devices, session };
    // Every process needs the results of every stage of tuning.
    let stages = Options { session: options.session.as_ref().map(Session::stage), ..options.clone() };
    let study = study.tuned(out, &stages)?;
    let folders: Vec<PathBuf> = study.experiments.iter().map(|e| run_folder(out, &e.found.id)).collect();
    let planned: Vec<_> = study.experiments.iter().map(|e| inputs(e, &study.resources, &options)).collect();
    claim(out, &folders.iter().cloned().zip(planned).collect::<Vec<_>>(), common.force)?;
    let jobs: Vec<(&Expanded, &Path)> = study.experiments.iter().zip(&folders).map(|(e, f)| (e, f.as_path())).collect();
    let outcome = execute(&jobs, &study.resources, &options, |cells| match card {
        Some(mut card) if !cells.is_empty() => {
            // In the folder of all figures: what one of them needed serves the others.
            let journal = Journal::open(&out.join(LAUNCHES), &card.info, OPERANDS_SEED, None, true)?;
            prepare(cells, &study.resources, &mut Timing { timer: &mut *card.timer, journal: Some(journal) })
        }
        Some(_) | None => Ok(()),
    })?;
    drop(study);
    let session = options.session.take();
    if !outcome.sealed {
        return Ok(Done { folders, outcome, rows: Vec::new(), page: None });
    }
    let (rows, page) = report::render_folders(&folders, common.templates.as_deref(), out)?;
    write_summary(&rows, &out.join("summary.json"))?;
    if let Some(session) = session {
        session.claims.remove();
    }
    Ok(Done { folders, outcome, rows, page: Some(page) })
}

/// How a command ends that shows these rows.
///
/// # Errors
/// No results at all or results that were not computed yet (exit 20), failed ones (exit 21).
pub fn judge(rows: &[SummaryRow]) -> Result<(), Failure> {
    if rows.iter().all(|r| r.status != RowStatus::Ok) {
        return Err(Failure::new(Exit::Fewer, "no cell gave a result"));
    }
    if rows.iter().any(|r| r.status == RowStatus::Failed) {
        return Err(Failure::new(Exit::Cells, "some cells failed; the report and summary.json say which and why"));
    }
    let missing = |r: &&SummaryRow| r.reason.as_deref() == Some(NOT_COMPUTED);
    match rows.iter().filter(missing).count() {
        0 => Ok(()),
        n => Err(Failure::new(Exit::Fewer, format!("the run is unfinished: {n} values are not computed yet"))),
    }
}
