//! Say what the ranks of a wave compute and send.

pub mod calibrated;
mod cp_group;
pub mod distca;
pub mod libra;
pub mod loongtrain;
pub mod ring;
pub mod ulysses;
pub mod usp;
pub mod wlb;
