use std::io::Read;
use std::path::Path;

use super::error::ImportError;
use super::intake::Intake;

/// Texts up to this size are gathered and tokenised together.
const SMALL: u64 = 1 << 20;
/// Bytes of a larger text in memory at a time.
const BLOCK: usize = 8 << 20;

/// Reads a file as one document. One that is not UTF-8 or holds a NUL is an error, or is counted where `skip_others`.
pub(crate) fn read(
    mut reader: impl Read,
    size: u64,
    file: &Path,
    skip_others: bool,
    intake: &mut Intake<'_>,
) -> Result<(), ImportError> {
    let is_text = if size <= SMALL {
        let mut bytes = Vec::with_capacity(size as usize);
        reader.read_to_end(&mut bytes).map_err(|e| ImportError::read(file, &e))?;
        intake.bytes(bytes.len() as u64);
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => {
                intake.text(text)?;
                true
            }
            _ => false,
        }
    } else {
        read_large(reader, file, intake)?
    };
    if !is_text && skip_others {
        intake.skipped_not_text += 1;
    } else if !is_text {
        return Err(ImportError::file(file, "not a UTF-8 text; convert it, or give the format of a file of lengths"));
    }
    Ok(())
}

/// Counts the tokens of a text that is never in memory as a whole. False if it is not text.
fn read_large(mut reader: impl Read, file: &Path, intake: &mut Intake<'_>) -> Result<bool, ImportError> {
    let mut block = Vec::with_capacity(BLOCK);
    let (mut tokens, mut size) = (0, 0);
    loop {
        let room = (BLOCK - block.len()) as u64;
        let got = reader.by_ref().take(room).read_to_end(&mut block).map_err(|e| ImportError::read(file, &e))?;
        intake.bytes(got as u64);
        size += got as u64;
        let is_end = got == 0;
        let valid = match std::str::from_utf8(&block) {
            Ok(text) => text,
            // A character may be cut by the block, not by the end of the file.
            Err(e) if e.error_len().is_none() && !is_end => {
                std::str::from_utf8(&block[..e.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => return Ok(false),
        };
        if valid.contains('\0') {
            return Ok(false);
        }
        let Some(counter) = intake.counter() else {
            return Err(ImportError::file(file, "a text needs a tokenizer.json"));
        };
        let (count, used) = counter.count_start(valid, is_end)?;
        tokens += count;
        block.drain(..used);
        if is_end {
            intake.counted(tokens, size)?;
            return Ok(true);
        }
    }
}
