//! Batch scripts of Slurm: those of `scripts/slurm`, filled with checked values, and handed to `sbatch`.

mod error;
mod header;
mod render;
mod submit;
mod templates;
mod values;

pub use error::BatchError;
pub use header::Header;
pub use render::{Container, Settings, render};
pub use submit::{Submitted, submit};
pub use templates::{TEMPLATES, Template};
pub use values::{Image, Interfaces, Name, Names, Path, TimeLimit, shell_word};
