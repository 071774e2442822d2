use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
    cublasLtMatrixLayout_t, cudaDataType,
};
use cudarc::driver::sys::CUstream;

use super::open::{open, table};
use crate::CudaError;

const REMEDY: &str = "pip install nvidia-cublas and put its lib folder on LD_LIBRARY_PATH, or leave products out";

table! {
    /// What we call of cublasLt. Statuses are plain integers, 0 is success.
    CublasLtTable("libcublasLt.so.13", REMEDY) {
        /// Makes a handle for the current context.
        create = "cublasLtCreate": (*mut cublasLtHandle_t) -> c_int;
        /// Frees a handle.
        destroy = "cublasLtDestroy": (cublasLtHandle_t) -> c_int;
        /// Describes a product.
        desc_create = "cublasLtMatmulDescCreate": (*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType) -> c_int;
        /// Frees a description.
        desc_destroy = "cublasLtMatmulDescDestroy": (cublasLtMatmulDesc_t) -> c_int;
        /// Sets an attribute of a description.
        desc_set = "cublasLtMatmulDescSetAttribute":
            (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize) -> c_int;
        /// Describes a matrix: type, rows, columns, elements between columns.
        layout_create = "cublasLtMatrixLayoutCreate": (*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64) -> c_int;
        /// Frees a matrix's description.
        layout_destroy = "cublasLtMatrixLayoutDestroy": (cublasLtMatrixLayout_t) -> c_int;
        /// Makes preferences of the search.
        preference_create = "cublasLtMatmulPreferenceCreate": (*mut cublasLtMatmulPreference_t) -> c_int;
        /// Frees preferences.
        preference_destroy = "cublasLtMatmulPreferenceDestroy": (cublasLtMatmulPreference_t) -> c_int;
        /// Sets a preference.
        preference_set = "cublasLtMatmulPreferenceSetAttribute":
            (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize) -> c_int;
        /// Looks for algorithms.
        heuristic = "cublasLtMatmulAlgoGetHeuristic": (
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut cublasLtMatmulHeuristicResult_t, *mut c_int
        ) -> c_int;
        /// Enqueues a product.
        matmul = "cublasLtMatmul": (
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void, cublasLtMatrixLayout_t, *const c_void,
            cublasLtMatrixLayout_t, *const c_void, *const c_void, cublasLtMatrixLayout_t, *mut c_void,
            cublasLtMatrixLayout_t, *const cublasLtMatmulAlgo_t, *mut c_void, usize, CUstream
        ) -> c_int;
    }
}

/// cublasLt, opened at the first call.
///
/// # Errors
/// `libcublasLt.so.13` is absent or lacks a function.
pub fn cublaslt() -> Result<&'static CublasLtTable, CudaError> {
    static OPENED: OnceLock<Result<CublasLtTable, CudaError>> = OnceLock::new();
    OPENED
        .get_or_init(|| {
            let (library, file) = open(&["libcublasLt.so.13"], REMEDY)?;
            CublasLtTable::bind(library, file)
        })
        .as_ref()
        .map_err(Clone::clone)
}
