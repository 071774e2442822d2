use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use skewbench_store::Timings;

/// What a cell spends wall-clock time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Placing steps.
    Place,
    /// Planning domains.
    Plan,
    /// Checking plans, or locating their operands where they are trusted.
    Check,
    /// Lowering plans to programs.
    Lower,
    /// Simulating programs.
    Simulate,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Place, Self::Plan, Self::Check, Self::Lower, Self::Simulate];

    fn name(self) -> &'static str {
        ["place_s", "plan_s", "check_s", "lower_s", "simulate_s"][self as usize]
    }
}

/// Wall-clock time of a cell by phase, summed over threads.
#[derive(Debug, Default)]
pub struct Clock {
    nanoseconds: [AtomicU64; 5],
}

impl Clock {
    /// Runs something and adds what it took to a phase.
    pub fn time<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        let spent = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds[phase as usize].fetch_add(spent, Ordering::Relaxed);
        result
    }

    /// Seconds by phase, for `timings.json`.
    pub fn timings(&self) -> Timings {
        let seconds = |phase: Phase| self.nanoseconds[phase as usize].load(Ordering::Relaxed) as f64 * 1e-9;
        Phase::ALL.into_iter().map(|phase| (phase.name().to_owned(), seconds(phase))).collect()
    }
}
