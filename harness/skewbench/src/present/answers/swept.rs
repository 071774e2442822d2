//! Questions that experiments answer which sweep pools, ranks, workloads or networks.

use skewbench_report::{Answer, Figure};
use skewbench_store::stats::Verdict;

use super::super::paired::{Times, words};
use super::super::{Loaded, Value};
use super::asked::{BOUNDED, OWN, SORTED};
use crate::experiment::{Axis, Metric};
use crate::metrics::StepView;

/// The sentence that sums up the findings of a figure.
pub(super) fn head(figures: &[Figure], id: &str) -> Option<String> {
    let first = figures.iter().find(|f| f.id == id)?.findings.first()?;
    let sentence = first.strip_prefix("Finding: ").unwrap_or(first);
    // Where there is no summary the first finding is of one setting.
    ["Clearly", "No system"].iter().any(|start| sentence.starts_with(start)).then(|| sentence.to_owned())
}

/// Who wins on other workloads, networks and sizes.
pub(super) fn elsewhere(figures: &[Figure]) -> Answer {
    let asked = [
        ("peers", "Workloads of peers"),
        ("real", "Real lengths"),
        ("network", "Networks"),
        ("map", "Workloads by networks"),
        ("scale-out", "Scaling out"),
    ];
    let told = asked.into_iter().filter_map(|(id, what)| Some((id, format!("{what}: {}", head(figures, id)?))));
    let (links, text): (Vec<&str>, Vec<String>) = told.unzip();
    Answer {
        question: "Which system wins on which workload, network and size?".into(),
        text,
        links: links.into_iter().map(str::to_owned).collect(),
    }
}

/// A system with one size of pools.
struct Sized<'a> {
    pool: u32,
    times: Times,
    /// Slowest wave of a step, mean over steps, in milliseconds.
    slowest_ms: f64,
    system: &'a str,
    dataset: String,
    seed: u64,
}

/// How systems in pools change with the size of a pool.
pub(super) fn sizes(experiments: &[(Loaded, Vec<Value>)]) -> Answer {
    let swept = experiments.iter().find(|(l, _)| {
        let plot = &l.expanded.found.experiment.plot;
        plot.x == Axis::Pool && plot.metrics.iter().any(|m| matches!(m, Metric::StragglerMean | Metric::NormalisedMean))
    });
    let mut text = Vec::new();
    let mut links = vec!["pool".to_owned()];
    if let Some((loaded, _)) = swept {
        let e = &loaded.expanded;
        links.insert(0, e.found.experiment.figure.clone());
        for workload in 0..e.own_workloads {
            for system in [BOUNDED, OWN] {
                let places =
                    e.places.iter().map(|(at, _)| at).filter(|at| at.workload == workload && at.system == system);
                let mut sized: Vec<Sized<'_>> = places
                    .filter(|at| at.dp == e.found.experiment.layout.dp)
                    .filter_map(|at| {
                        let view = loaded.view(at).ok()?;
                        let slowest = view.by_step(StepView::straggler_max_ps);
                        Some(Sized {
                            pool: at.pool.min(at.dp),
                            times: Times::attention(view),
                            slowest_ms: slowest.iter().sum::<f64>() / slowest.len() as f64 * 1e-9,
                            system,
                            dataset: e.dataset(workload),
                            seed: e.seed,
                        })
                    })
                    .collect();
                sized.sort_by_key(|s| s.pool);
                sized.dedup_by_key(|s| s.pool);
                text.extend(with_size(&sized));
            }
        }
    }
    Answer { question: "How large should a pool be?".into(), text, links }
}

fn with_size(sized: &[Sized<'_>]) -> Option<String> {
    let best = sized.iter().min_by(|a, b| a.times.per_token().total_cmp(&b.times.per_token()))?;
    let largest = sized.last().filter(|_| sized.len() > 1)?;
    let compared = largest.times.over(&best.times, best.seed)?;
    let way = match (best.pool == largest.pool, compared.verdict) {
        (true, _) => "larger pools do not worsen its mean wave".to_owned(),
        (false, Verdict::Slower) => {
            format!("larger pools worsen its mean wave, P = {} is {}", largest.pool, words(&compared))
        }
        (false, _) => format!("P = {} is {}", largest.pool, words(&compared)),
    };
    let steps: Vec<String> = sized
        .iter()
        .map(|s| {
            format!("P = {}: {:.3} and {:.0} ms", s.pool, s.times.per_token() / best.times.per_token(), s.slowest_ms)
        })
        .collect();
    Some(format!(
        "On {}, {} is fastest in the mean at P = {}: {way}. Time over the best, and slowest wave of a step: {}.",
        best.dataset,
        best.system,
        best.pool,
        steps.join("; ")
    ))
}

/// From how many data-parallel ranks on a system beats the baseline.
pub(super) fn ranks(experiments: &[(Loaded, Vec<Value>)]) -> Answer {
    let swept = experiments.iter().find(|(l, values)| {
        l.expanded.found.experiment.plot.x == Axis::Dp && values.iter().any(|v| v.metric == Metric::ThroughputSpeedup)
    });
    let mut text = Vec::new();
    let mut links = Vec::new();
    if let Some((loaded, values)) = swept {
        let e = &loaded.expanded;
        links.push(e.found.experiment.figure.clone());
        let baseline = &e.found.experiment.plot.baseline;
        for dataset in (0..e.own_workloads).map(|w| e.dataset(w)) {
            let of = |system: &str| {
                let mut all: Vec<&Value> = values
                    .iter()
                    .filter(|v| v.metric == Metric::ThroughputSpeedup && v.dataset == dataset && v.system == system)
                    .filter(|v| v.text("linear") != Some("physical") && v.estimated.is_ok())
                    .collect();
                all.sort_by(|a, b| a.number("dp").unwrap_or(0.0).total_cmp(&b.number("dp").unwrap_or(0.0)));
                let told: Vec<String> = all
                    .iter()
                    .filter_map(|v| {
                        Some(format!("{:.2}x at DP = {}", v.estimated.as_ref().ok()?.value, v.number("dp")?))
                    })
                    .collect();
                (!told.is_empty()).then(|| format!("{system} {}", told.join(", ")))
            };
            let told: Vec<String> = [BOUNDED, OWN, SORTED].into_iter().filter_map(of).collect();
            if !told.is_empty() {
                text.push(format!(
                    "Throughput over {baseline} on {dataset}, linear work included: {}.",
                    told.join("; ")
                ));
            }
        }
    }
    Answer { question: "From how many data-parallel ranks on does it pay?".into(), text, links }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{WaveView, WavesView};

    fn sized(pool: u32, times: [f64; 6]) -> Sized<'static> {
        let wave = |ps: f64| WaveView { both_ps: ps, tokens_by_rank: vec![1.0], ..WaveView::default() };
        let steps = times.map(|ps| StepView { waves: vec![wave(ps)] });
        let view = WavesView { steps: steps.into(), ..WavesView::default() };
        Sized { pool, times: Times::attention(&view), slowest_ms: 2.0, system: BOUNDED, dataset: "w".into(), seed: 1 }
    }

    #[test]
    fn whether_larger_pools_are_worse_follows_from_the_steps() {
        let text = with_size(&[sized(1, [1.0; 6]), sized(8, [1.2; 6])]).unwrap_or_default();
        assert!(
            text.contains(
                "fastest in the mean at P = 1: larger pools worsen its mean wave, P = 8 is 20.0% higher in time"
            ),
            "{text}"
        );
        assert!(text.ends_with("P = 1: 1.000 and 2 ms; P = 8: 1.200 and 2 ms."), "{text}");
        let text = with_size(&[sized(1, [1.2; 6]), sized(8, [1.0; 6])]).unwrap_or_default();
        assert!(text.contains("at P = 8: larger pools do not worsen its mean wave"), "{text}");
        let text = with_size(&[sized(1, [1.0; 6]), sized(8, [1.001; 6])]).unwrap_or_default();
        assert!(text.contains("P = 8 is the same within 1%"), "{text}");
        assert_eq!(with_size(&[sized(8, [1.0; 6])]), None);
    }
}
