//! Cells: the unit that is computed once, stored under the hash of its inputs, and never computed again.

mod balance;
mod clock;
mod in_order;
mod kernels;
mod memo;
mod prepare;
mod replayed;
mod resources;
mod samples;
mod spec;
mod spread;
mod steps;
mod timeline;
mod waves;

pub use balance::{BALANCE_TABLE, WINDOWS_TABLE};
pub use clock::Clock;
pub use kernels::{KERNELS_TABLE, kernel_shapes};
pub use prepare::{Prepared, prepare};
pub use replayed::{LAUNCHES_TABLE, Placed, Predicted, REPLAYED_TABLE};
pub use resources::{Resources, workload_failure};
pub use samples::{RANKS_TABLE, STEPS_TABLE, WAVES_TABLE, WaveRows};
pub use spec::{BalanceCell, CellSpec, KernelsCell, MachineKey, ReplayKey, SpreadCell, WavesCell, WorkloadKey};
pub use spread::SPREAD_TABLE;
pub use steps::{StepSource, step_seed};
pub use timeline::{TIMELINE_TABLE, joined};

use skewbench_store::{Table, Timings};

use crate::failure::Failure;

/// Tables of one finished cell, by kind.
pub type CellTables = Vec<(&'static str, Table)>;

/// A finished cell.
#[derive(Clone, Debug)]
pub struct Computed {
    /// Its tables.
    pub tables: CellTables,
    /// Wall-clock seconds by phase, summed over threads.
    pub timings: Timings,
}

/// Says which cells are going to be computed, so that those which share work ask for all of it at once.
pub fn expect<'a>(cells: impl IntoIterator<Item = &'a CellSpec>, resources: &Resources) {
    for cell in cells {
        if let CellSpec::Waves(cell) = cell {
            waves::expect(cell, resources);
        }
    }
}

/// Computes a cell. The same cell gives the same tables on any machine with any number of threads, unless its launches are
/// timed on a card, which [`crate::replay::prepare`] has done.
///
/// # Errors
/// What keeps the system from placing, planning, checking or lowering one of the steps; a launch that the card refused.
pub fn compute(spec: &CellSpec, resources: &Resources) -> Result<Computed, Failure> {
    let untimed = |tables| Computed { tables, timings: Timings::new() };
    match spec {
        CellSpec::Balance(cell) => balance::compute(cell, resources).map(untimed),
        CellSpec::Waves(cell) if cell.replay.is_some() => replayed::compute(spec, cell, resources),
        CellSpec::Waves(cell) => waves::compute(cell, resources),
        CellSpec::Kernels(cell) => kernels::compute(cell, resources).map(untimed),
        CellSpec::Spread(cell) => spread::compute(cell, resources).map(untimed),
    }
}
