use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{ConfigError, durable};

/// Largest configuration file.
const MAX_BYTES: u64 = 1 << 26;

/// Reads a TOML file into a type that denies unknown fields.
///
/// # Errors
/// One line: file, line, what is wrong, the nearest known key for an unknown one.
pub fn load_strict<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let file = path.display().to_string();
    let refused = |what: String| ConfigError { file: file.clone(), line: None, what };
    let bytes = durable::read(path, MAX_BYTES).map_err(|e| refused(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes().iter().take(e.utf8_error().valid_up_to()).filter(|b| **b == b'\n').count() + 1;
        ConfigError { file: file.clone(), line: Some(line), what: "is not UTF-8 text; save it as UTF-8".to_owned() }
    })?;
    parse_strict(&text, &file)
}

/// Parses TOML into a type that denies unknown fields.
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

/// Parses JSON into a type that denies unknown fields.
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
    for (start, noun) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        let Some(rest) = message.strip_prefix(start) else { continue };
        let mut names = rest.split('`').skip(1).step_by(2);
        let Some(unknown) = names.next() else { continue };
        let known: Vec<&str> = names.collect();
        let similarity = |name: &str| strsim::jaro_winkler(&unknown.to_lowercase(), &name.to_lowercase());
        let nearest = known.iter().copied().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
        return match nearest {
            Some(nearest) if known.len() > 1 => {
                format!("unknown {noun} `{unknown}`; did you mean `{nearest}`? known are {}", known.join(", "))
            }
            Some(nearest) => format!("unknown {noun} `{unknown}`; did you mean `{nearest}`?"),
            None => format!("unknown {noun} `{unknown}`; none is accepted here"),
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
