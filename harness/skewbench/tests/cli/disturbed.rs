//! Runs that are killed or interrupted at any moment lose no finished cell and end with the same bytes.

use std::time::{Duration, Instant, SystemTime};

use proptest::test_runner::{RngAlgorithm, TestRng};
use rand::{RngExt, SeedableRng};

use crate::common::{Lab, TINY, differing};

/// Twelve short cells, so that every stage of a run takes a part of its time.
fn lab() -> Lab {
    let lab = Lab::new();
    let names = "\"ulysses\", \"ulysses+sorted\", \"ulysses+lpt\", \"ring-zigzag\", \"libra-vrsp\", \"libra\"";
    let many = TINY.replace("\"ulysses\", \"ulysses+sorted\", \"libra\"", names);
    lab.write("tiny.toml", format!("{many}\n[sweep]\ndp = [1, 2]\n"));
    lab
}

/// Finished cells of a run that is under way; nothing once it is being sealed.
fn finished(lab: &Lab, study: &str) -> Option<usize> {
    let folder = lab.path(study).join("run/tiny");
    if folder.join("checksums.json").exists() {
        return None;
    }
    let cells = std::fs::read_dir(folder.join("cells")).into_iter().flatten();
    let whole = cells.filter(|c| c.as_ref().unwrap().file_name().to_string_lossy().ends_with(".cell"));
    Some(if folder.join("manifest.json").exists() { whole.count() } else { 0 })
}

/// Cells that a resumed run says it reused.
fn reused(stderr: &str) -> usize {
    let line = stderr.lines().find(|l| l.contains(" cells computed, ")).unwrap();
    line.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}
