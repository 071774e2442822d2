use serde_json::Value as Json;
use skewbench_store::stats::{Bootstrap, CompareOptions, Comparison, Verdict, compare};

use super::Loaded;
use super::waves::draws;
use crate::cells::CellSpec;
use crate::experiment::{At, SearchRecord, TunedFile};
use crate::tuner::by_step;

/// What tuning changed at one place, on the steps that the run reports.
#[derive(Clone, Debug)]
pub struct TuningResult<'a> {
    /// Workload.
    pub dataset: String,
    /// Where.
    pub at: &'a At,
    /// What was chosen, and how.
    pub tuned: &'a TunedFile,
    /// Options that changed, each with its value before and after.
    pub changed: Vec<(String, Json, Json)>,
    /// Mean objective before and after, in picoseconds (a token), and their paired comparison, or why there is none.
    pub compared: Result<([f64; 2], Comparison), String>,
}

impl TuningResult<'_> {
    /// Verdict in a word.
    pub fn verdict(&self) -> &'static str {
        match &self.compared {
            Err(_) => "failed",
            Ok(_) if self.changed.is_empty() => "kept",
            Ok((_, comparison)) => match comparison.verdict {
                Verdict::Faster => "better",
                Verdict::Slower => "worse",
                Verdict::Same => "same",
                Verdict::Unclear => "unclear",
            },
        }
    }

    /// The change in words.
    pub fn changes(&self) -> String {
        let word = |v: &Json| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        let list: Vec<String> =
            self.changed.iter().map(|(n, a, b)| format!("{n} {} -> {}", word(a), word(b))).collect();
        if list.is_empty() { "nothing".into() } else { list.join(", ") }
    }

    /// The result as a sentence of a report.
    pub fn sentence(&self) -> String {
        let how = self.tuned.search.as_ref().map(searched).unwrap_or_else(|| "given by hand".into());
        let place = format!("{} on {} (DP = {}, CP = {})", self.at.system, self.dataset, self.at.dp, self.at.cp);
        let gain = match &self.compared {
            Ok((_, c)) => format!(
                "on the reported steps {:.3} [{:.3}, {:.3}] of the options it started from, {} steps: {}",
                c.ratio,
                c.ci_low,
                c.ci_high,
                c.n,
                self.verdict()
            ),
            Err(why) => format!("no comparison: {why}"),
        };
        format!("Tuned options of {place}: changed {}; {how}; {gain}.", self.changes())
    }
}

fn searched(search: &SearchRecord) -> String {
    format!(
        "objective {}, {} of at most {} configurations tried ({} could not run), {} steps each with seed {}, at DP = {}, CP = {}",
        search.objective.name(),
        search.tried,
        search.budget,
        search.failed,
        search.steps,
        search.seed,
        search.dp,
        search.cp
    )
}

/// Results of tuning at every place of a run that has some.
pub fn tuning_results(loaded: &Loaded) -> Vec<TuningResult<'_>> {
    let places = loaded.expanded.untuned.iter();
    places.filter_map(|(at, slot)| result(loaded, at, loaded.expanded.cells.get(*slot)?)).collect()
}

fn result<'a>(loaded: &'a Loaded, at: &'a At, before: &'a CellSpec) -> Option<TuningResult<'a>> {
    let tuned = loaded.expanded.tuned(at.workload, &at.system)?;
    let after = loaded.expanded.cell_at(at)?;
    let (CellSpec::Waves(old), CellSpec::Waves(new)) = (before, after) else { return None };
    let changed = old.options.values().iter().filter_map(|(name, value)| {
        let now = new.options.values().get(name)?;
        (now != value).then(|| (name.clone(), value.clone(), now.clone()))
    });
    Some(TuningResult {
        dataset: loaded.expanded.dataset(at.workload),
        at,
        tuned,
        changed: changed.collect(),
        compared: compared(loaded, tuned, before, after),
    })
}

fn compared(
    loaded: &Loaded,
    tuned: &TunedFile,
    before: &CellSpec,
    after: &CellSpec,
) -> Result<([f64; 2], Comparison), String> {
    let objective = tuned.search.as_ref().map(|s| s.objective).unwrap_or_default();
    let steps = |spec: &CellSpec| -> Result<Vec<f64>, String> { Ok(by_step(objective, loaded.cell_view(spec)?)) };
    let (old, new) = (steps(before)?, steps(after)?);
    let block = draws(loaded, [loaded.cell_view(before)?, loaded.cell_view(after)?]).block;
    let bootstrap = Bootstrap::new(loaded.expanded.seed, "tuning").with_block(block);
    let comparison = compare(&old, &new, &CompareOptions::times(bootstrap)).map_err(|e| e.to_string())?;
    let mean = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len() as f64;
    Ok(([mean(&old), mean(&new)], comparison))
}
