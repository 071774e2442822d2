//! Several processes that compute the cells of one study together, wherever a launcher started them.

mod group;
mod session;
mod turns;

pub use group::{Group, connect};
pub use session::{Session, Share, detect};
pub use turns::{Board, Turns};
