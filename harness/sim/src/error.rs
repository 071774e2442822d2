/// Why a profile, a set of overrides or a model file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not what the format asks for.
    #[error(transparent)]
    Format(#[from] skewbench_config::ConfigError),
    /// A value that no machine or model can have.
    #[error("{file}: {key} = {value}: {why}")]
    Value {
        /// File or built-in name.
        file: String,
        /// Path of the key, with dots.
        key: String,
        /// The value found.
        value: String,
        /// Why it is refused and what is accepted.
        why: String,
    },
    /// A name that is not built in.
    #[error("unknown {kind} {name}{hint}; known: {known}; or give a file")]
    Unknown {
        /// `profile` or `model`.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// `, did you mean X?` with the nearest known name, or nothing.
        hint: String,
        /// All known names.
        known: String,
    },
}

/// Why a program cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// Machine and program have different ranks.
    #[error("the program has {program} ranks, the machine {machine}; build the machine for the program's domain")]
    Ranks {
        /// Ranks of the program.
        program: usize,
        /// Ranks of the machine.
        machine: usize,
    },
    /// An index of the program points nowhere.
    #[error("rank {rank}, stream {stream}, instruction {index}: {what} is out of range; lower a checked plan")]
    Index {
        /// Rank.
        rank: u32,
        /// Stream.
        stream: u32,
        /// Instruction on the stream.
        index: u32,
        /// What points nowhere.
        what: &'static str,
    },
    /// Instructions wait for each other or for a call that a peer never posts.
    #[error("rank {rank}, stream {stream}, instruction {index} never ends: {what}")]
    Stuck {
        /// Rank.
        rank: u32,
        /// Stream.
        stream: u32,
        /// Instruction on the stream.
        index: u32,
        /// What it waits for.
        what: String,
    },
    /// A time beyond 2^63 picoseconds (107 days).
    #[error(
        "rank {rank}, stream {stream}, instruction {index}: time beyond 107 days; check the profile and the program"
    )]
    Overflow {
        /// Rank.
        rank: u32,
        /// Stream.
        stream: u32,
        /// Instruction on the stream.
        index: u32,
    },
}
