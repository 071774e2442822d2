use std::{fs::File, io::Read, path::Path};

use serde::de::DeserializeOwned;

use crate::{ConfigError, nearest};

/// Largest configuration file.
const MAX_BYTES: u64 = 1 << 26;

/// Reads a TOML file of at most 64 MiB into a type that denies unknown fields.
///
/// # Errors
/// One line: file, line, what is wrong, the nearest known key for an unknown one.
pub fn load_strict<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let file = path.display().to_string();
    let refused = |line, what| ConfigError { file: file.clone(), line, what };
    let bytes = read(path).map_err(|what| refused(None, what))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let before = e.as_bytes().iter().take(e.utf8_error().valid_up_to());
        let line = before.filter(|b| **b == b'\n').count() + 1;
        refused(Some(line), "is not UTF-8 text; save it as UTF-8".to_owned())
    })?;
    parse_strict(&text, &file)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    // Asked before it is opened: opening a pipe would wait for a writer.
    let metadata = path.metadata().map_err(|e| format!("cannot be read: {e}"))?;
    if !metadata.is_file() {
        return Err("is not a regular file; give a TOML file".to_owned());
    }
    let file = File::open(path).map_err(|e| format!("cannot be opened: {e}"))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("is larger than the {MAX_BYTES} bytes that such a file may have"));
    }
    Ok(bytes)
}

/// Parses TOML into a type that denies unknown fields; `file_name` is named in messages.
///
/// # Errors
/// One line: file, line, what is wrong, the nearest known key for an unknown one.
pub fn parse_strict<T: DeserializeOwned>(text: &str, file_name: &str) -> Result<T, ConfigError> {
    let refused = |line, what| ConfigError { file: file_name.to_owned(), line, what };
    if text.trim().is_empty() {
        return Err(refused(None, "is empty".to_owned()));
    }
    toml::from_str(text).map_err(|error| {
        let what = explain(error.message());
        let spanned = error.span().map(|span| line_of(text, span.start));
        refused(spanned.or_else(|| quoted(error.message()).and_then(|key| line_of_key(text, key))), what)
    })
}

/// Parses JSON into a type that denies unknown fields; `file_name` is named in messages.
///
/// # Errors
/// One line: file, line, what is wrong, the nearest known key for an unknown one.
pub fn parse_strict_json<T: DeserializeOwned>(text: &str, file_name: &str) -> Result<T, ConfigError> {
    let refused = |line, what| ConfigError { file: file_name.to_owned(), line, what };
    if text.trim().is_empty() {
        return Err(refused(None, "is empty".to_owned()));
    }
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let suffix = format!(" at line {} column {}", error.line(), error.column());
        refused(Some(error.line()).filter(|line| *line > 0), explain(message.strip_suffix(&suffix).unwrap_or(&message)))
    })
}

/// Rewords what serde says about unknown names: "unknown field `a`, expected one of `b`, `c`".
fn explain(message: &str) -> String {
    let message = message.trim().replace('\n', "; ");
    for (start, noun) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some(rest) = message.strip_prefix(start) else { continue };
        // From the end: an unknown name may have backticks and commas of its own.
        let Some((unknown, expected)) =
            rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))
        else {
            continue;
        };
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let listed = format!("known are {}", known.join(", "));
        return match nearest(unknown, known.iter().copied()) {
            Some(nearest) if known.len() > 1 => {
                format!("unknown {noun} `{unknown}`; did you mean `{nearest}`? {listed}")
            }
            Some(nearest) => format!("unknown {noun} `{unknown}`; did you mean `{nearest}`?"),
            None if known.is_empty() => format!("unknown {noun} `{unknown}`; none is accepted here"),
            None => format!("unknown {noun} `{unknown}`; {listed}"),
        };
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("key {rest} is missing");
    }
    let mut chars = message.chars();
    // TOML's own messages start with a capital letter now and then; names in backticks stay as they are.
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The first name in backticks.
fn quoted(message: &str) -> Option<&str> {
    message.split('`').nth(1)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

/// The first line that sets `key` or opens a table of that name.
fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let names = |line: &str| {
        let line = line.trim_start_matches([' ', '\t', '[', '{', '"', '\'']);
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(['=', ']', '.']))
    };
    text.lines().position(names).map(|i| i + 1)
}
