//! Programs in any language as systems: they place and plan over JSON lines on standard input and output.
//!
//! A manifest names the program; [`Catalogue`] finds manifests by name or path and makes systems of them, alone or as halves
//! of pairs. A program is never trusted: lines are bounded, every request has a time limit, the process group is killed
//! when something is wrong or the work is done, and its plans are checked like any other, always. `docs/ADD-A-SYSTEM.md`
//! describes the protocol for authors of programs.

mod catalogue;
mod error;
pub mod fuzz_bodies;
mod ledger;
mod manifest;
mod options;
mod placement;
mod planner;
mod process;
mod protocol;
mod session;

pub use catalogue::{Catalogue, Listed};
pub use error::CatalogueError;
pub use ledger::{Ledger, StandardError};
pub use manifest::{Key, Record};
pub use process::{cancel, kill_all};
pub use protocol::{Hello, PROTOCOL};
