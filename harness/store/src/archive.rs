use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use crate::durable::{self, Pending};
use crate::run::{CHECKSUMS, Checksums, EVENTS, MANIFEST, Manifest, TIMINGS};
use crate::{CheckReport, RunStatus, StoreError, check};

/// Largest file and largest sum of files that an archive may hold.
const MAX_BYTES: u64 = 1 << 36;
/// Most files of an archive.
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
    if dest.symlink_metadata().is_ok() {
        return Err(StoreError::Exists { path: dest.to_owned() });
    }
    let bad = |what: String| StoreError::damaged(archive, what);
    let torn = |e: std::io::Error| StoreError::damaged(archive, format!("is not an archive of a run: {e}"));
    let file = File::open(archive).map_err(StoreError::io("open", archive))?;
    let mut decoder = zstd::Decoder::with_buffer(BufReader::new(file)).map_err(torn)?;
    decoder.window_log_max(MAX_WINDOW_LOG).map_err(torn)?;

    let above = durable::parent(dest);
    durable::create_folder(above)?;
    // Created with mode 0700 and removed on any error below.
    let temp = tempfile::Builder::new().prefix(".tmp-import-").tempdir_in(above);
    let temp = temp.map_err(StoreError::io("create a folder in", above))?;
    let mut unpacked = tar::Archive::new(decoder.take(MAX_BYTES));
    let mut total = 0u64;
    // Raw entries: no extension header is interpreted, so no name or size comes from anywhere but the plain header.
    for (count, entry) in unpacked.entries().map_err(torn)?.raw(true).enumerate() {
        let mut entry = entry.map_err(torn)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(bad(format!("entry {name:?} is not a plain file; links, folders and extensions are refused")));
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(bad(format!("entry {name:?} is not a plain file name")));
        }
        let size = entry.header().entry_size().map_err(torn)?;
        total = total.saturating_add(size);
        if count >= MAX_FILES || total > MAX_BYTES {
            return Err(bad(format!("holds more than {MAX_FILES} files or {MAX_BYTES} bytes")));
        }
        let path = temp.path().join(&name);
        if path.exists() {
            return Err(bad(format!("entry {name} occurs twice")));
        }
        let mut out = Pending::create(&path)?;
        let written = copy(&mut entry, out.writer(), &path, &torn)?;
        if written != size {
            return Err(bad(format!("entry {name} ends early")));
        }
        out.commit()?;
    }
    // A cut that hits only padding or the checksum is found by reading on.
    let mut rest = unpacked.into_inner().take(MAX_PADDING + 1);
    if std::io::copy(&mut rest, &mut std::io::sink()).map_err(torn)? > MAX_PADDING {
        return Err(bad("goes on after its end".to_owned()));
    }
    Manifest::read(temp.path()).map_err(|e| bad(format!("holds no run of this version: {}", renamed(&e))))?;
    let report = check(temp.path())?;
    sound(archive, &report)?;
    let unpacked = temp.keep();
    std::fs::rename(&unpacked, dest).map_err(|e| {
        // The rename's failure is what matters; a folder that cannot be removed either stays under its temporary name.
        let _ = std::fs::remove_dir_all(&unpacked);
        StoreError::io("create", dest)(e)
    })?;
    durable::sync_folder(above)?;
    Ok(report)
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
