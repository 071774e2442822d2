//! The named systems, their placements and planners. A system is added with one module and one line here.

mod calibrated;
mod entry;
mod error;
mod libra;
mod list;
mod parts;
mod system;

pub use entry::{Capability, NamedSystem, PlacementEntry, PlannerEntry};
pub use error::RegistryError;
pub use list::{PLACEMENTS, PLANNERS, SYSTEMS};
pub use parts::{Build, Parts, PlacementPart, PlannerPart};
pub use system::{Description, System, describe, parts, system, systems, systems_with};
