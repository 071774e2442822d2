use serde::{Deserialize, Serialize};

use crate::heads::causal_pairs;

/// Documents that fill one packed sequence, in packing order, under a block-diagonal causal mask.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PackedSequence {
    documents: Box<[u32]>,
}

impl PackedSequence {
    /// A packed sequence of documents with these lengths in tokens; documents of length zero are dropped.
    pub fn new(documents: impl IntoIterator<Item = u32>) -> Self {
        Self { documents: documents.into_iter().filter(|&l| l > 0).collect() }
    }

    /// Document lengths in tokens, in packing order.
    pub fn documents(&self) -> &[u32] {
        &self.documents
    }

    /// Number of tokens.
    pub fn tokens(&self) -> u64 {
        self.documents.iter().map(|&l| u64::from(l)).sum()
    }

    /// Unmasked (query, key) pairs: the sum over documents of l (l + 1) / 2.
    pub fn pairs(&self) -> u64 {
        self.documents.iter().map(|&l| causal_pairs(l)).sum()
    }

    /// Sum of squared document lengths, the proxy that published placements balance.
    pub fn l_squared(&self) -> u128 {
        self.documents.iter().map(|&l| u128::from(l) * u128::from(l)).sum()
    }

    /// `x`: the sum of squared lengths over that of one document that fills `window`, in (0, 1].
    pub fn x(&self, window: u32) -> f64 {
        self.l_squared() as f64 / (f64::from(window) * f64::from(window))
    }
}

/// One optimizer step: GBS packed sequences of `window` tokens each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Position of the step in its workload's stream.
    pub index: u64,
    /// Tokens of a full packed sequence.
    pub window: u32,
    /// The packed sequences in the order in which the data loader delivers them.
    pub sequences: Vec<PackedSequence>,
}

impl Step {
    /// Tokens of all sequences.
    pub fn tokens(&self) -> u64 {
        self.sequences.iter().map(PackedSequence::tokens).sum()
    }
}
