//! Several processes that compute the cells of one study together, wherever a launcher started them.

mod group;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "no_mpi.rs"]
mod mpi;
mod session;
mod turns;

pub use group::{Group, together};
pub use session::{Session, Share, detect, one_process};
pub use turns::{Board, Turn, Turns};
