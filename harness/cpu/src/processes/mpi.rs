use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, MatchedReceiveVec, Source};
use mpi::{Tag, Threading};

use super::Transport;

/// Messages of programs.
const DATA: Tag = 1;
/// Empty messages that show that a process lives.
const ALIVE: Tag = 2;
/// Most bytes of a message: MPI counts in 32 bits.
const MOST: usize = i32::MAX as usize;
/// Bytes that a process says about itself at the start.
const ABOUT: usize = 256;
/// How often a process shows that it lives, and after which silence it counts as gone.
const BEAT: Duration = Duration::from_secs(1);
const SILENT: Duration = Duration::from_secs(15);
/// Pauses of the thread that looks for messages: none, then short while messages come, then longer.
const SHORT: Duration = Duration::from_micros(50);
const IDLE: Duration = Duration::from_micros(500);

/// Processes that an MPI launcher started, from initialisation to finalisation.
///
/// A process that is killed, hangs or loses its node is silent; the first process notices that, as all others do of the first,
/// says which it is and where it ran, and ends the launch.
pub struct MpiSession {
    transport: Mpi,
    // Finalises MPI when dropped, after the transport's thread.
    _universe: Universe,
}

struct Mpi {
    process: u32,
    processes: u32,
    received: Mutex<Receiver<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MpiSession {
    /// Initialises MPI. `about` says where this process runs; `exit` is the exit code of the launch where a process is gone.
    ///
    /// # Errors
    /// MPI is initialised already or cannot be used by several threads.
    pub fn start(about: &str, exit: i32) -> Result<Self, String> {
        let found = mpi::initialize_with_threading(Threading::Multiple);
        let (universe, threading) = found.ok_or("MPI has been initialised before")?;
        if threading < Threading::Multiple {
            return Err(format!("this MPI library gives {threading:?} to threads; it must be built for Multiple"));
        }
        let world = universe.world();
        let (process, processes) = (world.rank() as u32, world.size() as u32);
        let mut own = [0u8; ABOUT];
        own.iter_mut().zip(about.bytes()).for_each(|(to, from)| *to = from);
        let mut all = vec![0u8; ABOUT * processes as usize];
        world.all_gather_into(&own[..], &mut all[..]);
        let about = all.chunks(ABOUT).map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
        let (sender, received) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let listener = Listener { process, about: about.collect(), sender, stop: Arc::clone(&stop), exit };
        let thread = std::thread::Builder::new().name("mpi".to_owned()).spawn(move || listener.listen());
        let thread = Some(thread.map_err(|e| format!("cannot start a thread for messages: {e}"))?);
        let transport = Mpi { process, processes, received: Mutex::new(received), stop, thread };
        Ok(Self { transport, _universe: universe })
    }

    /// The processes as a transport.
    pub fn transport(&self) -> &dyn Transport {
        &self.transport
    }
}

/// The thread that receives.
struct Listener {
    process: u32,
    about: Vec<String>,
    sender: Sender<Vec<u8>>,
    stop: Arc<AtomicBool>,
    exit: i32,
}

impl Listener {
    fn listen(self) {
        let world = SimpleCommunicator::world();
        let mut heard: Vec<Instant> = vec![Instant::now(); self.about.len()];
        let (mut beaten, mut last) = (Instant::now(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now.duration_since(beaten) >= BEAT {
                // What stopped this process as well as the others is no sign of theirs.
                if now.duration_since(beaten) > 2 * BEAT {
                    heard.fill(now);
                }
                beaten = now;
                for to in self.watched() {
                    world.process_at_rank(to as i32).send_with_tag(&[0u8; 0][..], ALIVE);
                }
                self.judge(&world, &heard);
            }
            match world.any_process().immediate_matched_probe() {
                Some((message, status)) => {
                    last = now;
                    if let Some(heard) = heard.get_mut(status.source_rank() as usize) {
                        *heard = now;
                    }
                    let (bytes, status) = (message, status).matched_receive_vec::<u8>();
                    // Nobody listens any more at the end.
                    if status.tag() == DATA && self.sender.send(bytes).is_err() {
                        return;
                    }
                }
                None if now.duration_since(last) < Duration::from_millis(1) => std::thread::yield_now(),
                None if now.duration_since(last) < Duration::from_millis(20) => std::thread::sleep(SHORT),
                None => std::thread::sleep(IDLE),
            }
        }
    }

    /// Processes that this one tells that it lives, and watches: the first all others, these the first.
    fn watched(&self) -> std::ops::Range<u32> {
        if self.process == 0 { 1..self.about.len() as u32 } else { 0..1 }
    }

    fn judge(&self, world: &SimpleCommunicator, heard: &[Instant]) {
        let silent = |process: &u32| heard.get(*process as usize).is_some_and(|heard| heard.elapsed() > SILENT);
        let Some(gone) = self.watched().find(silent) else { return };
        let about = self.about.get(gone as usize).map(String::as_str).unwrap_or_default();
        eprintln!(
            "error: rank {gone} on {about} has been silent for {} s: it was killed, it hangs, or its node is gone; rank {} on {} ends the launch",
            SILENT.as_secs(),
            self.process,
            self.about.get(self.process as usize).map(String::as_str).unwrap_or_default(),
        );
        world.abort(self.exit);
    }
}

impl Transport for Mpi {
    fn process(&self) -> u32 {
        self.process
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn send(&self, to: u32, message: &[u8]) -> Result<(), String> {
        if message.len() > MOST {
            return Err(format!(
                "a message of {} bytes is more than MPI sends at once; take smaller cases",
                message.len()
            ));
        }
        // Its peer receives in a thread of its own, so that a send never waits for another send.
        SimpleCommunicator::world().process_at_rank(to as i32).send_with_tag(message, DATA);
        Ok(())
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
        // All come here before any stops to listen.
        SimpleCommunicator::world().barrier();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ended = thread.join();
        }
    }
}
