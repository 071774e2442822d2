//! Lowering: a checked [`skewbench_plan::Plan`] becomes a [`Program`] that every backend runs.

mod program;

pub use program::{
    Buffer, BufferKind, Flow, Instr, InstrId, InstrKind, PassProgram, Program, RankProgram, RouteTable, TileView,
    TransferCall, TransferPart, View,
};
