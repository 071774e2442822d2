use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::files;
use crate::pulse::{self, Pulse, Sightings};
use crate::{ClusterError, Owner};

/// Folder of the processes' own files.
const OWNERS: &str = "owners";
/// Folder of what is claimed.
const CLAIMED: &str = "claimed";
/// How names of processes' files end.
const ALIVE: &str = ".alive";
/// Heartbeats in the time after which a silent process counts as lost, and the most that lies between two of them.
const BEATS: u32 = 8;
const BEAT: Duration = Duration::from_secs(10);
/// Most claims that one name can have had.
const MOST: u32 = 10_000;

/// Names in a folder that all processes see, each of which at most one living process has at any time.
///
/// `owners/` holds a file of each process: what others must know of it, written again and again to show that it lives, and
/// removed at its end. `claimed/` holds a file `NAME.N` for the Nth claim of a name; it is created whole and by one process only,
/// says whose it is and why the claim before it counts no more, and is never removed while the folder is used, so that a claim
/// that was judged lost is followed by exactly one other. All times that are compared are the file system's, so that clocks of
/// nodes may differ.
#[derive(Debug)]
pub struct Claims {
    folder: PathBuf,
    owner: Owner,
    terms: Terms,
    pulse: Mutex<Pulse>,
    seen: Sightings,
}

/// On what terms a process takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// After what silence others count it as lost; on network file systems longer than they cache what they know of files, a
    /// minute.
    pub lost_after: Duration,
    /// Processes of other launches may take part.
    pub shares: bool,
}

impl Terms {
    /// What lies between two heartbeats.
    pub fn beat(self) -> Duration {
        (self.lost_after / BEATS).min(BEAT)
    }
}

/// What a process's own file says.
#[derive(Debug, Serialize, Deserialize)]
struct Member {
    owner: Owner,
    terms: Terms,
}

/// What a claim's file says.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    owner: Owner,
    state: State,
    /// Why the claim before it counts no more; none where its work is done again.
    after: Option<Loss>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Held,
    /// Its owner gave it back.
    Released,
    /// Its work is over.
    Done,
}

/// Why a claim no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// Its owner gave it back.
    Released,
    /// Its process ended, as its own system says or its own file that is gone.
    Ended,
    /// Its job was requeued.
    Requeued,
    /// Its owner has not shown for so long that it lives.
    Silent(Duration),
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Released => f.write_str("it gave the cell back"),
            Self::Ended => f.write_str("its process ended"),
            Self::Requeued => f.write_str("its job was requeued"),
            Self::Silent(time) => write!(f, "it has been silent for {} s", time.as_secs()),
        }
    }
}

/// What is known of a process that does not count as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It lives: its own system says so, or it has shown it while this process looked.
    Shown,
    /// It has not shown it since this process looks, and has been silent for so long. Sooner or later it does, or counts as
    /// lost: a silent one not before this process has itself shown without a gap, for as long as that takes, that it lives,
    /// since what kept one from the folder may have kept all.
    Unknown(Duration),
}

/// A claim that somebody had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// Who had it.
    pub owner: Owner,
    /// Why it counts no more, as whoever judged it wrote down.
    pub loss: Loss,
}

impl Former {
    /// True where the process ended in the middle of the work, so that the work may be why.
    pub fn broke_down(&self) -> bool {
        matches!(self.loss, Loss::Ended | Loss::Silent(_))
    }
}

/// What came of an attempt to claim a name.
#[derive(Debug)]
pub enum Attempt {
    /// It is this process's, after those who lost it, in order.
    Ours(Claim, Vec<Former>),
    /// Another process has it, or this one already.
    Theirs(Owner, Life),
    /// Its work is over, as [`Claims::done`] said.
    Done(Owner),
}

/// A name that this process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    name: String,
    number: u32,
    after: Option<Loss>,
}

/// The last claim of a name.
enum Last {
    /// Whose it is.
    Theirs(Owner, Life),
    Done(Owner),
    /// Nobody's: the next has this number.
    Free(u32, Vec<Former>),
}

impl Claims {
    /// Takes part in a folder of claims, which is created if need be.
    ///
    /// # Errors
    /// [`ClusterError::Folder`] for a folder that others may enter; what the system reports.
    pub fn join(folder: &Path, owner: Owner, terms: Terms) -> Result<Self, ClusterError> {
        let pulse = enter(folder, &owner, terms)?.into();
        Ok(Self { folder: folder.to_owned(), owner, terms, pulse, seen: Sightings::default() })
    }

    /// Takes part again, after whoever ended the common work has removed the folder.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn rejoin(&self) -> Result<(), ClusterError> {
        let mut pulse = self.pulse();
        pulse.end();
        *pulse = enter(&self.folder, &self.owner, self.terms)?;
        Ok(())
    }

    /// This process.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Claims a name of letters, digits, dots and dashes that no living process has. Work that is over stays so, unless
    /// `again` says of who did it that it is to be done again.
    ///
    /// # Errors
    /// [`ClusterError::Silent`], [`ClusterError::Folder`] for another name or a damaged file, or what the system reports:
    /// [`ClusterError::is_gone`] where whoever ended the common work has removed the folder.
    pub fn claim(&self, name: &str, again: impl Fn(&Owner) -> bool) -> Result<Attempt, ClusterError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
            let what = format!("{name:?} is no name of letters, digits, dots and dashes");
            return Err(ClusterError::folder(&self.folder, what));
        }
        self.lives()?;
        for _ in 0..MOST {
            let (number, before) = match self.last(name, &again)? {
                Last::Theirs(owner, life) => return Ok(Attempt::Theirs(owner, life)),
                Last::Done(owner) => return Ok(Attempt::Done(owner)),
                Last::Free(number, before) => (number, before),
            };
            let claim = Claim { name: name.to_owned(), number, after: before.last().map(|former| former.loss) };
            let path = self.path(name, number);
            if files::create_new(&path, &self.record(&claim, State::Held, &path)?)? {
                return Ok(Attempt::Ours(claim, before));
            }
            // Another process came first. Its claim counts from now on.
        }
        Err(self.claimed_often(name))
    }

    /// The process that has a name now; none where nobody has, or its work is over.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn holder(&self, name: &str) -> Result<Option<(Owner, Life)>, ClusterError> {
        Ok(match self.last(name, |_| false)? {
            Last::Theirs(owner, life) => Some((owner, life)),
            Last::Done(_) | Last::Free(..) => None,
        })
    }

    /// Names that begin like this and have been claimed at some time.
    ///
    /// # Errors
    /// What the system reports.
    pub fn names(&self, begin: &str) -> Result<BTreeSet<String>, ClusterError> {
        let names = files::list(&self.folder.join(CLAIMED))?;
        let claimed = names.iter().filter_map(|name| name.rsplit_once('.'));
        let claimed = claimed.filter(|(name, number)| name.starts_with(begin) && number.parse::<u32>().is_ok());
        Ok(claimed.map(|(name, _)| name.to_owned()).collect())
    }

    fn last(&self, name: &str, again: impl Fn(&Owner) -> bool) -> Result<Last, ClusterError> {
        let mut before: Vec<Former> = Vec::new();
        let mut next = self.read(name, 1)?;
        for number in 1..=MOST {
            let Some(record) = next else { return Ok(Last::Free(number, before)) };
            next = self.read(name, number + 1)?;
            let loss = match (record.state, &next) {
                (State::Done, next) if next.is_some() || again(&record.owner) => {
                    before.clear();
                    continue;
                }
                (State::Done, _) => return Ok(Last::Done(record.owner)),
                // Whoever came after it judged.
                (_, Some(next)) => next.after.unwrap_or(Loss::Ended),
                (State::Released, None) => Loss::Released,
                (State::Held, None) => match self.judge(&record.owner)? {
                    Ok(life) => return Ok(Last::Theirs(record.owner, life)),
                    Err(loss) => loss,
                },
            };
            before.push(Former { owner: record.owner, loss });
        }
        Err(self.claimed_often(name))
    }

    fn claimed_often(&self, name: &str) -> ClusterError {
        ClusterError::folder(&self.folder, format!("{name} has been claimed {MOST} times"))
    }

    /// True as long as no other process has judged this one lost and taken the claim over.
    ///
    /// # Errors
    /// [`ClusterError::Silent`].
    pub fn is_ours(&self, claim: &Claim) -> Result<bool, ClusterError> {
        let lives = self.lives();
        if self.path(&claim.name, claim.number + 1).exists() {
            return Ok(false);
        }
        lives.map(|()| true)
    }

    /// Gives a claim back, so that any process may have it at once.
    ///
    /// # Errors
    /// What the system reports.
    pub fn release(&self, claim: &Claim) -> Result<(), ClusterError> {
        self.mark(claim, State::Released)
    }

    /// Notes that the work of a claim is over, for all who do not see that from its result.
    ///
    /// # Errors
    /// What the system reports.
    pub fn done(&self, claim: &Claim) -> Result<(), ClusterError> {
        self.mark(claim, State::Done)
    }

    fn mark(&self, claim: &Claim, state: State) -> Result<(), ClusterError> {
        let path = self.path(&claim.name, claim.number);
        files::replace(&path, &self.record(claim, state, &path)?)
    }

    fn record(&self, claim: &Claim, state: State, path: &Path) -> Result<Vec<u8>, ClusterError> {
        files::json(&Record { owner: self.owner.clone(), state, after: claim.after }, path)
    }

    /// Processes of other launches that take part, where they or this one do not want that.
    ///
    /// # Errors
    /// What the system reports.
    pub fn strangers(&self) -> Result<Vec<(Owner, Life)>, ClusterError> {
        let mut strangers = Vec::new();
        for name in files::list(&self.folder.join(OWNERS))?.iter().filter(|name| name.ends_with(ALIVE)) {
            let path = self.folder.join(OWNERS).join(name);
            let Some((_, about)) = pulse::look(&path)? else { continue };
            let Member { owner, terms } = member(&about, &path)?;
            if owner.launch != self.owner.launch
                && !(terms.shares && self.terms.shares)
                && let Ok(life) = self.judge(&owner)?
            {
                strangers.push((owner, life));
            }
        }
        Ok(strangers)
    }

    /// Removes the folder once nothing is left to claim. What cannot be removed is in nobody's way: whoever comes next finds
    /// that its owners have ended.
    pub fn remove(&self) {
        // Network file systems keep files that are open under other names, and with them their folder.
        self.pulse().end();
        let Some(name) = self.folder.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
        let gone = format!("{name}.gone-");
        // At once, so that nobody sees a part of it.
        let _ = fs::rename(&self.folder, self.folder.with_file_name(format!("{gone}{}", self.owner.id)));
        let Some(above) = self.folder.parent() else { return };
        // Those of earlier removals too, which other processes had open.
        for left in files::list(above).unwrap_or_default().iter().filter(|name| name.starts_with(&gone)) {
            let _ = fs::remove_dir_all(above.join(left));
        }
    }

    /// An error when this process could not show for long that it lives: others may judge it lost.
    fn lives(&self) -> Result<(), ClusterError> {
        let (path, silent, problem) = self.pulse().silent();
        if silent < self.terms.lost_after / 2 {
            return Ok(());
        }
        let what = problem.unwrap_or_else(|| "it was stopped or starved".to_owned());
        Err(ClusterError::Silent { path, silent_s: silent.as_secs(), what })
    }

    fn path(&self, name: &str, number: u32) -> PathBuf {
        self.folder.join(CLAIMED).join(format!("{name}.{number}"))
    }

    fn read(&self, name: &str, number: u32) -> Result<Option<Record>, ClusterError> {
        files::read_json(&self.path(name, number))
    }

    /// Why an owner has lost its claims, or how surely it has not.
    fn judge(&self, owner: &Owner) -> Result<Result<Life, Loss>, ClusterError> {
        if owner.id == self.owner.id {
            return Ok(Ok(Life::Shown));
        }
        if owner.has_ended() {
            return Ok(Err(Loss::Ended));
        }
        if owner.is_before_requeue_of(&self.owner) {
            return Ok(Err(Loss::Requeued));
        }
        let path = alive(&self.folder, &owner.id);
        let Some((beat, about)) = pulse::look(&path)? else { return Ok(Err(Loss::Ended)) };
        let terms = member(&about, &path)?.terms;
        let lost_after = terms.lost_after;
        let silent = self.pulse().now()?.duration_since(beat).unwrap_or_default();
        let (_, again) = self.seen.note(&path, beat);
        let shown = owner.is_running() || again && silent <= 2 * terms.beat();
        Ok(if silent <= lost_after {
            Ok(if shown { Life::Shown } else { Life::Unknown(silent) })
        } else if self.pulse().steady() < lost_after {
            Ok(Life::Unknown(silent))
        } else {
            Err(Loss::Silent(silent))
        })
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        // Every change is one assignment.
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// What is claimed.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Makes the folder and a process's own file in it.
fn enter(folder: &Path, owner: &Owner, terms: Terms) -> Result<Pulse, ClusterError> {
    files::create_folder(folder)?;
    files::owner_only(folder)?;
    for part in [OWNERS, CLAIMED] {
        files::create_folder(&folder.join(part))?;
    }
    let path = alive(folder, &owner.id);
    let about = files::json(&Member { owner: owner.clone(), terms }, &path)?;
    Pulse::start(&path, &about, terms.beat(), (terms.lost_after / 2).min(2 * BEAT))
}

fn alive(folder: &Path, id: &str) -> PathBuf {
    folder.join(OWNERS).join(format!("{id}{ALIVE}"))
}

fn member(about: &[u8], path: &Path) -> Result<Member, ClusterError> {
    serde_json::from_slice(about).map_err(|e| ClusterError::folder(path, format!("is not what was written: {e}")))
}

#[cfg(test)]
mod tests;
