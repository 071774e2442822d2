use serde::{Deserialize, Serialize};
use skewbench_plan::SystemError;

use crate::{Accepts, DefaultValue, OptionSpec};

/// Keys that the balancer charges a move for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvCharge {
    /// Those of the whole document.
    #[default]
    Document,
    /// Those up to the last row of the item, which is what a server without any of them gets.
    Shard,
}

/// Options of [`DistCa`](super::DistCa); the defaults are the published ones, but for `round`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DistCaOptions {
    /// Deficit, over the mean load, that a server may be left with.
    pub tolerance: f64,
    /// Cut the wave into two micro-batches, one of which travels while the other is computed.
    pub ping_pong: bool,
    /// Servers free what they received after the forward and get it again in the backward; otherwise they keep it.
    pub resend_qkv: bool,
    /// Tokens that documents are rounded up to for fill and balance.
    pub round: u32,
    /// Keys that a move is charged for.
    pub kv_charge: KvCharge,
}

impl Default for DistCaOptions {
    fn default() -> Self {
        Self { tolerance: 0.1, ping_pong: true, resend_qkv: true, round: 1, kv_charge: KvCharge::Document }
    }
}

impl DistCaOptions {
    /// Refuses values that no plan can be made with.
    ///
    /// # Errors
    /// [`SystemError::Option`] for the first such value.
    pub fn validate(&self) -> Result<(), SystemError> {
        if !self.tolerance.is_finite() || self.tolerance < 0.0 {
            let why = "the deficit over the mean load must be a finite number of at least 0".to_owned();
            return Err(SystemError::Option { option: "tolerance", value: self.tolerance.to_string(), why });
        }
        if self.round == 0 {
            let why = "lengths are rounded to a multiple of at least 1 token".to_owned();
            return Err(SystemError::Option { option: "round", value: "0".to_owned(), why });
        }
        Ok(())
    }
}

/// What systems may set.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "tolerance",
        alias: None,
        default: DefaultValue::Number(0.1),
        accepts: Accepts::Number { min: 0.0, max: 10.0 },
        summary: "deficit over the mean load that a server may be left with; bounds no server's surplus",
    },
    OptionSpec {
        name: "ping_pong",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "two micro-batches a wave, one of which travels while the other is computed",
    },
    OptionSpec {
        name: "resend_qkv",
        alias: None,
        default: DefaultValue::Flag(true),
        accepts: Accepts::Flag,
        summary: "the backward sends Q, K, V, O and LSE again; false keeps them on the servers",
    },
    OptionSpec {
        name: "round",
        alias: None,
        default: DefaultValue::Integer(1),
        accepts: Accepts::Integer { min: 1, max: 4096 },
        summary: "tokens that lengths are rounded up to for fill and balance; 1 = exact, 16 as published",
    },
    OptionSpec {
        name: "kv_charge",
        alias: None,
        default: DefaultValue::Text("document"),
        accepts: Accepts::Choice(&["document", "shard"]),
        summary: "keys that a move is charged for: the whole document's, or those up to the item's last row",
    },
];

#[cfg(test)]
mod tests {
    use super::{DistCaOptions, OPTIONS};
    use crate::Options;

    #[test]
    fn defaults_are_those_of_the_planner() {
        let options: DistCaOptions = Options::default().section(OPTIONS).expect("defaults are accepted");
        assert_eq!(options, DistCaOptions::default());
    }

    #[test]
    fn impossible_values_are_refused() {
        for tolerance in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(DistCaOptions { tolerance, ..DistCaOptions::default() }.validate().is_err());
        }
        assert!(DistCaOptions { round: 0, ..DistCaOptions::default() }.validate().is_err());
    }
}
