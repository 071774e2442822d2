/// Why a batch script cannot be made or submitted.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A value that is not of the form that it must have.
    #[error("{value:?} is no {what}: {expected}")]
    Value {
        /// What it should be.
        what: &'static str,
        /// The beginning of what was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A site's header that cannot stand in front of a script.
    #[error("site header, line {line}: {what}")]
    Header {
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A setting that the script has no place for.
    #[error("{0}")]
    Template(String),
    /// Too few arguments for the script.
    #[error("the script takes {expected}; {given} given")]
    Arguments {
        /// Names of the arguments.
        expected: String,
        /// How many were given.
        given: usize,
    },
    /// There is no Slurm here.
    #[error(
        "sbatch not found on PATH; submit on a login node of a Slurm cluster, or write the script with skewbench slurm render and take it there"
    )]
    NoSlurm,
    /// Slurm did not take the job.
    #[error("sbatch ended with {status}: {said}")]
    Refused {
        /// How it ended.
        status: String,
        /// What it said.
        said: String,
    },
    /// Slurm took the job, or not; what it printed is no job number.
    #[error("sbatch printed {0:?} and no job number; look for the job with squeue")]
    NoJob(String),
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl BatchError {
    pub(super) fn value(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        Self::Value { what, value: value.chars().take(80).collect(), expected: expected.into() }
    }
}
