use serde::{Deserialize, Serialize};
use skewbench_plan::Pass;

use super::Bandwidth;

/// How the numbers of a part came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// By the named run, on the card itself.
    Measured,
    /// Taken for granted; a reader may well assume otherwise.
    Assumed,
    /// The vendor's published figure.
    Datasheet,
}

impl SourceKind {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Assumed => "assumed",
            Self::Datasheet => "datasheet",
        }
    }
}

/// Where the numbers of a part come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// How they came about.
    pub kind: SourceKind,
    /// The measuring run, when there was one.
    pub run: Option<String>,
    /// What was measured or assumed.
    pub note: String,
}

/// A machine: one card, its links, and the network between nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of the format, 1.
    pub schema: u32,
    /// Name.
    pub name: String,
    /// The card and the software that the measured parts are of; absent where several runs made them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_on: Option<MeasuredOn>,
    /// The card.
    pub card: Card,
    /// Attention kernels.
    pub attention: Attention,
    /// Matrix multiplications.
    pub gemm: Gemm,
    /// Pack, merge and cast.
    pub copies: Copies,
    /// Links between the cards of a node.
    pub intra_node: IntraNode,
    /// Links between nodes.
    pub network: Network,
    /// What carries transfers.
    pub transport: Transport,
    /// What overlap costs.
    pub contention: Contention,
    /// Differences between cards of one model.
    pub card_speed: CardSpeed,
}

/// On what a profile was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredOn {
    /// Model of the card, as its driver names it.
    pub card: String,
    /// Version of the driver.
    pub driver: String,
    /// CUDA version.
    pub cuda: String,
    /// Version of cuDNN.
    pub cudnn: String,
    /// Version of NCCL.
    pub nccl: Option<String>,
    /// Clock of the multiprocessors when the card was asked.
    pub sm_clock_mhz: Option<u32>,
    /// Their highest clock.
    pub sm_clock_max_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<u32>,
    /// Power limit.
    pub power_limit_w: Option<u32>,
    /// When.
    pub date: String,
    /// Revision of the program.
    pub revision: String,
}

/// What the card's datasheet says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Where it comes from.
    pub source: Source,
    /// Model name.
    pub model: String,
    /// Device memory.
    pub memory_bytes: u64,
    /// Bandwidth of device memory.
    pub memory_bandwidth: Bandwidth,
    /// Dense bf16 peak, the denominator of MFU.
    pub bf16_flops_per_s: f64,
    /// Multiprocessors, each of which runs one block of a kernel at a time.
    pub multiprocessors: u32,
}

/// Forward or backward, as tables write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TablePass {
    /// Forward.
    #[serde(rename = "fwd")]
    Forward,
    /// Backward.
    #[serde(rename = "bwd")]
    Backward,
}

impl TablePass {
    /// The pass.
    pub fn pass(self) -> Pass {
        match self {
            Self::Forward => Pass::Forward,
            Self::Backward => Pass::Backward,
        }
    }
}

/// A call of one tile: pass, query heads, KV heads, rows, keys, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Single(pub TablePass, pub u32, pub u32, pub u32, pub u32, pub f64);

/// A ragged call of many tiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaggedCall {
    /// Name of the case.
    pub name: String,
    /// Forward or backward.
    pub pass: TablePass,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Rows of every tile.
    pub q_len: Vec<u32>,
    /// Keys of every tile; where all equal the rows, a causal call used the top-left mask, otherwise the bottom-right one.
    pub kv_len: Vec<u32>,
    /// The call had no mask.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// Measured nanoseconds.
    pub ns: f64,
}

impl RaggedCall {
    /// Rows and keys of every tile.
    pub fn tiles(&self) -> impl Iterator<Item = (u32, u32)> + Clone {
        self.q_len.iter().copied().zip(self.kv_len.iter().copied())
    }
}

/// Nanoseconds of the smallest call between two events on its stream, what the host takes to enqueue it included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchOverhead {
    /// Forward.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
}

/// Attention kernels by mask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Where it comes from.
    pub source: Source,
    /// Elements of a head of all rows; other sizes are scaled by FLOPs.
    pub head_dim: u16,
    /// What a call costs beside its tiles.
    pub launch_overhead_ns: LaunchOverhead,
    /// Causal, the last row sees the last key.
    pub bottom_right: Vec<Single>,
    /// Causal, as many rows as keys, by the top-left mask.
    pub square: Vec<Single>,
    /// No mask.
    pub rectangle: Vec<Single>,
    /// Calls of many tiles.
    pub ragged: Vec<RaggedCall>,
}

/// Matrix multiplications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gemm {
    /// Where it comes from.
    pub source: Source,
    /// FLOPs a second of large bf16 products.
    pub flops_per_s: f64,
    /// Rows, columns, inner size and nanoseconds of measured products.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub products: Vec<(u32, u32, u32, f64)>,
}

/// Kernels that only move bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// Where it comes from.
    pub source: Source,
    /// Bytes read and written a second.
    pub bandwidth: Bandwidth,
    /// What a kernel costs beside its bytes.
    pub launch_ns: f64,
}

/// A link by size of transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Where it comes from.
    pub source: Source,
    /// Bytes that a card sends in one call, and nanoseconds that it takes; noise is made monotone.
    pub points_bytes_ns: Vec<(u64, f64)>,
}

/// Links between the cards of a node, by transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntraNode {
    /// NCCL kernels.
    pub nccl: Link,
    /// Peer copies.
    pub copy_engines: Link,
}

/// Who owns a port to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nic {
    /// Every card has one.
    PerCard,
    /// The cards of a node share one.
    PerNode,
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Where it comes from.
    pub source: Source,
    /// Of one port, each way.
    pub bandwidth: Bandwidth,
    /// Share of it that transfers reach.
    pub efficiency: f64,
    /// Added to the latency of the call.
    pub latency_ns: f64,
    /// Who owns a port.
    pub nic: Nic,
    /// Bandwidth of a node's ports over that of its uplink: 1 is a full fat tree.
    pub oversubscription: f64,
}

impl Network {
    /// Picoseconds a byte through one port.
    pub(crate) fn ps_per_byte(&self) -> f64 {
        1e12 / (self.bandwidth.bytes_per_s() * self.efficiency)
    }
}

/// What carries transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// NCCL kernels, which compete with attention for multiprocessors.
    Nccl,
    /// Peer copies, and between nodes transfers that the network card drives.
    CopyEngines,
}

/// Rates while compute and transfer overlap on a card, 1 = not slowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentionFactors {
    /// Where it comes from.
    pub source: Source,
    /// Rate of kernels while a transfer runs.
    pub compute_rate: f64,
    /// Rate of a transfer while a kernel runs.
    pub transfer_rate: f64,
}

/// What overlap costs, by transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// NCCL kernels.
    pub nccl: ContentionFactors,
    /// Peer copies.
    pub copy_engines: ContentionFactors,
}

/// Differences between cards of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardSpeed {
    /// Where it comes from.
    pub source: Source,
    /// Standard deviation of a card's time over the mean; 0 = all alike.
    pub relative_sd: f64,
}

impl Profile {
    /// Source of every part, by its key.
    pub fn sources(&self) -> [(&'static str, &Source); 10] {
        [
            ("card", &self.card.source),
            ("attention", &self.attention.source),
            ("gemm", &self.gemm.source),
            ("copies", &self.copies.source),
            ("intra_node.nccl", &self.intra_node.nccl.source),
            ("intra_node.copy_engines", &self.intra_node.copy_engines.source),
            ("network", &self.network.source),
            ("contention.nccl", &self.contention.nccl.source),
            ("contention.copy_engines", &self.contention.copy_engines.source),
            ("card_speed", &self.card_speed.source),
        ]
    }

    /// The link between cards of a node under the profile's transport.
    pub fn intra_link(&self) -> &Link {
        match self.transport {
            Transport::Nccl => &self.intra_node.nccl,
            Transport::CopyEngines => &self.intra_node.copy_engines,
        }
    }

    /// What overlap costs under the profile's transport.
    pub fn overlap(&self) -> &ContentionFactors {
        match self.transport {
            Transport::Nccl => &self.contention.nccl,
            Transport::CopyEngines => &self.contention.copy_engines,
        }
    }
}
