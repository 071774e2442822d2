//! Times matrix products with cublasLt.

use std::ffi::c_void;
use std::ptr::{from_ref, null_mut};
use std::sync::Arc;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cudaDataType,
};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DriverError};

use crate::CudaError;
use crate::libraries::{CublasLtTable, cublaslt, driver, fail};

/// A product of `[rows, inner]` and `[inner, columns]`: activations of `rows` tokens with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmShape {
    /// Tokens.
    pub rows: u32,
    /// Features of the result.
    pub columns: u32,
    /// Features of the operand.
    pub inner: u32,
}

impl GemmShape {
    /// FLOPs of the product.
    pub fn flops(self) -> f64 {
        2.0 * f64::from(self.rows) * f64::from(self.columns) * f64::from(self.inner)
    }
}

/// Times bf16 products with f32 sums.
pub trait GemmTimer {
    /// Device times of `repeats` products, nanoseconds, after `warm_up` untimed ones. Operands are random.
    ///
    /// # Errors
    /// No algorithm supports the shape; no memory is left; the card fails.
    fn time(&mut self, shape: GemmShape, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError>;
}

/// Scratch of a product; algorithms that need more are not used.
const WORKSPACE_BYTES: usize = 64 << 20;

/// [`GemmTimer`] by cublasLt on one card.
pub struct CublasLt {
    table: &'static CublasLtTable,
    handle: cublasLtHandle_t,
    stream: Arc<CudaStream>,
    workspace: CudaSlice<u8>,
}

impl CublasLt {
    /// Opens cublasLt for a card.
    ///
    /// # Errors
    /// There is no driver, no such card or no cublasLt.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        driver()?;
        let table = cublaslt()?;
        let context = CudaContext::new(ordinal).map_err(|e| fail(ordinal, "cuDevicePrimaryCtxRetain", e))?;
        let stream = context.new_stream().map_err(|e| fail(ordinal, "cuStreamCreate", e))?;
        context.bind_to_thread().map_err(|e| fail(ordinal, "cuCtxSetCurrent", e))?;
        let workspace = stream.alloc_zeros(WORKSPACE_BYTES).map_err(|e| fail(ordinal, "cuMemAllocAsync", e))?;
        let mut handle = null_mut();
        // SAFETY: the pointer is that of a live handle; a context is current.
        check(ordinal, "cublasLtCreate", unsafe { (table.create)(&raw mut handle) })?;
        Ok(Self { table, handle, stream, workspace })
    }

    fn card(&self) -> usize {
        self.stream.context().ordinal()
    }

    fn failed(&self, call: &'static str) -> impl Fn(DriverError) -> CudaError + use<> {
        let card = self.card();
        move |error| fail(card, call, error)
    }

    /// A matrix of bf16 numbers in [-1, 1), of a fixed pattern without long runs.
    fn random(&self, elements: usize) -> Result<CudaSlice<u16>, CudaError> {
        let block: Vec<u16> = (0..elements.min(1 << 20))
            .map(|i| {
                let hash = (i as u32).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b) >> 16;
                half::bf16::from_f32(hash as f32 / 32_768.0 - 1.0).to_bits()
            })
            .collect();
        let mut matrix = self.stream.alloc_zeros::<u16>(elements).map_err(self.failed("cuMemAllocAsync"))?;
        let mut start = 0;
        while start < elements {
            let end = elements.min(start + block.len());
            let mut part = matrix.slice_mut(start..end);
            self.stream.memcpy_htod(&block[..end - start], &mut part).map_err(self.failed("cuMemcpyHtoDAsync"))?;
            start = end;
        }
        Ok(matrix)
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: the handle was made by this library and is used no more. A status at the end helps nobody.
        let _status = unsafe { (self.table.destroy)(self.handle) };
    }
}

/// Descriptors of one product, freed together.
struct Described {
    table: &'static CublasLtTable,
    product: cublasLtMatmulDesc_t,
    preference: cublasLtMatmulPreference_t,
    layouts: [cublasLtMatrixLayout_t; 3],
}

impl Described {
    /// In cublasLt's column-major order: the transposed result `[columns, rows]` is the weight, stored `[columns, inner]` row
    /// by row and so transposed, times the activations.
    fn new(table: &'static CublasLtTable, card: usize, shape: GemmShape) -> Result<Self, CudaError> {
        let mut all = Self { table, product: null_mut(), preference: null_mut(), layouts: [null_mut(); 3] };
        let transposed: i32 = 1;
        let (m, n, k) = (u64::from(shape.columns), u64::from(shape.rows), u64::from(shape.inner));
        // SAFETY: pointers are those of live fields and of values with the size that is given; descriptors are used after they
        // were made.
        unsafe {
            let made = (table.desc_create)(
                &raw mut all.product,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cudaDataType::CUDA_R_32F,
            );
            check(card, "cublasLtMatmulDescCreate", made)?;
            let set = (table.desc_set)(
                all.product,
                cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                from_ref(&transposed).cast(),
                size_of::<i32>(),
            );
            check(card, "cublasLtMatmulDescSetAttribute", set)?;
            for (slot, (rows, columns)) in all.layouts.iter_mut().zip([(k, m), (k, n), (m, n)]) {
                let made = (table.layout_create)(slot, cudaDataType::CUDA_R_16BF, rows, columns, rows as i64);
                check(card, "cublasLtMatrixLayoutCreate", made)?;
            }
            check(card, "cublasLtMatmulPreferenceCreate", (table.preference_create)(&raw mut all.preference))?;
            let set = (table.preference_set)(
                all.preference,
                cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                from_ref(&WORKSPACE_BYTES).cast(),
                size_of::<usize>(),
            );
            check(card, "cublasLtMatmulPreferenceSetAttribute", set)?;
        }
        Ok(all)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: each was made by this library, or is null and left out; none is used any more.
        unsafe {
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                let _status = (self.table.layout_destroy)(layout);
            }
            if !self.preference.is_null() {
                let _status = (self.table.preference_destroy)(self.preference);
            }
            if !self.product.is_null() {
                let _status = (self.table.desc_destroy)(self.product);
            }
        }
    }
}

impl GemmTimer for CublasLt {
    fn time(&mut self, shape: GemmShape, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let card = self.card();
        self.stream.context().bind_to_thread().map_err(self.failed("cuCtxSetCurrent"))?;
        let elements = |a: u32, b: u32| a as usize * b as usize;
        let weight = self.random(elements(shape.columns, shape.inner))?;
        let input = self.random(elements(shape.rows, shape.inner))?;
        let zeros = self.stream.alloc_zeros::<u16>(elements(shape.rows, shape.columns));
        let mut output = zeros.map_err(self.failed("cuMemAllocAsync"))?;
        let described = Described::new(self.table, card, shape)?;
        let [a, b, c] = described.layouts;
        let mut found: [std::mem::MaybeUninit<cublasLtMatmulHeuristicResult_t>; 1] = [std::mem::MaybeUninit::zeroed()];
        let mut count = 0;
        // SAFETY: descriptors are live; the array has the one place that is asked for.
        let status = unsafe {
            (self.table.heuristic)(
                self.handle,
                described.product,
                a,
                b,
                c,
                c,
                described.preference,
                1,
                found[0].as_mut_ptr(),
                &raw mut count,
            )
        };
        check(card, "cublasLtMatmulAlgoGetHeuristic", status)?;
        if count < 1 {
            let what = format!("{} x {} x {} bf16", shape.rows, shape.columns, shape.inner);
            return Err(CudaError::Unsupported { kernel: "cublasLt", what, why: "no algorithm was found".into() });
        }
        let algorithm = found[0].as_ptr();
        let (one, zero) = (1.0f32, 0.0f32);
        let stream = self.stream.clone();
        let record =
            || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(self.failed("cuEventRecord"));
        // One stream issues everything in order, so the guards of the pointers need not outlive the calls.
        let (weight_at, input_at) = (weight.device_ptr(&stream).0, input.device_ptr(&stream).0);
        let output_at = output.device_ptr_mut(&stream).0;
        let workspace_at = self.workspace.device_ptr(&stream).0;
        let enqueue = || {
            // SAFETY: matrices have the elements that their descriptions say, in live memory of this card; the algorithm is
            // one that the library filled in for these descriptions and this much scratch.
            let status = unsafe {
                (self.table.matmul)(
                    self.handle,
                    described.product,
                    from_ref(&one).cast(),
                    weight_at as *const c_void,
                    a,
                    input_at as *const c_void,
                    b,
                    from_ref(&zero).cast(),
                    output_at as *const c_void,
                    c,
                    output_at as *mut c_void,
                    c,
                    &raw const (*algorithm).algo,
                    workspace_at as *mut c_void,
                    WORKSPACE_BYTES,
                    stream.cu_stream(),
                )
            };
            check(card, "cublasLtMatmul", status)
        };
        for _ in 0..warm_up {
            enqueue()?;
        }
        let mut events = Vec::with_capacity(repeats as usize);
        for _ in 0..repeats {
            let start = record()?;
            enqueue()?;
            events.push((start, record()?));
        }
        stream.synchronize().map_err(self.failed("cuStreamSynchronize"))?;
        let ns = |(start, end): &(cudarc::driver::CudaEvent, cudarc::driver::CudaEvent)| {
            Ok(f64::from(start.elapsed_ms(end).map_err(self.failed("cuEventElapsedTime"))?) * 1e6)
        };
        events.iter().map(ns).collect()
    }
}

fn check(card: usize, call: &str, status: i32) -> Result<(), CudaError> {
    if status == 0 {
        return Ok(());
    }
    Err(CudaError::Call { card, call: call.to_owned(), why: format!("status {status} of cublasLt") })
}

#[cfg(test)]
mod tests {
    use super::{CublasLt, GemmShape};

    #[test]
    fn flops_count_a_product_and_a_sum() {
        assert_eq!(GemmShape { rows: 3, columns: 5, inner: 7 }.flops(), 210.0);
    }

    #[test]
    fn a_machine_without_cards_says_what_is_missing() {
        if let Err(error) = CublasLt::open(0) {
            assert!(!error.to_string().is_empty());
        }
    }
}
