//! What an experiment asks for and no run can give, refused before anything is written.

use std::collections::BTreeSet;

use skewbench_plan::Layout;
use skewbench_sim::step_model::{ShardGroups, Sharding};
use toml::de::{DeTable, DeValue};

use crate::cells::CellSpec;
use crate::experiment::{Axis, Expanded, Kind, Metric};
use crate::failure::{Failure, nearest};
use crate::present::is_reserved;

/// Most steps of a cell.
const MOST_STEPS: u32 = 1_000_000;
/// Most packed sequences of a cell over all steps: each leaves a row that is held in memory.
const MOST_SEQUENCES: u64 = 1 << 28;

/// Refuses experiments that would run and then give nothing, or not end.
///
/// # Errors
/// The first such key, with file, line and remedy.
pub(super) fn validate(expanded: &Expanded, changes: &[String]) -> Result<(), Failure> {
    let e = &expanded.found.experiment;
    let place = Place { expanded, changed: !changes.is_empty() };
    if !names_a_file(&e.figure) {
        let why = "name it with lower-case letters, digits, '-', '_' and '.', starting with a letter or digit, at most 80 characters";
        return Err(place.error(&["figure"], format!("{:?} cannot name a file; {why}", e.figure)));
    }
    if is_reserved(&e.figure) {
        let what = format!(
            "{:?} is a name of the report's own; choose another, such as \"my-{}\"",
            e.figure,
            e.figure.trim_end_matches("-table")
        );
        return Err(place.error(&["figure"], what));
    }
    if e.gbs == 0 {
        return Err(place.error(&["gbs"], "0 sequences a step; give at least 1"));
    }
    if e.quick_gbs == Some(0) {
        return Err(place.error(&["quick_gbs"], "0 sequences a step; give at least 1"));
    }
    if e.memory_limit_bytes == Some(0) {
        return Err(
            place.error(&["memory_limit_bytes"], "0 bytes hold no plan; give a size, or leave it out for no limit")
        );
    }
    steps(expanded, &place)?;
    for (key, list) in [("dp", &e.sweep.dp), ("cp", &e.sweep.cp), ("pool", &e.sweep.pool)] {
        if let Some(twice) = repeated(list) {
            return Err(place.error(&["sweep", key], format!("{twice} is listed twice; list it once")));
        }
    }
    if let Some(twice) = repeated(&e.groupings) {
        return Err(place.error(&["groupings"], format!("{twice} is listed twice; list it once")));
    }
    if let Some(twice) = repeated(&e.plot.metrics) {
        return Err(place.error(&["plot", "metrics"], format!("{} is listed twice; list it once", twice.name())));
    }
    let scaling = e.step_model.fitted.scaling;
    if !(scaling.is_finite() && scaling > 0.0 && scaling <= f64::from(e.step_model.fitted.dp)) {
        let what = format!(
            "{scaling} is no throughput of dp = {} over that of dp = 1; give one above 0 and at most dp",
            e.step_model.fitted.dp
        );
        return Err(place.error(&["step_model", "fitted", "scaling"], what));
    }
    step_model(expanded, &place)?;
    plot(expanded, &place)
}

/// Groups of ranks that some layout does not have.
fn step_model(expanded: &Expanded, place: &Place<'_>) -> Result<(), Failure> {
    let model = &expanded.found.experiment.step_model;
    let mut groups = vec![("expert_parallel", model.expert_parallel)];
    if let Sharding::Hybrid(ShardGroups { parameters, gradients, optimizer }) = model.sharding {
        groups.extend([parameters, gradients, optimizer].map(|size| ("sharding", size)));
    }
    let experts = expanded.model.experts;
    if model.expert_parallel > 1 && (experts == 0 || !experts.is_multiple_of(model.expert_parallel)) {
        let what =
            format!("{} ranks cannot share the {experts} experts of a layer; give a divisor", model.expert_parallel);
        return Err(place.error(&["step_model", "expert_parallel"], what));
    }
    let layouts = expanded.cells.iter().filter_map(|cell| match cell {
        CellSpec::Waves(cell) => Some(cell.layout),
        _ => None,
    });
    for Layout { dp, cp, .. } in layouts {
        let ranks = dp.saturating_mul(cp.max(1));
        for (key, size) in &groups {
            // Where a sweep has fewer ranks, groups for sharding are cut to them; experts cannot be.
            let fits = *size >= 1 && (ranks.is_multiple_of(*size) || *key == "sharding" && *size > ranks);
            if !fits {
                let what = format!("groups of {size} ranks; DP = {dp} x CP = {cp} has {ranks}: give a divisor");
                return Err(place.error(&["step_model", key], what));
            }
        }
    }
    Ok(())
}

/// What a study cannot draw because of two of its experiments.
///
/// # Errors
/// When two experiments have the same figure id.
pub(super) fn validate_together(all: &[Expanded]) -> Result<(), Failure> {
    let figures: Vec<&str> = all.iter().map(|e| e.found.experiment.figure.as_str()).collect();
    match repeated(&figures) {
        Some(twice) => Err(Failure::config(format!(
            "two experiments draw figure {twice}; change the key `figure` of one, or run them into two folders"
        ))),
        None => Ok(()),
    }
}

fn steps(expanded: &Expanded, place: &Place<'_>) -> Result<(), Failure> {
    let e = &expanded.found.experiment;
    for (system, steps) in &e.steps_of {
        if *steps == 0 {
            return Err(place.error(&["steps_of", system], "0 steps; give at least 1"));
        }
        if let Err(error) = expanded.catalogue.describe(system) {
            return Err(place.error(&["steps_of", system], error));
        }
    }
    for cell in &expanded.cells {
        let (steps, gbs) = match cell {
            CellSpec::Balance(cell) => (cell.steps, cell.gbs),
            CellSpec::Waves(cell) => (cell.steps, cell.gbs),
            CellSpec::Spread(cell) => (cell.steps, cell.cards),
            CellSpec::Kernels(_) => continue,
        };
        if steps > MOST_STEPS {
            return Err(place.error(&["steps"], format!("{steps} steps; at most {MOST_STEPS} are kept in memory")));
        }
        if u64::from(steps) * u64::from(gbs) > MOST_SEQUENCES {
            let what =
                format!("{gbs} sequences in each of {steps} steps; at most {MOST_SEQUENCES} in all are kept in memory");
            return Err(place.error(&["gbs"], what));
        }
    }
    Ok(())
}

fn plot(expanded: &Expanded, place: &Place<'_>) -> Result<(), Failure> {
    let e = &expanded.found.experiment;
    let (kind, example, mut axes) = match e.kind {
        Kind::Balance => ("balance", "r_minus_1", vec![Axis::Pool, Axis::System]),
        Kind::Kernels => ("kernels", "kernel_rate", vec![Axis::Block]),
        Kind::Spread => ("spread", "runtime_spread", vec![Axis::Step]),
        Kind::Waves => ("waves", "straggler_mean", vec![Axis::Dp, Axis::Cp, Axis::Pool, Axis::System]),
    };
    let swept = expanded.points.iter().flat_map(|(at, _)| at.keys());
    axes.extend(swept.map(|name| Axis::from(name.clone())).collect::<BTreeSet<_>>());
    let fits = |metric: &Metric| match metric {
        Metric::RMinus1 => e.kind == Kind::Balance,
        Metric::KernelRate => e.kind == Kind::Kernels,
        Metric::RuntimeSpread => e.kind == Kind::Spread,
        Metric::WaveR => matches!(e.kind, Kind::Balance | Kind::Waves),
        _ => e.kind == Kind::Waves,
    };
    if e.plot.metrics.is_empty() {
        return Err(place.error(&["plot", "metrics"], format!("no metric; name at least one, such as {example}")));
    }
    if let Some(other) = e.plot.metrics.iter().find(|m| !fits(m)) {
        let what = format!("kind {kind} has no {}; choose another metric, such as {example}", other.name());
        return Err(place.error(&["plot", "metrics"], what));
    }
    if e.plot.metrics.contains(&Metric::NetworkBand) && !e.bandwidth_band {
        let what = "network_band needs times at other bandwidths; set `bandwidth_band = true`";
        return Err(place.error(&["plot", "metrics"], what));
    }
    for (key, axis) in std::iter::once(("x", &e.plot.x)).chain(e.plot.y.as_ref().map(|y| ("y", y))) {
        if !axes.contains(axis) {
            let known: Vec<&str> = axes.iter().map(Axis::name).collect();
            let hint = nearest(axis.name(), known.iter().copied());
            let what = format!(
                "nothing is swept by that name, and kind {kind} has no such axis{hint}; choose from {}",
                known.join(", ")
            );
            return Err(place.error(&["plot", key], what));
        }
    }
    if e.plot.y.as_ref() == Some(&e.plot.x) {
        return Err(place.error(&["plot", "y"], "the axis of x; choose another, or leave it out"));
    }
    if e.kind == Kind::Waves
        && let Err(error) = expanded.catalogue.describe(&e.plot.baseline)
    {
        return Err(place.error(&["plot", "baseline"], error));
    }
    let linear = e.plot.metrics.iter().find(|m| matches!(m, Metric::Scaling | Metric::ForwardSpread));
    if let Some(metric) = linear.filter(|_| e.step_model.linear.is_empty()) {
        let what = format!("no mode, and {} needs one; choose from physical, fitted", metric.name());
        return Err(place.error(&["step_model", "linear"], what));
    }
    Ok(())
}

fn names_a_file(figure: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    figure.starts_with(plain) && figure.len() <= 80 && figure.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'))
}

fn repeated<T: Ord>(list: &[T]) -> Option<&T> {
    let mut seen = BTreeSet::new();
    list.iter().find(|item| !seen.insert(*item))
}

/// Where the keys of an experiment stand.
struct Place<'a> {
    expanded: &'a Expanded,
    /// True when the text is not that of a file, so that its lines mean nothing to a reader.
    changed: bool,
}

impl Place<'_> {
    fn error(&self, key: &[&str], what: impl std::fmt::Display) -> Failure {
        let found = &self.expanded.found;
        let file = if self.changed { format!("{}.toml with --set", found.id) } else { format!("{}.toml", found.id) };
        let line = (!self.changed).then(|| line_of(&found.text, key)).flatten();
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        Failure::config(format!("{file}{line}: key `{}`: {what}", key.join(".")))
    }
}

/// Line of a key, or of the innermost table on the way to it that the text holds.
fn line_of(text: &str, keys: &[&str]) -> Option<usize> {
    let parsed = DeTable::parse(text).ok()?;
    let mut table = parsed.get_ref();
    let mut offset = None;
    for key in keys {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == *key) else { break };
        offset = Some(name.span().start);
        let DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    offset.map(|offset| text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn lines_of_nested_keys() {
        let text = "a = 1\n[step_model]\nwait = 2\n[step_model.fitted]\n# scaling\nscaling = 7\n";
        assert_eq!(line_of(text, &["step_model", "fitted", "scaling"]), Some(6));
        assert_eq!(line_of(text, &["step_model", "wait"]), Some(3));
        assert_eq!(line_of(text, &["step_model", "fitted", "absent"]), Some(4));
        assert_eq!(line_of(text, &["absent"]), None);
    }
}
