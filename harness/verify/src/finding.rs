use skewbench_plan::{PlanError, SystemError};

/// What is wrong with a system, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Finding {
    /// The placement did something that no placement may.
    #[error("placement, step {step}: {what}")]
    Placement {
        /// Optimizer step.
        step: usize,
        /// What.
        what: String,
    },
    /// Part of the system stopped in the middle.
    #[error("{part} panicked: {what}")]
    Panic {
        /// "placement", "planner", "checker", "lowering" or a backend.
        part: &'static str,
        /// Its message.
        what: String,
    },
    /// The system broke down.
    #[error("{what}")]
    Failed {
        /// How.
        what: String,
    },
    /// The same seed gave two results.
    #[error("{part}: the same seed gave two different results")]
    Unrepeatable {
        /// "placement", "planner" or "simulation".
        part: &'static str,
    },
    /// The checker refused the plan.
    #[error("{at}: {source}")]
    Checker {
        /// Step, wave and ranks.
        at: Place,
        /// What it found.
        source: PlanError,
    },
    /// A rank has more work than the planner declares.
    #[error("{at}: {pass} rank {rank} computes {load} pairs x heads, above the declared bound of {bound}")]
    Load {
        /// Step, wave and ranks.
        at: Place,
        /// "forward" or "backward".
        pass: &'static str,
        /// Rank of the domain.
        rank: usize,
        /// What it computes.
        load: u64,
        /// What the planner declares that no rank exceeds.
        bound: u64,
    },
    /// A backend could not run the program or got other numbers.
    #[error("{at}: {what}")]
    Numbers {
        /// Step, wave and ranks.
        at: Place,
        /// What differs, by how much, and where.
        what: String,
    },
    /// The simulation of the program is not plausible.
    #[error("{at}: {what}")]
    Simulation {
        /// Step, wave and ranks.
        at: Place,
        /// What.
        what: String,
    },
}

/// A domain of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Optimizer step.
    pub step: usize,
    /// Wave of the step.
    pub wave: usize,
    /// First data-parallel rank of the domain.
    pub first: u32,
    /// One past its last data-parallel rank.
    pub end: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {}, wave {}, dp ranks {}..{}", self.step, self.wave, self.first, self.end)
    }
}

/// What a case ended with.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// Everything held.
    Right(Seen),
    /// The system refused the case with a reason.
    Refused(SystemError),
    /// Something is wrong.
    Wrong(Finding),
}

/// What a right case showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Domains that were planned.
    pub domains: u32,
    /// Greatest load over the declared bound.
    pub load_over_bound: f64,
    /// Greatest max / mean load of a domain.
    pub r: f64,
    /// Worst error of each tensor that was compared: name, error.
    pub errors: Vec<(&'static str, f64)>,
}
