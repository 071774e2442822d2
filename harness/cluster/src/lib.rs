//! What a process needs to know and agree on when a cluster's own engine started it: its place among others ([`Launch`]), where
//! all of them run ([`Placement`]), a folder in which they meet ([`Rendezvous`]), and which of them does what ([`Claims`]).
//!
//! Batch scripts of Slurm are filled with checked values and handed to `sbatch` ([`batch`]).
//!
//! Nothing else here starts processes, listens on a socket or runs in the background for others: Slurm, MPI or `torchrun` start and
//! track processes, and what processes share are files in a folder that all of them see.

pub mod batch;
mod claims;
mod error;
mod files;
mod launch;
mod owner;
mod placement;
mod pulse;
mod rendezvous;

pub use claims::{Attempt, Claim, Claims, Former, Life, Loss, Terms};
pub use error::ClusterError;
pub use files::owner_only;
pub use launch::{Job, Launch, Launcher, ProcessModel};
pub use owner::Owner;
pub use placement::{Card, Placement, placements_text};
pub use rendezvous::{Patience, Rendezvous};
