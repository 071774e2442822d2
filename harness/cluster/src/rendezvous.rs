use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::owner::random_name;
use crate::{ClusterError, Launch, Owner};

/// How often a wait looks, at first and later; later ones spare the servers of shared file systems.
const SOON: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_millis(100);

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
    limit: Duration,
}

impl Rendezvous {
    /// Takes this process's place below `base`, which is created if need be. Others than rank 0 wait for rank 0.
    ///
    /// # Errors
    /// [`ClusterError::Twice`] for two processes of one rank, [`ClusterError::Missing`] when rank 0 does not come within
    /// `limit`, [`ClusterError::Folder`] for a folder that others may enter or a launch of another size.
    pub fn join(base: &Path, launch: &Launch, owner: &Owner, limit: Duration) -> Result<Self, ClusterError> {
        files::create_folder(base)?;
        files::owner_only(base)?;
        let note = base.join(format!("{}.json", launch.key));
        let (rank, world) = (launch.rank, launch.world);
        let folder =
            if rank == 0 { open(base, &note, world, owner)? } else { find(base, &note, launch, owner, limit)? };
        let place = folder.join(format!("rank-{rank}"));
        if !files::create_new(&place, &files::json(owner, &place)?)? {
            let first: Option<Owner> = files::read_json(&place)?;
            return Err(twice(base, rank, world, first.as_ref(), owner));
        }
        Ok(Self { folder, note, rank, world, turn: 0, limit })
    }

    /// Gives every rank what all ranks bring, by rank.
    ///
    /// # Errors
    /// [`ClusterError::Missing`] names the ranks that have brought nothing within the limit.
    pub fn exchange(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ClusterError> {
        self.turn += 1;
        let path = |rank: u32| self.folder.join(format!("turn-{}.{rank}", self.turn));
        files::replace(&path(self.rank), bytes)?;
        let mut brought: Vec<Option<Vec<u8>>> = (0..self.world).map(|_| None).collect();
        wait(self.limit, || {
            for (rank, slot) in (0..).zip(&mut brought).filter(|(_, slot)| slot.is_none()) {
                *slot = files::read(&path(rank))?;
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
        let left = |rank: u32| self.folder.join(format!("left-{rank}"));
        if self.rank != 0 {
            return files::replace(&left(self.rank), &[]);
        }
        // Nobody reads any more once all others have said so.
        wait(self.limit, || Ok((1..self.world).all(|rank| left(rank).exists()).then_some(())))?;
        Ok(())
    }

    fn missing(&self, missing: Vec<u32>) -> ClusterError {
        let path = self.folder.parent().unwrap_or(&self.folder).to_owned();
        ClusterError::Missing { path, missing, world: self.world, waited_s: self.limit.as_secs() }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if self.rank == 0 {
            // What cannot be removed says nothing to anybody: the next launch has another name and key.
            let _ = fs::remove_file(&self.note);
            let _ = fs::remove_dir_all(&self.folder);
            if let Some(base) = self.folder.parent() {
                let _ = fs::remove_dir(base);
            }
        }
    }
}

/// Rank 0: makes the folder and leaves its name.
fn open(base: &Path, note: &Path, world: u32, owner: &Owner) -> Result<PathBuf, ClusterError> {
    let name = random_name()?;
    let folder = base.join(&name);
    files::create_folder(&folder)?;
    let left = files::json(&Note { folder: name, world, owner: owner.clone() }, note)?;
    if files::create_new(note, &left)? {
        return Ok(folder);
    }
    let first: Option<Note> = files::read_json(note)?;
    match first {
        // A launch of the same name was killed and left it.
        Some(first) if first.owner.has_ended() || first.owner.is_before_requeue_of(owner) => {
            let old = base.join(plain(&first.folder, note)?);
            files::replace(note, &left)?;
            // A folder that stays is entered by nobody.
            let _ = fs::remove_dir_all(old);
            Ok(folder)
        }
        first => {
            let _ = fs::remove_dir_all(&folder);
            Err(twice(base, 0, world, first.as_ref().map(|note| &note.owner), owner))
        }
    }
}

/// Other ranks: wait for the folder's name.
fn find(base: &Path, note: &Path, launch: &Launch, owner: &Owner, limit: Duration) -> Result<PathBuf, ClusterError> {
    let found = wait(limit, || {
        let left: Option<Note> = files::read_json(note)?;
        // One that a killed launch left is replaced by rank 0 soon.
        Ok(left.filter(|left| !left.owner.has_ended() && !left.owner.is_before_requeue_of(owner)))
    })?;
    let Some(found) = found else {
        let (world, waited_s) = (launch.world, limit.as_secs());
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

fn twice(base: &Path, rank: u32, world: u32, first: Option<&Owner>, second: &Owner) -> ClusterError {
    ClusterError::Twice {
        path: base.to_owned(),
        rank,
        world,
        first: first.map_or_else(|| "one that has left".to_owned(), Owner::to_string),
        second: second.to_string(),
    }
}

/// Looks until something is found or time is over.
fn wait<T>(
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, ClusterError>,
) -> Result<Option<T>, ClusterError> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let waited = began.elapsed();
        if waited >= limit {
            return Ok(None);
        }
        std::thread::sleep(if waited < 20 * SOON { SOON } else { LATER.min(limit) });
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
        Rendezvous::join(base, &launch, &owner, limit)
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
        assert!(Rendezvous::join(base, &launch, &owner, LONG).is_ok());
        // A job that was requeued replaces what its earlier turn left on another node.
        owner.job = Some("7".into());
        std::mem::forget(Rendezvous::join(base, &launch, &owner, LONG).expect("joined"));
        owner.restart = 1;
        assert!(Rendezvous::join(base, &launch, &owner, LONG).is_ok());
    }
}
