//! Which value of a setting is best for a system, and which others cannot be told from it.

use skewbench_store::stats::Verdict;

use super::super::paired::{Entry, entries, fastest, words};
use super::{Context, grouped};

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let plot = &context.loaded.expanded.found.experiment.plot;
    let axis = plot.x.coordinate();
    let all = entries(context.loaded, None);
    let having = all.iter().filter(|e| e.coordinates.contains_key(axis));
    let groups = grouped(having, |entry| format!("{}, {}", entry.system, entry.setting(&[axis])));
    let sentences = groups.iter().filter_map(|(group, entries)| {
        let best = fastest(entries)?;
        let value = |e: &Entry<'_>| {
            e.coordinates.get(axis).map(|v| v.to_string().trim_matches('"').to_owned()).unwrap_or_default()
        };
        let mut like = Vec::new();
        let mut worse = Vec::new();
        let mut differs = false;
        for entry in entries.iter().filter(|e| value(e) != value(best)) {
            let Some(compared) = entry.over(best) else { continue };
            differs |= compared.ratio != 1.0;
            let text = format!("{} {}", value(entry), words(&compared));
            if compared.verdict == Verdict::Slower {
                worse.push((compared.ratio, text))
            } else {
                like.push((value(entry), text))
            }
        }
        // What does not have the setting is the same at all of them.
        if !differs {
            return None;
        }
        worse.sort_by(|a, b| a.0.total_cmp(&b.0));
        let close = like.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>().join("; ");
        let close = if close.is_empty() { String::new() } else { format!("; {close}") };
        let far = worse.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>().join("; ");
        let far = if far.is_empty() { String::new() } else { format!("; {far}") };
        let rule = (axis == "p").then(|| smallest(value(best), like.iter().map(|(value, _)| value.clone())));
        Some(format!("{group}: best at {} = {}{close}{far}{}.", plot.x.name(), value(best), rule.unwrap_or_default()))
    });
    sentences.collect()
}

/// The rule for P: the smallest that no other beats with a clear verdict, because transfers and memory grow with a pool.
fn smallest(best: String, like: impl Iterator<Item = String>) -> String {
    let number = |text: &String| text.parse::<u32>().ok();
    let chosen = like.chain([best]).filter_map(|text| number(&text)).min();
    chosen.map(|p| format!("; by the rule of the smallest pool that none beats clearly, P = {p}")).unwrap_or_default()
}
