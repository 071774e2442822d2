//! Several processes that compute the cells of one study together, wherever a launcher started them.

mod session;
mod turns;

pub use session::{Session, Share};
pub use turns::{Board, Turns};
