//! What experiments beyond the paper's figures say, in sentences that quote the stored values: nothing here is typed.

mod baselines;
mod grid;
mod layouts;
mod pipeline;
mod proxy;
mod recommended;
mod settings;
mod winners;

use skewbench_store::Reference;

use super::{Loaded, Value, recommend};
use crate::cells::Resources;

/// What a finding is made of.
struct Context<'a> {
    loaded: &'a Loaded,
    resources: &'a Resources,
    values: &'a [Value],
    reference: &'a Reference,
}

type Writer = fn(&Context<'_>) -> Vec<String>;

/// Who writes the findings of a figure.
const WRITERS: [(&str, Writer); 22] = [
    ("fig15", grid::write),
    ("layouts", layouts::write),
    ("proxy", proxy::write),
    ("speeds", settings::write),
    ("baselines", baselines::write),
    ("pool", settings::write),
    ("pipeline", pipeline::write),
    ("tau", settings::write),
    ("pieces", settings::write),
    ("window", winners::write),
    ("tail", winners::write),
    ("batch", winners::write),
    ("heads", winners::write),
    ("network", winners::write),
    ("node", winners::write),
    ("transport", winners::write),
    ("card", winners::write),
    ("peers", winners::write),
    ("real", winners::write),
    ("scale-out", winners::write),
    ("map", winners::write),
    (recommend::FIGURE, recommended::write),
];

/// Findings of an experiment; none for figures that have no question of their own.
pub(super) fn findings(loaded: &Loaded, resources: &Resources, values: &[Value], reference: &Reference) -> Vec<String> {
    let figure = loaded.expanded.found.experiment.figure.as_str();
    let writer = WRITERS.iter().find(|(id, _)| *id == figure).map(|(_, writer)| writer);
    let context = Context { loaded, resources, values, reference };
    let mut sentences = writer.map(|write| write(&context)).unwrap_or_default();
    if writer.is_some() && sentences.is_empty() {
        sentences.push("The run holds no values that answer the question; the table says why.".into());
    }
    sentences.into_iter().map(|sentence| format!("Finding: {sentence}")).collect()
}

/// A value with its interval.
fn quote(value: &Value) -> Option<String> {
    let e = value.estimated.as_ref().ok()?;
    let interval = e.interval.map(|(low, high)| format!(" ({} to {})", short(low), short(high))).unwrap_or_default();
    Some(format!("{}{interval}", short(e.value)))
}

/// Three digits that count.
fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (2 - value.abs().log10().floor() as i32).max(0) as usize;
    format!("{value:.digits$}")
}

/// Items by what `name` calls them, in order of appearance.
fn grouped<T: Copy>(items: impl IntoIterator<Item = T>, name: impl Fn(T) -> String) -> Vec<(String, Vec<T>)> {
    let mut groups: Vec<(String, Vec<T>)> = Vec::new();
    for item in items {
        let name = name(item);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(item),
            None => groups.push((name, vec![item])),
        }
    }
    groups
}

/// Items as `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}
