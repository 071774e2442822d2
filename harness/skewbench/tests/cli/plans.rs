//! `plan`: tables, plans that the checker accepts, and traces.

use std::collections::{BTreeMap, BTreeSet};

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
fn traces_are_chrome_traces() {
    let lab = Lab::new();
    for system in systems(&lab) {
        let trace = lab.run(&format!("plan --system {system} {SMALL} --format perfetto")).json();
        let ranks = lab.run(&format!("plan --system {system} {SMALL} --format json")).json()["ranks"].as_u64().unwrap();
        assert_eq!(trace["otherData"]["clock"], "simulated, profile h200", "{system}");
        assert_eq!(trace["otherData"]["slices_left_out"], 0, "{system}");
        check_trace(&system, trace["traceEvents"].as_array().unwrap(), ranks);
    }
}

/// Phase, track and time of one end of an arrow.
type ArrowEnd = (String, (u64, u64), u64);

/// What the trace event format asks for, and what makes a trace readable: a named process a rank, a named track a stream, slices of
/// a track one after another, and arrows that begin and end inside slices.
fn check_trace(system: &str, events: &[Value], ranks: u64) {
    let track = |e: &Value| (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
    // Nanoseconds: the format counts microseconds and viewers keep three decimals.
    let ns = |e: &Value, key: &str| {
        let value = e[key].as_f64().unwrap() * 1e3;
        assert!((value - value.round()).abs() < 1e-3 && value >= 0.0, "{system}: {e}");
        value.round() as u64
    };
    let (mut processes, mut tracks) = (BTreeSet::new(), BTreeSet::new());
    let mut slices: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, Vec<ArrowEnd>> = BTreeMap::new();
    let mut last = 0;
    for e in events {
        assert!(!e["name"].as_str().unwrap().is_empty(), "{system}: {e}");
        match e["ph"].as_str().unwrap() {
            "M" => match e["name"].as_str().unwrap() {
                "process_name" => assert!(e["args"]["name"].is_string() && processes.insert(track(e).0)),
                "thread_name" => assert!(e["args"]["name"].is_string() && tracks.insert(track(e))),
                name => assert!(name.ends_with("_sort_index") && e["args"]["sort_index"].is_u64(), "{system}: {e}"),
            },
            "X" => {
                assert!(e["args"].is_object() && e["cat"].is_string() && ns(e, "ts") >= last, "{system}: {e}");
                last = ns(e, "ts");
                slices.entry(track(e)).or_default().push((last, last + ns(e, "dur")));
            }
            phase @ ("s" | "f") => {
                assert_eq!(e["bp"].as_str(), (phase == "f").then_some("e"), "{system}: {e}");
                let arrow = (phase.to_owned(), track(e), ns(e, "ts"));
                arrows.entry(e["id"].as_u64().unwrap()).or_default().push(arrow);
            }
            other => panic!("{system}: phase {other}"),
        }
    }
    assert_eq!(processes, (0..ranks).collect(), "{system}");
    for (track, slices) in &slices {
        assert!(tracks.contains(track), "{system}: {track:?} has no name");
        assert!(slices.windows(2).all(|w| w[0].1 <= w[1].0), "{system}: slices of {track:?} overlap");
    }
    assert!(!arrows.is_empty(), "{system}: no transfer");
    for ends in arrows.values() {
        let [(start, from, at), (end, to, then)] = ends.as_slice() else { panic!("{system}: {ends:?}") };
        assert!(start == "s" && end == "f" && from.0 != to.0 && at <= then, "{system}: {ends:?}");
        for (track, time) in [(from, at), (to, then)] {
            assert!(slices[track].iter().any(|(a, b)| a <= time && time < b), "{system}: {ends:?}");
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
