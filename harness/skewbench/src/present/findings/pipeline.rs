//! Where moving attention earns its cost once micro-batches run through a pipeline.

use std::collections::BTreeMap;

use skewbench_store::stats::Verdict;

use super::super::paired::{entries, fastest, words};
use super::{Context, grouped, list, short};

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    let all = entries(context.loaded, Some(context.resources));
    let settings = grouped(&all, |entry| entry.setting(&[]));
    let mut clear: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut unclear: Vec<&str> = Vec::new();
    let mut sentences = Vec::new();
    for (setting, entries) in &settings {
        let Some(best) = fastest(entries) else { continue };
        let (mut close, mut far) = (Vec::new(), Vec::new());
        for entry in entries.iter().filter(|e| e.system != best.system) {
            let Some(compared) = entry.over(best) else { continue };
            let text = format!("{} is {}", entry.system, words(&compared));
            if compared.verdict == Verdict::Slower { far.push((compared.ratio, text)) } else { close.push(text) }
        }
        far.sort_by(|a, b| a.0.total_cmp(&b.0));
        match (close.is_empty(), far.is_empty()) {
            (true, false) => clear.entry(best.system).or_default().push(setting),
            _ => unclear.push(setting),
        }
        let others: Vec<String> = close.into_iter().chain(far.into_iter().map(|(_, text)| text)).collect();
        sentences.push(format!(
            "{setting}: {} has the most tokens/s/card, {}; {}.",
            best.system,
            short(1.0 / best.per_token()),
            others.join("; ")
        ));
    }
    if settings.len() > 1 {
        let won: Vec<String> =
            clear.iter().map(|(system, won)| format!("{system} in {} ({})", won.len(), won.join("; "))).collect();
        let head = if won.is_empty() { "no system anywhere".to_owned() } else { list(&won) };
        let tail = if unclear.is_empty() {
            String::new()
        } else {
            format!("; unclear in {} ({})", unclear.len(), unclear.join("; "))
        };
        sentences.insert(0, format!("Clearly most tokens/s/card, of {} settings: {head}{tail}.", settings.len()));
    }
    sentences
}
