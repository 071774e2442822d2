//! The worked examples of docs/METRICS.md, computed by the code that computes the metrics.

use skewbench::metrics::{
    Delay, Draws, ProxyView, StepView, WaveView, WavesView, estimate_ratio, estimate_sums, runtime_spread,
};
use skewbench_plan::{Layout, Mask};
use skewbench_sim::Profile;
use skewbench_sim::step_model::{
    Memory, MemoryInput, Model, Recompute, Sharding, ShardingTimes, StageLinear, StepInput, Wait, WaveAttention,
};
use skewbench_systems::balance::Loads;

const METRICS: &str = include_str!("../../../docs/METRICS.md");

/// A number that the document works out, beside ours.
#[track_caller]
fn example(text: &str, theirs: f64, ours: f64) {
    assert!(METRICS.contains(text), "docs/METRICS.md has no longer: {text}");
    assert!((ours - theirs).abs() < 5e-3 * theirs.abs().max(1.0), "{text}: {ours}, not {theirs}");
}

fn wave(both: &[f64]) -> WaveView {
    WaveView {
        both_ps: both.iter().copied().fold(0.0, f64::max),
        both_by_rank_ps: both.to_vec(),
        tokens_by_rank: vec![1.0; both.len()],
        ..WaveView::default()
    }
}

fn step(waves: &[&[f64]]) -> StepView {
    StepView { waves: waves.iter().map(|w| wave(w)).collect() }
}

#[test]
fn imbalance() {
    let loads = Loads::of_groups(&[6, 4, 4, 2], &[vec![0], vec![1], vec![2], vec![3]]);
    example("R - 1 = 6/4 - 1 = 0.5", 0.5, loads.r() - 1.0);
    example("(6 + 4) / (5 + 3) - 1 = 0.25", 0.25, step(&[&[6.0, 4.0], &[4.0, 2.0]]).wave_r());
}

#[test]
fn latencies() {
    let three = step(&[&[10.0], &[30.0], &[20.0]]);
    example("`straggler_mean` 20 ms, `straggler_max` 30 ms", 20.0, three.straggler_mean_ps());
    example("`straggler_mean` 20 ms, `straggler_max` 30 ms", 30.0, three.straggler_max_ps());
    let of = |steps: &[StepView]| steps.iter().map(StepView::attention_ps).collect::<Vec<_>>();
    let (base, ours) = (of(&[step(&[&[40.0]]), step(&[&[10.0]])]), of(&[step(&[&[20.0]]), step(&[&[10.0]])]));
    let speedup = estimate_sums(&[&base, &ours], Draws::single(1), "speedup", |s| s[0] / s[1]).unwrap();
    example("speedup (40 + 10) / (20 + 10) = 1.67", 1.67, speedup.value);
    let per_token = estimate_ratio(&[8.0, 12.0], &[100.0, 100.0], Draws::single(1), "time_per_token").unwrap();
    example("`time_per_token` 20/200 = 0.1 ns", 0.1, per_token.value);
}

#[test]
fn delays() {
    let delay = Delay {
        late_tokens: vec![0.0, 20.0],
        late_token_steps: vec![0.0, 20.0],
        delivered_tokens: vec![100.0, 100.0],
        steps_max: 1,
        preserved: false,
    };
    example("`late_share` 20/200 = 0.1", 0.1, delay.late_share());
    example("`delay_steps` 1 for both", 1.0, delay.mean_steps());
}

#[test]
fn overlap_and_spread() {
    let hidden = WaveView { both_ps: 14.0, compute_ps: 11.0, transfer_ps: 8.0, ..WaveView::default() };
    let view = WavesView { steps: vec![StepView { waves: vec![hidden] }], ..WavesView::default() };
    example("hidden share 5/6 = 0.83", 0.83, view.hidden_share(4)[0]);
    let forward =
        WaveView { forward_by_rank_ps: vec![1.0, 21.0], tokens_by_rank: vec![1.0, 1.0], ..WaveView::default() };
    let step = StepView { waves: vec![forward] };
    example("22/2 = 11", 11.0, step.forward_spread(1.0));
    example("Without linear work it would be 21", 21.0, step.forward_spread(0.0));
}

#[test]
fn scaling() {
    let alone = step(&[&[1.0], &[1.0], &[1.0], &[5.0]]).total_ps(1.0, true);
    let two = step(&[&[1.0, 1.0], &[1.0, 5.0]]).total_ps(1.0, true);
    example("At DP = 1: 2 + 2 + 2 + 6 = 12", 12.0, alone);
    example("2 + 6 = 8, scaling 1.5", 1.5, alone / two);
}

/// A dense model with 4 query heads of 16 elements.
fn dense(layers: u32, hidden: u32, kv_heads: u16, ffn: u32, vocab: u32) -> Model {
    Model {
        name: "example".into(),
        layers,
        hidden,
        q_heads: 4,
        kv_heads,
        head_dim: 16,
        ffn,
        experts: 0,
        experts_per_token: 0,
        moe_ffn: 0,
        vocab,
        source: "made up".into(),
        unverified: Vec::new(),
    }
}

#[test]
fn training_steps() {
    let model = dense(2, 50, 4, 248, 200);
    example("of 100,000 linear FLOPs a token and layer", 100_000.0, model.layer_flops_per_token());
    example("and 20,000 of the output projection", 20_000.0, model.head_flops_per_token());
    let mut profile = Profile::named("h200").unwrap();
    profile.card.bf16_flops_per_s = 1e12;
    // Two layers of 2 ms forward and 3 ms backward each.
    let wave = WaveAttention {
        forward_ps: vec![2_000_000_000; 2],
        backward_ps: vec![3_000_000_000; 2],
        tokens: vec![1000; 2],
    };
    let input = StepInput {
        model: &model,
        layout: Layout::dp_cp(2, 2),
        waves: &[wave],
        pairs: 1_000_000,
        linear: &[StageLinear { forward_ps_per_token: 0.0, backward_ps_per_token: 0.0 }],
        recompute: Recompute::None,
        wait: Wait::PerMicroBatch,
        sharding: ShardingTimes::default(),
        hop_ps: 0,
    };
    let time = input.time(&profile).unwrap();
    assert_eq!(time.seconds, 0.01);
    example("2000 / 0.01 / 4 = 50,000 tokens/s/card", 50_000.0, time.tokens_per_card_per_s);
    example("= 5.56 card hours", 5.56, time.gpu_hours_per_billion_tokens);
    example("MFU is 2.856 x 10^9 / (0.01 x 4 x 10^12) = 0.0714", 0.0714, time.mfu);
    assert!((time.mfu - 0.0714).abs() < 1e-6);
}

#[test]
fn memory_of_the_fullest_card() {
    let model = dense(1, 64, 2, 100, 50);
    let peak = |layout: Layout, sharding: Sharding| {
        let input = MemoryInput {
            layout,
            window: 10,
            micro_batches: 1,
            sharding,
            expert_parallel: 1,
            recompute: Recompute::None,
            attention_bytes: 1000,
        };
        Memory::peak(&model, &input)
    };
    let alone = peak(Layout::dp_cp(1, 1), Sharding::Zero0);
    example("3 x 64 x 100 + 2 x 64 x 50 = 38,016 parameters", 38_016.0, alone.parameter_bytes as f64 / 2.0);
    example("684,288 + 18,120 + 1000 = 703,408 bytes", 703_408.0, alone.total_bytes() as f64);
    assert_eq!((alone.activation_bytes, alone.total_bytes()), (18_120, 703_408));
    let sharded = peak(Layout::dp_cp(5, 2), Sharding::Zero1);
    let states = sharded.parameter_bytes + sharded.gradient_bytes + sharded.optimizer_bytes;
    let each = states as f64 / 38_016.0;
    example("2 + 4 + 12/10 = 7.2 bytes each", 7.2, each);
    example("6.7 GiB before activations", 6.7, each * 1e9 / f64::from(1 << 30));
}

#[test]
fn bytes_calls_and_cards() {
    let sent = |bytes| WaveView { sent_inter_bytes: bytes, ..WaveView::default() };
    let step = StepView { waves: vec![sent(5.0), sent(1.0)] };
    example("(5 + 1) / 2 = 3 MB", 3.0, step.mean_of(|w| w.sent_inter_bytes));
    example("128 x 128 - 128 x 127/2 = 8256 pairs", 8256.0, Mask::Causal.pairs(128, 128) as f64);
    let proxy = ProxyView::of(&[10, 11, 15], &[4, 4, 4]).unwrap();
    example("the slowest takes 15/12 - 1 = 0.25 more", 0.25, proxy.error);
    assert!(proxy.hit && !ProxyView::of(&[2, 1], &[1, 2]).unwrap().hit);
    example("without 9 and 20, 11/10 - 1 = 0.1", 0.1, runtime_spread(&[20.0, 9.0, 11.0, 10.0]).unwrap());
    assert_eq!(runtime_spread(&[1.0]), None);
}
