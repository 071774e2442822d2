use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes a second, written with its unit: `400 Gb/s` (bits) or `388 GB/s` (bytes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    bytes_per_s: f64,
}

const PREFIXES: [(&str, f64); 5] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];

impl Bandwidth {
    /// A bandwidth of so many bytes a second.
    pub fn from_bytes_per_s(bytes_per_s: f64) -> Self {
        Self { bytes_per_s }
    }

    /// Bytes a second.
    pub fn bytes_per_s(self) -> f64 {
        self.bytes_per_s
    }
}

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!("\"{text}\" is not a bandwidth; write a number and a unit, such as \"400 Gb/s\" or \"388 GB/s\"")
        };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(refuse)?;
        let (number, unit) = trimmed.split_at(split);
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let unit = unit.trim_start();
        let (prefix, bits) = match unit.strip_suffix("b/s") {
            Some(prefix) => (prefix, 8.0),
            None => (unit.strip_suffix("B/s").ok_or_else(refuse)?, 1.0),
        };
        let scale = PREFIXES.iter().find(|(name, _)| *name == prefix).ok_or_else(refuse)?.1;
        Ok(Self { bytes_per_s: number * scale / bits })
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, scale) = PREFIXES.iter().find(|(_, scale)| self.bytes_per_s >= *scale).unwrap_or(&PREFIXES[4]);
        write!(f, "{} {prefix}B/s", self.bytes_per_s / scale)
    }
}

impl Serialize for Bandwidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Bandwidth;

    #[test]
    fn bits_and_bytes_are_told_apart() {
        let parse = |text: &str| text.parse::<Bandwidth>().map(Bandwidth::bytes_per_s);
        assert_eq!(parse("400 Gb/s"), Ok(50e9));
        assert_eq!(parse("388GB/s"), Ok(388e9));
        assert_eq!(parse(" 4.8 TB/s "), Ok(4.8e12));
        for bad in ["", "400", "Gb/s", "-4 GB/s", "4 XB/s", "1e400 GB/s", "4 G/s", "nan GB/s", "1..2 GB/s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn display_parses_back() {
        for text in ["50 GB/s", "4.8 TB/s", "3 B/s"] {
            assert_eq!(text.parse::<Bandwidth>().map(|b| b.to_string()), Ok(text.to_owned()));
        }
    }
}
