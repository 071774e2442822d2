use skewbench_plan::{LaunchShape, Mask, Pass, TileShape};
use skewbench_sim::Pricing;
use skewbench_sim::profile::Single;
use skewbench_store::{Column, Table};

use super::{CellTables, KernelsCell, Resources};
use crate::failure::Failure;
use crate::replay::{Samples, Shape};

/// One row a kernel call of the profile's table.
pub const KERNELS_TABLE: &str = "kernels";

/// Keys of the calls that are shown: long enough that the block, not the prefix, sets the rate.
const KEYS: u32 = 131_072;

/// Calls of the table that are shown: blocks of powers of two, between which the table is denser than a figure can be.
fn shown(pricing: &Pricing) -> Vec<&Single> {
    let table = &pricing.profile().attention.bottom_right;
    let mut rows: Vec<&Single> = table.iter().filter(|s| s.4 == KEYS && s.3 < KEYS && s.3.is_power_of_two()).collect();
    rows.sort_by_key(|s| (s.0.pass(), s.1, s.3));
    rows
}

fn shape(pricing: &Pricing, single: &Single) -> Option<Shape> {
    let &Single(pass, q_heads, kv_heads, q, k, _) = single;
    Shape::new(&LaunchShape {
        pass: pass.pass(),
        mask: Mask::Causal,
        q_heads,
        kv_heads,
        head_dim: pricing.profile().attention.head_dim,
        tiles: &[TileShape { q, k }],
    })
}

/// Launches that a card times to show their rates.
pub fn kernel_shapes(pricing: &Pricing) -> Vec<Shape> {
    shown(pricing).into_iter().filter_map(|single| shape(pricing, single)).collect()
}

pub(super) fn compute(cell: &KernelsCell, resources: &Resources) -> Result<CellTables, Failure> {
    let pricing = resources.pricing(&cell.machine)?;
    let head_dim = f64::from(pricing.profile().attention.head_dim);
    let rows = shown(pricing);
    let timed = |single: &Single| -> Result<Vec<f64>, Failure> {
        if cell.replay.is_none() {
            return Ok(vec![single.5]);
        }
        let measured = shape(pricing, single).and_then(|shape| resources.replay().timed(&shape));
        let measured =
            measured.ok_or_else(|| Failure::config("a kernel call was not timed; give a larger --budget"))?;
        measured.samples.map(|s| s.repeats.clone()).map_err(Failure::config)
    };
    let samples = rows
        .iter()
        .map(|single| Ok(Samples { warm_up: Vec::new(), repeats: timed(single)? }))
        .collect::<Result<Vec<_>, Failure>>()?;
    let rate = |s: &Single, ns: f64| {
        let (q, k) = (f64::from(s.3), f64::from(s.4));
        let pairs = q * k - q * (q - 1.0) / 2.0;
        let flops = if s.0.pass() == Pass::Forward { 4.0 } else { 10.0 };
        flops * head_dim * f64::from(s.1) * pairs / (ns * 1e-9) / 1e12
    };
    let extreme = |of: fn(f64, f64) -> f64| {
        Column::F64(samples.iter().filter_map(|s| s.repeats.iter().copied().reduce(of)).collect())
    };
    let times = || samples.iter().map(Samples::median_ns);
    let table = Table::from_columns([
        ("pass", Column::Str(rows.iter().map(|s| pass_name(s)).collect())),
        ("q_heads", Column::U32(rows.iter().map(|s| s.1).collect())),
        ("kv_heads", Column::U32(rows.iter().map(|s| s.2).collect())),
        ("q_rows", Column::U32(rows.iter().map(|s| s.3).collect())),
        ("k_rows", Column::U32(rows.iter().map(|s| s.4).collect())),
        ("time_ns", Column::F64(times().collect())),
        ("shortest_ns", extreme(f64::min)),
        ("longest_ns", extreme(f64::max)),
        ("repeats", Column::U32(samples.iter().map(|s| s.repeats.len() as u32).collect())),
        ("tflop_per_s", Column::F64(rows.iter().zip(times()).map(|(s, ns)| rate(s, ns)).collect())),
    ])
    .map_err(Failure::internal)?;
    Ok(vec![(KERNELS_TABLE, table)])
}

fn pass_name(single: &Single) -> &'static str {
    match single.0.pass() {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
    }
}
