//! Names, options and capabilities.

use serde_json::{Map, Value, json};
use skewbench_systems::Tuning;
use skewbench_systems::registry::{Capability, PLACEMENTS, PLANNERS, describe, system, systems, systems_with};

fn options(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn refused(name: &str, given: Value) -> String {
    system(name, &options(given)).unwrap_err().to_string()
}

#[test]
fn every_pair_can_be_named_and_built() {
    for planner in PLANNERS {
        for placement in PLACEMENTS {
            let name = format!("{}+{}", planner.name, placement.name);
            let made = system(&name, &Map::new()).unwrap();
            assert_eq!(made.placement().stateful(), placement.stateful, "{name}");
            let described = describe(&name).unwrap();
            assert_eq!(described.options.len(), made.options().values().len(), "{name}: an option is listed twice");
            let defaults: Map<String, Value> =
                described.options.iter().map(|o| (o.name.to_owned(), o.default.json())).collect();
            assert_eq!(system(&name, &defaults).unwrap().options(), made.options(), "{name}: a default is refused");
        }
    }
}

#[test]
fn named_systems_are_listed_with_their_options() {
    let names: Vec<String> = systems().into_iter().map(|s| s.name).collect();
    let wanted = [
        "ulysses",
        "ulysses+sorted",
        "ulysses+lpt",
        "ring",
        "ring-zigzag",
        "ring-striped",
        "usp",
        "loongtrain",
        "wlb",
        "wlb-no-deferral",
        "distca-pool",
        "distca",
        "libra-vrsp",
        "libra-tap",
        "libra",
        "libra-calibrated",
    ];
    assert_eq!(names, wanted);
    let libra = describe("libra").unwrap();
    let options: Vec<&str> = libra.options.iter().map(|o| o.name).collect();
    assert_eq!(options, ["pool", "work", "deal", "tau", "pieces", "block", "head_shards", "resend"]);
}

#[test]
fn options_are_read_by_name_or_symbol() {
    let libra = system("libra", &options(json!({"P": 4, "tau": 0, "M": 2, "block": 2048}))).unwrap();
    assert_eq!(libra.pool(), 4);
    let values = libra.options().values();
    assert_eq!((&values["pieces"], &values["block"], &values["deal"]), (&json!(2), &json!(2048), &json!("sorted")));
    assert_eq!(system("ulysses", &Map::new()).unwrap().pool(), 8);
}

#[test]
fn mistakes_name_the_nearest_and_the_range() {
    let message = refused("ulyses", json!({}));
    assert!(message.contains("did you mean ulysses?") && message.contains("ring-zigzag"), "{message}");
    let message = refused("ulysses+vsrp", json!({}));
    assert!(message.contains("unknown placement vsrp") && message.contains("did you mean vrsp?"), "{message}");
    let message = refused("rng-zigzag+vrsp", json!({}));
    assert!(message.contains("unknown planner") && message.contains("did you mean ring-zigzag?"), "{message}");
    let message = refused("libra", json!({"taw": 0.1}));
    assert!(message.contains("did you mean tau?") && message.contains("tau (a number from 0 to 10)"), "{message}");
    let message = refused("ulysses", json!({"tau": 0.1}));
    assert!(message.contains("ulysses has no option tau"), "{message}");
    let message = refused("libra", json!({"P": 0}));
    assert!(message.contains("pool = 0") && message.contains("a whole number from 1"), "{message}");
    for (option, value) in [
        ("tau", json!(-0.1)),
        ("tau", json!("high")),
        ("pieces", json!(2.5)),
        ("block", json!("large")),
        ("block", json!(0)),
        ("resend", json!(1)),
        ("deal", json!("best")),
        ("work", json!(null)),
    ] {
        let message = refused("libra", json!({option: value}));
        assert!(message.starts_with(&format!("libra: {option} = ")) && message.contains("use "), "{message}");
    }
    let message = refused("libra", json!({"P": 4, "pool": 4}));
    assert!(message.contains("given twice"), "{message}");
}

#[test]
fn systems_are_selected_by_capability() {
    assert_eq!(
        systems_with(&[Capability::MovesAttention]),
        ["distca-pool", "distca", "libra-tap", "libra", "libra-calibrated"]
    );
    assert_eq!(
        systems_with(&[Capability::KeepsAttention, Capability::KeepsPlacement]),
        ["ulysses", "ring", "ring-zigzag", "ring-striped", "usp", "loongtrain"]
    );
    assert_eq!(systems_with(&[Capability::Stateful]), ["wlb"]);
    for capability in Capability::ALL {
        assert_eq!(capability.name().parse(), Ok(capability));
    }
    let message = "moves-atention".parse::<Capability>().unwrap_err().to_string();
    assert!(message.contains("did you mean moves-attention?"), "{message}");
    assert!(system("ulysses+sorted", &Map::new()).unwrap().has(Capability::ChangesPlacement));
}

#[test]
fn every_option_is_tuned_or_said_to_be_semantic() {
    let placements = PLACEMENTS.iter().map(|p| (p.name, p.options));
    for (part, specs) in placements.chain(PLANNERS.iter().map(|p| (p.name, p.options))) {
        for spec in specs {
            let name = spec.name;
            match spec.tuning() {
                Some(Tuning::Try(_)) => {
                    let candidates = spec.candidates();
                    assert!(candidates.len() >= 2, "{part}: {name} accepts {candidates:?} of its candidates; add some");
                }
                Some(Tuning::Semantic(why)) => {
                    assert!(!why.is_empty() && spec.candidates().is_empty(), "{part}: {name}")
                }
                None => panic!(
                    "{part}: option {name} has no entry in systems/src/tuning.rs; list candidates or say why not"
                ),
            }
        }
    }
    let pool = describe("ulysses").unwrap().options[0];
    assert_eq!((pool.name, pool.candidates().len()), ("pool", 5));
}
