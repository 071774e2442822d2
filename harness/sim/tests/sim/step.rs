//! Step model: waits, pipeline, MFU, memory.

use skewbench_plan::Layout;
use skewbench_sim::{
    Pricing, Profile,
    step_model::{
        Memory, MemoryInput, Model, Recompute, ShardGroups, Sharding, ShardingTimes, StageLinear, StepError, StepInput,
        Wait, WaveAttention, gradient_reduction_ps,
    },
};

const WINDOW: u32 = 262_144;

fn waves() -> Vec<WaveAttention> {
    (0..8)
        .map(|wave| {
            let forward_ps: Vec<u64> = (0..4u64).map(|rank| 1_000_000_000 * (1 + (wave + 3 * rank) % 5)).collect();
            WaveAttention {
                backward_ps: forward_ps.iter().map(|ps| ps * 5 / 2).collect(),
                forward_ps,
                tokens: vec![u64::from(WINDOW); 4],
            }
        })
        .collect()
}

fn input<'a>(
    model: &'a Model,
    waves: &'a [WaveAttention],
    linear: &'a [StageLinear],
    pp: u32,
    wait: Wait,
) -> StepInput<'a> {
    StepInput {
        model,
        layout: Layout { pp, ..Layout::dp_cp(4, 8) },
        waves,
        pairs: 1 << 34,
        linear,
        recompute: Recompute::None,
        wait,
        sharding: ShardingTimes { step_ps: 1_000_000_000, ..ShardingTimes::default() },
        hop_ps: 1_000_000,
    }
}

#[test]
fn waiting_per_micro_batch_costs_the_sum_of_maxima() {
    let profile = Profile::named("h200").expect("valid");
    let (model, waves) = (Model::named("qwen3-30b-a3b").expect("there"), waves());
    let linear = StageLinear::physical(&model, &profile, 1, 1, Recompute::None);
    let time = |wait| input(&model, &waves, &linear, 1, wait).time(&profile).expect("valid");
    let (batch, step) = (time(Wait::PerMicroBatch), time(Wait::PerStep));
    assert!(step.seconds < batch.seconds);
    let layers = f64::from(model.layers);
    let maxima: f64 = waves.iter().map(|w| *w.forward_ps.iter().max().expect("ranks") as f64 * 3.5).sum();
    let per_token = linear[0].forward_ps_per_token + linear[0].backward_ps_per_token;
    let expected = (layers * maxima + 8.0 * f64::from(WINDOW / 8) * per_token + 1e9) / 1e12;
    assert!((batch.seconds / expected - 1.0).abs() < 1e-9, "{} {expected}", batch.seconds);
    assert_eq!(batch.bubble_share, 0.0);
    let cards = 32.0;
    assert!((batch.tokens_per_card_per_s - 32.0 * f64::from(WINDOW) / batch.seconds / cards).abs() < 1e-6);
    assert!((batch.gpu_hours_per_billion_tokens * batch.tokens_per_card_per_s * 3600.0 / 1e9 - 1.0).abs() < 1e-9);
    assert!(batch.mfu > 0.0 && batch.mfu < 1.0);
}

#[test]
fn stages_bring_a_bubble_and_recomputation_time() {
    let profile = Profile::named("h200").expect("valid");
    let (model, waves) = (Model::named("llama-3-8b").expect("there"), waves());
    let linear = StageLinear::physical(&model, &profile, 4, 1, Recompute::None);
    let plain = input(&model, &waves, &linear, 4, Wait::PerMicroBatch).time(&profile).expect("valid");
    assert!(plain.bubble_share > 0.2 && plain.bubble_share < 0.6, "{}", plain.bubble_share);
    let mut before = plain.seconds;
    for recompute in [Recompute::Selective, Recompute::Full] {
        let linear = StageLinear::physical(&model, &profile, 4, 1, recompute);
        let again = StepInput { recompute, ..input(&model, &waves, &linear, 4, Wait::PerMicroBatch) };
        let seconds = again.time(&profile).expect("valid").seconds;
        assert!(seconds > before, "{recompute:?}");
        before = seconds;
    }
    let wrong = input(&model, &waves, &linear, 2, Wait::PerMicroBatch).time(&profile);
    assert_eq!(wrong, Err(StepError::Count { what: "stages of token-wise work", found: 4, expected: 2 }));
    assert_eq!(input(&model, &[], &linear, 4, Wait::PerStep).time(&profile).map(|t| t.seconds), Err(StepError::Empty));
}

#[test]
fn a_token_of_a_dense_model_costs_six_flops_a_parameter() {
    let model = Model::named("llama-3-8b").expect("there");
    let flops = 32.0 * model.layer_flops_per_token() + model.head_flops_per_token();
    // 8.03e9 parameters, of which the input embedding (0.525e9) multiplies nothing.
    assert!((flops / 2.0 / 7.504e9 - 1.0).abs() < 0.002, "{flops}");
    let moe = Model::named("qwen3-30b-a3b").expect("there");
    let active = (48.0 * moe.layer_flops_per_token() + 2.0 * moe.head_flops_per_token()) / 2.0;
    assert!((active / 3.3e9 - 1.0).abs() < 0.03, "3.3e9 active parameters are published, found {active}");
}

#[test]
fn sharding_and_recomputation_save_memory() {
    let model = Model::named("llama-3-8b").expect("there");
    let base = MemoryInput {
        layout: Layout { pp: 2, ..Layout::dp_cp(4, 8) },
        window: WINDOW,
        micro_batches: 8,
        sharding: Sharding::Zero0,
        expert_parallel: 1,
        recompute: Recompute::None,
        attention_bytes: 1 << 30,
    };
    let total = |input: &MemoryInput| Memory::peak(&model, input).total_bytes();
    let mut before = u64::MAX;
    for sharding in [Sharding::Zero0, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3] {
        let bytes = total(&MemoryInput { sharding, ..base });
        assert!(bytes < before, "{sharding:?}");
        before = bytes;
    }
    assert_eq!(total(&MemoryInput { sharding: Sharding::Hybrid(ShardGroups::all(32)), ..base }), before);
    assert!(total(&MemoryInput { sharding: Sharding::Hybrid(ShardGroups::all(8)), ..base }) > before);
    let kept = |recompute| Memory::peak(&model, &MemoryInput { recompute, ..base }).activation_bytes;
    assert!(kept(Recompute::Selective) < kept(Recompute::None));
    assert!(kept(Recompute::SelectiveCheckpointPlusPlus) < kept(Recompute::Selective));
    assert!(kept(Recompute::Full) < kept(Recompute::SelectiveCheckpointPlusPlus));
    // 18 bytes a parameter on one card without sharding: bf16 parameters, f32 gradients, master copy, two moments.
    let one = MemoryInput { layout: Layout::dp_cp(1, 1), micro_batches: 1, window: 1, attention_bytes: 0, ..base };
    assert!((total(&one) as f64 / 18.0 / 8.03e9 - 1.0).abs() < 0.01);
}

#[test]
fn gradients_take_the_network_between_nodes() {
    let pricing = Pricing::new(Profile::named("h200").expect("valid"));
    assert_eq!(gradient_reduction_ps(&pricing, 1 << 30, 1, 8), 0);
    assert!(gradient_reduction_ps(&pricing, 1 << 30, 16, 1) > 5 * gradient_reduction_ps(&pricing, 1 << 30, 8, 8));
}

#[test]
fn hybrid_groups_shard_each_by_its_own_size() {
    let model = Model::named("llama-3-8b").expect("there");
    let base = MemoryInput {
        layout: Layout::dp_cp(4, 8),
        window: WINDOW,
        micro_batches: 8,
        sharding: Sharding::Zero0,
        expert_parallel: 1,
        recompute: Recompute::SelectiveCheckpointPlusPlus,
        attention_bytes: 0,
    };
    let whole = Memory::peak(&model, &base);
    let groups = ShardGroups { parameters: 8, gradients: 16, optimizer: 64 };
    let shared = Memory::peak(&model, &MemoryInput { sharding: Sharding::Hybrid(groups), ..base });
    assert_eq!(shared.parameter_bytes, whole.parameter_bytes / 8);
    assert_eq!(shared.gradient_bytes, whole.gradient_bytes / 16);
    // Groups above all 32 ranks are all ranks.
    assert_eq!(shared.optimizer_bytes, whole.optimizer_bytes / 32);
}

#[test]
fn hybrid_groups_are_read_as_one_size_or_three() {
    let read = |text: &str| serde_json::from_str::<Sharding>(text).map_err(|e| e.to_string());
    let each = ShardGroups { parameters: 8, gradients: 8, optimizer: 64 };
    assert_eq!(read(r#"{"hybrid": 8}"#), Ok(Sharding::Hybrid(ShardGroups::all(8))));
    assert_eq!(read(r#"{"hybrid": {"parameters": 8, "gradients": 8, "optimizer": 64}}"#), Ok(Sharding::Hybrid(each)));
    assert!(read(r#"{"hybrid": {"parameters": 8}}"#).is_err());
    for sharding in [Sharding::Zero1, Sharding::Hybrid(each), Sharding::Hybrid(ShardGroups::all(4))] {
        let text = serde_json::to_string(&sharding).expect("plain data");
        assert_eq!(read(&text), Ok(sharding));
    }
}

#[test]
fn small_groups_keep_collectives_inside_the_node() {
    let pricing = Pricing::new(Profile::named("h200").expect("valid"));
    let bytes = (1u64 << 30, 2u64 << 30);
    let times = |sharding| ShardingTimes::of(&pricing, sharding, bytes, 64, 8);
    let plain = gradient_reduction_ps(&pricing, bytes.1, 64, 8);
    for sharding in [Sharding::Zero0, Sharding::Zero1] {
        assert_eq!(times(sharding), ShardingTimes { step_ps: plain, ..ShardingTimes::default() });
    }
    let (zero2, zero3) = (times(Sharding::Zero2), times(Sharding::Zero3));
    assert_eq!((zero2.forward_ps, zero3.step_ps), (0, 0));
    assert_eq!(zero3.backward_ps - zero3.forward_ps, zero2.backward_ps);
    let node = times(Sharding::Hybrid(ShardGroups::all(8)));
    assert!(node.forward_ps * 2 < zero3.forward_ps && node.backward_ps * 2 < zero3.backward_ps);
    assert!(node.step_ps > 0 && node.step_ps < plain);
    let wide = times(Sharding::Hybrid(ShardGroups { optimizer: 64, ..ShardGroups::all(8) }));
    assert!(wide.step_ps > node.step_ps && wide.forward_ps == node.forward_ps);
    let alone = ShardingTimes::of(&pricing, Sharding::Zero3, bytes, 1, 8);
    assert_eq!(alone, ShardingTimes::default());
}

#[test]
fn a_pass_hides_its_collectives_or_waits_for_them() {
    let profile = Profile::named("h200").expect("valid");
    let (model, waves) = (Model::named("qwen3-30b-a3b").expect("there"), waves());
    let linear = StageLinear::physical(&model, &profile, 1, 1, Recompute::None);
    let seconds = |forward_ps, backward_ps| {
        let sharding = ShardingTimes { forward_ps, backward_ps, step_ps: 0 };
        let input = StepInput { sharding, ..input(&model, &waves, &linear, 1, Wait::PerMicroBatch) };
        input.time(&profile).expect("valid").seconds
    };
    assert_eq!(seconds(0, 0), seconds(1_000, 1_000));
    let long = 10_000_000_000_000;
    assert_eq!(seconds(long, 2 * long), 8.0 * 30.0);
}

#[test]
fn selective_checkpoint_plus_plus_repeats_all_but_attention() {
    let profile = Profile::named("h200").expect("valid");
    let (model, waves) = (Model::named("llama-3-8b").expect("there"), waves());
    let seconds = |recompute| {
        let linear = StageLinear::physical(&model, &profile, 1, 1, recompute);
        let input = StepInput { recompute, ..input(&model, &waves, &linear, 1, Wait::PerMicroBatch) };
        input.time(&profile).expect("valid").seconds
    };
    let [none, attention, full, plus] =
        [Recompute::None, Recompute::Selective, Recompute::Full, Recompute::SelectiveCheckpointPlusPlus].map(seconds);
    assert!(none < plus && plus < full);
    assert!(((full - plus) - (attention - none)).abs() < 1e-9, "what it saves is the attention of the forward");
}
