//! One running program: bounded lines out and in, a time limit on every answer, and an end that leaves nothing behind.

#[cfg(not(unix))]
#[path = "process/other.rs"]
mod platform;
#[cfg(unix)]
#[path = "process/unix.rs"]
mod platform;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Cause, excerpt};
use crate::protocol::EXCERPT;

/// Longest line that a program may print.
pub(crate) const LONGEST_LINE: usize = 64 << 20;
/// How long an end that shows in a closed pipe may take to become one of the process.
const SETTLE: Duration = Duration::from_secs(1);
/// How often cancellation and the process's end are looked for while nothing happens.
const SLICE: Duration = Duration::from_millis(50);
/// Bytes that one read takes at most.
const CHUNK: usize = 64 << 10;

static CANCELLED: AtomicBool = AtomicBool::new(false);
static LIVE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Makes every request that waits, and every later one, fail at once: the process was asked to stop.
pub fn cancel() {
    CANCELLED.store(true, Ordering::SeqCst);
}

/// Kills the process groups of all programs, for an end of this process that runs no destructors.
pub fn kill_all() {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.iter().for_each(|pid| platform::kill_group(*pid));
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// What was read from standard output after the last line.
    unread: Vec<u8>,
    log: Log,
    reaped: bool,
}

impl Process {
    /// Starts a program in a process group of its own, in folder `folder`.
    pub(crate) fn start(program: &Path, arguments: &[String], folder: &Path) -> Result<Self, Cause> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        platform::own_group(&mut command)?;
        let mut child = command.spawn().map_err(|e| Cause::Start(e.to_string()))?;
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).insert(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child, stdin, stdout, stderr, unread: Vec::new(), log: Log::default(), reaped: false };
        process.unblock().map_err(|e| Cause::Start(e.to_string()))?;
        Ok(process)
    }

    /// Sends a line and waits for the line that answers it.
    pub(crate) fn exchange(&mut self, request: &[u8], limit: Duration, what: &'static str) -> Result<Vec<u8>, Cause> {
        let start = Instant::now();
        let mut unsent = request;
        // Bytes of `unread` that hold no line end.
        let mut searched = 0;
        if !self.unread.is_empty() {
            return Err(self.extra());
        }
        loop {
            if let Some(at) = self.unread[searched..].iter().position(|b| *b == b'\n') {
                let rest = self.unread.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.pop();
                if !unsent.is_empty() || !self.unread.is_empty() {
                    // A line that came late, after its request's answer was taken, is no answer itself.
                    let answers = unsent.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok();
                    let unasked = if answers { &self.unread } else { &line };
                    return Err(Cause::Extra(excerpt(unasked, EXCERPT)));
                }
                return Ok(line);
            }
            searched = self.unread.len();
            if searched > LONGEST_LINE {
                return Err(Cause::LongLine(LONGEST_LINE));
            }
            if CANCELLED.load(Ordering::SeqCst) {
                return Err(Cause::Cancelled);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Cause::Timeout { what, seconds: limit.as_secs_f64(), half_line: searched > 0 });
            }
            // Asked before reading: what an ended process printed is then in the pipe already.
            let ended = self.ended();
            let ready = self.wait(left.min(SLICE), !unsent.is_empty(), ended)?;
            if ready.stderr {
                self.read_stderr();
            }
            if ready.stdout && self.read_stdout()? == Read::End {
                return Err(self.gone("output"));
            }
            if ready.stdin && !unsent.is_empty() && !self.send(&mut unsent)? {
                // What it printed before it closed its input explains more than the closed pipe.
                while self.read_stdout()? == Read::Some && self.unread.len() <= LONGEST_LINE {}
                return Err(self.gone("input"));
            }
            if ended && !ready.stdout {
                return Err(self.gone("output"));
            }
        }
    }

    fn extra(&self) -> Cause {
        Cause::Extra(excerpt(&self.unread, EXCERPT))
    }

    /// Writes what the pipe takes; false when nobody reads any more.
    fn send(&mut self, unsent: &mut &[u8]) -> Result<bool, Cause> {
        use std::io::{ErrorKind, Write};
        let Some(stdin) = self.stdin.as_mut() else { return Ok(false) };
        match stdin.write(unsent) {
            Ok(sent) => *unsent = unsent.get(sent..).unwrap_or_default(),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(false),
            Err(e) => return Err(Cause::Io(e.to_string())),
        }
        Ok(true)
    }

    fn read_stdout(&mut self) -> Result<Read, Cause> {
        let Some(stdout) = self.stdout.as_mut() else { return Ok(Read::End) };
        read(stdout, &mut self.unread).map_err(|e| Cause::Io(e.to_string()))
    }

    fn read_stderr(&mut self) {
        let mut bytes = Vec::new();
        let more = self.stderr.as_mut().map(|pipe| read(pipe, &mut bytes));
        self.log.add(&bytes);
        if !matches!(more, Some(Ok(Read::Some | Read::Nothing))) {
            self.stderr = None;
        }
    }

    /// Why a program that closed a pipe, or ended, gives no answer.
    fn gone(&mut self, closed: &'static str) -> Cause {
        let start = Instant::now();
        while !self.ended() && start.elapsed() < SETTLE {
            if self.wait_for_stderr() {
                self.read_stderr();
            }
        }
        if !self.ended() {
            return Cause::Closed(closed);
        }
        let half_line = !self.unread.is_empty();
        Cause::Ended { status: self.reap(), half_line }
    }

    /// Kills what is left of the process group and takes the exit status.
    fn reap(&mut self) -> String {
        // The leader is not waited for yet, so its number still names its group and nothing else.
        platform::kill_group(self.child.id());
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.child.id());
        self.reaped = true;
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(e) => format!("a status that cannot be read ({e})"),
        }
    }

    /// Ends a program that has answered everything: closes its input, waits, and says what it did wrong.
    pub(crate) fn finish(mut self, limit: Duration) -> (Log, Option<Cause>) {
        let mut wrong = self.ended().then(|| self.gone("output"));
        self.stdin = None;
        let start = Instant::now();
        let mut open = wrong.is_none();
        while open && self.unread.is_empty() {
            if start.elapsed() >= limit {
                wrong = Some(Cause::NoEnd(limit.as_secs_f64()));
                break;
            }
            if CANCELLED.load(Ordering::SeqCst) {
                break;
            }
            let ended = self.ended();
            match self.wait(SLICE, false, ended) {
                Ok(ready) => {
                    if ready.stderr {
                        self.read_stderr();
                    }
                    let closed = ready.stdout && !matches!(self.read_stdout(), Ok(Read::Some | Read::Nothing));
                    // A closed pipe is always ready: without a pause this would spin until the process has ended.
                    if closed && !ended {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    open = !ended || (ready.stdout && !closed);
                }
                Err(_) => break,
            }
        }
        if wrong.is_none() && !self.unread.is_empty() {
            wrong = Some(self.extra());
        }
        self.drain_stderr();
        if !self.reaped {
            let ended = self.ended();
            let status = self.reap();
            if wrong.is_none() && ended && !self.child.try_wait().ok().flatten().is_some_and(|s| s.success()) {
                wrong = Some(Cause::BadEnd(status));
            }
        }
        (std::mem::take(&mut self.log), wrong)
    }

    /// Kills a program that did something wrong, or is not needed any more.
    pub(crate) fn kill(mut self) -> Log {
        self.drain_stderr();
        if !self.reaped {
            self.reap();
        }
        std::mem::take(&mut self.log)
    }

    fn drain_stderr(&mut self) {
        // A program that writes for ever must not keep us here.
        for _ in 0..16 {
            if !self.wait_for_stderr() {
                break;
            }
            self.read_stderr();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.reap();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    End,
}

fn read(pipe: &mut impl std::io::Read, into: &mut Vec<u8>) -> std::io::Result<Read> {
    let start = into.len();
    into.resize(start + CHUNK, 0);
    let result = pipe.read(&mut into[start..]);
    into.truncate(start + result.as_ref().copied().unwrap_or(0));
    match result {
        Ok(0) => Ok(Read::End),
        Ok(_) => Ok(Read::Some),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {
            Ok(Read::Nothing)
        }
        Err(e) => Err(e),
    }
}

/// Pipes that something can be done with.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// Beginning and end of what a program wrote to standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    head: Vec<u8>,
    tail: Vec<u8>,
    dropped: u64,
}

impl Log {
    /// Bytes kept of the beginning, and of the end.
    const HALF: usize = 32 << 10;

    fn add(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(Self::HALF - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > Self::HALF {
            let over = self.tail.len() - Self::HALF;
            self.tail.drain(..over);
            self.dropped += over as u64;
        }
    }

    /// Text kept, and bytes dropped from its middle.
    pub(crate) fn text(&self) -> (String, u64) {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.dropped > 0 {
            text.push_str("\n[...]\n");
        }
        text.push_str(&String::from_utf8_lossy(&self.tail));
        (text, self.dropped)
    }

    /// The last line with something on it.
    pub(crate) fn last_line(&self) -> Option<String> {
        let end = if self.tail.is_empty() { &self.head } else { &self.tail };
        let line = end.split(|b| *b == b'\n').rfind(|line| line.iter().any(|b| !b.is_ascii_whitespace()))?;
        Some(excerpt(line, EXCERPT))
    }
}
