//! Systems that balance attention over packed sequences: placements deal a step's sequences to ranks and waves, planners say
//! what the ranks of a wave compute and send, and the registry names pairs of them.

pub mod balance;
mod call_time;
mod options;
pub mod placements;
pub mod planners;
pub mod registry;
mod tuning;

pub use options::{Accepts, DefaultValue, OptionSpec, Options};
pub use tuning::Tuning;
