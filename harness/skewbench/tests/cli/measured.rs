//! What ships of real cards follows from its samples.

use std::path::{Path, PathBuf};

use crate::common::Lab;

fn results(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(path)
}

#[test]
fn predicted_waves_follow_from_the_samples_that_ship() {
    let lab = Lab::new();
    let run = results("published/h200-2026-11-30");
    lab.run(&format!("calibrate --validate h200 --run {} --out v/launches.csv", run.display())).ok();
    for name in ["waves.csv", "ranks.csv"] {
        let shipped = std::fs::read_to_string(results("validation/h200").join(name)).unwrap();
        let again = std::fs::read_to_string(lab.path("v").join(name)).unwrap();
        assert!(shipped == again, "{name} differs from what the samples give");
    }
    assert!(!lab.exists("v/launches.csv"));
}

#[test]
fn replayed_runs_that_ship_are_sound() {
    let lab = Lab::new();
    // Of two figures the budget left out a cell.
    for (figure, code) in [("fig5", 0), ("fig13", 0), ("fig14", 21), ("fig15", 21)] {
        let run = format!("{figure}-replay/paper-{figure}");
        let folder = results("published/h200-one-card-2026-11-30").join(&run);
        let told = lab.run(&format!("results check {}", folder.display())).ok();
        assert!(told.contains(", sound"), "{told}");
        let drawn = lab.run(&format!("report {} --out {figure}", folder.display()));
        assert_eq!(drawn.code, Some(code), "{}", drawn.stderr);
        assert!(lab.exists(&format!("{figure}/{figure}.html")));
    }
}
