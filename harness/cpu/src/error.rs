use skewbench_exec::ProgramError;

use crate::Wrong;

/// Why a program does not compute attention.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The program cannot run to its end.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The inputs are of other sequences or heads than the program.
    #[error("the inputs do not fit the program: {0}")]
    Inputs(String),
    /// An instruction cannot be carried out.
    #[error("{pass}, rank {rank}, stream {stream}, instruction {index}: {what}")]
    Instruction {
        /// `forward` or `backward`.
        pass: &'static str,
        /// Rank.
        rank: u32,
        /// Stream of the rank.
        stream: u32,
        /// Instruction of the stream.
        index: u32,
        /// What is wrong, with tensor, sequence, row and head.
        what: String,
    },
    /// No instruction of the pass has ended for as long as [`RunOptions::patience`](crate::RunOptions::patience).
    #[error("{pass}, rank {rank}, stream {stream}, instruction {index} hangs: it waits for {what}")]
    Hung {
        /// `forward` or `backward`.
        pass: &'static str,
        /// Rank.
        rank: u32,
        /// Stream of the rank.
        stream: u32,
        /// Instruction of the stream.
        index: u32,
        /// What it waits for.
        what: String,
    },
    /// A pass ends and a result is not home.
    #[error(
        "{pass}: rank {rank} still holds {tensor} of sequence {seq}, row {row}, head {head}, which nothing takes home"
    )]
    Left {
        /// `forward` or `backward`.
        pass: &'static str,
        /// Rank.
        rank: u32,
        /// Tensor.
        tensor: &'static str,
        /// Packed sequence.
        seq: u32,
        /// Row of the packed sequence.
        row: u32,
        /// Head.
        head: u16,
    },
    /// The buffers need more memory than allowed.
    #[error(
        "the buffers of all ranks take {bytes} bytes, above the limit of {limit}; take fewer tokens or ranks, or raise the limit"
    )]
    Memory {
        /// Bytes of all buffers of both passes.
        bytes: u64,
        /// [`RunOptions::memory_bytes`](crate::RunOptions::memory_bytes).
        limit: u64,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread for every stream of every rank; take fewer ranks")]
    Thread(#[source] std::io::Error),
    /// A thread ended abnormally.
    #[error("{pass}: the thread of rank {rank}, stream {stream} ended abnormally; this is a fault of the interpreter")]
    Abnormal {
        /// `forward` or `backward`.
        pass: &'static str,
        /// Rank.
        rank: u32,
        /// Stream of the rank.
        stream: u32,
    },
    /// In a group of processes: what another one found, or why there is no word from it.
    #[error("{0}")]
    Processes(String),
    /// In a group of processes: one that others have waited for in vain.
    #[error("{name} has not sent {awaited} for {waited_s} s: it hangs or is gone")]
    Silent {
        /// Which process it is, as [`Transport::name`](crate::Transport::name) says.
        name: String,
        /// What was awaited.
        awaited: &'static str,
        /// Seconds since there last was a sign of progress.
        waited_s: u64,
    },
    /// The results are not those of dense attention.
    #[error(transparent)]
    Wrong(#[from] Wrong),
}
