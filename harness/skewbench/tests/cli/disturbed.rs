//! Runs that are killed or interrupted at any moment lose no finished cell and end with the same bytes.

use std::time::{Duration, Instant, SystemTime};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{Lab, TINY, differing};

const KILLS: usize = 20;
const CELLS: usize = 12;

/// Twelve short cells, so that every stage of a run takes a part of its time.
fn lab(steps: u32) -> Lab {
    let lab = Lab::new();
    let names = "\"ulysses\", \"ulysses+sorted\", \"ulysses+lpt\", \"ring-zigzag\", \"libra-vrsp\", \"libra\"";
    let many = TINY
        .replace("\"ulysses\", \"ulysses+sorted\", \"libra\"", names)
        .replace("steps = 6", &format!("steps = {steps}"));
    lab.write("tiny.toml", format!("{many}\n[sweep]\ndp = [1, 2]\n"));
    lab
}

/// Cells that a killed run had finished; all of them once it was being sealed.
fn finished(lab: &Lab, study: &str) -> usize {
    let folder = lab.path(study).join("run/tiny");
    if folder.join("checksums.json").exists() {
        return CELLS;
    }
    if !folder.join("manifest.json").exists() {
        return 0;
    }
    let cells = std::fs::read_dir(folder.join("cells")).into_iter().flatten();
    cells.filter(|c| c.as_ref().unwrap().file_name().to_string_lossy().ends_with(".cell")).count()
}

/// Resumes a run and checks that it reuses what was finished and ends as an undisturbed one.
fn resume(lab: &Lab, study: &str) {
    let before = finished(lab, study);
    let done = lab.run(&format!("run tiny.toml --out {study}"));
    let expected = format!("{} cells computed, {before} reused, 0 failed", CELLS - before);
    assert!(done.stderr.contains(&expected), "{expected} is missing in: {}", done.stderr);
    done.ok();
    assert_eq!(differing(&lab.shared_bytes(study), &lab.shared_bytes("undisturbed")), [""; 0]);
    lab.run(&format!("results check {study}")).ok();
}

#[test]
fn twenty_kills_lose_nothing() {
    let lab = lab(6);
    let started = Instant::now();
    lab.run("run tiny.toml --out undisturbed").ok();
    let whole = started.elapsed();
    let mut random = moments();
    let (mut kills, mut round) = (0, 0);
    while kills < KILLS {
        let study = format!("killed-{round}");
        round += 1;
        let mut before = 0;
        // The same folder is killed until it completes, so later kills hit resuming, sealing and rendering too.
        loop {
            let mut command = lab.command();
            let mut process = command.args(["run", "tiny.toml", "--out", &study]).spawn().unwrap();
            std::thread::sleep(Duration::from_nanos(random.random_range(0..whole.as_nanos() as u64)));
            process.kill().unwrap();
            let completed = process.wait().unwrap().success();
            let now = finished(&lab, &study);
            assert!(now >= before, "{now} of {before} finished cells are left");
            before = now;
            if completed {
                break;
            }
            kills += 1;
            if kills >= KILLS {
                break;
            }
        }
        resume(&lab, &study);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_with_130_and_can_be_resumed() {
    let lab = lab(60);
    lab.run("run tiny.toml --out undisturbed").ok();
    for signal in ["INT", "TERM"] {
        let mut command = lab.command();
        let mut process = command.args(["run", "tiny.toml", "--out", signal]).spawn().unwrap();
        while finished(&lab, signal) == 0 {
            assert_eq!(process.try_wait().unwrap(), None, "the run ended before it could be interrupted");
            std::thread::sleep(Duration::from_millis(1));
        }
        let kill = std::process::Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", process.id())])
            .status()
            .unwrap();
        assert!(kill.success());
        assert_eq!(process.wait().unwrap().code(), Some(130), "{signal}");
        assert!((1..CELLS).contains(&finished(&lab, signal)), "{signal}");
        assert!(!lab.exists(&format!("{signal}/index.html")));
        resume(&lab, signal);
    }
}

/// A new seed each time: over many runs of the tests every moment is hit.
fn moments() -> ChaCha8Rng {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    eprintln!("kill seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}
