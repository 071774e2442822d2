//! MPI for the command line: what connects the processes of a launch, so that each runs its ranks of a program, and what carries
//! the names of NCCL communicators between processes that have a card each.
//!
//! A crate of its own, so that the command line is compiled once, and needs no MPI. All of it needs the feature `mpi`.
#![cfg(feature = "mpi")]

mod blobs;
mod session;

pub use blobs::Blobs;
pub use session::{MpiSession, connect};
