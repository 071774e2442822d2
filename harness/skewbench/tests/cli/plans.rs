//! `plan`: tables, plans that the checker accepts, and traces.

use std::collections::BTreeSet;

use serde_json::Value;
use skewbench_plan::check::{Limits, check_facts};
use skewbench_plan::{Facts, Plan};

use crate::common::Lab;

const SMALL: &str = "--workload paper-256k --window 8192 --layout dp=2,cp=2";

fn systems(lab: &Lab) -> Vec<String> {
    let systems = lab.run("systems --format json").json();
    systems.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn plans_are_accepted_by_the_checker_and_survive_json() {
    let lab = Lab::new();
    for system in systems(&lab) {
        let text = lab.run(&format!("plan --system {system} {SMALL} --step 3 --wave 1 --format json")).ok();
        let plan: Plan = serde_json::from_str(&text).unwrap();
        let facts = Facts::of(&plan).unwrap();
        let checked = check_facts(&plan, &facts, &Limits::default()).unwrap();
        assert_eq!(checked.peak_bytes.len(), plan.ranks as usize, "{system}");
        assert_eq!(serde_json::to_string(&plan).unwrap(), text.trim_end(), "{system}");
    }
}

#[test]
fn traces_have_a_process_a_rank() {
    let lab = Lab::new();
    for system in systems(&lab) {
        let trace = lab.run(&format!("plan --system {system} {SMALL} --format perfetto")).json();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
        let pids = |events: &[&Value]| events.iter().map(|e| e["pid"].as_u64().unwrap()).collect::<BTreeSet<_>>();
        let named: Vec<&Value> = of("M").into_iter().filter(|e| e["name"] == "process_name").collect();
        let pool = lab.run(&format!("plan --system {system} {SMALL} --format json")).json()["ranks"].as_u64().unwrap();
        assert_eq!(pids(&named), (0..pool).collect(), "{system}");
        assert!(pids(&of("X")).is_subset(&pids(&named)), "{system}");
        for slice in of("X") {
            assert!(slice["ts"].as_f64().unwrap() >= 0.0 && slice["dur"].as_f64().unwrap() >= 0.0, "{slice}");
        }
    }
}

#[test]
fn tables_and_positions() {
    let lab = Lab::new();
    let table = lab.run(&format!("plan --system libra {SMALL}")).ok();
    assert!(table.contains("load / mean") && table.contains("accepted by the checker"), "{table}");
    let options = lab.run(&format!("plan --system libra {SMALL} --option pieces=1 --option block=512 --seed 4")).ok();
    assert_ne!(table, options);
    for (more, code, expected) in [
        ("--wave 99", 2, "waves 0 to"),
        ("--pool 99", 2, "domains 0 to"),
        ("--gbs 3", 10, "does not divide"),
        ("--gbs 0", 10, "gbs"),
        ("--option pieces=0", 10, "pieces"),
        ("--option tua=1", 10, "did you mean tau?"),
    ] {
        let message = lab.run(&format!("plan --system libra {SMALL} {more}")).error(code);
        assert!(message.contains(expected), "{more}: {message}");
    }
    for (layout, code, expected) in [
        ("dp=0", 10, "dp is 0"),
        ("cp=9000", 10, "above the 8192 tokens"),
        ("cp=2,tp=3", 10, "tp = 3"),
        ("cp=-1", 2, "not key=number"),
        ("cp=99999999999", 2, "not key=number"),
        ("dp=1048576,cp=8192", 10, "cards"),
    ] {
        let line = format!("plan --system libra --workload paper-256k --window 8192 --layout {layout}");
        let message = lab.run(&line).error(code);
        assert!(message.contains(expected), "{layout}: {message}");
    }
    // Any step can be looked at.
    lab.run(&format!("plan --system ulysses {SMALL} --step 18446744073709551615")).ok();
}
