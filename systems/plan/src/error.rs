/// Why the checker refuses a plan. Every message names the rank, the operation and the rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plan of {planner}, {pass}: {what}")]
pub struct PlanError {
    /// Name of the planner.
    pub planner: String,
    /// `forward`, `backward` or `layout`.
    pub pass: &'static str,
    /// What is wrong and where.
    pub what: String,
}

/// Why a system cannot place or plan a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SystemError {
    /// An option has a value that the system cannot work with.
    #[error("{option} = {value}: {why}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: String,
        /// Why it is refused and what is accepted.
        why: String,
    },
    /// The placement's output does not suit the planner.
    #[error("{planner} does not accept the output of {placement}: {why}")]
    Mismatch {
        /// Planner.
        planner: String,
        /// Placement.
        placement: String,
        /// Why.
        why: String,
    },
    /// No plan exists or none was found.
    #[error("{0}")]
    Impossible(String),
    /// The system broke down: it crashed, hung, or answered with something else than was asked for.
    #[error("{0}")]
    Failed(String),
}
