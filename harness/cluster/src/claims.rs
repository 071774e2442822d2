use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crate::files;
use crate::{ClusterError, Owner};

/// Folder of the processes' own files.
const OWNERS: &str = "owners";
/// Folder of what is claimed.
const CLAIMED: &str = "claimed";
/// What stands in a claim that its owner gave back.
const RELEASED: &str = "released";
/// What stands in a claim whose work is over.
const DONE: &str = "done";
/// Heartbeats in the time after which a silent process counts as lost.
const BEATS: u32 = 8;
/// Most claims that one name can have had.
const MOST: u32 = 10_000;

/// Names in a folder that all processes see, each of which at most one living process has at any time.
///
/// `owners/` holds two files a process: who it is, and one that it writes again and again to show that it lives. `claimed/`
/// holds a file `NAME.N` for the Nth claim of a name; it is created whole and by one process only, holds the owner's id, and is
/// never removed while the folder is used, so that a claim that was judged lost is followed by exactly one other. All times that
/// are compared are the file system's, so that clocks of nodes may differ.
#[derive(Debug)]
pub struct Claims {
    folder: PathBuf,
    owner: Owner,
    lost_after: Duration,
    pulse: Arc<Mutex<Pulse>>,
    /// Ends the thread when dropped.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a process shows that it lives by.
#[derive(Debug)]
struct Pulse {
    file: File,
    path: PathBuf,
    beats: u64,
    /// When it last succeeded, by this process's clock.
    last: Instant,
    /// Why it did not succeed since.
    problem: Option<String>,
}

/// Why a claim no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its owner gave it back.
    Released,
    /// Its process ended, as its own system says.
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

/// A claim that somebody had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// Who had it.
    pub owner: Owner,
    /// Why it counts no more, as far as this process can tell: none where another judged one that was not given back.
    pub loss: Option<Loss>,
}

impl Former {
    /// True where the process ended in the middle of the work, so that the work may be why.
    pub fn broke_down(&self) -> bool {
        !matches!(self.loss, Some(Loss::Released | Loss::Requeued))
    }
}

/// What came of an attempt to claim a name.
#[derive(Debug)]
pub enum Attempt {
    /// It is this process's, after those who lost it, in order.
    Ours(Claim, Vec<Former>),
    /// A process that lives has it.
    Theirs(Owner),
    /// Its work is over, as [`Claims::done`] said.
    Done(Owner),
}

/// A name that this process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    name: String,
    number: u32,
}

impl Claims {
    /// Takes part in a folder of claims, which is created if need be. A process that has not shown for `lost_after` that it
    /// lives counts as lost; on network file systems that must be longer than they cache what they know of files, a minute.
    ///
    /// # Errors
    /// [`ClusterError::Folder`] for a folder that others may enter; what the system reports.
    pub fn join(folder: &Path, owner: Owner, lost_after: Duration) -> Result<Self, ClusterError> {
        files::create_folder(folder)?;
        files::owner_only(folder)?;
        for part in [OWNERS, CLAIMED] {
            files::create_folder(&folder.join(part))?;
        }
        let about = folder.join(OWNERS).join(format!("{}.json", owner.id));
        files::replace(&about, &files::json(&owner, &about)?)?;
        let path = pulse_path(folder, &owner.id);
        let file = File::create(&path).map_err(ClusterError::io("create", &path))?;
        let mut pulse = Pulse { file, path, beats: 0, last: Instant::now(), problem: None };
        pulse.beat().map_err(ClusterError::io("write", &pulse.path))?;
        let pulse = Arc::new(Mutex::new(pulse));
        let (stop, stopped) = mpsc::channel();
        let beating = Arc::clone(&pulse);
        let work = move || {
            while stopped.recv_timeout(lost_after / BEATS) == Err(RecvTimeoutError::Timeout) {
                let mut pulse = lock(&beating);
                let problem = pulse.beat().err();
                pulse.problem = problem.map(|e| e.to_string());
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(work);
        let thread = thread.map_err(ClusterError::io("start a thread for", folder))?;
        Ok(Self { folder: folder.to_owned(), owner, lost_after, pulse, stop: Some(stop), thread: Some(thread) })
    }

    /// This process.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Names that have been claimed at some time.
    ///
    /// # Errors
    /// What the system reports.
    pub fn claimed(&self) -> Result<BTreeSet<String>, ClusterError> {
        let folder = self.folder.join(CLAIMED);
        let failed = |e| ClusterError::io("list", &folder)(e);
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if let Some((name, number)) = name.rsplit_once('.')
                && number.parse::<u32>().is_ok()
            {
                names.insert(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Claims a name of letters, digits and dashes that no living process has. Work that is over stays so, unless `again` says
    /// of who did it that it is to be done again.
    ///
    /// # Errors
    /// [`ClusterError::Silent`], [`ClusterError::Folder`] for another name or a damaged file, or what the system reports.
    pub fn claim(&self, name: &str, again: impl Fn(&Owner) -> bool) -> Result<Attempt, ClusterError> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(ClusterError::folder(
                &self.folder,
                format!("{name:?} is no name of letters, digits and dashes"),
            ));
        }
        self.lives()?;
        let mut before: Vec<Former> = Vec::new();
        for number in 1..=MOST {
            let path = self.path(name, number);
            let held = match files::read(&path)? {
                Some(held) => held,
                None if files::create_new(&path, self.owner.id.as_bytes())? => {
                    let claim = Claim { name: name.to_owned(), number };
                    return Ok(Attempt::Ours(claim, before));
                }
                // Another process came first. Its claim counts from now on.
                None => files::read(&path)?.unwrap_or_default(),
            };
            let text = String::from_utf8_lossy(&held).into_owned();
            let (id, state) = text.split_once(' ').unwrap_or((&text, ""));
            let owner = self.who(id, &path)?;
            let judged = self.path(name, number + 1).exists();
            let loss = match state {
                DONE if judged || again(&owner) => {
                    before.clear();
                    continue;
                }
                DONE => return Ok(Attempt::Done(owner)),
                RELEASED => Some(Loss::Released),
                _ if owner.is_before_requeue_of(&self.owner) => Some(Loss::Requeued),
                _ if judged => None,
                _ => match self.loss(&owner)? {
                    None => return Ok(Attempt::Theirs(owner)),
                    loss => loss,
                },
            };
            before.push(Former { owner, loss });
        }
        Err(ClusterError::folder(&self.folder, format!("{name} has been claimed {MOST} times")))
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
        self.mark(claim, RELEASED)
    }

    /// Notes that the work of a claim is over, for all who do not see that from its result.
    ///
    /// # Errors
    /// What the system reports.
    pub fn done(&self, claim: &Claim) -> Result<(), ClusterError> {
        self.mark(claim, DONE)
    }

    fn mark(&self, claim: &Claim, state: &str) -> Result<(), ClusterError> {
        let path = self.path(&claim.name, claim.number);
        files::replace(&path, format!("{} {state}", self.owner.id).as_bytes())
    }

    /// Removes the folder once nothing is left to claim.
    ///
    /// # Errors
    /// What the system reports.
    pub fn remove(&self) -> Result<(), ClusterError> {
        match fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(ClusterError::io("remove", &self.folder)(e)),
            _ => Ok(()),
        }
    }

    /// An error when this process could not show for long that it lives: others may judge it lost.
    fn lives(&self) -> Result<(), ClusterError> {
        let pulse = lock(&self.pulse);
        let silent = pulse.last.elapsed();
        if silent < self.lost_after / 2 {
            return Ok(());
        }
        let what = pulse.problem.clone().unwrap_or_else(|| "it was stopped or starved".to_owned());
        Err(ClusterError::Silent { path: pulse.path.clone(), silent_s: silent.as_secs(), what })
    }

    fn path(&self, name: &str, number: u32) -> PathBuf {
        self.folder.join(CLAIMED).join(format!("{name}.{number}"))
    }

    fn who(&self, id: &str, claim: &Path) -> Result<Owner, ClusterError> {
        if id == self.owner.id {
            return Ok(self.owner.clone());
        }
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ClusterError::folder(claim, "does not name the process that claimed it"));
        }
        let path = self.folder.join(OWNERS).join(format!("{id}.json"));
        files::read_json(&path)?.ok_or_else(|| ClusterError::folder(&path, "is gone, and a claim names it"))
    }

    /// Whether an owner has lost its claims.
    fn loss(&self, owner: &Owner) -> Result<Option<Loss>, ClusterError> {
        if owner.id == self.owner.id {
            return Ok(None);
        }
        if owner.has_ended() {
            return Ok(Some(Loss::Ended));
        }
        // Opening makes network file systems ask the server for the time of the last write.
        let path = pulse_path(&self.folder, &owner.id);
        let about = File::open(&path).and_then(|file| file.metadata()).and_then(|about| about.modified());
        let last = about.map_err(ClusterError::io("look at", &path))?;
        let silent = self.now()?.duration_since(last).unwrap_or_default();
        Ok((silent > self.lost_after).then_some(Loss::Silent(silent)))
    }

    /// The file system's clock: the time of a file that this process has just written.
    fn now(&self) -> Result<SystemTime, ClusterError> {
        let mut pulse = lock(&self.pulse);
        let now = pulse.beat().and_then(|()| pulse.file.metadata()).and_then(|about| about.modified());
        now.map_err(|e| ClusterError::io("write", &pulse.path)(e))
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to say.
            let _ended = thread.join();
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.end();
    }
}

impl Claim {
    /// What is claimed.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Pulse {
    fn beat(&mut self) -> std::io::Result<()> {
        self.beats += 1;
        let beat = format!("{:20}\n", self.beats);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(beat.as_bytes())?;
        // Network file systems take the time of the write that reaches the server.
        self.file.sync_all()?;
        (self.last, self.problem) = (Instant::now(), None);
        Ok(())
    }
}

fn pulse_path(folder: &Path, id: &str) -> PathBuf {
    folder.join(OWNERS).join(format!("{id}.alive"))
}

fn lock(pulse: &Mutex<Pulse>) -> std::sync::MutexGuard<'_, Pulse> {
    // Every field is whole at any time.
    pulse.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Launch;

    const LONG: Duration = Duration::from_secs(3600);

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("claims");
        (dir, folder)
    }

    fn me() -> Owner {
        Owner::current(&Launch::alone("here")).expect("an owner")
    }

    /// Claims of a process that nobody can tell the end of.
    fn elsewhere(folder: &Path, lost_after: Duration) -> Claims {
        let mut owner = me();
        owner.pid = 1;
        let value = serde_json::to_value(&owner).map(|mut v| {
            v["system"] = "another".into();
            v
        });
        Claims::join(folder, serde_json::from_value(value.expect("json")).expect("an owner"), lost_after)
            .expect("joined")
    }

    fn ours(claims: &Claims, name: &str) -> Option<(Claim, Option<Loss>)> {
        match claims.claim(name, |_| false).expect("an attempt") {
            Attempt::Ours(claim, before) => Some((claim, before.last().and_then(|former| former.loss))),
            Attempt::Theirs(_) | Attempt::Done(_) => None,
        }
    }

    #[test]
    fn a_name_is_one_process_s_until_it_gives_it_back() {
        let (_dir, folder) = folder();
        let [a, b] = [me(), me()].map(|owner| Claims::join(&folder, owner, LONG).expect("joined"));
        let (claim, before) = ours(&a, "x-1").expect("ours");
        assert_eq!(before, None);
        assert!(ours(&b, "x-1").is_none() && ours(&a, "x-1").is_none());
        assert!(matches!(b.claim("x-1", |_| false), Ok(Attempt::Theirs(owner)) if owner == *a.owner()));
        assert_eq!(b.claimed().expect("names"), BTreeSet::from(["x-1".to_owned()]));
        a.release(&claim).expect("released");
        let (again, before) = ours(&b, "x-1").expect("ours");
        assert_eq!((again.number, before), (2, Some(Loss::Released)));
        assert!(!a.is_ours(&claim).expect("known") && b.is_ours(&again).expect("known"));
        // Work that is over is done again only where that is asked for.
        b.done(&again).expect("noted");
        assert!(matches!(a.claim("x-1", |_| false), Ok(Attempt::Done(owner)) if owner == *b.owner()));
        assert!(
            matches!(a.claim("x-1", |owner| owner == b.owner()), Ok(Attempt::Ours(_, before)) if before.is_empty())
        );
        for wrong in ["", "../x", "a.b", "a/b", "a\0"] {
            assert!(a.claim(wrong, |_| false).is_err(), "{wrong:?}");
        }
        drop(b);
        a.remove().expect("removed");
        assert!(!folder.exists());
    }

    #[test]
    fn lost_claims_are_taken_over_by_one() {
        let (_dir, folder) = folder();
        let lost_after = Duration::from_millis(400);
        let lost = elsewhere(&folder, LONG);
        let (claim, _) = ours(&lost, "x").expect("ours");
        let judges: Vec<Claims> = (0..4).map(|_| Claims::join(&folder, me(), lost_after).expect("joined")).collect();
        assert!(judges.iter().all(|judge| ours(judge, "x").is_none()));
        std::thread::sleep(lost_after * 2);
        let taken: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = judges.iter().map(|judge| scope.spawn(|| ours(judge, "x"))).collect();
            all.into_iter().filter_map(|thread| thread.join().expect("joined")).collect()
        });
        assert_eq!(taken.len(), 1, "{taken:?}");
        assert!(matches!(taken[0].1, Some(Loss::Silent(time)) if time > lost_after));
        assert!(!lost.is_ours(&claim).expect("known"));
    }

    #[test]
    fn all_who_had_a_name_are_known() {
        let (_dir, folder) = folder();
        let lost_after = Duration::from_millis(100);
        let first = Claims::join(&folder, me(), LONG).expect("joined");
        let (claim, _) = ours(&first, "x").expect("ours");
        first.release(&claim).expect("released");
        let (second, third) = (elsewhere(&folder, LONG), elsewhere(&folder, LONG));
        ours(&second, "x").expect("ours");
        std::thread::sleep(lost_after * 3);
        let judge = || Claims::join(&folder, me(), lost_after).expect("joined");
        assert!(matches!(ours(&judge(), "x"), Some((_, Some(Loss::Silent(_))))));
        // The one that judged has ended here, as far as the fourth can tell by its silence.
        let path = judge().path("x", 3);
        fs::write(&path, &third.owner.id).expect("written");
        std::thread::sleep(lost_after * 3);
        let Attempt::Ours(claim, before) = judge().claim("x", |_| false).expect("an attempt") else {
            panic!("not ours");
        };
        assert_eq!(claim.number, 4);
        let found: Vec<bool> = before.iter().map(Former::broke_down).collect();
        assert_eq!(found, [false, true, true], "{before:?}");
        assert_eq!(before[1], Former { owner: second.owner.clone(), loss: None });
    }

    #[test]
    fn a_process_that_beats_is_not_lost() {
        let (_dir, folder) = folder();
        let lost_after = Duration::from_millis(800);
        let slow = elsewhere(&folder, lost_after);
        ours(&slow, "x").expect("ours");
        let judge = Claims::join(&folder, me(), lost_after).expect("joined");
        for _ in 0..4 {
            std::thread::sleep(lost_after / 2);
            assert!(ours(&judge, "x").is_none());
        }
    }

    #[test]
    fn clocks_of_nodes_do_not_matter() {
        let (_dir, folder) = folder();
        let other = elsewhere(&folder, LONG);
        ours(&other, "x").expect("ours");
        let judge = Claims::join(&folder, me(), Duration::from_secs(60)).expect("joined");
        // A file system whose clock is hours from this host's, in either direction: all that is compared is its own time.
        for hours in [-5i64, 5] {
            let at = SystemTime::now().checked_add(Duration::from_secs(10 * 3600)).expect("a time");
            let at = at.checked_sub(Duration::from_secs((10 - hours).unsigned_abs() * 3600)).expect("a time");
            lock(&other.pulse).file.set_modified(at).expect("set");
            let lost = ours(&judge, "x").is_some();
            assert_eq!(lost, hours < 0, "the write lies {hours} h from the judge's last write on the same file system");
        }
    }

    #[test]
    fn a_process_that_cannot_beat_stops() {
        let (_dir, folder) = folder();
        let claims = elsewhere(&folder, LONG);
        let (claim, _) = ours(&claims, "x").expect("ours");
        lock(&claims.pulse).last = Instant::now().checked_sub(LONG).expect("a time");
        lock(&claims.pulse).problem = Some("No space left on device".to_owned());
        let error = claims.is_ours(&claim).expect_err("silent").to_string();
        assert!(error.contains("No space left on device") && error.contains("3600 s"), "{error}");
        assert!(claims.claim("y", |_| false).is_err());
    }

    #[test]
    fn folders_are_ours_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("a/b/claims");
        drop(Claims::join(&folder, me(), LONG).expect("joined"));
        for made in ["a", "a/b", "a/b/claims", "a/b/claims/owners"] {
            let mode = fs::metadata(dir.path().join(made)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{made}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).expect("set");
        assert!(Claims::join(&folder, me(), LONG).expect_err("open").to_string().contains("chmod 700"));
    }

    /// 10,000 cells, 200 processes, of which every tenth is lost once in the middle of a cell.
    #[test]
    fn no_cell_is_done_twice_and_none_is_lost() {
        const CELLS: usize = 10_000;
        const JOBS: usize = 200;
        let (_dir, folder) = folder();
        let done: Vec<AtomicUsize> = (0..CELLS).map(|_| AtomicUsize::new(0)).collect();
        let folder = &folder;
        let done = &done;
        let job = |number: usize| {
            let claims = Claims::join(folder, me(), LONG).expect("joined");
            let mut taken = 0;
            for i in 0..CELLS {
                let cell = (i + number * CELLS / JOBS) % CELLS;
                if done[cell].load(Ordering::SeqCst) > 0 {
                    continue;
                }
                let Some((claim, _)) = ours(&claims, &format!("{cell}")) else { continue };
                taken += 1;
                if number.is_multiple_of(10) && taken == 7 {
                    claims.release(&claim).expect("released");
                    continue;
                }
                if done[cell].load(Ordering::SeqCst) == 0 {
                    done[cell].fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        std::thread::scope(|scope| (0..JOBS).for_each(|number| drop(scope.spawn(move || job(number)))));
        // What the last holder of a cell gave back is left for another submission.
        job(1);
        let counts: BTreeSet<usize> = done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        assert_eq!(counts, BTreeSet::from([1]));
    }
}
