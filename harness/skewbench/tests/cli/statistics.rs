//! The workloads' imbalance as it was fitted, and what groupings do to it.

use std::collections::BTreeMap;

use crate::common::Lab;

/// Random grouping's R - 1 at P = 8 that the presets were fitted to.
const FITTED: [(&str, f64); 2] = [("paper-256k", 0.898), ("paper-1m", 1.076)];
/// Steps; fewer without optimisation, where a wider spread is allowed.
const STEPS: u32 = if cfg!(debug_assertions) { 512 } else { 4096 };
const SPREAD: f64 = if cfg!(debug_assertions) { 0.05 } else { 0.02 };

#[test]
fn imbalance_of_the_paper_workloads() {
    let lab = Lab::new();
    let steps = format!("steps={STEPS}");
    lab.run_words(&["run", "paper/fig8", "--set", &steps, "--set", "sweep.pool=[4, 8, 16]", "--out", "study"]).ok();
    let mut rows = BTreeMap::new();
    for row in lab.summary("study") {
        let number = |key: &str| row[key].as_f64().unwrap();
        let at = row["at"]["p"].as_u64().unwrap();
        let key = (row["dataset"].as_str().unwrap().to_owned(), at, row["system"].as_str().unwrap().to_owned());
        assert_eq!(row["n"], STEPS);
        rows.insert(key, (number("value"), number("ci_low"), number("ci_high")));
    }
    for (dataset, fitted) in FITTED {
        let of = |pool: u64, grouping: &str| rows[&(dataset.to_owned(), pool, grouping.to_owned())];
        let random = of(8, "random").0;
        assert!(
            (random - fitted).abs() <= SPREAD,
            "{dataset}: random grouping at P = 8 gives {random}, fitted {fitted}"
        );
        let (vrsp, low, high) = of(8, "vrsp");
        assert!(low <= 0.007, "{dataset}: VRSP at P = 8 gives {vrsp} in {low} .. {high}");
        for pool in [4, 8, 16] {
            let vrsp = of(pool, "vrsp");
            for grouping in ["zigzag", "zigzag-swap"] {
                let other = of(pool, grouping);
                assert!(vrsp.2 < other.1, "{dataset}, P = {pool}: VRSP {vrsp:?} is not below {grouping} {other:?}");
            }
            let all = of(pool, "zigzag-swap-all");
            eprintln!("{dataset}, P = {pool}: VRSP {:.4}%, zigzag-swap-all {:.4}%", vrsp.0 * 100.0, all.0 * 100.0);
        }
    }
}
