use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::WorkloadError;

/// How documents fill windows. Every rule gives windows of exactly `window` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Packing {
    /// First fit over `open` windows. A document is truncated to the window; one of a whole window stands alone;
    /// others go into the oldest open window with room, or open a new one. When `open` are open and none has room,
    /// the fullest (the oldest of equals) is filled with the head of the document and the rest is dropped. A window
    /// with little room is closed at once and topped up with one cut segment.
    FirstFit {
        /// Windows that are open at once, 1 to 1024.
        open: u32,
        /// Room in tokens at which a window is closed; none: 1024, at most a 64th of the window, so that what is added never
        /// weighs among the documents of a short window.
        top_up: Option<u32>,
    },
    /// One open window; the document that overflows is cut at its end and the rest dropped; documents are truncated
    /// to the window.
    Cut,
    /// One open window; the rest of the document that overflows starts the next one. Nothing is dropped.
    Split,
}

impl Packing {
    /// First fit over 32 windows.
    pub const FIRST_FIT: Self = Self::FirstFit { open: 32, top_up: None };
    const MAX_OPEN: u32 = 1024;
    const TOP_UP: u32 = 1024;
    /// Windows of the room at which one is closed, where that is not given.
    const TOP_UPS: u32 = 64;

    /// Room in tokens at which a window of so many tokens is closed.
    pub(crate) fn closing_room(top_up: Option<u32>, window: u32) -> u32 {
        top_up.unwrap_or(Self::TOP_UP.min(window / Self::TOP_UPS))
    }

    /// Windows that a stream drops before its first, so that starting from nothing leaves no trace.
    pub(crate) fn warm_up(self) -> usize {
        match self {
            Self::FirstFit { open, .. } => 2 * open as usize,
            // A window of `cut` owes nothing to the one before it.
            Self::Cut => 0,
            Self::Split => 64,
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FIRST_FIT => f.write_str("ff"),
            Self::FirstFit { open, top_up: None } => write!(f, "ff:open={open}"),
            Self::FirstFit { open, top_up: Some(top_up) } => write!(f, "ff:open={open},top_up={top_up}"),
            Self::Cut => f.write_str("cut"),
            Self::Split => f.write_str("split"),
        }
    }
}

impl FromStr for Packing {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let error = |why: String| WorkloadError::Packing { text: text.to_owned(), why };
        match text {
            "ff" => return Ok(Self::FIRST_FIT),
            "cut" => return Ok(Self::Cut),
            "split" => return Ok(Self::Split),
            _ => {}
        }
        let options = text.strip_prefix("ff:").ok_or_else(|| error("unknown rule".into()))?;
        let (mut open, mut top_up) = (32, None);
        for option in options.split(',') {
            let (key, value) = option.split_once('=').ok_or_else(|| error(format!("{option:?} is not key=value")))?;
            let number: u32 = value.parse().map_err(|_| error(format!("{value:?} is not a whole number")))?;
            match key {
                "open" if (1..=Self::MAX_OPEN).contains(&number) => open = number,
                "open" => return Err(error(format!("open = {number}; it is 1 to {}", Self::MAX_OPEN))),
                "top_up" => top_up = Some(number),
                _ => return Err(error(format!("unknown option {key:?}"))),
            }
        }
        Ok(Self::FirstFit { open, top_up })
    }
}

impl TryFrom<String> for Packing {
    type Error = WorkloadError;

    fn try_from(text: String) -> Result<Self, WorkloadError> {
        text.parse()
    }
}

impl From<Packing> for String {
    fn from(packing: Packing) -> Self {
        packing.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["ff", "cut", "split", "ff:open=4", "ff:open=4,top_up=0", "ff:open=32,top_up=1024"] {
            assert_eq!(text.parse::<Packing>().unwrap().to_string(), text);
        }
        assert_eq!("ff:open=32".parse::<Packing>().unwrap(), Packing::FIRST_FIT);
    }

    #[test]
    fn bad_text_says_what_is_accepted() {
        for text in ["", "bf", "ff:", "ff:open", "ff:open=0", "ff:open=99999", "ff:open=x", "ff:windows=3"] {
            let message = text.parse::<Packing>().unwrap_err().to_string();
            assert!(message.contains("choose ff, cut, split"), "{message}");
        }
    }
}
