//! Checks on real cards that a process a card gives what a thread a card gives, bit by bit, through both transports, and that
//! a process that is killed or stands still ends the other one in time. Starts itself as child processes. With one card,
//! two processes share it, and copies are checked alone.
//!
//! Two processes that `srun`, `mpirun` or `torchrun` start, with `SKEWBENCH_MEETING` the path of a folder that both see, meet
//! in it, and check that both transports give the same bits:
//!
//!     SKEWBENCH_MEETING=/shared/me/meeting srun -N1 -n2 --gpus-per-task=1 process_check

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Map;
use skewbench_cluster::{Launch, ProcessModel};
use skewbench_cuda::attention::{Attention, CuDnn, CuDnnOptions};
use skewbench_cuda::run::{
    AttentionFactory, Execution, Generated, Meeting, Mode, Placement, Rendezvous, Session, SessionOptions, Transport,
    cards,
};
use skewbench_cuda::steps::{
    DeviceProgram, Exchange, Message, PassSteps, RankDevice, Region, Step, StepOptions, Work, device_program,
};
use skewbench_exec::{InstrKind, lower};
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{AttentionShape, Domain, Facts, FlopsCost, PackedSequence, Pass, Tensor};
use skewbench_systems::registry;

/// Folder in which processes that a launcher started meet.
const MEETING: &str = "SKEWBENCH_MEETING";
/// Which part a child process has: rank, transport, placement, what to do, folder of the meeting, folder of results.
const PART: &str = "SKEWBENCH_PROCESS_CHECK";
const RANKS: usize = 2;
const SYSTEMS: [&str; 2] = ["ulysses", "libra"];
const SHAPE: AttentionShape = AttentionShape { q_heads: 8, kv_heads: 2, head_dim: 128 };
const DOCUMENTS: [u32; 3] = [3000, 900, 196];
static COST: FlopsCost = FlopsCost { flops_per_s: 6e14, bytes_per_s: 5e10 };
/// What two ranks exchange to see how fast that is.
const EXCHANGED: u64 = 256 << 20;
const CALLS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(20);
/// Patience where a process is killed or stands still.
const SHORT: Duration = Duration::from_secs(4);
/// Beyond their patience processes have so long to say what is wrong and to end.
const GRACE: Duration = Duration::from_secs(10);

type Check<T> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn program(system: &str) -> Check<DeviceProgram> {
    let system = registry::system(system, &Map::new()).map_err(text)?;
    let sequence = PackedSequence::new(DOCUMENTS);
    let domain = Domain {
        sequences: &[&sequence],
        cp: RANKS as u32,
        shape: SHAPE,
        nodes: &[0; RANKS],
        cost: &COST,
        time_factors: &[],
    };
    let plan = system.planner().plan(&domain).map_err(text)?;
    let facts = Facts::of(&plan).map_err(text)?;
    let checked = check_facts(&plan, &facts, &Limits::default()).map_err(text)?;
    let lowered = lower(&plan, &facts, &checked.operands).map_err(text)?;
    device_program(&lowered, StepOptions { repeatable: true }).map_err(text)
}

/// Two ranks that exchange so many bytes both ways, `CALLS` times.
fn pair(bytes: u64) -> DeviceProgram {
    let rank = |peer: u32| {
        let exchange = |call| Exchange {
            call,
            sends: vec![Message { peer, offset: 0, bytes }],
            receives: vec![Message { peer, offset: bytes, bytes }],
        };
        let transfer = |call| Step {
            instr: InstrKind::Transfer { call },
            micro_batch: 0,
            after: Vec::new(),
            work: vec![Work::Exchange(exchange(call))],
        };
        let forward = PassSteps { streams: vec![Vec::new(), (0..CALLS).map(transfer).collect()], setup: Vec::new() };
        RankDevice { arena_bytes: 2 * bytes, forward, ..RankDevice::default() }
    };
    DeviceProgram { ranks: vec![rank(1), rank(0)] }
}

fn kernels() -> AttentionFactory {
    Arc::new(|context| {
        let kernels = CuDnn::open(context, CuDnnOptions { repeatable: true, ..CuDnnOptions::default() })?;
        Ok(Box::new(kernels) as Box<dyn Attention>)
    })
}

fn bytes(region: &Region) -> u64 {
    let rows = region.runs.iter().map(|run| u64::from(run.offset) + u64::from(run.rows.len)).max().unwrap_or(0);
    rows * u64::from(region.heads.len()) * u64::from(region.width) * region.element.bytes()
}

/// Bits of all results of the ranks of this process, by rank, and what the slowest rank took in each pass, microseconds.
fn results(session: &mut Session, local: &[usize], system: &str) -> Check<(Vec<Vec<u8>>, [u64; 2])> {
    let program = program(system)?;
    session.load(std::slice::from_ref(&program)).map_err(text)?;
    session.poison().map_err(text)?;
    session.generate(&[Generated::new(11, 0, SHAPE)]).map_err(text)?;
    let mut bits = vec![Vec::new(); local.len()];
    let mut slowest = [0; 2];
    for (pass, slowest) in [Pass::Forward, Pass::Backward].into_iter().zip(&mut slowest) {
        // The second execution finds the memory as the first one has left it.
        for _ in 0..2 {
            let times = session.execute(pass, Execution::of(Mode::Whole)).map_err(text)?;
            let times = session.all_times(&times).map_err(text)?;
            if times.len() != RANKS {
                return Err(format!("times of {} ranks", times.len()));
            }
            *slowest = times.iter().map(|time| time.ns / 1000).max().unwrap_or(0);
        }
        for (rank, bits) in local.iter().zip(&mut bits) {
            let all = program.ranks[*rank].outputs.iter();
            let of_pass =
                all.filter(|region| matches!(region.tensor, Tensor::O | Tensor::Lse) == (pass == Pass::Forward));
            for region in of_pass {
                bits.extend(session.read(*rank, region.offset, bytes(region)).map_err(text)?);
            }
        }
    }
    Ok((bits, slowest))
}

/// GB/s each way of an exchange, whose bytes are checked.
fn exchanged(session: &mut Session, local: &[usize]) -> Check<f64> {
    session.load(&[pair(EXCHANGED)]).map_err(text)?;
    let sent = |rank: usize| vec![rank as u8 + 17; EXCHANGED as usize];
    for rank in local {
        session.write(*rank, 0, sent(*rank)).map_err(text)?;
    }
    let mut best = u64::MAX;
    for _ in 0..4 {
        let times = session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(text)?;
        let times = session.all_times(&times).map_err(text)?;
        best = best.min(times.iter().map(|time| time.ns).max().unwrap_or(0));
    }
    for rank in local {
        if session.read(*rank, EXCHANGED, EXCHANGED).map_err(text)? != sent(1 - rank) {
            return Err(format!("rank {rank} did not receive what was sent"));
        }
    }
    Ok((EXCHANGED * u64::from(CALLS)) as f64 / best.max(1) as f64)
}

/// What a process is started for.
struct Part {
    rank: usize,
    transport: Transport,
    placement: Placement,
    task: String,
    meeting: PathBuf,
    out: PathBuf,
}

impl Part {
    fn write(&self) -> String {
        let placement = if self.placement == Placement::OneEach { "each" } else { "shared" };
        let transport = if self.transport == Transport::Nccl { "nccl" } else { "copies" };
        let (meeting, out) = (self.meeting.display(), self.out.display());
        format!("{}|{transport}|{placement}|{}|{meeting}|{out}", self.rank, self.task)
    }

    fn read(words: &str) -> Option<Self> {
        let words: Vec<&str> = words.split('|').collect();
        let [rank, transport, placement, task, meeting, out] = words.as_slice() else { return None };
        Some(Self {
            rank: rank.parse().ok()?,
            transport: if *transport == "nccl" { Transport::Nccl } else { Transport::CopyEngines },
            placement: if *placement == "each" { Placement::OneEach } else { Placement::Shared(1) },
            task: (*task).to_owned(),
            meeting: meeting.into(),
            out: out.into(),
        })
    }

    /// The work of a child process. Lines that start with a word in capitals are for its parent.
    fn run(&self) -> Check<()> {
        let rendezvous = Rendezvous::join(&self.meeting, self.rank, RANKS).map_err(text)?;
        let patience = if self.task == "same" { PATIENCE } else { SHORT };
        let (transport, placement) = (self.transport, self.placement.clone());
        let options = SessionOptions { transport, placement, patience, ..SessionOptions::default() };
        let mut session = Session::join(rendezvous, options, kernels()).map_err(text)?;
        if self.task == "same" {
            for system in SYSTEMS {
                let (bits, slowest) = results(&mut session, &[self.rank], system)?;
                std::fs::write(self.out.join(format!("{system}-{}", self.rank)), bits.concat()).map_err(text)?;
                println!("TIME {system} {} {}", slowest[0], slowest[1]);
            }
            println!("RATE {:.1}", exchanged(&mut session, &[self.rank])?);
            return Ok(());
        }
        session.load(&[pair(EXCHANGED)]).map_err(text)?;
        session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(text)?;
        println!("RUNNING");
        let skip = (self.task == "skip").then_some((0, 1));
        let until = Instant::now() + 3 * SHORT;
        while Instant::now() < until {
            session.execute(Pass::Forward, Execution { skip, ..Execution::of(Mode::Whole) }).map_err(text)?;
        }
        Ok(())
    }
}

/// A child process and the lines that it prints. It is killed when it is forgotten.
struct Started {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Started {
    fn new(part: &Part) -> Check<Self> {
        let program = std::env::current_exe().map_err(text)?;
        let mut child = Command::new(program)
            .env(PART, part.write())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)?;
        let output = child.stdout.take().ok_or("no output")?;
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        Ok(Self { child, lines, heard: Vec::new() })
    }

    /// Waits for a line that starts with a word.
    fn says(&mut self, word: &str, limit: Duration) -> Check<()> {
        let until = Instant::now() + limit;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.heard.push(line);
            if self.heard.last().is_some_and(|line| line.starts_with(word)) {
                return Ok(());
            }
        }
        Err(format!("it does not say {word}: {:?}", self.heard))
    }

    /// Waits for the end of the process; whether it succeeded.
    fn ends(&mut self, limit: Duration) -> Check<bool> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().map_err(text)? {
                self.heard.extend(self.lines.iter());
                return Ok(status.success());
            }
            if Instant::now() >= until {
                return Err(format!("it has not ended within {limit:?}: {:?}", self.heard));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn error(&self) -> &str {
        self.heard.iter().find_map(|line| line.strip_prefix("ERROR ")).unwrap_or("no error")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(
    meeting: &Meeting,
    task: &str,
    transport: Transport,
    placement: &Placement,
    out: &Path,
) -> Check<Vec<Started>> {
    let part = |rank| Part {
        rank,
        transport,
        placement: placement.clone(),
        task: task.to_owned(),
        meeting: meeting.path().to_path_buf(),
        out: out.to_path_buf(),
    };
    (0..RANKS).map(|rank| Started::new(&part(rank))).collect()
}

fn same(transport: Transport, placement: &Placement) -> Check<String> {
    let mut said = Vec::new();
    let mut expected = Vec::new();
    {
        let options =
            SessionOptions { transport, placement: placement.clone(), patience: PATIENCE, ..SessionOptions::default() };
        let mut session = Session::open(RANKS, options, kernels()).map_err(text)?;
        for system in SYSTEMS {
            let (bits, slowest) = results(&mut session, &[0, 1], system)?;
            said.push(format!("{system} {} {} us", slowest[0], slowest[1]));
            expected.push(bits);
        }
        said.push(format!("{:.1} GB/s each way", exchanged(&mut session, &[0, 1])?));
    }
    said.push("processes".to_owned());
    let (meeting, out) = (Meeting::new().map_err(text)?, Meeting::new().map_err(text)?);
    let mut started = start(&meeting, "same", transport, placement, out.path())?;
    for (rank, one) in started.iter_mut().enumerate() {
        if !one.ends(2 * PATIENCE)? {
            return Err(format!("rank {rank}: {}", one.error()));
        }
    }
    said.extend(started[0].heard.iter().filter(|line| line.starts_with("TIME ") || line.starts_with("RATE ")).cloned());
    let mut compared = 0;
    for (system, expected) in SYSTEMS.iter().zip(&expected) {
        for (rank, expected) in expected.iter().enumerate() {
            let found = std::fs::read(out.path().join(format!("{system}-{rank}"))).map_err(text)?;
            if found != *expected || found.is_empty() {
                let differ = found.iter().zip(expected).filter(|(a, b)| a != b).count();
                return Err(format!("{system}, rank {rank}: {differ} of {} bytes differ", expected.len()));
            }
            compared += found.len();
        }
    }
    Ok(format!("{compared} bytes the same; threads {}", said.join(", ")))
}

/// One process is killed in the middle of an execution, or leaves out a call: the other says so and ends.
fn broken(task: &str, transport: Transport, placement: &Placement) -> Check<String> {
    let meeting = Meeting::new().map_err(text)?;
    let mut started = start(&meeting, task, transport, placement, meeting.path())?;
    for one in &mut started {
        one.says("RUNNING", PATIENCE)?;
    }
    let began = Instant::now();
    if task == "kill" {
        std::thread::sleep(Duration::from_millis(300));
        started[1].child.kill().map_err(text)?;
    }
    let mut errors = Vec::new();
    for (rank, one) in started.iter_mut().enumerate() {
        if one.ends(SHORT + GRACE)? {
            return Err(format!("rank {rank} succeeded"));
        }
        errors.push(one.error().to_owned());
    }
    let named = errors[0].contains("rank 1") || errors.iter().any(|error| error.contains("hangs"));
    let said = format!("after {:.1} s: {}", began.elapsed().as_secs_f64(), errors.join(" / "));
    if named && errors[0] != "no error" { Ok(said) } else { Err(said) }
}

fn child(words: &str) -> ExitCode {
    let done = Part::read(words).ok_or("no such part".to_owned()).and_then(|part| part.run());
    let Err(error) = done else { return ExitCode::SUCCESS };
    println!("ERROR {}", error.replace('\n', " "));
    let _ = std::io::stdout().flush();
    // A card may never end what it does: nothing is to wait for it.
    std::process::exit(3)
}

/// What a process checks that a launcher started.
fn launched(launch: &Launch) -> Check<String> {
    let model = launch.model(RANKS as u32, RANKS as u32).map_err(text)?;
    if model != ProcessModel::ProcessPerCard {
        return Err(format!("{model:?}: nothing to meet"));
    }
    let base = std::env::var(MEETING).map_err(|_| format!("{MEETING} names no folder"))?;
    let rank = launch.rank as usize;
    let mut said = Vec::new();
    let mut bits: Vec<Vec<Vec<u8>>> = Vec::new();
    for transport in [Transport::CopyEngines, Transport::Nccl] {
        let began = Instant::now();
        let rendezvous = Rendezvous::of_launch(Path::new(&base), launch, PATIENCE).map_err(text)?;
        said.push(format!("{transport:?}: met in {:.0} ms", began.elapsed().as_secs_f64() * 1e3));
        let options = SessionOptions { transport, patience: PATIENCE, ..SessionOptions::default() };
        let mut session = Session::join(rendezvous, options, kernels()).map_err(text)?;
        let mut of_transport = Vec::new();
        for system in SYSTEMS {
            let (bits, slowest) = results(&mut session, &[rank], system)?;
            said.push(format!("{system} {} {} us", slowest[0], slowest[1]));
            of_transport.extend(bits);
        }
        bits.push(of_transport);
    }
    if bits[0] != bits[1] || bits[0].iter().any(Vec::is_empty) {
        return Err("the transports give different bits".to_owned());
    }
    Ok(said.join(", "))
}

fn main() -> ExitCode {
    if let Ok(words) = std::env::var(PART) {
        return child(&words);
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match Launch::detect(host.trim(), |name| std::env::var(name).ok()) {
        Ok(launch) if launch.world > 1 => {
            let (verdict, said) = launched(&launch).map_or_else(|said| ("FAIL", said), |said| ("PASS", said));
            println!("{verdict} {}: {said}", launch.describe());
            // A card may never end what it does: nothing is to wait for it.
            std::process::exit(i32::from(verdict == "FAIL"))
        }
        Ok(_) => {}
        Err(error) => {
            println!("FAIL {error}");
            return ExitCode::FAILURE;
        }
    }
    // Needs no card, so that what is wrong here shows on any machine.
    if let Some((system, error)) = SYSTEMS.iter().find_map(|system| program(system).err().map(|error| (system, error)))
    {
        println!("FAIL the program of {system}: {error}");
        return ExitCode::FAILURE;
    }
    let found = match cards() {
        Ok(found) => found,
        Err(error) => {
            println!("SKIP no cards: {error}");
            return ExitCode::SUCCESS;
        }
    };
    let (placement, transports) = if found < RANKS {
        (Placement::Shared(1), vec![Transport::CopyEngines])
    } else {
        (Placement::OneEach, vec![Transport::CopyEngines, Transport::Nccl])
    };
    println!("{found} card(s)");
    let mut failures = 0;
    let mut check = |name: String, run: &dyn Fn() -> Check<String>| {
        let began = Instant::now();
        let (verdict, said) = run().map_or_else(|said| ("FAIL", said), |said| ("PASS", said));
        failures += u32::from(verdict == "FAIL");
        println!("{verdict} {name}: {said} [{:.1} s]", began.elapsed().as_secs_f64());
    };
    for transport in transports {
        check(format!("{transport:?}: processes and threads give the same bits"), &|| same(transport, &placement));
        check(format!("{transport:?}: a process is killed"), &|| broken("kill", transport, &placement));
        check(format!("{transport:?}: a process leaves out a call"), &|| broken("skip", transport, &placement));
    }
    println!("{failures} failed");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
