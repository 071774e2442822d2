//! From stored samples to values, from values to figures, summary rows and the report.

mod cards;
mod claims;
mod comparing;
mod figures;
mod findings;
mod loaded;
mod measured;
mod overview;
mod proxy;
mod runs;
mod site;
mod spread;
mod standing;
mod summary;
mod swept;
mod timeline;
mod training;
mod tuning;
mod validation;
mod values;
mod waves;

pub use comparing::{Compared, compare_runs};
pub use figures::figure;
pub use loaded::Loaded;
pub use measured::measured_page;
pub use runs::RunGroup;
pub use site::{Rendering, render, render_measured};
pub use summary::{print_summary, quote, summary_rows, write_summary, write_text};
pub use training::step_times;
pub use tuning::{TuningResult, tuning_results};
pub use validation::validation_page;
pub use values::{DRAWN, NO_TRANSFERS, NOT_COMPUTED, Value, evaluate, linear_name};
