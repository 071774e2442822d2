use serde::{Deserialize, Serialize};

use super::Model;
use crate::Profile;

/// What the backward computes again to save memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// Nothing.
    #[default]
    None,
    /// Core attention (Megatron-LM's selective recomputation).
    Selective,
    /// Whole layers.
    Full,
    /// Whole layers except core attention, whose output is kept (LoongTrain's selective checkpoint++, arXiv 2406.18485).
    #[serde(rename = "selective-checkpoint++")]
    SelectiveCheckpointPlusPlus,
}

impl Recompute {
    /// True when the backward repeats the token-wise work of the forward.
    pub fn repeats_linear(self) -> bool {
        matches!(self, Self::Full | Self::SelectiveCheckpointPlusPlus)
    }

    /// True when the backward repeats the forward of core attention.
    pub fn repeats_attention(self) -> bool {
        matches!(self, Self::Selective | Self::Full)
    }
}

/// How token-wise work is priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinearMode {
    /// Matrix multiplications of the model's shapes at the profile's rate.
    Physical,
    /// One ratio of a full window's attention to its token-wise work.
    Fitted,
}

/// Picoseconds of token-wise work per token of a rank, in one pipeline stage, all its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageLinear {
    /// Forward.
    pub forward_ps_per_token: f64,
    /// Backward, recomputation included.
    pub backward_ps_per_token: f64,
}

/// Layers of stage `stage` of `pp`: bounds floor(i layers / pp).
pub fn layers_of_stage(layers: u32, stage: u32, pp: u32) -> u32 {
    let bound = |i: u32| (u64::from(i) * u64::from(layers) / u64::from(pp.max(1))) as u32;
    bound(stage + 1) - bound(stage)
}

impl StageLinear {
    /// Token-wise work of one layer alone, without the output projection, at the profile's GEMM rate over TP.
    pub fn layer(model: &Model, profile: &Profile, tp: u32, recompute: Recompute) -> Self {
        let one = model.layer_flops_per_token() / (profile.gemm.flops_per_s * f64::from(tp.max(1))) * 1e12;
        let repeated = if recompute.repeats_linear() { one } else { 0.0 };
        Self { forward_ps_per_token: one, backward_ps_per_token: 2.0 * one + repeated }
    }

    /// `physical` mode: every stage's GEMM FLOPs over the profile's GEMM rate and TP; the last stage has the output projection.
    /// The backward is twice the forward.
    pub fn physical(model: &Model, profile: &Profile, pp: u32, tp: u32, recompute: Recompute) -> Vec<Self> {
        let ps = |flops: f64| flops / (profile.gemm.flops_per_s * f64::from(tp.max(1))) * 1e12;
        (0..pp)
            .map(|stage| {
                let layers = ps(model.layer_flops_per_token() * f64::from(layers_of_stage(model.layers, stage, pp)));
                let head = if stage + 1 == pp { ps(model.head_flops_per_token()) } else { 0.0 };
                let repeated = if recompute.repeats_linear() { layers } else { 0.0 };
                Self { forward_ps_per_token: layers + head, backward_ps_per_token: 2.0 * (layers + head) + repeated }
            })
            .collect()
    }

    /// `fitted` mode: `per_micro_batch_ps` of both passes over all layers, dealt to stages by layers, to the tokens of a rank evenly, and one third
    /// to the forward.
    pub fn fitted(per_micro_batch_ps: f64, tokens_per_rank: f64, layers: u32, pp: u32) -> Vec<Self> {
        (0..pp)
            .map(|stage| {
                let share = f64::from(layers_of_stage(layers, stage, pp)) / f64::from(layers.max(1));
                let both = per_micro_batch_ps * share / tokens_per_rank;
                Self { forward_ps_per_token: both / 3.0, backward_ps_per_token: both * 2.0 / 3.0 }
            })
            .collect()
    }
}
