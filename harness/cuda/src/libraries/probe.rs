use std::path::PathBuf;

use super::{cudnn::cudnn, driver, nccl::nccl, nvrtc::nvrtc};
use crate::CudaError;

/// A library that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its version as people write it: 9.19.0.
    pub version: String,
    /// Its file.
    pub file: PathBuf,
}

/// Which of NVIDIA's libraries this machine has.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The CUDA version that the driver runs, and the driver's library.
    pub cuda: Result<Opened, CudaError>,
    /// The driver's own version, where the kernel tells it.
    pub driver_version: Option<String>,
    /// cuDNN.
    pub cudnn: Result<Opened, CudaError>,
    /// NCCL.
    pub nccl: Result<Opened, CudaError>,
    /// The run-time compiler.
    pub nvrtc: Result<Opened, CudaError>,
}

/// Opens all libraries and asks for their versions.
pub fn probe() -> Found {
    Found {
        cuda: driver::opened()
            .map(|d| Opened { version: format!("{}.{}", d.cuda / 1000, d.cuda % 1000 / 10), file: d.file.clone() }),
        driver_version: std::fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|t| driver_version(&t)),
        cudnn: cudnn().map(|t| {
            let v = t.version();
            Opened { version: format!("{}.{}.{}", v / 10_000, v % 10_000 / 100, v % 100), file: t.file.clone() }
        }),
        nccl: nccl().map(|t| {
            let v = t.version();
            Opened { version: format!("{}.{}.{}", v / 10_000, v % 10_000 / 100, v % 100), file: t.file.clone() }
        }),
        nvrtc: nvrtc().map(|t| {
            let (mut major, mut minor) = (0, 0);
            // SAFETY: the pointers are those of live integers.
            let status = unsafe { (t.version)(&mut major, &mut minor) };
            let version = if status == 0 { format!("{major}.{minor}") } else { "unknown".to_owned() };
            Opened { version, file: t.file.clone() }
        }),
    }
}

/// The version in the text that the kernel module shows: the first word of numbers and dots.
fn driver_version(text: &str) -> Option<String> {
    text.lines()
        .find(|l| l.starts_with("NVRM"))?
        .split_whitespace()
        .find(|w| w.contains('.') && w.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{driver_version, probe};

    #[test]
    fn the_driver_version_is_read() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: gcc 13.2.0\n";
        assert_eq!(driver_version(text).as_deref(), Some("580.159.04"));
        assert_eq!(driver_version("nothing"), None);
    }

    #[test]
    fn what_is_absent_says_what_to_install() {
        let found = probe();
        for (library, install) in
            [(found.cudnn, "nvidia-cudnn-cu13"), (found.nccl, "nvidia-nccl-cu13"), (found.nvrtc, "nvidia-cuda-nvrtc")]
        {
            match library {
                Ok(opened) => assert!(opened.file.to_string_lossy().contains("lib"), "{opened:?}"),
                Err(error) => assert!(error.to_string().contains(install), "{error}"),
            }
        }
    }
}
