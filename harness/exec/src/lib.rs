//! Lowering: a checked [`skewbench_plan::Plan`] becomes a [`Program`] that every backend runs.

mod accumulators;
mod lower;
mod program;
mod routes;

pub use lower::{LowerError, lower};
pub use program::{
    Buffer, BufferKind, Flow, Instr, InstrId, InstrKind, PassProgram, Program, RankProgram, RankRows, RouteTable,
    TileView, TransferCall, TransferPart, View,
};
