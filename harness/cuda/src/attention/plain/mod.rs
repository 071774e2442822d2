//! Attention in plain CUDA C, compiled at run time: correct, not fast. No number in a performance table comes from it.

mod kernels;
mod tiles;

pub use kernels::Plain;
