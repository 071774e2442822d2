//! Files that appear whole or not at all, in folders that only their owner may enter.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::ClusterError;

/// Largest file that processes leave each other.
pub(crate) const MAX_BYTES: u64 = 1 << 20;
/// How names of temporary files begin.
const TEMP_PREFIX: &str = ".tmp-";
/// How often a folder that is looked at again and again is changed.
const STIR: Duration = Duration::from_secs(1);

/// Creates a folder and its missing parents, for their owner only.
pub(crate) fn create_folder(path: &Path) -> Result<(), ClusterError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(ClusterError::io("create", path))
}

/// An error unless the folder is one that this user owns and nobody else may enter.
///
/// # Errors
/// [`ClusterError::Folder`] for another folder; what the system reports.
pub fn owner_only(path: &Path) -> Result<(), ClusterError> {
    let about = fs::symlink_metadata(path).map_err(ClusterError::io("look at", path))?;
    if !about.is_dir() {
        return Err(ClusterError::folder(path, "is not a folder"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let problem = entered_by(about.mode(), about.uid(), rustix::process::geteuid().as_raw());
        problem.map_or(Ok(()), |what| Err(ClusterError::folder(path, what)))?;
    }
    Ok(())
}

/// Who else than `user` may enter a folder, or may come to.
#[cfg(unix)]
fn entered_by(mode: u32, owner: u32, user: u32) -> Option<String> {
    // Its owner may open it to himself at any time.
    if owner != user {
        return Some(format!("belongs to another user ({owner}), who may enter it; choose another place"));
    }
    (mode & 0o077 != 0).then(|| "others than its owner may enter it; chmod 700 it".to_owned())
}

/// Names in a folder, lossy where they are not UTF-8, so that they match no name of ours.
pub(crate) fn list(folder: &Path) -> Result<BTreeSet<String>, ClusterError> {
    let failed = |e| ClusterError::io("list", folder)(e);
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries.map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())).collect()
}

/// A folder that is looked at until other nodes have written to it.
pub(crate) struct Watched<'p> {
    folder: &'p Path,
    stirred: Option<Instant>,
}

impl<'p> Watched<'p> {
    pub(crate) fn new(folder: &'p Path) -> Self {
        Self { folder, stirred: None }
    }

    /// Names in it, as the server knows them. Clients of network file systems remember for a minute which names were not there,
    /// but not beyond a change of their own to the folder.
    pub(crate) fn names(&mut self) -> Result<BTreeSet<String>, ClusterError> {
        if self.stirred.is_none_or(|stirred| stirred.elapsed() >= STIR) {
            let made = tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(self.folder);
            made.map(drop).map_err(ClusterError::io("create a file in", self.folder))?;
            self.stirred = Some(Instant::now());
        }
        list(self.folder)
    }
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
    let temp = tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(folder);
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
    // Opening makes network file systems ask the server, but for names that were not there a moment ago (`Watched`).
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
pub(crate) fn gone(error: &std::io::Error) -> bool {
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_of_other_users_are_refused() {
        let (me, other) = (1000, 1001);
        assert_eq!(entered_by(0o040_700, me, me), None);
        assert!(entered_by(0o040_700, other, me).is_some_and(|what| what.contains("another user (1001)")));
        assert!(entered_by(0o040_750, me, me).is_some_and(|what| what.contains("chmod 700")));
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("set");
        owner_only(dir.path()).expect("ours");
        // Only root may give a folder away.
        if std::os::unix::fs::chown(dir.path(), Some(other), None).is_ok() {
            assert!(owner_only(dir.path()).expect_err("theirs").to_string().contains("another user"));
        }
    }

    #[test]
    fn a_look_changes_the_folder_so_that_the_server_is_asked() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("x"), "").expect("written");
        let changed = || fs::metadata(dir.path()).and_then(|about| about.modified()).expect("a time");
        let before = changed();
        let mut watched = Watched::new(dir.path());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(watched.names().expect("names"), BTreeSet::from(["x".to_owned()]));
        let stirred = changed();
        assert!(stirred > before);
        // Looks that follow at once spare the server.
        watched.names().expect("names");
        assert_eq!(changed(), stirred);
        std::thread::sleep(STIR);
        watched.names().expect("names");
        assert!(changed() > stirred);
    }
}
