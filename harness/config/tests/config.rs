//! Refusals name file, line and the nearest known name; nothing panics.

use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;
use skewbench_config::{ConfigError, hint, load_strict, nearest, parse_strict, parse_strict_json};

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    nodes: u32,
    #[serde(default)]
    nic: Nic,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Nic {
    #[default]
    PerCard,
    PerNode,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn toml(text: &str) -> String {
    parse_strict::<Cluster>(text, "c.toml").expect_err("refused").to_string()
}

fn json(text: &str) -> String {
    parse_strict_json::<Cluster>(text, "c.json").expect_err("refused").to_string()
}

#[test]
fn the_nearest_name_is_near() {
    let keys = ["dp", "cp", "cards_per_node", "oversubscription", "libra", "libra-tap", "tau"];
    for (name, expected) in [
        ("pd", Some("dp")),
        ("CP", Some("cp")),
        ("oversub", Some("oversubscription")),
        ("oversubscripton", Some("oversubscription")),
        ("lirba", Some("libra")),
        ("libra-tab", Some("libra-tap")),
        ("tap", Some("tau")),
        ("crads", Some("cards_per_node")),
        ("taus_of_all", Some("tau")),
        ("xy", None),
        ("z", None),
        ("", None),
        ("-", None),
        ("nothing like it", None),
    ] {
        assert_eq!(nearest(name, keys), expected, "{name}");
    }
    assert_eq!(nearest("cq", ["cp", "ca"]), Some("cp"));
    assert_eq!(nearest("crad", ["per_node", "per_card"]), Some("per_card"));
    assert_eq!(nearest("tau", []), None);
    assert_eq!(hint("taw", keys), ", did you mean tau?");
    assert_eq!(hint("zzz", keys), "");
}

#[test]
fn unknown_names_are_told_with_what_is_known() {
    assert_eq!(
        toml("nodes = 1\nnik = \"per_card\"\n"),
        "c.toml:2: unknown key `nik`; did you mean `nic`? known are nodes, nic"
    );
    assert_eq!(toml("nodes = 1\n\nzzzzz = 1\n"), "c.toml:3: unknown key `zzzzz`; known are nodes, nic");
    assert_eq!(toml("nodes = 1\n\"a`, `b\" = 1\n"), "c.toml:2: unknown key `a`, `b`; known are nodes, nic");
    assert_eq!(
        toml("nodes = 1\nnic = \"per_nod\"\n"),
        "c.toml:2: unknown value `per_nod`; did you mean `per_node`? known are per_card, per_node"
    );
    assert_eq!(
        json("{\n\"nodes\": 1,\n\"nodse\": 1}"),
        "c.json:3: unknown key `nodse`; did you mean `nodes`? known are nodes, nic"
    );
    assert_eq!(json("{\"nodes\": 1,\n\"nic\": \"x\"}"), "c.json:2: unknown value `x`; known are per_card, per_node");
    let nothing = parse_strict::<Nothing>("a = 1", "n.toml").expect_err("refused").to_string();
    assert_eq!(nothing, "n.toml:1: unknown key `a`; none is accepted here");
}

#[test]
fn other_refusals_name_file_and_line() {
    assert_eq!(toml("nic = \"per_card\"\n"), "c.toml:1: key `nodes` is missing");
    assert_eq!(toml(" \n"), "c.toml: is empty");
    assert_eq!(json(""), "c.json: is empty");
    assert!(toml("\n\nnodes = -1\n").starts_with("c.toml:3: invalid value"));
    assert!(toml("nodes = 1\nnodes = 2\n").starts_with("c.toml:2: "));
    assert!(json("{\n\"nodes\": -1}").starts_with("c.json:2: invalid value"));
    assert!(json("{\"nodes\": 1}\nx").starts_with("c.json:2: trailing"));
}

#[test]
fn a_file_is_read_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    let name = path.display().to_string();
    let load = |path: &Path| load_strict::<Cluster>(path);
    let refused = |line, what: &str| Err(ConfigError { file: name.clone(), line, what: what.to_owned() });
    let missing = load(&path).expect_err("absent");
    assert!(missing.file == name && missing.what.starts_with("cannot be read: "), "{missing}");
    std::fs::write(&path, "nodes = 4\n").expect("written");
    assert_eq!(load(&path), Ok(Cluster { nodes: 4, nic: Nic::PerCard }));
    std::fs::write(&path, b"nodes = 4\n\n# \xff\n").expect("written");
    assert_eq!(load(&path), refused(Some(3), "is not UTF-8 text; save it as UTF-8"));
    // One byte too many, none of them stored.
    std::fs::File::create(&path).and_then(|file| file.set_len((1 << 26) + 1)).expect("written");
    assert_eq!(load(&path), refused(None, "is larger than the 67108864 bytes that such a file may have"));
    let error = load(folder.path()).expect_err("a folder");
    assert_eq!(error.what, "is not a regular file; give a TOML file");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_refused_with_the_file_name(text in "\\PC{0,80}(\\n\\PC{0,40}){0,4}") {
        let refused = [parse_strict::<Cluster>(&text, "c").err(), parse_strict_json::<Cluster>(&text, "c").err()];
        for error in refused.into_iter().flatten() {
            prop_assert!(error.to_string().starts_with("c:"));
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn an_unknown_key_is_told_whole(key in "[a-z`, \\-]{1,90}") {
        let message = toml(&format!("nodes = 1\n\"{key}\" = 2\n"));
        if key != "nodes" && key != "nic" {
            prop_assert!(message.starts_with(&format!("c.toml:2: unknown key `{key}`; ")), "{message}");
        }
    }

    #[test]
    fn a_known_name_is_nearest_to_itself(known in proptest::collection::vec("[a-z_]{1,12}", 1..6), at in any::<prop::sample::Index>()) {
        let name = at.get(&known);
        prop_assert_eq!(nearest(name, known.iter().map(String::as_str)), Some(name.as_str()));
    }

    #[test]
    fn any_name_has_a_near_name_or_none(name in "\\PC{0,200}", known in proptest::collection::vec("\\PC{0,70}", 0..6)) {
        let found = nearest(&name, known.iter().map(String::as_str));
        prop_assert!(found.is_none_or(|found| known.iter().any(|k| k == found)));
    }
}
