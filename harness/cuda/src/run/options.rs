use std::time::Duration;

use serde::{Deserialize, Serialize};
use skewbench_exec::TraceEvent;

/// Which ranks run where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Rank r on card r.
    OneEach,
    /// Rank r on card r modulo this many cards. Verifies programs of many ranks on few cards; transfers are copies, and
    /// times mean nothing, since ranks share what computes them.
    Shared(usize),
}

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// NCCL's send and receive, grouped: kernels on multiprocessors.
    Nccl,
    /// Peer copies by the cards' copy engines, which need no multiprocessor.
    CopyEngines,
}

impl Transport {
    /// Name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::CopyEngines => "copy_engines",
        }
    }
}

/// What of a program is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All of it.
    Whole,
    /// Exchanges alone, in the program's order: T of the hidden share. Results are not right.
    Transfers,
    /// All but exchanges, in the program's order. Results are not right.
    Compute,
    /// Attention kernel calls alone, one after another: what the program's time is compared with.
    Bare,
}

/// How a session runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// Ranks on cards.
    pub placement: Placement,
    /// Transport; with [`Placement::Shared`] copies, whatever is chosen.
    pub transport: Transport,
    /// Most thread blocks of one NCCL kernel; NCCL's own choice unless given.
    pub nccl_max_ctas: Option<i32>,
    /// An execution that takes longer has hung, and so has loading of which nothing has been done for so long.
    pub patience: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            placement: Placement::OneEach,
            transport: Transport::CopyEngines,
            nccl_max_ctas: None,
            patience: Duration::from_secs(45),
        }
    }
}

/// One execution of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// What is issued.
    pub mode: Mode,
    /// Record when every instruction begins and ends. Slower: its times are not for samples.
    pub trace: bool,
    /// For checks of the watchdog: a rank, and a call in which it takes no part.
    pub skip: Option<(usize, u32)>,
}

impl Execution {
    /// An execution in this mode, without a trace.
    pub fn of(mode: Mode) -> Self {
        Self { mode, trace: false, skip: None }
    }
}

/// What one rank took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankTime {
    /// From the common start to the end of all streams of the rank, by events of its card, nanoseconds.
    pub ns: u64,
    /// How long its thread took to issue the pass, nanoseconds of wall-clock time.
    pub issue_ns: u64,
    /// Instructions, since the rank's start; only of traces. Ranks start within microseconds of each other.
    pub trace: Vec<TraceEvent>,
}
