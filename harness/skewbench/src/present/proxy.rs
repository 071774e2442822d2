//! FLOPs against time, rank by rank, in the first step.

use super::Loaded;
use crate::cells::RANKS_TABLE;
use crate::experiment::{At, Metric};
use crate::metrics::{Draws, Estimated, ProxyView, estimate_mean};

/// A metric of pools of the first step.
pub(super) fn estimate(loaded: &Loaded, at: &At, metric: Metric) -> Result<Estimated, String> {
    let cell = loaded.expanded.cell_at(at).ok_or("the cell was not planned")?;
    let pool = at.pool.min(at.dp).max(1) * at.cp;
    let pools = loaded.table(RANKS_TABLE, cell).and_then(|t| ProxyView::all(t, pool).map_err(|e| e.to_string()))?;
    if pools.is_empty() {
        return Err("no wave of the first step was run".into());
    }
    let of = |p: &ProxyView| if metric == Metric::ProxyHit { f64::from(u8::from(p.hit)) } else { p.error };
    let samples: Vec<f64> = pools.iter().map(of).collect();
    estimate_mean(&samples, Draws::single(loaded.expanded.seed), metric.name()).map_err(|e| e.to_string())
}
