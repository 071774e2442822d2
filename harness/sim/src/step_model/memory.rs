use super::{Model, Recompute, Sharding, layers_of_stage};
use skewbench_plan::Layout;

/// What memory depends on beside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInput {
    /// The job's layout.
    pub layout: Layout,
    /// Tokens of a packed sequence.
    pub window: u32,
    /// Micro-batches of a step per data-parallel rank.
    pub micro_batches: u32,
    /// What is sharded.
    pub sharding: Sharding,
    /// Ranks that share a layer's experts; 1 = every rank has all.
    pub expert_parallel: u32,
    /// What the backward computes again.
    pub recompute: Recompute,
    /// Peak of the attention plan's buffers on a rank.
    pub attention_bytes: u64,
}

/// Bytes of the fullest card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Pipeline stage of the fullest card.
    pub stage: u32,
    /// bf16 parameters.
    pub parameter_bytes: u64,
    /// f32 gradients.
    pub gradient_bytes: u64,
    /// f32 master parameters and both Adam moments.
    pub optimizer_bytes: u64,
    /// Kept activations of all micro-batches in flight and the layer being computed again.
    pub activation_bytes: u64,
    /// Buffers of the attention plan.
    pub attention_bytes: u64,
}

impl Memory {
    /// Everything together.
    pub fn total_bytes(&self) -> u64 {
        [self.gradient_bytes, self.optimizer_bytes, self.activation_bytes, self.attention_bytes]
            .into_iter()
            .fold(self.parameter_bytes, u64::saturating_add)
    }

    /// Memory of the fullest card of a job.
    ///
    /// Activations count bf16 inputs of every matrix product, K, V, O with its log-sum-exp, and the gated product, divided by CP and TP (sequence
    /// parallelism outside attention); allocator waste and kernels' workspaces are not counted.
    pub fn peak(model: &Model, input: &MemoryInput) -> Self {
        (0..input.layout.pp.max(1))
            .map(|stage| Self::of_stage(model, input, stage))
            .max_by_key(|memory| (memory.total_bytes(), std::cmp::Reverse(memory.stage)))
            .unwrap_or_else(|| Self::of_stage(model, input, 0))
    }

    fn of_stage(model: &Model, input: &MemoryInput, stage: u32) -> Self {
        let Layout { dp, cp, pp, tp, .. } = input.layout;
        let (pp, tp) = (pp.max(1), f64::from(tp.max(1)));
        let layers = f64::from(layers_of_stage(model.layers, stage, pp));
        let embeddings = f64::from(u32::from(stage == 0) + u32::from(stage + 1 == pp)) * model.embedding_parameters();
        let experts = layers * model.expert_layer_parameters() / f64::from(input.expert_parallel.max(1));
        let parameters = (layers * model.dense_layer_parameters() + embeddings + experts) / tp;
        let groups = input.sharding.groups(dp.max(1).saturating_mul(cp.max(1)));
        let [p, g, o] = [groups.parameters, groups.gradients, groups.optimizer].map(f64::from);
        let tokens = f64::from(input.window) / f64::from(cp.max(1));
        let in_flight = f64::from((pp - stage).min(input.micro_batches));
        let (kept, working) = activation_bytes_per_token(model, input.recompute);
        let logits = if stage + 1 == pp { 6.0 * f64::from(model.vocab) } else { 0.0 };
        Self {
            stage,
            parameter_bytes: (2.0 * parameters / p) as u64,
            gradient_bytes: (4.0 * parameters / g) as u64,
            optimizer_bytes: (12.0 * parameters / o) as u64,
            activation_bytes: (tokens / tp * (in_flight * layers * kept + working + logits)) as u64,
            attention_bytes: input.attention_bytes,
        }
    }
}

/// Bytes that a layer keeps per token, and what one layer needs more while its backward runs.
fn activation_bytes_per_token(model: &Model, recompute: Recompute) -> (f64, f64) {
    let hidden = 2.0 * f64::from(model.hidden);
    let qkv = 2.0 * (model.q_width() + 2.0 * model.kv_width());
    let output = 2.0 * model.q_width() + 4.0 * f64::from(model.q_heads);
    // Each expert that a token visits gets its own copy of the input.
    let copies = hidden * f64::from(model.experts_per_token);
    let feed_forward = 3.0 * 2.0 * model.active_ffn() + copies;
    // Inputs of both norms and of the two products behind them.
    let all = 4.0 * hidden + qkv + output + feed_forward;
    match recompute {
        Recompute::None => (all, 0.0),
        Recompute::Selective => (all - output, output),
        Recompute::Full => (hidden, all - hidden),
        Recompute::SelectiveCheckpointPlusPlus => (hidden + output, all - hidden - output),
    }
}
