//! `skewbench calibrate`: measures a machine and writes a profile.
//!
//! Points come in an order in which every beginning makes a profile that is whole: first a few of every table, then launches as
//! systems make them, then a grid, then its refinement where the curve bends. Each is on disk before the next begins.

mod journal;
mod points;
mod profile;
mod run;
mod validate;

pub use journal::{Entry, Journal};
pub use points::{Family, Point, Work, held_out, points};
pub use profile::{Machine, build, points_csv};
pub use run::{Instruments, measure};
pub use validate::validation_csv;
