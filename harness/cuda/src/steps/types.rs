use std::sync::Arc;

use skewbench_exec::{InstrId, InstrKind};
use skewbench_plan::{HeadRange, Pass, Run, Tensor};

/// How steps are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepOptions {
    /// Sums are added in one fixed order, so that they are the same bit by bit in every run; streams then wait for each
    /// other's additions. Otherwise additions that meet are atomic.
    pub repeatable: bool,
}

/// A program of both passes, ready to issue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceProgram {
    /// Every rank.
    pub ranks: Vec<RankDevice>,
}

/// One rank. All addresses are bytes from the start of its arena, one allocation that both passes share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankDevice {
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Where inputs (Q, K, V, dO) lie.
    pub inputs: Vec<Region>,
    /// Where results (O, LSE, dQ, dK, dV) end up: O and LSE after the forward, gradients after the backward. LSE that only
    /// a sender keeps comes before that of homes, which have the last word.
    pub outputs: Vec<Region>,
    /// Forward pass.
    pub forward: PassSteps,
    /// Backward pass.
    pub backward: PassSteps,
}

impl RankDevice {
    /// The given pass.
    pub fn pass(&self, pass: Pass) -> &PassSteps {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
        }
    }
}

/// Rows of a tensor in the arena: `[rows, heads, width]`, token-major, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// First byte.
    pub offset: u64,
    /// Tensor.
    pub tensor: Tensor,
    /// Element type.
    pub element: Element,
    /// Heads.
    pub heads: HeadRange,
    /// Elements of a row and head: head_dim, 1 for LSE.
    pub width: u32,
    /// Which rows.
    pub runs: Arc<[Run]>,
}

/// What a rank issues in a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassSteps {
    /// One step for every instruction of every stream of the program, at the same index.
    pub streams: Vec<Vec<Step>>,
    /// Issued before everything else, inside the timed pass: empties sums.
    pub setup: Vec<Work>,
}

/// What one instruction issues.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The instruction.
    pub instr: InstrKind,
    /// Micro-batch.
    pub micro_batch: u16,
    /// Instructions of other streams of the rank that must end first.
    pub after: Vec<InstrId>,
    /// In this order.
    pub work: Vec<Work>,
}

/// One thing to issue.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Sets 4-byte words.
    Fill {
        /// First byte; a multiple of 4.
        offset: u64,
        /// Words.
        words: u64,
        /// Bits of every word.
        bits: u32,
    },
    /// One kernel that moves rows.
    Rows(Vec<RowMove>),
    /// One attention kernel call.
    Attend(AttendCall),
    /// One grouped transfer.
    Exchange(Exchange),
    /// Waits for an instruction of another stream of the rank.
    Turn(InstrId),
}

/// Element types in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// bfloat16.
    Bf16,
    /// IEEE single precision.
    F32,
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Moves `rows x heads x width` elements. Heads of a row follow each other without gaps at both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowMove {
    /// First byte of the source.
    pub from: u64,
    /// First byte of the destination.
    pub to: u64,
    /// Rows.
    pub rows: u32,
    /// Heads.
    pub heads: u32,
    /// Elements of a row and head.
    pub width: u32,
    /// Bytes between rows of the source; 0 where every row is written from one row of a constant.
    pub from_stride: u64,
    /// Bytes between rows of the destination.
    pub to_stride: u64,
    /// Element type of the source.
    pub from_element: Element,
    /// Element type of the destination.
    pub to_element: Element,
    /// What is done with them.
    pub action: Action,
}

/// What a [`RowMove`] does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Destination = source, rounded where it has to be.
    Write,
    /// Destination (f32) += source. Atomic: others may add to the same elements.
    Add,
    /// As write; then every word of the source (f32) gets these bits.
    Take {
        /// 0 or minus infinity.
        bits: u32,
    },
    /// Merges an output and its LSE into an output (f32) and its LSE. LSE is f32, one element a row and head; a
    /// destination whose LSE is minus infinity is empty, whatever its output holds; a source whose LSE is minus infinity
    /// adds nothing. Exclusive: others may merge into the same row and head.
    Merge {
        /// First byte of the source's LSE.
        from_lse: u64,
        /// First byte of the destination's LSE.
        to_lse: u64,
        /// Bytes between rows of the source's LSE.
        from_lse_stride: u64,
        /// Bytes between rows of the destination's LSE.
        to_lse_stride: u64,
    },
}

/// Masks of kernel calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttendMask {
    /// Every row sees every key.
    Full,
    /// As many rows as keys in every slot: row i sees keys 0..=i. The same function as bottom right, and faster.
    TopLeft,
    /// The last row sees the last key. Rows above the first key see none.
    BottomRight,
}

/// Elements between rows (tokens) of every operand of a call; heads of a row follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Strides {
    /// Q.
    pub q: u32,
    /// K and V.
    pub kv: u32,
    /// O: result of the forward, operand of the backward.
    pub o: u32,
    /// LSE, likewise.
    pub lse: u32,
    /// dO; 0 in the forward, as those that follow.
    pub d_o: u32,
    /// dQ: `q_heads x head_dim`.
    pub dq: u32,
    /// dK and dV.
    pub dkv: u32,
}

/// One attention kernel call over several slots: Q, K, V, O, dO, dQ, dK, dV bf16, LSE f32. All results are written.
///
/// Operands and results of a forward, and of a backward of one slot, lie anywhere but dQ, whose rows have no gaps. In a
/// backward of several slots all rows (Q, O, LSE, dO, dQ) and all gradients of keys (dK, dV) of the slots follow each other
/// without gaps, slot after slot in the order of the call; K and V still lie anywhere. cuDNN keeps sums in scratch that it
/// reads and writes by the offsets of different tensors, which it silently takes to be the same: of Q and dQ, of dK and its
/// sums over query heads. Kernels refuse other calls.
#[derive(Clone, Debug, PartialEq)]
pub struct AttendCall {
    /// Pass.
    pub pass: Pass,
    /// Mask of every slot.
    pub mask: AttendMask,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads, of which each serves `q_heads / kv_heads` neighbouring query heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Distances between rows.
    pub strides: Strides,
    /// The slots; every one has rows and keys. In a forward sorted by falling work.
    pub slots: Vec<Slot>,
}

/// One tile of a call: first bytes of its operands and results in the arena, multiples of 16 (LSE: of 4; dQ: that of the
/// first slot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Query rows.
    pub q_rows: u32,
    /// Keys.
    pub k_rows: u32,
    /// Q.
    pub q: u64,
    /// K.
    pub k: u64,
    /// V.
    pub v: u64,
    /// O.
    pub o: u64,
    /// LSE.
    pub lse: u64,
    /// dO.
    pub d_o: u64,
    /// dQ. Those of the slots follow each other without gaps, in the order of the slots, in rows of all query heads of the
    /// call: cuDNN's sums in f32 and dQ have one layout.
    pub dq: u64,
    /// dK.
    pub dk: u64,
    /// dV.
    pub dv: u64,
}

/// A rank's part in a grouped call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Number of the call in its pass.
    pub call: u32,
    /// What is sent, sorted by peer; the n-th message to a peer is the n-th that the peer receives from this rank.
    pub sends: Vec<Message>,
    /// What is received, sorted by peer.
    pub receives: Vec<Message>,
}

/// Contiguous bytes for or from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub peer: u32,
    /// First byte in this rank's arena.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}
