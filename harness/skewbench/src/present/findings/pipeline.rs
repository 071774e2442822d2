//! Where moving attention earns its cost once micro-batches run through a pipeline.

use skewbench_store::stats::Verdict;

use super::super::paired::{entries, fastest, words};
use super::{Context, grouped, short};

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let all = entries(context.loaded, Some(context.resources));
    let settings = grouped(&all, |entry| entry.setting(&[]));
    let sentences = settings.iter().filter_map(|(setting, entries)| {
        let best = fastest(entries)?;
        let (mut close, mut far) = (Vec::new(), Vec::new());
        for entry in entries.iter().filter(|e| e.system != best.system) {
            let Some(compared) = entry.over(best) else { continue };
            let text = format!("{} is {}", entry.system, words(&compared));
            if compared.verdict == Verdict::Slower { far.push((compared.ratio, text)) } else { close.push(text) }
        }
        far.sort_by(|a, b| a.0.total_cmp(&b.0));
        let others: Vec<String> = close.into_iter().chain(far.into_iter().map(|(_, text)| text)).collect();
        Some(format!(
            "{setting}: {} has the most tokens/s/card, {}; {}.",
            best.system,
            short(1.0 / best.per_token()),
            others.join("; ")
        ))
    });
    sentences.collect()
}
