use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::courier::Courier;
use crate::CudaError;

/// How often a wait looks for what it waits for, at first and later.
const SOON: Duration = Duration::from_micros(200);
const LATER: Duration = Duration::from_millis(2);
/// How often it looks whether the other processes live.
const LOOK: Duration = Duration::from_millis(100);
/// How long the folder stays for processes that have not left yet.
const STAY: Duration = Duration::from_secs(2);
/// Name of the blob that says who failed and why.
const FAILED: &str = "failed";

/// A folder in which the processes of a session meet. Made by who starts them, removed with this value.
#[derive(Debug)]
pub struct Meeting {
    folder: tempfile::TempDir,
}

impl Meeting {
    /// A new folder that only this user may enter, with a name that nobody can guess; in memory where the system has a
    /// place for that.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self, CudaError> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let mut named = tempfile::Builder::new();
        named.prefix("skewbench-").rand_bytes(24).permissions(fs::Permissions::from_mode(0o700));
        let folder = named.tempdir_in(&place).map_err(|error| failed(&place, "making a folder", &error))?;
        Ok(Self { folder })
    }

    /// Where it is: for [`Rendezvous::join`] of the processes.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// One rank's place in a folder where the processes of a session meet: each publishes small blobs by name and waits for those
/// of others. Needs nothing but files that all processes see, renames that are atomic, and locks of files that end with
/// their process.
///
/// All processes call [`Rendezvous::exchange`] and [`Rendezvous::barrier`] in the same order.
#[derive(Debug)]
pub struct Rendezvous {
    folder: PathBuf,
    rank: usize,
    ranks: usize,
    /// Locked as long as the process lives.
    _alive: File,
    state: Mutex<State>,
    /// The folder, where this process is to remove it.
    pub(super) meeting: Option<Meeting>,
    /// What carries names of communicators, where that is not the folder.
    pub(super) courier: Option<Arc<dyn Courier>>,
}

#[derive(Debug, Default)]
struct State {
    turn: u64,
    /// What this rank has published since its last exchange.
    published: Vec<String>,
}

impl Rendezvous {
    /// Takes the place of a rank. Does not wait for the others.
    ///
    /// # Errors
    /// The folder is not there, or others than this user may enter it; another process has the rank.
    pub fn join(folder: &Path, rank: usize, ranks: usize) -> Result<Self, CudaError> {
        if rank >= ranks {
            return Err(CudaError::Program(format!("there is no rank {rank} among {ranks}")));
        }
        skewbench_cluster::owner_only(folder).map_err(|error| CudaError::Program(format!("rendezvous {error}")))?;
        let (temporary, name) = (folder.join(format!(".alive-{rank}-{}", std::process::id())), alive(rank));
        let file = new_file(&temporary).map_err(|error| failed(folder, "making a file", &error))?;
        file.lock().map_err(|error| failed(folder, "locking a file", &error))?;
        // A link, unlike a rename, never takes the place of another.
        let linked = fs::hard_link(&temporary, folder.join(name));
        let _ = fs::remove_file(&temporary);
        linked.map_err(|error| failed(folder, &format!("taking the place of rank {rank}"), &error))?;
        let (folder, state) = (folder.to_path_buf(), Mutex::default());
        Ok(Self { folder, rank, ranks, _alive: file, state, meeting: None, courier: None })
    }

    /// Where the ranks meet.
    #[cfg(test)]
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// All ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Publishes a blob; it appears whole, and goes after the next exchange of all.
    ///
    /// # Errors
    /// The name is none of letters, digits, dots and dashes; the file cannot be written.
    pub fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), CudaError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(CudaError::Program(format!("'{name}' is no name of a blob")));
        }
        self.put(name, bytes)?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).published.push(name.to_owned());
        Ok(())
    }

    /// Waits for a blob that a rank publishes. `what` says in errors what the rank is expected to do.
    ///
    /// # Errors
    /// [`CudaError::Peer`]: a process has failed or ended, or the rank has not published it within the limit.
    pub fn wait(&self, name: &str, from: usize, what: &str, limit: Duration) -> Result<Vec<u8>, CudaError> {
        self.since(Instant::now(), name, from, what, limit)
    }

    fn since(
        &self,
        began: Instant,
        name: &str,
        from: usize,
        what: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, CudaError> {
        let mut looked = Instant::now();
        let path = self.folder.join(name);
        loop {
            match fs::read(&path) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path, "reading it", &error)),
            }
            let (now, peer) = (Instant::now(), |why| CudaError::Peer { rank: from as u32, why });
            if now.duration_since(looked) >= LOOK {
                looked = now;
                if let Some(failure) = self.failure() {
                    return Err(failure);
                }
                if self.folder.join(left(from)).exists() && !path.exists() {
                    return Err(peer(format!("has left before {what}")));
                }
            }
            let waited = now.duration_since(began);
            if waited >= limit {
                return Err(peer(format!("has not come to {what} within {} s", limit.as_secs_f64())));
            }
            std::thread::sleep(if waited < 100 * SOON { SOON } else { LATER });
        }
    }

    /// Publishes the name of a communicator.
    ///
    /// # Errors
    /// As [`Rendezvous::publish`]; the courier cannot carry it.
    pub fn publish_name(&self, name: &str, bytes: &[u8]) -> Result<(), CudaError> {
        match &self.courier {
            Some(courier) => courier.give(name, bytes).map_err(CudaError::Launch),
            None => self.publish(name, bytes),
        }
    }

    /// Waits for the name of a communicator, which a rank publishes.
    ///
    /// # Errors
    /// As [`Rendezvous::wait`]; the courier cannot carry it.
    pub fn wait_name(&self, name: &str, from: usize, limit: Duration) -> Result<Vec<u8>, CudaError> {
        const WHAT: &str = "naming a communicator";
        let Some(courier) = &self.courier else { return self.wait(name, from, WHAT, limit) };
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(bytes) = courier.take(name, from, LOOK).map_err(CudaError::Launch)? {
                return Ok(bytes);
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
        }
        let why = format!("has not come to {WHAT} within {} s", limit.as_secs_f64());
        Err(CudaError::Peer { rank: from as u32, why })
    }

    /// Gives every rank the blobs of all, by rank, and frees what this rank has published before.
    ///
    /// # Errors
    /// As [`Rendezvous::wait`].
    pub fn exchange(&self, blob: &[u8], what: &str, limit: Duration) -> Result<Vec<Vec<u8>>, CudaError> {
        let (turn, old) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.turn += 1;
            (state.turn, std::mem::take(&mut state.published))
        };
        let name = |rank: usize| format!("turn-{turn}.{rank}");
        self.publish(&name(self.rank), blob)?;
        let began = Instant::now();
        let of = |rank| self.since(began, &name(rank), rank, what, limit);
        let all = (0..self.ranks).map(of).collect::<Result<Vec<_>, _>>()?;
        // All are here: nobody still reads what was published before.
        old.iter().for_each(|name| drop(fs::remove_file(self.folder.join(name))));
        Ok(all)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`Rendezvous::wait`].
    pub fn barrier(&self, what: &str, limit: Duration) -> Result<(), CudaError> {
        self.exchange(&[], what, limit).map(drop)
    }

    /// Tells all others that this rank has failed. The first failure counts; whoever waits here or later learns of it.
    pub fn fail(&self, why: &str) {
        if !self.folder.join(FAILED).exists() {
            // Nothing is left to be done where not even that can be written: the others notice that the process ends.
            let _ = self.put(FAILED, format!("{} {why}", self.rank).as_bytes());
        }
    }

    /// A failure of another rank: one that it has told, or the end of its process without a word.
    pub fn failure(&self) -> Option<CudaError> {
        let told = fs::read_to_string(self.folder.join(FAILED)).ok();
        let told = told.as_deref().and_then(|told| told.split_once(' '));
        if let Some((Ok(rank), why)) = told.map(|(rank, why)| (rank.parse::<u32>(), why)) {
            let why = format!("failed: {why}");
            return (rank as usize != self.rank).then_some(CudaError::Peer { rank, why });
        }
        let dead = (0..self.ranks).find(|rank| *rank != self.rank && self.is_dead(*rank))?;
        Some(CudaError::Peer { rank: dead as u32, why: "has ended without a word".to_owned() })
    }

    /// Whether the process of a rank has come and has ended without leaving.
    fn is_dead(&self, rank: usize) -> bool {
        let Ok(file) = File::open(self.folder.join(alive(rank))) else { return false };
        // The lock is looked at first: a process leaves before it lets the lock go.
        matches!(file.try_lock_shared(), Ok(())) && !self.folder.join(left(rank)).exists()
    }

    /// Whether the process of another rank has come and neither left nor ended.
    fn is_here(&self, rank: usize) -> bool {
        let has = |name: String| self.folder.join(name).exists();
        rank != self.rank && has(alive(rank)) && !has(left(rank)) && !self.is_dead(rank)
    }

    /// Opens a blob that is there, to share its memory.
    ///
    /// # Errors
    /// It is not there.
    pub(super) fn open(&self, name: &str) -> Result<File, CudaError> {
        let path = self.folder.join(name);
        OpenOptions::new().read(true).write(true).open(&path).map_err(|error| failed(&path, "opening it", &error))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), CudaError> {
        let temporary = self.folder.join(format!(".{name}-{}", self.rank));
        let written = new_file(&temporary).and_then(|mut file| file.write_all(bytes));
        let written = written.and_then(|()| fs::rename(&temporary, self.folder.join(name)));
        written.map_err(|error| failed(&self.folder, &format!("publishing {name}"), &error))
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.put(&left(self.rank), &[]);
        }
        if self.meeting.is_some() {
            // The others may still read what they came for.
            let began = Instant::now();
            while began.elapsed() < STAY && (0..self.ranks).any(|rank| self.is_here(rank)) {
                std::thread::sleep(SOON);
            }
        }
    }
}

fn alive(rank: usize) -> String {
    format!("alive-{rank}")
}

fn left(rank: usize) -> String {
    format!("left-{rank}")
}

fn new_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> CudaError {
    CudaError::Program(format!("rendezvous {}: {what}: {error}", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::BufRead;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::{Meeting, Rendezvous};
    use crate::CudaError;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);
    const FOLDER: &str = "SKEWBENCH_TEST_MEETING";

    /// Runs a test of this file alone in a process of its own, which finds the folder of a meeting in its environment.
    pub(in crate::run) fn child(test: &str, meeting: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(FOLDER, meeting);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started")
    }

    /// The folder of the meeting, in a process that [`child`] has started.
    pub(in crate::run) fn folder() -> Option<std::path::PathBuf> {
        std::env::var_os(FOLDER).map(Into::into)
    }

    fn pair() -> (Meeting, Rendezvous, Rendezvous) {
        let meeting = Meeting::new().expect("a folder");
        let of = |rank| Rendezvous::join(meeting.path(), rank, 2).expect("joined");
        let (a, b) = (of(0), of(1));
        (meeting, a, b)
    }

    fn names(meeting: &Meeting) -> Vec<String> {
        let entries = std::fs::read_dir(meeting.path()).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn blobs_of_all_reach_all_and_old_ones_go() {
        let (meeting, a, b) = pair();
        let other = std::thread::spawn(move || {
            let seen = b.wait("name.1", 0, "naming", LONG).expect("a blob");
            let all = (0..3).map(|turn| b.exchange(&[turn, 1], "a turn", LONG).expect("all")).collect::<Vec<_>>();
            (b, seen, all)
        });
        a.publish("name.1", b"blob").expect("published");
        for turn in 0..3 {
            assert_eq!(a.exchange(&[turn, 0], "a turn", LONG).expect("all"), [[turn, 0], [turn, 1]]);
        }
        let (b, seen, all) = other.join().expect("joined");
        assert_eq!(seen, b"blob");
        assert_eq!(all[2], [[2, 0], [2, 1]]);
        assert_eq!(names(&meeting), ["alive-0", "alive-1", "turn-3.0", "turn-3.1"]);
        let path = meeting.path().to_path_buf();
        drop((a, b, meeting));
        assert!(!path.exists());
    }

    #[test]
    fn who_is_missing_who_failed_and_who_left_is_named() {
        let (_meeting, a, b) = pair();
        let late = a.barrier("the start", SHORT).expect_err("late").to_string();
        assert_eq!(late, "rank 1, which runs in another process, has not come to the start within 0.05 s");
        assert_eq!(a.failure(), None);
        b.fail("out of memory");
        b.fail("something later");
        let failed = a.wait("never", 1, "that", LONG).expect_err("failed").to_string();
        assert_eq!(failed, "rank 1, which runs in another process, failed: out of memory");
        assert_eq!(b.failure(), None);
        let (_meeting, a, b) = pair();
        drop(b);
        assert_eq!(a.failure(), None);
        let left = a.wait("never", 1, "that", LONG).expect_err("left").to_string();
        assert!(left.ends_with("has left before that"), "{left}");
    }

    #[test]
    fn places_are_taken_once_and_folders_are_ours_alone() {
        let (meeting, a, _b) = pair();
        assert!(Rendezvous::join(meeting.path(), 0, 2).is_err());
        assert!(Rendezvous::join(meeting.path(), 2, 2).is_err());
        assert!(Rendezvous::join(&meeting.path().join("nowhere"), 0, 2).is_err());
        assert!(a.publish("../other", &[]).is_err() && a.publish("", &[]).is_err() && a.publish(".x", &[]).is_err());
        let open = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(meeting.path(), open).expect("changed");
        let refused = Rendezvous::join(meeting.path(), 1, 2).expect_err("open to others").to_string();
        assert!(refused.contains("others than its owner may enter it"), "{refused}");
    }

    #[test]
    fn a_process_that_is_killed_is_noticed() {
        if let Some(folder) = folder() {
            let _b = Rendezvous::join(&folder, 1, 2).expect("joined");
            println!("\nhere");
            std::thread::sleep(LONG);
            return;
        }
        let meeting = Meeting::new().expect("a folder");
        let a = Rendezvous::join(meeting.path(), 0, 2).expect("joined");
        let mut b = child("run::rendezvous::tests::a_process_that_is_killed_is_noticed", meeting.path());
        let mut lines = std::io::BufReader::new(b.stdout.take().expect("an output")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "here")));
        assert_eq!(a.failure(), None);
        b.kill().expect("killed");
        let began = Instant::now();
        let error = a.barrier("the start", LONG).expect_err("dead");
        assert_eq!(error, CudaError::Peer { rank: 1, why: "has ended without a word".to_owned() });
        assert!(began.elapsed() < LONG / 2);
        b.wait().expect("ended");
    }
}
