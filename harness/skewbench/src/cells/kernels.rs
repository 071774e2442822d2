use skewbench_sim::profile::Single;
use skewbench_store::{Column, Table};

use super::{CellTables, KernelsCell, Resources};
use crate::failure::Failure;

/// One row a measured kernel call of the profile.
pub const KERNELS_TABLE: &str = "kernels";

/// Keys of the calls that are shown: long enough that the block, not the prefix, sets the rate.
const KEYS: u32 = 131_072;

pub(super) fn compute(cell: &KernelsCell, resources: &Resources) -> Result<CellTables, Failure> {
    let pricing = resources.pricing(&cell.machine)?;
    let attention = &pricing.profile().attention;
    let head_dim = f64::from(attention.head_dim);
    let mut rows: Vec<&Single> = attention.bottom_right.iter().filter(|s| s.4 == KEYS && s.3 < KEYS).collect();
    rows.sort_by_key(|s| (s.0.pass(), s.1, s.3));
    let rate = |s: &Single| {
        let (q, k) = (f64::from(s.3), f64::from(s.4));
        let pairs = q * k - q * (q - 1.0) / 2.0;
        let flops = if s.0.pass() == skewbench_plan::Pass::Forward { 4.0 } else { 10.0 };
        flops * head_dim * f64::from(s.1) * pairs / (s.5 * 1e-9) / 1e12
    };
    let table = Table::from_columns([
        ("pass", Column::Str(rows.iter().map(|s| pass_name(s)).collect())),
        ("q_heads", Column::U32(rows.iter().map(|s| s.1).collect())),
        ("kv_heads", Column::U32(rows.iter().map(|s| s.2).collect())),
        ("q_rows", Column::U32(rows.iter().map(|s| s.3).collect())),
        ("k_rows", Column::U32(rows.iter().map(|s| s.4).collect())),
        ("time_ns", Column::F64(rows.iter().map(|s| s.5).collect())),
        ("tflop_per_s", Column::F64(rows.iter().map(|s| rate(s)).collect())),
    ])
    .map_err(Failure::internal)?;
    Ok(vec![(KERNELS_TABLE, table)])
}

fn pass_name(single: &Single) -> &'static str {
    match single.0.pass() {
        skewbench_plan::Pass::Forward => "forward",
        skewbench_plan::Pass::Backward => "backward",
    }
}
