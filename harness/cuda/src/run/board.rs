use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Says which events of a wave have been recorded, to threads that enqueue waits for them: a wait that is enqueued before
/// the event is recorded would be for the record of the execution before.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// The execution in which each event was last recorded; executions count from 1.
    recorded: Vec<AtomicU64>,
    version: Mutex<u64>,
    changed: Condvar,
    stopped: AtomicBool,
}

/// Why a wait ended without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNews {
    /// Another rank has failed.
    Stopped,
    /// The time is over.
    Late,
}

impl Board {
    /// A board of so many events, none recorded.
    pub fn new(slots: usize) -> Self {
        Self { recorded: (0..slots).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    /// Whether an event has been recorded in this execution.
    pub fn has(&self, slot: u32, execution: u64) -> bool {
        self.recorded.get(slot as usize).is_some_and(|at| at.load(Ordering::Acquire) == execution)
    }

    /// Tells all that an event has been recorded.
    pub fn announce(&self, slot: u32, execution: u64) {
        if let Some(at) = self.recorded.get(slot as usize) {
            at.store(execution, Ordering::Release);
        }
        self.bump();
    }

    /// Tells all that a rank has failed.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bump();
    }

    /// Whether a rank has failed.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// A number that changes with every announcement.
    pub fn version(&self) -> u64 {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has been announced since the version was `seen`.
    pub fn wait(&self, seen: u64, deadline: Instant) -> Result<(), NoNews> {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.is_stopped() {
                return Err(NoNews::Stopped);
            }
            if *version != seen {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoNews::Late);
            }
            version = self.changed.wait_timeout(version, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn bump(&self) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{Board, NoNews};

    #[test]
    fn an_event_counts_for_its_execution_alone() {
        let board = Board::new(2);
        board.announce(1, 4);
        assert!(board.has(1, 4) && !board.has(1, 5) && !board.has(0, 4) && !board.has(7, 4));
    }

    #[test]
    fn waits_end_with_news_with_a_failure_or_with_time() {
        let board = Arc::new(Board::new(1));
        let seen = board.version();
        let late = board.wait(seen, Instant::now() + Duration::from_millis(5));
        assert_eq!(late, Err(NoNews::Late));
        let other = Arc::clone(&board);
        let thread = std::thread::spawn(move || other.announce(0, 1));
        assert_eq!(board.wait(seen, Instant::now() + Duration::from_secs(60)), Ok(()));
        thread.join().expect("joined");
        board.stop();
        assert_eq!(board.wait(board.version(), Instant::now()), Err(NoNews::Stopped));
    }
}
