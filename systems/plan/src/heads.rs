use serde::{Deserialize, Serialize};

/// Unmasked pairs of a whole causal document of `len` tokens: len (len + 1) / 2.
pub fn causal_pairs(len: u32) -> u64 {
    u64::from(len) * (u64::from(len) + 1) / 2
}

/// Unmasked pairs of rows `[a, b)` of a causal document, counted from its first token: (b(b+1) - a(a+1)) / 2.
pub fn row_pairs(a: u32, b: u32) -> u64 {
    causal_pairs(b) - causal_pairs(a)
}

/// A range of heads, `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HeadRange {
    /// First head.
    pub start: u16,
    /// One past the last head.
    pub end: u16,
}

impl HeadRange {
    /// No heads at all.
    pub const EMPTY: Self = Self { start: 0, end: 0 };

    /// Heads `[start, end)`.
    pub fn new(start: u16, end: u16) -> Self {
        Self { start, end }
    }

    /// Number of heads.
    pub fn len(self) -> u32 {
        u32::from(self.end.saturating_sub(self.start))
    }

    /// True when the range holds no head.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// True when every head of `other` is in this range.
    pub fn contains(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// True when the ranges share a head.
    pub fn overlaps(self, other: Self) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// Piece `i` of `n` near-equal contiguous pieces of `0..heads`: bounds floor(i heads / n).
    pub fn piece(heads: u16, i: u32, n: u32) -> Self {
        let bound = |i: u32| (u64::from(i) * u64::from(heads) / u64::from(n)) as u16;
        Self { start: bound(i), end: bound(i + 1) }
    }
}

/// Heads of one attention layer as a plan sees them: those of one tensor-parallel shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionShape {
    /// Query heads.
    pub q_heads: u16,
    /// Key/value heads; divides `q_heads`.
    pub kv_heads: u16,
    /// Elements of a head. Never derived from the hidden size.
    pub head_dim: u16,
}

impl AttentionShape {
    /// Query heads that share one KV head.
    pub fn group(self) -> u16 {
        self.q_heads / self.kv_heads
    }

    /// All query heads.
    pub fn all_q(self) -> HeadRange {
        HeadRange::new(0, self.q_heads)
    }

    /// All KV heads.
    pub fn all_kv(self) -> HeadRange {
        HeadRange::new(0, self.kv_heads)
    }

    /// The KV heads that the given query heads read.
    pub fn kv_of(self, q: HeadRange) -> HeadRange {
        if q.is_empty() {
            return HeadRange::EMPTY;
        }
        let group = self.group();
        HeadRange::new(q.start / group, (q.end - 1) / group + 1)
    }

    /// Forward FLOPs of `pairs` unmasked pairs on `q_heads` heads: 4 D pairs a head.
    pub fn forward_flops(self, pairs: u64, q_heads: u32) -> f64 {
        4.0 * f64::from(self.head_dim) * f64::from(q_heads) * pairs as f64
    }

    /// Backward FLOPs of `pairs` unmasked pairs on `q_heads` heads: 10 D pairs a head.
    pub fn backward_flops(self, pairs: u64, q_heads: u32) -> f64 {
        2.5 * self.forward_flops(pairs, q_heads)
    }
}
