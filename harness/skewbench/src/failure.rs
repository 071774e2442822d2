//! What ends a command early, and with which exit code.

use std::fmt::Display;

pub use skewbench_config::hint as nearest;

/// Exit codes of the command line, as its manual lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A defect of the program itself.
    Internal = 1,
    /// Unknown flag, figure, system, workload or experiment.
    Usage = 2,
    /// Configuration or input that cannot be used.
    Config = 10,
    /// A system, backend or library is not available.
    Unavailable = 11,
    /// Verification failed.
    Verification = 12,
    /// Fewer results than planned.
    Fewer = 20,
    /// Some cells failed.
    Cells = 21,
    /// A regression that `compare --fail-on` was told to report.
    Regression = 30,
    /// Interrupted.
    Interrupted = 130,
}

/// An error with the exit code that it ends the command with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// One message: lower case, no full stop.
    pub message: String,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// Unknown name or flag.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Configuration or input that cannot be used.
    pub fn config(message: impl Display) -> Self {
        Self::new(Exit::Config, message)
    }

    /// A defect of the program.
    pub fn internal(message: impl Display) -> Self {
        Self::new(Exit::Internal, message)
    }
}

impl From<skewbench_external::CatalogueError> for Failure {
    fn from(error: skewbench_external::CatalogueError) -> Self {
        if error.is_unknown_name() { Self::usage(error) } else { Self::config(error) }
    }
}

impl From<skewbench_cuda::CudaError> for Failure {
    fn from(error: skewbench_cuda::CudaError) -> Self {
        Self::new(Exit::Unavailable, error)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
