//! Unknown names and flags end with exit code 2 and the nearest known name.

use crate::common::{Lab, TINY};

#[test]
fn unknown_names_offer_the_nearest() {
    let lab = Lab::tiny();
    let cases = [
        ("reproduce --figure fig88 --out x", "unknown figure fig88, did you mean fig8?"),
        ("reproduce --figure tabel1 --out x", "did you mean table1?"),
        ("reproduce --system lirba --out x", "unknown system lirba, did you mean libra?"),
        ("reproduce --system ulysses+sortd --out x", "sorted"),
        ("run paper/fig133 --out x", "did you mean paper/fig13?"),
        ("run tiny.toml --profile h20 --out x", "did you mean h200"),
        ("run tiny.toml --set model=qwen3-4 --out x", "did you mean qwen3-4b"),
        ("run tiny.toml --set workload.0.name=paper-256 --out x", "paper-256k"),
        ("run tiny.toml --set systems.names=[\"libr\"] --out x", "did you mean libra?"),
        ("workload describe paper-25k", "paper-256k"),
        ("workload sample paper-2m", "paper-1m"),
        ("plan --system libr --workload paper-256k", "did you mean libra?"),
        ("plan --system libra --workload paper-256", "paper-256k"),
        ("plan --system libra --workload paper-256k --layout dp=2,cq=3", "did you mean cp?"),
        ("plan --system libra --workload paper-256k --layout dp", "not key=number"),
        ("plan --system libra --workload paper-256k --model lama-3-8b", "did you mean llama-3-8b"),
        ("plan --system libra --workload paper-256k --profile h2000", "did you mean h200"),
        ("plan --system libra --workload paper-256k --option tau", "expected key=value"),
    ];
    for (line, expected) in cases {
        let message = lab.run(line).error(2);
        assert!(message.contains(expected), "{line}: {message}");
        assert!(!lab.exists("x"), "{line}");
    }
}

#[test]
fn unknown_flags_commands_and_values() {
    let lab = Lab::tiny();
    for (line, expected) in [
        ("reproduce --figur fig8", "--figure"),
        ("reproduec", "reproduce"),
        ("reproduce --quick --all", "cannot be used with"),
        ("reproduce --backend gpu", "possible values"),
        ("systems --format xml", "possible values"),
        ("completions basch", "bash"),
        ("compare a", "required"),
        ("report", "required"),
        ("run tiny.toml --seed -1", "unexpected argument"),
        ("run tiny.toml --seed=x", "invalid"),
        ("workload import lengths.txt", "--out"),
        ("run", "no experiment"),
        ("run tiny.toml tiny.toml --out x", "named twice"),
        ("run tiny.toml --threads 0 --out x", "--threads 0"),
        ("run tiny.toml --threads 1000000 --out x", "--threads 1000000"),
        ("compare a b --fail-on=-1", "--fail-on"),
        ("compare a b --fail-on nan", "--fail-on"),
        ("", "Usage"),
    ] {
        let done = lab.run(line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{line}: {}", done.stderr);
        assert!(!lab.exists("x"), "{line}");
    }
}

#[test]
fn a_change_that_is_none() {
    let lab = Lab::tiny();
    for (change, code, expected) in [
        ("steps", 2, "expected key=value"),
        ("=3", 2, "the key is empty"),
        ("title.x=3", 2, "title is not a table"),
        ("workload.x.name=a", 10, "unknown key `x`"),
        ("systems.names.x=a", 2, "names is a list of values; give a position"),
        ("workload.7.name=a", 2, "workload has no entry 7"),
        ("stpes=3", 10, "did you mean `steps`?"),
        ("layout.pd=3", 10, "unknown key `pd`"),
        ("steps=many", 10, "expected u32"),
        ("steps=-1", 10, "-1"),
        ("steps=0", 10, "0 steps; give at least 1"),
        ("layout.dp=3", 10, "dp = 3 does not divide gbs = 8"),
        ("plot.metrics=[]", 10, "no metric"),
    ] {
        let message = lab.run_words(&["run", "tiny.toml", "--out", "x", "--set", change]).error(code);
        assert!(message.contains(expected), "{change}: {message}");
        assert!(!lab.exists("x"), "{change}");
    }
}

#[test]
fn changes_are_applied_in_order() {
    let lab = Lab::tiny();
    let list = lab.run("run tiny.toml --list --set steps=9 --set steps=4 --set layout.cp=4").ok();
    assert!(list.contains("\"steps\":4") && list.contains("\"cp\":4") && !list.contains("\"cp\":2"), "{list}");
    lab.write("sorted.toml", TINY.replace("\"libra\"", "\"ring-zigzag+vrsp\""));
    assert!(lab.run("run sorted.toml --list").ok().contains("ring-zigzag+vrsp"));
    assert!(lab.run("run --list").ok().contains("paper/fig13"));
    assert_eq!(lab.names(), ["sorted.toml", "tiny.toml"]);
}

#[test]
fn backends_that_this_build_lacks() {
    let lab = Lab::tiny();
    for backend in ["replay", "cuda"] {
        let message = lab.run(&format!("run tiny.toml --backend {backend} --out x")).error(11);
        assert!(message.contains("sim"), "{message}");
        assert!(!lab.exists("x"));
    }
    for command in [
        "calibrate --out x.json",
        "calibrate --validate h200 --out x.csv",
        "verify --backend cuda --system ulysses",
        "verify --backend cuda --kernel plain",
        "reproduce --backend cuda",
        "run cards/two-cards --backend cuda",
    ] {
        let message = lab.run(command).error(11);
        assert!(message.contains(".so"), "{message}");
    }
    assert!(lab.run("calibrate --validate h2000").error(2).contains("h200"));
    assert_eq!(lab.names(), ["tiny.toml"]);
    // What would be run is known without a card.
    assert_eq!(lab.run("run --backend cuda --list").ok(), "cards/dense\ncards/one-card\ncards/two-cards\n");
    assert!(lab.run("reproduce --backend cuda --figure fig13").error(2).contains("--backend replay"));
    let alone = lab.run("calibrate --run x");
    assert!(alone.code == Some(2) && alone.stderr.contains("--validate"), "{}", alone.stderr);
    assert!(lab.run("run tiny.toml --backend replay --list").ok().contains("libra"));
}
