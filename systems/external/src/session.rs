//! The processes that answer for one system: started when they are needed, reused, ended with the system.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use skewbench_plan::SystemError;

use crate::error::Cause;
use crate::ledger::{Ledger, StandardError};
use crate::manifest::Shared;
use crate::process::{Log, Process};
use crate::protocol::{Hello, PROTOCOL, Request, Response, line, read_hello, read_response};

/// How a program is started, and how long it may take.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) timeout: Duration,
    pub(crate) hello_timeout: Duration,
}

impl Program {
    /// Starts it and asks who it is.
    fn start(&self) -> Result<(Process, Hello), (Cause, Log)> {
        let mut process =
            Process::start(&self.path, &self.arguments, &self.folder).map_err(|cause| (cause, Log::default()))?;
        let hello = line(&Request::Hello { protocol: PROTOCOL })
            .and_then(|request| process.exchange(&request, self.hello_timeout, "say hello"))
            .and_then(|answer| read_hello(&answer));
        match hello {
            Ok(hello) => Ok((process, hello)),
            Err(cause) => Err((cause, process.kill())),
        }
    }

    /// What went wrong, with the program and its last words.
    fn explain(&self, cause: &Cause, log: &Log) -> String {
        let command = std::iter::once(self.path.display().to_string()).chain(self.arguments.iter().cloned());
        let command: Vec<String> = command.map(|word| word.replace(char::is_control, "?")).collect();
        let last = log.last_line().map(|l| format!("; its standard error ends: {l}")).unwrap_or_default();
        format!("external system {} ({}) {cause}{last}", self.name, command.join(" "))
    }

    fn kept(&self, log: &Log) -> StandardError {
        let (text, dropped_bytes) = log.text();
        StandardError { system: self.name.clone(), text, dropped_bytes }
    }
}

/// Starts a program once to ask who it is.
pub(crate) fn introduce(program: &Program, ledger: &Mutex<Ledger>) -> Result<Hello, String> {
    let (answer, log) = match program.start() {
        Ok((process, hello)) => {
            let (log, _) = process.finish(program.hello_timeout);
            (Ok(hello), log)
        }
        Err((cause, log)) => (Err(program.explain(&cause, &log)), log),
    };
    ledger.lock().unwrap_or_else(PoisonError::into_inner).keep(program.kept(&log));
    answer
}

/// A process with the number of its next request.
struct Idle {
    process: Process,
    next: u64,
}

/// What a system asks of a program.
pub(crate) struct Session {
    external: Shared,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// Values of the options that the program takes.
    pub(crate) options: Map<String, Value>,
    idle: Mutex<Vec<Idle>>,
    failed: AtomicBool,
}

impl Session {
    pub(crate) fn new(external: Shared, seed: u64, options: Map<String, Value>) -> Self {
        Self { external, seed, options, idle: Mutex::default(), failed: AtomicBool::new(false) }
    }

    pub(crate) fn external(&self) -> &Shared {
        &self.external
    }

    /// Asks one question of any process. `question` makes it from its number, `answer` takes what it wants of the response.
    pub(crate) fn ask<T>(
        &self,
        what: &'static str,
        question: impl FnOnce(u64) -> Result<Vec<u8>, Cause>,
        answer: impl FnOnce(Response) -> Result<T, Cause>,
    ) -> Result<T, SystemError> {
        let program = self.external.program().map_err(SystemError::Failed)?;
        let hello = self.external.hello().map_err(|why| SystemError::Failed(why.clone()))?;
        let mut idle = self.take(program, hello).map_err(SystemError::Failed)?;
        let id = idle.next;
        idle.next += 1;
        let mut took = Duration::ZERO;
        let result = question(id).and_then(|request| {
            let start = Instant::now();
            let answered = idle.process.exchange(&request, program.timeout, what);
            took = start.elapsed();
            answer(read_response(&answered?, id, what)?)
        });
        let spent = if what == PLAN {
            Ledger { plan: took, plans: 1, ..Ledger::default() }
        } else {
            Ledger { place: took, places: 1, ..Ledger::default() }
        };
        self.external.note(spent);
        match result {
            Ok(value) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(idle);
                Ok(value)
            }
            Err(cause) => {
                self.failed.store(true, Ordering::SeqCst);
                let log = idle.process.kill();
                self.keep(program, &log);
                let text = program.explain(&cause, &log);
                let refused = matches!(cause, Cause::Refused(_));
                Err(if refused { SystemError::Impossible(text) } else { SystemError::Failed(text) })
            }
        }
    }

    /// An idle process, or a new one.
    fn take(&self, program: &Program, hello: &Hello) -> Result<Idle, String> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(idle) = idle {
            return Ok(idle);
        }
        let failed = |cause: &Cause, log: &Log| {
            self.failed.store(true, Ordering::SeqCst);
            self.keep(program, log);
            program.explain(cause, log)
        };
        let (process, again) = program.start().map_err(|(cause, log)| failed(&cause, &log))?;
        if again != *hello {
            let cause = Cause::Contract("says something else about itself each time it is started".to_owned());
            return Err(failed(&cause, &process.kill()));
        }
        Ok(Idle { process, next: 1 })
    }

    fn keep(&self, program: &Program, log: &Log) {
        let mut ledger = Ledger::default();
        ledger.keep(program.kept(log));
        self.external.note(ledger);
    }
}

/// What is asked for, in messages.
pub(crate) const PLAN: &str = "plan";
/// What is asked for, in messages.
pub(crate) const PLACE: &str = "place";

impl Drop for Session {
    /// Ends the processes. One that misbehaves at its end leaves a complaint, since its answers cannot be trusted.
    fn drop(&mut self) {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        let Ok(program) = self.external.program() else { return };
        let failed = self.failed.load(Ordering::SeqCst);
        for Idle { process, .. } in idle {
            let (log, wrong) = if failed { (process.kill(), None) } else { process.finish(program.hello_timeout) };
            let complaint = wrong.map(|cause| program.explain(&cause, &log));
            let mut ledger = Ledger { complaint, ..Ledger::default() };
            ledger.keep(program.kept(&log));
            self.external.note(ledger);
        }
    }
}
