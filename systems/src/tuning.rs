//! Which values of which options a tuner may try.
//!
//! Stated once for every option name, so that options that several systems share are searched alike. A registry test asks
//! for an entry of every option of every placement and planner.

use serde_json::Value;

use crate::{DefaultValue, OptionSpec};

/// What a tuner does with an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tuning {
    /// It tries these values, beside the one it starts from.
    Try(&'static [DefaultValue]),
    /// It leaves the option alone, because a change would alter what is modelled and not only how fast it is.
    Semantic(&'static str),
}

use DefaultValue::{Integer, Number, Text};
use Tuning::{Semantic, Try};

/// Entries by option name.
const TUNING: &[(&str, Tuning)] = &[
    ("pool", Try(&[Integer(1), Integer(2), Integer(4), Integer(8), Integer(16)])),
    ("work", Try(&[Text("pairs"), Text("l_squared")])),
    ("deal", Try(&[Text("sorted"), Text("arrival")])),
    ("shard", Try(&[Text("document"), Text("sequence")])),
    ("tau", Try(&[Number(0.0), Number(0.01), Number(0.03), Number(0.1), Number(0.3)])),
    ("pieces", Try(&[Integer(1), Integer(2), Integer(4), Integer(8)])),
    ("block", Try(&[Text("auto"), Integer(1024), Integer(2048), Integer(4096), Integer(8192), Integer(16384)])),
    ("head_shards", Try(&[Integer(1), Integer(2), Integer(4), Integer(8)])),
    ("resend", Semantic("what a rank keeps for the backward: memory against transfers")),
    ("refuse_idle", Semantic("whether idle ranks are an error")),
];

impl OptionSpec {
    /// What a tuner does with the option; nothing where no entry has its name.
    pub fn tuning(&self) -> Option<Tuning> {
        TUNING.iter().find(|(name, _)| *name == self.name).map(|(_, tuning)| *tuning)
    }

    /// The values that a tuner tries, those that this option accepts; empty for options that are not tuned.
    pub fn candidates(&self) -> Vec<Value> {
        match self.tuning() {
            Some(Try(values)) => values.iter().map(|v| v.json()).filter(|v| self.accepts.takes(v)).collect(),
            Some(Semantic(_)) | None => Vec::new(),
        }
    }
}
