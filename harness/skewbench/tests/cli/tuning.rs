//! `tune`, and runs of experiments that ask for it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::{Lab, MOVING, TINY, differing};

const SMALL: &str = "--set tune.steps=1 --configurations 9";

fn by_system<'a>(rows: &'a Value, system: &str) -> &'a Value {
    rows.as_array().unwrap().iter().find(|r| r["system"] == system).unwrap()
}

#[test]
fn every_system_gets_the_same_budget_and_is_compared_on_other_steps() {
    let lab = Lab::tiny();
    let rows = lab.run(&format!("tune tiny.toml {MOVING} {SMALL} --out study --format json")).json();
    assert_eq!(rows.as_array().unwrap().len(), 3);
    for row in rows.as_array().unwrap() {
        let search = &row["search"];
        assert_eq!((&search["budget"], &search["steps"], &search["objective"]), (&9.into(), &1.into(), &"mean".into()));
        assert_ne!(search["seed"], 1, "the seed of the reported steps");
        assert!(search["tried"].as_u64().unwrap() <= 9 && search["failed"] == 0, "{row}");
        assert!(search["chosen_ps"].as_f64().unwrap() <= search["start_ps"].as_f64().unwrap(), "{row}");
        assert_eq!(row["n"], 6, "the experiment's own steps");
        let [low, ratio, high] = ["ci_low", "ratio", "ci_high"].map(|k| row[k].as_f64().unwrap());
        assert!(low <= ratio && ratio <= high, "{row}");
        let verdict = row["verdict"].as_str().unwrap();
        assert!(["better", "worse", "same", "unclear", "kept"].contains(&verdict), "{row}");
        assert_eq!(verdict == "kept", row["changed"] == "nothing", "{row}");
    }
    assert_eq!(by_system(&rows, "ulysses")["verdict"], "kept");
    let libra = by_system(&rows, "libra");
    assert_eq!(libra["search"]["tried"], 9);
    // The run holds what was chosen, and shows it.
    let page = std::fs::read_to_string(lab.path("study/tiny.html")).unwrap();
    assert!(page.contains("Tuned options of libra on paper-256k"), "no note in the report");
    let manifest = std::fs::read_to_string(lab.path("study/run/tiny/manifest.json")).unwrap();
    assert!(manifest.contains("[[tuned]]") && manifest.contains("[tuned.options]"));
    lab.run("results check study").ok();
    // What was chosen can be pasted into an experiment, which then gives the same numbers without tuning.
    let fragment = std::fs::read_to_string(lab.path("study/tuned.toml")).unwrap();
    lab.write("pasted.toml", format!("{}\n{fragment}", TINY.replace("\"tiny\"", "\"pasted\"")));
    lab.run(&format!("run pasted.toml {MOVING} --out pasted")).ok();
    let values = |study: &str| -> Vec<Value> { lab.summary(study).iter().map(|r| r["value"].clone()).collect() };
    assert_eq!(values("pasted"), values("study"));
    assert!(!lab.exists("pasted-tuning"));
    assert!(lab.run("tune pasted.toml --out again").error(10).contains("holds results of tuning already"));
}

#[test]
fn tuning_is_resumed_and_does_not_depend_on_threads() {
    let lab = Lab::tiny();
    let line = format!("tune tiny.toml --system libra {MOVING} --set tune.steps=1 --configurations 30");
    let first = lab.run(&format!("{line} --threads 1 --out one")).ok();
    let other = lab.run(&format!("{line} --threads 3 --out three")).ok();
    assert_eq!(first, other);
    assert_eq!(differing(&lab.shared_bytes("one"), &lab.shared_bytes("three")), [""; 0]);
    assert_eq!(differing(&lab.shared_bytes("one-tuning"), &lab.shared_bytes("three-tuning")), [""; 0]);
    // A stage that is lost is computed again, the others are not.
    let stages: BTreeSet<_> =
        std::fs::read_dir(lab.path("one-tuning/tiny/000-libra")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(stages.len() >= 2, "{stages:?}");
    std::fs::remove_dir_all(lab.path("one")).unwrap();
    std::fs::remove_dir_all(lab.path("one-tuning/tiny/000-libra/stage-2")).unwrap();
    let again = lab.run(&format!("{line} --threads 1 --out one"));
    assert!(again.stderr.contains("reusing"), "{}", again.stderr);
    assert_eq!(again.ok(), first);
    assert_eq!(differing(&lab.shared_bytes("one-tuning"), &lab.shared_bytes("three-tuning")), [""; 0]);
}

#[test]
fn experiments_ask_for_tuning() {
    let lab = Lab::tiny();
    let tuned = TINY.replace("\"libra\"]", "\"libra\"]\ntuned = true");
    let table = "\n[tune]\nconfigurations = 5\nsteps = 1\nobjective = \"max\"\nkeep = [\"pool\", \"M\"]\n";
    lab.write("tuned.toml", format!("{tuned}{table}"));
    let done = lab.run(&format!("run tuned.toml {MOVING} --out study"));
    assert!(done.stderr.contains("tuned libra on paper-256k: 5 configurations of at most 5"), "{}", done.stderr);
    done.ok();
    let page = std::fs::read_to_string(lab.path("study/tiny.html")).unwrap();
    assert!(page.contains("objective max") && page.contains("5 of at most 5 configurations"));
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(lab.path("study/run/tuned/manifest.json")).unwrap()).unwrap();
    let text = manifest["experiment"].as_str().unwrap();
    let chosen = text.split("[tuned.options]").last().unwrap();
    assert!(chosen.contains("tau") && !chosen.contains("pieces") && !chosen.contains("pool"), "{chosen}");
    // A second run finds everything done, a listing tunes nothing.
    let again = lab.run(&format!("run tuned.toml {MOVING} --out study"));
    assert!(again.stderr.contains("0 cells computed"), "{}", again.stderr);
    again.ok();
    lab.run("report study").ok();
    lab.run("run tuned.toml --list").ok();
    for (set, expected) in [
        ("tune.seed=1", "seed 1 is that of the reported steps"),
        ("tune.configurations=0", "at least 1 of each"),
        ("tune.keep=[\"tua\"]", "did you mean tau?"),
        ("tune.objective=least", "known are mean, max, time_per_token"),
        ("tune.budget=3", "budget"),
    ] {
        let message = lab.run_words(&["run", "tuned.toml", "--out", "bad", "--set", set]).error(10);
        assert!(message.contains(expected), "{set}: {message}");
    }
    assert!(!lab.exists("bad") && !lab.exists("bad-tuning"));
    assert!(lab.run("tune paper/fig8 --quick --out bad").error(10).contains("only kind waves"));
}

#[test]
fn configurations_that_cannot_run_are_counted() {
    let lab = Lab::tiny();
    let limit = "--set memory_limit_bytes=60000000";
    let done = lab.run(&format!("tune tiny.toml --system ulysses {limit} {SMALL} --out study --format json"));
    assert!(matches!(done.code, Some(20 | 21)), "{:?} {}", done.code, done.stderr);
    let rows: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&rows[0]["verdict"], &rows[0]["search"]["start_ps"]), (&"failed".into(), &Value::Null));
    assert!(rows[0]["reason"].as_str().unwrap().contains("60000000"), "{rows}");
}
