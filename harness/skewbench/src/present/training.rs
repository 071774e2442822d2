use skewbench_plan::Cost;
use skewbench_sim::step_model::{
    Memory, MemoryInput, Sharding, ShardingTimes, StageLinear, StepInput, StepTime, WaveAttention,
};

use super::Loaded;
use crate::cells::{Resources, WAVES_TABLE};
use crate::experiment::{At, Metric};
use crate::metrics::{Estimated, StepView, WavesView, estimate_ratio};

/// A metric of training steps with physical linear work; `None` for any other metric.
pub(super) fn training_step(
    loaded: &Loaded,
    resources: &Resources,
    at: &At,
    metric: Metric,
) -> Option<Result<Estimated, String>> {
    let of: fn(&StepTime) -> f64 = match metric {
        Metric::PeakMemory => return Some(peak_memory(loaded, at)),
        Metric::Throughput => |t| t.tokens_per_card_per_s,
        Metric::Mfu => |t| t.mfu,
        Metric::BubbleShare => |t| t.bubble_share,
        Metric::GpuHours => |t| t.gpu_hours_per_billion_tokens,
        _ => return None,
    };
    Some(step_times(loaded, resources, at).and_then(|times| {
        let values: Vec<f64> = times.iter().map(of).collect();
        let draws = loaded.waves(at).map(|(_, view)| super::waves::draws(loaded, [view]))?;
        // Hours over tokens; everything else over seconds.
        let weight = |t: &StepTime| if metric == Metric::GpuHours { t.tokens } else { t.seconds };
        let weights: Vec<f64> = times.iter().map(weight).collect();
        let work: Vec<f64> = values.iter().zip(&weights).map(|(v, w)| v * w).collect();
        estimate_ratio(&work, &weights, draws, metric.name()).map_err(|e| e.to_string())
    }))
}

/// Tokens of the longest packed sequence.
fn longest_sequence(view: &WavesView) -> f64 {
    let waves = view.steps.iter().chain(&view.drain).flat_map(|s| &s.waves);
    waves.flat_map(|w| &w.tokens_by_rank).copied().fold(0.0, f64::max)
}

/// Memory of the fullest card under a sharding.
fn memory(loaded: &Loaded, at: &At, sharding: Sharding) -> Result<Memory, String> {
    let (cell, view) = loaded.waves(at)?;
    let step_model = &loaded.expanded.found.experiment.step_model;
    let waves = view.steps.iter().chain(&view.drain).flat_map(|s| &s.waves);
    let input = MemoryInput {
        layout: cell.layout,
        window: longest_sequence(view) as u32,
        micro_batches: cell.gbs / cell.layout.dp,
        sharding,
        expert_parallel: step_model.expert_parallel,
        recompute: step_model.recompute,
        attention_bytes: waves.map(|w| w.peak_bytes as u64).max().unwrap_or(0),
    };
    Ok(Memory::peak(&loaded.expanded.model, &input))
}

fn peak_memory(loaded: &Loaded, at: &At) -> Result<Estimated, String> {
    let memory = memory(loaded, at, loaded.expanded.found.experiment.step_model.sharding)?;
    let steps = loaded.waves(at)?.1.steps.len() as u64;
    Ok(Estimated::exact(memory.total_bytes() as f64 / f64::from(1u32 << 30), steps))
}

/// Every step of a place as a training step.
///
/// # Errors
/// Why there are none.
pub fn step_times(loaded: &Loaded, resources: &Resources, at: &At) -> Result<Vec<StepTime>, String> {
    let (cell, view) = loaded.waves(at)?;
    let step_model = &loaded.expanded.found.experiment.step_model;
    let machine = loaded.expanded.machine.as_ref().ok_or("no machine")?;
    let pricing = resources.pricing(machine).map_err(|f| f.message)?;
    let (model, layout) = (&loaded.expanded.model, cell.layout);
    let whole = memory(loaded, at, Sharding::Zero0)?;
    let sharding = ShardingTimes::of(
        pricing,
        step_model.sharding,
        (whole.parameter_bytes, whole.gradient_bytes),
        layout.dp * layout.cp,
        layout.cards_per_node / layout.tp.max(1),
    );
    let one_node = layout.cards() <= u64::from(layout.cards_per_node);
    let window = longest_sequence(view);
    let activations = window / f64::from(layout.cp) * f64::from(model.hidden) * 2.0;
    let hop_ps = if layout.pp > 1 { pricing.transfer_ps(activations as u64, one_node) } else { 0 };
    let linear = StageLinear::physical(model, pricing.profile(), layout.pp, layout.tp, step_model.recompute);
    let table = loaded.table(WAVES_TABLE, loaded.expanded.cell_at(at).ok_or("no cell")?)?;
    let pairs = table.u64("pairs").map_err(|e| e.to_string())?;
    let of_step = table.u32("step").map_err(|e| e.to_string())?;
    let mut rows = pairs.iter().zip(of_step).peekable();
    let mut times = Vec::with_capacity(view.steps.len());
    for (index, step) in view.steps.iter().chain(&view.drain).enumerate() {
        let mut step_pairs = 0;
        while let Some((pairs, _)) = rows.next_if(|(_, s)| **s as usize == index) {
            step_pairs += pairs;
        }
        let waves = attention(step);
        let input = StepInput {
            model,
            layout,
            waves: &waves,
            pairs: step_pairs,
            linear: &linear,
            recompute: step_model.recompute,
            wait: step_model.wait,
            sharding,
            hop_ps,
        };
        times.push(input.time(pricing.profile()).map_err(|e| e.to_string())?);
    }
    Ok(times)
}

fn attention(step: &StepView) -> Vec<WaveAttention> {
    let integers = |values: &[f64]| values.iter().map(|v| *v as u64).collect();
    step.waves
        .iter()
        .map(|w| WaveAttention {
            forward_ps: integers(&w.forward_by_rank_ps),
            backward_ps: integers(&w.backward_by_rank_ps),
            tokens: integers(&w.tokens_by_rank),
        })
        .collect()
}
