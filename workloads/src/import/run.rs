use std::fs::File;
use std::io::{BufReader, Cursor};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::error::ImportError;
use super::intake::Intake;
use super::options::{Format, ImportOptions, ImportReport, Progress, ReadOptions, suffix};
use super::output::Output;
use super::tokens::Counter;
use super::{delimited, jsonl, npy, parquet, text};

/// Reads lengths or texts from files and folders and writes their lengths to one Parquet file.
///
/// Memory does not grow with the input. Documents keep the order of `paths`; folders are walked in the order of names,
/// links are not followed. `progress` is called about once a megabyte; the import ends soon after it breaks off.
///
/// # Errors
/// Anything that is not as it should be, with file and line, and [`ImportError::Stopped`]; then nothing is written.
pub fn import(
    paths: &[PathBuf],
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ImportReport, ImportError> {
    let inputs = inputs(paths, &options.read)?;
    let counter = options.read.tokenizer.as_deref().map(Counter::open).transpose()?;
    let mut output = Output::create(&options.out, options.overwrite)?;
    let report = read_all(&inputs, &options.read, counter, &mut |lengths| output.write(lengths), progress)?;
    output.commit()?;
    Ok(report)
}

/// All lengths of a file or folder, in order.
///
/// # Errors
/// As [`import`].
pub fn read_lengths(path: &Path, options: &ReadOptions) -> Result<Vec<u64>, ImportError> {
    let inputs = inputs(&[path.to_owned()], options)?;
    let counter = options.tokenizer.as_deref().map(Counter::open).transpose()?;
    let mut all = Vec::new();
    let mut emit = |lengths: &[u64]| {
        all.extend_from_slice(lengths);
        Ok(())
    };
    read_all(&inputs, options, counter, &mut emit, &mut |_| ControlFlow::Continue(()))?;
    Ok(all)
}

/// Lengths in the bytes of a file; what the fuzz targets call.
pub(crate) fn read_bytes(bytes: &[u8], format: Format, options: &ReadOptions) -> Result<Vec<u64>, ImportError> {
    let mut all = Vec::new();
    let mut emit = |lengths: &[u64]| {
        all.extend_from_slice(lengths);
        Ok(())
    };
    let mut quiet = |_| ControlFlow::Continue(());
    let mut intake = Intake::new(None, bytes.len() as u64, &mut emit, &mut quiet);
    let file = Path::new("input");
    match format {
        Format::Jsonl => jsonl::read(bytes, file, options, &mut intake)?,
        Format::Csv => delimited::read_table(bytes, b',', file, options, &mut intake)?,
        Format::Parquet => parquet::read(Cursor::new(bytes.to_vec()), file, options, &mut intake)?,
        Format::Npy => npy::read(bytes, file, &mut intake)?,
        Format::Lines => delimited::read_lines(bytes, file, &mut intake)?,
        Format::Text => text::read(bytes, bytes.len() as u64, file, false, &mut intake)?,
    }
    intake.finish()?;
    Ok(all)
}

struct Input {
    path: PathBuf,
    format: Format,
    bytes: u64,
    /// Found in a folder, not named by the user.
    found: bool,
}

/// Everything that will be read. What can be refused without reading is refused here.
fn inputs(paths: &[PathBuf], options: &ReadOptions) -> Result<Vec<Input>, ImportError> {
    let mut inputs = Vec::new();
    if paths.is_empty() {
        return Err(ImportError::Options("no input; give files or folders".into()));
    }
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|e| ImportError::read(path, &e))?;
        if metadata.is_dir() {
            if options.tokenizer.is_none() {
                return Err(ImportError::file(
                    path,
                    "a folder of texts needs a tokenizer.json; give one, or name files",
                ));
            }
            for entry in WalkDir::new(path).sort_by_file_name() {
                let entry = entry.map_err(|e| ImportError::file(path, format!("cannot be read: {e}")))?;
                if entry.file_type().is_file() {
                    let bytes = entry.metadata().map_err(|e| ImportError::file(path, e.to_string()))?.len();
                    inputs.push(Input { path: entry.into_path(), format: Format::Text, bytes, found: true });
                }
            }
            continue;
        }
        if !metadata.is_file() {
            return Err(ImportError::file(path, "neither a file nor a folder; save the data to a file first"));
        }
        let format = options.format_of(path).ok_or_else(|| {
            let known = "jsonl, csv, tsv, parquet, npy, txt";
            let packed = matches!(suffix(path).as_deref(), Some("gz" | "zst" | "xz" | "bz2" | "zip"));
            let remedy = if packed { "unpack it first" } else { "rename it to what it is" };
            ImportError::file(path, format!("not one of the known suffixes ({known}); {remedy}"))
        })?;
        match (format, options.tokenizer.is_some()) {
            (Format::Text, false) => return Err(ImportError::file(path, "a text needs a tokenizer.json")),
            (Format::Npy | Format::Lines, true) => {
                return Err(ImportError::file(path, "the format holds lengths, not texts; leave the tokenizer out"));
            }
            _ => {}
        }
        if metadata.len() == 0 && format != Format::Text {
            return Err(ImportError::file(path, "the file is empty"));
        }
        inputs.push(Input { path: path.clone(), format, bytes: metadata.len(), found: false });
    }
    Ok(inputs)
}

fn read_all(
    inputs: &[Input],
    options: &ReadOptions,
    counter: Option<Counter>,
    emit: &mut dyn FnMut(&[u64]) -> Result<(), ImportError>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<ImportReport, ImportError> {
    let total = inputs.iter().map(|i| i.bytes).sum();
    let mut intake = Intake::new(counter, total, emit, progress);
    for Input { path, format, bytes, found } in inputs {
        let file = File::open(path).map_err(|e| ImportError::read(path, &e))?;
        let buffered = || BufReader::with_capacity(1 << 18, &file);
        match format {
            Format::Jsonl => jsonl::read(buffered(), path, options, &mut intake)?,
            Format::Csv => {
                let delimiter = if suffix(path).as_deref() == Some("tsv") { b'\t' } else { b',' };
                delimited::read_table(buffered(), delimiter, path, options, &mut intake)?;
            }
            Format::Parquet => parquet::read(file, path, options, &mut intake)?,
            Format::Npy => npy::read(buffered(), path, &mut intake)?,
            Format::Lines => delimited::read_lines(buffered(), path, &mut intake)?,
            Format::Text => text::read(&file, *bytes, path, *found, &mut intake)?,
        }
        intake.files += 1;
    }
    intake.finish()
}
