//! Which process of which launch this is, from what launchers put into the environment.

mod detect;
mod types;

pub use types::{Job, Launch, Launcher, ProcessModel};
