use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use skewbench_cluster::{Claims, ClusterError, Launch, Launcher, Owner, Placement, Rendezvous, placements_text};
use skewbench_store::{Manifest, Worker};

use crate::cli::{Backend, CommonRunArgs};
use crate::failure::{Exit, Failure};

/// How long ranks of a launch wait for each other before the first cell.
const MEETING: Duration = Duration::from_secs(120);

/// This process, where others may work on the same study.
#[derive(Clone, Debug)]
pub struct Share {
    launch: Launch,
    lost_after: Duration,
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
        Ok(Some(Self { launch, lost_after: Duration::from_secs(common.lost_after.into()) }))
    }

    /// Takes part in a study that is written to `out`: the ranks of the launch meet, and rank 0 prints where they run.
    ///
    /// # Errors
    /// Ranks that do not come, or two of one number; a folder that others may enter.
    pub fn begin(&self, out: &Path) -> Result<Session, Failure> {
        let folder = folder(out);
        let owner = Owner::current(&self.launch)?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let here = Placement::current(&self.launch, visible.as_deref());
        let placements = if self.launch.world == 1 {
            vec![here]
        } else {
            let mut place = Rendezvous::join(&folder.join("meeting"), &self.launch, &owner, MEETING)?;
            let all = place.exchange(&serde_json::to_vec(&here).map_err(Failure::internal)?)?;
            place.leave()?;
            let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).map_err(Failure::internal);
            all.iter().map(read).collect::<Result<Vec<Placement>, _>>()?
        };
        if self.launch.rank == 0 {
            eprintln!("{}", self.launch.describe());
            if self.launch.world > 1 {
                eprintln!("{}", placements_text(&placements));
            }
        }
        let join = || Claims::join(&folder, owner.clone(), self.lost_after);
        let claims = match join() {
            // Another process has just ended the study and removed the folder.
            Err(ClusterError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => join(),
            other => other,
        }?;
        // Of processes that hold an allocation together one waits. Tasks of an array leave, so that they cost nothing.
        let stays = self.launch.world > 1 && self.launch.rank == 0;
        Ok(Session { claims: Arc::new(claims), placements, launch: self.launch.clone(), stays })
    }
}

impl Session {
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

    /// The same for cells that every process needs before it can go on.
    pub fn staying(&self) -> Self {
        Self { stays: true, ..self.clone() }
    }

    /// True when this process's submission has worked on a run before.
    pub fn worked_on(&self, manifest: &Manifest) -> bool {
        let mine = |launch: &Value| launch["submission"] == self.claims.owner().submission.as_str();
        manifest.invocations.iter().filter_map(|invocation| invocation.launch.as_ref()).any(mine)
    }
}

/// Folder of claims, beside that of the study.
fn folder(out: &Path) -> PathBuf {
    let name = out.file_name().map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned());
    out.with_file_name(format!("{name}-claims"))
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let exit = match &error {
            ClusterError::Launch(_) | ClusterError::Layout(_) | ClusterError::Twice { .. } => Exit::Config,
            ClusterError::Missing { .. } | ClusterError::Silent { .. } => Exit::Unavailable,
            ClusterError::Io { .. } | ClusterError::Folder { .. } => Exit::Config,
        };
        Self::new(exit, error)
    }
}
