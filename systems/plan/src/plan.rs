use serde::{Deserialize, Serialize};

use crate::{AttentionShape, HeadRange, Rows};

/// Index of the compute stream of every rank; higher indices are transfer streams.
pub const COMPUTE: u8 = 0;

/// Forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// Reads Q, K, V; leaves O and LSE.
    Forward,
    /// Reads Q, K, V, dO and the merged O and LSE; leaves dQ, dK, dV.
    Backward,
}

/// Which pairs of a tile are unmasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// Every row sees every key.
    Full,
    /// Aligned at the bottom right: the last row sees the last key, the row before it one key fewer, and so on.
    Causal,
    /// Like `Causal`, but the last row sees all keys except the last (striped shards behind the diagonal).
    CausalExclusive,
}

impl Mask {
    /// Unmasked pairs of a tile of `q` rows and `k` keys.
    pub fn pairs(self, q: u32, k: u32) -> u64 {
        let (q, k) = (u64::from(q), u64::from(k));
        match self {
            Self::Full => q * k,
            Self::Causal => staircase(q, k),
            Self::CausalExclusive => staircase(q, k.saturating_sub(1)),
        }
    }
}

/// The last of `q` rows sees `k` keys, each row before it one fewer, never less than none.
fn staircase(q: u64, k: u64) -> u64 {
    let rows = q.min(k);
    rows * k - rows * rows.saturating_sub(1) / 2
}

/// One tensor of the attention layer. K, V, dK and dV have KV heads, the others query heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Tensor {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Output.
    O,
    /// Log-sum-exp of the scaled scores, one f32 a row and head.
    Lse,
    /// Gradient of the output.
    DO,
    /// Gradient of the queries.
    DQ,
    /// Gradient of the keys.
    DK,
    /// Gradient of the values.
    DV,
}

impl Tensor {
    /// All tensors.
    pub const ALL: [Self; 9] = [Self::Q, Self::K, Self::V, Self::O, Self::Lse, Self::DO, Self::DQ, Self::DK, Self::DV];

    /// True for tensors that have KV heads.
    pub fn is_kv(self) -> bool {
        matches!(self, Self::K | Self::V | Self::DK | Self::DV)
    }

    /// Bytes of one row of one head.
    pub fn row_bytes(self, head_dim: u16, dtype: Dtype) -> u64 {
        if self == Self::Lse { 4 } else { u64::from(head_dim) * dtype.bytes() }
    }

    /// The tensor's usual name.
    pub fn name(self) -> &'static str {
        ["Q", "K", "V", "O", "LSE", "dO", "dQ", "dK", "dV"][self as usize]
    }
}

/// A set of tensors that travel together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct TensorSet(u16);

impl TryFrom<u16> for TensorSet {
    type Error = String;

    fn try_from(bits: u16) -> Result<Self, String> {
        let all = (1 << Tensor::ALL.len()) - 1;
        if bits > all { Err(format!("a set of tensors has bits up to {all}, not {bits}")) } else { Ok(Self(bits)) }
    }
}

impl From<TensorSet> for u16 {
    fn from(set: TensorSet) -> Self {
        set.0
    }
}

impl TensorSet {
    /// Queries.
    pub const Q: Self = Self::of(&[Tensor::Q]);
    /// Keys and values.
    pub const KV: Self = Self::of(&[Tensor::K, Tensor::V]);
    /// Output and its log-sum-exp.
    pub const O_LSE: Self = Self::of(&[Tensor::O, Tensor::Lse]);
    /// What a backward tile reads for its rows beside Q: dO, O, LSE.
    pub const DO_O_LSE: Self = Self::of(&[Tensor::DO, Tensor::O, Tensor::Lse]);
    /// Gradient of the queries.
    pub const DQ: Self = Self::of(&[Tensor::DQ]);
    /// Gradients of keys and values.
    pub const DKV: Self = Self::of(&[Tensor::DK, Tensor::DV]);

    /// The set of the given tensors.
    pub const fn of(tensors: &[Tensor]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < tensors.len() {
            bits |= 1 << tensors[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    /// True when `tensor` is in the set.
    pub fn has(self, tensor: Tensor) -> bool {
        self.0 & (1 << tensor as u16) != 0
    }

    /// True when all of `other` is in the set.
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// True when a tensor of the set has KV heads.
    pub fn any_kv(self) -> bool {
        self.0 & Self::KV.union(Self::DKV).0 != 0
    }

    /// True when a tensor of the set has query heads.
    pub fn any_q(self) -> bool {
        self.0 & !Self::KV.union(Self::DKV).0 != 0
    }

    /// Tensors of both sets.
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Both sets together.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True when no tensor is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The tensors in the set.
    pub fn iter(self) -> impl Iterator<Item = Tensor> {
        Tensor::ALL.into_iter().filter(move |t| self.has(*t))
    }
}

/// Element type on the wire; LSE is always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 2 bytes an element.
    Bf16,
    /// 4 bytes an element: partial sums.
    F32,
}

impl Dtype {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// A contiguous part of one of the plan's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First entry.
    pub start: u32,
    /// One past the last entry.
    pub end: u32,
}

impl Span {
    /// The span as an index range.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Number of entries.
    pub fn len(self) -> usize {
        self.range().len()
    }

    /// True when the span has no entry.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// Attention of the rows `q` over the keys `k`, both of one document of packed sequence `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tile {
    /// Packed sequence of the plan.
    pub seq: u32,
    /// Query rows.
    pub q: Rows,
    /// Key rows.
    pub k: Rows,
}

/// One ragged kernel call. All its tiles have the launch's heads and mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Tiles of [`PassPlan::tiles`].
    pub tiles: Span,
    /// Mask of every tile.
    pub mask: Mask,
    /// Query heads; the KV heads follow from the shape.
    pub q_heads: HeadRange,
}

/// Rows that go from one rank to another; `from == to` is a local copy into the receiver's slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Move {
    /// Sending rank.
    pub from: u32,
    /// Receiving rank.
    pub to: u32,
    /// Packed sequence of the plan.
    pub seq: u32,
    /// Rows that travel.
    pub rows: Rows,
}

/// Moves of a call that carry the same tensors of the same heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Moves of [`PassPlan::moves`].
    pub moves: Span,
    /// What travels.
    pub tensors: TensorSet,
    /// Query heads of Q, O, LSE, dO, dQ.
    pub q_heads: HeadRange,
    /// KV heads of K, V, dK, dV.
    pub kv_heads: HeadRange,
}

impl Part {
    /// Heads of `tensor` that this part carries.
    pub fn heads(&self, tensor: Tensor) -> HeadRange {
        if tensor.is_kv() { self.kv_heads } else { self.q_heads }
    }

    /// Bytes of one row of everything this part carries.
    pub fn row_bytes(&self, head_dim: u16, dtype: Dtype) -> u64 {
        self.tensors.iter().map(|t| t.row_bytes(head_dim, dtype) * u64::from(self.heads(t).len())).sum()
    }
}

/// What a call does to the values it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallMode {
    /// The receiver gets a copy; the sender keeps its own. For Q, K, V, dO and finished O and LSE.
    Copy,
    /// The sender's accumulator moves and is added to (O with LSE: merged into) the receiver's on arrival.
    Accumulate,
}

/// One grouped collective call: every rank that sends or receives in it posts it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Copy or accumulate.
    pub mode: CallMode,
    /// Element type on the wire.
    pub dtype: Dtype,
    /// What travels.
    pub parts: Vec<Part>,
    /// Forward only. Copy: receivers keep what they received for the backward. Accumulate: senders keep what they sent.
    pub keep: bool,
}

/// One operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// One kernel call.
    Launch(Launch),
    /// This rank's part in a call of [`PassPlan::calls`].
    Exchange(u32),
    /// Token-wise work of so many tokens that transfers may hide under.
    Linear {
        /// Tokens.
        tokens: u32,
    },
}

/// Position of an operation on its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId {
    /// Stream; [`COMPUTE`] or a transfer stream.
    pub stream: u8,
    /// Index on the stream.
    pub index: u32,
}

/// An operation with the operations of the same rank, on other streams, that must end first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// What is done.
    pub work: Work,
    /// Dependencies on other streams of the rank; a stream itself is in order.
    pub after: Vec<OpId>,
    /// Micro-batch that the operation belongs to (ping-pong), 0 otherwise.
    pub micro_batch: u16,
}

/// Ordered operations of one rank, by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStreams {
    /// `streams[COMPUTE]` and the transfer streams.
    pub streams: Vec<Vec<Op>>,
}

impl RankStreams {
    /// Appends an operation and returns where it stands.
    pub fn push(&mut self, stream: u8, work: Work, after: Vec<OpId>) -> OpId {
        let slot = usize::from(stream);
        if self.streams.len() <= slot {
            self.streams.resize_with(slot + 1, Vec::new);
        }
        let index = self.streams[slot].len() as u32;
        self.streams[slot].push(Op { work, after, micro_batch: 0 });
        OpId { stream, index }
    }
}

/// One pass of a plan. Tables are shared: launches and parts of several head pieces may refer to the same entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassPlan {
    /// Tiles, referred to by launches.
    pub tiles: Vec<Tile>,
    /// Moves, referred to by parts.
    pub moves: Vec<Move>,
    /// Grouped calls.
    pub calls: Vec<Call>,
    /// Streams of every rank of the domain.
    pub ranks: Vec<RankStreams>,
}

impl PassPlan {
    /// A pass without operations over `ranks` ranks.
    pub fn new(ranks: u32) -> Self {
        let mut streams = Vec::new();
        streams.resize_with(ranks as usize, RankStreams::default);
        Self { ranks: streams, ..Self::default() }
    }
}

/// Where rows live when the layer starts (Q, K, V, dO) or ends (O, dQ, dK, dV).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shard {
    /// Rank that holds the rows.
    pub rank: u32,
    /// Packed sequence of the plan.
    pub seq: u32,
    /// Rows, of all heads.
    pub rows: Rows,
}

/// What a plan spends beside the work itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Rows that are computed or sent only to fill a shape.
    pub padding_tokens: u64,
    /// Ranks that get no attention work (for example CP above the query heads in Ulysses).
    pub idle_ranks: u32,
    /// KV heads that are sent to more than one rank of a head-parallel group.
    pub replicated_kv_heads: u32,
    /// Pairs x query heads of the largest indivisible piece of work, 0 when the planner has none.
    pub largest_tile: u64,
}

/// What every rank of one domain does for the attention of one wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the planner.
    pub planner: String,
    /// Heads of one tensor-parallel shard.
    pub shape: AttentionShape,
    /// Document bounds of every packed sequence: `0, l0, l0 + l1, ...`.
    pub sequences: Vec<Vec<u32>>,
    /// Ranks of the domain.
    pub ranks: u32,
    /// Layout of Q, K, V and dO at the start.
    pub entry: Vec<Shard>,
    /// Layout of O, dQ, dK and dV at the end.
    pub exit: Vec<Shard>,
    /// Forward pass.
    pub forward: PassPlan,
    /// Backward pass.
    pub backward: PassPlan,
    /// What the plan spends beside the work.
    pub accounting: Accounting,
}

impl Plan {
    /// The given pass.
    pub fn pass(&self, pass: Pass) -> &PassPlan {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
        }
    }

    /// Pairs x query heads that each rank computes in `pass`.
    pub fn load(&self, pass: Pass) -> Vec<u64> {
        let table = self.pass(pass);
        table
            .ranks
            .iter()
            .map(|rank| {
                rank.streams
                    .iter()
                    .flatten()
                    .filter_map(|op| match op.work {
                        Work::Launch(launch) => Some(launch),
                        _ => None,
                    })
                    .map(|launch| {
                        let tiles = table.tiles.get(launch.tiles.range()).unwrap_or_default();
                        let pairs: u64 = tiles.iter().map(|t| launch.mask.pairs(t.q.len, t.k.len)).sum();
                        pairs * u64::from(launch.q_heads.len())
                    })
                    .sum()
            })
            .collect()
    }

    /// Document bounds of a list of documents.
    pub fn bounds(documents: &[u32]) -> Vec<u32> {
        let mut end = 0;
        std::iter::once(0)
            .chain(documents.iter().map(|l| {
                end += l;
                end
            }))
            .collect()
    }
}
