use std::ffi::c_void;
use std::rc::Rc;

pub(super) use cudarc::cudnn::sys::cudnnDataType_t as Type;
pub(super) use cudarc::cudnn::sys::cudnnPointwiseMode_t as Op;
pub(super) use cudarc::cudnn::sys::cudnnReduceTensorOp_t as Reduce;
use cudarc::cudnn::sys::{cudnnBackendDescriptor_t as Raw, cudnnBackendHeurMode_t};

use super::backend::{Descriptor, Descriptors, Handle, Kind, Name};
use super::key::ALIGNMENT;
use crate::CudaError;

/// A tensor of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    raw: Raw,
}

/// What memory a tensor has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memory {
    /// None: it passes from one operation to the next.
    Virtual,
    /// None, and it is read from memory that has these offsets.
    VirtualRagged(Tensor),
    /// Bound under this number when the plan runs.
    Bound(i64),
    /// Bound, with an offset for every slot.
    Ragged(i64, Tensor),
}

/// Numbers of tensors that the graph gives itself start here.
const FIRST_OWN: i64 = 1000;

/// A graph of operations under construction.
pub(super) struct Graph {
    descriptors: Descriptors,
    operations: Vec<Raw>,
    scalars: Vec<(i64, Box<u32>)>,
    next: i64,
}

impl Graph {
    pub fn new(handle: Rc<Handle>) -> Self {
        Self { descriptors: Descriptors::new(handle), operations: Vec::new(), scalars: Vec::new(), next: FIRST_OWN }
    }

    fn number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Declares a tensor.
    pub fn tensor(
        &mut self,
        kind: Type,
        dims: [i64; 4],
        strides: [i64; 4],
        memory: Memory,
    ) -> Result<Tensor, CudaError> {
        let raw = self.describe(kind, dims, strides, memory)?;
        self.descriptors.finalize(raw, "tensor")?;
        Ok(Tensor { raw })
    }

    fn describe(&mut self, kind: Type, dims: [i64; 4], strides: [i64; 4], memory: Memory) -> Result<Raw, CudaError> {
        let number = match memory {
            Memory::Virtual | Memory::VirtualRagged(_) => self.number(),
            Memory::Bound(number) | Memory::Ragged(number, _) => number,
        };
        let raw = self.descriptors.create(Descriptor::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        let d = &self.descriptors;
        d.set(raw, Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &[kind])?;
        d.set(raw, Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Kind::CUDNN_TYPE_INT64, &dims)?;
        d.set(raw, Name::CUDNN_ATTR_TENSOR_STRIDES, Kind::CUDNN_TYPE_INT64, &strides)?;
        d.set(raw, Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Kind::CUDNN_TYPE_INT64, &[number])?;
        d.set(raw, Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Kind::CUDNN_TYPE_INT64, &[ALIGNMENT as i64])?;
        if let Memory::Virtual | Memory::VirtualRagged(_) = memory {
            d.set(raw, Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Kind::CUDNN_TYPE_BOOLEAN, &[1u8])?;
        }
        if let Memory::VirtualRagged(offsets) | Memory::Ragged(_, offsets) = memory {
            let name = Name::CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC;
            d.set(raw, name, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[offsets.raw])?;
        }
        Ok(raw)
    }

    fn scalar(&mut self, kind: Type, bits: u32) -> Result<Tensor, CudaError> {
        // Rank 4 like the tensors it meets: cuDNN refuses other ranks.
        let number = self.number();
        let raw = self.describe(kind, [1; 4], [1; 4], Memory::Bound(number))?;
        self.descriptors.set(raw, Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, Kind::CUDNN_TYPE_BOOLEAN, &[1u8])?;
        self.descriptors.finalize(raw, "scalar")?;
        self.scalars.push((number, Box::new(bits)));
        Ok(Tensor { raw })
    }

    /// A constant of the graph.
    pub fn scalar_f32(&mut self, value: f32) -> Result<Tensor, CudaError> {
        self.scalar(Type::CUDNN_DATA_FLOAT, value.to_bits())
    }

    /// A constant of the graph.
    pub fn scalar_i32(&mut self, value: i32) -> Result<Tensor, CudaError> {
        self.scalar(Type::CUDNN_DATA_INT32, value.cast_unsigned())
    }

    /// `y = op(x, b)`, computed in `precision`; `select` picks x where it is true, else b.
    pub fn pointwise(
        &mut self,
        op: Op,
        precision: Type,
        x: Tensor,
        b: Option<Tensor>,
        select: Option<Tensor>,
        y: Tensor,
    ) -> Result<(), CudaError> {
        self.pointwise_axis(op, precision, None, [Some(x), b, select], y)
    }

    /// `y` = the index of every element along an axis; x only gives the shape.
    pub fn index(&mut self, axis: i64, precision: Type, x: Tensor, y: Tensor) -> Result<(), CudaError> {
        self.pointwise_axis(Op::CUDNN_POINTWISE_GEN_INDEX, precision, Some(axis), [Some(x), None, None], y)
    }

    fn pointwise_axis(
        &mut self,
        op: Op,
        precision: Type,
        axis: Option<i64>,
        [x, b, select]: [Option<Tensor>; 3],
        y: Tensor,
    ) -> Result<(), CudaError> {
        let mode = self.descriptors.create(Descriptor::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        let d = &self.descriptors;
        d.set(mode, Name::CUDNN_ATTR_POINTWISE_MODE, Kind::CUDNN_TYPE_POINTWISE_MODE, &[op])?;
        d.set(mode, Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Kind::CUDNN_TYPE_DATA_TYPE, &[precision])?;
        if let Some(axis) = axis {
            d.set(mode, Name::CUDNN_ATTR_POINTWISE_AXIS, Kind::CUDNN_TYPE_INT64, &[axis])?;
        }
        d.finalize(mode, "pointwise")?;
        let operands = [
            (Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x),
            (Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b),
            (Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC, select),
            (Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, Some(y)),
        ];
        self.operation(
            Descriptor::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
            &[(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, Some(Tensor { raw: mode }))],
            &operands,
            &format!("{op:?}"),
        )
    }

    /// `y` = x reduced along the dimensions in which y has length 1 (or fewer heads).
    pub fn reduce(&mut self, op: Reduce, x: Tensor, y: Tensor) -> Result<(), CudaError> {
        let mode = self.descriptors.create(Descriptor::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        let d = &self.descriptors;
        let float = [Type::CUDNN_DATA_FLOAT];
        d.set(mode, Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &float)?;
        d.set(mode, Name::CUDNN_ATTR_REDUCTION_OPERATOR, Kind::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &[op])?;
        d.finalize(mode, "reduction")?;
        self.operation(
            Descriptor::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
            &[(Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, Some(Tensor { raw: mode }))],
            &[
                (Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, Some(x)),
                (Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, Some(y)),
            ],
            &format!("{op:?}"),
        )
    }

    /// `c = a x b`. `lengths` are the tensors that hold the real m, n and k of every slot.
    pub fn matmul(&mut self, a: Tensor, b: Tensor, c: Tensor, lengths: [Option<Tensor>; 3]) -> Result<(), CudaError> {
        let mode = self.descriptors.create(Descriptor::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        let d = &self.descriptors;
        let float = [Type::CUDNN_DATA_FLOAT];
        d.set(mode, Name::CUDNN_ATTR_MATMUL_COMP_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &float)?;
        d.set(mode, Name::CUDNN_ATTR_MATMUL_PADDING_VALUE, Kind::CUDNN_TYPE_DOUBLE, &[0f64])?;
        d.finalize(mode, "matmul")?;
        let [m, n, k] = lengths;
        self.operation(
            Descriptor::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
            &[(Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, Some(Tensor { raw: mode }))],
            &[
                (Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, Some(a)),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, Some(b)),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, Some(c)),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n),
                (Name::CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k),
            ],
            "matmul",
        )
    }

    /// `y` = x with the dims and strides of y.
    pub fn reshape(&mut self, x: Tensor, y: Tensor) -> Result<(), CudaError> {
        self.operation(
            Descriptor::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
            &[],
            &[(Name::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, Some(x)), (Name::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, Some(y))],
            "reshape",
        )
    }

    fn operation(
        &mut self,
        kind: Descriptor,
        mode: &[(Name, Option<Tensor>)],
        operands: &[(Name, Option<Tensor>)],
        what: &str,
    ) -> Result<(), CudaError> {
        let raw = self.descriptors.create(kind)?;
        for &(name, tensor) in mode.iter().chain(operands) {
            if let Some(tensor) = tensor {
                self.descriptors.set(raw, name, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[tensor.raw])?;
            }
        }
        self.descriptors.finalize(raw, &format!("operation {} {what}", self.operations.len() + 1))?;
        self.operations.push(raw);
        Ok(())
    }

    /// Builds the plan of the graph, with the first engine that cuDNN offers. `None` where it offers none.
    pub fn build(mut self) -> Result<Option<Plan>, CudaError> {
        let d = &mut self.descriptors;
        let handle = [d.handle.raw];
        let graph = d.create(Descriptor::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        d.set(graph, Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &self.operations)?;
        d.set(graph, Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Kind::CUDNN_TYPE_HANDLE, &handle)?;
        d.finalize(graph, "graph")?;

        let heuristics = d.create(Descriptor::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        let graphs = [graph];
        d.set(heuristics, Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &graphs)?;
        let mode = [cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A];
        d.set(heuristics, Name::CUDNN_ATTR_ENGINEHEUR_MODE, Kind::CUDNN_TYPE_HEUR_MODE, &mode)?;
        d.finalize(heuristics, "heuristics")?;
        let results = Name::CUDNN_ATTR_ENGINEHEUR_RESULTS;
        let most = d.get::<Raw>(heuristics, results, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut [])?;
        let mut configurations = Vec::new();
        for _ in 0..most {
            configurations.push(d.create(Descriptor::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?);
        }
        if configurations.is_empty() {
            return Ok(None);
        }
        let viable = d.get(heuristics, results, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut configurations)?;
        if viable < 1 {
            return Ok(None);
        }
        let configuration = configurations[0];

        let plan = d.create(Descriptor::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        d.set(
            plan,
            Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
            Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR,
            &[configuration],
        )?;
        d.set(plan, Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Kind::CUDNN_TYPE_HANDLE, &handle)?;
        d.finalize(plan, "plan")?;
        let mut workspace = [0i64];
        d.get(plan, Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Kind::CUDNN_TYPE_INT64, &mut workspace)?;
        let engine = engine_of(d, configuration).ok();
        Ok(Some(Plan {
            raw: plan,
            workspace: workspace[0].max(0) as u64,
            engine,
            scalars: self.scalars,
            descriptors: self.descriptors,
        }))
    }
}

fn engine_of(d: &mut Descriptors, configuration: Raw) -> Result<i64, CudaError> {
    let mut engine = [d.create(Descriptor::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?];
    d.get(configuration, Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut engine)?;
    let mut index = [0i64];
    d.get(engine[0], Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, Kind::CUDNN_TYPE_INT64, &mut index)?;
    Ok(index[0])
}

/// A graph that can run.
pub(super) struct Plan {
    raw: Raw,
    /// Bytes of workspace.
    pub workspace: u64,
    /// Number of cuDNN's engine, where it tells.
    pub engine: Option<i64>,
    scalars: Vec<(i64, Box<u32>)>,
    descriptors: Descriptors,
}

impl Plan {
    /// Binds addresses on the card to the numbers of tensors.
    pub fn bind(self: &Rc<Self>, tensors: &[(i64, u64)], workspace: u64) -> Result<Bound, CudaError> {
        let mut pack = Descriptors::new(self.descriptors.handle.clone());
        let raw = pack.create(Descriptor::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        let scalars = self.scalars.iter().map(|(number, bits)| (*number, std::ptr::from_ref::<u32>(bits) as u64));
        let (numbers, pointers): (Vec<i64>, Vec<u64>) = tensors.iter().copied().chain(scalars).unzip();
        pack.set(raw, Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Kind::CUDNN_TYPE_VOID_PTR, &pointers)?;
        pack.set(raw, Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Kind::CUDNN_TYPE_INT64, &numbers)?;
        pack.set(raw, Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Kind::CUDNN_TYPE_VOID_PTR, &[workspace as *mut c_void])?;
        pack.finalize(raw, "variant pack")?;
        Ok(Bound { plan: self.clone(), pack, raw })
    }
}

/// A plan with the addresses that it works on.
pub(super) struct Bound {
    plan: Rc<Plan>,
    pack: Descriptors,
    raw: Raw,
}

impl Bound {
    /// Enqueues the plan on the stream of the handle.
    pub fn execute(&self) -> Result<(), CudaError> {
        let handle = &self.pack.handle;
        // SAFETY: plan and pack live and were made with this handle; the caller vouches for the addresses in the pack.
        let status = unsafe { (handle.table.execute)(handle.raw, self.plan.raw, self.raw) };
        handle.check(status, "cudnnBackendExecute")
    }
}
