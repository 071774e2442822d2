use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use skewbench_config::{ConfigError, hint, load_strict, parse_strict};

use crate::SummaryValue;

/// Figures and other places of the paper that reference entries belong to.
pub const FIGURES: [&str; 12] =
    ["fig1", "fig3", "fig4", "fig8", "table1", "fig11", "fig12", "fig13", "fig14", "fig15", "eq3", "text"];

/// Published numbers, each with its source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The publication.
    pub paper: String,
    /// All entries, in the file's order.
    pub entry: Vec<ReferenceEntry>,
}

/// One published number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceEntry {
    /// Unique name.
    pub id: String,
    /// One of [`FIGURES`].
    pub figure: String,
    /// Workload, or `unspecified` where the source does not say.
    pub dataset: String,
    /// System, placement or pair.
    pub system: String,
    /// Metric, as in `summary.json`.
    pub metric: String,
    /// Coordinates, as in `summary.json`.
    #[serde(default)]
    pub at: BTreeMap<String, toml::Value>,
    /// The number.
    pub value: Option<f64>,
    /// Least value of a published range.
    pub low: Option<f64>,
    /// Greatest value of a published range, or a bound that is not exceeded.
    pub high: Option<f64>,
    /// A published formula, where the publication gives no number.
    pub formula: Option<String>,
    /// Unit; `1` for numbers without a dimension.
    pub unit: String,
    /// Where the publication says so.
    pub source: String,
    /// What a reader must know about it.
    pub note: Option<String>,
    /// True when the publication contradicts it elsewhere.
    #[serde(default)]
    pub inconsistent: bool,
    /// True when the dataset here was fitted to it, or chosen by it: agreeing with it is no evidence.
    #[serde(default)]
    pub fits_dataset: bool,
}

/// How a value compares with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The interval reaches into the published range or bound, or the published value is inside the interval or within the
    /// tolerance.
    Agrees,
    /// None of these.
    Differs,
    /// Nothing was published.
    Unpublished,
}

/// A comparison with a published value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub agreement: Agreement,
    /// Value over published value.
    pub ratio: Option<f64>,
}

impl Agreement {
    /// The verdict in one word, as in `summary.json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Unpublished => "unpublished",
        }
    }
}

impl Reference {
    /// Reads a reference file.
    ///
    /// # Errors
    /// File, line and what is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        load_strict::<Self>(path)?.validated(&path.display().to_string())
    }

    /// Parses the text of a reference file.
    ///
    /// # Errors
    /// File, line and what is wrong.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, ConfigError> {
        parse_strict::<Self>(text, file_name)?.validated(file_name)
    }

    /// The entries of a figure.
    pub fn of_figure<'a>(&'a self, figure: &'a str) -> impl Iterator<Item = &'a ReferenceEntry> {
        self.entry.iter().filter(move |e| e.figure == figure)
    }

    /// The entry that a summary row stands beside: same figure, dataset, system and metric, and every coordinate of the entry
    /// has the same value in `at`.
    pub fn find(
        &self,
        figure: &str,
        dataset: &str,
        system: &str,
        metric: &str,
        at: &serde_json::Map<String, serde_json::Value>,
    ) -> Option<&ReferenceEntry> {
        self.entry.iter().find(|e| {
            let named = e.figure == figure && e.dataset == dataset && e.system == system && e.metric == metric;
            named && e.at.iter().all(|(key, value)| at.get(key).is_some_and(|ours| same(value, ours)))
        })
    }

    fn validated(self, file: &str) -> Result<Self, ConfigError> {
        let mut ids = BTreeMap::new();
        for (i, entry) in self.entry.iter().enumerate() {
            let problem =
                entry.problem().or_else(|| ids.insert(&entry.id, i).map(|_| "its id occurs twice".to_owned()));
            if let Some(what) = problem {
                return Err(ConfigError {
                    file: file.to_owned(),
                    line: None,
                    what: format!("entry `{}`: {what}", entry.id),
                });
            }
        }
        Ok(self)
    }
}

impl ReferenceEntry {
    /// The number that stands for the entry in a table: its value, or the bound it stays under.
    pub fn number(&self) -> Option<f64> {
        self.value.or(if self.low.is_none() { self.high } else { None })
    }

    /// Compares a value of ours; `tolerance` is relative, e.g. 0.05.
    pub fn judge(&self, ours: &SummaryValue, tolerance: f64) -> Judgement {
        let ratio = self.number().filter(|p| *p != 0.0).map(|p| ours.value / p);
        let agrees = match self.value {
            Some(published) => {
                let inside = ours.interval.is_some_and(|(low, high)| low <= published && published <= high);
                inside || (ours.value - published).abs() <= tolerance * published.abs()
            }
            // A bound is met unless the whole interval is beyond it.
            None => {
                let (least, most) = ours.interval.unwrap_or((ours.value, ours.value));
                self.low.is_none_or(|low| most.max(ours.value) >= low)
                    && self.high.is_none_or(|high| least.min(ours.value) <= high)
            }
        };
        let agreement = match (self.value, self.low, self.high) {
            (None, None, None) => Agreement::Unpublished,
            _ if agrees => Agreement::Agrees,
            _ => Agreement::Differs,
        };
        Judgement { agreement, ratio }
    }

    fn problem(&self) -> Option<String> {
        if !FIGURES.contains(&self.figure.as_str()) {
            let near = hint(&self.figure, FIGURES);
            return Some(format!("unknown figure `{}`{near}; known are {}", self.figure, FIGURES.join(", ")));
        }
        let given = [self.value.is_some(), self.low.is_some() || self.high.is_some(), self.formula.is_some()];
        if given.iter().filter(|g| **g).count() != 1 {
            return Some("give one of value, a range (low, high or both) and formula".to_owned());
        }
        if [self.value, self.low, self.high].iter().flatten().any(|x| !x.is_finite()) {
            return Some("value, low and high must be finite".to_owned());
        }
        if self.low.zip(self.high).is_some_and(|(low, high)| low > high) {
            return Some("low is above high".to_owned());
        }
        let empty = [&self.id, &self.dataset, &self.system, &self.metric, &self.unit, &self.source];
        empty
            .iter()
            .any(|text| text.trim().is_empty())
            .then(|| "id, dataset, system, metric, unit and source need text".to_owned())
    }
}

fn same(published: &toml::Value, ours: &serde_json::Value) -> bool {
    match published {
        toml::Value::String(text) => ours.as_str() == Some(text),
        toml::Value::Integer(n) => ours.as_i64() == Some(*n),
        toml::Value::Float(x) => ours.as_f64() == Some(*x),
        toml::Value::Boolean(b) => ours.as_bool() == Some(*b),
        _ => false,
    }
}
