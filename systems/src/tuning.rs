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

use DefaultValue::{Flag, Integer, Number, Text};
use Tuning::{Semantic, Try};

const KEPT: &str = "what a rank keeps for the backward: memory against transfers";
const ORDER: &str = "in which step a document runs";

/// Entries by option name.
const TUNING: &[(&str, Tuning)] = &[
    ("pool", Try(&[Integer(1), Integer(2), Integer(4), Integer(8), Integer(16)])),
    ("work", Try(&[Text("pairs"), Text("l_squared"), Text("time")])),
    ("deal", Try(&[Text("sorted"), Text("arrival")])),
    ("shard", Try(&[Text("document"), Text("sequence")])),
    ("tau", Try(&[Number(0.0), Number(0.01), Number(0.03), Number(0.1), Number(0.3)])),
    ("pieces", Try(&[Integer(1), Integer(2), Integer(4), Integer(8)])),
    ("block", Try(&[Text("auto"), Integer(1024), Integer(2048), Integer(4096), Integer(8192), Integer(16384)])),
    ("head_shards", Try(&[Text("auto"), Integer(1), Integer(2), Integer(4), Integer(8)])),
    ("resend", Semantic(KEPT)),
    ("resend_qkv", Semantic(KEPT)),
    ("regather", Semantic(KEPT)),
    ("ulysses", Try(&[Text("auto"), Integer(1), Integer(2), Integer(4), Integer(8)])),
    ("replicate_kv", Try(&[Flag(false), Flag(true)])),
    ("ring", Try(&[Text("basic"), Text("zigzag"), Text("striped")])),
    ("ulysses_low", Try(&[Flag(true), Flag(false)])),
    ("hp", Try(&[Text("auto"), Integer(1), Integer(2), Integer(4), Integer(8), Integer(16)])),
    ("window", Try(&[Text("auto"), Integer(1), Integer(2), Integer(4), Integer(8)])),
    ("placement", Try(&[Text("head-first"), Text("context-first")])),
    ("linear_tokens", Try(&[Integer(0), Integer(65_536), Integer(131_072), Integer(262_144)])),
    ("lmax", Try(&[Number(1.25), Number(1.5), Number(2.0), Number(4.0)])),
    ("levels", Semantic(ORDER)),
    ("outlier", Semantic(ORDER)),
    ("max_delay", Semantic(ORDER)),
    ("sharding", Try(&[Text("auto"), Text("sequence"), Text("document")])),
    ("gather", Try(&[Text("all"), Text("needed")])),
    ("tolerance", Try(&[Number(0.0), Number(0.02), Number(0.05), Number(0.1), Number(0.2)])),
    ("ping_pong", Try(&[Flag(true), Flag(false)])),
    ("kv_charge", Try(&[Text("document"), Text("shard")])),
    ("round", Semantic("what lengths the planner sees")),
    ("balance", Try(&[Text("time"), Text("flops")])),
    ("split_masks", Try(&[Flag(true), Flag(false)])),
    ("count_transfers", Try(&[Flag(true), Flag(false)])),
    ("near_first", Try(&[Flag(true), Flag(false)])),
    ("relay", Try(&[Flag(true), Flag(false)])),
    ("send_first", Try(&[Flag(true), Flag(false)])),
    ("card_speeds", Semantic("what is known of the machine")),
    ("max_flops", Try(&[Number(1.25), Number(1.5), Number(2.0), Number(4.0)])),
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
