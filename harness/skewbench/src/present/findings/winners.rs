//! Which system is fastest in which setting, by how much, and where that is unclear.

use std::collections::BTreeMap;

use skewbench_store::stats::{Verdict, geometric_means};

use super::super::paired::{Entry, entries, fastest, words};
use super::{Context, grouped, list};

/// Settings that are each given a sentence; more are only counted.
const TOLD: usize = 12;

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let all = entries(context.loaded, None);
    let mut settings = grouped(&all, |entry| entry.setting(&[]));
    settings.retain(|(_, entries)| entries.len() > 1);
    let mut clear: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut unclear = Vec::new();
    let mut sentences = Vec::new();
    let baseline = &context.loaded.expanded.found.experiment.plot.baseline;
    for (setting, entries) in &settings {
        let Some(best) = fastest(entries) else { continue };
        let others: Vec<&Entry<'_>> = entries.iter().filter(|e| e.system != best.system).copied().collect();
        let Some(next) = fastest(&others) else { continue };
        let compared = next.over(best);
        match compared.as_ref().map(|c| c.verdict) {
            Some(Verdict::Slower) => clear.entry(best.system).or_default().push(setting.clone()),
            _ => unclear.push(format!("{setting} ({} or {})", best.system, next.system)),
        }
        if settings.len() <= TOLD {
            let base = entries.iter().find(|e| e.system == *baseline && e.system != best.system);
            let over = base.map(|b| b.per_token() / best.per_token());
            let over = over.map(|over| format!(", {over:.2}x the speed of {baseline}")).unwrap_or_default();
            sentences.push(match compared {
                Some(c) if c.verdict == Verdict::Slower => {
                    format!("{setting}: {} is fastest{over}; {} is {}.", best.system, next.system, words(&c))
                }
                Some(c) => {
                    format!("{setting}: {} has the lowest time{over}; {} is {}.", best.system, next.system, words(&c))
                }
                None => format!(
                    "{setting}: {} has the lowest time{over}; it and {} have no steps that can be paired.",
                    best.system, next.system
                ),
            });
        }
    }
    let won: Vec<String> = clear
        .iter()
        .map(|(system, settings)| format!("{system} in {} ({})", settings.len(), settings.join("; ")))
        .collect();
    if settings.len() > 1 {
        let head = if won.is_empty() {
            "No system is clearly fastest anywhere".to_owned()
        } else {
            format!("Clearly fastest: {}", list(&won))
        };
        let tail = if unclear.is_empty() {
            String::new()
        } else {
            format!(". Unclear in {}: {}", unclear.len(), unclear.join("; "))
        };
        sentences.insert(0, format!("{head}, of {} settings, paired on the same steps{tail}.", settings.len()));
    }
    sentences.extend(means(baseline, &settings));
    sentences
}

/// Geometric means of the time relative to the baseline over the settings that every system finished.
fn means(baseline: &str, settings: &[(String, Vec<&Entry<'_>>)]) -> Option<String> {
    let mut ratios: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (setting, entries) in settings {
        let base = entries.iter().find(|e| e.system == baseline)?.per_token();
        for entry in entries {
            let of = ratios.entry(entry.system.to_owned()).or_default();
            of.insert(setting.clone(), base / entry.per_token());
        }
    }
    let found = geometric_means(&ratios).ok().filter(|found| found.cells.len() > 1)?;
    let mut means: Vec<(&String, &f64)> = found.means.iter().filter(|(system, _)| *system != baseline).collect();
    means.sort_by(|a, b| b.1.total_cmp(a.1));
    let means: Vec<String> = means.into_iter().map(|(system, mean)| format!("{system} {mean:.2}x")).collect();
    Some(format!(
        "Geometric mean of the speed over {baseline}, over the {} settings that every system finished ({} left out): {}.",
        found.cells.len(),
        found.left_out.len(),
        list(&means)
    ))
}
