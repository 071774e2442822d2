//! Document lengths in, packed windows out.
//!
//! A [`Workload`] is a source of document lengths, a window and a packing rule. A [`WindowStream`] turns it and a seed
//! into steps of packed windows: any step at any time, the same bytes on every machine and with any number of threads.
//! [`import`](import()) reads users' lengths or texts into a Parquet file of lengths; [`describe`] says what a workload is like.

mod describe;
mod error;
#[doc(hidden)]
pub mod fuzz_bodies;
mod import;
mod math;
mod pack;
mod packing;
mod presets;
mod real;
mod rng;
mod source;
mod stream;
mod workload;

pub use describe::{Description, DocumentStats, Estimate, QUANTILES, WindowStats, describe};
pub use error::WorkloadError;
pub use import::{
    Format, ImportError, ImportOptions, ImportReport, Lists, Progress, ReadOptions, import, read_lengths,
};
pub use packing::Packing;
pub use presets::{Preset, Provenance, preset, presets};
pub use source::{Bin, LengthSource, Lognormal, Within};
pub use stream::{StreamOptions, Window, WindowStream};
pub use workload::{MAX_WINDOW, Workload, looks_like_file};
