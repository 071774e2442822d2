use crate::ConfigError;

/// Refuses `value` unless `valid`.
pub(crate) fn require(
    valid: bool,
    file: &str,
    key: impl Into<String>,
    value: impl ToString,
    why: &str,
) -> Result<(), ConfigError> {
    if valid {
        return Ok(());
    }
    Err(ConfigError::Value { file: file.to_owned(), key: key.into(), value: value.to_string(), why: why.to_owned() })
}
