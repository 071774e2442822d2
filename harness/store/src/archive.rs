use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use crate::durable::{self, Pending};
use crate::run::{CHECKSUMS, Checksums, EVENTS, LOCK, MANIFEST, Manifest, TIMINGS, is_remainder};
use crate::{CheckReport, RunStatus, StoreError, check};

/// Largest sum of files that a run from elsewhere may hold.
const MAX_BYTES: u64 = 1 << 34;
/// Most files of a run from elsewhere.
const MAX_FILES: usize = 1024;
/// Most bytes between the last file and the end.
const MAX_PADDING: u64 = 1 << 16;
/// Largest window that the decompressor may ask memory for, as a power of two.
const MAX_WINDOW_LOG: u32 = 27;
/// Compression level: fixed, so that equal runs give equal archives.
const ZSTD_LEVEL: i32 = 9;

/// Packs a finished run into one `.tar.zst` file. Names are sorted and dates, owners and modes are constant: the same folder
/// gives the same bytes.
///
/// # Errors
/// [`StoreError::Exists`] when `out` exists, [`StoreError::Incomplete`] for an unfinished run, [`StoreError::Damaged`] when the
/// check finds problems with its files.
pub fn export(dir: &Path, out: &Path) -> Result<(), StoreError> {
    if out.exists() {
        return Err(StoreError::Exists { path: out.to_owned() });
    }
    let report = check(dir)?;
    if report.status != RunStatus::Complete {
        let missing = report.planned.saturating_sub(report.finished + report.failed);
        return Err(StoreError::Incomplete { dir: dir.to_owned(), missing, planned: report.planned });
    }
    sound(dir, &report)?;
    let sums: Checksums = durable::read_json(&dir.join(CHECKSUMS))?;
    let mut names: Vec<String> = [MANIFEST, TIMINGS, EVENTS, CHECKSUMS].map(str::to_owned).into();
    names.extend(sums.into_keys());
    names.sort_unstable();

    let mut file = Pending::create(out)?;
    let failed = |e| StoreError::io("write", out)(e);
    let mut encoder = zstd::Encoder::new(file.writer(), ZSTD_LEVEL).map_err(failed)?;
    encoder.include_checksum(true).map_err(failed)?;
    let mut archive = tar::Builder::new(encoder);
    for name in names.iter().filter(|name| dir.join(name).is_file()) {
        let path = dir.join(name);
        let source = File::open(&path).map_err(StoreError::io("open", &path))?;
        let size = source.metadata().map_err(StoreError::io("read", &path))?.len();
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o600);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size);
        archive.append_data(&mut header, name, source.take(size)).map_err(failed)?;
    }
    archive.into_inner().and_then(zstd::Encoder::finish).map_err(failed)?;
    file.commit()
}

/// Unpacks an archive of [`export`] into a new folder and checks the run. The archive is not trusted: only plain files with
/// plain names are accepted, sizes and counts are bounded, and nothing appears at `dest` before all of it is sound.
///
/// # Errors
/// [`StoreError::Exists`] when `dest` exists, [`StoreError::Damaged`] for anything that [`export`] would not have written.
pub fn import(archive: &Path, dest: &Path) -> Result<CheckReport, StoreError> {
    let torn = |e: std::io::Error| StoreError::damaged(archive, format!("is not an archive of a run: {e}"));
    let mut incoming = Incoming::new(archive, dest)?;
    let file = File::open(archive).map_err(StoreError::io("open", archive))?;
    let mut decoder = zstd::Decoder::with_buffer(BufReader::new(file)).map_err(torn)?;
    decoder.window_log_max(MAX_WINDOW_LOG).map_err(torn)?;
    let mut unpacked = tar::Archive::new(decoder.take(MAX_BYTES));
    // Raw entries: no extension header is interpreted, so no name or size comes from anywhere but the plain header.
    for entry in unpacked.entries().map_err(torn)?.raw(true) {
        let mut entry = entry.map_err(torn)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(incoming.not_plain(&name));
        }
        let size = entry.header().entry_size().map_err(torn)?;
        incoming.add(&name, size, &mut entry, &torn)?;
    }
    // A cut that hits only padding or the checksum is found by reading on.
    let mut rest = unpacked.into_inner().take(MAX_PADDING + 1);
    if std::io::copy(&mut rest, &mut std::io::sink()).map_err(torn)? > MAX_PADDING {
        return Err(incoming.bad("goes on after its end".to_owned()));
    }
    incoming.accept()
}

/// Copies a finished run into a new folder and checks it. The folder is not trusted, as an archive is not: links, folders and
/// names that no run has are refused. The lock of its writer stays behind.
///
/// # Errors
/// As [`import`].
pub fn import_folder(from: &Path, dest: &Path) -> Result<CheckReport, StoreError> {
    let mut incoming = Incoming::new(from, dest)?;
    for entry in std::fs::read_dir(from).map_err(StoreError::io("list", from))? {
        let path = entry.map_err(StoreError::io("list", from))?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name == LOCK || is_remainder(from, &name) {
            continue;
        }
        // Looked at before it is opened: a link is not followed, and a pipe would never end.
        let found = path.symlink_metadata().map_err(StoreError::io("read", &path))?;
        if !found.is_file() {
            return Err(incoming.not_plain(&name));
        }
        let mut file = File::open(&path).map_err(StoreError::io("open", &path))?;
        if !same_file(&found, &file.metadata().map_err(StoreError::io("read", &path))?) {
            return Err(incoming.not_plain(&name));
        }
        incoming.add(&name, found.len(), &mut file, &|e| StoreError::io("read", &path)(e))?;
    }
    incoming.accept()
}

#[cfg(unix)]
fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same_file(_: &std::fs::Metadata, opened: &std::fs::Metadata) -> bool {
    opened.is_file()
}

/// A run on its way in: files in a folder of its own beside where it will stand.
struct Incoming<'a> {
    source: &'a Path,
    dest: &'a Path,
    temp: tempfile::TempDir,
    files: usize,
    bytes: u64,
}

impl<'a> Incoming<'a> {
    fn new(source: &'a Path, dest: &'a Path) -> Result<Self, StoreError> {
        if dest.symlink_metadata().is_ok() {
            return Err(StoreError::Exists { path: dest.to_owned() });
        }
        let above = durable::parent(dest);
        durable::create_folder(above)?;
        // Removed unless the run is accepted.
        let temp = durable::temporary_folder(".tmp-import-", above)?;
        Ok(Self { source, dest, temp, files: 0, bytes: 0 })
    }

    fn bad(&self, what: String) -> StoreError {
        StoreError::damaged(self.source, what)
    }

    fn not_plain(&self, name: &str) -> StoreError {
        self.bad(format!("entry {name:?} is not a plain file; links, folders and extensions are refused"))
    }

    /// Takes a file of exactly `size` bytes.
    fn add(
        &mut self,
        name: &str,
        size: u64,
        from: &mut impl Read,
        torn: &impl Fn(std::io::Error) -> StoreError,
    ) -> Result<(), StoreError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(self.bad(format!("entry {name:?} is not a plain file name")));
        }
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size);
        if self.files > MAX_FILES || self.bytes > MAX_BYTES {
            return Err(self.bad(format!("holds more than {MAX_FILES} files or {MAX_BYTES} bytes")));
        }
        let path = self.temp.path().join(name);
        if path.exists() {
            return Err(self.bad(format!("entry {name} occurs twice")));
        }
        let mut out = Pending::create(&path)?;
        let written = copy(&mut from.take(size), out.writer(), &path, torn)?;
        if written != size {
            return Err(self.bad(format!("entry {name} ends early")));
        }
        out.commit()
    }

    /// Gives the run its name, if it is one and sound.
    fn accept(self) -> Result<CheckReport, StoreError> {
        let Self { source, dest, temp, .. } = self;
        let bad = |what: String| StoreError::damaged(source, what);
        Manifest::read(temp.path()).map_err(|e| bad(format!("holds no run of this version: {}", renamed(&e))))?;
        let report = check(temp.path())?;
        sound(source, &report)?;
        let unpacked = temp.keep();
        std::fs::rename(&unpacked, dest).map_err(|e| {
            // The rename's failure is what matters; a folder that cannot be removed either stays under its temporary name.
            let _ = std::fs::remove_dir_all(&unpacked);
            StoreError::io("create", dest)(e)
        })?;
        durable::sync_folder(durable::parent(dest))?;
        Ok(report)
    }
}

fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    path: &Path,
    torn: &impl Fn(std::io::Error) -> StoreError,
) -> Result<u64, StoreError> {
    let mut buffer = vec![0; 1 << 17];
    let mut written = 0;
    loop {
        let len = from.read(&mut buffer).map_err(torn)?;
        let Some(bytes) = buffer.get(..len).filter(|b| !b.is_empty()) else { return Ok(written) };
        to.write_all(bytes).map_err(StoreError::io("write", path))?;
        written += len as u64;
    }
}

/// The problems of a run as an error.
fn sound(path: &Path, report: &CheckReport) -> Result<(), StoreError> {
    match report.problems.as_slice() {
        [] => Ok(()),
        problems => Err(StoreError::damaged(path, problems.join("; "))),
    }
}

fn renamed(error: &StoreError) -> String {
    match error {
        StoreError::NotARun { what, .. } | StoreError::Damaged { what, .. } => what.clone(),
        StoreError::Version { found, .. } => format!("its schema version is {found}"),
        other => other.to_string(),
    }
}
