use crate::ConfigError;

/// The known name nearest to `name`, when it is near enough to be a slip.
pub(crate) fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance * 2 <= candidate.len().max(name.len()))
        .map(|(_, candidate)| candidate)
}

/// serde's message with the nearest key offered where a key is unknown.
fn offer_nearest(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `").or_else(|| message.strip_prefix("unknown variant `"))
    else {
        return message.to_owned();
    };
    let mut quoted = rest.split('`').step_by(2);
    let Some(name) = quoted.next() else { return message.to_owned() };
    let known: Vec<&str> = rest.split('`').skip(2).step_by(2).collect();
    let what = if message.starts_with("unknown field") { "unknown key" } else { "unknown value" };
    match nearest_name(name, known.iter().copied()) {
        Some(nearest) => format!("{what} `{name}`, did you mean `{nearest}`; known: {}", known.join(", ")),
        None => format!("{what} `{name}`; known: {}", known.join(", ")),
    }
}

/// Names file and line of a JSON error.
pub(crate) fn json_error(file: &str, error: &serde_json::Error) -> ConfigError {
    let message = error.to_string();
    let bare = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    ConfigError::Parse { file: file.to_owned(), line: error.line(), what: offer_nearest(bare) }
}

/// Names file and line of a TOML error.
pub(crate) fn toml_error(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(start).filter(|b| *b == b'\n').count() + 1;
    ConfigError::Parse { file: file.to_owned(), line, what: offer_nearest(error.message()) }
}

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
