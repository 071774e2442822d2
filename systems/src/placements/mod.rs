//! Deal the complete packed sequences of a step to pools, data-parallel ranks and waves.

pub mod arrival;
mod deal;
mod exact_lpt;
mod group;
pub mod lpt;
mod pooled;
pub mod random;
pub mod sorted;
pub mod vrsp;
pub mod wlb;
mod work;
pub mod zigzag;
pub mod zigzag_swap;
pub mod zigzag_swap_all;

pub use deal::Deal;
pub use exact_lpt::exact_cardinality_lpt;
pub use group::{Grouping, equal_capacities, group};
pub use pooled::Pooled;
pub use work::Measure;
