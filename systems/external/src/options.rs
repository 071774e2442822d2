//! Options that programs declare, in the form that built-in systems have.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use skewbench_systems::{Accepts, DefaultValue, OptionSpec};

use crate::protocol::{Declared, Kind};

const MOST_OPTIONS: usize = 64;
const MOST_WORDS: usize = 64;
const LONGEST: usize = 400;

/// Checks declared options and turns them into specifications.
pub(crate) fn specs(declared: &[Declared]) -> Result<Vec<OptionSpec>, String> {
    if declared.len() > MOST_OPTIONS {
        return Err(format!("{} options; at most {MOST_OPTIONS} are supported", declared.len()));
    }
    let mut seen = BTreeSet::from(["pool"]);
    declared
        .iter()
        .map(|option| {
            let name = &option.name;
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let valid = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain);
            if !valid || name.len() > LONGEST {
                return Err(format!("option {name:?}: use a name of a-z, 0-9 and _ that starts with a letter"));
            }
            if !seen.insert(name) {
                return Err(format!("option {name} is declared twice, or is one that every system has"));
            }
            spec(option).map_err(|what| format!("option {name}: {what}"))
        })
        .collect()
}

fn spec(option: &Declared) -> Result<OptionSpec, String> {
    let long = |text: &String| text.len() > LONGEST || text.contains(char::is_control);
    if long(&option.summary) || option.words.iter().any(long) {
        return Err(format!("texts have at most {LONGEST} bytes on one line"));
    }
    let outside = || format!("the default {} is not accepted", option.default);
    let bounds = |what: &str| format!("an option of this kind needs {what}");
    let (default, accepts) = match option.kind {
        Kind::Flag => (DefaultValue::Flag(option.default.as_bool().ok_or_else(outside)?), Accepts::Flag),
        Kind::Integer => {
            let bound = |value: &Option<Value>| value.as_ref().and_then(Value::as_u64);
            let (Some(min), Some(max)) = (bound(&option.min), bound(&option.max)) else {
                return Err(bounds("min and max, whole numbers of at least 0"));
            };
            let default = option.default.as_u64().filter(|v| (min..=max).contains(v)).ok_or_else(outside)?;
            (DefaultValue::Integer(default), Accepts::Integer { min, max })
        }
        Kind::Number => {
            let bound = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
            let (Some(min), Some(max)) = (bound(&option.min), bound(&option.max)) else {
                return Err(bounds("min and max, numbers"));
            };
            let default = option.default.as_f64().filter(|v| (min..=max).contains(v)).ok_or_else(outside)?;
            (DefaultValue::Number(default), Accepts::Number { min, max })
        }
        Kind::Choice => {
            if option.words.is_empty() || option.words.len() > MOST_WORDS {
                return Err(bounds(&format!("1 to {MOST_WORDS} words")));
            }
            let words: Vec<&'static str> = option.words.iter().map(|w| keep(w)).collect();
            let default = option.default.as_str().and_then(|d| words.iter().find(|w| **w == d)).ok_or_else(outside)?;
            (DefaultValue::Text(default), Accepts::Choice(keep_list(words)))
        }
    };
    Ok(OptionSpec { name: keep(&option.name), alias: None, default, accepts, summary: keep(&option.summary) })
}

/// The text for the rest of the process, once whatever the number of times it is asked for: specifications of built-in
/// systems are constants, and those of programs have the same type.
fn keep(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text) {
        return known;
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    kept.insert(text);
    text
}

/// As [`keep`], for a list of kept words.
fn keep_list(words: Vec<&'static str>) -> &'static [&'static str] {
    static KEPT: Mutex<BTreeSet<&'static [&'static str]>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(words.as_slice()) {
        return known;
    }
    let words: &'static [&'static str] = Box::leak(words.into_boxed_slice());
    kept.insert(words);
    words
}
