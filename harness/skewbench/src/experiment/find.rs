use std::path::Path;

use serde::de::DeserializeOwned;
use skewbench_store::parse_strict;

use super::Experiment;
use crate::failure::{Failure, nearest};

include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// An experiment with the text that it was read from.
#[derive(Clone, Debug)]
pub struct Found {
    /// Path below `experiments/` without suffix, or the file's stem.
    pub id: String,
    /// The file's text with the command line's changes applied.
    pub text: String,
    /// The parsed file.
    pub experiment: Experiment,
}

/// Ids of the shipped experiments, sorted.
pub fn experiments() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(id, _)| *id)
}

/// Finds an experiment by id, by figure, or by path, and applies `key=value` changes.
///
/// # Errors
/// No experiment has the name (the nearest is offered), the file cannot be read, or it is not a valid experiment.
pub fn find(name: &str, changes: &[String]) -> Result<Found, Failure> {
    let looks_like_file = name.ends_with(".toml") || (name.contains(['/', '\\']) && Path::new(name).exists());
    if looks_like_file {
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|e| Failure::config(format!("{name}: {e}")))?;
        let id = path.file_stem().map_or_else(|| name.to_owned(), |s| s.to_string_lossy().into_owned());
        return read(id, text, name, changes);
    }
    let ends = |id: &str| id.rsplit('/').next() == Some(name);
    let hit = EMBEDDED.iter().find(|(id, _)| *id == name).or_else(|| EMBEDDED.iter().find(|(id, _)| ends(id)));
    let Some((id, text)) = hit else {
        let known: Vec<&str> = experiments().flat_map(|id| [id, id.rsplit('/').next().unwrap_or(id)]).collect();
        let hint = nearest(name, known.iter().copied());
        let list = experiments().collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!(
            "unknown experiment {name}{hint}; known: {list}, or a path to a TOML file"
        )));
    };
    read((*id).to_owned(), (*text).to_owned(), &format!("experiments/{id}.toml"), changes)
}

/// An experiment that a command made, with `key=value` changes.
///
/// # Errors
/// A change that cannot be applied, or that makes it no valid experiment.
pub fn made(id: &str, table: &toml::Table, changes: &[String]) -> Result<Found, Failure> {
    let text = toml::to_string(table).map_err(Failure::internal)?;
    read(id.to_owned(), text, id, changes)
}

/// Parses the text of an experiment that a run recorded.
///
/// # Errors
/// When it is not a valid experiment.
pub fn recorded(id: &str, text: &str) -> Result<Found, Failure> {
    read(id.to_owned(), text.to_owned(), &format!("experiment {id}"), &[])
}

fn read(id: String, text: String, file: &str, changes: &[String]) -> Result<Found, Failure> {
    let experiment = parse_strict::<Experiment>(&text, file).map_err(Failure::config)?;
    if changes.is_empty() {
        return Ok(Found { id, text, experiment });
    }
    let text = change(&text, changes)?;
    let experiment = parse_strict(&text, &format!("{file} with --set")).map_err(Failure::config)?;
    Ok(Found { id, text, experiment })
}

/// Applies `a.b=value` to a TOML text; the value is TOML, or a plain word.
fn change(text: &str, changes: &[String]) -> Result<String, Failure> {
    let mut table: toml::Table = parse(text)?;
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {change}: expected key=value, for example --set steps=50")))?;
        let value = parse::<toml::Table>(&format!("v = {value}"))
            .ok()
            .and_then(|mut t| t.remove("v"))
            .unwrap_or_else(|| toml::Value::String(value.to_owned()));
        let keys: Vec<&str> = key.trim().split('.').collect();
        set(&mut table, &keys, value).map_err(|e| Failure::usage(format!("--set {change}: {e}")))?;
    }
    toml::to_string(&table).map_err(Failure::internal)
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    toml::from_str(text).map_err(|e| Failure::config(e.message()))
}

/// Sets a key. Where the way to it leads through a list, a number names the entry, and any other key stands in every entry.
pub(super) fn set(table: &mut toml::Table, keys: &[&str], value: toml::Value) -> Result<(), String> {
    match keys {
        [] | [""] => Err("the key is empty".into()),
        [last] => {
            table.insert((*last).to_owned(), value);
            Ok(())
        }
        [first, rest @ ..] => {
            let inner = table.entry((*first).to_owned()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            match inner {
                toml::Value::Table(inner) => set(inner, rest, value),
                toml::Value::Array(list) => {
                    let Ok(index) = rest[0].parse::<usize>() else {
                        let mut tables = list.iter_mut().map(|entry| {
                            entry.as_table_mut().ok_or_else(|| format!("{first} is a list of values; give a position"))
                        });
                        return tables.try_for_each(|entry| set(entry?, rest, value.clone()));
                    };
                    let slot = list.get_mut(index).ok_or_else(|| format!("{first} has no entry {index}"))?;
                    match (&rest[1..], slot) {
                        ([], slot) => {
                            *slot = value;
                            Ok(())
                        }
                        (rest, toml::Value::Table(inner)) => set(inner, rest, value),
                        _ => Err(format!("{first}.{index} is not a table")),
                    }
                }
                _ => Err(format!("{first} is not a table")),
            }
        }
    }
}
