use serde::{Deserialize, Serialize};
use skewbench_plan::Layout;

use super::{Model, PipelineTimes, Recompute, ShardingTimes, StageLinear, layers_of_stage, one_f_one_b};
use crate::{Pricing, Profile};

/// When data-parallel ranks of different pools wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// At every micro-batch: every rank takes the wave's slowest time.
    PerMicroBatch,
    /// At the end of the step: every rank takes its own times.
    PerStep,
}

/// One wave by data-parallel rank: attention of one layer (all ranks of a pool have their pool's time) and tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaveAttention {
    /// Forward, in picoseconds.
    pub forward_ps: Vec<u64>,
    /// Backward, in picoseconds.
    pub backward_ps: Vec<u64>,
    /// Tokens of the rank's packed sequence.
    pub tokens: Vec<u64>,
}

/// What a step's time depends on.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    /// Model.
    pub model: &'a Model,
    /// Layout of the job.
    pub layout: Layout,
    /// Attention of every wave (micro-batch) of the step.
    pub waves: &'a [WaveAttention],
    /// Unmasked pairs of all sequences of the step, of one head and layer.
    pub pairs: u64,
    /// Token-wise work of every stage.
    pub linear: &'a [StageLinear],
    /// What the backward computes again.
    pub recompute: Recompute,
    /// When pools wait for each other.
    pub wait: Wait,
    /// Collectives of parameters and gradients. A pass of a micro-batch hides its own and takes at least as long as they do;
    /// those at the end of the step add to it.
    pub sharding: ShardingTimes,
    /// Picoseconds to pass activations to the next stage.
    pub hop_ps: u64,
}

/// Why a step cannot be priced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Lists of different lengths.
    #[error("{what}: {found} given, {expected} needed")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// The step has no work.
    #[error("the step has no work; pass at least one wave with a time above 0")]
    Empty,
}

/// One optimizer step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// Seconds.
    pub seconds: f64,
    /// Tokens.
    pub tokens: f64,
    /// Tokens a second and card.
    pub tokens_per_card_per_s: f64,
    /// Model FLOPs over time times the datasheet's peak. The backward counts twice the forward: what kernels compute again is no model FLOP.
    pub mfu: f64,
    /// Share of the stages' time spent waiting inside the pipeline, of the slowest data-parallel rank.
    pub bubble_share: f64,
    /// Card hours for 10^9 tokens.
    pub gpu_hours_per_billion_tokens: f64,
    /// Data-parallel rank that ends last; 0 when all wait per micro-batch.
    pub slowest_dp_rank: u32,
}

impl StepInput<'_> {
    /// Simulates the step.
    ///
    /// # Errors
    /// When lists do not fit the layout or there is no work.
    pub fn time(&self, profile: &Profile) -> Result<StepTime, StepError> {
        let Layout { dp, pp, .. } = self.layout;
        let check = |what, found: usize, expected: u32| {
            let expected = expected as usize;
            if found == expected { Ok(()) } else { Err(StepError::Count { what, found, expected }) }
        };
        check("stages of token-wise work", self.linear.len(), pp)?;
        for wave in self.waves {
            check("forward times of a wave", wave.forward_ps.len(), dp)?;
            check("backward times of a wave", wave.backward_ps.len(), dp)?;
            check("token counts of a wave", wave.tokens.len(), dp)?;
        }
        let pipelines = match self.wait {
            Wait::PerMicroBatch => vec![self.pipeline(0..dp as usize)],
            Wait::PerStep => (0..dp as usize).map(|rank| self.pipeline(rank..rank + 1)).collect(),
        };
        let slowest = pipelines.iter().enumerate().max_by_key(|(i, times)| (times.makespan_ps, std::cmp::Reverse(*i)));
        let (rank, times) = slowest.filter(|(_, times)| times.makespan_ps > 0).ok_or(StepError::Empty)?;
        let seconds = times.makespan_ps.saturating_add(self.sharding.step_ps) as f64 / 1e12;
        let tokens = self.waves.iter().flat_map(|w| &w.tokens).sum::<u64>() as f64;
        let cards = self.layout.cards() as f64;
        let peak = profile.card.bf16_flops_per_s;
        Ok(StepTime {
            seconds,
            tokens,
            tokens_per_card_per_s: tokens / seconds / cards,
            mfu: self.model_flops(tokens) / (seconds * cards * peak),
            bubble_share: times.bubble_share(),
            gpu_hours_per_billion_tokens: cards * seconds / 3600.0 / (tokens / 1e9),
            slowest_dp_rank: rank as u32,
        })
    }

    fn model_flops(&self, tokens: f64) -> f64 {
        let model = self.model;
        let layers = f64::from(model.layers);
        let attention = 4.0 * f64::from(model.q_heads) * f64::from(model.head_dim) * self.pairs as f64 * layers;
        3.0 * (attention + tokens * (layers * model.layer_flops_per_token() + model.head_flops_per_token()))
    }

    /// The pipeline of data-parallel ranks that wait for each other at every micro-batch.
    fn pipeline(&self, ranks: std::ops::Range<usize>) -> PipelineTimes {
        let cp = f64::from(self.layout.cp.max(1));
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        for (stage, linear) in self.linear.iter().enumerate() {
            let layers = u64::from(layers_of_stage(self.model.layers, stage as u32, self.layout.pp));
            let again = u64::from(self.recompute.repeats_attention());
            let slowest = |of: &dyn Fn(&WaveAttention, usize) -> (u64, f64), least_ps: u64| -> Vec<u64> {
                let rank_ps = |wave: &WaveAttention, rank: usize| {
                    let (attention_ps, linear_ps_per_token) = of(wave, rank);
                    let linear_ps = wave.tokens[rank] as f64 / cp * linear_ps_per_token;
                    layers.saturating_mul(attention_ps).saturating_add(linear_ps as u64)
                };
                let wave_ps = |wave| ranks.clone().map(|rank| rank_ps(wave, rank)).max().unwrap_or(0).max(least_ps);
                self.waves.iter().map(wave_ps).collect()
            };
            let one = |wave: &WaveAttention, rank: usize| (wave.forward_ps[rank], linear.forward_ps_per_token);
            forward.push(slowest(&one, self.sharding.forward_ps));
            let both = |wave: &WaveAttention, rank: usize| {
                let repeated = again.saturating_mul(wave.forward_ps[rank]);
                (wave.backward_ps[rank].saturating_add(repeated), linear.backward_ps_per_token)
            };
            backward.push(slowest(&both, self.sharding.backward_ps));
        }
        one_f_one_b(&forward, &backward, self.hop_ps)
    }
}

/// Picoseconds of an all-reduce of `bytes` over `ranks` cards, `per_node` of them in a node, not overlapped with anything: a
/// reduce-scatter inside each node, an all-reduce of every card's share between nodes, an all-gather inside each node.
pub fn gradient_reduction_ps(pricing: &Pricing, bytes: u64, ranks: u32, per_node: u32) -> u64 {
    let inside = per_node.clamp(1, ranks.max(1));
    let nodes = ranks.div_ceil(inside);
    let ring = |bytes: f64, ranks: u32, same_node: bool| {
        if ranks < 2 {
            return 0;
        }
        let moved = 2.0 * f64::from(ranks - 1) / f64::from(ranks) * bytes;
        skewbench_plan::Cost::transfer_ps(pricing, moved as u64, same_node)
    };
    ring(bytes as f64, inside, true).saturating_add(ring(bytes as f64 / f64::from(inside), nodes, false))
}
