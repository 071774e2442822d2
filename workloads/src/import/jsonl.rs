use std::fmt;
use std::io::BufRead;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::delimited::{read_line, unmarked};
use super::error::ImportError;
use super::intake::Intake;
use super::length;
use super::options::{Lists, ReadOptions};

/// Reads one JSON object a line and takes the wanted field.
pub(crate) fn read(
    reader: impl BufRead,
    file: &Path,
    options: &ReadOptions,
    intake: &mut Intake<'_>,
) -> Result<(), ImportError> {
    let mut reader = unmarked(reader, file)?;
    let fields = options.fields();
    let mut line = Vec::new();
    let mut number = 0;
    while read_line(&mut reader, &mut line, file, number + 1)? {
        number += 1;
        intake.bytes(line.len() as u64);
        let content = line.trim_ascii();
        if content.is_empty() {
            continue;
        }
        let error = |what: String| ImportError::line(file, number, what);
        let mut json = serde_json::Deserializer::from_slice(content);
        let value = FieldOf { fields: &fields, lists: options.lists }
            .deserialize(&mut json)
            .and_then(|value| json.end().map(|()| value))
            .map_err(|e| error(describe(&e)))?;
        match value {
            Value::Missing(keys) => return Err(error(missing("field", &fields, &keys))),
            Value::Lengths(lengths) if lengths.is_empty() => intake.skipped_empty += 1,
            Value::Length(_) | Value::Lengths(_) if intake.counter().is_some() => {
                return Err(error("the field holds a number, not a text; leave the tokenizer out".into()));
            }
            Value::Length(length) => intake.length(length)?,
            Value::Lengths(lengths) => lengths.into_iter().try_for_each(|l| intake.length(l))?,
            Value::Text(text) if intake.counter().is_some() => intake.text(text)?,
            Value::Text(_) => {
                return Err(error("the field holds a text; give a tokenizer.json, or name a field of lengths".into()));
            }
            Value::Null if intake.counter().is_some() => intake.skipped_empty += 1,
            Value::Null => return Err(error("the length is null; fill or leave out the line".into())),
            Value::Bad(what) => return Err(error(what)),
        }
    }
    Ok(())
}

/// What serde_json says, with the column but without its own line number, which is always 1 here.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let remedy = if error.is_eof() { "; is the file truncated?" } else { "" };
    format!("not a JSON object: {what}, column {}{remedy}", error.column())
}

/// Says which field or column is missing and which one is there that may have been meant.
pub(crate) fn missing(what: &str, wanted: &[&str], there: &[String]) -> String {
    let near = |key: &&String| wanted.iter().any(|w| strsim::jaro_winkler(w, key) > 0.8);
    let hint = match there.iter().find(near) {
        Some(key) => format!("did you mean {key:?}?"),
        None => format!("name one of {}", there.join(", ")),
    };
    match wanted {
        [only] => format!("there is no {what} {only:?}; {hint}"),
        _ => format!("there is no {what} {}; {hint}", wanted.join(" or ")),
    }
}

enum Value {
    Missing(Vec<String>),
    Null,
    Length(u64),
    Lengths(Vec<u64>),
    Text(String),
    /// Well-formed JSON that is no length; kept apart from syntax errors, which have columns.
    Bad(String),
}

/// Takes the best of the wanted fields out of an object and skips everything else unparsed.
struct FieldOf<'a> {
    fields: &'a [&'a str],
    lists: Lists,
}

impl<'de> DeserializeSeed<'de> for FieldOf<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldOf<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut best: Option<(usize, Value)> = None;
        let mut others = Vec::new();
        while let Some(found) = map.next_key_seed(KeyOf(self.fields))? {
            match found {
                Ok(rank) if best.as_ref().is_some_and(|(b, _)| rank == *b) => {
                    map.next_value::<IgnoredAny>()?;
                    best = Some((rank, Value::Bad(format!("the field {:?} is there twice", self.fields[rank]))));
                }
                Ok(rank) if best.as_ref().is_none_or(|(b, _)| rank < *b) => {
                    best = Some((rank, map.next_value_seed(ValueOf(self.lists))?));
                }
                Ok(_) => {
                    map.next_value::<IgnoredAny>()?;
                }
                Err(key) => {
                    if let Some(key) = key.filter(|_| best.is_none() && others.len() < 20) {
                        others.push(key);
                    }
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(best.map_or(Value::Missing(others), |(_, value)| value))
    }
}

/// Rank of a key among the wanted ones, or the key itself where it is short enough to be shown.
struct KeyOf<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for KeyOf<'_> {
    type Value = Result<usize, Option<String>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyOf<'_> {
    type Value = Result<usize, Option<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        let shown = || (key.len() <= 60).then(|| key.to_owned());
        Ok(self.0.iter().position(|wanted| *wanted == key).ok_or_else(shown))
    }
}

struct ValueOf(Lists);

impl<'de> DeserializeSeed<'de> for ValueOf {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn length_or_bad(length: Result<u64, String>) -> Value {
    length.map_or_else(Value::Bad, Value::Length)
}

impl<'de> Visitor<'de> for ValueOf {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length, a list of lengths or a text")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(length_or_bad(length::from_u64(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(length_or_bad(length::from_i128(i128::from(value))))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(length_or_bad(length::from_f64(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bad(format!("the field holds {value}; lengths are whole numbers of tokens")))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Bad("the field holds an object; name a field of lengths or texts".into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        if self.0 == Lists::Tokens {
            let mut count = 0;
            while list.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            return Ok(if count == 0 { Value::Lengths(Vec::new()) } else { length_or_bad(length::from_u64(count)) });
        }
        let mut lengths = Vec::new();
        let mut bad = None;
        // Deeper lists are skipped as a whole: no recursion into what is refused anyway.
        while let Some(item) = list.next_element_seed(ItemOf)? {
            match item {
                Ok(length) => lengths.push(length),
                Err(what) => bad = bad.or(Some(format!("item {} of the list: {what}", lengths.len() + 1))),
            }
        }
        Ok(bad.map_or(Value::Lengths(lengths), Value::Bad))
    }
}

/// An item of a list of lengths.
struct ItemOf;

impl<'de> DeserializeSeed<'de> for ItemOf {
    type Value = Result<u64, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemOf {
    type Value = Result<u64, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(length::from_u64(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(length::from_i128(i128::from(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(length::from_f64(value))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Err("a text; lengths are whole numbers of tokens".into()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Err(format!("{value}; lengths are whole numbers of tokens")))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Err("null; lengths are whole numbers of tokens".into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Err("a list; lengths are whole numbers of tokens".into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Err("an object; lengths are whole numbers of tokens".into()))
    }
}
