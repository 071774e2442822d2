use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What tuning makes as small as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Objective {
    /// Straggler latency, forward and backward, mean over the waves of a step.
    #[default]
    Mean,
    /// Straggler latency of the slowest wave of a step.
    Max,
    /// Time of a step's waves over its tokens.
    TimePerToken,
}

impl Objective {
    /// Name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Max => "max",
            Self::TimePerToken => "time_per_token",
        }
    }
}

/// How systems are tuned: the same for every system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TuneFile {
    /// Configurations that are tried for each system and workload, the one that tuning starts from included.
    pub configurations: u32,
    /// Steps on which each is tried.
    pub steps: u32,
    /// Configurations at smoke scale.
    pub quick_configurations: u32,
    /// Steps at smoke scale.
    pub quick_steps: u32,
    /// Seed of these steps; never the experiment's own.
    pub seed: u64,
    /// What is made small.
    pub objective: Objective,
    /// Options that stay as they are.
    pub keep: Vec<String>,
}

impl Default for TuneFile {
    fn default() -> Self {
        Self {
            configurations: 40,
            steps: 4,
            quick_configurations: 12,
            quick_steps: 1,
            seed: 1_000_003,
            objective: Objective::Mean,
            keep: Vec::new(),
        }
    }
}

/// Options of one system for one workload, as tuning chose them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedFile {
    /// Workload, by name.
    pub dataset: String,
    /// Tokens of its window.
    pub window_tokens: u32,
    /// Its packing.
    pub packing: String,
    /// System.
    pub system: String,
    /// How the options were found; absent where somebody wrote them by hand.
    #[serde(default)]
    pub search: Option<SearchRecord>,
    /// Options that take the place of those in `options`.
    pub options: Map<String, Value>,
}

/// How options were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchRecord {
    /// What was made small.
    pub objective: Objective,
    /// Configurations that were allowed.
    pub budget: u32,
    /// Configurations that were tried.
    pub tried: u32,
    /// Configurations of these that could not run.
    pub failed: u32,
    /// Steps on which each was tried.
    pub steps: u32,
    /// Seed of these steps.
    pub seed: u64,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// The objective on these steps of the configuration that the search started from, in picoseconds; absent where it failed.
    #[serde(default)]
    pub start_ps: Option<f64>,
    /// The same of the configuration that was chosen.
    #[serde(default)]
    pub chosen_ps: Option<f64>,
}
