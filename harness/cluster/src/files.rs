//! Files that appear whole or not at all, in folders that only their owner may enter.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use crate::ClusterError;

/// Largest file that processes leave each other.
const MAX_BYTES: u64 = 1 << 20;

/// Creates a folder and its missing parents, for their owner only.
pub(crate) fn create_folder(path: &Path) -> Result<(), ClusterError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(ClusterError::io("create", path))
}

/// An error unless the folder is one that this user owns and nobody else may enter.
pub(crate) fn owner_only(path: &Path) -> Result<(), ClusterError> {
    let about = fs::symlink_metadata(path).map_err(ClusterError::io("look at", path))?;
    if !about.is_dir() {
        return Err(ClusterError::folder(path, "is not a folder"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if about.mode() & 0o077 != 0 {
            return Err(ClusterError::folder(path, "others than its owner may enter it; chmod 700 it"));
        }
    }
    Ok(())
}

/// Creates a file that does not exist yet, whole. False when it exists. Safe on network file systems: a link is made or not,
/// and where the answer is lost, the count of links tells.
pub(crate) fn create_new(path: &Path, bytes: &[u8]) -> Result<bool, ClusterError> {
    let temp = whole(path, bytes)?;
    match fs::hard_link(temp.path(), path) {
        Ok(()) => Ok(true),
        Err(e) if links(temp.as_file()) == Some(2) => {
            // The link was made and the answer was lost.
            drop(e);
            Ok(true)
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(ClusterError::io("create", path)(e)),
    }
}

/// Creates or replaces a file, whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ClusterError> {
    let temp = whole(path, bytes)?;
    temp.persist(path).map(drop).map_err(|e| ClusterError::io("write", path)(e.error))
}

/// A temporary file beside `path` with these bytes, mode 0600.
fn whole(path: &Path, bytes: &[u8]) -> Result<tempfile::NamedTempFile, ClusterError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temp = tempfile::Builder::new().prefix(".tmp-").tempfile_in(folder);
    let mut temp = temp.map_err(ClusterError::io("create a file in", folder))?;
    temp.write_all(bytes).and_then(|()| temp.as_file().sync_all()).map_err(ClusterError::io("write", path))?;
    Ok(temp)
}

#[cfg(unix)]
fn links(file: &File) -> Option<u64> {
    file.metadata().ok().map(|about| std::os::unix::fs::MetadataExt::nlink(&about))
}

#[cfg(not(unix))]
fn links(_file: &File) -> Option<u64> {
    None
}

/// Content of a small file; none when it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, ClusterError> {
    // Opening also makes network file systems ask the server.
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if gone(&e) => return Ok(None),
        Err(e) => return Err(ClusterError::io("open", path)(e)),
    };
    let mut bytes = Vec::new();
    match file.take(MAX_BYTES + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > MAX_BYTES => {
            Err(ClusterError::folder(path, format!("is larger than {MAX_BYTES} bytes")))
        }
        Ok(_) => Ok(Some(bytes)),
        Err(e) if gone(&e) => Ok(None),
        Err(e) => Err(ClusterError::io("read", path)(e)),
    }
}

/// True for what is left of a file on a network file system after another node removed it.
fn gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::StaleNetworkFileHandle)
}

/// A value from a small JSON file; none when it does not exist.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, ClusterError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let value = serde_json::from_slice(&bytes);
    value.map(Some).map_err(|e| ClusterError::folder(path, format!("is not what was written: {e}")))
}

/// A value as JSON.
pub(crate) fn json(value: &impl serde::Serialize, path: &Path) -> Result<Vec<u8>, ClusterError> {
    serde_json::to_vec(value).map_err(|e| ClusterError::folder(path, format!("cannot be encoded: {e}")))
}
