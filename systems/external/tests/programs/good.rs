//! Programs that do as they are told.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use skewbench_external::Catalogue;
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{FlopsCost, Layout, PackedSequence, Pass, PlaceContext, Plan, Scope, Step};
use skewbench_systems::registry::System;

use crate::{ANSWER, HELLO, Lab, SHAPE, contains, plan};

#[test]
fn a_good_program_plans_and_leaves_its_time_in_the_ledger() {
    let (plan, ledger) = Lab::serving(HELLO, ANSWER).plan();
    let plan = plan.unwrap();
    assert_eq!(plan.planner, "script");
    assert_eq!(plan.load(Pass::Forward), [0, (15 + 6) * 4]);
    check(&plan, &Limits::default()).unwrap();
    assert_eq!((ledger.plans, ledger.places, &ledger.complaint), (1, 0, &None));
    assert_eq!(ledger.timings().iter().map(|t| t.0).collect::<Vec<_>>(), ["external_plan_s", "external_plans"]);
}

#[test]
fn a_system_reuses_its_process_and_the_same_question_has_the_same_answer() {
    let lab = Lab::serving(HELLO, &format!("echo \"$id\" >> ids\n{ANSWER}"));
    let catalogue = lab.catalogue();
    let system = catalogue.system("script", &Map::new(), 7).unwrap();
    let plans: Vec<Plan> = (0..3).map(|_| plan(&system, &[&[5, 3]], 2).unwrap()).collect();
    assert!(plans.iter().all(|p| *p == plans[0]));
    assert_eq!(std::fs::read_to_string(lab.folder.path().join("ids")).unwrap(), "1\n2\n3\n");
    assert!(!system.planner().trusted() && system.planner().scope() == Scope::Pool);
}

#[test]
fn seed_options_and_domain_are_sent() {
    let hello = HELLO.replace(
        "\"plans\"",
        r#""options":[{"name":"block","kind":"integer","default":64,"min":1,"max":4096},{"name":"mode","kind":"choice","default":"a","words":["a","b"]},{"name":"slack","kind":"number","default":0.5,"min":0,"max":1},{"name":"deep","kind":"flag","default":false}],"plans""#,
    );
    let lab = Lab::serving(&hello, &format!("printf '%s' \"$line\" > request\n{ANSWER}"));
    lab.manifest("[options]\nslack = 0.25\nblock = 16\n");
    let catalogue = lab.catalogue();
    let given = json!({"block": 512, "deep": true}).as_object().cloned().unwrap();
    let system = catalogue.system("script", &given, 42).unwrap();
    plan(&system, &[&[5, 3]], 2).unwrap();
    let request: Value =
        serde_json::from_str(&std::fs::read_to_string(lab.folder.path().join("request")).unwrap()).unwrap();
    let wanted = json!({
        "type": "plan", "id": 1, "seed": 42, "sequences": [[5, 3]], "cp": 2, "ranks": 2,
        "shape": {"q_heads": 4, "kv_heads": 2, "head_dim": 8}, "nodes": [0, 0], "time_factors": [],
        "options": {"block": 512, "mode": "a", "slack": 0.25, "deep": true},
    });
    assert_eq!(request, wanted);
    for (option, part) in [
        (json!({"block": 0}), "block = 0: use a whole number from 1 to 4096"),
        (json!({"mode": "c"}), "use one of a, b"),
        (json!({"blok": 1}), "script has no option blok, did you mean block?"),
    ] {
        let message = catalogue.system("script", option.as_object().unwrap(), 0).unwrap_err().to_string();
        contains(&message, &[part]);
    }
}

fn place(system: &System) -> Result<Vec<Vec<u32>>, String> {
    let step = Step { index: 3, window: 8, sequences: (0..4).map(|i| PackedSequence::new([5 - i, 3 + i])).collect() };
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    let context = PlaceContext { layout: Layout::dp_cp(2, 2), pool: 2, seed: 9, shape: SHAPE, cost: &cost };
    let placed = system.placement().placer().place(&step, &context).map_err(|e| e.to_string())?;
    assert!(placed.preserved && placed.sequences == step.sequences);
    assert_eq!((placed.pools.len(), &placed.pools[0]), (1, &(0..2)));
    Ok(placed.waves.into_iter().map(|w| w.sequences).collect())
}

#[test]
fn programs_place_too() {
    let hello = HELLO.replace("\"plans\":true", "\"places\":true");
    let lab = Lab::serving(&hello, "printf '%s' \"$line\" > request; echo '{\"id\":1,\"waves\":[[3,0],[1,2]]}'");
    let catalogue = lab.catalogue();
    for name in ["script", "ulysses+script"] {
        let system = catalogue.system(name, &Map::new(), 1).unwrap();
        assert_eq!(place(&system).unwrap(), [[3, 0], [1, 2]], "{name}");
        let described = catalogue.describe(name).unwrap();
        assert_eq!((described.planner.as_str(), described.placement.as_str()), ("ulysses", "script"));
    }
    let request: Value =
        serde_json::from_str(&std::fs::read_to_string(lab.folder.path().join("request")).unwrap()).unwrap();
    assert_eq!(request["type"], "place");
    assert_eq!(request["sequences"], json!([[5, 3], [4, 4], [3, 5], [2, 6]]));
    assert_eq!((&request["pools"], &request["seed"], &request["window"]), (&json!([[0, 2]]), &json!(9), &json!(8)));
    let message = catalogue.admit("script+vrsp").unwrap_err().to_string();
    assert_eq!(message, "external system script does not plan; name it as a placement, for example ulysses+script");

    let wrong = Lab::serving(&hello, "echo '{\"id\":1,\"waves\":[[3,0],[1,1]]}'");
    let message = place(&wrong.catalogue().system("script", &Map::new(), 1).unwrap()).unwrap_err();
    contains(&message, &["external system script (sh script.sh) placed sequence 1 twice"]);
}

#[test]
fn the_python_example_balances_to_within_one_block() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        // Past the capture of the test harness: a skip must be seen.
        writeln!(std::io::stderr(), "SKIPPED: the Python example: python3 is not installed").unwrap();
        return;
    }
    let catalogue = Catalogue::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../external"));
    let options = json!({"block": 8}).as_object().cloned().unwrap();
    let system = catalogue.system("greedy-blocks", &options, 1).unwrap();
    for sequences in [
        vec![&[64u32][..], &[1; 64], &[30, 34], &[7, 1, 13, 43]],
        vec![&[1][..], &[1]],
        vec![&[65][..], &[3, 62]],
        vec![&[9, 8, 7][..]],
    ] {
        let made = plan(&system, &sequences, 3).unwrap();
        check(&made, &Limits::default()).unwrap();
        assert_eq!(made, plan(&system, &sequences, 3).unwrap());
        let load = made.load(Pass::Forward);
        let mean = load.iter().sum::<u64>() / load.len() as u64;
        assert!(load.iter().all(|l| *l <= mean + made.accounting.largest_tile), "{sequences:?}: {load:?}");
    }
    drop(system);
    assert_eq!(catalogue.take_ledger().complaint, None);
}
