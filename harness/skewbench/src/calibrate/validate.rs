use skewbench_plan::Cost;
use skewbench_sim::Pricing;
use skewbench_store::stats::quantile;

use super::{Journal, Point, Work};

const HEADER: &str = "source,pass,mask,q_heads,kv_heads,tiles,q_total,k_total,k_max,pairs,predicted_ns,\
                      measured_ns_median,measured_ns_min,measured_ns_max,n\n";

/// Launches with what the profile says and what was measured, as CSV (docs/FORMAT.md). Points that failed are left out.
pub fn validation_csv(points: &[Point], journal: &Journal, pricing: &Pricing) -> String {
    let mut text = HEADER.to_owned();
    for point in points {
        let Work::Launch(family, shape) = &point.work else { continue };
        let Some(entry) = journal.get(&point.name).filter(|e| !e.ns.is_empty()) else { continue };
        let [q_total, k_total, pairs] = shape.totals();
        let k_max = shape.tiles.iter().map(|t| t.k).max().unwrap_or(0);
        let extreme = |of: fn(f64, f64) -> f64| entry.ns.iter().copied().reduce(of).unwrap_or(0.0);
        text.push_str(&format!(
            "{},{},{},{},{},{},{q_total},{k_total},{k_max},{pairs},{},{},{},{},{}\n",
            family.name(),
            shape.pass_name(),
            shape.mask_name(),
            shape.q_heads,
            shape.kv_heads,
            shape.tiles.len(),
            pricing.launch_ps(&shape.launch()) as f64 * 1e-3,
            quantile(&entry.ns, 0.5),
            extreme(f64::min),
            extreme(f64::max),
            entry.ns.len(),
        ));
    }
    text
}
