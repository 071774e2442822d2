//! Reading document lengths from users' files, and texts through a tokenizer.

mod delimited;
mod error;
mod intake;
mod jsonl;
mod length;
mod npy;
mod options;
mod output;
mod pages;
pub(crate) mod parquet;
mod run;
mod text;
mod tokens;

pub use error::ImportError;
pub(crate) use options::is_known_suffix;
pub use options::{Format, ImportOptions, ImportReport, Lists, Progress, ReadOptions};
pub(crate) use run::read_bytes;
pub use run::{import, read_lengths};
pub(crate) use tokens::Counter;
