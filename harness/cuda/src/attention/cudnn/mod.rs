//! Attention by cuDNN's fused kernels, through its backend API.
//!
//! A graph serves a bucket of shapes ([`key`]); [`recipe`] builds it, operation by operation, as cuDNN's engines expect it;
//! [`layout`] says where every tensor of a call lies; [`kernels`] runs it.

mod backend;
mod graph;
mod kernels;
mod key;
mod layout;
mod recipe;

pub use kernels::{BuiltGraph, CuDnn};
pub use key::CuDnnOptions;
