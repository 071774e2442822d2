use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaStream};

use super::backend::Handle;
use super::graph::{Bound, Plan};
use super::key::{CuDnnOptions, Form, GraphKey, groups};
use super::layout::layout;
use super::recipe;
use crate::CudaError;
use crate::attention::memory::{Buffer, Scratch, upload};
use crate::attention::valid::valid;
use crate::attention::{Attention, CallId};
use crate::libraries::{CuDnnTable, cudnn, driver, fail};
use crate::steps::AttendCall;

/// Attention by cuDNN's fused kernels.
pub struct CuDnn {
    calls: Vec<Vec<Run>>,
    plans: HashMap<GraphKey, (Rc<Plan>, u64)>,
    uses: u64,
    built: Vec<BuiltGraph>,
    scratch: Scratch,
    options: CuDnnOptions,
    context: Arc<CudaContext>,
    handle: Rc<Handle>,
}

/// A graph that was built.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltGraph {
    /// What it serves.
    pub key: String,
    /// How long it took.
    pub seconds: f64,
    /// Number of cuDNN's engine, where it tells: it differs between versions.
    pub engine: Option<i64>,
    /// Bytes of workspace.
    pub workspace: u64,
}

/// A plan for some slots of a call.
struct Run {
    plan: Rc<Plan>,
    operands: Vec<(i64, u64)>,
    in_scratch: Vec<(i64, u64)>,
    workspace: u64,
    scratch_bytes: u64,
    in_table: Vec<(i64, u64)>,
    table: Option<Buffer<i32>>,
    bound: Option<(CUdeviceptr, CUdeviceptr, Bound)>,
}

/// Most plans of exact shapes that are kept.
const EXACT: usize = 64;

impl CuDnn {
    /// Opens cuDNN for the card of a context.
    ///
    /// # Errors
    /// cuDNN is absent or does not start.
    pub fn open(context: &Arc<CudaContext>, options: CuDnnOptions) -> Result<Self, CudaError> {
        driver()?;
        let table: &'static CuDnnTable = cudnn()?;
        let card = context.ordinal();
        context.bind_to_thread().map_err(|e| fail(card, "cuCtxSetCurrent", e))?;
        let handle = Handle::new(table, card)?;
        table.one_copy()?;
        Ok(Self {
            calls: Vec::new(),
            plans: HashMap::new(),
            uses: 0,
            built: Vec::new(),
            scratch: Scratch::default(),
            options,
            context: context.clone(),
            handle,
        })
    }

    fn plan(&mut self, key: GraphKey) -> Result<Rc<Plan>, CudaError> {
        self.uses += 1;
        if let Some((plan, used)) = self.plans.get_mut(&key) {
            *used = self.uses;
            return Ok(plan.clone());
        }
        let start = Instant::now();
        let unsupported = |why: String| CudaError::Unsupported { kernel: "cuDNN", what: key.to_string(), why };
        let plan = match recipe::build(&self.handle, &key) {
            Ok(Some(plan)) => Rc::new(plan),
            Ok(None) => {
                return Err(unsupported(
                    "it has no engine for the graph; run with CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stderr to see why"
                        .to_owned(),
                ));
            }
            Err(CudaError::Call { call, why, .. }) => return Err(unsupported(format!("{call}: {why}"))),
            Err(error) => return Err(error),
        };
        if self.built.is_empty() {
            self.handle.table.one_copy()?;
        }
        self.built.push(BuiltGraph {
            key: key.to_string(),
            seconds: start.elapsed().as_secs_f64(),
            engine: plan.engine,
            workspace: plan.workspace,
        });
        if matches!(key.form, Form::Dense { .. }) {
            let exact = self.plans.iter().filter(|(k, _)| matches!(k.form, Form::Dense { .. }));
            if exact.clone().count() >= EXACT
                && let Some(oldest) = exact.min_by_key(|(_, (_, used))| *used).map(|(k, _)| k.clone())
            {
                self.plans.remove(&oldest);
            }
        }
        self.plans.insert(key, (plan.clone(), self.uses));
        Ok(plan)
    }
}

impl Attention for CuDnn {
    fn name(&self) -> &'static str {
        "cuDNN"
    }

    fn built(&self) -> &[BuiltGraph] {
        &self.built
    }

    fn prepare(&mut self, call: &AttendCall, stream: &Arc<CudaStream>) -> Result<CallId, CudaError> {
        valid(self.name(), call)?;
        let card = self.context.ordinal();
        self.context.bind_to_thread().map_err(|e| fail(card, "cuCtxSetCurrent", e))?;
        let mut runs = Vec::new();
        for slots in groups(call, &self.options) {
            let key = GraphKey::new(call, slots, &self.options);
            let plan = self.plan(key.clone())?;
            let layout = layout(&key, slots, plan.workspace);
            self.scratch.reserve(stream, layout.scratch_bytes)?;
            let table = if layout.words.is_empty() { None } else { Some(upload(stream, &layout.words)?) };
            runs.push(Run {
                plan,
                operands: layout.operands,
                in_scratch: layout.scratch,
                workspace: layout.workspace,
                scratch_bytes: layout.scratch_bytes,
                in_table: layout.table,
                table,
                bound: None,
            });
        }
        self.calls.push(runs);
        Ok(CallId(self.calls.len() - 1))
    }

    fn enqueue(&mut self, call: CallId, arena: CUdeviceptr, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let card = self.context.ordinal();
        self.context.bind_to_thread().map_err(|e| fail(card, "cuCtxSetCurrent", e))?;
        let runs = self
            .calls
            .get_mut(call.0)
            .ok_or_else(|| CudaError::Program(format!("attention call {} was not prepared", call.0)))?;
        self.handle.set_stream(stream.cu_stream())?;
        for run in runs {
            let scratch = self.scratch.address(stream, run.scratch_bytes)?;
            let bound = match &run.bound {
                Some((a, s, bound)) if (*a, *s) == (arena, scratch) => bound,
                _ => {
                    let table = run.table.as_ref().map_or(0, |t| t.address);
                    let at = |of: &[(i64, u64)], base: u64| of.iter().map(|(n, b)| (*n, base + b)).collect::<Vec<_>>();
                    let mut tensors = at(&run.operands, arena);
                    tensors.extend(at(&run.in_scratch, scratch));
                    tensors.extend(at(&run.in_table, table));
                    let bound = run.plan.bind(&tensors, scratch + run.workspace)?;
                    &run.bound.insert((arena, scratch, bound)).2
                }
            };
            bound.execute()?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.scratch.clear();
    }
}
