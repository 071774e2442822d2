use serde::{Deserialize, Serialize};

/// How a job's cards are divided: DP x CP x PP x TP, with a node's cards filled TP first, then CP, DP, PP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Data-parallel ranks.
    pub dp: u32,
    /// Context-parallel ranks of one data-parallel rank.
    pub cp: u32,
    /// Pipeline stages.
    #[serde(default = "one")]
    pub pp: u32,
    /// Tensor-parallel ranks.
    #[serde(default = "one")]
    pub tp: u32,
    /// Cards that share an NVLink domain.
    #[serde(default = "eight")]
    pub cards_per_node: u32,
    /// Fill nodes with DP before CP, so that a CP group spans nodes and DP peers share one.
    #[serde(default)]
    pub dp_before_cp: bool,
}

fn one() -> u32 {
    1
}

fn eight() -> u32 {
    8
}

/// Why a layout cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A degree is zero.
    #[error("{0} is 0; every degree of a layout is at least 1")]
    Zero(&'static str),
    /// TP does not divide the heads.
    #[error("tp = {tp} does not divide the {heads} {kind} heads of the model; choose a divisor")]
    Heads {
        /// Tensor-parallel degree.
        tp: u32,
        /// Number of heads.
        heads: u32,
        /// "query" or "KV".
        kind: &'static str,
    },
    /// DP does not divide GBS.
    #[error("dp = {dp} does not divide gbs = {gbs}; every wave needs one sequence a data-parallel rank")]
    Gbs {
        /// Data-parallel degree.
        dp: u32,
        /// Packed sequences of a step.
        gbs: u32,
    },
    /// More context-parallel ranks than tokens.
    #[error("cp = {cp} is above the {window} tokens of a window; choose cp of at most the window")]
    Cp {
        /// Context-parallel degree.
        cp: u32,
        /// Tokens of a window.
        window: u32,
    },
    /// More cards than are supported.
    #[error("dp x cp x pp x tp is {0} cards; at most 1048576 are supported")]
    Cards(u64),
}

impl Layout {
    /// A layout without pipeline and tensor parallelism on nodes of eight cards.
    pub fn dp_cp(dp: u32, cp: u32) -> Self {
        Self { dp, cp, pp: 1, tp: 1, cards_per_node: 8, dp_before_cp: false }
    }

    /// All cards.
    pub fn cards(&self) -> u64 {
        u64::from(self.dp) * u64::from(self.cp) * u64::from(self.pp) * u64::from(self.tp)
    }

    /// Node that holds the first tensor-parallel card of (data-parallel rank, context-parallel rank) in stage 0.
    pub fn node(&self, dp_rank: u32, cp_rank: u32) -> u32 {
        let rank = if self.dp_before_cp { cp_rank * self.dp + dp_rank } else { dp_rank * self.cp + cp_rank };
        (u64::from(rank) * u64::from(self.tp) / u64::from(self.cards_per_node)) as u32
    }

    /// Checks the degrees against a model and a step.
    ///
    /// # Errors
    /// The first [`LayoutError`] found.
    pub fn validate(&self, q_heads: u32, kv_heads: u32, gbs: u32, window: u32) -> Result<(), LayoutError> {
        let degrees = [
            ("dp", self.dp),
            ("cp", self.cp),
            ("pp", self.pp),
            ("tp", self.tp),
            ("cards_per_node", self.cards_per_node),
        ];
        if let Some((name, _)) = degrees.iter().find(|(_, degree)| *degree == 0) {
            return Err(LayoutError::Zero(name));
        }
        let wide = degrees[..4].iter().try_fold(1u64, |n, (_, d)| n.checked_mul(u64::from(*d)));
        match wide {
            Some(cards) if cards <= 1 << 20 => {}
            cards => return Err(LayoutError::Cards(cards.unwrap_or(u64::MAX))),
        }
        for (heads, kind) in [(q_heads, "query"), (kv_heads, "KV")] {
            if !heads.is_multiple_of(self.tp) {
                return Err(LayoutError::Heads { tp: self.tp, heads, kind });
            }
        }
        if !gbs.is_multiple_of(self.dp) {
            return Err(LayoutError::Gbs { dp: self.dp, gbs });
        }
        if self.cp > window {
            return Err(LayoutError::Cp { cp: self.cp, window });
        }
        Ok(())
    }
}
