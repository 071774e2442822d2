use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use skewbench_exec::Program;
use skewbench_plan::Pass;

use super::message::{Header, Kind, read_message, write_message};
use super::transport::Transport;
use super::verdict::{Verdict, read_rows, write_rows};
use crate::run::{Parts, run_parts};
use crate::transfers::Message;
use crate::{CpuError, Inputs, Outputs, Report, RunOptions, compare, reference};

/// Part of the patience with a run that the first process takes longer than a process whose ranks wait, and the others longer than
/// the first: each learns what the one before it has found.
const GRACE: u32 = 4;
/// How long a thread waits for messages before it looks whether it is still needed.
const NAP: Duration = Duration::from_millis(2);

/// A group of processes that run programs together: ranks are dealt to them in order, and each calls
/// [`measure`](Self::measure) with the same programs and inputs in the same order.
pub struct Processes<'t> {
    transport: &'t dyn Transport,
    runs: AtomicU64,
    /// Messages of runs and passes that this process has not come to yet.
    early: Mutex<VecDeque<(Header, Vec<u8>)>>,
    /// When the present run last made progress, as far as this process knows.
    progress: Mutex<Instant>,
}

/// A run of a program by a group.
#[derive(Clone, Copy)]
pub(crate) struct Link<'r> {
    processes: &'r Processes<'r>,
    run: u64,
    ranks: u32,
}

/// What arrives while a pass runs.
pub(crate) enum Post {
    /// For a rank of this process: rank, call, sender, message.
    Data(u32, u32, u32, Message),
    /// Another process cannot go on.
    Stop(String),
}

impl<'t> Processes<'t> {
    /// A group over a transport.
    pub fn new(transport: &'t dyn Transport) -> Self {
        Self { transport, runs: AtomicU64::new(0), early: Mutex::default(), progress: Mutex::new(Instant::now()) }
    }

    /// Runs a program in all processes and says in each how far its results are from dense attention.
    ///
    /// # Errors
    /// [`CpuError`], the same in all processes; [`CpuError::Processes`] where another process found it; [`CpuError::Silent`]
    /// where one hangs or is gone, with which nothing can be run any more. All know that after one and a half of
    /// [`RunOptions::patience`] without progress.
    pub fn measure(&self, program: &Program, inputs: &Inputs, options: &RunOptions) -> Result<Report, CpuError> {
        self.measure_with(program, inputs, options, |_| {})
    }

    /// [`measure`](Self::measure); the first process also shows all results.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_with(
        &self,
        program: &Program,
        inputs: &Inputs,
        options: &RunOptions,
        show: impl FnOnce(&Outputs),
    ) -> Result<Report, CpuError> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let ranks = program.forward.ranks.len() as u32;
        let link = Link { processes: self, run, ranks };
        self.note_progress();
        let parts = run_parts(program, inputs, options, Some(link));
        if parts.is_ok() {
            self.note_progress();
        }
        let me = self.transport.process();
        let own = link.part(&parts);
        if me != 0 {
            link.send(Kind::Part, 0, &own)?;
            let until = self.until(options.patience, 2);
            let bytes = link.wait_for(until, 0, "what came of the run", Kind::Verdict)?;
            let verdict: Verdict = serde_json::from_slice(&bytes)
                .map_err(|e| CpuError::Processes(format!("process 0 sent a verdict that cannot be read: {e}")))?;
            return verdict.result();
        }
        let until = self.until(options.patience, 1);
        let others = (1..self.transport.processes()).map(|from| link.wait_for(until, from, "its results", Kind::Part));
        let all = std::iter::once(Ok(own)).chain(others).collect::<Result<Vec<_>, _>>();
        let result = all.and_then(|all| gather(inputs, &all, parts.err())).map(|outputs| {
            show(&outputs);
            compare(inputs, &outputs, &reference::attention(inputs))
        });
        let verdict = serde_json::to_vec(&Verdict::of(&result)).map_err(|e| CpuError::Processes(e.to_string()))?;
        for process in 1..self.transport.processes() {
            link.send(Kind::Verdict, process, &verdict)?;
        }
        // All processes go on with the same words.
        match result {
            Err(silent @ CpuError::Silent { .. }) => Err(silent),
            Err(e) => Err(CpuError::Processes(e.to_string())),
            ok => ok,
        }
    }

    /// Until when a process waits for others: so many parts of the patience longer than ranks wait for progress in a pass.
    fn until(&self, patience: Duration, parts: u32) -> Instant {
        let grace = patience / GRACE;
        // What others have found after their own patience is on its way.
        (*self.progress() + patience + parts * grace).max(Instant::now() + grace)
    }

    fn note_progress(&self) {
        *self.progress() = Instant::now();
    }

    fn progress(&self) -> MutexGuard<'_, Instant> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn early(&self) -> MutexGuard<'_, VecDeque<(Header, Vec<u8>)>> {
        // Every change is one insertion or removal.
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Results of all processes; or why there are none: first what a process found itself.
fn gather(inputs: &Inputs, parts: &[Vec<u8>], own: Option<CpuError>) -> Result<Outputs, CpuError> {
    let torn = || CpuError::Processes("a process sent results that cannot be read".to_owned());
    let failures = parts.iter().filter(|part| part.first() == Some(&FAILED)).map(|part| &part[1..]);
    let mut failures: Vec<String> = failures.map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    failures.sort_by_key(|text| text.starts_with(ELSEWHERE));
    match (own, failures.into_iter().next()) {
        (_, Some(first)) => return Err(CpuError::Processes(first)),
        (Some(own), None) => return Err(own),
        (None, None) => {}
    }
    let mut outputs = Outputs::unwritten(inputs);
    // What senders keep comes first: homes have the last word.
    for kept in [true, false] {
        for part in parts {
            let (lens, rest) = part.get(1..).and_then(|rest| rest.split_first_chunk::<8>()).ok_or_else(torn)?;
            let split = usize::try_from(u64::from_le_bytes(*lens)).map_err(|_| torn())?;
            let (first, second) = rest.split_at_checked(split).ok_or_else(torn)?;
            read_rows(if kept { first } else { second }, &mut outputs).ok_or_else(torn)?;
        }
    }
    Ok(outputs)
}

const FINISHED: u8 = 0;
const FAILED: u8 = 1;
/// How the words of a process begin that was stopped by another.
const ELSEWHERE: &str = "stopped: ";

/// Process that runs a rank: neighbours share one where there are more ranks than processes.
fn process_of(rank: u32, ranks: u32, processes: u32) -> u32 {
    if ranks <= processes {
        return rank;
    }
    (u64::from(rank) * u64::from(processes) / u64::from(ranks)) as u32
}

impl Link<'_> {
    fn process_of(self, rank: u32) -> u32 {
        process_of(rank, self.ranks, self.processes.transport.processes())
    }

    /// True for a rank that this process runs.
    pub(crate) fn is_here(self, rank: u32) -> bool {
        self.process_of(rank) == self.processes.transport.process()
    }

    fn header(self, kind: Kind, pass: u8) -> Header {
        let from = self.processes.transport.process();
        Header { kind, run: self.run, pass, call: 0, from, to: 0 }
    }

    fn send(self, kind: Kind, to: u32, content: &[u8]) -> Result<(), CpuError> {
        let mut bytes = self.header(kind, 0).write();
        bytes.extend(content);
        self.deliver(to, &bytes)
    }

    fn deliver(self, to: u32, bytes: &[u8]) -> Result<(), CpuError> {
        let sent = self.processes.transport.send(to, bytes);
        let name = || self.processes.transport.name(to);
        sent.map_err(|what| CpuError::Processes(format!("cannot send to {}: {what}", name())))
    }

    /// Sends what a rank of this process has for a rank of another.
    pub(crate) fn send_to_rank(
        self,
        pass: Pass,
        call: u32,
        (from, to): (u32, u32),
        message: &Message,
    ) -> Result<(), CpuError> {
        let header = Header { call, from, to, ..self.header(Kind::Data, pass as u8) };
        let mut bytes = header.write();
        write_message(message, &mut bytes);
        self.deliver(self.process_of(to), &bytes)
    }

    /// Tells all others that this process cannot go on with the run.
    pub(crate) fn stop(self, error: &CpuError) {
        let processes = self.processes.transport.processes();
        let me = self.processes.transport.process();
        for process in (0..processes).filter(|process| *process != me) {
            // A process that is gone needs not be told.
            let _ = self.send(Kind::Stop, process, error.to_string().as_bytes());
        }
    }

    /// The next message of a pass; none when there is none soon.
    pub(crate) fn next(self, pass: Pass) -> Result<Option<Post>, CpuError> {
        let wanted =
            |header: &Header| header.kind == Kind::Stop || header.kind == Kind::Data && header.pass == pass as u8;
        let Some((header, bytes)) = self.take(NAP, wanted)? else { return Ok(None) };
        if header.kind == Kind::Stop {
            let what = String::from_utf8_lossy(&bytes);
            let name = self.processes.transport.name(header.from);
            return Ok(Some(Post::Stop(format!("{ELSEWHERE}{name}: {what}"))));
        }
        self.processes.note_progress();
        let message = read_message(&bytes);
        let message =
            message.ok_or_else(|| CpuError::Processes(format!("rank {} sent what cannot be read", header.from)))?;
        Ok(Some(Post::Data(header.to, header.call, header.from, message)))
    }

    /// The content of a message from a process.
    fn wait_for(self, until: Instant, from: u32, awaited: &'static str, kind: Kind) -> Result<Vec<u8>, CpuError> {
        loop {
            if let Some((_, bytes)) = self.take(NAP, |header| header.kind == kind && header.from == from)? {
                return Ok(bytes);
            }
            if Instant::now() > until {
                let waited_s = self.processes.progress().elapsed().as_secs();
                return Err(CpuError::Silent { name: self.processes.transport.name(from), awaited, waited_s });
            }
        }
    }

    /// A message of this run, now or within `patience`; what is for later is kept, what is of earlier runs dropped.
    fn take(self, patience: Duration, wanted: impl Fn(&Header) -> bool) -> Result<Option<(Header, Vec<u8>)>, CpuError> {
        let ours = |header: &Header| header.run == self.run && wanted(header);
        let mut early = self.processes.early();
        early.retain(|(header, _)| header.run >= self.run);
        if let Some(found) = early.iter().position(|(header, _)| ours(header)) {
            return Ok(early.remove(found));
        }
        let received = self.processes.transport.receive(patience).map_err(CpuError::Processes)?;
        let Some(bytes) = received else { return Ok(None) };
        let Some((header, content)) = Header::read(&bytes) else {
            return Err(CpuError::Processes("a message has no header".to_owned()));
        };
        if ours(&header) {
            return Ok(Some((header, content.to_vec())));
        }
        early.push_back((header, content.to_vec()));
        Ok(None)
    }

    /// What this process has computed, as bytes.
    fn part(self, parts: &Result<Parts<'_>, CpuError>) -> Vec<u8> {
        match parts {
            Ok(parts) => {
                let (mut kept, mut exits) = (Vec::new(), Vec::new());
                write_rows(parts.kept(), &mut kept);
                write_rows(parts.exits(), &mut exits);
                let mut bytes = vec![FINISHED];
                bytes.extend((kept.len() as u64).to_le_bytes());
                bytes.extend(kept);
                bytes.extend(exits);
                bytes
            }
            Err(error) => {
                let mut bytes = vec![FAILED];
                bytes.extend(error.to_string().as_bytes());
                bytes
            }
        }
    }
}

/// Takes in what arrives for this process while a pass runs, until `over`.
pub(crate) fn pump(
    link: Link<'_>,
    pass: Pass,
    over: &AtomicBool,
    mut deliver: impl FnMut(u32, u32, u32, Message),
    stop: impl Fn(CpuError),
) {
    while !over.load(Ordering::SeqCst) {
        match link.next(pass) {
            Ok(Some(Post::Data(to, call, from, message))) => deliver(to, call, from, message),
            Ok(Some(Post::Stop(what))) => stop(CpuError::Processes(what)),
            Ok(None) => {}
            Err(error) => {
                stop(error);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::process_of;

    #[test]
    fn ranks_are_dealt_in_order() {
        let of = |ranks: u32| (0..ranks).map(|rank| process_of(rank, ranks, 4)).collect::<Vec<_>>();
        assert_eq!(of(3), [0, 1, 2]);
        assert_eq!(of(6), [0, 0, 1, 2, 2, 3]);
        assert_eq!(of(8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert!((0..9).all(|rank| process_of(u32::MAX - 9 + rank, u32::MAX, 7) == 6));
    }
}
