//! Kills a working process at random moments; what it finished is kept and the end is the same.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{inputs, shared_bytes, work};
use rand::{Rng, RngExt, SeedableRng};
use skewbench_store::{OpenOptions, Opened, Run, check};

const CELLS: u32 = 60;
/// Names the folder that the child process works in.
const FOLDER: &str = "STORE_KILL_TEST_FOLDER";

/// Body of the child process; an ordinary test run passes through.
#[test]
fn child_works_until_it_is_killed() {
    let Some(dir) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (run, _) = Run::open(&dir, &inputs(CELLS), OpenOptions::default()).unwrap();
    work(&run);
    run.seal().unwrap();
}

fn child(dir: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_works_until_it_is_killed"])
        .env(FOLDER, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn twenty_kills_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let undisturbed = folder.path().join("undisturbed");
    let started = std::time::Instant::now();
    assert!(child(&undisturbed).wait().unwrap().success());
    let whole = started.elapsed();

    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(random_seed());
    let mut kills = 0;
    let mut round = 0;
    while kills < 20 {
        let dir = folder.path().join(format!("killed-{round}"));
        round += 1;
        let mut reused = 0;
        // The same folder is killed until it completes, so later kills hit resuming and sealing too.
        loop {
            let mut process = child(&dir);
            std::thread::sleep(Duration::from_nanos(random.random_range(0..whole.as_nanos() as u64)));
            process.kill().unwrap();
            let completed = process.wait().unwrap().success();
            let finished = std::fs::read_dir(dir.join("cells")).map_or(0, |cells| {
                cells.filter(|c| c.as_ref().unwrap().file_name().to_string_lossy().ends_with(".cell")).count()
            });
            let sealing = dir.join("checksums.json").exists();
            assert!(sealing || finished >= reused, "{finished} of {reused} cells are left");
            reused = finished;
            if completed {
                break;
            }
            kills += 1;
            if kills >= 20 {
                break;
            }
        }
        let (run, opened) = Run::open(&dir, &inputs(CELLS), OpenOptions::default()).unwrap();
        if let Opened::Resumed { finished } = opened {
            assert_eq!(finished + run.failed(), reused);
        }
        work(&run);
        run.seal().unwrap();
        assert_eq!(shared_bytes(&dir), shared_bytes(&undisturbed));
        assert!(check(&dir).unwrap().is_sound());
    }
}

/// A file-size limit stands in for a full disk: the write fails in the same way, for every user.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (undisturbed, full) = (folder.path().join("undisturbed"), folder.path().join("full"));
    assert!(child(&undisturbed).wait().unwrap().success());
    let mut messages = String::new();
    for blocks in [1, 8, 16] {
        let limited =
            format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" --exact child_works_until_it_is_killed --nocapture");
        let output = Command::new("sh")
            .args(["-c", &limited])
            .arg(std::env::current_exe().unwrap())
            .env(FOLDER, &full)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{blocks} blocks");
        messages.push_str(&String::from_utf8_lossy(&output.stdout));
        messages.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    assert!(messages.contains("action: \"write\"") && messages.contains("FileTooLarge"), "{messages}");
    assert!(messages.contains(&full.display().to_string()), "{messages}");
    let (run, _) = Run::open(&full, &inputs(CELLS), OpenOptions::default()).unwrap();
    work(&run);
    run.seal().unwrap();
    assert_eq!(shared_bytes(&full), shared_bytes(&undisturbed));
}

/// A new seed each time: over many runs of the tests every moment is hit.
fn random_seed() -> u64 {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    eprintln!("kill seed {seed}");
    rand_chacha::ChaCha8Rng::seed_from_u64(seed).next_u64()
}
