//! From stored samples to values, from values to figures, summary rows and the report.

mod figures;
mod site;
mod summary;
mod training;
mod values;

pub use figures::figure;
pub use site::{Rendering, render};
pub use summary::{print_summary, quote, summary_rows, write_summary};
pub use training::step_times;
pub use values::{Loaded, NO_TRANSFERS, NOT_COMPUTED, Value, evaluate, linear_name};
