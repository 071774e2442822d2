//! Say what the ranks of a wave compute and send.

pub mod calibrated;
mod cp_group;
pub mod libra;
pub mod ring_zigzag;
pub mod ulysses;
