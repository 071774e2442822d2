use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::DriverError;

use super::open::open;
use crate::CudaError;

const REMEDY: &str = "install NVIDIA's driver (and expose it to the container), or use --backend sim";

/// What is known of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// The file that was opened.
    pub file: PathBuf,
    /// The highest CUDA version that it runs, as 13000 for 13.0.
    pub cuda: i32,
}

/// Makes sure that the driver's library is there and starts. To be called before anything of [`cudarc::driver`], which
/// panics where it is absent.
///
/// # Errors
/// There is no driver, or it does not start.
pub fn driver() -> Result<(), CudaError> {
    opened().map(drop)
}

pub(super) fn opened() -> Result<&'static Driver, CudaError> {
    static OPENED: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
    OPENED.get_or_init(start).as_ref().map_err(Clone::clone)
}

fn start() -> Result<Driver, CudaError> {
    let (library, file) = open(&["libcuda.so.1"], REMEDY)?;
    let refused = |why: String| CudaError::Library { library: "libcuda.so.1", why, remedy: REMEDY };
    // SAFETY: cuDriverGetVersion has this type, takes a pointer to a live integer and needs no initialisation.
    let (status, cuda) = unsafe {
        let version = library
            .get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0")
            .map_err(|e| refused(format!("has no cuDriverGetVersion ({}: {e})", file.display())))?;
        let mut cuda = 0;
        (version(&mut cuda), cuda)
    };
    if status != 0 {
        return Err(refused(format!("does not tell its version (status {status} of cuDriverGetVersion)")));
    }
    // SAFETY: only opens and closes libraries by name.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(refused(format!("was opened as {} and is not found by its short names", file.display())));
    }
    cudarc::driver::result::init().map_err(|e| refused(format!("does not start (cuInit: {})", text(e))))?;
    Ok(Driver { file, cuda })
}

/// An error of the driver as one of ours.
pub fn fail(card: usize, call: &str, error: DriverError) -> CudaError {
    CudaError::Call { card, call: call.to_owned(), why: text(error) }
}

fn text(error: DriverError) -> String {
    let part =
        |s: Result<&std::ffi::CStr, DriverError>| s.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{} {}", part(error.error_name()), part(error.error_string())).trim().to_owned()
}
