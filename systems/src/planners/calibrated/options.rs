use serde::{Deserialize, Serialize};
use skewbench_plan::SystemError;

/// What is balanced over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balance {
    /// Predicted time of the launches of both passes.
    #[default]
    Time,
    /// Pairs x query heads.
    Flops,
}

/// Options of [`Calibrated`](super::Calibrated).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CalibratedOptions {
    /// What is balanced.
    pub balance: Balance,
    /// Head shards, H; cut to the KV heads of the domain where above them, and as many as those when absent.
    pub head_shards: Option<u32>,
    /// Pieces, M, of the rows that move; jobs of few rows have fewer.
    pub pieces: u32,
    /// Squares, rectangles and the rest in launches of their own where that is predicted to be faster.
    pub split_masks: bool,
    /// Transfers that compute cannot hide count as load.
    pub count_transfers: bool,
    /// Surplus goes to the donor's own sequence and node first.
    pub near_first: bool,
    /// Keys for several workers of a node cross to it once and go on inside it; their gradients are summed there before they leave.
    pub relay: bool,
    /// Ranks that give work away send first and compute then, where compute slows transfers.
    pub send_first: bool,
    /// Slower cards, where their speeds are known, get less.
    pub card_speeds: bool,
    /// Workers free what they received after the forward and get it again in the backward; otherwise they keep it.
    pub resend: bool,
    /// No worker computes more than this many times the mean pairs x query heads, but for one granule.
    pub max_flops: f64,
}

impl Default for CalibratedOptions {
    fn default() -> Self {
        Self {
            balance: Balance::Time,
            head_shards: None,
            pieces: 2,
            split_masks: true,
            count_transfers: true,
            near_first: true,
            relay: true,
            send_first: true,
            card_speeds: false,
            resend: false,
            max_flops: 2.0,
        }
    }
}

impl CalibratedOptions {
    /// Refuses values that no plan can be made with.
    ///
    /// # Errors
    /// [`SystemError::Option`] for the first such value.
    pub fn validate(&self) -> Result<(), SystemError> {
        let refuse = |option, value: String, why: &str| Err(SystemError::Option { option, value, why: why.to_owned() });
        for (option, value) in [("head_shards", self.head_shards), ("pieces", Some(self.pieces))] {
            if value == Some(0) {
                return refuse(option, "0".to_owned(), "the number of parts must be at least 1");
            }
        }
        if !(1.0..=1e6).contains(&self.max_flops) {
            return refuse("max_flops", self.max_flops.to_string(), "use a multiple of the mean from 1 to 1000000");
        }
        Ok(())
    }
}
