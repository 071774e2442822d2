use std::ffi::{c_int, c_void};
use std::rc::Rc;

pub(super) use cudarc::cudnn::sys::cudnnBackendAttributeName_t as Name;
pub(super) use cudarc::cudnn::sys::cudnnBackendAttributeType_t as Kind;
use cudarc::cudnn::sys::cudnnBackendDescriptor_t as Raw;
pub(super) use cudarc::cudnn::sys::cudnnBackendDescriptorType_t as Descriptor;
use cudarc::cudnn::sys::cudnnHandle_t;
use cudarc::driver::sys::CUstream;

use crate::CudaError;
use crate::libraries::CuDnnTable;

/// A handle of one thread and card.
pub(super) struct Handle {
    pub table: &'static CuDnnTable,
    pub raw: cudnnHandle_t,
    pub card: usize,
}

impl Handle {
    /// Makes a handle for the context that is current.
    pub fn new(table: &'static CuDnnTable, card: usize) -> Result<Rc<Self>, CudaError> {
        let mut handle = Self { table, raw: std::ptr::null_mut(), card };
        // SAFETY: the pointer is that of a live handle.
        let status = unsafe { (table.create)(&mut handle.raw) };
        handle.check(status, "cudnnCreate")?;
        Ok(Rc::new(handle))
    }

    /// Sets the stream of all that follows.
    pub fn set_stream(&self, stream: CUstream) -> Result<(), CudaError> {
        // SAFETY: the handle lives; the caller's stream belongs to its context.
        let status = unsafe { (self.table.set_stream)(self.raw, stream) };
        self.check(status, "cudnnSetStream")
    }

    /// An error with cuDNN's message unless the status is success.
    pub fn check(&self, status: c_int, call: &str) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let detail = self.table.last_error();
        let why = if detail.is_empty() { format!("status {status}") } else { format!("status {status}: {detail}") };
        Err(CudaError::Call { card: self.card, call: call.to_owned(), why })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the handle was made by this table and is freed once; plans that use it hold it.
            unsafe { (self.table.destroy)(self.raw) };
        }
    }
}

/// Descriptors that are freed together, in reverse order.
pub(super) struct Descriptors {
    pub handle: Rc<Handle>,
    owned: Vec<Raw>,
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for &raw in self.owned.iter().rev() {
            // SAFETY: made by this table, freed once, after those that were made from it.
            unsafe { (self.handle.table.destroy_descriptor)(raw) };
        }
    }
}

impl Descriptors {
    pub fn new(handle: Rc<Handle>) -> Self {
        Self { handle, owned: Vec::new() }
    }

    pub fn create(&mut self, kind: Descriptor) -> Result<Raw, CudaError> {
        let mut raw: Raw = std::ptr::null_mut();
        // SAFETY: the pointer is that of a live variable.
        let status = unsafe { (self.handle.table.create_descriptor)(kind, &mut raw) };
        self.handle.check(status, &format!("cudnnBackendCreateDescriptor({kind:?})"))?;
        self.owned.push(raw);
        Ok(raw)
    }

    /// Sets an attribute to some values. `V` is the type that `kind` means: one byte for booleans, `i64` and `f32` for
    /// numbers, an enumeration of four bytes for others, a pointer for descriptors.
    pub fn set<V>(&self, raw: Raw, name: Name, kind: Kind, values: &[V]) -> Result<(), CudaError> {
        // SAFETY: the descriptor lives; cuDNN copies `values.len()` values of the given kind before it returns.
        let status = unsafe {
            (self.handle.table.set_attribute)(raw, name, kind, values.len() as i64, values.as_ptr().cast::<c_void>())
        };
        self.handle.check(status, &format!("cudnnBackendSetAttribute({name:?})"))
    }

    pub fn finalize(&self, raw: Raw, what: &str) -> Result<(), CudaError> {
        // SAFETY: the descriptor lives.
        let status = unsafe { (self.handle.table.finalize)(raw) };
        self.handle.check(status, &format!("cudnnBackendFinalize({what})"))
    }

    /// Reads up to `values.len()` values; returns how many there are.
    pub fn get<V>(&self, raw: Raw, name: Name, kind: Kind, values: &mut [V]) -> Result<i64, CudaError> {
        let mut count = 0;
        let into = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast::<c_void>() };
        // SAFETY: the descriptor lives; cuDNN writes at most `values.len()` values of the given kind.
        let status =
            unsafe { (self.handle.table.get_attribute)(raw, name, kind, values.len() as i64, &mut count, into) };
        self.handle.check(status, &format!("cudnnBackendGetAttribute({name:?})"))?;
        Ok(count)
    }
}
