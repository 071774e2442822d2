use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use skewbench_plan::SystemError;

/// An option of a placement or planner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OptionSpec {
    /// Name.
    pub name: &'static str,
    /// The symbol that papers use for it, accepted in place of the name.
    pub alias: Option<&'static str>,
    /// Value when it is not given.
    pub default: DefaultValue,
    /// Accepted values.
    pub accepts: Accepts,
    /// What it does, with its unit.
    pub summary: &'static str,
}

/// Value of an option that is not given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DefaultValue {
    /// True or false.
    Flag(bool),
    /// A whole number.
    Integer(u64),
    /// A number.
    Number(f64),
    /// A word.
    Text(&'static str),
}

/// Values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepts {
    /// True or false.
    Flag,
    /// A whole number in `[min, max]`.
    Integer {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A whole number in `[min, max]`, or "auto".
    IntegerOrAuto {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A finite number in `[min, max]`.
    Number {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl Accepts {
    pub(crate) fn takes(&self, value: &Value) -> bool {
        match *self {
            Self::Flag => value.is_boolean(),
            Self::Integer { min, max } => value.as_u64().is_some_and(|v| (min..=max).contains(&v)),
            Self::IntegerOrAuto { min, max } => value.as_str() == Some(AUTO) || Self::Integer { min, max }.takes(value),
            Self::Number { min, max } => value.as_f64().is_some_and(|v| (min..=max).contains(&v)),
            Self::Choice(words) => value.as_str().is_some_and(|v| words.contains(&v)),
        }
    }
}

const AUTO: &str = "auto";

impl std::fmt::Display for Accepts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => write!(f, "true or false"),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::IntegerOrAuto { min, max } => write!(f, "a whole number from {min} to {max}, or \"{AUTO}\""),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl DefaultValue {
    /// The value as JSON.
    pub fn json(self) -> Value {
        match self {
            Self::Flag(v) => v.into(),
            Self::Integer(v) => v.into(),
            Self::Number(v) => v.into(),
            Self::Text(v) => v.into(),
        }
    }
}

/// Validated options of a system, every one with a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Options {
    values: Map<String, Value>,
}

/// An option that no part of a system has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) option: String,
}

impl Options {
    /// Resolves `given` against the options that exist.
    ///
    /// # Errors
    /// `Err(Err(_))` names an option that does not exist, `Err(Ok(_))` a value that is not accepted.
    pub(crate) fn resolve(
        specs: &[OptionSpec],
        given: &Map<String, Value>,
    ) -> Result<Self, Result<SystemError, Unknown>> {
        let mut values: Map<String, Value> = specs.iter().map(|s| (s.name.to_owned(), s.default.json())).collect();
        let mut set: Vec<&str> = Vec::new();
        for (key, value) in given {
            let spec = specs.iter().find(|s| s.name == key || s.alias == Some(key.as_str()));
            let Some(spec) = spec else { return Err(Err(Unknown { option: key.clone() })) };
            let refuse =
                |why: String| Err(Ok(SystemError::Option { option: spec.name, value: value.to_string(), why }));
            if set.contains(&spec.name) {
                return refuse(format!(
                    "given twice, as {} and {}; remove one",
                    spec.name,
                    spec.alias.unwrap_or_default()
                ));
            }
            if !spec.accepts.takes(value) {
                return refuse(format!("use {}", spec.accepts));
            }
            set.push(spec.name);
            values.insert(spec.name.to_owned(), value.clone());
        }
        Ok(Self { values })
    }

    /// All values by name.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// One option's value as a type that accepts what the option accepts.
    pub(crate) fn get<T: DeserializeOwned>(&self, spec: &OptionSpec) -> Result<T, SystemError> {
        let value = self.value(spec);
        serde_json::from_value(value.clone()).map_err(|error| SystemError::Option {
            option: spec.name,
            value: value.to_string(),
            why: format!("{error}; use {}", spec.accepts),
        })
    }

    /// Several options' values as a struct with a field for each.
    pub(crate) fn section<T: DeserializeOwned>(&self, specs: &[OptionSpec]) -> Result<T, SystemError> {
        let section: Map<String, Value> = specs.iter().map(|s| (s.name.to_owned(), self.value(s))).collect();
        serde_json::from_value(Value::Object(section)).map_err(|error| SystemError::Impossible(error.to_string()))
    }

    /// "auto" reads as null, an absent `Option`.
    fn value(&self, spec: &OptionSpec) -> Value {
        let value = self.values.get(spec.name).cloned().unwrap_or_else(|| spec.default.json());
        let auto = matches!(spec.accepts, Accepts::IntegerOrAuto { .. }) && value.as_str() == Some(AUTO);
        if auto { Value::Null } else { value }
    }
}
