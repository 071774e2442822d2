use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use skewbench_cluster::{
    Claims, ClusterError, Launch, Launcher, Life, Owner, Patience, Placement, Rendezvous, Terms, placements_text,
};
use skewbench_store::{Manifest, Worker};

use super::turns::NAP;
use crate::cli::{Backend, CommonRunArgs};
use crate::failure::{Exit, Failure};
use crate::scheduler::{check_interrupted, is_interrupted, store_failure};

/// How long a process of another launch that is silent may take to show that it lives: three heartbeats.
const SIGN: Duration = Duration::from_secs(30);

/// This process, where others may work on the same study.
#[derive(Clone, Debug)]
pub struct Share {
    launch: Launch,
    terms: Terms,
    /// How long ranks of the launch wait for each other before the first cell.
    meeting: Duration,
}

/// What ranks tell each other when they meet.
#[derive(Debug, Serialize, Deserialize)]
struct Word {
    placement: Placement,
    submission: String,
}

/// A share of a study in its folder.
#[derive(Clone, Debug)]
pub struct Session {
    /// Who computes what.
    pub claims: Arc<Claims>,
    /// Where all ranks of the launch run.
    placements: Vec<Placement>,
    launch: Launch,
    /// This process waits until every cell has a result, in case that another is lost.
    stays: bool,
    /// The cells are those of a stage of tuning, whose results every process needs before it can go on.
    stage: bool,
}

/// Which process of which launch this is.
///
/// # Errors
/// Variables of a launcher that are partial or contradict each other.
pub fn detect() -> Result<Launch, Failure> {
    let host = skewbench_store::host_name();
    Ok(Launch::detect(&host, |name| std::env::var(name).ok())?)
}

/// Where work on cards runs: one process, with a thread a card. Where a launcher started it, its cards are printed.
///
/// # Errors
/// As [`detect`]; a launch of several processes, each of which would take the same cards.
pub fn one_process() -> Result<(), Failure> {
    let launch = detect()?;
    if launch.world > 1 {
        let what = "ranks on cards are threads of one process; start one process on one node";
        return Err(Failure::config(format!("{}: {what}", launch.describe())));
    }
    if launch.launcher != Launcher::Alone {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        eprintln!("{}", launch.describe());
        eprintln!("{}", placements_text(&[Placement::current(&launch, visible.as_deref())]));
    }
    Ok(())
}

impl Share {
    /// What the command line and the launcher ask for; none for a process that works alone.
    ///
    /// # Errors
    /// As [`detect`]; a backend whose cells are not shared.
    pub fn of(common: &CommonRunArgs) -> Result<Option<Self>, Failure> {
        let launch = detect()?;
        if !common.share && launch.world == 1 {
            return Ok(None);
        }
        if common.backend != Backend::Sim {
            let what = "cells of --backend sim alone are spread over processes; start one process";
            return Err(Failure::usage(format!("{}: {what}", launch.describe())));
        }
        if common.force {
            let what = "--force sets a folder aside, which others may work in; move it away before they start";
            return Err(Failure::usage(what));
        }
        let terms = Terms { lost_after: Duration::from_secs(common.lost_after.into()), shares: common.share };
        Ok(Some(Self { launch, terms, meeting: Duration::from_secs(common.meet_within.into()) }))
    }

    /// Takes part in a study that is written to `out`: the ranks of the launch meet, and rank 0 prints where they run.
    ///
    /// # Errors
    /// Ranks that do not come, or two of one number; a folder that others may enter, or where processes of another launch work
    /// and one of both does not share; an interruption.
    pub fn begin(&self, out: &Path) -> Result<Session, Failure> {
        let folder = skewbench_store::beside(out, "claims").map_err(store_failure)?;
        // Removed where nothing is in it.
        self.meet(&folder).inspect_err(|_| drop(std::fs::remove_dir(&folder)))
    }

    fn meet(&self, folder: &Path) -> Result<Session, Failure> {
        let launch = &self.launch;
        let mut owner = Owner::current(launch)?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let here = Placement::current(launch, visible.as_deref());
        let patience = Patience { limit: self.meeting, stop: is_interrupted };
        let mut place = match launch.world {
            1 => None,
            _ => Some(Rendezvous::join(&folder.join("meeting"), launch, &owner, patience)?),
        };
        let words = tell(&mut place, Word { placement: here, submission: owner.submission.clone() })?;
        // One name for all ranks, also where no job gives them one.
        if let Some(first) = words.first() {
            first.submission.clone_into(&mut owner.submission);
        }
        let placements: Vec<Placement> = words.into_iter().map(|word| word.placement).collect();
        if launch.rank == 0 {
            eprintln!("{}", launch.describe());
            if launch.world > 1 {
                eprintln!("{}", placements_text(&placements));
            }
        }
        let join = || Claims::join(folder, owner.clone(), self.terms);
        let claims = match join() {
            // Another process has just ended the study and removed the folder.
            Err(e) if e.is_gone() => join(),
            other => other,
        }?;
        let refused = if launch.rank == 0 { self.refused(&claims, folder)? } else { None };
        let refused = tell(&mut place, refused)?.into_iter().next().flatten();
        place.map(Rendezvous::leave).transpose()?;
        if let Some(why) = refused {
            return Err(Failure::config(why));
        }
        Ok(Session::new(Arc::new(claims), placements, launch.clone()))
    }

    /// Why this launch may not work in the folder: processes of another do, and not both share.
    fn refused(&self, claims: &Claims, folder: &Path) -> Result<Option<String>, Failure> {
        let began = Instant::now();
        loop {
            check_interrupted()?;
            let strangers = claims.strangers()?;
            if let Some((owner, _)) = strangers.iter().find(|(_, life)| *life == Life::Shown) {
                let what =
                    "works on this study for another launch; choose another folder with --out, or give --share to both";
                return Ok(Some(format!("{}: {owner} {what}", folder.display())));
            }
            // What is silent was most likely killed; its cells are still its own until that is sure.
            if strangers.is_empty() || began.elapsed() >= SIGN.min(self.meeting / 2) {
                return Ok(None);
            }
            std::thread::sleep(NAP);
        }
    }
}

/// What every rank says, by rank; a process alone hears itself.
fn tell<T: Serialize + DeserializeOwned>(place: &mut Option<Rendezvous>, word: T) -> Result<Vec<T>, Failure> {
    let Some(place) = place else { return Ok(vec![word]) };
    let all = place.exchange(&serde_json::to_vec(&word).map_err(Failure::internal)?)?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(Failure::internal)).collect()
}

impl Session {
    /// A process of a launch whose ranks run at these places.
    pub(super) fn new(claims: Arc<Claims>, placements: Vec<Placement>, launch: Launch) -> Self {
        // Of processes that hold an allocation together one waits. Tasks of an array leave, so that they cost nothing.
        let stays = launch.world > 1 && launch.rank == 0;
        Self { claims, placements, launch, stays, stage: false }
    }

    /// What this process is to a run that it joins.
    pub fn worker(&self) -> Worker {
        let owner = self.claims.owner();
        let name = format!("{:05}-{}", self.launch.rank, owner.id);
        // Each rank stores its own place; the first also those of all.
        let first = self.launch.rank == 0;
        let placements: Vec<_> = self.placements.iter().filter(|p| first || p.rank == self.launch.rank).collect();
        Worker {
            name,
            launch: json!({ "submission": owner.submission, "process": self.launch, "placements": placements }),
        }
    }

    /// Where this process starts to look for work, out of `total`: processes of one submission spread over it.
    pub fn start(&self, total: usize) -> usize {
        let (place, places) = if self.launch.world > 1 {
            (u64::from(self.launch.rank), u64::from(self.launch.world))
        } else {
            let digits = self.claims.owner().id.get(..8).unwrap_or_default();
            (u64::from(u32::from_str_radix(digits, 16).unwrap_or(0)), 1 << 32)
        };
        usize::try_from(u128::from(place) * total as u128 / u128::from(places)).unwrap_or(0)
    }

    /// True for a process that stays until every cell has a result, in case that another is lost.
    pub fn stays(&self) -> bool {
        self.stays
    }

    /// The same for a stage of tuning, whose results every process needs before it can go on.
    pub fn stage(&self) -> Self {
        Self { stays: true, stage: true, ..self.clone() }
    }

    /// True for a stage of tuning: nothing is rendered at its end.
    pub fn is_stage(&self) -> bool {
        self.stage
    }

    /// True when this process's submission has worked on a run before.
    pub fn worked_on(&self, manifest: &Manifest) -> bool {
        let mine = |launch: &Value| launch["submission"] == self.claims.owner().submission.as_str();
        manifest.invocations.iter().filter_map(|invocation| invocation.launch.as_ref()).any(mine)
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let exit = match &error {
            ClusterError::Launch(_) | ClusterError::Layout(_) | ClusterError::Twice { .. } => Exit::Config,
            ClusterError::Missing { .. } | ClusterError::Silent { .. } => Exit::Unavailable,
            ClusterError::Io { .. } | ClusterError::Folder { .. } => Exit::Config,
            ClusterError::Interrupted { .. } => Exit::Interrupted,
        };
        Self::new(exit, error)
    }
}
