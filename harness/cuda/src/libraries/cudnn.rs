use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t,
    cudnnHandle_t,
};
use cudarc::driver::sys::CUstream;

use super::open::{mapped_files, open, table};
use crate::CudaError;

const REMEDY: &str = "pip install nvidia-cudnn-cu13 and put its lib folder on LD_LIBRARY_PATH, or use --backend sim";

/// Before 9.10, cuDNN's backward wants the padding of slots hidden twice, in a graph that we do not build.
const OLDEST: usize = 91_000;

table! {
    /// What we call of cuDNN: its backend API. Statuses are plain integers, 0 is success: a later library may return one
    /// that no Rust enumeration has.
    CuDnnTable("libcudnn.so.9", REMEDY) {
        /// Version, as 91900 for 9.19.0.
        get_version = "cudnnGetVersion": () -> usize;
        /// Version of the CUDA runtime that it was built with.
        get_cudart_version = "cudnnGetCudartVersion": () -> usize;
        /// Makes a handle for the current context.
        create = "cudnnCreate": (*mut cudnnHandle_t) -> c_int;
        /// Frees a handle.
        destroy = "cudnnDestroy": (cudnnHandle_t) -> c_int;
        /// Sets the stream of a handle.
        set_stream = "cudnnSetStream": (cudnnHandle_t, CUstream) -> c_int;
        /// Copies the message of the last failure into a buffer.
        get_last_error_string = "cudnnGetLastErrorString": (*mut c_char, usize) -> ();
        /// Makes a descriptor.
        create_descriptor = "cudnnBackendCreateDescriptor":
            (cudnnBackendDescriptorType_t, *mut cudnnBackendDescriptor_t) -> c_int;
        /// Frees a descriptor.
        destroy_descriptor = "cudnnBackendDestroyDescriptor": (cudnnBackendDescriptor_t) -> c_int;
        /// Checks and closes a descriptor.
        finalize = "cudnnBackendFinalize": (cudnnBackendDescriptor_t) -> c_int;
        /// Sets an attribute.
        set_attribute = "cudnnBackendSetAttribute":
            (cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, i64, *const c_void) -> c_int;
        /// Reads an attribute.
        get_attribute = "cudnnBackendGetAttribute": (
            cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, i64, *mut i64, *mut c_void
        ) -> c_int;
        /// Enqueues a plan.
        execute = "cudnnBackendExecute":
            (cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) -> c_int;
    }
}

impl CuDnnTable {
    /// Version, as 91900 for 9.19.0.
    pub fn version(&self) -> usize {
        // SAFETY: has no preconditions.
        unsafe { (self.get_version)() }
    }

    /// The message of the last failure of this thread; empty where cuDNN has none.
    pub fn last_error(&self) -> String {
        let mut text = [0u8; 1024];
        // SAFETY: the buffer has the length that is given; cuDNN ends the text with a zero.
        unsafe { (self.get_last_error_string)(text.as_mut_ptr().cast(), text.len()) };
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..end]).trim().to_owned()
    }

    /// An error where parts of two copies of cuDNN are loaded: they fail or abort later, without a cause that one could
    /// see. Meaningful after the first plan, when all parts are loaded.
    ///
    /// # Errors
    /// The files lie in several folders.
    pub fn one_copy(&self) -> Result<(), CudaError> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut folders: Vec<_> =
            mapped_files(&maps, "libcudnn").iter().filter_map(|f| Some(f.parent()?.display().to_string())).collect();
        folders.sort();
        folders.dedup();
        if folders.len() < 2 {
            return Ok(());
        }
        Err(CudaError::Library {
            library: "libcudnn.so.9",
            why: format!("is mixed from several copies ({})", folders.join(", ")),
            remedy: "put the folder of one copy first on LD_LIBRARY_PATH before the program starts",
        })
    }
}

/// cuDNN, opened at the first call.
///
/// # Errors
/// `libcudnn.so.9` is absent, older than 9.10, or lacks a function.
pub fn cudnn() -> Result<&'static CuDnnTable, CudaError> {
    static OPENED: OnceLock<Result<CuDnnTable, CudaError>> = OnceLock::new();
    OPENED
        .get_or_init(|| {
            let (library, file) = open(&["libcudnn.so.9"], REMEDY)?;
            let table = CuDnnTable::bind(library, file)?;
            match table.version() {
                version if version < OLDEST => Err(CudaError::Library {
                    library: "libcudnn.so.9",
                    why: format!("is version {version} ({}) and {OLDEST} or later is needed", table.file.display()),
                    remedy: REMEDY,
                }),
                _ => Ok(table),
            }
        })
        .as_ref()
        .map_err(Clone::clone)
}
