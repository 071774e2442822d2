//! The step, the layout, the [`Plan`] that every backend runs, and the checker that decides whether a plan is right.
//!
//! This crate does no input or output and knows no system and no backend: it is all that a system needs to know.
//!
//! Coordinates: a row is the index of a token in its *packed sequence*; a document is a contiguous range of rows.
//! Ranks are local to the plan's domain (the ranks that exchange work): rank = sequence index x CP + CP index.

pub mod check;
mod cost;
mod error;
mod facts;
mod heads;
mod layout;
mod moves;
mod near;
mod plan;
mod rows;
mod slabs;
mod step;
mod system;

pub use check::order::Order;
pub use cost::{Cost, FlopsCost, LaunchShape, TileShape};
pub use error::{PlanError, SystemError};
pub use facts::{Facts, LaunchOperands, Operands, PassFacts, SlabList, TileRows, operands};
pub use heads::{AttentionShape, HeadRange, causal_pairs, row_pairs};
pub use layout::{Layout, LayoutError};
pub use moves::{Bundle, MoveIndex, MoveIndices};
pub use plan::{
    Accounting, COMPUTE, Call, CallMode, Dtype, Launch, Mask, Move, Op, OpId, Part, Pass, PassPlan, Plan, RankStreams,
    Shard, Span, Tensor, TensorSet, Tile, Work,
};
pub use rows::Rows;
pub use slabs::{Provider, RankSlabs, Run, Slab};
pub use step::{PackedSequence, Step};
pub use system::{
    Domain, LateDocument, PlaceContext, PlacedStep, Placement, PlacementBound, Placer, Planner, Scope, Wave, Worker,
};
