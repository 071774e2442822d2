//! Says whether a system is right, on small seeded cases: whether its placement runs every document once, whether the checker
//! accepts its plans, whether no rank has more work than the system declares, whether the same seed gives the same plan, and
//! whether a backend that runs the program gets what dense attention computed from its definition gives.

mod case;
mod domain;
mod finding;
mod guard;
mod named;
mod numbers;
mod placement;
mod run;
mod shrink;

pub use case::Case;
pub use finding::{Ending, Finding, Place, Seen};
pub use named::{Conformed, Outcome, Registry, Systems, conforms, smallest_wrong, verify_number};
pub use numbers::TOLERANCE;
pub use run::{Backend, Runner, Subject, verify_case};
pub use shrink::shrink;
