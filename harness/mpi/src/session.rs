use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mpi::datatype::Equivalence;
use mpi::environment::Universe;
use mpi::point_to_point::{Message, Status, send_receive_into};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};
use mpi::{Tag, Threading};
use skewbench::share::Messages;
use skewbench_cpu::Transport;

/// Messages of programs.
const DATA: Tag = 1;
/// Empty messages that show that a process lives.
const ALIVE: Tag = 2;
/// Empty messages of processes that are at their end to the first, and of the first when all are.
const ENDED: Tag = 3;
/// Most bytes of a message: MPI counts in 32 bits.
const MOST: usize = i32::MAX as usize;
/// Bytes that a process says about itself at the start.
const ABOUT: usize = 256;
/// How often a process shows that it lives, and after which silence it counts as gone.
const BEAT: Duration = Duration::from_secs(1);
const SILENT: Duration = Duration::from_secs(15);
/// How long the first process waits at its end for the others to come there; they wait longer for the first, which knows who is
/// missing.
const ENDING: Duration = Duration::from_secs(25);
const LONGER: Duration = Duration::from_secs(3);
/// How long MPI may take to end the launch.
const ABORTING: Duration = Duration::from_secs(5);
/// How long a process waits at its start for the others to come.
const STARTING: Duration = Duration::from_secs(60);
/// Pauses of the thread that looks for messages: none, then short while messages come, then longer.
const SHORT: Duration = Duration::from_micros(50);
const IDLE: Duration = Duration::from_micros(500);

/// Processes that an MPI launcher started, from initialisation to finalisation.
///
/// One thread makes all calls of MPI, for not every library that says so can be used by several at once; none of its calls
/// blocks, so that processes share cores. A process that is killed, hangs or loses its node is silent; the first process notices
/// that, as all others do of the first, says which it is and where it ran, and ends the launch.
pub struct MpiSession {
    transport: Mpi,
    // Finalises MPI when dropped, after the transport's thread.
    _universe: Universe,
}

struct Mpi {
    process: u32,
    /// Where each process runs.
    about: Vec<String>,
    received: Mutex<Receiver<Vec<u8>>>,
    /// None at the end.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread that calls MPI is to do. It ends when nobody is left who could tell it.
enum Order {
    Send(Letter),
    /// To end all processes at once, with an exit code.
    Abort(i32),
}

struct Letter {
    /// Process.
    to: u32,
    bytes: Vec<u8>,
}

impl MpiSession {
    /// Initialises MPI. `about` says where this process runs; `exit` is the exit code of the launch where a process is gone. Where
    /// the others do not come within a minute, this process ends.
    ///
    /// # Errors
    /// MPI is initialised already or cannot be used by a thread.
    pub fn start(about: &str, exit: i32) -> Result<Self, String> {
        let _watch = Watch::over(about, exit)?;
        let found = mpi::initialize_with_threading(Threading::Serialized);
        let (universe, threading) = found.ok_or("MPI has been initialised before")?;
        if threading < Threading::Serialized {
            return Err(format!("this MPI library gives {threading:?} to threads; it must be built for Serialized"));
        }
        let world = universe.world();
        let (process, processes) = (world.rank() as u32, world.size() as usize);
        let mut own = [0u8; ABOUT];
        own.iter_mut().zip(about.bytes()).for_each(|(to, from)| *to = from);
        let mut all = vec![0u8; ABOUT * processes];
        world.all_gather_into(&own[..], &mut all[..]);
        greet(&world);
        let about = all.chunks(ABOUT).map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
        let about: Vec<String> = about.collect();
        let ((sender, received), (orders, ordered)) = (channel(), channel());
        let now = Instant::now();
        let peers = about.iter().map(|about| Peer { about: about.clone(), heard: now, ended: false }).collect();
        let work = move || {
            let world = SimpleCommunicator::world();
            Post { world, process, peers, beaten: now, busy: now, received: sender, exit }.work(&ordered);
        };
        let thread = std::thread::Builder::new().name("mpi".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|e| format!("cannot start a thread for messages: {e}"))?);
        let transport = Mpi { process, about, received: Mutex::new(received), orders: Some(orders), thread };
        Ok(Self { transport, _universe: universe })
    }
}

/// [`MpiSession::start`], for the command line.
///
/// # Errors
/// As [`MpiSession::start`].
pub fn connect(about: &str, exit: i32) -> Result<Box<dyn Messages>, String> {
    Ok(Box::new(MpiSession::start(about, exit)?))
}

impl Transport for MpiSession {
    fn process(&self) -> u32 {
        self.transport.process
    }

    fn processes(&self) -> u32 {
        self.transport.about.len() as u32
    }

    fn name(&self, process: u32) -> String {
        rank_on(process, self.transport.about.get(process as usize).map(String::as_str))
    }

    fn send(&self, to: u32, message: &[u8]) -> Result<(), String> {
        self.transport.send(to, message)
    }

    fn receive(&self, patience: Duration) -> Result<Option<Vec<u8>>, String> {
        self.transport.receive(patience)
    }
}

impl Messages for MpiSession {
    fn transport(&self) -> &dyn Transport {
        self
    }

    fn abort(&self, exit: i32) -> ! {
        if let Some(orders) = &self.transport.orders {
            // A thread that has ended was told so by another process.
            let _ = orders.send(Order::Abort(exit));
        }
        // MPI ends this process too, if it can.
        std::thread::sleep(ABORTING);
        std::process::exit(exit)
    }
}

/// Ends this process where its start, in which calls of MPI block, takes too long. Dropped at the end of the start.
struct Watch {
    _started: Sender<()>,
}

impl Watch {
    fn over(about: &str, exit: i32) -> Result<Self, String> {
        let (sender, started) = channel();
        let about = about.to_owned();
        let work = move || {
            if started.recv_timeout(STARTING) == Err(RecvTimeoutError::Timeout) {
                eprintln!("error: not all processes of this launch came within {} s; {about} ends", STARTING.as_secs());
                std::process::exit(exit);
            }
        };
        let thread = std::thread::Builder::new().name("start".to_owned()).spawn(work);
        thread.map_err(|e| format!("cannot start a thread for the start: {e}"))?;
        Ok(Self { _started: sender })
    }
}

/// Connects this process with every other one. MPI does so at the first message, and stands still where the other hangs.
fn greet(world: &SimpleCommunicator) {
    let (own, processes) = (world.rank(), world.size());
    for step in 1..processes {
        let (to, from) = ((own + step) % processes, (own + processes - step) % processes);
        let (to, from) = (world.process_at_rank(to), world.process_at_rank(from));
        let mut heard = [0u8; 1];
        send_receive_into(&[0u8; 1][..], &to, &mut heard[..], &from);
    }
}

/// What the thread that calls MPI knows.
struct Post {
    world: SimpleCommunicator,
    process: u32,
    peers: Vec<Peer>,
    /// When this process last showed that it lives.
    beaten: Instant,
    /// When there last was a message.
    busy: Instant,
    received: Sender<Vec<u8>>,
    exit: i32,
}

/// What is known of a process.
struct Peer {
    /// Where it runs.
    about: String,
    /// When it was last heard of.
    heard: Instant,
    /// It is at its end.
    ended: bool,
}

impl Post {
    fn work(mut self, orders: &Receiver<Order>) {
        loop {
            match self.ordered(orders) {
                Ok(Some(letters)) => self.send(&letters),
                Ok(None) => self.look(),
                Err(()) => break,
            }
        }
        self.end();
    }

    /// Messages to send, now or soon; none when there are none, an error at the end.
    fn ordered(&self, orders: &Receiver<Order>) -> Result<Option<Vec<Letter>>, ()> {
        let pause = match self.busy.elapsed() {
            quiet if quiet < Duration::from_millis(1) => Duration::ZERO,
            quiet if quiet < Duration::from_millis(20) => SHORT,
            _ => IDLE,
        };
        let mut order = if pause.is_zero() {
            std::thread::yield_now();
            orders.try_recv()
        } else {
            orders.recv_timeout(pause).map_err(|e| match e {
                RecvTimeoutError::Timeout => TryRecvError::Empty,
                RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
            })
        };
        let mut letters = Vec::new();
        loop {
            match order {
                Ok(Order::Send(letter)) => letters.push(letter),
                Ok(Order::Abort(exit)) => self.world.abort(exit),
                Err(TryRecvError::Empty) => return Ok((!letters.is_empty()).then_some(letters)),
                Err(TryRecvError::Disconnected) if letters.is_empty() => return Err(()),
                Err(TryRecvError::Disconnected) => return Ok(Some(letters)),
            }
            order = orders.try_recv();
        }
    }

    /// Sends messages, and receives while they go out: their receivers do the same.
    fn send(&mut self, letters: &[Letter]) {
        self.busy = Instant::now();
        let world = SimpleCommunicator::world();
        let peers: Vec<_> = letters.iter().map(|letter| world.process_at_rank(letter.to as i32)).collect();
        mpi::request::scope(|scope| {
            let each = peers.iter().zip(letters);
            let mut going: Vec<_> =
                each.map(|(peer, letter)| peer.immediate_send_with_tag(scope, &letter.bytes[..], DATA)).collect();
            while !going.is_empty() {
                going = going.into_iter().filter_map(|request| request.test().err()).collect();
                self.look();
            }
        });
    }

    /// Receives what has come, shows that this process lives, and looks whether the others do.
    fn look(&mut self) {
        self.beat();
        while let Some((message, status)) = self.world.any_process().immediate_matched_probe() {
            self.receive(message, &status);
        }
    }

    fn receive(&mut self, message: Message, status: &Status) {
        let mut bytes = vec![0u8; status.count(u8::equivalent_datatype()) as usize];
        mpi::request::scope(|scope| {
            let mut coming = message.immediate_matched_receive_into(scope, &mut bytes[..]);
            // A sender that is lost in the middle is judged as any other.
            while let Err(request) = coming.test() {
                coming = request;
                std::thread::yield_now();
                self.beat();
            }
        });
        if let Some(peer) = self.peers.get_mut(status.source_rank() as usize) {
            peer.heard = Instant::now();
            peer.ended |= status.tag() == ENDED;
        }
        if status.tag() == DATA {
            self.busy = Instant::now();
            // Nobody listens any more at the end.
            let _ = self.received.send(bytes);
        }
    }

    /// Processes that this one tells that it lives, and watches: the first all others, these the first.
    fn watched(&self) -> std::ops::Range<u32> {
        if self.process == 0 { 1..self.peers.len() as u32 } else { 0..1 }
    }

    fn beat(&mut self) {
        let now = Instant::now();
        let since = now.duration_since(self.beaten);
        if since < BEAT {
            return;
        }
        // What stopped this process as well as the others is no sign of theirs.
        if since > 2 * BEAT {
            self.peers.iter_mut().for_each(|peer| peer.heard = now);
        }
        self.beaten = now;
        self.tell(ALIVE);
        let silence = |process: u32| self.peers.get(process as usize).map(|peer| peer.heard.elapsed());
        // One that hangs may hold up others that wait for it.
        let longest = self.watched().max_by_key(|process| silence(*process));
        if let Some(gone) = longest.filter(|process| silence(*process) > Some(SILENT)) {
            let why = "it was killed, it hangs, or its node is gone";
            self.give_up(&format!("{} has been silent for {} s: {why}", self.name(gone), SILENT.as_secs()));
        }
    }

    /// Sends an empty message to those that this process tells about itself.
    fn tell(&self, tag: Tag) {
        for to in self.watched() {
            // Nothing is sent but its envelope, for which no peer needs to be ready.
            self.world.process_at_rank(to as i32).send_with_tag(&[0u8; 0][..], tag);
        }
    }

    /// Waits until all processes have come to their end.
    fn end(mut self) {
        let began = Instant::now();
        let first = self.process == 0;
        if !first {
            self.tell(ENDED);
        }
        let limit = if first { ENDING } else { ENDING + LONGER };
        loop {
            self.look();
            let ended = |process: u32| self.peers.get(process as usize).is_none_or(|peer| peer.ended);
            let Some(missing) = self.watched().find(|process| !ended(*process)) else { break };
            if began.elapsed() > limit {
                let name = self.name(missing);
                self.give_up(&format!("{name} has not come to the end within {} s", limit.as_secs()));
            }
            std::thread::sleep(IDLE);
        }
        if first {
            self.tell(ENDED);
        }
    }

    fn name(&self, process: u32) -> String {
        rank_on(process, self.peers.get(process as usize).map(|peer| peer.about.as_str()))
    }

    fn give_up(&self, what: &str) -> ! {
        eprintln!("error: {what}; {} ends the launch", self.name(self.process));
        self.world.abort(self.exit)
    }
}

fn rank_on(process: u32, about: Option<&str>) -> String {
    format!("rank {process} on {}", about.unwrap_or("a host that is not known"))
}

impl Mpi {
    fn send(&self, to: u32, message: &[u8]) -> Result<(), String> {
        if message.len() > MOST {
            return Err(format!(
                "a message of {} bytes is more than MPI sends at once; take smaller cases",
                message.len()
            ));
        }
        let sent = self.orders.as_ref().map(|orders| orders.send(Order::Send(Letter { to, bytes: message.to_vec() })));
        sent.and_then(Result::ok).ok_or_else(|| "the thread that sends messages has ended".to_owned())
    }

    fn receive(&self, patience: Duration) -> Result<Option<Vec<u8>>, String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        match received.recv_timeout(patience) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("the thread that receives messages has ended".to_owned()),
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ended = thread.join();
        }
    }
}
