pub(crate) use skewbench_config::hint as nearest;
use skewbench_plan::SystemError;

/// Why no system could be made from a name and options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is neither a named system nor a pair.
    #[error("unknown system {name}{hint}; known: {known}, or any planner+placement")]
    System {
        /// What was given.
        name: String,
        /// The nearest name.
        hint: String,
        /// All names.
        known: String,
    },
    /// One half of a pair is unknown.
    #[error("unknown {kind} {name} in {pair}{hint}; known: {known}")]
    Half {
        /// "planner" or "placement".
        kind: &'static str,
        /// What was given.
        name: String,
        /// The pair.
        pair: String,
        /// The nearest name.
        hint: String,
        /// All names.
        known: String,
    },
    /// The capability is unknown.
    #[error("unknown capability {name}{hint}; known: {known}")]
    Capability {
        /// What was given.
        name: String,
        /// The nearest name.
        hint: String,
        /// All names.
        known: String,
    },
    /// The system has no such option.
    #[error("{system} has no option {option}{hint}; its options: {known}")]
    Option {
        /// The system.
        system: String,
        /// What was given.
        option: String,
        /// The nearest option, with what it accepts.
        hint: String,
        /// All options of the system.
        known: String,
    },
    /// An option's value is not accepted.
    #[error("{system}: {source}")]
    Value {
        /// The system.
        system: String,
        /// Which option and why.
        source: SystemError,
    },
}
