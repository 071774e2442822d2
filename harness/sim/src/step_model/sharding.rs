use serde::{Deserialize, Serialize};

use super::gradient_reduction_ps;
use crate::Pricing;

/// What data-parallel and context-parallel ranks shard among themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharding {
    /// Nothing.
    Zero0,
    /// Optimizer states.
    #[default]
    Zero1,
    /// Optimizer states and gradients.
    Zero2,
    /// Optimizer states, gradients and parameters.
    Zero3,
    /// Each over groups of its own size (the hybrid ZeRO of LoongTrain, arXiv 2406.18485).
    Hybrid(ShardGroups),
}

/// Neighbouring ranks over which each of the three is sharded; 1 = not sharded. Other groups hold replicas of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "GroupsText", into = "GroupsText")]
pub struct ShardGroups {
    /// Ranks that share the parameters.
    pub parameters: u32,
    /// Ranks that share the gradients.
    pub gradients: u32,
    /// Ranks that share the optimizer states.
    pub optimizer: u32,
}

/// One size for all three, or a table of three.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum GroupsText {
    All(u32),
    Each(EachGroup),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EachGroup {
    parameters: u32,
    gradients: u32,
    optimizer: u32,
}

impl From<GroupsText> for ShardGroups {
    fn from(text: GroupsText) -> Self {
        match text {
            GroupsText::All(size) => Self::all(size),
            GroupsText::Each(EachGroup { parameters, gradients, optimizer }) => {
                Self { parameters, gradients, optimizer }
            }
        }
    }
}

impl From<ShardGroups> for GroupsText {
    fn from(groups: ShardGroups) -> Self {
        let ShardGroups { parameters, gradients, optimizer } = groups;
        if groups == ShardGroups::all(parameters) {
            Self::All(parameters)
        } else {
            Self::Each(EachGroup { parameters, gradients, optimizer })
        }
    }
}

impl ShardGroups {
    /// Groups of one size for all three.
    pub fn all(size: u32) -> Self {
        Self { parameters: size, gradients: size, optimizer: size }
    }
}

impl Sharding {
    /// Group sizes among `ranks` data-parallel x context-parallel ranks; larger groups are cut to all ranks.
    pub fn groups(self, ranks: u32) -> ShardGroups {
        let ranks = ranks.max(1);
        let of = |parameters: u32, gradients: u32, optimizer: u32| ShardGroups {
            parameters: parameters.clamp(1, ranks),
            gradients: gradients.clamp(1, ranks),
            optimizer: optimizer.clamp(1, ranks),
        };
        match self {
            Self::Zero0 => of(1, 1, 1),
            Self::Zero1 => of(1, 1, ranks),
            Self::Zero2 => of(1, ranks, ranks),
            Self::Zero3 => of(ranks, ranks, ranks),
            Self::Hybrid(groups) => of(groups.parameters, groups.gradients, groups.optimizer),
        }
    }
}

/// Collectives of a sharded training step on the fullest stage, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardingTimes {
    /// Of a micro-batch's forward: its parameters are gathered.
    pub forward_ps: u64,
    /// Of a micro-batch's backward: its parameters are gathered again and its gradients reduced and scattered.
    pub backward_ps: u64,
    /// After the last backward.
    pub step_ps: u64,
}

impl ShardingTimes {
    /// Times for `parameter_bytes` of bf16 parameters and `gradient_bytes` of f32 gradients, both unsharded, on `ranks`
    /// cards, `per_node` of them in a node. Rings, as in [`gradient_reduction_ps`]: inside nodes first.
    ///
    /// With whole gradients the step ends with their all-reduce over all ranks; where only optimizer states are sharded that
    /// is a reduce-scatter, and the all-gather of updated parameters stands in its place at twice the bytes. With sharded
    /// gradients every micro-batch scatters them inside a group, and the step ends with an all-reduce of shards between
    /// groups and an all-gather of the updated parameters, as far as each rank holds them.
    pub fn of(
        pricing: &Pricing,
        sharding: Sharding,
        (parameter_bytes, gradient_bytes): (u64, u64),
        ranks: u32,
        per_node: u32,
    ) -> Self {
        let ShardGroups { parameters, gradients, optimizer } = sharding.groups(ranks);
        // An all-gather or a reduce-scatter is half of an all-reduce.
        let half = |bytes: u64, ranks: u32, per_node: u32| gradient_reduction_ps(pricing, bytes / 2, ranks, per_node);
        // Of ranks that are `apart` apart a node holds fewer.
        let spread = |apart: u32| (per_node / apart.max(1)).max(1);
        let gather = half(parameter_bytes, parameters, per_node);
        let scatter = half(gradient_bytes, gradients, per_node);
        let shard = gradient_bytes / u64::from(gradients);
        let replicas = ranks.max(1).div_ceil(gradients);
        let mut step_ps = gradient_reduction_ps(pricing, shard, replicas, spread(gradients));
        if gradients > 1 && optimizer > parameters {
            let held = parameter_bytes / u64::from(parameters);
            let sources = optimizer.div_ceil(parameters);
            step_ps = step_ps.saturating_add(half(held, sources, spread(parameters)));
        }
        Self { forward_ps: gather, backward_ps: gather.saturating_add(scatter), step_ps }
    }
}
