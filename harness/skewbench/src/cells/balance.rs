use rayon::prelude::*;
use skewbench_plan::causal_pairs;
use skewbench_store::{Column, Table};
use skewbench_systems::balance::Loads;
use skewbench_systems::placements::{equal_capacities, group};

use super::steps::step_seed;
use super::{BalanceCell, CellTables, Resources};
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// One row a step, pool size and grouping.
pub const BALANCE_TABLE: &str = "balance";
/// One row a step: sums over its windows.
pub const WINDOWS_TABLE: &str = "windows";

/// What one step contributes.
struct StepRows {
    /// R - 1 and waiting inside waves, by pool size, then grouping.
    balance: Vec<(f64, f64)>,
    mean_x: f64,
    mean_squared_x: f64,
    documents: u64,
}

pub(super) fn compute(cell: &BalanceCell, resources: &Resources) -> Result<CellTables, Failure> {
    let source = resources.steps(&cell.workload, cell.gbs, cell.seed)?;
    let per_chunk = source.steps_per_chunk();
    let chunks: Vec<u64> = (0..u64::from(cell.steps.div_ceil(per_chunk))).collect();
    let rows: Vec<StepRows> = chunks
        .par_iter()
        .map(|chunk| {
            let first = (*chunk * u64::from(per_chunk)) as u32;
            let steps = source.windows(*chunk);
            steps
                .iter()
                .take((cell.steps - first) as usize)
                .enumerate()
                .map(|(i, windows)| step(cell, u64::from(first) + i as u64, windows))
                .collect::<Result<Vec<_>, Failure>>()
        })
        .collect::<Result<Vec<_>, Failure>>()?
        .into_iter()
        .flatten()
        .collect();
    Ok(vec![(BALANCE_TABLE, balance_table(cell, &rows)?), (WINDOWS_TABLE, windows_table(&rows)?)])
}

fn step(cell: &BalanceCell, index: u64, windows: &[Box<[u32]>]) -> Result<StepRows, Failure> {
    check_interrupted()?;
    let work: Vec<u64> = windows.iter().map(|w| w.iter().map(|l| causal_pairs(*l)).sum()).collect();
    let seed = step_seed(cell.seed, index);
    let mut balance = Vec::with_capacity(cell.pools.len() * cell.groupings.len());
    for pool in &cell.pools {
        let capacities = equal_capacities(work.len() as u32, *pool);
        for grouping in &cell.groupings {
            let groups = group(&work, &capacities, *grouping, seed).map_err(Failure::internal)?;
            let loads = Loads::of_groups(&work, &groups);
            balance.push((loads.r() - 1.0, waiting(&loads, cell.dp)));
        }
    }
    let square = f64::from(cell.workload.window_tokens) * f64::from(cell.workload.window_tokens);
    let x = |w: &[u32]| w.iter().map(|l| f64::from(*l) * f64::from(*l)).sum::<f64>() / square;
    let n = windows.len() as f64;
    Ok(StepRows {
        balance,
        mean_x: windows.iter().map(|w| x(w)).sum::<f64>() / n,
        mean_squared_x: windows.iter().map(|w| x(w).powi(2)).sum::<f64>() / n,
        documents: windows.iter().map(|w| w.len() as u64).sum(),
    })
}

/// Waiting inside waves when pools are dealt to waves in the order of their ids, DP sequences a wave.
fn waiting(loads: &Loads, dp: u32) -> f64 {
    let (mut max, mut mean) = (0.0, 0.0);
    let mut start = 0;
    while start < loads.work.len() {
        let mut end = start;
        let mut places = 0;
        while end < loads.work.len() && (places == 0 || places + loads.places[end] <= dp) {
            places += loads.places[end];
            end += 1;
        }
        let wave = Loads { work: loads.work[start..end].to_vec(), places: loads.places[start..end].to_vec() };
        max += wave.max();
        mean += wave.mean();
        start = end;
    }
    if mean > 0.0 { max / mean - 1.0 } else { 0.0 }
}

fn balance_table(cell: &BalanceCell, rows: &[StepRows]) -> Result<Table, Failure> {
    let per_step = cell.pools.len() * cell.groupings.len();
    let labels: Vec<(u32, &str)> =
        cell.pools.iter().flat_map(|p| cell.groupings.iter().map(move |g| (*p, g.name()))).collect();
    let all = || rows.iter().flat_map(|r| &r.balance);
    let step = (0..rows.len() as u32).flat_map(|s| std::iter::repeat_n(s, per_step));
    Table::from_columns([
        ("step", Column::U32(step.collect())),
        ("pool", Column::U32(rows.iter().flat_map(|_| labels.iter().map(|l| l.0)).collect())),
        ("grouping", Column::Str(rows.iter().flat_map(|_| labels.iter().map(|l| l.1)).collect())),
        ("r_minus_1", Column::F64(all().map(|b| b.0).collect())),
        ("wave_r", Column::F64(all().map(|b| b.1).collect())),
    ])
    .map_err(Failure::internal)
}

fn windows_table(rows: &[StepRows]) -> Result<Table, Failure> {
    Table::from_columns([
        ("step", Column::U32((0..rows.len() as u32).collect())),
        ("mean_x", Column::F64(rows.iter().map(|r| r.mean_x).collect())),
        ("mean_squared_x", Column::F64(rows.iter().map(|r| r.mean_squared_x).collect())),
        ("documents", Column::U64(rows.iter().map(|r| r.documents).collect())),
    ])
    .map_err(Failure::internal)
}
