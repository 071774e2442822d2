use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::rendezvous::Rendezvous;
use super::words::Words;
use crate::CudaError;

/// Says which events of a wave have been recorded, to threads that enqueue waits for them: a wait that is enqueued before
/// the event is recorded would be for the record of the execution before. The threads are of one process, or of several
/// on one host, which share the board's memory.
#[derive(Debug)]
pub(super) struct Board {
    /// A number that changes with every announcement, whether a rank has failed, then by slot the execution in which its
    /// event was last recorded; executions count from 1.
    words: Words,
    lock: Mutex<()>,
    changed: Condvar,
    /// Where other processes say that they failed.
    others: Option<Arc<Rendezvous>>,
}

const VERSION: usize = 0;
const STOPPED: usize = 1;
const FIRST: usize = 2;

/// How long a wait for another process keeps its processor before it sleeps, and how long it sleeps then.
const AWAKE: Duration = Duration::from_micros(200);
const ASLEEP: Duration = Duration::from_micros(20);
/// How often it looks whether the other processes live.
const LOOK: Duration = Duration::from_millis(100);

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
        Self { words: Words::own(FIRST + slots), lock: Mutex::new(()), changed: Condvar::new(), others: None }
    }

    /// A board that all processes of a session use; all call this at once. Rank 0 makes it, in a file of that name.
    ///
    /// # Errors
    /// Another process has failed, or does not come in time; the file cannot be made or mapped.
    pub fn joint(slots: usize, others: &Arc<Rendezvous>, name: &str, limit: Duration) -> Result<Self, CudaError> {
        let count = FIRST + slots;
        if others.rank() == 0 {
            others.publish(name, &vec![0; count * size_of::<u64>()])?;
        } else {
            others.wait(name, 0, "making the shared board", limit)?;
        }
        let words = Words::mapped(&others.open(name)?, count)?;
        Ok(Self { words, others: Some(Arc::clone(others)), ..Self::new(0) })
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Whether an event has been recorded in this execution.
    pub fn has(&self, slot: u32, execution: u64) -> bool {
        self.word(FIRST + slot as usize) == execution
    }

    /// Tells all that an event has been recorded.
    pub fn announce(&self, slot: u32, execution: u64) {
        if let Some(at) = self.words.get(FIRST + slot as usize) {
            at.store(execution, Ordering::Release);
        }
        self.bump();
    }

    /// Tells all that a rank has failed.
    pub fn stop(&self) {
        if let Some(at) = self.words.get(STOPPED) {
            at.store(1, Ordering::Release);
        }
        self.bump();
    }

    /// Whether a rank has failed.
    pub fn is_stopped(&self) -> bool {
        self.word(STOPPED) != 0
    }

    /// Stops this process when another one has failed or has ended.
    pub fn look(&self) {
        if !self.is_stopped() && self.others.as_ref().is_some_and(|others| others.failure().is_some()) {
            self.stop();
        }
    }

    /// A number that changes with every announcement.
    pub fn version(&self) -> u64 {
        self.word(VERSION)
    }

    /// Waits until something has been announced since the version was `seen`.
    pub fn wait(&self, seen: u64, deadline: Instant) -> Result<(), NoNews> {
        if self.others.is_some() {
            return self.polled(seen, deadline);
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(news) = self.news(seen, Instant::now(), deadline) {
                return news;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            guard = self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Other processes cannot wake this one: it looks again and again.
    fn polled(&self, seen: u64, deadline: Instant) -> Result<(), NoNews> {
        let began = Instant::now();
        let mut looked = began;
        loop {
            let now = Instant::now();
            if let Some(news) = self.news(seen, now, deadline) {
                return news;
            }
            if now.duration_since(looked) >= LOOK {
                looked = now;
                self.look();
            } else if now.duration_since(began) < AWAKE {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(ASLEEP);
            }
        }
    }

    fn news(&self, seen: u64, now: Instant, deadline: Instant) -> Option<Result<(), NoNews>> {
        if self.is_stopped() {
            return Some(Err(NoNews::Stopped));
        }
        if self.version() != seen {
            return Some(Ok(()));
        }
        (now >= deadline).then_some(Err(NoNews::Late))
    }

    fn bump(&self) {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = self.words.get(VERSION) {
            at.fetch_add(1, Ordering::AcqRel);
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{Board, NoNews};
    use crate::run::rendezvous::tests::{child, folder};
    use crate::run::rendezvous::{Meeting, Rendezvous};

    const LONG: Duration = Duration::from_secs(60);

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

    /// Boards of two ranks that share memory.
    fn joint(meeting: &Meeting, slots: usize) -> [(Arc<Rendezvous>, Board); 2] {
        [0, 1].map(|rank| {
            let others = Arc::new(Rendezvous::join(meeting.path(), rank, 2).expect("joined"));
            let board = Board::joint(slots, &others, "board", LONG).expect("a board");
            (others, board)
        })
    }

    #[test]
    fn boards_of_processes_show_the_same() {
        let meeting = Meeting::new().expect("a folder");
        let [(_, a), (_, b)] = joint(&meeting, 2);
        let seen = b.version();
        assert_eq!(b.wait(seen, Instant::now() + Duration::from_millis(5)), Err(NoNews::Late));
        a.announce(1, 3);
        assert_eq!(b.wait(seen, Instant::now() + LONG), Ok(()));
        assert!(b.has(1, 3) && !b.has(0, 3) && !b.has(2, 3));
        b.stop();
        assert_eq!(a.wait(a.version(), Instant::now() + LONG), Err(NoNews::Stopped));
    }

    #[test]
    fn a_failure_elsewhere_ends_a_wait() {
        let meeting = Meeting::new().expect("a folder");
        let [(_other, a), (b, board)] = joint(&meeting, 1);
        b.fail("no memory");
        let began = Instant::now();
        assert_eq!(a.wait(a.version(), Instant::now() + LONG), Err(NoNews::Stopped));
        assert!(began.elapsed() < LONG / 2 && board.is_stopped());
    }

    #[test]
    fn a_board_of_another_size_is_refused() {
        let meeting = Meeting::new().expect("a folder");
        let of = |rank| Arc::new(Rendezvous::join(meeting.path(), rank, 2).expect("joined"));
        let (a, b) = (of(0), of(1));
        Board::joint(1, &a, "board", LONG).expect("a board");
        assert!(Board::joint(2, &b, "board", LONG).expect_err("larger").to_string().contains("same wave"));
    }

    #[test]
    fn processes_take_turns_on_a_board() {
        const TURNS: u64 = 2000;
        let turns = |board: &Board, mine: u32| {
            for turn in 1..=TURNS {
                // Rank 0 begins each turn, rank 1 answers.
                if mine == 0 {
                    board.announce(0, turn);
                }
                loop {
                    let seen = board.version();
                    if board.has(1 - mine, turn) {
                        break;
                    }
                    board.wait(seen, Instant::now() + LONG).expect("news");
                }
                if mine == 1 {
                    board.announce(1, turn);
                }
            }
        };
        if let Some(folder) = folder() {
            let others = Arc::new(Rendezvous::join(&folder, 1, 2).expect("joined"));
            turns(&Board::joint(2, &others, "board", LONG).expect("a board"), 1);
            return;
        }
        let meeting = Meeting::new().expect("a folder");
        let others = Arc::new(Rendezvous::join(meeting.path(), 0, 2).expect("joined"));
        let mut other = child("run::board::tests::processes_take_turns_on_a_board", meeting.path());
        turns(&Board::joint(2, &others, "board", LONG).expect("a board"), 0);
        assert!(other.wait().expect("ended").success());
    }
}
