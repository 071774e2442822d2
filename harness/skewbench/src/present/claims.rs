use super::values::ALL;
use super::{Loaded, Value};
use crate::experiment::Metric;

/// Systems that reorder or repack whole sequences inside a step and move no attention between groups.
const PACKING_ALONE: [&str; 4] = ["ulysses+sorted", "ulysses+lpt", "libra-vrsp", "wlb-no-deferral"];
/// A slowest wave that is shortened by less than this is not shortened.
const SHORTENED: f64 = 1.05;

/// What the paper claims in words, each with what the run says of it. Claims whose figures were not run are left out.
pub(super) fn claims(experiments: &[(Loaded, Vec<Value>)]) -> Vec<String> {
    let all: Vec<&Value> = experiments.iter().flat_map(|(_, values)| values).collect();
    [groupings(&all), packing(&all), global_pool(&all)].into_iter().flatten().collect()
}

/// The first value of a metric, dataset and system at which a condition holds.
fn find(values: &[&Value], of: (Metric, &str, &str), at: impl Fn(&Value) -> bool) -> Option<f64> {
    let (metric, dataset, system) = of;
    let mut found = values.iter().filter(|v| v.metric == metric && v.dataset == dataset && v.system == system);
    found.find(|v| at(v)).and_then(|v| Some(v.estimated.as_ref().ok()?.value))
}

fn word(holds: bool) -> &'static str {
    if holds { "holds here" } else { "does not hold here" }
}

fn datasets<'a>(values: &[&'a Value], metric: Metric) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for v in values.iter().filter(|v| v.metric == metric && v.dataset != ALL) {
        if !names.contains(&v.dataset.as_str()) {
            names.push(&v.dataset);
        }
    }
    names
}

/// "VRSP beats zigzag and zigzag-with-swap."
fn groupings(values: &[&Value]) -> Option<String> {
    let of = |grouping: &str, dataset: &str, p: f64| {
        find(values, (Metric::RMinus1, dataset, grouping), |v| v.number("p") == Some(p))
    };
    let (mut compared, mut lost) = (0, Vec::new());
    for dataset in datasets(values, Metric::RMinus1) {
        for p in [4.0, 8.0, 16.0] {
            let Some(vrsp) = of("vrsp", dataset, p) else { continue };
            for other in ["zigzag", "zigzag-swap"] {
                let Some(theirs) = of(other, dataset, p) else { continue };
                compared += 1;
                if vrsp >= theirs {
                    lost.push(format!("{other} at P = {p} on {dataset}"));
                }
            }
        }
    }
    let detail = if lost.is_empty() { "every time".into() } else { format!("but not {}", lost.join(", ")) };
    (compared > 0).then(|| {
        format!(
            "Claim (fig. 8): VRSP balances pools better than zigzag and zigzag-with-swap, from P = 4 on. It {} (computed): of \
             {compared} comparisons VRSP has the lower R - 1 {detail}.",
            word(lost.is_empty())
        )
    })
}

/// "Packing alone cannot cut the worst step."
fn packing(values: &[&Value]) -> Option<String> {
    let of = |system: &str, dataset: &str| find(values, (Metric::SpeedupMax, dataset, system), |_| true);
    let mut holds = true;
    let mut parts = Vec::new();
    for dataset in datasets(values, Metric::SpeedupMax) {
        let alone = PACKING_ALONE.iter().filter_map(|s| Some((*s, of(s, dataset)?)));
        let best = alone.max_by(|a, b| a.1.total_cmp(&b.1));
        let (Some((system, speedup)), Some(pooled)) = (best, of("libra", dataset)) else { continue };
        holds &= speedup < SHORTENED && pooled >= SHORTENED;
        let deferred = of("wlb", dataset).map_or_else(String::new, |deferred| {
            format!(", and {deferred:.2}x where outliers are held back and gather in few steps (wlb, mean over steps)")
        });
        parts.push(format!(
            "{dataset} {speedup:.2}x at most ({system}), against {pooled:.2}x with pooled attention (libra){deferred}"
        ));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Claim: placing or packing whole sequences of a step cannot shorten its slowest wave, because one long document is \
             in some wave. It {} (simulated): {}.",
            word(holds),
            parts.join("; ")
        )
    })
}

/// "A global pool pays in communication."
fn global_pool(values: &[&Value]) -> Option<String> {
    let mut holds = true;
    let (mut parts, mut dearer) = (Vec::new(), Vec::new());
    for dataset in datasets(values, Metric::SentBytes) {
        let sent =
            |system| find(values, (Metric::SentBytes, dataset, system), |v| v.text("link") == Some("between_nodes"));
        let latency =
            |system| find(values, (Metric::StragglerMean, dataset, system), |v| v.text("pass") == Some("both"));
        let (Some(global), Some(pools)) = (sent("distca-pool"), sent("libra-tap")) else { continue };
        holds &= global > pools;
        let slower = latency("distca-pool").zip(latency("libra-tap")).map_or_else(String::new, |(global, pools)| {
            format!(", straggler latency {global:.1} against {pools:.1} ms")
        });
        if sent("libra").is_some_and(|placed| placed > global) {
            dearer.push(dataset);
        }
        let placed = sent("libra").zip(latency("libra")).map_or_else(String::new, |(sent, latency)| {
            format!(" (libra, which places sequences first, {sent:.0} MB and {latency:.1} ms)")
        });
        parts.push(format!("{dataset} {global:.0} MB against {pools:.0} MB with pools of eight{slower}{placed}"));
    }
    let libra = match dearer.as_slice() {
        [] => String::new(),
        all => format!(
            " It does not hold against libra on {}, whose pools send more than the one pool does.",
            all.join(" and ")
        ),
    };
    (!parts.is_empty()).then(|| {
        format!(
            "Claim: one pool over all ranks pays in communication for what it balances. It {} (simulated): the busiest rank \
             sends to other nodes, for one layer of a wave in loader order, {}.{}",
            word(holds),
            parts.join("; "),
            libra
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::metrics::Estimated;

    fn made(metric: Metric, system: &str, at: serde_json::Value, value: f64) -> Value {
        let at = at.as_object().cloned().unwrap_or_else(Map::new);
        Value {
            metric,
            unit: metric.unit(),
            dataset: "paper-256k".into(),
            system: system.into(),
            at,
            estimated: Ok(Estimated::exact(value, 1)),
            simulated: true,
        }
    }

    #[test]
    fn claims_are_judged_by_the_values() {
        let r = |system, value| made(Metric::RMinus1, system, json!({ "p": 8 }), value);
        let all = [r("vrsp", 0.01), r("zigzag", 0.2), r("zigzag-swap", 0.1)];
        assert!(groupings(&all.iter().collect::<Vec<_>>()).is_some_and(|t| t.contains("holds here")));
        let all = [r("vrsp", 0.15), r("zigzag", 0.2), r("zigzag-swap", 0.1)];
        let text = groupings(&all.iter().collect::<Vec<_>>()).unwrap_or_default();
        assert!(text.contains("does not hold here") && text.contains("zigzag-swap at P = 8"), "{text}");

        let s = |system, value| made(Metric::SpeedupMax, system, json!({}), value);
        for (alone, word) in [(1.0, "holds here"), (1.4, "does not hold here")] {
            let all = [s("ulysses+lpt", alone), s("libra", 2.0)];
            assert!(packing(&all.iter().collect::<Vec<_>>()).is_some_and(|t| t.contains(word)));
        }

        let b = |system, value| made(Metric::SentBytes, system, json!({ "link": "between_nodes" }), value);
        for (global, word) in [(300.0, "holds here"), (90.0, "does not hold here")] {
            let all = [b("distca-pool", global), b("libra-tap", 100.0)];
            assert!(global_pool(&all.iter().collect::<Vec<_>>()).is_some_and(|t| t.contains(word)));
        }
        assert!(claims(&[]).is_empty());
    }
}
