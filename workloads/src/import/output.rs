use std::fs::File;
use std::path::{Path, PathBuf};

use polars_core::error::PolarsResult;
use polars_core::prelude::{Column, DataFrame, DataType, Schema};
use polars_io::parquet::write::{BatchedWriter, ParquetCompression, ParquetWriter};
use tempfile::NamedTempFile;

use super::error::ImportError;

/// A Parquet file of lengths in the making: it gets its name only when it is whole and on the disk.
pub(crate) struct Output {
    temporary: NamedTempFile,
    writer: BatchedWriter<File>,
    out: PathBuf,
    overwrite: bool,
}

impl Output {
    pub(crate) fn create(out: &Path, overwrite: bool) -> Result<Self, ImportError> {
        if let Ok(there) = out.symlink_metadata() {
            if !there.is_file() {
                return Err(ImportError::file(out, "is not a regular file; choose another name"));
            }
            if !overwrite {
                return Err(ImportError::file(out, "exists already; choose another name, or --force to replace it"));
            }
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".skewbench-import-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The usual rights of a new file, which the process's mask narrows; a temporary file's own are narrower.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let temporary = builder.tempfile_in(folder(out)).map_err(|e| cannot_write(out, &e.to_string()))?;
        let schema = Schema::from_iter([("tokens".into(), DataType::UInt64)]);
        let writer =
            temporary.as_file().try_clone().map_err(|e| cannot_write(out, &e.to_string())).and_then(|file| {
                ParquetWriter::new(file)
                    .with_compression(ParquetCompression::Zstd(None))
                    .batched(&schema)
                    .map_err(|e| cannot_write(out, &e.to_string()))
            })?;
        Ok(Self { temporary, writer, out: out.to_owned(), overwrite })
    }

    /// Appends a row group.
    pub(crate) fn write(&mut self, lengths: &[u64]) -> Result<(), ImportError> {
        let mut write = || -> PolarsResult<()> {
            let column = Column::new("tokens".into(), lengths);
            self.writer.write_batch(&DataFrame::new(lengths.len(), vec![column])?)
        };
        write().map_err(|e| cannot_write(&self.out, &e.to_string()))
    }

    /// Ends the file, forces it to the disk and gives it its name.
    pub(crate) fn commit(self) -> Result<(), ImportError> {
        let Self { temporary, writer, out, overwrite } = self;
        writer.finish().map_err(|e| cannot_write(&out, &e.to_string()))?;
        let error = |e: &std::io::Error| cannot_write(&out, &e.to_string());
        temporary.as_file().sync_all().map_err(|e| error(&e))?;
        let named = if overwrite { temporary.persist(&out) } else { temporary.persist_noclobber(&out) };
        named.map_err(|e| error(&e.error))?;
        // The name is durable only when its folder is; some file systems cannot do this, and the data is safe anyway.
        if let Ok(folder) = File::open(folder(&out)) {
            folder.sync_all().ok();
        }
        Ok(())
    }
}

fn folder(out: &Path) -> &Path {
    out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn cannot_write(out: &Path, why: &str) -> ImportError {
    ImportError::file(out, format!("cannot be written: {why}"))
}
