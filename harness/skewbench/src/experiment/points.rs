use std::collections::BTreeSet;

use serde_json::{Map, Value};
use skewbench_external::Catalogue;
use skewbench_store::parse_strict;

use super::find::set;
use super::{Experiment, Found};
use crate::failure::Failure;

/// Combinations that one experiment may sweep.
const MOST_POINTS: usize = 4096;
/// Between `options` and an option's name: every system of the experiment that has it.
const EVERY: &str = "*";

/// One combination of what an experiment sweeps beside DP, CP and P.
#[derive(Clone, Debug)]
pub struct Point {
    /// What tells its values from those of other points, by short name.
    pub coordinates: Map<String, Value>,
    /// The experiment with its values set and nothing swept but DP, CP and P.
    pub found: Found,
}

impl Point {
    /// The coordinates in words.
    pub fn describe(&self) -> String {
        describe(&self.coordinates)
    }
}

/// Coordinates in words: `tau = 0.1, block = 4096`.
pub fn describe<'a>(coordinates: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    coordinates.into_iter().map(|(k, v)| format!("{k} = {}", text(v))).collect::<Vec<_>>().join(", ")
}

type Setting = (String, toml::Value);

/// The points of an experiment in order, the last key fastest; none where it sweeps nothing beside DP, CP and P. At smoke
/// scale a list keeps its ends.
///
/// # Errors
/// A key that the experiment does not have, a value that it cannot have, coordinates that do not tell points apart.
pub fn points(found: &Found, quick: bool, systems: &[String], catalogue: &Catalogue) -> Result<Vec<Point>, Failure> {
    let e = &found.experiment;
    if e.sweep.set.is_empty() && e.variants.is_empty() {
        return Ok(Vec::new());
    }
    let fail = |key: &str, what: String| Failure::config(format!("{}.toml: {key}: {what}", found.id));
    let mut axes: Vec<Vec<(Option<String>, Vec<Setting>)>> = Vec::new();
    if !e.variants.is_empty() {
        let variants = e
            .variants
            .iter()
            .map(|v| (v.name.clone(), v.set.iter().map(|(k, value)| (k.clone(), value.clone())).collect()));
        axes.push(variants.collect());
    }
    for (key, values) in &e.sweep.set {
        if values.is_empty() {
            return Err(fail("sweep.set", format!("{key} has no values; list some or leave it out")));
        }
        axes.push(values.iter().map(|value| (None, vec![(key.clone(), value.clone())])).collect());
    }
    if quick {
        axes.iter_mut().filter(|axis| axis.len() > 2).for_each(|axis| {
            axis.drain(1..axis.len() - 1);
        });
    }
    let combinations = axes.iter().map(Vec::len).fold(1, usize::saturating_mul);
    if combinations > MOST_POINTS {
        return Err(fail("sweep.set", format!("{combinations} combinations; at most {MOST_POINTS} are run at once")));
    }
    let mut base: toml::Table = toml::from_str(&found.text).map_err(Failure::internal)?;
    base.remove("variant");
    base.get_mut("sweep").and_then(toml::Value::as_table_mut).map(|sweep| sweep.remove("set"));
    let mut seen = BTreeSet::new();
    let mut points = Vec::with_capacity(combinations);
    for number in 0..combinations {
        let mut rest = number;
        let mut coordinates = Map::new();
        let mut settings: Vec<Setting> = Vec::new();
        for axis in axes.iter().rev() {
            let (name, set) = &axis[rest % axis.len()];
            rest /= axis.len();
            if let Some(name) = name {
                coordinates.insert("variant".into(), name.clone().into());
            }
            settings.splice(0..0, set.iter().cloned());
        }
        for (key, value) in &settings {
            if let Some(value) = coordinate(value) {
                coordinates.insert(short_name(key), value);
            }
        }
        if !seen.insert(Value::Object(coordinates.clone()).to_string()) {
            let what = format!("two points have the same coordinates ({}); name the variants", describe(&coordinates));
            return Err(fail("variant", what));
        }
        let mut table = base.clone();
        // Options of every system that has them come last, so that they know which systems there are.
        let (every, plain): (Vec<&Setting>, Vec<&Setting>) =
            settings.iter().partition(|(key, _)| option_of_all(key).is_some());
        for (key, value) in plain {
            set(&mut table, &key.split('.').collect::<Vec<_>>(), value.clone()).map_err(|what| fail(key, what))?;
        }
        for (key, value) in every {
            let option = option_of_all(key).unwrap_or_default();
            let having: Vec<&String> = systems.iter().filter(|s| has(catalogue, s, option)).collect();
            if having.is_empty() {
                return Err(fail(key, format!("no system of the experiment has an option {option}")));
            }
            for system in having {
                set(&mut table, &["options", system, option], value.clone()).map_err(|what| fail(key, what))?;
            }
        }
        let text = toml::to_string(&table).map_err(Failure::internal)?;
        let place = format!("{}.toml at {}", found.id, describe(&coordinates));
        let experiment = parse_strict::<Experiment>(&text, &place).map_err(|mut error| {
            // Lines of the text that was made here mean nothing to a reader.
            error.line = None;
            Failure::config(error)
        })?;
        points.push(Point { coordinates, found: Found { experiment, ..found.clone() } });
    }
    Ok(points)
}

/// Name of a key among coordinates: its last part, as columns of tables are called.
pub fn short_name(key: &str) -> String {
    key.rsplit('.').next().unwrap_or(key).replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn option_of_all(key: &str) -> Option<&str> {
    key.strip_prefix("options.")?.strip_prefix(EVERY)?.strip_prefix('.')
}

fn has(catalogue: &Catalogue, system: &str, option: &str) -> bool {
    let described = catalogue.describe(system).map(|d| d.options).unwrap_or_default();
    described.iter().any(|o| o.name == option || o.alias == Some(option))
}

/// A value that tells rows apart; lists and tables do not.
fn coordinate(value: &toml::Value) -> Option<Value> {
    match value {
        toml::Value::Array(_) | toml::Value::Table(_) => None,
        toml::Value::Datetime(date) => Some(date.to_string().into()),
        plain => serde_json::to_value(plain).ok(),
    }
}
