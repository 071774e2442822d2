use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::CudaError;

/// Numbers that threads, or processes that map the same file, change at once.
#[derive(Debug)]
pub(super) enum Words {
    /// Of this process.
    Own(Box<[AtomicU64]>),
    /// Of a file.
    Mapped(Mapping),
}

impl Words {
    /// So many zeros.
    pub fn own(count: usize) -> Self {
        Self::Own((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// The first numbers of a file.
    ///
    /// # Errors
    /// The file is shorter; it cannot be mapped.
    pub fn mapped(file: &File, count: usize) -> Result<Self, CudaError> {
        let failed = |why: String| CudaError::Program(format!("the memory that processes share: {why}"));
        let bytes = count * size_of::<AtomicU64>();
        let there = file.metadata().map_err(|error| failed(error.to_string()))?.len();
        if bytes == 0 || there < bytes as u64 {
            return Err(failed(format!("it has {there} bytes and {bytes} are needed; do all load the same wave?")));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) };
        let at = at.map_err(|error| failed(format!("mmap: {error}")))?;
        let at = NonNull::new(at.cast()).ok_or_else(|| failed("mmap gave no address".to_owned()))?;
        Ok(Self::Mapped(Mapping { at, count }))
    }

    /// The number at a place; none beyond the last.
    pub fn get(&self, index: usize) -> Option<&AtomicU64> {
        match self {
            Self::Own(words) => words.get(index),
            Self::Mapped(mapping) => mapping.words().get(index),
        }
    }
}

/// Memory of a file. The file lies in a folder that this user alone may enter, and nobody shortens it.
#[derive(Debug)]
pub(super) struct Mapping {
    at: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory is of atomic numbers alone, and is unmapped by `drop` alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many numbers, starts at a page, lives as long as `self`, and is only ever changed
        // through atomic numbers, here and in other processes.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the address and length are those of the mapping, which nothing uses any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.count * size_of::<AtomicU64>()) };
    }
}
