//! Lowering: a checked [`skewbench_plan::Plan`] becomes a [`Program`] that every backend runs.

mod accumulators;
mod arrivals;
mod finish;
mod home;
mod lower;
mod places;
mod program;
mod routes;
mod schedule;

pub use lower::{LowerError, lower, outline};
pub use places::{Place, Places};
pub use program::{
    Buffer, BufferKind, Flow, Instr, InstrId, InstrKind, PassProgram, Program, RankProgram, RankRows, RouteTable,
    TileView, TraceEvent, TransferCall, TransferPart, View,
};
pub use schedule::{ProgramError, Schedule};
