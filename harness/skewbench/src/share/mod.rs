//! Several processes that compute the cells of one study together, wherever a launcher started them.

mod group;
mod messages;
mod names;
mod retry;
mod session;
mod turns;

pub use group::{Group, together};
pub use messages::{Connect, Messages};
pub use names::Names;
pub use retry::begin_retry;
pub use session::{Session, Share, detect, one_process};
pub use turns::{Board, Turn, Turns};
