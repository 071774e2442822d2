/// Why a program does not run on cards.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CudaError {
    /// A library is not there, or is not one that we can use.
    #[error("{library} {why}; {remedy}")]
    Library {
        /// File name.
        library: &'static str,
        /// What is wrong.
        why: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// There are fewer cards than ranks.
    #[error(
        "{needed} ranks need {needed} cards and there are {found}; use --backend replay, which times ranks one after another on one card"
    )]
    Cards {
        /// Ranks.
        needed: usize,
        /// Cards.
        found: usize,
    },
    /// The card has too little memory left.
    #[error("card {card} has {free} bytes free and {needed} are needed; use fewer tokens a rank or more ranks")]
    Memory {
        /// Ordinal of the card.
        card: usize,
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A call to a library failed.
    #[error("card {card}: {call} failed: {why}")]
    Call {
        /// Ordinal of the card.
        card: usize,
        /// What was called.
        call: String,
        /// Status and message of the library.
        why: String,
    },
    /// A kernel call that no kernel supports.
    #[error("{kernel} has no kernel for {what}: {why}")]
    Unsupported {
        /// Which implementation.
        kernel: &'static str,
        /// The call.
        what: String,
        /// The library's reason.
        why: String,
    },
    /// Nothing ended for too long.
    #[error("rank {rank} hangs: {what} has not ended within {seconds} s; the communicators were aborted")]
    Hung {
        /// Rank.
        rank: u32,
        /// What it waits for.
        what: String,
        /// How long was waited.
        seconds: f64,
    },
    /// Another rank has failed first.
    #[error("rank {0} stopped because another rank failed")]
    Elsewhere(u32),
    /// A rank that runs in another process has failed, or is not there.
    #[error("rank {rank}, which runs in another process, {why}")]
    Peer {
        /// The rank.
        rank: u32,
        /// What has become of it.
        why: String,
    },
    /// Processes that a launcher started do not find each other, or cannot be one session.
    #[error("{0}")]
    Launch(String),
    /// The program or its inputs cannot be run.
    #[error("{0}")]
    Program(String),
}
