use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::CudaError;

/// Opens the first of `names` that is found: in the folders of `LD_LIBRARY_PATH` by absolute path, so that no other copy
/// answers to the name, else wherever the system's loader looks. Returns the file, and never closes it.
///
/// # Errors
/// No file is found, or none can be opened.
pub(super) fn open(names: &[&'static str], remedy: &'static str) -> Result<(&'static Library, PathBuf), CudaError> {
    open_in(std::env::var_os("LD_LIBRARY_PATH").as_deref(), names, remedy)
}

fn open_in(
    folders: Option<&OsStr>,
    names: &[&'static str],
    remedy: &'static str,
) -> Result<(&'static Library, PathBuf), CudaError> {
    let mut reasons = Vec::new();
    let mut missing = true;
    for &name in names {
        let candidates = folders
            .into_iter()
            .flat_map(std::env::split_paths)
            .filter(|f| f.is_absolute())
            .map(|f| f.join(name))
            .filter(|f| f.is_file())
            .chain([PathBuf::from(name)]);
        for file in candidates {
            // SAFETY: the initialisers of NVIDIA's libraries have no preconditions; the library is never unloaded.
            match unsafe { Library::new(&file) } {
                Ok(library) => {
                    let file = if file.is_absolute() { file } else { mapped(name).unwrap_or(file) };
                    return Ok((Box::leak(Box::new(library)), file));
                }
                Err(error) => {
                    let reason =
                        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                    missing &= reason.starts_with(&format!("{}: cannot open shared object file", name));
                    reasons.push(reason);
                }
            }
        }
    }
    let why = if missing { "not found".to_owned() } else { format!("cannot be opened ({})", reasons.join("; ")) };
    Err(CudaError::Library { library: names[0], why, remedy })
}

/// The mapped file of this process whose name starts so.
fn mapped(name: &str) -> Option<PathBuf> {
    mapped_files(&std::fs::read_to_string("/proc/self/maps").ok()?, name).into_iter().next()
}

/// Files in a text of `/proc/self/maps` whose names start with `prefix`, each once.
pub(super) fn mapped_files(maps: &str, prefix: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in maps.lines() {
        let Some(start) = line.find('/') else { continue };
        let file = Path::new(&line[start..]);
        let named = file.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
        if named && !files.iter().any(|f| f == file) {
            files.push(file.to_owned());
        }
    }
    files
}

/// Declares a table of functions of a library, and how it is filled.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:ident ($library:literal, $remedy:expr) {
            $($(#[$field_doc:meta])* $field:ident = $symbol:literal: ($($arg:ty),*) -> $ret:ty;)*
        }
    ) => {
        $(#[$doc])*
        pub struct $name {
            /// The file that was opened.
            pub file: std::path::PathBuf,
            $($(#[$field_doc])* pub $field: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        impl $name {
            fn bind(library: &libloading::Library, file: std::path::PathBuf) -> Result<Self, crate::CudaError> {
                let missing = |symbol: &str, error: libloading::Error| crate::CudaError::Library {
                    library: $library,
                    why: format!("has no {symbol} ({}: {error})", file.display()),
                    remedy: $remedy,
                };
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is that of the function's declaration in NVIDIA's header.
                        *unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) -> $ret>(concat!($symbol, "\0").as_bytes())
                        }
                        .map_err(|e| missing($symbol, e))?
                    },)*
                    file,
                })
            }
        }
    };
}
pub(super) use table;

#[cfg(test)]
mod tests {
    use super::{mapped_files, open_in};
    use crate::CudaError;

    #[test]
    fn absence_names_the_file_and_what_to_do() {
        let Err(error) = open_in(None, &["libnone-such.so.9", "libnone-such.so.8"], "install it") else {
            panic!("no library has this name")
        };
        assert_eq!(error.to_string(), "libnone-such.so.9 not found; install it");
    }

    #[test]
    fn a_broken_file_is_not_called_missing() {
        let folder = std::env::temp_dir().join(format!("skewbench-open-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("libnone-such.so.9"), b"no library").expect("a file");
        let error = open_in(Some(folder.as_os_str()), &["libnone-such.so.9"], "install it").map(drop);
        std::fs::remove_dir_all(&folder).expect("removed");
        let Err(CudaError::Library { why, .. }) = error else { panic!("{error:?}") };
        assert!(why.starts_with("cannot be opened (") && why.contains("libnone-such.so.9"), "{why}");
    }

    #[test]
    fn mapped_files_are_listed_once() {
        let maps = "7f0 r--p 0 08:01 12   /a/libcudnn.so.9\n7f1 r-xp 0 08:01 12   /a/libcudnn.so.9\n\
                    7f2 r--p 0 00:00 0 \n7f3 r--p 0 08:01 13   /b/libcudnn_graph.so.9\n7f4 r--p 0 08:01 13   /b/libc.so.6\n";
        let files = mapped_files(maps, "libcudnn");
        assert_eq!(files, [std::path::PathBuf::from("/a/libcudnn.so.9"), "/b/libcudnn_graph.so.9".into()]);
    }
}
