//! Times launches on a card.

mod card;
mod packed;

pub use card::CardTimer;
pub use packed::{PackedCall, packed};
