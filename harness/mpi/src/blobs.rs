use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use skewbench_cpu::Transport;
use skewbench_cuda::run::Courier;

/// How long a thread listens before another may look for what it waits for.
const NAP: Duration = Duration::from_millis(2);

/// Small blobs that the processes of a launch give each other by name. Nothing else may use their transport meanwhile.
pub struct Blobs {
    transport: Arc<dyn Transport>,
    turn: AtomicU64,
    /// By process and name. What nobody takes stays until the end.
    arrived: Mutex<HashMap<(u32, String), Vec<u8>>>,
}

impl Blobs {
    /// Blobs over a transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, turn: AtomicU64::new(0), arrived: Mutex::default() }
    }

    /// Gives every process what all bring, by process. All call it in the same order.
    ///
    /// # Errors
    /// Names the processes whose blob has not come within `limit`; the transport has ended.
    pub fn exchange(&self, bytes: &[u8], limit: Duration) -> Result<Vec<Vec<u8>>, String> {
        let name = format!("turn-{}", self.turn.fetch_add(1, Ordering::Relaxed));
        self.give(&name, bytes)?;
        let until = Instant::now() + limit;
        let (own, mut all, mut missing) = (self.transport.process(), Vec::new(), Vec::new());
        for process in 0..self.transport.processes() {
            let rest = until.saturating_duration_since(Instant::now());
            match if process == own { Some(bytes.to_vec()) } else { self.take(&name, process as usize, rest)? } {
                Some(blob) => all.push(blob),
                None => missing.push(process.to_string()),
            }
        }
        if missing.is_empty() {
            return Ok(all);
        }
        Err(format!("nothing came from process {} within {} s", missing.join(", "), limit.as_secs_f64()))
    }
}

impl Courier for Blobs {
    fn give(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let own = self.transport.process();
        let message = write(own, name, bytes);
        (0..self.transport.processes()).filter(|to| *to != own).try_for_each(|to| self.transport.send(to, &message))
    }

    fn take(&self, name: &str, from: usize, patience: Duration) -> Result<Option<Vec<u8>>, String> {
        let wanted = (u32::try_from(from).map_err(|e| e.to_string())?, name.to_owned());
        let began = Instant::now();
        loop {
            // Every change is one insertion or removal.
            let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(blob) = arrived.remove(&wanted) {
                return Ok(Some(blob));
            }
            let rest = patience.saturating_sub(began.elapsed());
            match self.transport.receive(rest.min(NAP))? {
                Some(message) => {
                    let (from, name, bytes) = read(&message).ok_or("a message is no blob")?;
                    arrived.insert((from, name), bytes);
                }
                None if rest.is_zero() => return Ok(None),
                None => {}
            }
        }
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, processes) = (self.transport.process(), self.transport.processes());
        f.debug_struct("Blobs").field("process", &process).field("processes", &processes).finish_non_exhaustive()
    }
}

/// Sender, length of the name, name, bytes.
fn write(from: u32, name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut message = from.to_le_bytes().to_vec();
    message.extend((name.len() as u32).to_le_bytes());
    message.extend(name.as_bytes());
    message.extend(bytes);
    message
}

fn read(message: &[u8]) -> Option<(u32, String, Vec<u8>)> {
    let (from, rest) = message.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, bytes) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u32::from_le_bytes(*from), String::from_utf8(name.to_vec()).ok()?, bytes.to_vec()))
}
