use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skewbench_sim::Overrides;
use skewbench_sim::step_model::{LinearMode, Recompute, Sharding, Wait};

use super::{TuneFile, TunedFile};

/// What an experiment computes in each cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Work of pools under several groupings; nothing is timed.
    Balance,
    /// Waves of steps, placed, planned, checked, lowered and simulated.
    Waves,
    /// Rates of single kernel calls from the profile's table.
    Kernels,
    /// One kernel call on many cards that are alike.
    Spread,
}

/// An experiment file. Its id is its path below `experiments/` without the suffix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Title of the figure.
    pub title: String,
    /// Id of the figure, `fig11` or the experiment's own.
    pub figure: String,
    /// What a cell computes.
    pub kind: Kind,
    /// What the figure shows, for readers and screen readers.
    pub description: String,
    /// Why ours differs from what is published, as far as it is known.
    #[serde(default)]
    pub differs: Vec<String>,
    /// Workloads, each with the context parallelism that its window needs.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<WorkloadFile>,
    /// Systems, by name, pair or capability.
    #[serde(default)]
    pub systems: SystemsFile,
    /// Groupings of a `balance` experiment.
    #[serde(default)]
    pub groupings: Vec<String>,
    /// Options of systems, by system name.
    #[serde(default)]
    pub options: BTreeMap<String, Map<String, Value>>,
    /// Model preset, or a TOML file.
    #[serde(default = "default_model")]
    pub model: String,
    /// Machine profile, or a JSON file.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// What is changed in the profile: links, transports, speeds.
    #[serde(default)]
    pub machine: Overrides,
    /// The job's layout where the sweep does not say otherwise.
    #[serde(default)]
    pub layout: LayoutFile,
    /// What is varied.
    #[serde(default)]
    pub sweep: Sweep,
    /// Combinations of other values that are no product, each beside the values of the file.
    #[serde(rename = "variant", default)]
    pub variants: Vec<Variant>,
    /// Packed sequences of a step.
    #[serde(default = "default_gbs")]
    pub gbs: u32,
    /// Steps of a cell.
    pub steps: u32,
    /// Steps of a cell at smoke scale.
    pub quick_steps: u32,
    /// Packed sequences of a step at smoke scale, where they are fewer.
    #[serde(default)]
    pub quick_gbs: Option<u32>,
    /// Steps of single systems, where they differ.
    #[serde(default)]
    pub steps_of: BTreeMap<String, u32>,
    /// Master seed.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Bytes that a rank may hold for one layer's attention; plans above it fail. No limit when absent.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Price headline systems also at half and double the assumed bandwidth between nodes.
    #[serde(default)]
    pub bandwidth_band: bool,
    /// Check every plan before it is priced.
    #[serde(default = "yes")]
    pub check: bool,
    /// Linear work around the attention.
    #[serde(default)]
    pub step_model: StepModelFile,
    /// The call of a `spread` experiment.
    #[serde(default)]
    pub spread: SpreadFile,
    /// How systems are tuned, where `systems.tuned` asks for it.
    #[serde(default)]
    pub tune: TuneFile,
    /// Options that tuning chose.
    #[serde(default)]
    pub tuned: Vec<TunedFile>,
    /// What is drawn.
    pub plot: Plot,
}

fn default_model() -> String {
    "qwen3-30b-a3b".into()
}

fn default_profile() -> String {
    "h200".into()
}

fn default_gbs() -> u32 {
    128
}

fn default_seed() -> u64 {
    1
}

fn yes() -> bool {
    true
}

/// A workload of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadFile {
    /// Preset or file.
    pub name: String,
    /// Tokens of a window, where it is not the preset's.
    #[serde(default)]
    pub window_tokens: Option<u32>,
    /// Packing, where it is not the preset's: `ff`, `cut`, `split`.
    #[serde(default)]
    pub packing: Option<String>,
    /// Context-parallel ranks, where they differ from the layout's.
    #[serde(default)]
    pub cp: Option<u32>,
}

/// Which systems take part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemsFile {
    /// Names or pairs.
    #[serde(default)]
    pub names: Vec<String>,
    /// All named systems that have these capabilities.
    #[serde(default)]
    pub with: Vec<String>,
    /// Tune the options of all of them before the run.
    #[serde(default)]
    pub tuned: bool,
}

/// Degrees of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayoutFile {
    /// Data-parallel ranks.
    pub dp: u32,
    /// Context-parallel ranks of a sequence.
    pub cp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Tensor-parallel ranks.
    pub tp: u32,
    /// Cards of a node.
    pub cards_per_node: u32,
    /// Fill nodes with DP before CP.
    pub dp_before_cp: bool,
}

impl Default for LayoutFile {
    fn default() -> Self {
        Self { dp: 16, cp: 8, pp: 1, tp: 1, cards_per_node: 8, dp_before_cp: false }
    }
}

/// What is varied; an empty list varies nothing. Every combination is run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Data-parallel ranks.
    #[serde(default)]
    pub dp: Vec<u32>,
    /// Context-parallel ranks.
    #[serde(default)]
    pub cp: Vec<u32>,
    /// Sequences of a pool, P.
    #[serde(default)]
    pub pool: Vec<u32>,
    /// Values of any other keys of the experiment, by dotted name.
    #[serde(default)]
    pub set: BTreeMap<String, Vec<toml::Value>>,
}

/// Values of some keys that are set together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name, the coordinate `variant` of its values.
    #[serde(default)]
    pub name: Option<String>,
    /// Values by dotted name.
    pub set: BTreeMap<String, toml::Value>,
}

/// The call of a `spread` experiment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpreadFile {
    /// Cards of the model.
    pub cards: u32,
    /// Rows and keys of the causal call.
    pub tokens: u32,
    /// Relative standard deviation of a card's time from step to step.
    pub step_relative_sd: f64,
}

impl Default for SpreadFile {
    fn default() -> Self {
        Self { cards: 256, tokens: 32_768, step_relative_sd: 0.0 }
    }
}

/// Linear work around the attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepModelFile {
    /// Modes to report.
    pub linear: Vec<LinearMode>,
    /// What the backward computes again.
    pub recompute: Recompute,
    /// What is sharded over data-parallel and context-parallel ranks.
    pub sharding: Sharding,
    /// Ranks that share a layer's experts.
    pub expert_parallel: u32,
    /// When ranks of different pools wait for each other in throughput and MFU; scaling waits per micro-batch.
    pub wait: Wait,
    /// The published point that the fitted mode rests on.
    pub fitted: Fitted,
}

impl Default for StepModelFile {
    fn default() -> Self {
        Self {
            linear: vec![LinearMode::Physical],
            recompute: Recompute::None,
            sharding: Sharding::default(),
            expert_parallel: 1,
            wait: Wait::PerMicroBatch,
            fitted: Fitted::default(),
        }
    }
}

/// A published scaling that fixes the ratio of attention to linear work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fitted {
    /// System that was measured.
    pub system: String,
    /// Workload.
    pub workload: String,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Data-parallel ranks of the scaled run.
    pub dp: u32,
    /// Its throughput over that of one data-parallel rank.
    pub scaling: f64,
}

impl Default for Fitted {
    fn default() -> Self {
        Self { system: "ulysses".into(), workload: "paper-256k".into(), cp: 8, dp: 16, scaling: 7.63 }
    }
}

/// Quantities that experiments report; docs/METRICS.md derives each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Max over mean of pool work, less one, over all pools of a step.
    #[serde(rename = "r_minus_1")]
    RMinus1,
    /// Waiting inside waves: sum of wave maxima over sum of wave means, less one.
    WaveR,
    /// Throughput against one data-parallel rank.
    Scaling,
    /// `scaling` over the number of data-parallel ranks; reported with it.
    ScalingEfficiency,
    /// Throughput over the baseline's on the same ranks; reported with `scaling`.
    ThroughputSpeedup,
    /// Straggler latency of a wave, mean over the waves of a step.
    StragglerMean,
    /// Straggler latency of the slowest wave of a step.
    StragglerMax,
    /// `straggler_mean` over the baseline's.
    NormalisedMean,
    /// The baseline's `straggler_mean` over the system's.
    Speedup,
    /// The baseline's `straggler_max` over the system's.
    SpeedupMax,
    /// Slowest over fastest forward of a micro-batch in a step.
    ForwardSpread,
    /// Share of the transfers that overlap hides, of what M pieces can hide.
    HiddenShare,
    /// `straggler_mean` at half and double the bandwidth between nodes; reported with it where the experiment asks.
    NetworkBand,
    /// Tokens per card and second of a training step.
    Throughput,
    /// Model FLOPs over time and the card's peak.
    Mfu,
    /// Share of a step that pipeline stages wait.
    BubbleShare,
    /// Card hours for a billion tokens.
    GpuHours,
    /// Memory of the fullest card: parameters, gradients, optimizer, activations, attention buffers.
    PeakMemory,
    /// Straggler latencies over tokens, for systems whose steps have different tokens.
    TimePerToken,
    /// Share of tokens that run in a later step than they were delivered in.
    LateShare,
    /// Steps by which those tokens are late.
    DelaySteps,
    /// Bytes that the busiest rank of a wave sends, inside its node and to others.
    SentBytes,
    /// Rate of a kernel call.
    KernelRate,
    /// Launch time of a pool's slowest rank over what FLOPs predict, less one, in the first step.
    ProxyError,
    /// Share of the pools of the first step whose rank with most FLOPs is the slowest.
    ProxyHit,
    /// Slowest over fastest card of a step less one, the slowest and the fastest dropped.
    RuntimeSpread,
}

impl Metric {
    /// Name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::RMinus1 => "r_minus_1",
            Self::WaveR => "wave_r",
            Self::Scaling => "scaling",
            Self::ScalingEfficiency => "scaling_efficiency",
            Self::ThroughputSpeedup => "throughput_speedup",
            Self::StragglerMean => "straggler_mean",
            Self::StragglerMax => "straggler_max",
            Self::NormalisedMean => "normalised_mean",
            Self::Speedup => "speedup",
            Self::SpeedupMax => "speedup_max",
            Self::ForwardSpread => "forward_spread",
            Self::HiddenShare => "hidden_share",
            Self::NetworkBand => "straggler_mean",
            Self::BubbleShare => "bubble_share",
            Self::GpuHours => "gpu_hours",
            Self::PeakMemory => "peak_memory",
            Self::Throughput => "throughput",
            Self::Mfu => "mfu",
            Self::TimePerToken => "time_per_token",
            Self::LateShare => "late_share",
            Self::DelaySteps => "delay_steps",
            Self::SentBytes => "sent_bytes",
            Self::KernelRate => "kernel_rate",
            Self::RuntimeSpread => "runtime_spread",
            Self::ProxyError => "proxy_error",
            Self::ProxyHit => "proxy_hit",
        }
    }

    /// Unit of its values; `1` for ratios and other numbers without a dimension.
    pub fn unit(self) -> &'static str {
        match self {
            Self::RMinus1
            | Self::WaveR
            | Self::HiddenShare
            | Self::Mfu
            | Self::BubbleShare
            | Self::ProxyError
            | Self::ProxyHit
            | Self::RuntimeSpread => "1",
            Self::NetworkBand => "ms",
            Self::GpuHours => "h per 1e9 tokens",
            Self::PeakMemory => "GiB",
            Self::ScalingEfficiency
            | Self::ThroughputSpeedup
            | Self::Scaling
            | Self::NormalisedMean
            | Self::Speedup
            | Self::SpeedupMax
            | Self::ForwardSpread => "1",
            Self::StragglerMean | Self::StragglerMax => "ms",
            Self::Throughput => "tokens/s/card",
            Self::TimePerToken => "ns/token",
            Self::LateShare => "1",
            Self::DelaySteps => "steps",
            Self::SentBytes => "MB",
            Self::KernelRate => "TFLOP/s",
        }
    }

    /// True when 1 means that nothing differs.
    pub fn is_ratio(self) -> bool {
        matches!(self, Self::NormalisedMean | Self::Speedup | Self::SpeedupMax | Self::ThroughputSpeedup)
    }

    /// True when a mean over waves that were drawn from steps tells it: no other wave of the step is needed.
    pub fn of_single_waves(self) -> bool {
        matches!(
            self,
            Self::StragglerMean
                | Self::NormalisedMean
                | Self::Speedup
                | Self::WaveR
                | Self::HiddenShare
                | Self::TimePerToken
                | Self::SentBytes
                | Self::ProxyError
                | Self::ProxyHit
        )
    }

    /// Words for axes and tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::RMinus1 => "R - 1 (max / mean pool work - 1)",
            Self::WaveR => "waiting inside waves",
            Self::Scaling => "throughput relative to DP = 1",
            Self::ScalingEfficiency => "scaling efficiency",
            Self::ThroughputSpeedup => "throughput speedup",
            Self::StragglerMean => "straggler latency, mean over waves",
            Self::StragglerMax => "straggler latency, slowest wave of a step",
            Self::NormalisedMean => "straggler latency relative to the baseline",
            Self::Speedup => "speedup, mean wave",
            Self::SpeedupMax => "speedup, slowest wave of a step",
            Self::ForwardSpread => "slowest / fastest forward of a micro-batch",
            Self::HiddenShare => "hidden share of transfer",
            Self::NetworkBand => "straggler latency at other bandwidths",
            Self::BubbleShare => "bubble share",
            Self::GpuHours => "card hours per billion tokens",
            Self::PeakMemory => "memory of the fullest card",
            Self::Throughput => "throughput",
            Self::Mfu => "MFU",
            Self::TimePerToken => "straggler latency per token of the job",
            Self::LateShare => "share of tokens that run late",
            Self::DelaySteps => "delay of late tokens",
            Self::SentBytes => "bytes sent by the busiest rank",
            Self::KernelRate => "attention rate",
            Self::RuntimeSpread => "spread of the same call over cards",
            Self::ProxyError => "slowest rank's time over what FLOPs predict, less one",
            Self::ProxyHit => "pools whose rank with most FLOPs is the slowest",
        }
    }
}

/// What an axis of a figure is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Axis {
    /// Data-parallel ranks.
    Dp,
    /// Context-parallel ranks.
    Cp,
    /// Sequences of a pool.
    Pool,
    /// Systems side by side.
    System,
    /// Query rows of a kernel call.
    Block,
    /// Steps in order.
    Step,
    /// A coordinate that the experiment sweeps, by its short name.
    Swept(String),
}

impl Axis {
    /// Name in files.
    pub fn name(&self) -> &str {
        match self {
            Self::Dp => "dp",
            Self::Cp => "cp",
            Self::Pool => "pool",
            Self::System => "system",
            Self::Block => "block",
            Self::Step => "step",
            Self::Swept(name) => name,
        }
    }

    /// Coordinate of values that lies on the axis.
    pub fn coordinate(&self) -> &str {
        if *self == Self::Pool { "p" } else { self.name() }
    }
}

impl From<String> for Axis {
    fn from(name: String) -> Self {
        let fixed = [Self::Dp, Self::Cp, Self::Pool, Self::System, Self::Block, Self::Step];
        fixed.into_iter().find(|axis| axis.name() == name).unwrap_or(Self::Swept(name))
    }
}

impl From<Axis> for String {
    fn from(axis: Axis) -> Self {
        axis.name().to_owned()
    }
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Metrics, in order.
    pub metrics: Vec<Metric>,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis of a heat map; absent where values are drawn over `x` alone.
    #[serde(default)]
    pub y: Option<Axis>,
    /// System that relative metrics are taken against.
    #[serde(default = "baseline")]
    pub baseline: String,
}

fn baseline() -> String {
    "ulysses".into()
}
