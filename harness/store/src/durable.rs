//! Files that are either old or new, never half written, and readable by their owner only.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Read, Write};
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
        Err(e) if e.error.kind() != ErrorKind::AlreadyExists => Err(StoreError::io("write", path)(e.error)),
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

/// How often a file is opened anew that another node has replaced or removed meanwhile.
const LOOKS: usize = 5;

/// Opens a regular file; others, such as pipes, may never answer who opens them.
pub(crate) fn open(path: &Path) -> Result<File, StoreError> {
    if !fs::metadata(path).map_err(StoreError::io("open", path))?.is_file() {
        return Err(StoreError::damaged(path, "is not a regular file"));
    }
    File::open(path).map_err(StoreError::io("open", path))
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, StoreError> {
    // On network file systems what was opened may be gone at the server; opened anew it is another file, or none.
    again_if_stale(|| {
        let file = open(path)?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
        if bytes.len() as u64 > limit {
            let what = format!("is larger than the {limit} bytes that such a file may have");
            return Err(StoreError::damaged(path, what));
        }
        Ok(bytes)
    })
}

/// What tells a file from any that replaced it under its name: device, inode, bytes, time of the last change in seconds and
/// nanoseconds. The file is opened for it: network file systems ask their server then.
pub(crate) type Identity = (u64, u64, u64, i64, i64);

/// The identity of a file.
pub(crate) fn identity(path: &Path) -> Result<Identity, StoreError> {
    use std::os::unix::fs::MetadataExt;
    again_if_stale(|| {
        let file = open(path)?;
        let about = file.metadata().map_err(StoreError::io("read", path))?;
        Ok((about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
    })
}

fn again_if_stale<T>(mut read: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let stale = |e: &StoreError| matches!(e, StoreError::Io { source, .. } if source.kind() == ErrorKind::StaleNetworkFileHandle);
    let mut result = read();
    for _ in 1..LOOKS {
        match result {
            Err(ref e) if stale(e) => result = read(),
            _ => break,
        }
    }
    result
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

/// A place beside the folder of a study: `NAME-WHAT`, by the folder's own name however it is spelled, so that all who work on
/// the study mean the same. The folder is created if need be, for a link can be followed only then.
///
/// # Errors
/// A folder that nothing can stand beside; what the system reports.
pub fn beside(out: &Path, what: &str) -> Result<PathBuf, StoreError> {
    create_folder(out)?;
    let found = fs::canonicalize(out).map_err(StoreError::io("look at", out))?;
    let Some(name) = found.file_name() else {
        let what = "it is the root of a file system, and nothing can stand beside it; choose a folder in it".to_owned();
        return Err(StoreError::NotARun { dir: out.to_owned(), what });
    };
    let mut name = name.to_owned();
    name.push(format!("-{what}"));
    Ok(found.with_file_name(name))
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

/// True for a folder that is removed but for what a network file system keeps of files that some process of this node has open:
/// it goes when that process ends.
pub(crate) fn is_remainder(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir())
        && list(folder).is_ok_and(|names| names.iter().all(|name| name.starts_with(".nfs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stale_is_opened_anew() {
        let path = Path::new("x");
        let stale = || StoreError::io("read", path)(std::io::Error::from(ErrorKind::StaleNetworkFileHandle));
        let mut looks = 0;
        let read = again_if_stale(|| {
            looks += 1;
            if looks < 3 { Err(stale()) } else { Ok(looks) }
        });
        assert_eq!(read.expect("read"), 3);
        let mut looks = 0;
        let read: Result<(), _> = again_if_stale(|| {
            looks += 1;
            Err(stale())
        });
        assert!(read.is_err());
        assert_eq!(looks, LOOKS);
        let mut looks = 0;
        let read: Result<(), _> = again_if_stale(|| {
            looks += 1;
            Err(StoreError::damaged(path, "is torn"))
        });
        assert!(read.is_err());
        assert_eq!(looks, 1);
    }

    #[cfg(unix)]
    #[test]
    fn places_beside_a_folder_do_not_depend_on_its_spelling() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let real = dir.path().join("real/s1");
        let expected = fs::canonicalize(dir.path()).expect("a path").join("real/s1-claims");
        assert_eq!(beside(&real, "claims").expect("a place"), expected);
        assert_eq!(fs::metadata(&real).expect("made").permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&real, dir.path().join("link")).expect("linked");
        for spelled in [dir.path().join("link"), real.join("."), real.join("../s1"), real.join("")] {
            assert_eq!(beside(&spelled, "claims").expect("a place"), expected, "{}", spelled.display());
        }
        assert!(beside(Path::new("/"), "claims").is_err());
    }
}
