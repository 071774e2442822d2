//! What a user asks, answered in sentences that quote the stored values: is a bounded pool enough, what does it cost, and when is
//! something else better.

mod all;
mod asked;
mod swept;
mod systems;

pub(super) use all::answers;
