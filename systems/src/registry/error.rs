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

/// The name closest to `name`, for an error message: `, did you mean X?` or nothing when none is close.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let distance = |candidate: &str| strsim::damerau_levenshtein(name, candidate);
    known
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, candidate)| *d <= 2.max(candidate.chars().count() / 2))
        .map_or_else(String::new, |(_, candidate)| format!(", did you mean {candidate}?"))
}
