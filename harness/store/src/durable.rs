//! Files that are either old or new, never half written, and readable by their owner only.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Prefix of files that a killed process may leave behind.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";

/// A file that appears under its name only when it is whole: temporary file in the same folder, fsync, rename, fsync of the
/// folder. Dropped uncommitted, it leaves nothing.
pub(crate) struct Pending {
    path: PathBuf,
    writer: BufWriter<tempfile::NamedTempFile>,
}

impl Pending {
    pub(crate) fn create(path: &Path) -> Result<Self, StoreError> {
        let folder = parent(path);
        // The temporary file is created with mode 0600.
        let temp = tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(folder);
        let temp = temp.map_err(StoreError::io("create a file in", folder))?;
        Ok(Self { path: path.to_owned(), writer: BufWriter::with_capacity(1 << 18, temp) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn writer(&mut self) -> &mut BufWriter<tempfile::NamedTempFile> {
        &mut self.writer
    }

    pub(crate) fn commit(self) -> Result<(), StoreError> {
        let path = self.path;
        let temp = self.writer.into_inner().map_err(|e| StoreError::io("write", &path)(e.into_error()))?;
        temp.as_file().sync_all().map_err(StoreError::io("write", &path))?;
        temp.persist(&path).map_err(|e| StoreError::io("write", &path)(e.error))?;
        sync_folder(parent(&path))
    }
}

/// Creates `path` with what `fill` writes, atomically and durably.
pub(crate) fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<tempfile::NamedTempFile>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut file = Pending::create(path)?;
    fill(file.writer())?;
    file.commit()
}

/// Creates `path` with the given bytes, atomically and durably.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_with(path, |w| w.write_all(bytes).map_err(StoreError::io("write", path)))
}

/// Creates `path` with the given bytes, atomically and durably, unless it exists already, whoever made it.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let mut file = Pending::create(path)?;
    file.writer().write_all(bytes).map_err(StoreError::io("write", path))?;
    let temp = file.writer.into_inner().map_err(|e| StoreError::io("write", path)(e.into_error()))?;
    temp.as_file().sync_all().map_err(StoreError::io("write", path))?;
    match temp.persist_noclobber(path) {
        Err(e) if e.error.kind() != std::io::ErrorKind::AlreadyExists => Err(StoreError::io("write", path)(e.error)),
        _ => sync_folder(parent(path)),
    }
}

/// A value as indented JSON with a final newline; `path` is for messages.
pub(crate) fn json(path: &Path, value: &impl serde::Serialize) -> Result<Vec<u8>, StoreError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|e| StoreError::damaged(path, format!("cannot be encoded: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Creates `path` with a value as indented JSON and a final newline.
pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), StoreError> {
    write(path, &json(path, value)?)
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, StoreError> {
    let file = File::open(path).map_err(StoreError::io("open", path))?;
    let metadata = file.metadata().map_err(StoreError::io("read", path))?;
    if !metadata.is_file() {
        return Err(StoreError::damaged(path, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
    if bytes.len() as u64 > limit {
        return Err(StoreError::damaged(path, format!("is larger than the {limit} bytes that such a file may have")));
    }
    Ok(bytes)
}

/// Largest JSON file.
pub(crate) const MAX_JSON_BYTES: u64 = 1 << 28;

/// Reads a JSON file.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    parse_json(&read(path, MAX_JSON_BYTES)?, path)
}

/// Reads JSON that was taken from `path`.
pub(crate) fn parse_json<T: serde::de::DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|e| StoreError::damaged(path, format!("is not what was written: {e}")))
}

/// Creates a folder and its missing parents, for their owner only (mode 0700). One that exists keeps its mode.
///
/// # Errors
/// What the system reports.
pub fn create_folder(path: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(StoreError::io("create", path))?;
    sync_folder(parent(path))
}

/// A folder for its owner only, removed when it is dropped.
pub(crate) fn temporary_folder(prefix: &str, above: &Path) -> Result<tempfile::TempDir, StoreError> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder.prefix(prefix).tempdir_in(above).map_err(StoreError::io("create a folder in", above))
}

/// Makes renames and removals in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    // Only unix opens folders as files.
    if cfg!(unix) {
        File::open(folder).and_then(|f| f.sync_all()).map_err(StoreError::io("sync", folder))?;
    }
    Ok(())
}

/// Folder of a path; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Names in a folder, sorted. Names that are not UTF-8 come out lossy, so that they match no name of ours.
pub(crate) fn list(folder: &Path) -> Result<Vec<String>, StoreError> {
    let read = |e| StoreError::io("list", folder)(e);
    let mut names = fs::read_dir(folder)
        .map_err(read)?
        .map(|entry| Ok(entry.map_err(read)?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, StoreError>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Removes the temporary files that a killed process left in a folder.
pub(crate) fn sweep(folder: &Path) -> Result<(), StoreError> {
    for name in list(folder)?.iter().filter(|n| n.starts_with(TEMP_PREFIX)) {
        let path = folder.join(name);
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
    }
    Ok(())
}
