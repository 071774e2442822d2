//! Several processes that compute the cells of one study.
#![cfg(unix)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Lab, TINY};

/// Names of two systems, of which the second refuses every plan.
const REFUSING: &str = "systems.names=[\"ulysses\",\"refusing\"]";
const QUICK: [&str; 6] = ["run", "tiny.toml", "--quick", "--share", "--set", REFUSING];

/// A lab with a program that plans nothing.
fn lab() -> Lab {
    let lab = Lab::tiny();
    std::fs::create_dir(lab.path("external")).unwrap();
    lab.write(
        "external/refusing.sh",
        "read -r line\n\
         printf '%s\\n' '{\"type\":\"hello\",\"protocol\":1,\"name\":\"refusing\",\"version\":\"1\",\"plans\":true,\"scope\":\"pool\"}'\n\
         while read -r line; do id=${line#*\\\"id\\\":}; id=${id%%,*}; \
         echo \"{\\\"id\\\":$id,\\\"error\\\":\\\"no plan\\\"}\"; done\n",
    );
    lab.write("external/refusing.toml", "name = \"refusing\"\ncommand = [\"sh\", \"refusing.sh\"]\n");
    lab
}

fn words<'w>(more: &[&'w str]) -> Vec<&'w str> {
    QUICK.iter().chain(more).copied().collect()
}

/// How often a cell of a run has failed.
fn failures(lab: &Lab, study: &str) -> usize {
    let events = std::fs::read_to_string(lab.path(study).join("run/tiny/events.jsonl")).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == "cell_failed").count()
}

/// A rank of a launch that is given by the variables of `torchrun`; launches differ by their port.
fn rank(lab: &Lab, port: &str, rank: usize, world: usize) -> Command {
    let mut command = lab.command();
    let (rank, world) = (rank.to_string(), world.to_string());
    command.env("RANK", &rank).env("LOCAL_RANK", &rank).env("WORLD_SIZE", world);
    command.env("MASTER_ADDR", "n1").env("MASTER_PORT", port).stderr(Stdio::piped());
    command
}

/// Exit code and standard error.
fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn await_that(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn count(folder: &Path, end: &str) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(end)).count()
}

/// Whoever sealed the run could not render it, and left the claims of its cells.
#[test]
fn failed_cells_are_tried_again_after_a_report_that_failed() {
    let lab = lab();
    std::fs::create_dir(lab.path("broken")).unwrap();
    lab.write("broken/index.html", "{{ nothing");
    let broken = lab.run_words(&words(&["--out", "study", "--templates", "broken"]));
    assert_eq!(broken.code, Some(10), "{}", broken.stderr);
    assert!(lab.exists("study-claims") && !lab.exists("study/index.html"));
    assert_eq!(failures(&lab, "study"), 1);
    let again = lab.run_words(&words(&["--out", "study", "--requeue"]));
    assert_eq!(again.code, Some(21), "{}", again.stderr);
    assert!(again.stderr.contains("1 cells computed, 1 reused, 1 failed"), "{}", again.stderr);
    assert_eq!(failures(&lab, "study"), 2);
    assert!(!lab.exists("study-claims") && lab.exists("study/index.html"));
    lab.run("results check study").ok();
    // Of a later submission that tries nothing again.
    let third = lab.run_words(&words(&["--out", "study"]));
    assert!(third.stderr.contains("0 cells computed, 2 reused, 1 failed"), "{}", third.stderr);
    assert_eq!(lab.names(), ["broken", "external", "study", "tiny.toml"]);
}

#[test]
fn ranks_of_a_launch_try_failed_cells_again_once() {
    let lab = lab();
    assert_eq!(lab.run_words(&words(&["--out", "study"])).code, Some(21));
    let again = words(&["--out", "study", "--requeue"]);
    let start = |i| rank(&lab, "29500", i, 3).args(&again).spawn().unwrap();
    let all: Vec<Child> = (0..3).map(start).collect();
    let ends: Vec<_> = all.into_iter().map(ended).collect();
    assert!(ends.iter().all(|(code, _)| matches!(code, Some(0 | 21))), "{ends:?}");
    assert!(ends.iter().any(|(code, _)| *code == Some(21)), "{ends:?}");
    assert_eq!(failures(&lab, "study"), 2, "{ends:?}");
    assert!(!lab.exists("study-claims"));
}

/// Stages of tuning of two experiments with the same cells, and the experiments themselves.
#[test]
fn equal_cells_of_several_runs_are_claimed_apart() {
    let lab = Lab::new();
    for name in ["a", "b"] {
        let tuned = TINY.replace("[systems]", "[systems]\ntuned = true").replace("\"tiny\"", &format!("\"{name}\""));
        lab.write(&format!("{name}.toml"), tuned);
    }
    let line = "run a.toml b.toml --share --quick --set systems.names=[\"libra\"] --set tune.quick_configurations=3";
    let set = " --set tune.quick_steps=1 --set options.libra.block=512 --out study";
    let done = lab.run(&format!("{line}{set}"));
    assert!(done.stderr.contains("stages of tuning"), "{}", done.stderr);
    done.ok();
    assert_eq!(lab.names(), ["a.toml", "b.toml", "study", "study-tuning"]);
}

#[test]
fn a_folder_may_be_spelled_in_any_way() {
    let lab = Lab::tiny();
    std::fs::create_dir(lab.path("here")).unwrap();
    let mut command = lab.command();
    command.current_dir(lab.path("here")).args(["run", "../tiny.toml", "--quick", "--share", "--out", "."]);
    let (code, error) = ended(command.stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(code, Some(0), "{error}");
    lab.run("results check here").ok();
    assert_eq!(lab.names(), ["here", "tiny.toml"]);
}

/// Enough work for a launch to be disturbed.
fn long() -> Lab {
    let lab = Lab::new();
    let many = TINY.replace("steps = 6", "steps = 2000").replace("[plot]", "[sweep]\ndp = [1, 2, 4]\n\n[plot]");
    lab.write("tiny.toml", many);
    lab
}

#[test]
fn launches_that_do_not_share_a_folder_keep_apart() {
    let lab = long();
    let words = ["run", "tiny.toml", "--threads", "1", "--out", "study"];
    let start = |port: &str, i| rank(&lab, port, i, 2).args(words).spawn().unwrap();
    let mut first: Vec<Child> = (0..2).map(|i| start("29500", i)).collect();
    await_that("the first launch has not begun", || count(&lab.path("study-claims/owners"), ".alive") == 2);
    let second: Vec<Child> = (0..2).map(|i| start("29501", i)).collect();
    let ends: Vec<_> = second.into_iter().map(ended).collect();
    for process in &mut first {
        assert_eq!(process.try_wait().unwrap(), None, "the first launch was to be at work");
        process.kill().unwrap();
        process.wait().unwrap();
    }
    for (code, error) in ends {
        assert_eq!(code, Some(10), "{error}");
        assert!(error.contains("for another launch") && error.contains("--share"), "{error}");
    }
}

#[test]
fn a_rank_that_waits_for_others_leaves_nothing_when_it_is_told_to_stop() {
    let lab = Lab::tiny();
    for (i, awaited) in [(0, ".json"), (1, "")] {
        let words = ["run", "tiny.toml", "--out", "study"];
        let process = rank(&lab, "29500", i, 2).args(words).spawn().unwrap();
        let meeting = lab.path("study-claims/meeting");
        await_that("nobody waits", || meeting.is_dir() && count(&meeting, awaited) >= usize::from(i == 0));
        // Handlers are set before the folder is made.
        Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap();
        let (code, error) = ended(process);
        assert_eq!(code, Some(130), "rank {i}: {error}");
        assert!(error.contains("interrupted while it waited for other ranks"), "{error}");
        assert!(!lab.exists("study-claims"), "rank {i}");
    }
}
