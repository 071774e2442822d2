//! Programs whose ranks run in several processes: the same instructions, the same order of additions, so the same results bit
//! by bit as in one process; what ranks of different processes send each other goes through a [`Transport`].

mod group;
mod message;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
mod no_mpi;
mod transport;
mod verdict;

pub use group::Processes;
pub(crate) use group::{Link, pump};
#[cfg(feature = "mpi")]
pub use mpi::MpiSession;
#[cfg(not(feature = "mpi"))]
pub use no_mpi::MpiSession;
pub use transport::Transport;
