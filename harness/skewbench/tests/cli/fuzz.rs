//! The bodies of the fuzz targets on random input and on damaged copies of real input, and the binary on random words.

#[path = "../../../../fuzz/src/bodies.rs"]
mod bodies;

use proptest::prelude::*;
use proptest::sample::select;

use crate::common::{Lab, TINY, repository};

const TIMES: &str = "wave,rank,time_ms,documents\n0,0,41.7,131072\n0,1,41.9,\n0,2,12.3,65536 40000 25536\n0,3,12.2,\n";
const LINES: &str = "{\"wave\": 0, \"rank\": 0, \"time_us\": 1500, \"sequences\": [[100, 28], [128]]}\n{\"wave\": 0, \"rank\": 1, \"time_us\": 2000}\n{\"wave\": 0, \"rank\": 2, \"time_us\": 1000}\n{\"wave\": 0, \"rank\": 3, \"time_us\": 2000.5}\n";

const CASES: u32 = if cfg!(debug_assertions) { 200 } else { 1000 };

/// A copy with some bytes replaced, a piece repeated or left out, and the end cut off.
fn damaged(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let size = whole.len();
    let changes = prop::collection::vec((0..size, any::<u8>()), 0..4);
    let piece = (0..size, 0..64usize, any::<bool>());
    (changes, piece, prop_oneof![3 => Just(size), 1 => 0..size]).prop_map(move |(changes, (at, length, keep), end)| {
        let mut bytes = whole.clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(end);
        let (from, to) = (at.min(bytes.len()), (at + length).min(bytes.len()));
        let piece = bytes[from..to].to_vec();
        if keep {
            bytes.splice(to..to, piece)
        } else {
            bytes.splice(from..to, Vec::new())
        };
        bytes
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..300), "[ -~\n]{0,300}".prop_map(String::into_bytes)]
}

/// Numbers of a JSON text replaced by ones at the edges of their types.
fn renumbered(text: String) -> impl Strategy<Value = Vec<u8>> {
    let digits: Vec<std::ops::Range<usize>> = numbers(&text);
    let edge = select(vec![
        "0",
        "1",
        "-1",
        "255",
        "256",
        "65535",
        "65536",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "1e300",
        "null",
    ]);
    prop::collection::vec((0..digits.len(), edge), 1..4).prop_map(move |mut changes| {
        changes.sort_by_key(|c| std::cmp::Reverse(c.0));
        changes.dedup_by_key(|c| c.0);
        let mut text = text.clone();
        for (index, edge) in changes {
            text.replace_range(digits[index].clone(), edge);
        }
        text.into_bytes()
    })
}

fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if end > at {
            found.push(at..end);
        }
        at = end + 1;
    }
    found
}

fn plan(system: &str) -> String {
    let line =
        format!("plan --system {system} --workload paper-256k --window 600 --layout dp=2,cp=2 --gbs 2 --format json");
    Lab::new().run(&line).ok().trim_end().to_owned()
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn times(input in prop_oneof![bytes(), damaged(TIMES.into()), damaged(LINES.into())]) {
        bodies::times(&input);
    }

    #[test]
    fn experiments(input in prop_oneof![bytes(), damaged(TINY.into()), damaged(repository("experiments/paper/fig11.toml").into())]) {
        bodies::experiment(&input);
    }

    #[test]
    fn references(input in prop_oneof![bytes(), damaged(repository("results/reference/paper.toml").into())]) {
        bodies::reference(&input);
    }

    #[test]
    fn models(input in prop_oneof![bytes(), damaged(repository("harness/sim/data/models.toml").into())]) {
        bodies::model(&input);
    }

    #[test]
    fn bandwidths(input in prop_oneof![bytes(), damaged(b"400 Gb/s".to_vec())]) {
        bodies::bandwidth(&input);
    }
}

#[test]
fn profiles() {
    let whole = repository("results/profiles/h200.json");
    let strategy = prop_oneof![bytes(), damaged(whole.clone().into()), renumbered(whole)];
    let config = ProptestConfig { cases: CASES / 4, ..config() };
    proptest!(config, |(input in strategy)| bodies::profile(&input));
}

#[test]
fn plans() {
    for system in ["ulysses", "ring-zigzag", "libra"] {
        let whole = plan(system);
        bodies::plan(whole.as_bytes());
        let strategy = prop_oneof![bytes(), damaged(whole.clone().into()), renumbered(whole)];
        proptest!(config(), |(input in strategy)| bodies::plan(&input));
    }
}

#[test]
fn archives() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    lab.run("results export study --out run.tar.zst").ok();
    let whole = std::fs::read(lab.path("run.tar.zst")).unwrap();
    bodies::archive(&whole);
    let config = ProptestConfig { cases: CASES / 10, ..config() };
    proptest!(config, |(input in prop_oneof![bytes(), damaged(whole.clone())])| bodies::archive(&input));
}

/// Codes that a command may end with; 1 would be a defect, 101 a panic.
const CODES: [i32; 6] = [0, 2, 10, 11, 12, 30];

#[test]
fn damaged_experiments_never_panic() {
    let lab = Lab::new();
    let strategy = prop_oneof![damaged(TINY.into()), renumbered(TINY.into())];
    let config = ProptestConfig { cases: CASES / 10, ..config() };
    proptest!(config, |(input in strategy)| {
        std::fs::write(lab.path("damaged.toml"), &input).unwrap();
        let done = lab.run("run damaged.toml --list");
        prop_assert!(done.code.is_some_and(|c| CODES.contains(&c)), "{:?} {}", done.code, done.stderr);
    });
    assert_eq!(lab.names(), ["damaged.toml"]);
}

#[test]
fn random_words_never_panic() {
    let commands = [
        "compare",
        "report",
        "plan",
        "workload list",
        "workload describe",
        "workload sample",
        "workload import",
        "systems",
        "env",
        "results check",
        "results export",
        "results import",
        "completions",
        "man",
        "run --list",
        "reproduce --figure fig5",
    ];
    let words = [
        "--help",
        "--format",
        "json",
        "csv",
        "--out",
        "out",
        "--seed",
        "7",
        "--system",
        "libra",
        "ulysses+sorted",
        "--workload",
        "paper-256k",
        "./lengths.txt",
        "--window",
        "4096",
        "0",
        "-1",
        "--layout",
        "dp=2,cp=2",
        "dp=0",
        "dp=,=",
        "--step",
        "--wave",
        "--pool",
        "1",
        "--gbs",
        "8",
        "--steps",
        "2",
        "--option",
        "tau=0.1",
        "pool=1",
        "=",
        "tiny.toml",
        "paper/fig5",
        "--set",
        "steps=1",
        "x=",
        "study",
        ".",
        "",
        "--field",
        "tokens",
        "--packing",
        "cut",
        "--quick",
        "--force",
        "--threads",
        "2",
        "bash",
        "--profile",
        "h200",
        "--model",
        "qwen3-4b",
        "--fail-on",
        "5",
        "--templates",
        "\u{1F980}",
        "--",
        "18446744073709551616",
    ];
    let line = (select(commands.to_vec()), prop::collection::vec(select(words.to_vec()), 0..7));
    let config = ProptestConfig { cases: CASES / 5, ..config() };
    proptest!(config, |((command, words) in line)| {
        let lab = Lab::tiny();
        lab.write("lengths.txt", "5\n4096\n77\n");
        let line: Vec<&str> = command.split(' ').chain(words).collect();
        let done = lab.run_words(&line);
        prop_assert!(done.code.is_some_and(|c| CODES.contains(&c)), "{line:?}: {:?} {}", done.code, done.stderr);
        prop_assert!(!done.stderr.contains("panicked"), "{line:?}: {}", done.stderr);
    });
}
