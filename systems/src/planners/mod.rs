//! Say what the ranks of a wave compute and send.

mod cp_group;
pub mod distca;
pub mod libra;
pub mod ring_zigzag;
pub mod ulysses;
