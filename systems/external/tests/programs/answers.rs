//! Assignments and plans that do not fit, and plans that are left to the checker.

use serde_json::{Map, Value, json};
use skewbench_plan::check::{Limits, check};
use skewbench_systems::registry;

use crate::{HELLO, Lab, contains, plan};

/// A change of a plan.
type Edit = fn(&mut Value);

#[test]
fn assignments_that_do_not_fit() {
    for (assignment, part) in [
        (r#"{"blocks":[]}"#, "blocks of packed sequence 0 must rise to its 8 tokens and end there; they end at 0"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":4,"workers":[0]}]}"#, "they end at 4"),
        (
            r#"{"blocks":[{"seq":0,"start":5,"end":8,"workers":[0]},{"seq":0,"start":0,"end":4,"workers":[0]}]}"#,
            "rows 5..8 of packed sequence 0 and nobody rows 4..5",
        ),
        (
            r#"{"blocks":[{"seq":0,"start":0,"end":5,"workers":[0]},{"seq":0,"start":4,"end":8,"workers":[0]}]}"#,
            "rows 4..8 of packed sequence 0 although rows to 5 are assigned already",
        ),
        (r#"{"blocks":[{"seq":0,"start":0,"end":9,"workers":[0]}]}"#, "they end at 9"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":8,"workers":[2]}]}"#, "worker 2 does not exist"),
        (r#"{"blocks":[{"seq":1,"start":0,"end":8,"workers":[0]}]}"#, "the domain has sequences 0 to 0"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":8,"workers":[]}]}"#, "1 head shards need one each"),
        (r#"{"head_shards":5,"blocks":[{"seq":0,"start":0,"end":8,"workers":[0,0,0,0,0]}]}"#, "5 head shards"),
        (r#"{"pieces":0,"blocks":[{"seq":0,"start":0,"end":8,"workers":[0]}]}"#, "0 head pieces"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":4294967296,"workers":[0]}]}"#, "4294967296"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":-1,"workers":[0]}]}"#, "-1"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":1e999,"workers":[0]}]}"#, "number out of range"),
    ] {
        let body = format!("echo '{{\"id\":1,\"assignment\":{assignment}}}'");
        contains(&Lab::serving(HELLO, &body).reason(), &[part]);
    }
}

/// A whole plan of the domain that [`Lab::plan`] asks for.
fn whole() -> Value {
    let system = registry::system("ulysses", &Map::new()).unwrap();
    serde_json::to_value(plan(&system, &[&[5, 3]], 2).unwrap()).unwrap()
}

fn answering(plan: &Value) -> Lab {
    let lab = Lab::serving(HELLO, "printf '{\"id\":%s,\"plan\":' \"$id\"; cat plan.json; echo '}'");
    lab.write("plan.json", &plan.to_string());
    lab
}

#[test]
fn whole_plans_are_taken_and_left_to_the_checker() {
    let plan = answering(&whole()).plan().0.unwrap();
    assert_eq!(plan.planner, "script");
    check(&plan, &Limits::default()).unwrap();

    let edits: [(&str, Edit); 5] = [
        ("a tile is dropped", |p| {
            let tiles = p["forward"]["tiles"].as_array_mut().unwrap();
            let first = tiles[0].clone();
            tiles.fill(first);
        }),
        ("rows outside", |p| p["forward"]["tiles"][0]["q"]["start"] = json!(7)),
        ("huge rows", |p| p["backward"]["tiles"][0]["k"]["len"] = json!(u32::MAX)),
        ("a rank outside", |p| p["forward"]["moves"][0]["to"] = json!(u32::MAX)),
        ("a span outside", |p| p["forward"]["calls"][0]["parts"][0]["moves"]["end"] = json!(u32::MAX)),
    ];
    for (what, edit) in edits {
        let mut wrong = whole();
        edit(&mut wrong);
        let plan = answering(&wrong).plan().0.unwrap();
        let error = check(&plan, &Limits::default()).expect_err(what).to_string();
        contains(&error, &["plan of script, "]);
    }
}

#[test]
fn whole_plans_of_another_domain_are_refused() {
    let edits: [(&str, Edit); 6] = [
        ("planned 4294967295 ranks; the domain has 2", |p| p["ranks"] = json!(u32::MAX)),
        ("planned heads", |p| p["shape"]["q_heads"] = json!(8)),
        ("other document bounds for packed sequence 0", |p| p["sequences"][0][1] = json!(4)),
        ("planned 0 sequences; the domain has 1", |p| p["sequences"] = json!([])),
        ("invalid value: integer `4294967296`", |p| p["ranks"] = json!(1u64 << 32)),
        ("missing field `forward`", |p| drop(p.as_object_mut().unwrap().remove("forward"))),
    ];
    for (part, edit) in edits {
        let mut wrong = whole();
        edit(&mut wrong);
        contains(&answering(&wrong).reason(), &[part]);
    }
}
