use serde_json::{Map, json};

use super::training::training_step;
use super::values::{DRAWN, NO_TRANSFERS, Value, linear_name};
use super::{Loaded, proxy};
use crate::cells::{Resources, WavesCell};
use crate::experiment::{At, Metric};
use crate::metrics::{Draws, Estimated, StepView, WavesView, estimate_mean, estimate_ratio, estimate_sums};
use skewbench_sim::step_model::LinearMode;

fn coordinates(at: &At, pool: u32) -> Map<String, serde_json::Value> {
    let mut map = Map::new();
    map.insert("dp".into(), json!(at.dp));
    map.insert("cp".into(), json!(at.cp));
    map.insert("p".into(), json!(pool));
    map
}

/// Values of one metric at one place.
pub(super) fn values(loaded: &Loaded, resources: &Resources, at: &At, metric: Metric, values: &mut Vec<Value>) {
    let e = &loaded.expanded.found.experiment;
    let dataset = loaded.expanded.dataset(at.workload);
    let here = loaded.waves(at);
    let base = coordinates(at, at.pool.min(at.dp));
    let mut push =
        |extra: &[(&str, &str)], metric: Metric, unit: &'static str, estimated: Result<Estimated, String>| {
            let mut at_map = base.clone();
            for (key, value) in extra {
                at_map.insert((*key).to_owned(), json!(value));
            }
            values.push(Value {
                metric,
                unit,
                dataset: dataset.clone(),
                system: at.system.clone(),
                at: at_map,
                estimated,
                simulated: true,
            });
        };
    let name = metric.name();
    let view = here.as_ref().map(|(_, view)| *view).map_err(Clone::clone);
    let draws = draws(loaded, view.iter().copied());
    let mean = |of: &dyn Fn(&StepView) -> f64| -> Result<Estimated, String> {
        estimate_mean(&view.clone()?.by_step(of), draws, name).map_err(|e| e.to_string())
    };
    if view.as_ref().is_ok_and(|view| view.drawn) && !metric.of_single_waves() {
        return push(&[], metric, metric.unit(), Err(DRAWN.into()));
    }
    match metric {
        Metric::StragglerMean => {
            for (slot, network) in ["half", "double"].into_iter().enumerate() {
                // Only the first steps are priced at other bandwidths.
                let priced = |s: &StepView| s.waves.iter().all(|w| w.band_ps[slot] > 0.0);
                let latency = |s: &StepView| s.mean_of(|w| w.band_ps[slot]) * 1e-9;
                let steps =
                    view.as_ref().map(|v| v.settled().iter().filter(|s| priced(s)).map(latency).collect::<Vec<_>>());
                if let Some(steps) = steps.ok().filter(|s| !s.is_empty()) {
                    let estimated = estimate_mean(&steps, draws, name).map_err(|e| e.to_string());
                    push(&[("pass", "both"), ("network", network)], Metric::NetworkBand, "ms", estimated);
                }
            }
            push(&[("pass", "both")], metric, "ms", mean(&|s| s.straggler_mean_ps() * 1e-9));
            push(&[("pass", "forward")], metric, "ms", mean(&|s| s.mean_of(|w| w.forward_ps) * 1e-9));
            push(&[("pass", "backward")], metric, "ms", mean(&|s| s.mean_of(|w| w.backward_ps) * 1e-9));
        }
        Metric::StragglerMax => push(&[("pass", "both")], metric, "ms", mean(&|s| s.straggler_max_ps() * 1e-9)),
        Metric::WaveR => push(&[], metric, metric.unit(), mean(&|s| s.wave_r())),
        Metric::NormalisedMean | Metric::Speedup | Metric::SpeedupMax => {
            let reference =
                At { system: e.plot.baseline.clone(), pool: default_pool(loaded, &e.plot.baseline, at), ..at.clone() };
            if reference.system == at.system && metric != Metric::NormalisedMean {
                return;
            }
            let estimated = view.clone().and_then(|ours| ratio_to(loaded, ours, loaded.waves(&reference)?.1, metric));
            push(&[("base", &e.plot.baseline)], metric, metric.unit(), estimated);
        }
        Metric::TimePerToken => {
            let estimated = view.and_then(|v| {
                let (time, tokens) =
                    (v.by_step_with_drain(StepView::attention_ps), v.by_step_with_drain(StepView::tokens));
                estimate_ratio(&time, &tokens, draws, name).map_err(|e| e.to_string())
            });
            push(&[("pass", "both")], metric, metric.unit(), estimated.map(|e| e.scaled(1e-3)));
        }
        Metric::LateShare | Metric::DelaySteps => {
            let Ok(view) = view else {
                return push(&[], metric, metric.unit(), view.map(|_| Estimated::exact(0.0, 0)));
            };
            let steps = view.steps.len() as u64;
            if view.delay.preserved {
                return;
            }
            let value = if metric == Metric::LateShare { view.delay.late_share() } else { view.delay.mean_steps() };
            push(&[("over", "all")], metric, metric.unit(), Ok(Estimated::exact(value, steps)));
            if metric == Metric::DelaySteps {
                let longest = Estimated::exact(f64::from(view.delay.steps_max), steps);
                push(&[("over", "longest")], metric, metric.unit(), Ok(longest));
            }
        }
        Metric::SentBytes => {
            push(
                &[("link", "inside_node")],
                metric,
                metric.unit(),
                mean(&|s| s.mean_of(|w| w.sent_intra_bytes) * 1e-6),
            );
            push(
                &[("link", "between_nodes")],
                metric,
                metric.unit(),
                mean(&|s| s.mean_of(|w| w.sent_inter_bytes) * 1e-6),
            );
        }
        Metric::ProxyError | Metric::ProxyHit => {
            push(&[], metric, metric.unit(), proxy::estimate(loaded, at, metric));
        }
        Metric::HiddenShare => {
            let pieces = here.as_ref().ok().and_then(|(cell, _)| pieces(cell));
            let Some(pieces) = pieces.filter(|p| *p > 1) else { return };
            let estimated = view.and_then(|v| match v.hidden_share(pieces).as_slice() {
                [] => Err(NO_TRANSFERS.into()),
                shares => estimate_mean(shares, draws, name).map_err(|e| e.to_string()),
            });
            push(&[], metric, metric.unit(), estimated);
        }
        Metric::ForwardSpread => {
            for mode in &e.step_model.linear {
                let estimated = loaded
                    .linear(resources, *mode, at)
                    .and_then(|linear| mean(&|s| s.forward_spread(linear.forward_ps)));
                push(&[("linear", linear_name(*mode))], metric, metric.unit(), estimated);
            }
        }
        Metric::Scaling => {
            for mode in &e.step_model.linear {
                for (base, transfers) in [("shared", "charged"), ("shared", "left_out"), ("own", "charged")] {
                    let extra = [("linear", linear_name(*mode)), ("base", base), ("transfers", transfers)];
                    let single = single_rank(loaded, at, base == "shared");
                    let estimated = throughput_ratio(loaded, resources, at, &single, *mode, transfers == "charged");
                    if base == "shared" && transfers == "charged" {
                        let efficiency = estimated.clone().map(|e| e.scaled(1.0 / f64::from(at.dp)));
                        let metric = Metric::ScalingEfficiency;
                        push(&extra, metric, metric.unit(), efficiency);
                    }
                    push(&extra, metric, metric.unit(), estimated);
                }
                let same_ranks = At {
                    system: e.plot.baseline.clone(),
                    pool: default_pool(loaded, &e.plot.baseline, at),
                    ..at.clone()
                };
                if at.system != e.plot.baseline && loaded.expanded.cell_at(&same_ranks).is_some() {
                    let extra =
                        [("linear", linear_name(*mode)), ("base", e.plot.baseline.as_str()), ("transfers", "charged")];
                    let estimated = throughput_ratio(loaded, resources, at, &same_ranks, *mode, true);
                    push(&extra, Metric::ThroughputSpeedup, Metric::ThroughputSpeedup.unit(), estimated);
                }
            }
        }
        Metric::Throughput
        | Metric::Mfu
        | Metric::BubbleShare
        | Metric::GpuHours
        | Metric::PeakMemory
        | Metric::NetworkBand
        | Metric::RMinus1
        | Metric::KernelRate
        | Metric::RuntimeSpread
        | Metric::ScalingEfficiency
        | Metric::ThroughputSpeedup => {
            if let Some(estimated) = training_step(loaded, resources, at, metric) {
                push(&[("linear", "physical")], metric, metric.unit(), estimated);
            }
        }
    }
}

fn default_pool(loaded: &Loaded, system: &str, at: &At) -> u32 {
    let mut places = loaded.expanded.places.iter().map(|(at, _)| at);
    let same = |p: &&At| p.workload == at.workload && p.system == system && p.dp == at.dp && p.cp == at.cp;
    places.find(same).map_or(at.pool, |p| p.pool)
}

fn pieces(cell: &WavesCell) -> Option<u32> {
    let options = serde_json::to_value(&cell.options).ok()?;
    options.get("pieces").and_then(serde_json::Value::as_u64).map(|m| {
        // The planner sees the heads of one tensor-parallel shard.
        m.min(u64::from(cell.shape.q_heads) / u64::from(cell.layout.tp)) as u32
    })
}

/// One data-parallel rank of the baseline (`shared`) or of the same system.
fn single_rank(loaded: &Loaded, at: &At, shared: bool) -> At {
    let baseline = &loaded.expanded.found.experiment.plot.baseline;
    let system = if shared { baseline.clone() } else { at.system.clone() };
    let mut single = At { system, dp: 1, ..at.clone() };
    single.pool = default_pool(loaded, &single.system, &single);
    single
}

/// Attention latency of `ours` over that of `base` or the other way round, on the steps that both have. Latencies of means
/// are straggler latencies over tokens, which for systems that run every step's own documents is the ratio of their mean
/// straggler latencies.
fn ratio_to(loaded: &Loaded, ours: &WavesView, base: &WavesView, metric: Metric) -> Result<Estimated, String> {
    let n = common_steps(ours, base)?;
    let draws = draws(loaded, [ours, base]);
    let estimated = if metric == Metric::SpeedupMax {
        let settled = ours.settled_in_both(base);
        let slowest =
            |v: &WavesView| v.steps[settled.clone()].iter().map(StepView::straggler_max_ps).collect::<Vec<_>>();
        estimate_ratio(&slowest(base), &slowest(ours), draws, metric.name())
    } else {
        let of = |v: &WavesView| {
            let (time, tokens) = (v.by_step_with_drain(StepView::attention_ps), v.by_step_with_drain(StepView::tokens));
            (time[..n].to_vec(), tokens[..n].to_vec())
        };
        let ((ours, our_tokens), (base, base_tokens)) = (of(ours), of(base));
        let relative = |s: &[f64]| (s[0] / s[1]) / (s[2] / s[3]);
        let columns: [&[f64]; 4] = [&ours, &our_tokens, &base, &base_tokens];
        if metric == Metric::NormalisedMean {
            estimate_sums(&columns, draws, metric.name(), relative)
        } else {
            estimate_sums(&columns, draws, metric.name(), |s| 1.0 / relative(s))
        }
    };
    estimated.map_err(|e| e.to_string())
}

/// Steps are drawn in the longest block that one of the views needs.
pub(super) fn draws<'a>(loaded: &Loaded, views: impl IntoIterator<Item = &'a WavesView>) -> Draws {
    Draws { seed: loaded.expanded.seed, block: views.into_iter().map(WavesView::block).max().unwrap_or(1) }
}

/// Number of steps that two views have in common.
///
/// # Errors
/// When that leaves out steps of a system that holds documents back: what it delayed would be missing.
fn common_steps(ours: &WavesView, base: &WavesView) -> Result<usize, String> {
    let n = ours.steps.len().min(base.steps.len());
    match [ours, base].into_iter().find(|v| v.stateful() && v.steps.len() > n) {
        Some(view) => Err(format!(
            "a system that holds documents back ran {} steps and the other {n}; give both as many",
            view.steps.len()
        )),
        None => Ok(n),
    }
}

/// Throughput at one place over that at another, on the steps that both have, with a wait at every micro-batch.
fn throughput_ratio(
    loaded: &Loaded,
    resources: &Resources,
    at: &At,
    base: &At,
    mode: LinearMode,
    transfers: bool,
) -> Result<Estimated, String> {
    let linear = loaded.linear(resources, mode, at)?.both_ps();
    let (ours, base) = (loaded.waves(at)?.1, loaded.waves(base)?.1);
    let n = common_steps(ours, base)?;
    let draws = draws(loaded, [ours, base]);
    let of = |v: &WavesView| {
        let time = v.by_step_with_drain(|s| s.total_ps(linear, transfers));
        let tokens = v.by_step_with_drain(StepView::tokens);
        (time[..n].to_vec(), tokens[..n].to_vec())
    };
    let ((ours, our_tokens), (base, base_tokens)) = (of(ours), of(base));
    let columns: [&[f64]; 4] = [&ours, &our_tokens, &base, &base_tokens];
    estimate_sums(&columns, draws, "scaling", |s| (s[1] / s[0]) / (s[3] / s[2])).map_err(|e| e.to_string())
}
