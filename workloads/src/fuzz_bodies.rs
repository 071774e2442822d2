//! Bodies of the fuzz targets: each takes arbitrary bytes and must return. The tests run them with random input.

use std::path::Path;

use crate::import::{Counter, Format, Lists, ReadOptions, read_bytes};
use crate::packing::Packing;
use crate::source::MAX_LENGTH;

fn read(bytes: &[u8], format: Format) {
    for lists in [Lists::Lengths, Lists::Tokens] {
        let options = ReadOptions { lists, ..ReadOptions::default() };
        if let Ok(lengths) = read_bytes(bytes, format, &options) {
            assert!(!lengths.is_empty() && lengths.iter().all(|l| (1..=MAX_LENGTH).contains(l)));
        }
    }
}

/// JSON lines.
pub fn jsonl(bytes: &[u8]) {
    read(bytes, Format::Jsonl);
}

/// Comma-separated values.
pub fn csv(bytes: &[u8]) {
    read(bytes, Format::Csv);
}

/// Parquet.
pub fn parquet(bytes: &[u8]) {
    read(bytes, Format::Parquet);
}

/// NumPy array.
pub fn npy(bytes: &[u8]) {
    read(bytes, Format::Npy);
}

/// One number a line.
pub fn lines(bytes: &[u8]) {
    read(bytes, Format::Lines);
}

/// Text of a packing rule.
pub fn packing(bytes: &[u8]) {
    if let Ok(packing) = String::from_utf8_lossy(bytes).parse::<Packing>() {
        assert_eq!(packing.to_string().parse::<Packing>().ok(), Some(packing));
    }
}

/// Name of a workload.
pub fn name(bytes: &[u8]) {
    let name = String::from_utf8_lossy(bytes);
    if !crate::looks_like_file(&name) {
        let known = crate::preset(&name).is_ok();
        assert_eq!(known, crate::presets().iter().any(|p| p.name == name));
    }
}

/// Hugging Face tokenizer.json, tried on a short text.
pub fn tokenizer(bytes: &[u8]) {
    if let Ok(counter) = Counter::from_bytes(bytes, Path::new("tokenizer.json")) {
        drop(counter.count_all(&["one two".to_owned()]));
    }
}
