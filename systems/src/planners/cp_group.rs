use skewbench_plan::{AttentionShape, Domain, Plan, SystemError};

/// The CP group of one packed sequence, checked.
pub(crate) struct CpGroup {
    /// Document bounds, `0, l0, l0 + l1, ...`.
    pub(crate) bounds: Vec<u32>,
    /// Tokens of the sequence.
    pub(crate) tokens: u32,
    /// Number of ranks.
    pub(crate) cp: u32,
    /// Heads of one tensor-parallel shard.
    pub(crate) shape: AttentionShape,
}

impl CpGroup {
    /// The CP group of a domain that holds one sequence.
    ///
    /// # Errors
    /// When the domain holds another number of sequences, no rank, or a sequence or shape that no plan can express.
    pub(crate) fn of(domain: &Domain<'_>, planner: &str) -> Result<Self, SystemError> {
        let &[sequence] = domain.sequences else {
            let what = format!(
                "{planner} plans the CP group of one packed sequence and was given {}; use scope sequence",
                domain.sequences.len()
            );
            return Err(SystemError::Impossible(what));
        };
        let shape = domain.shape;
        if domain.cp == 0 {
            return Err(SystemError::Impossible(format!("{planner} cannot plan for cp = 0; choose cp of at least 1")));
        }
        if shape.kv_heads == 0 || shape.q_heads == 0 || !shape.q_heads.is_multiple_of(shape.kv_heads) {
            let what = format!(
                "{planner} cannot share {} KV heads among {} query heads; the first must divide the second",
                shape.kv_heads, shape.q_heads
            );
            return Err(SystemError::Impossible(what));
        }
        let Ok(tokens) = u32::try_from(sequence.tokens()) else {
            let what =
                format!("{planner}: a packed sequence of {} tokens; at most {} fit", sequence.tokens(), u32::MAX);
            return Err(SystemError::Impossible(what));
        };
        Ok(Self { bounds: Plan::bounds(sequence.documents()), tokens, cp: domain.cp, shape })
    }

    /// Documents as `(start, end)` rows.
    pub(crate) fn documents(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        self.bounds.windows(2).map(|b| (b[0], b[1]))
    }
}

/// Bound `i` of `n` near-equal contiguous pieces of `len` rows: floor(i len / n).
pub(crate) fn bound(len: u32, i: u32, n: u32) -> u32 {
    (u64::from(i) * u64::from(len) / u64::from(n.max(1))) as u32
}
