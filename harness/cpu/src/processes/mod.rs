//! Programs whose ranks run in several processes: the same instructions, the same order of additions, so the same results bit
//! by bit as in one process; what ranks of different processes send each other goes through a [`Transport`].

mod group;
mod message;
mod transport;
mod verdict;

pub use group::Processes;
pub(crate) use group::{Link, pump};
pub use transport::Transport;
