//! One rule for what a document length is, whatever format it comes in. Errors say what was wrong and the remedy.

use crate::source::MAX_LENGTH;

pub(crate) fn from_u64(value: u64) -> Result<u64, String> {
    match value {
        0 => Err("length 0; a document has at least 1 token, leave the row out".into()),
        1..=MAX_LENGTH => Ok(value),
        _ => Err(format!("length {value} is above 2^40; lengths are tokens of one document")),
    }
}

pub(crate) fn from_i128(value: i128) -> Result<u64, String> {
    match u64::try_from(value) {
        Ok(value) => from_u64(value),
        Err(_) if value < 0 => Err(format!("length {value} is negative; lengths are 1 to 2^40 tokens")),
        Err(_) => Err(format!("length {value} is above 2^40; lengths are tokens of one document")),
    }
}

pub(crate) fn from_f64(value: f64) -> Result<u64, String> {
    if value.is_nan() {
        Err("length NaN; lengths are whole numbers of tokens, fill or leave out the row".into())
    } else if value < 0.0 {
        Err(format!("length {value} is negative; lengths are 1 to 2^40 tokens"))
    } else if value > MAX_LENGTH as f64 {
        Err(format!("length {value} is above 2^40; lengths are tokens of one document"))
    } else if value.fract() != 0.0 {
        Err(format!("length {value} is fractional; lengths are whole numbers of tokens"))
    } else {
        from_u64(value as u64)
    }
}

/// A length in decimal digits; spaces around it and a fraction of zero are allowed.
pub(crate) fn from_text(bytes: &[u8]) -> Result<u64, String> {
    let bytes = bytes.trim_ascii();
    let text = || String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    if bytes.is_empty() {
        return Err("the length is missing; fill or leave out the row".into());
    }
    if bytes.len() <= 19 && bytes.iter().all(u8::is_ascii_digit) {
        return from_u64(bytes.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')));
    }
    match std::str::from_utf8(bytes).ok().and_then(|t| t.parse::<f64>().ok()) {
        Some(value) => from_f64(value),
        None => Err(format!("{:?} is not a length; lengths are whole numbers of tokens", text())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_numbers_from_1_to_2_to_the_40() {
        for (text, value) in [("1", 1), (" 42\r", 42), ("1024.0", 1024), ("1e3", 1000), ("1099511627776", 1 << 40)] {
            assert_eq!(from_text(text.as_bytes()), Ok(value), "{text}");
        }
        for (text, part) in [
            ("", "missing"),
            ("0", "length 0"),
            ("-3", "negative"),
            ("2.5", "fractional"),
            ("nan", "NaN"),
            ("inf", "above 2^40"),
            ("-inf", "negative"),
            ("1099511627777", "above 2^40"),
            ("99999999999999999999999", "above 2^40"),
            ("ten", "not a length"),
            ("\u{ff11}", "not a length"),
        ] {
            let error = from_text(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(from_text(&[0xff, 0xfe]).is_err());
        assert!(from_i128(-1).is_err() && from_i128(i128::MAX).is_err());
    }
}
