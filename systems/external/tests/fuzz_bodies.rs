//! The bodies of the fuzz targets on random input, on damaged copies of real input, and on numbers at the edges of their types.

use proptest::prelude::*;
use proptest::sample::select;
use skewbench_external::fuzz_bodies::{ASKED, answer, hello, manifest};
use skewbench_plan::{AttentionShape, Domain, FlopsCost, PackedSequence};
use skewbench_systems::registry::system;

const HELLO: &str = r#"{"type":"hello","protocol":1,"name":"a","version":"v","places":true,"plans":true,"scope":"wave",
"load_bound":1.5,"options":[{"name":"n","kind":"integer","default":2,"min":1,"max":3},{"name":"x","kind":"number",
"default":0.5,"min":0,"max":1},{"name":"f","kind":"flag","default":true},{"name":"c","kind":"choice","default":"u",
"words":["u","v"]}]}"#;
const ASSIGNMENT: &str = r#"{"id":1,"assignment":{"head_shards":1,"pieces":2,"resend":false,"blocks":[
{"seq":0,"start":0,"end":3,"workers":[0]},{"seq":0,"start":3,"end":8,"workers":[1]},
{"seq":1,"start":0,"end":8,"workers":[3]}]}}"#;
const WAVES: &str = r#"{"id":1,"waves":[[2,3],[0,1]]}"#;
const MANIFEST: &str = "name = \"mine\"\ncommand = [\"python\", \"mine.py\"]\ntimeout_s = 5\nhello_timeout_s = 7.5\n\
    files = [\"a\"]\n[options]\nn = 4\n";

/// Numbers at the edges of their types and limits.
const EDGES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "65536",
    "86400",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "1e300",
    "1e-300",
    "null",
    "inf",
];

/// Copies of a text with some of its numbers replaced.
fn renumbered(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let places: Vec<usize> = text.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
    prop::collection::vec((select(places), select(EDGES)), 0..4).prop_map(|mut changes| {
        changes.sort_by_key(|change| std::cmp::Reverse(change.0));
        changes.dedup_by_key(|change| change.0);
        let mut text = text.to_owned();
        for (at, edge) in changes {
            text.replace_range(at..=at, edge);
        }
        text.into_bytes()
    })
}

/// A copy with some bytes replaced, a piece left out, and the end cut off.
fn damaged(whole: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let piece = (any::<prop::sample::Index>(), prop_oneof![2 => Just(0), 1 => 0..64usize]);
    let end = prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    (whole, changes, piece, end).prop_map(|(mut bytes, changes, (at, length), end)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let from = at.index(bytes.len());
        bytes.drain(from..(from + length).min(bytes.len()));
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len() + 1)));
        bytes
    })
}

fn input(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..300),
        4 => renumbered(text),
        4 => damaged(renumbered(text)),
    ]
}

/// A whole plan of the domain of the bodies, as an answer.
fn whole_plan() -> Vec<u8> {
    let made = system("libra", &serde_json::Map::new()).unwrap();
    let sequences = [PackedSequence::new([5, 3]), PackedSequence::new([8])];
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 8 };
    let plan = made.planner().plan(&Domain {
        sequences: &[&sequences[0], &sequences[1]],
        cp: 2,
        shape,
        nodes: &[0, 0, 1, 1],
        cost: &cost,
        time_factors: &[],
    });
    serde_json::to_vec(&serde_json::json!({ "id": 1, "plan": plan.unwrap() })).unwrap()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn hellos(input in input(HELLO)) {
        hello(&input);
    }

    #[test]
    fn assignments(input in input(ASSIGNMENT)) {
        answer(&input);
    }

    #[test]
    fn waves(input in input(WAVES)) {
        answer(&input);
    }

    #[test]
    fn manifests(input in input(MANIFEST)) {
        manifest(&input);
    }
}

#[test]
fn what_is_damaged_is_right_before() {
    let id = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["id"].as_u64();
    assert_eq!((id(ASSIGNMENT), id(WAVES)), (Some(ASKED), Some(ASKED)));
    assert!(hello(HELLO.as_bytes()) && manifest(MANIFEST.as_bytes()));
    assert!(answer(ASSIGNMENT.as_bytes()) && answer(WAVES.as_bytes()));
    assert!(!hello(b"{}") && !manifest(b"name = 1") && !answer(b"{\"id\":1}"));
}

#[test]
fn whole_plans() {
    let whole = whole_plan();
    assert!(answer(&whole));
    proptest!(config(1000), |(input in damaged(Just(whole.clone())))| {
        answer(&input);
    });
}

#[test]
fn deep_json_does_not_overflow_the_stack() {
    for open in ["[", "{\"id\":"] {
        hello(open.repeat(200_000).as_bytes());
        answer(open.repeat(200_000).as_bytes());
    }
}
