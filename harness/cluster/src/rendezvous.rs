use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::files::{self, Watched};
use crate::owner::random_name;
use crate::pulse::{self, Pulse, Sightings};
use crate::{ClusterError, Launch, Owner};

/// How often a wait looks, at first and later; later ones spare the servers of shared file systems.
const SOON: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_millis(100);

/// File in the folder by which rank 0 shows that it lives.
const ALIVE: &str = "alive";

/// How long ranks wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The most for each thing that is waited for.
    pub limit: Duration,
    /// Asked again and again: true ends the wait at once.
    pub stop: fn() -> bool,
}

impl Patience {
    /// Patience that nothing but the limit ends.
    pub fn of(limit: Duration) -> Self {
        Self { limit, stop: || false }
    }

    /// What lies between two signs of life of rank 0.
    fn beat(self) -> Duration {
        (self.limit / 100).clamp(Duration::from_millis(10), Duration::from_millis(500))
    }

    /// After what silence a rank 0 that another finds in its place counts as one that was killed.
    fn silence(self) -> Duration {
        (self.limit / 8).min(Duration::from_secs(10))
    }
}

/// What rank 0 leaves for the others: where it is met.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Name of the folder.
    folder: String,
    world: u32,
    owner: Owner,
}

/// One rank's place where the processes of a launch meet: a folder on a file system that all of them see, with an unguessable
/// name, for its owner only, removed at the end. Rank 0 makes it and leaves its name under the launch's key.
///
/// All ranks call [`exchange`](Self::exchange) in the same order.
#[derive(Debug)]
pub struct Rendezvous {
    folder: PathBuf,
    note: PathBuf,
    rank: u32,
    world: u32,
    turn: u32,
    patience: Patience,
    /// Of rank 0, which shows by it that the folder is one of a living launch.
    pulse: Option<Pulse>,
}

impl Rendezvous {
    /// Takes this process's place below `base`, which is created if need be. Others than rank 0 wait for rank 0.
    ///
    /// # Errors
    /// [`ClusterError::Twice`] for two processes of one rank, [`ClusterError::Missing`] when rank 0 does not come within the
    /// limit, [`ClusterError::Interrupted`], [`ClusterError::Folder`] for a folder that others may enter or a launch of another
    /// size.
    pub fn join(base: &Path, launch: &Launch, owner: &Owner, patience: Patience) -> Result<Self, ClusterError> {
        files::create_folder(base)?;
        files::owner_only(base)?;
        let note = base.join(format!("{}.json", launch.key));
        let (rank, world) = (launch.rank, launch.world);
        let met = if rank == 0 {
            open(base, &note, world, owner, patience).map(|(folder, pulse)| (folder, Some(pulse)))
        } else {
            find(base, &note, launch, owner, patience).map(|folder| (folder, None))
        };
        let (folder, pulse) = met.inspect_err(|_| drop(fs::remove_dir(base)))?;
        let meeting = Self { folder, note, rank, world, turn: 0, patience, pulse };
        let place = meeting.folder.join(format!("rank-{rank}"));
        if !files::create_new(&place, &files::json(owner, &place)?)? {
            let first: Option<Owner> = files::read_json(&place)?;
            return Err(twice(&place, rank, world, first.as_ref(), owner));
        }
        Ok(meeting)
    }

    /// Gives every rank what all ranks bring, by rank.
    ///
    /// # Errors
    /// [`ClusterError::Missing`] names the ranks that have brought nothing within the limit; [`ClusterError::Interrupted`].
    pub fn exchange(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ClusterError> {
        self.turn += 1;
        let turn = self.turn;
        let name = |rank: u32| format!("turn-{turn}.{rank}");
        files::replace(&self.folder.join(name(self.rank)), bytes)?;
        let mut watched = Watched::new(&self.folder);
        let mut brought: Vec<Option<Vec<u8>>> = (0..self.world).map(|_| None).collect();
        wait(self.patience, &self.folder, || {
            let names = watched.names()?;
            for (rank, slot) in (0..).zip(&mut brought).filter(|(_, slot)| slot.is_none()) {
                if names.contains(&name(rank)) {
                    *slot = files::read(&self.folder.join(name(rank)))?;
                }
            }
            Ok(brought.iter().all(Option::is_some).then_some(()))
        })?;
        let missing: Vec<u32> = (0..).zip(&brought).filter(|(_, slot)| slot.is_none()).map(|(rank, _)| rank).collect();
        if !missing.is_empty() {
            return Err(self.missing(missing));
        }
        Ok(brought.into_iter().flatten().collect())
    }

    /// Ends the meeting: all ranks have come to its end, and rank 0 has removed its folder.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn leave(mut self) -> Result<(), ClusterError> {
        self.exchange(&[])?;
        let left = |rank: u32| format!("left-{rank}");
        if self.rank != 0 {
            return files::replace(&self.folder.join(left(self.rank)), &[]);
        }
        // Nobody reads any more once all others have said so.
        let mut watched = Watched::new(&self.folder);
        wait(self.patience, &self.folder, || {
            let names = watched.names()?;
            Ok((1..self.world).all(|rank| names.contains(&left(rank))).then_some(()))
        })?;
        Ok(())
    }

    fn missing(&self, missing: Vec<u32>) -> ClusterError {
        let path = self.folder.parent().unwrap_or(&self.folder).to_owned();
        ClusterError::Missing { path, missing, world: self.world, waited_s: self.patience.limit.as_secs() }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if self.pulse.take().is_some() {
            // What cannot be removed says nothing to anybody: the next launch has another name and key.
            let _ = fs::remove_file(&self.note);
            let _ = fs::remove_dir_all(&self.folder);
            if let Some(base) = self.folder.parent() {
                let _ = fs::remove_dir(base);
            }
        }
    }
}

/// What is known of the launch that left a note.
enum Standing {
    Lives,
    /// It has ended: a launch of the same name was killed and left the note.
    Over,
    /// It has not shown that it lives since this process looks, for so long.
    Unknown(Duration),
}

fn standing(base: &Path, note: &Path, left: &Note, owner: &Owner, seen: &Sightings) -> Result<Standing, ClusterError> {
    if left.owner.has_ended() || left.owner.is_before_requeue_of(owner) {
        return Ok(Standing::Over);
    }
    let path = base.join(plain(&left.folder, note)?).join(ALIVE);
    let Some((beat, _)) = pulse::look(&path)? else { return Ok(Standing::Over) };
    let (silent, again) = seen.note(&path, beat);
    Ok(if again || left.owner.is_running() { Standing::Lives } else { Standing::Unknown(silent) })
}

/// Rank 0: makes the folder and leaves its name.
fn open(
    base: &Path,
    note: &Path,
    world: u32,
    owner: &Owner,
    patience: Patience,
) -> Result<(PathBuf, Pulse), ClusterError> {
    let name = random_name()?;
    let folder = base.join(&name);
    files::create_folder(&folder)?;
    let place = || -> Result<Pulse, ClusterError> {
        let pulse = Pulse::start(&folder.join(ALIVE), &[], patience.beat(), patience.silence())?;
        let ours = files::json(&Note { folder: name, world, owner: owner.clone() }, note)?;
        let seen = Sightings::default();
        let placed = wait(patience, note, || {
            if files::create_new(note, &ours)? {
                return Ok(Some(()));
            }
            let Some(first): Option<Note> = files::read_json(note)? else { return Ok(None) };
            match standing(base, note, &first, owner, &seen)? {
                Standing::Lives => Err(twice(note, 0, world, Some(&first.owner), owner)),
                Standing::Unknown(silent) if silent < patience.silence() => Ok(None),
                Standing::Unknown(_) | Standing::Over => {
                    files::replace(note, &ours)?;
                    // A folder that stays is entered by nobody.
                    let _ = fs::remove_dir_all(base.join(plain(&first.folder, note)?));
                    Ok(Some(()))
                }
            }
        })?;
        placed.map(|()| pulse).ok_or_else(|| ClusterError::folder(note, "cannot be read; remove it"))
    };
    match place() {
        Ok(pulse) => Ok((folder, pulse)),
        Err(e) => {
            let _ = fs::remove_dir_all(&folder);
            Err(e)
        }
    }
}

/// Other ranks: wait for the folder's name.
fn find(base: &Path, note: &Path, launch: &Launch, owner: &Owner, patience: Patience) -> Result<PathBuf, ClusterError> {
    let seen = Sightings::default();
    let mut watched = Watched::new(base);
    let found = wait(patience, base, || {
        watched.names()?;
        let Some(left): Option<Note> = files::read_json(note)? else { return Ok(None) };
        // One that a killed launch left is replaced by rank 0 soon.
        let lives = matches!(standing(base, note, &left, owner, &seen)?, Standing::Lives);
        Ok(lives.then_some(left))
    })?;
    let Some(found) = found else {
        let (world, waited_s) = (launch.world, patience.limit.as_secs());
        return Err(ClusterError::Missing { path: base.to_owned(), missing: vec![0], world, waited_s });
    };
    if found.world != launch.world {
        let what = format!("rank 0 ({}) is one of {}, this process one of {}", found.owner, found.world, launch.world);
        return Err(ClusterError::folder(note, what));
    }
    let folder = base.join(plain(&found.folder, note)?);
    files::owner_only(&folder)?;
    Ok(folder)
}

fn plain<'n>(name: &'n str, note: &Path) -> Result<&'n str, ClusterError> {
    let fine = !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit());
    if fine { Ok(name) } else { Err(ClusterError::folder(note, "does not name a folder of a meeting")) }
}

fn twice(path: &Path, rank: u32, world: u32, first: Option<&Owner>, second: &Owner) -> ClusterError {
    ClusterError::Twice {
        path: path.to_owned(),
        rank,
        world,
        first: first.map_or_else(|| "one that has left".to_owned(), Owner::to_string),
        second: second.to_string(),
    }
}

/// Looks until something is found or time is over; `place` is where, for messages.
fn wait<T>(
    patience: Patience,
    place: &Path,
    mut look: impl FnMut() -> Result<Option<T>, ClusterError>,
) -> Result<Option<T>, ClusterError> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if (patience.stop)() {
            return Err(ClusterError::Interrupted { path: place.to_owned() });
        }
        let waited = began.elapsed();
        if waited >= patience.limit {
            return Ok(None);
        }
        std::thread::sleep(if waited < 20 * SOON { SOON } else { LATER.min(patience.limit) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    fn of(rank: u32, world: u32) -> (Launch, Owner) {
        let launch = Launch { rank, world, key: "job-1".into(), ..Launch::alone("here") };
        let owner = Owner::current(&launch).expect("an owner");
        (launch, owner)
    }

    fn join(base: &Path, rank: u32, world: u32, limit: Duration) -> Result<Rendezvous, ClusterError> {
        let (launch, owner) = of(rank, world);
        Rendezvous::join(base, &launch, &owner, Patience::of(limit))
    }

    /// The place of a process that nobody here can tell the end of.
    fn elsewhere(base: &Path, rank: u32, world: u32, patience: Patience) -> Result<Rendezvous, ClusterError> {
        let (launch, owner) = of(rank, world);
        let mut value = serde_json::to_value(owner).expect("json");
        value["system"] = "another".into();
        Rendezvous::join(base, &launch, &serde_json::from_value(value).expect("an owner"), patience)
    }

    #[test]
    fn all_learn_what_all_bring_and_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("meet");
        std::thread::scope(|scope| {
            for rank in 0..5u32 {
                let base = &base;
                scope.spawn(move || {
                    let mut place = join(base, rank, 5, LONG).expect("joined");
                    for turn in 0..3u8 {
                        let all = place.exchange(&[turn, rank as u8]).expect("all");
                        assert_eq!(all, (0..5).map(|r| vec![turn, r]).collect::<Vec<_>>());
                    }
                    place.leave().expect("left");
                });
            }
        });
        assert!(!base.exists());
    }

    #[test]
    fn who_is_missing_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = &dir.path().join("meet");
        let alone = join(base, 2, 3, SHORT).expect_err("no rank 0").to_string();
        assert!(alone.contains("1 of 3 ranks") && alone.contains("rank 0"), "{alone}");
        let mut zero = join(base, 0, 5, SHORT).expect("joined");
        let mut three = join(base, 3, 5, SHORT).expect("joined");
        let error = std::thread::scope(|scope| {
            scope.spawn(|| three.exchange(&[]).map(drop));
            zero.exchange(&[]).expect_err("missing").to_string()
        });
        assert!(error.contains("3 of 5 ranks") && error.contains("ranks 1-2, rank 4"), "{error}");
    }

    #[test]
    fn a_rank_is_one_process() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = &dir.path().join("meet");
        let zero = join(base, 0, 2, LONG).expect("joined");
        let second = join(base, 0, 2, LONG).expect_err("twice").to_string();
        assert!(second.contains("two processes are rank 0 of 2"), "{second}");
        let _one = join(base, 1, 2, LONG).expect("joined");
        assert!(matches!(join(base, 1, 2, LONG), Err(ClusterError::Twice { rank: 1, .. })));
        assert!(join(base, 1, 3, LONG).expect_err("size").to_string().contains("one of 2, this process one of 3"));
        drop(zero);
        assert!(join(base, 0, 2, LONG).is_ok());
    }

    #[test]
    fn what_a_killed_launch_left_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = &dir.path().join("meet");
        std::mem::forget(join(base, 0, 2, LONG).expect("joined"));
        let (launch, mut owner) = of(0, 2);
        let note = base.join("job-1.json");
        let text = fs::read_to_string(&note).expect("a note");
        let pid = format!("\"pid\":{}", std::process::id());
        fs::write(&note, text.replace(&pid, "\"pid\":4194304")).expect("written");
        assert!(Rendezvous::join(base, &launch, &owner, Patience::of(LONG)).is_ok());
        // A job that was requeued replaces what its earlier turn left on another node.
        owner.job = Some("7".into());
        std::mem::forget(Rendezvous::join(base, &launch, &owner, Patience::of(LONG)).expect("joined"));
        owner.restart = 1;
        assert!(Rendezvous::join(base, &launch, &owner, Patience::of(LONG)).is_ok());
    }

    #[test]
    fn a_rank_0_elsewhere_lives_as_long_as_it_shows_that() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = &dir.path().join("meet");
        let patience = Patience::of(Duration::from_secs(8));
        let mut first = elsewhere(base, 0, 2, patience).expect("joined");
        let second = elsewhere(base, 0, 2, patience).expect_err("twice").to_string();
        assert!(second.contains("two processes are rank 0 of 2") && second.contains("job-1.json"), "{second}");
        let one = elsewhere(base, 1, 2, patience).expect("joined");
        // Killed with its node, on which nobody can look.
        if let Some(pulse) = &mut first.pulse {
            pulse.stops();
        }
        std::mem::forget(first);
        drop(one);
        let lost = std::thread::scope(|scope| {
            // Rank 1 of the next launch does not go to the old folder, where its place is taken.
            let one = scope.spawn(|| elsewhere(base, 1, 2, patience).map(|place| place.folder.clone()));
            let zero = elsewhere(base, 0, 2, patience).expect("joined");
            assert_eq!(one.join().expect("no panic").expect("joined"), zero.folder);
            fs::read_dir(base).expect("a folder").count()
        });
        assert_eq!(lost, 2, "the note and the folder of the second launch");
    }

    #[test]
    fn an_interruption_ends_the_wait_and_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = &dir.path().join("meet");
        let (launch, owner) = of(0, 2);
        let stopped = Patience { limit: LONG, stop: || true };
        let mut zero = Rendezvous::join(base, &launch, &owner, stopped).expect("joined");
        assert!(matches!(zero.exchange(&[]), Err(ClusterError::Interrupted { .. })));
        drop(zero);
        assert!(!base.exists());
        let (launch, owner) = of(1, 2);
        let waits = Rendezvous::join(base, &launch, &owner, stopped);
        assert!(matches!(waits, Err(ClusterError::Interrupted { .. })));
        assert!(!base.exists());
    }
}
