use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Hash of everything that a cell's result depends on: the first 24 hexadecimal digits of its blake3 hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellId(String);

impl CellId {
    /// The id of the given inputs. The order of keys does not matter.
    pub fn of(inputs: &Value) -> Self {
        let hash = blake3::hash(canonical(inputs).as_bytes()).to_hex();
        Self(hash.chars().take(24).collect())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CellId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let valid = text.len() == 24 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if valid { Ok(Self(text)) } else { Err(format!("{text:?} is not a cell id of 24 hexadecimal digits")) }
    }
}

impl From<CellId> for String {
    fn from(id: CellId) -> Self {
        id.0
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One unit of work of an experiment: computed whole or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Hash of the inputs.
    #[serde(rename = "cell")]
    pub id: CellId,
    /// What tells the cell apart in reports, e.g. `{"system": "ulysses", "dp": 16}`.
    pub coordinates: Map<String, Value>,
}

impl Cell {
    /// A cell whose result depends on `inputs` only.
    pub fn new(inputs: &Value, coordinates: Map<String, Value>) -> Self {
        Self { id: CellId::of(inputs), coordinates }
    }
}

/// JSON text that does not depend on the order of keys.
pub(super) fn canonical(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| key.as_str());
                Value::Object(entries.into_iter().map(|(key, v)| (key.clone(), sorted(v))).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    sorted(value).to_string()
}
