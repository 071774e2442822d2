use serde::{Deserialize, Serialize};
use skewbench_plan::SystemError;

/// Longest packed sequence, in tokens, for which the published block of 256K windows is the default.
const SHORT_WINDOW: u64 = 512 << 10;

/// Options of [`Libra`](super::Libra); the defaults are the published ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LibraOptions {
    /// Slack of the soft load target: C = (1 + tau) x mean load.
    pub tau: f64,
    /// Head pieces, M; cut to the query heads of the domain where above them.
    pub pieces: u32,
    /// Query tokens of a block, B. When absent 4096 for windows below 512K tokens, else 8192.
    pub block: Option<u32>,
    /// Head shards, H; cut to the query heads of the domain where above them.
    pub head_shards: u32,
    /// Workers free what they received after the forward and get it again in the backward; otherwise they keep it.
    pub resend: bool,
}

impl Default for LibraOptions {
    fn default() -> Self {
        Self { tau: 0.03, pieces: 4, block: None, head_shards: 1, resend: true }
    }
}

impl LibraOptions {
    /// Refuses values that no plan can be made with.
    ///
    /// # Errors
    /// [`SystemError::Option`] for the first such value.
    pub fn validate(&self) -> Result<(), SystemError> {
        if !self.tau.is_finite() || self.tau < 0.0 {
            let why = "the slack over the mean load must be a finite number of at least 0".to_owned();
            return Err(SystemError::Option { option: "tau", value: self.tau.to_string(), why });
        }
        let counts = [
            ("pieces", Some(self.pieces), "head pieces"),
            ("block", self.block, "query tokens of a block"),
            ("head_shards", Some(self.head_shards), "head shards"),
        ];
        for (option, value, what) in counts {
            if value == Some(0) {
                let why = format!("the number of {what} must be at least 1");
                return Err(SystemError::Option { option, value: "0".to_owned(), why });
            }
        }
        Ok(())
    }

    /// Query tokens of a block when the longest packed sequence has `tokens` tokens.
    pub(super) fn block_tokens(&self, tokens: u64) -> u32 {
        self.block.unwrap_or(if tokens < SHORT_WINDOW { 4096 } else { 8192 })
    }
}
