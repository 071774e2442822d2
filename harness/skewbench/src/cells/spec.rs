use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skewbench_external::Key;
use skewbench_plan::{AttentionShape, Layout};
use skewbench_systems::Options;
use skewbench_systems::placements::Grouping;

/// A workload as cells name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadKey {
    /// Preset or path, for readers.
    pub name: String,
    /// Tokens of a window.
    pub window_tokens: u32,
    /// Packing, as it is written in files.
    pub packing: String,
    /// Where the lengths come from.
    pub description: String,
    /// Hash of everything that determines the windows beside the seed.
    pub fingerprint: String,
}

/// A machine profile as cells name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineKey {
    /// Preset or path, for readers.
    pub profile: String,
    /// Hash of the profile with what the experiment changes in it.
    pub fingerprint: String,
}

/// How launches are timed, as cells name it: results of other cards, drivers or budgets are other results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayKey {
    /// Model of the card.
    pub card: String,
    /// Version of the driver.
    pub driver: String,
    /// Version of cuDNN.
    pub cudnn: String,
    /// Seconds that the card may be busy with the run.
    pub budget_s: u32,
}

/// Work of pools under several groupings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BalanceCell {
    /// Workload.
    pub workload: WorkloadKey,
    /// Packed sequences of a step.
    pub gbs: u32,
    /// Steps.
    pub steps: u32,
    /// Master seed.
    pub seed: u64,
    /// Pool sizes.
    pub pools: Vec<u32>,
    /// Groupings.
    pub groupings: Vec<Grouping>,
    /// Data-parallel ranks over which waiting inside waves is taken.
    pub dp: u32,
}

/// Steps of one system on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WavesCell {
    /// Workload.
    pub workload: WorkloadKey,
    /// Packed sequences of a step.
    pub gbs: u32,
    /// Steps.
    pub steps: u32,
    /// Master seed.
    pub seed: u64,
    /// System.
    pub system: String,
    /// Programs that it is made of, with their versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<Key>,
    /// Its options, every one with a value.
    pub options: Options,
    /// Layout of the job.
    pub layout: Layout,
    /// Heads of the whole model.
    pub shape: AttentionShape,
    /// Machine.
    pub machine: MachineKey,
    /// Whether every plan is checked.
    pub check: bool,
    /// Bytes that a rank may hold for one layer's attention.
    pub memory_limit_bytes: Option<u64>,
    /// Price the programs of the first steps also at half and double the bandwidth between nodes.
    pub band: bool,
    /// Price every program also with kernels that take no time, which the hidden share needs.
    pub transfers_alone: bool,
    /// Time launches of some of the waves on a card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Box<ReplayKey>>,
}

impl WavesCell {
    /// Sequences of a pool, cut to DP.
    pub fn pool(&self) -> u32 {
        let pool = serde_json::to_value(&self.options).ok().and_then(|o| o.get("pool").and_then(Value::as_u64));
        (pool.unwrap_or(1) as u32).min(self.layout.dp)
    }
}

/// Rates of kernel calls from the profile's table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelsCell {
    /// Machine.
    pub machine: MachineKey,
    /// Time the calls of the table anew on a card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Box<ReplayKey>>,
}

/// The same call on many cards.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpreadCell {
    /// Rows and keys of the causal call.
    pub tokens: u32,
    /// Heads of the call.
    pub shape: AttentionShape,
    /// Cards of the model; a measurement takes those that are present.
    pub cards: u32,
    /// Calls of every card.
    pub steps: u32,
    /// Master seed.
    pub seed: u64,
    /// Machine; its spread of card speeds lasts over all steps.
    pub machine: MachineKey,
    /// Relative standard deviation of a card's time from step to step, of the model.
    pub step_relative_sd: f64,
    /// Time the call on every card that is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Box<ReplayKey>>,
}

/// What a cell computes, completely.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum CellSpec {
    /// Work of pools.
    Balance(BalanceCell),
    /// Simulated waves.
    Waves(WavesCell),
    /// Kernel rates.
    Kernels(KernelsCell),
    /// The same call on many cards.
    Spread(SpreadCell),
}

impl CellSpec {
    /// All inputs as JSON; the cell's id is the hash of it.
    pub fn inputs(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The coordinates that tell the cell from its neighbours, for readers.
    pub fn coordinates(&self) -> Value {
        match self {
            Self::Balance(c) => json!({ "dataset": c.workload.name, "gbs": c.gbs, "steps": c.steps }),
            Self::Waves(c) => json!({
                "dataset": c.workload.name, "window_tokens": c.workload.window_tokens, "system": c.system,
                "dp": c.layout.dp, "cp": c.layout.cp, "pp": c.layout.pp, "tp": c.layout.tp, "p": c.pool(),
                "gbs": c.gbs, "steps": c.steps, "seed": c.seed, "profile": c.machine.profile,
            }),
            Self::Kernels(c) => json!({ "profile": c.machine.profile }),
            Self::Spread(c) => json!({ "gpus": c.cards, "tokens": c.tokens, "steps": c.steps, "seed": c.seed }),
        }
    }
}
