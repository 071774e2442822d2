/// Why a configuration file is refused: `file:line: what`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {what}", line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct ConfigError {
    /// Name of the file.
    pub file: String,
    /// Line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong and what to do about it.
    pub what: String,
}
