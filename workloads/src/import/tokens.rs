use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tokenizers::Tokenizer;

use super::error::ImportError;

/// Longest piece of text that is tokenised at once.
const PIECE_BYTES: usize = 64 << 10;

/// Counts tokens of texts.
pub(crate) struct Counter {
    tokenizer: Tokenizer,
    file: PathBuf,
}

impl Counter {
    /// Reads a Hugging Face `tokenizer.json`.
    pub(crate) fn open(file: &Path) -> Result<Self, ImportError> {
        let bytes = std::fs::read(file).map_err(|e| ImportError::read(file, &e))?;
        Self::from_bytes(&bytes, file)
    }

    pub(crate) fn from_bytes(bytes: &[u8], file: &Path) -> Result<Self, ImportError> {
        let bad = |why: String| ImportError::file(file, format!("not a Hugging Face tokenizer.json: {why}"));
        // The library panics on some files that are not what it expects; plain syntax errors are found first, with
        // their line and column.
        serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map_err(|e| bad(e.to_string()))?;
        let parsed = std::panic::catch_unwind(|| Tokenizer::from_bytes(bytes).map_err(|e| e.to_string()));
        let parsed = parsed.unwrap_or_else(|_| Err("the tokenizers library cannot read it".into()));
        let mut tokenizer = parsed.map_err(bad)?;
        // Both would change lengths: truncation would hide every long document.
        tokenizer.with_truncation(None).map_err(|e| bad(e.to_string()))?;
        tokenizer.with_padding(None);
        Ok(Self { tokenizer, file: file.to_owned() })
    }

    /// Tokens of every text, on all cores.
    pub(crate) fn count_all(&self, texts: &[String]) -> Result<Vec<u64>, ImportError> {
        let pieces: Vec<(usize, &str)> = texts
            .iter()
            .enumerate()
            .flat_map(|(i, text)| pieces(text, true).0.into_iter().map(move |p| (i, p)))
            .collect();
        let counts = pieces.par_iter().map(|(_, piece)| self.count_piece(piece)).collect::<Result<Vec<u64>, _>>()?;
        let mut totals = vec![0; texts.len()];
        for ((text, _), count) in pieces.iter().zip(counts) {
            totals[*text] += count;
        }
        Ok(totals)
    }

    /// Tokens of the part of a long text that is surely cut the same way whatever follows, and the bytes of that part.
    pub(crate) fn count_start(&self, text: &str, is_end: bool) -> Result<(u64, usize), ImportError> {
        let (pieces, used) = pieces(text, is_end);
        let counts = pieces.par_iter().map(|piece| self.count_piece(piece)).collect::<Result<Vec<u64>, _>>()?;
        Ok((counts.iter().sum(), used))
    }

    fn count_piece(&self, piece: &str) -> Result<u64, ImportError> {
        let encoding = self
            .tokenizer
            .encode_fast(piece, false)
            .map_err(|e| ImportError::file(&self.file, format!("the tokenizer failed on a text: {e}")))?;
        Ok(encoding.get_ids().len() as u64)
    }
}

/// Cuts a text after its last line end within 64 KiB, again and again; a longer line is cut between characters.
/// Without `is_end` the last piece, which may still grow, is left over. Also returns the bytes used.
fn pieces(text: &str, is_end: bool) -> (Vec<&str>, usize) {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > PIECE_BYTES {
        let limit = rest.floor_char_boundary(PIECE_BYTES);
        let cut = rest[..limit].rfind('\n').map_or(limit, |at| at + 1);
        let (piece, after) = rest.split_at(cut);
        pieces.push(piece);
        rest = after;
    }
    if is_end && !rest.is_empty() {
        pieces.push(rest);
        rest = "";
    }
    (pieces, text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_at_line_ends_and_lose_nothing() {
        let lines: String = (0..20_000).map(|i| format!("line {i} äöü\n")).collect();
        let no_lines = "ü".repeat(100_000);
        for text in [lines.as_str(), &no_lines, "", "short"] {
            let (parts, used) = pieces(text, true);
            assert_eq!(used, text.len());
            assert_eq!(parts.concat(), text);
            assert!(parts.iter().all(|p| !p.is_empty() && p.len() <= PIECE_BYTES));
        }
        let (parts, _) = pieces(&lines, true);
        assert!(parts.iter().all(|p| p.ends_with('\n')));
        // A prefix is cut as the whole is.
        let (start, used) = pieces(&lines[..150_000], false);
        assert_eq!(start[..], parts[..start.len()]);
        assert!(used > 100_000);
    }
}
