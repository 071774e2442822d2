use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crate::{ClusterError, files};

/// Bytes of the first line, which counts beats.
const LINE: usize = 21;

/// A file that a process writes again and again, so that others see that it lives. Its first line counts the beats; what the
/// process says about itself follows and stays.
#[derive(Debug)]
pub(crate) struct Pulse {
    heart: Arc<Mutex<Heart>>,
    beating: Option<Beating>,
}

#[derive(Debug)]
struct Beating {
    /// Ends the thread when dropped.
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Heart {
    /// None at the end.
    file: Option<File>,
    path: PathBuf,
    /// What the process says about itself.
    about: Vec<u8>,
    beats: u64,
    /// After how long a time between two beats this process was itself silent.
    gap: Duration,
    /// When it last beat, by this process's clock.
    last: Instant,
    /// Since when it has done so without a gap.
    steady: Instant,
    /// Why it has not since.
    problem: Option<String>,
}

impl Pulse {
    /// Makes the file and beats until the end.
    pub(crate) fn start(path: &Path, about: &[u8], every: Duration, gap: Duration) -> Result<Self, ClusterError> {
        let file = create(path, 0, about)?;
        let (path, about, now) = (path.to_owned(), about.to_vec(), Instant::now());
        let heart = Heart { file: Some(file), path, about, beats: 0, gap, last: now, steady: now, problem: None };
        let heart = Arc::new(Mutex::new(heart));
        let (stop, stopped) = mpsc::channel();
        let beating = Arc::clone(&heart);
        let work = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let mut heart = lock(&beating);
                heart.problem = heart.beat().err().map(|e| e.to_string());
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(work);
        let thread = thread.map_err(|e| ClusterError::io("start a thread for", &lock(&heart).path)(e))?;
        Ok(Self { heart, beating: Some(Beating { stop, thread }) })
    }

    /// The file system's clock: the time of a file that this process has just written.
    pub(crate) fn now(&self) -> Result<SystemTime, ClusterError> {
        let mut heart = lock(&self.heart);
        heart.beat().map_err(|e| ClusterError::io("write", &heart.path)(e))
    }

    /// Its file, how long it has not beaten, and why where that is known.
    pub(crate) fn silent(&self) -> (PathBuf, Duration, Option<String>) {
        let heart = lock(&self.heart);
        (heart.path.clone(), heart.last.elapsed(), heart.problem.clone())
    }

    /// For how long it has beaten without a gap.
    pub(crate) fn steady(&self) -> Duration {
        let heart = lock(&self.heart);
        if heart.last.elapsed() > heart.gap { Duration::ZERO } else { heart.steady.elapsed() }
    }

    /// Beats no more, closes the file and removes it.
    pub(crate) fn end(&mut self) {
        self.stop();
        let mut heart = lock(&self.heart);
        if heart.file.take().is_some() {
            // Whoever ended the common work has removed it, or will.
            let _ = std::fs::remove_file(&heart.path);
        }
    }

    fn stop(&mut self) {
        if let Some(Beating { stop, thread }) = self.beating.take() {
            drop(stop);
            // A thread that panicked has nothing left to say.
            let _ended = thread.join();
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.end();
    }
}

impl Heart {
    /// Writes the file, and returns when that was by the file system's clock.
    fn beat(&mut self) -> std::io::Result<SystemTime> {
        let file = self.file.as_mut().ok_or_else(|| std::io::Error::other("it has ended"))?;
        self.beats += 1;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(line(self.beats).as_bytes())?;
        // Network file systems take the time of the write that reaches the server.
        file.sync_all()?;
        let written = file.metadata()?;
        let at = written.modified()?;
        // A process without a file counts as ended. Where the folder is gone too, the common work is over.
        if !same_file(&written, &self.path) && self.path.parent().is_some_and(Path::is_dir) {
            self.file = Some(create(&self.path, self.beats, &self.about).map_err(std::io::Error::other)?);
        }
        let now = Instant::now();
        if now.duration_since(self.last) > self.gap {
            self.steady = now;
        }
        (self.last, self.problem) = (now, None);
        Ok(at)
    }
}

fn create(path: &Path, beats: u64, about: &[u8]) -> Result<File, ClusterError> {
    let mut first = line(beats).into_bytes();
    first.extend(about);
    files::replace(path, &first)?;
    File::options().write(true).open(path).map_err(ClusterError::io("open", path))
}

/// True when a name leads to the file.
fn same_file(file: &std::fs::Metadata, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
}

/// The last beat of another process, by the file system's clock, and what it says about itself; none where it has ended.
pub(crate) fn look(path: &Path) -> Result<Option<(SystemTime, Vec<u8>)>, ClusterError> {
    // Opening makes network file systems ask the server for the time of the last write.
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        (&file).take(files::MAX_BYTES).read_to_end(&mut bytes)?;
        Ok((file.metadata()?.modified()?, bytes.split_off(bytes.len().min(LINE))))
    });
    match read {
        Ok(found) => Ok(Some(found)),
        Err(e) if files::gone(&e) => Ok(None),
        Err(e) => Err(ClusterError::io("look at", path)(e)),
    }
}

/// Remembers what was seen of others, so that it shows who lives.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<HashMap<PathBuf, Sighting>>);

#[derive(Clone, Copy, Debug)]
struct Sighting {
    beat: SystemTime,
    /// When this process first saw that beat.
    since: Instant,
    /// It was not the first that this process saw.
    again: bool,
}

impl Sightings {
    /// Takes in a beat: how long this process has seen no other, and whether it has seen one before that.
    pub(crate) fn note(&self, path: &Path, beat: SystemTime) -> (Duration, bool) {
        let mut all = lock(&self.0);
        let first = Sighting { beat, since: Instant::now(), again: false };
        let known = all.entry(path.to_owned()).or_insert(first);
        if known.beat != beat {
            *known = Sighting { again: true, ..first };
        }
        (known.since.elapsed(), known.again)
    }
}

fn line(beats: u64) -> String {
    format!("{beats:20}\n")
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every field is whole at any time.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl Pulse {
        /// Beats no more, as a process that was killed.
        pub(crate) fn stops(&mut self) {
            self.stop();
        }

        /// A pulse that was last felt so long ago.
        pub(crate) fn was_silent(&self, time: Duration, why: &str) {
            let mut heart = lock(&self.heart);
            heart.last = Instant::now().checked_sub(time).expect("a time");
            heart.problem = Some(why.to_owned());
        }

        /// Its file was last written at this time.
        pub(crate) fn set(&self, at: SystemTime) {
            lock(&self.heart).file.as_ref().expect("a file").set_modified(at).expect("set");
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_file_that_somebody_removes_comes_back_with_the_next_beat() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("owners");
        std::fs::create_dir(&folder).expect("made");
        let path = folder.join("a.alive");
        let mut pulse = Pulse::start(&path, b"about", LONG, LONG).expect("started");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(look(&path).expect("looked"), None);
        pulse.now().expect("a beat");
        assert_eq!(look(&path).expect("looked").map(|(_, about)| about), Some(b"about".to_vec()));
        // The folder of a study that has ended stays away.
        std::fs::remove_dir_all(&folder).expect("removed");
        pulse.now().expect("a beat");
        assert!(!folder.exists());
        pulse.end();
    }

    #[test]
    fn beats_are_seen_by_others_and_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.alive");
        let mut pulse = Pulse::start(&path, b"about", Duration::from_millis(5), LONG).expect("started");
        let seen = Sightings::default();
        let look = || look(&path).expect("a look").expect("a file");
        assert_eq!(look().1, b"about");
        assert!(!seen.note(&path, look().0).1);
        let began = Instant::now();
        while !seen.note(&path, look().0).1 {
            assert!(began.elapsed() < LONG, "no beat");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(look().1, b"about");
        pulse.stops();
        let last = look().0;
        seen.note(&path, last);
        std::thread::sleep(Duration::from_millis(50));
        let (unseen, again) = seen.note(&path, look().0);
        assert!(again && unseen >= Duration::from_millis(50));
        assert!(pulse.now().expect("a time") > last);
        pulse.end();
        assert!(!path.exists() && super::look(&path).expect("a look").is_none());
        assert!(pulse.now().is_err());
    }

    #[test]
    fn a_gap_begins_the_steady_time_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let pulse = Pulse::start(&dir.path().join("x"), b"", LONG, Duration::from_secs(1)).expect("started");
        std::thread::sleep(Duration::from_millis(30));
        pulse.now().expect("a beat");
        assert!(pulse.steady() >= Duration::from_millis(30));
        // Stopped, or at a server that did not answer.
        pulse.was_silent(Duration::from_secs(2), "");
        assert_eq!(pulse.steady(), Duration::ZERO);
        pulse.now().expect("a beat");
        assert!(pulse.steady() < Duration::from_millis(30));
    }
}
