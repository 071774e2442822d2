//! Strict reading of configuration, and the known name nearest to a mistyped one.
//!
//! A text is taken whole or refused with one line that names file, line, what is wrong and what to do. This crate knows no
//! other crate of the workspace.

mod error;
mod nearest;
mod shield;
mod strict;

pub use error::ConfigError;
pub use nearest::{hint, nearest};
pub use shield::shielded;
pub use strict::{load_strict, parse_strict, parse_strict_json};
