use std::sync::Arc;

use skewbench_plan::{
    AttentionShape, CallMode, Dtype, HeadRange, Mask, Move, MoveIndex, Pass, Run, Span, Tensor, TensorSet, TileShape,
};

/// What a domain of ranks executes for the attention of one wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Heads of one tensor-parallel shard.
    pub shape: AttentionShape,
    /// Number of ranks.
    pub ranks: u32,
    /// Forward pass.
    pub forward: PassProgram,
    /// Backward pass.
    pub backward: PassProgram,
}

impl Program {
    /// The given pass.
    pub fn pass(&self, pass: Pass) -> &PassProgram {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
        }
    }
}

/// One pass of a program. Spans in instructions refer to its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassProgram {
    /// Instructions and buffers of every rank.
    pub ranks: Vec<RankProgram>,
    /// Grouped calls.
    pub calls: Vec<TransferCall>,
    /// Routes, one table for each distinct list of moves; parts of several head pieces share them.
    pub routes: Vec<RouteTable>,
    /// Operands of tiles; none in an [`outline`](crate::outline).
    pub tiles: Vec<TileView>,
    /// Rows and keys of the same tiles.
    pub shapes: Vec<TileShape>,
    /// Dependencies of instructions.
    pub events: Vec<InstrId>,
}

/// One rank's buffers and instruction streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankProgram {
    /// Device buffers; none in an [`outline`](crate::outline).
    pub buffers: Vec<Buffer>,
    /// `streams[0]` computes, the others transfer. Each is executed in order.
    pub streams: Vec<Vec<Instr>>,
}

/// Why a buffer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// The layer's input.
    Entry,
    /// The layer's output.
    Exit,
    /// Filled by a call of this pass.
    Received(u32),
    /// Kept from a call of the forward pass: what it brought, or the O and LSE that it took away.
    Kept(u32),
    /// Partial sums in f32 of rows that are not home or whose tiles reach beyond home; they leave or are settled.
    Accumulator,
    /// f32 sums of the rank's own rows and all heads, where some of these rows get more than one contribution or an f32
    /// one; cast into the exit buffers at the end. LSE is f32 anyway and is summed in its exit buffer.
    Sum,
}

/// A device buffer of one tensor: `[rows, heads, head_dim]`, token-major (LSE: `[rows, heads]`).
///
/// Results start empty: the first contribution to a row and head is written, each further one is added (O with LSE:
/// merged by log-sum-exp), and what leaves in an accumulate call leaves its rows empty again. An exit buffer beside a
/// [`BufferKind::Sum`] of its tensor gets values from the cast alone; any other exit buffer gets one contribution a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Why it exists.
    pub kind: BufferKind,
    /// Its tensor.
    pub tensor: Tensor,
    /// Element type.
    pub dtype: Dtype,
    /// Heads of the tensor.
    pub heads: HeadRange,
    /// Which rows it holds, in order.
    pub runs: Arc<[Run]>,
    /// Bytes.
    pub bytes: u64,
}

/// A row position in a buffer of the rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Buffer of the rank.
    pub buffer: u32,
    /// First row in the buffer.
    pub row: u32,
}

/// Operands and results of one tile. Results are added where they lie in an accumulator or a sum, and written where they
/// lie in an exit buffer, which then has no other contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileView {
    /// Packed sequence.
    pub seq: u32,
    /// Query rows.
    pub q_rows: u32,
    /// Key rows.
    pub k_rows: u32,
    /// Rows of Q.
    pub q: View,
    /// Rows of K; V lies at the same row of the buffer after it.
    pub k: View,
    /// Rows of O: the result in the forward, the merged output in the backward. LSE lies in the buffer after it.
    pub o: View,
    /// Backward: rows of dO.
    pub d_o: View,
    /// Backward: rows of the result dQ.
    pub dq: View,
    /// Backward: rows of the result dK; dV lies at the same row of the buffer after it.
    pub dk: View,
}

/// Rows that one rank sends to another in one list of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sending rank.
    pub from: u32,
    /// Receiving rank; never the sender.
    pub to: u32,
    /// Rows in all.
    pub rows: u64,
}

/// Rows of one rank in a list of moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankRows {
    /// Rows that go to other ranks.
    pub sent: u64,
    /// Rows that come from other ranks.
    pub received: u64,
    /// Rows that are copied on the rank.
    pub local: u64,
}

/// A list of moves with what backends ask of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// The moves, in the plan's order; none in an [`outline`](crate::outline).
    pub moves: Vec<Move>,
    /// Moves by sender and receiver.
    pub index: Arc<MoveIndex>,
    /// Rows by ordered pair of different ranks, sorted by sender, then receiver.
    pub flows: Vec<Flow>,
    /// Rows by rank.
    pub rows: Vec<RankRows>,
}

/// Part of a call: a route table with what travels along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferPart {
    /// Table in [`PassProgram::routes`].
    pub routes: u32,
    /// What travels.
    pub tensors: TensorSet,
    /// Query heads.
    pub q_heads: HeadRange,
    /// KV heads.
    pub kv_heads: HeadRange,
    /// Bytes of one row of everything that travels.
    pub row_bytes: u64,
}

/// One grouped call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferCall {
    /// Copy or accumulate.
    pub mode: CallMode,
    /// Element type on the wire.
    pub dtype: Dtype,
    /// Parts.
    pub parts: Vec<TransferPart>,
    /// Forward: what a copy brings, or the O and LSE of the rows that an accumulate call takes (rows that stay on their
    /// rank included), become the [`BufferKind::Kept`] buffers of the backward.
    pub keep: bool,
}

/// Position of an instruction on its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstrId {
    /// Stream.
    pub stream: u32,
    /// Index on the stream.
    pub index: u32,
}

/// One instruction with the instructions of other streams of its rank that must end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instr {
    /// What is done.
    pub kind: InstrKind,
    /// Dependencies, in [`PassProgram::events`].
    pub after: Span,
    /// Micro-batch, 0 unless the plan interleaves several.
    pub micro_batch: u16,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstrKind {
    /// One ragged kernel call over tiles of [`PassProgram::shapes`] and [`PassProgram::tiles`].
    Launch {
        /// Tiles.
        tiles: Span,
        /// Mask of every tile.
        mask: Mask,
        /// Query heads.
        q_heads: HeadRange,
        /// KV heads.
        kv_heads: HeadRange,
    },
    /// Gathers rows and heads for a call into contiguous memory. Rows that stay on the rank are copied into the slab
    /// (copy), or moved from their accumulator to the rank's sums or exit buffers (accumulate).
    Pack {
        /// The call.
        call: u32,
        /// Bytes copied: read once and written once.
        bytes: u64,
    },
    /// This rank's part in a call. What arrives for an exit buffer is written there, what arrives for an accumulator or a
    /// sum waits for the merge.
    Transfer {
        /// The call.
        call: u32,
    },
    /// Adds what a call brought (O: merges by log-sum-exp) to the sums of the rank where the rows are home, else to its
    /// accumulators.
    Merge {
        /// The call.
        call: u32,
        /// Bytes that arrived: read once, with as many of the f32 sum read and written. Final results that arrive in bf16
        /// are read once and written in f32, which is as many bytes.
        bytes: u64,
    },
    /// Adds (O: merges by log-sum-exp) those results of the launch before it that share rows with one another or with an
    /// accumulator or sum that already holds a partial one.
    MergeLocal {
        /// Bytes of the results that are added.
        bytes: u64,
    },
    /// Moves home those rows of the rank's accumulators that are: tiles whose rows are only partly home wrote them there.
    /// Rows that a call moves from the rank to itself are not among them.
    Settle {
        /// Bytes of the rows that are added to (O: merged into) [`BufferKind::Sum`] buffers.
        added: u64,
        /// Bytes of the rows that are rounded into exit buffers.
        rounded: u64,
    },
    /// Rounds all [`BufferKind::Sum`] buffers of the rank into the exit buffers of their tensors.
    Cast {
        /// Bytes read.
        bytes: u64,
    },
    /// Token-wise work.
    Linear {
        /// Tokens.
        tokens: u32,
    },
}

/// One executed instruction, simulated or real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Rank.
    pub rank: u32,
    /// Stream of the rank.
    pub stream: u32,
    /// When it started; for a transfer, when it was posted.
    pub start_ps: u64,
    /// When it ended.
    pub end_ps: u64,
    /// What it was.
    pub what: InstrKind,
    /// Micro-batch.
    pub micro_batch: u16,
}
