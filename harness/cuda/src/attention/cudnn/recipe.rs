use std::rc::Rc;

use skewbench_plan::Pass;

use super::backend::Handle;
use super::graph::{Graph, Memory, Op, Plan, Reduce, Tensor, Type};
use super::key::GraphKey;
use crate::CudaError;
use crate::steps::AttendMask;

/// Tensors that are bound when a plan runs. The number of a role is its tensor's; its offsets have [`offsets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Q = 1,
    K,
    V,
    O,
    Lse,
    DO,
    DQ,
    DK,
    DV,
    /// Sum of dO x O of a row.
    Sum,
    /// dQ in f32, in a layout of cuDNN's own.
    DqSum,
    /// dK of every query head.
    DkHeads,
    /// dV of every query head.
    DvHeads,
    /// Rows of every slot.
    Rows,
    /// Keys of every slot.
    Keys,
}

impl Role {
    /// Number of the tensor.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// Number of the tensor of its offsets.
    pub fn offsets(self) -> i64 {
        100 + self as i64
    }
}

/// Tensors of the card that a plan of this key binds.
pub(super) fn roles(key: &GraphKey) -> Vec<Role> {
    let mut roles = vec![Role::Q, Role::K, Role::V, Role::O, Role::Lse];
    if key.pass == Pass::Backward {
        roles.extend([Role::DO, Role::DQ, Role::DK, Role::DV]);
        roles.extend(scratch_roles(key));
    }
    roles
}

/// Scratch of a backward plan of this key.
pub(super) fn scratch_roles(key: &GraphKey) -> Vec<Role> {
    let mut roles = vec![Role::Sum];
    if !key.repeatable {
        roles.push(Role::DqSum);
    }
    if key.is_ragged() && key.group() > 1 {
        roles.extend([Role::DkHeads, Role::DvHeads]);
    }
    roles
}

/// The role whose offsets a role uses.
///
/// cuDNN rounds the sums of dQ to dQ in one sweep that knows one layout; every other role has offsets of its own.
pub(super) fn offset_role(role: Role) -> Role {
    if role == Role::DqSum { Role::DQ } else { role }
}

/// Builds the plan of a key. `None` where cuDNN has no engine for it.
pub(super) fn build(handle: &Rc<Handle>, key: &GraphKey) -> Result<Option<Plan>, CudaError> {
    let mut recipe = Recipe::new(handle, key)?;
    match key.pass {
        Pass::Forward => recipe.forward()?,
        Pass::Backward => recipe.backward()?,
    }
    recipe.graph.build()
}

const BF16: Type = Type::CUDNN_DATA_BFLOAT16;
const F32: Type = Type::CUDNN_DATA_FLOAT;
const I32: Type = Type::CUDNN_DATA_INT32;
const BOOL: Type = Type::CUDNN_DATA_BOOLEAN;

/// A graph under construction with what all of its parts need. The order of operations is cuDNN's pattern: it matches whole
/// graphs, and neither adds nor drops an operation.
struct Recipe<'k> {
    key: &'k GraphKey,
    graph: Graph,
    /// Places, rows, keys.
    shape: (i64, i64, i64),
    heads: i64,
    kv_heads: i64,
    d: i64,
    rows: Option<Tensor>,
    keys: Option<Tensor>,
    offsets: Vec<(Role, Tensor)>,
}

impl<'k> Recipe<'k> {
    fn new(handle: &Rc<Handle>, key: &'k GraphKey) -> Result<Self, CudaError> {
        let mut graph = Graph::new(handle.clone());
        let shape = key.shape();
        let mut length = |role: Role| {
            key.is_ragged()
                .then(|| graph.tensor(I32, [shape.0, 1, 1, 1], [1; 4], Memory::Bound(role.number())))
                .transpose()
        };
        let (rows, keys) = (length(Role::Rows)?, length(Role::Keys)?);
        Ok(Self {
            key,
            graph,
            shape,
            heads: key.q_heads.into(),
            kv_heads: key.kv_heads.into(),
            d: key.head_dim.into(),
            rows,
            keys,
            offsets: Vec::new(),
        })
    }

    /// How a role is bound: with offsets where slots have them, one tensor of offsets for all roles that share them.
    fn memory(&mut self, role: Role) -> Result<Memory, CudaError> {
        if !self.key.is_ragged() {
            return Ok(Memory::Bound(role.number()));
        }
        let of = offset_role(role);
        let known = self.offsets.iter().find(|(r, _)| *r == of).map(|(_, t)| *t);
        let tensor = match known {
            Some(tensor) => tensor,
            None => {
                let dims = [self.shape.0 + 1, 1, 1, 1];
                let tensor = self.graph.tensor(Type::CUDNN_DATA_INT64, dims, [1; 4], Memory::Bound(of.offsets()))?;
                self.offsets.push((of, tensor));
                tensor
            }
        };
        Ok(Memory::Ragged(role.number(), tensor))
    }

    /// `[place, head, token, d]`, tokens `stride` elements apart.
    fn tokens(&mut self, role: Role, kind: Type, heads: i64, count: i64, stride: u32) -> Result<Tensor, CudaError> {
        let (stride, d) = (i64::from(stride), self.d);
        let memory = self.memory(role)?;
        self.graph.tensor(kind, [self.shape.0, heads, count, d], [count * stride, d, stride, 1], memory)
    }

    /// The same memory as `[place, head, d, token]`.
    fn tokens_transposed(&mut self, role: Role, count: i64, stride: u32) -> Result<Tensor, CudaError> {
        let (stride, d) = (i64::from(stride), self.d);
        let memory = self.memory(role)?;
        self.graph.tensor(BF16, [self.shape.0, self.kv_heads, d, count], [count * stride, d, 1, stride], memory)
    }

    /// `[place, head, row, 1]` f32, rows `stride` elements apart.
    fn row_values(&mut self, role: Role, stride: u32) -> Result<Tensor, CudaError> {
        let (b, q, _) = self.shape;
        let stride = i64::from(stride);
        let memory = self.memory(role)?;
        self.graph.tensor(F32, [b, self.heads, q, 1], [q * stride, 1, stride, 1], memory)
    }

    fn scores(&mut self, kind: Type) -> Result<Tensor, CudaError> {
        let ((b, q, k), h) = (self.shape, self.heads);
        self.graph.tensor(kind, [b, h, q, k], [h * q * k, q * k, k, 1], Memory::Virtual)
    }

    fn scores_transposed(&mut self) -> Result<Tensor, CudaError> {
        let ((b, q, k), h) = (self.shape, self.heads);
        self.graph.tensor(BF16, [b, h, k, q], [h * q * k, q * k, 1, k], Memory::Virtual)
    }

    fn row(&mut self) -> Result<Tensor, CudaError> {
        let ((b, q, _), h) = (self.shape, self.heads);
        self.graph.tensor(F32, [b, h, q, 1], [h * q, q, 1, 1], Memory::Virtual)
    }

    fn score_op(&mut self, op: Op, x: Tensor, b: Option<Tensor>, kind: Type) -> Result<Tensor, CudaError> {
        let y = self.scores(kind)?;
        self.graph.pointwise(op, F32, x, b, None, y)?;
        Ok(y)
    }

    fn index(&mut self, axis: i64, precision: Type, x: Tensor) -> Result<Tensor, CudaError> {
        let y = self.scores(I32)?;
        self.graph.index(axis, precision, x, y)?;
        Ok(y)
    }

    fn logical(&mut self, op: Op, x: Tensor, b: Tensor) -> Result<Tensor, CudaError> {
        let y = self.scores(BOOL)?;
        self.graph.pointwise(op, BOOL, x, Some(b), None, y)?;
        Ok(y)
    }

    fn shift(&mut self, op: Op, x: Tensor, b: Tensor) -> Result<Tensor, CudaError> {
        let y = self.scores(I32)?;
        self.graph.pointwise(op, I32, x, Some(b), None, y)?;
        Ok(y)
    }

    /// Scores where `mask` is true, else minus infinity.
    fn select(&mut self, scores: Tensor, mask: Tensor) -> Result<Tensor, CudaError> {
        let nothing = self.graph.scalar_f32(f32::NEG_INFINITY)?;
        let y = self.scores(F32)?;
        self.graph.pointwise(Op::CUDNN_POINTWISE_BINARY_SELECT, F32, scores, Some(nothing), Some(mask), y)?;
        Ok(y)
    }

    /// Hides what lies behind the lengths of slots.
    fn padding(&mut self, scores: Tensor) -> Result<Tensor, CudaError> {
        let (Some(rows), Some(keys)) = (self.rows, self.keys) else { return Ok(scores) };
        let row = self.index(2, I32, scores)?;
        let column = self.index(3, I32, scores)?;
        let in_rows = self.logical(Op::CUDNN_POINTWISE_CMP_LT, row, rows)?;
        let in_keys = self.logical(Op::CUDNN_POINTWISE_CMP_LT, column, keys)?;
        let inside = self.logical(Op::CUDNN_POINTWISE_LOGICAL_AND, in_rows, in_keys)?;
        self.select(scores, inside)
    }

    /// Hides what the mask of the call hides.
    fn causal(&mut self, scores: Tensor) -> Result<Tensor, CudaError> {
        if self.key.mask == AttendMask::Full {
            return Ok(scores);
        }
        let mut row = self.index(2, F32, scores)?;
        let column = self.index(3, F32, scores)?;
        if self.key.mask == AttendMask::BottomRight {
            let (rows, keys) = match (self.rows, self.keys) {
                (Some(rows), Some(keys)) => (rows, keys),
                _ => {
                    let keys = self.graph.scalar_i32(self.shape.2 as i32)?;
                    (self.graph.scalar_i32(self.shape.1 as i32)?, keys)
                }
            };
            row = self.shift(Op::CUDNN_POINTWISE_ADD, row, keys)?;
            row = self.shift(Op::CUDNN_POINTWISE_SUB, row, rows)?;
        }
        let seen = self.logical(Op::CUDNN_POINTWISE_CMP_GE, row, column)?;
        self.select(scores, seen)
    }

    fn forward(&mut self) -> Result<(), CudaError> {
        let (key, (_, q_count, k_count)) = (self.key, self.shape);
        let q = self.tokens(Role::Q, BF16, self.heads, q_count, key.strides.q)?;
        let k = self.tokens_transposed(Role::K, k_count, key.strides.kv)?;
        let v = self.tokens(Role::V, BF16, self.kv_heads, k_count, key.strides.kv)?;
        let o = self.tokens(Role::O, BF16, self.heads, q_count, key.strides.o)?;
        let lse = self.row_values(Role::Lse, key.strides.lse)?;
        let scale = self.graph.scalar_f32((self.d as f32).sqrt().recip())?;

        let product = self.scores(F32)?;
        self.graph.matmul(q, k, product, [self.rows, self.keys, None])?;
        let scaled = self.score_op(Op::CUDNN_POINTWISE_MUL, product, Some(scale), F32)?;
        let inside = self.padding(scaled)?;
        let seen = self.causal(inside)?;

        let highest = self.row()?;
        self.graph.reduce(Reduce::CUDNN_REDUCE_TENSOR_MAX, seen, highest)?;
        let below = self.score_op(Op::CUDNN_POINTWISE_SUB, seen, Some(highest), F32)?;
        let exponent = self.score_op(Op::CUDNN_POINTWISE_EXP, below, None, F32)?;
        let sum = self.row()?;
        self.graph.reduce(Reduce::CUDNN_REDUCE_TENSOR_ADD, exponent, sum)?;
        let log = self.row()?;
        self.graph.pointwise(Op::CUDNN_POINTWISE_LOG, F32, sum, None, None, log)?;
        self.graph.pointwise(Op::CUDNN_POINTWISE_ADD, F32, highest, Some(log), None, lse)?;
        let p = self.score_op(Op::CUDNN_POINTWISE_DIV, exponent, Some(sum), BF16)?;
        self.graph.matmul(p, v, o, [self.rows, None, self.keys])
    }

    fn backward(&mut self) -> Result<(), CudaError> {
        let (key, (b, q_count, k_count)) = (self.key, self.shape);
        let (h, d) = (self.heads, self.d);
        let strides = key.strides;
        let q = self.tokens(Role::Q, BF16, h, q_count, strides.q)?;
        let k = self.tokens_transposed(Role::K, k_count, strides.kv)?;
        let v = self.tokens_transposed(Role::V, k_count, strides.kv)?;
        let o = self.tokens(Role::O, BF16, h, q_count, strides.o)?;
        let lse = self.row_values(Role::Lse, strides.lse)?;
        let d_o = self.tokens(Role::DO, BF16, h, q_count, strides.d_o)?;
        let dq = self.tokens(Role::DQ, BF16, h, q_count, strides.dq)?;
        let scale = self.graph.scalar_f32((d as f32).sqrt().recip())?;

        let product = {
            let packed = [h * q_count * d, q_count * d, h * d, 1];
            self.graph.tensor(F32, [b, h, q_count, d], packed, Memory::Virtual)?
        };
        self.graph.pointwise(Op::CUDNN_POINTWISE_MUL, F32, d_o, Some(o), None, product)?;
        let row_sum = self.row()?;
        self.graph.reduce(Reduce::CUDNN_REDUCE_TENSOR_ADD, product, row_sum)?;
        // Without this multiplication the sum is never written, and cuDNN says nothing.
        let one = self.graph.scalar_f32(1.0)?;
        let sum = if key.is_ragged() {
            self.row_values(Role::Sum, key.q_heads)?
        } else {
            let packed = [h * q_count, q_count, 1, 1];
            self.graph.tensor(F32, [b, h, q_count, 1], packed, Memory::Bound(Role::Sum.number()))?
        };
        self.graph.pointwise(Op::CUDNN_POINTWISE_MUL, F32, row_sum, Some(one), None, sum)?;

        let product = self.scores(F32)?;
        self.graph.matmul(q, k, product, [self.rows, self.keys, None])?;
        let scaled = self.score_op(Op::CUDNN_POINTWISE_MUL, product, Some(scale), F32)?;
        let inside = self.padding(scaled)?;
        let below = self.score_op(Op::CUDNN_POINTWISE_SUB, inside, Some(lse), F32)?;
        let seen = self.causal(below)?;
        let p = self.score_op(Op::CUDNN_POINTWISE_EXP, seen, None, F32)?;

        let transposed = self.scores_transposed()?;
        self.graph.reshape(p, transposed)?;
        self.key_gradient(Role::DV, Role::DvHeads, transposed, d_o)?;

        let product = self.scores(F32)?;
        self.graph.matmul(d_o, v, product, [self.rows, self.keys, None])?;
        let centred = self.score_op(Op::CUDNN_POINTWISE_SUB, product, Some(sum), F32)?;
        let weighted = self.score_op(Op::CUDNN_POINTWISE_MUL, centred, Some(p), F32)?;
        let ds = self.score_op(Op::CUDNN_POINTWISE_MUL, weighted, Some(scale), F32)?;

        let transposed = self.scores_transposed()?;
        self.graph.reshape(ds, transposed)?;
        self.key_gradient(Role::DK, Role::DkHeads, transposed, q)?;

        self.query_gradient(ds, k, dq)
    }

    /// dK or dV = a transposed score matrix x rows; summed over the query heads of a KV head where there are several.
    fn key_gradient(&mut self, role: Role, per_head: Role, left: Tensor, right: Tensor) -> Result<(), CudaError> {
        let (key, (b, _, k_count)) = (self.key, self.shape);
        let lengths = [self.keys, None, self.rows];
        let result = self.tokens(role, BF16, self.kv_heads, k_count, key.strides.dkv)?;
        if key.group() == 1 {
            return self.graph.matmul(left, right, result, lengths);
        }
        let (h, d) = (self.heads, self.d);
        let heads = if key.is_ragged() {
            self.tokens(per_head, BF16, h, k_count, key.q_width())?
        } else {
            let packed = [h * k_count * d, k_count * d, d, 1];
            self.graph.tensor(BF16, [b, h, k_count, d], packed, Memory::Virtual)?
        };
        self.graph.matmul(left, right, heads, lengths)?;
        self.graph.reduce(Reduce::CUDNN_REDUCE_TENSOR_ADD, heads, result)
    }

    /// dQ = dS x K, through sums in f32, or in a fixed order.
    fn query_gradient(&mut self, ds: Tensor, k: Tensor, dq: Tensor) -> Result<(), CudaError> {
        let (key, (b, q_count, k_count)) = (self.key, self.shape);
        let (h, d) = (self.heads, self.d);
        let stride = i64::from(key.strides.kv);
        let rows = {
            let dims = [b, self.kv_heads, k_count, d];
            let memory = match self.memory(Role::K)? {
                Memory::Ragged(_, offsets) => Memory::VirtualRagged(offsets),
                _ => Memory::Virtual,
            };
            self.graph.tensor(F32, dims, [k_count * stride, d, stride, 1], memory)?
        };
        self.graph.reshape(k, rows)?;
        let lengths = [self.rows, None, self.keys];
        if key.repeatable {
            return self.graph.matmul(ds, rows, dq, lengths);
        }
        let sums = if key.is_ragged() {
            self.tokens(Role::DqSum, F32, h, q_count, key.q_width())?
        } else {
            let packed = [h * q_count * d, q_count * d, d, 1];
            self.graph.tensor(F32, [b, h, q_count, d], packed, Memory::Bound(Role::DqSum.number()))?
        };
        self.graph.matmul(ds, rows, sums, lengths)?;
        self.graph.pointwise(Op::CUDNN_POINTWISE_IDENTITY, F32, sums, None, None, dq)
    }
}
