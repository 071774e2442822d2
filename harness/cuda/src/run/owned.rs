use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::libraries::Nccl;

/// Something of a library that goes on in the background, and that may be given up at any time by any thread.
pub(super) trait Handle {
    /// Status of what goes on: success, in progress, or a failure.
    fn status(&self) -> c_int;

    /// Stops it and frees it.
    fn abort(self);

    /// Frees it after its work.
    fn destroy(self);
}

/// A handle that one thread at a time uses, and nobody once it has been given up. Calls that use it do not block, so that
/// it is free again soon.
#[derive(Debug)]
pub(super) struct Owned<H: Handle> {
    held: Mutex<Option<H>>,
}

/// Why a wait for a handle ended badly. The handle has been aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Another rank has failed.
    Stopped,
    /// The time is over.
    Late,
    /// Somebody else has given the handle up.
    Gone,
    /// With this status.
    Failed(c_int),
}

/// How often what is in use, or goes on, is looked at.
const LOOK: Duration = Duration::from_micros(10);
/// A wait keeps its processor so long before it sleeps between looks.
const AWAKE: Duration = Duration::from_micros(500);

impl<H: Handle> Owned<H> {
    pub fn new(handle: H) -> Self {
        Self { held: Mutex::new(Some(handle)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<H>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the handle; none when it has been given up.
    pub fn with<T>(&self, work: impl FnOnce(&H) -> T) -> Option<T> {
        self.lock().as_ref().map(work)
    }

    /// Waits until nothing goes on. Between looks the handle is free for others to give up.
    pub fn settle(&self, deadline: Instant, stopped: impl Fn() -> bool) -> Result<(), Wait> {
        let began = Instant::now();
        loop {
            let why = match self.with(Handle::status) {
                Some(Nccl::SUCCESS) => return Ok(()),
                None => return Err(Wait::Gone),
                Some(Nccl::IN_PROGRESS) if stopped() => Wait::Stopped,
                Some(Nccl::IN_PROGRESS) if Instant::now() >= deadline => Wait::Late,
                Some(Nccl::IN_PROGRESS) => {
                    match began.elapsed() < AWAKE {
                        true => std::thread::yield_now(),
                        false => std::thread::sleep(LOOK),
                    }
                    continue;
                }
                Some(failure) => Wait::Failed(failure),
            };
            self.abort(Duration::ZERO);
            return Err(why);
        }
    }

    /// Aborts the handle, as soon as nobody uses it. True when it is gone; false when it was in use all the time.
    pub fn abort(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            let taken = match self.held.try_lock() {
                Ok(mut held) => Some(held.take()),
                Err(TryLockError::Poisoned(held)) => Some(held.into_inner().take()),
                Err(TryLockError::WouldBlock) => None,
            };
            match taken {
                // Nobody finds it any more: an abort that takes long keeps nobody waiting.
                Some(handle) => {
                    handle.into_iter().for_each(Handle::abort);
                    return true;
                }
                None if Instant::now() >= until => return false,
                None => std::thread::sleep(LOOK),
            }
        }
    }
}

impl<H: Handle> Drop for Owned<H> {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = held {
            // What still goes on, or has failed, would keep its end waiting.
            match handle.status() {
                Nccl::SUCCESS => handle.destroy(),
                _ => handle.abort(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
    use std::sync::{Arc, Barrier};
    use std::time::{Duration, Instant};

    use super::{Handle, Owned, Wait};
    use crate::libraries::Nccl;

    /// What a library would know of a handle.
    #[derive(Debug, Default)]
    struct Seen {
        status: AtomicI32,
        asked: AtomicU32,
        aborted: AtomicU32,
        destroyed: AtomicU32,
    }

    struct Fake(Arc<Seen>);

    impl Fake {
        fn alive(&self) {
            assert_eq!(self.0.aborted.load(SeqCst) + self.0.destroyed.load(SeqCst), 0, "used after it was freed");
        }
    }

    impl Handle for Fake {
        fn status(&self) -> c_int {
            self.alive();
            self.0.asked.fetch_add(1, SeqCst);
            self.0.status.load(SeqCst)
        }

        fn abort(self) {
            self.alive();
            self.0.aborted.fetch_add(1, SeqCst);
        }

        fn destroy(self) {
            self.alive();
            self.0.destroyed.fetch_add(1, SeqCst);
        }
    }

    fn made(status: c_int) -> (Arc<Seen>, Owned<Fake>) {
        let seen = Arc::new(Seen { status: AtomicI32::new(status), ..Seen::default() });
        (Arc::clone(&seen), Owned::new(Fake(seen)))
    }

    fn freed(seen: &Seen) -> (u32, u32) {
        (seen.aborted.load(SeqCst), seen.destroyed.load(SeqCst))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_has_ended_is_destroyed_and_what_goes_on_is_aborted() {
        for (status, expected) in [(Nccl::SUCCESS, (0, 1)), (Nccl::IN_PROGRESS, (1, 0)), (2, (1, 0))] {
            let (seen, owned) = made(status);
            drop(owned);
            assert_eq!(freed(&seen), expected, "status {status}");
        }
    }

    #[test]
    fn waits_end_with_success_a_failure_time_or_another_rank() {
        let now = Instant::now();
        for (status, stopped, deadline, expected) in [
            (Nccl::SUCCESS, true, now, Ok(())),
            (Nccl::IN_PROGRESS, false, now, Err(Wait::Late)),
            (Nccl::IN_PROGRESS, true, now + LONG, Err(Wait::Stopped)),
            (6, false, now + LONG, Err(Wait::Failed(6))),
        ] {
            let (seen, owned) = made(status);
            assert_eq!(owned.settle(deadline, || stopped), expected);
            assert_eq!(freed(&seen), (u32::from(expected.is_err()), 0));
            // Once it is gone nobody asks for it.
            let asked = seen.asked.load(SeqCst);
            if expected.is_err() {
                assert_eq!(owned.settle(now + LONG, || false), Err(Wait::Gone));
                assert!(owned.with(|_| ()).is_none() && owned.abort(Duration::ZERO));
                assert_eq!(seen.asked.load(SeqCst), asked);
            }
            drop(owned);
            assert_eq!(seen.aborted.load(SeqCst) + seen.destroyed.load(SeqCst), 1);
        }
    }

    #[test]
    fn a_wait_ends_when_another_thread_aborts() {
        let (seen, owned) = made(Nccl::IN_PROGRESS);
        let owned = Arc::new(owned);
        let waiting = Arc::clone(&owned);
        let thread = std::thread::spawn(move || waiting.settle(Instant::now() + LONG, || false));
        while seen.asked.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(owned.abort(LONG));
        assert_eq!(thread.join().expect("joined"), Err(Wait::Gone));
        assert_eq!(freed(&seen), (1, 0));
    }

    #[test]
    fn what_is_in_use_is_not_freed() {
        let (seen, owned) = made(Nccl::IN_PROGRESS);
        let (owned, inside, done) = (Arc::new(owned), Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let user = (Arc::clone(&owned), Arc::clone(&inside), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let (owned, inside, done) = user;
            owned.with(|handle| {
                inside.wait();
                done.wait();
                handle.status()
            })
        });
        inside.wait();
        assert!(!owned.abort(Duration::from_millis(5)));
        assert_eq!(freed(&seen), (0, 0));
        done.wait();
        assert_eq!(thread.join().expect("joined"), Some(Nccl::IN_PROGRESS));
        assert!(owned.abort(LONG));
        assert_eq!(freed(&seen), (1, 0));
    }
}
