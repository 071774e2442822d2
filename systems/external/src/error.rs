use std::fmt::Write;

use skewbench_config::ConfigError;
use skewbench_systems::registry::RegistryError;

/// Why no system could be made from a name and options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// As for built-in systems.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ConfigError),
    /// A program is asked for what it does not do.
    #[error("external system {name} does not {what}; {remedy}")]
    Role {
        /// Name of the manifest.
        name: String,
        /// "plan" or "place".
        what: &'static str,
        /// What to ask for.
        remedy: String,
    },
}

impl CatalogueError {
    /// True when a name is unknown, false when a file or a value is at fault.
    pub fn is_unknown_name(&self) -> bool {
        match self {
            Self::Registry(RegistryError::Value { .. } | RegistryError::Option { .. }) | Self::Manifest(_) => false,
            Self::Registry(_) | Self::Role { .. } => true,
        }
    }
}

/// Why a program gave no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    #[error("cannot be started: {0}")]
    Start(String),
    #[error("did not {what} within {seconds} s{}", half(*half_line))]
    Timeout { what: &'static str, seconds: f64, half_line: bool },
    #[error("ended with {status} instead of answering{}", half(*half_line))]
    Ended { status: String, half_line: bool },
    #[error("ended with {0} once it had no more to do; it must end with exit status 0 when its standard input ends")]
    BadEnd(String),
    #[error("did not end within {0} s after its standard input had ended")]
    NoEnd(f64),
    #[error("closed its standard {0} instead of answering")]
    Closed(&'static str),
    #[error("printed a line longer than {0} bytes")]
    LongLine(usize),
    #[error("printed what nobody asked for: {0}; print one line for each request and anything else to standard error")]
    Extra(String),
    #[error("answered with what is not a valid answer to {expected}: {why}; it printed: {line}")]
    Invalid { expected: &'static str, why: String, line: String },
    #[error("speaks protocol {got}, this skewbench speaks {}", crate::PROTOCOL)]
    Version { got: String },
    #[error("answered request {got}, the question was {asked}")]
    Id { asked: u64, got: u64 },
    #[error("{0}")]
    Contract(String),
    #[error("refused: {0}")]
    Refused(String),
    #[error("was stopped, the run is interrupted")]
    Cancelled,
    #[error("input or output failed: {0}")]
    Io(String),
}

fn half(half_line: bool) -> &'static str {
    if half_line { "; the line that it printed has no end" } else { "" }
}

/// Text of a program for a message of one line: shortened, without control characters.
pub(crate) fn excerpt(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(most * 4)]);
    let mut out = String::new();
    for c in text.trim().chars().take(most) {
        if c.is_control() {
            // Writing to a string cannot fail.
            let _infallible = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.trim().chars().nth(most).is_some() || bytes.len() > most * 4 {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn excerpts_are_one_short_line() {
        assert_eq!(excerpt(b" a\nb\xff\x07 ", 80), "a\\nb\u{fffd}\\u{7}");
        assert_eq!(excerpt("äöü".repeat(100).as_bytes(), 4), "äöüä...");
        assert_eq!(excerpt(b"", 4), "");
    }
}
