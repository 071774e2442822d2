use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use cudarc::nvrtc::sys::nvrtcProgram;

use super::open::{open, table};
use crate::CudaError;

const REMEDY: &str = "pip install nvidia-cuda-nvrtc and put its lib folder on LD_LIBRARY_PATH, or use --backend sim";

table! {
    /// What we call of NVRTC. Every function that returns an integer returns a status, 0 is success.
    NvrtcTable("libnvrtc.so.13", REMEDY) {
        /// Version, as major and minor.
        version = "nvrtcVersion": (*mut c_int, *mut c_int) -> c_int;
        /// Makes a program from source.
        create_program = "nvrtcCreateProgram":
            (*mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
        /// Frees a program.
        destroy_program = "nvrtcDestroyProgram": (*mut nvrtcProgram) -> c_int;
        /// Compiles with options.
        compile_program = "nvrtcCompileProgram": (nvrtcProgram, c_int, *const *const c_char) -> c_int;
        /// Bytes of the log.
        get_log_size = "nvrtcGetProgramLogSize": (nvrtcProgram, *mut usize) -> c_int;
        /// The log.
        get_log = "nvrtcGetProgramLog": (nvrtcProgram, *mut c_char) -> c_int;
        /// Bytes of the binary.
        get_cubin_size = "nvrtcGetCUBINSize": (nvrtcProgram, *mut usize) -> c_int;
        /// The binary.
        get_cubin = "nvrtcGetCUBIN": (nvrtcProgram, *mut c_char) -> c_int;
        /// Text of a status.
        get_error_string = "nvrtcGetErrorString": (c_int) -> *const c_char;
    }
}

/// NVRTC, opened at the first call.
///
/// # Errors
/// Neither `libnvrtc.so.13` nor `libnvrtc.so.12` can be opened.
pub fn nvrtc() -> Result<&'static NvrtcTable, CudaError> {
    static OPENED: OnceLock<Result<NvrtcTable, CudaError>> = OnceLock::new();
    OPENED
        .get_or_init(|| {
            let (library, file) = open(&["libnvrtc.so.13", "libnvrtc.so.12"], REMEDY)?;
            NvrtcTable::bind(library, file)
        })
        .as_ref()
        .map_err(Clone::clone)
}

/// A program that is freed when it goes out of scope.
struct Program {
    table: &'static NvrtcTable,
    raw: nvrtcProgram,
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was made by this table and is freed once.
        unsafe { (self.table.destroy_program)(&mut self.raw) };
    }
}

impl Program {
    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: the program lives; the buffer has the size that NVRTC asks for.
        unsafe {
            if (self.table.get_log_size)(self.raw, &mut bytes) != 0 || bytes < 2 {
                return String::new();
            }
            let mut log = vec![0u8; bytes];
            if (self.table.get_log)(self.raw, log.as_mut_ptr().cast()) != 0 {
                return String::new();
            }
            log.truncate(bytes - 1);
            String::from_utf8_lossy(&log).trim().to_owned()
        }
    }
}

/// Compiles CUDA C into a binary for cards of one compute capability (9, 0 for an H200). `options` are NVRTC's, as
/// `-DWIDTH=4`.
///
/// # Errors
/// NVRTC is absent, or the source does not compile: the error holds the compiler's log.
pub fn compile(
    card: usize,
    name: &str,
    source: &str,
    capability: (i32, i32),
    options: &[String],
) -> Result<Vec<u8>, CudaError> {
    let table = nvrtc()?;
    let call = |call: &str, why: String| CudaError::Call { card, call: format!("{call}({name})"), why };
    let check = |function: &str, status: c_int| {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: any status may be asked for; the answer is a static string.
        let text = unsafe { CStr::from_ptr((table.get_error_string)(status)) }.to_string_lossy().into_owned();
        Err(call(function, format!("{status} {text}")))
    };
    let zeros = |_| call("nvrtcCreateProgram", "the source holds a zero byte".to_owned());
    let (c_source, c_name) = (CString::new(source).map_err(zeros)?, CString::new(name).map_err(zeros)?);
    let mut all = vec![
        CString::new(format!("--gpu-architecture=sm_{}{}", capability.0, capability.1)).map_err(zeros)?,
        c"--std=c++17".to_owned(),
    ];
    for option in options {
        all.push(CString::new(option.as_str()).map_err(zeros)?);
    }
    let pointers: Vec<*const c_char> = all.iter().map(|o| o.as_ptr()).collect();

    let mut program = Program { table, raw: std::ptr::null_mut() };
    // SAFETY: the strings end with zeros and outlive the call; no headers are given.
    let status = unsafe {
        (table.create_program)(
            &mut program.raw,
            c_source.as_ptr(),
            c_name.as_ptr(),
            0,
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    if status != 0 {
        std::mem::forget(program);
        check("nvrtcCreateProgram", status)?;
        return Err(call("nvrtcCreateProgram", "no program was made".to_owned()));
    }
    // SAFETY: the program lives; there are as many options as are said.
    let status = unsafe { (table.compile_program)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
    if status != 0 {
        return Err(call("nvrtcCompileProgram", format!("status {status}; {}", program.log())));
    }
    let mut bytes = 0;
    // SAFETY: the program is compiled; the pointer is that of a live integer.
    check("nvrtcGetCUBINSize", unsafe { (table.get_cubin_size)(program.raw, &mut bytes) })?;
    let mut cubin = vec![0u8; bytes];
    // SAFETY: the buffer has the size that NVRTC asked for.
    check("nvrtcGetCUBIN", unsafe { (table.get_cubin)(program.raw, cubin.as_mut_ptr().cast()) })?;
    Ok(cubin)
}
