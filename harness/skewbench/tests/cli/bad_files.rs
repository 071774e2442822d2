//! Files that cannot be used: one error that names the file, exit code 10, and nothing written.

use crate::common::{Lab, TINY, repository};

const MODEL: &str = r#"[[model]]
name = "m"
layers = 2
hidden = 64
q_heads = 8
kv_heads = 2
head_dim = 128
ffn = 128
experts = 0
experts_per_token = 0
moe_ffn = 0
vocab = 100
source = "mine"
unverified = []
"#;

/// Runs the tiny experiment with a file, which must be refused before anything is written.
#[track_caller]
fn refused(lab: &Lab, what: &str, change: &str, expected: &[&str]) {
    let line = if change.is_empty() {
        vec!["run", "tiny.toml", "--out", "x"]
    } else {
        vec!["run", "tiny.toml", "--out", "x", "--set", change]
    };
    let message = lab.run_words(&line).error(10);
    for part in expected {
        assert!(message.contains(part), "{what}: {part:?} is missing in: {message}");
    }
    assert!(!lab.exists("x"), "{what} left something");
}

#[test]
fn experiment_files() {
    let lab = Lab::new();
    let cases: [(&str, Vec<u8>, &[&str]); 13] = [
        ("empty", b"".to_vec(), &["tiny.toml: is empty"]),
        ("blank", b" \n\n".to_vec(), &["tiny.toml: is empty"]),
        ("cut in a list", TINY.split("libra").next().unwrap().into(), &["tiny.toml:10:"]),
        ("cut in a table name", TINY.split("ot]").next().unwrap().into(), &["tiny.toml:21:"]),
        ("cut before the end", TINY.split("[plot]").next().unwrap().into(), &["`plot` is missing"]),
        ("binary", b"\xff\xfe\x00\x01".to_vec(), &["tiny.toml", "UTF-8"]),
        ("JSON", b"{\"title\": 1}".to_vec(), &["tiny.toml:1:"]),
        ("text for a number", TINY.replace("steps = 6", "steps = \"six\"").into(), &["tiny.toml:6:", "expected u32"]),
        ("table for a list", TINY.replace("[[workload]]", "[workload]").into(), &["tiny.toml:12:"]),
        ("a key twice", TINY.replace("gbs = 8", "gbs = 8\ngbs = 9").into(), &["tiny.toml:6:", "duplicate key"]),
        (
            "unknown key",
            TINY.replace("quick_steps", "quik_steps").into(),
            &["tiny.toml:7:", "did you mean `quick_steps`?"],
        ),
        ("unknown table", TINY.replace("[layout]", "[layuot]").into(), &["tiny.toml:16:", "did you mean `layout`?"]),
        (
            "unknown metric",
            TINY.replace("straggler_max", "straggler_mxa").into(),
            &["tiny.toml:22:", "did you mean `straggler_max`?"],
        ),
    ];
    for (what, content, expected) in cases {
        lab.write("tiny.toml", content);
        refused(&lab, what, "", expected);
    }
    let message = lab.run("run absent.toml --out x").error(10);
    assert!(message.contains("absent.toml") && message.contains("No such file"), "{message}");
    std::fs::create_dir(lab.path("folder.toml")).unwrap();
    assert!(lab.run("run folder.toml --out x").error(10).contains("folder.toml"));
    assert!(!lab.exists("x"));
}

#[test]
fn profile_files() {
    let lab = Lab::tiny();
    let whole = repository("results/profiles/h200.json");
    let replaced = |from: &str, to: &str| {
        assert!(whole.contains(from), "the shipped profile has no {from}");
        whole.replacen(from, to, 1).into_bytes()
    };
    let cases: [(&str, Vec<u8>, &[&str]); 11] = [
        ("empty", b"".to_vec(), &["mine.json"]),
        ("cut", whole.as_bytes()[..whole.len() / 2].to_vec(), &["mine.json"]),
        ("binary", b"\xff\xfe\x00".to_vec(), &["mine.json", "UTF-8"]),
        ("a list", b"[]".to_vec(), &["mine.json"]),
        ("a number", b"7".to_vec(), &["mine.json"]),
        ("NaN", replaced("\"oversubscription\": 1.0", "\"oversubscription\": NaN"), &["mine.json"]),
        ("an absurd number", replaced("\"oversubscription\": 1.0", "\"oversubscription\": 1e999"), &["mine.json"]),
        (
            "below 1",
            replaced("\"oversubscription\": 1.0", "\"oversubscription\": 0.5"),
            &["mine.json", "network.oversubscription"],
        ),
        (
            "negative",
            replaced("\"oversubscription\": 1.0", "\"oversubscription\": -1"),
            &["mine.json", "network.oversubscription"],
        ),
        ("text for a number", replaced("\"oversubscription\": 1.0", "\"oversubscription\": \"1\""), &["mine.json"]),
        ("unknown key", replaced("\"oversubscription\"", "\"oversubscripton\""), &["mine.json", "`oversubscription`"]),
    ];
    for (what, content, expected) in cases {
        lab.write("mine.json", content);
        refused(&lab, what, "profile=\"./mine.json\"", expected);
        let message = lab.run("run tiny.toml --out x --profile mine.json").error(10);
        assert!(message.contains("mine.json"), "{what}: {message}");
    }
    refused(&lab, "absent", "profile=\"absent.json\"", &["absent.json", "No such file"]);
    refused(&lab, "a folder", "profile=\"./\"", &["./"]);
    lab.write("mine.json", whole);
    lab.run("run tiny.toml --profile mine.json --quick --out x").ok();
}

#[test]
fn model_files() {
    let lab = Lab::tiny();
    let replaced = |from: &str, to: &str| {
        assert!(MODEL.contains(from));
        MODEL.replacen(from, to, 1).into_bytes()
    };
    let cases: [(&str, Vec<u8>, &[&str]); 14] = [
        ("empty", b"".to_vec(), &["mine.toml"]),
        ("cut", MODEL[..60].into(), &["mine.toml"]),
        ("binary", b"\xff\xfe".to_vec(), &["mine.toml", "UTF-8"]),
        ("no model", b"model = []\n".to_vec(), &["mine.toml", "0 models"]),
        ("two models", [replaced("\"m\"", "\"a\""), MODEL.into()].concat(), &["mine.toml", "2 models"]),
        ("unknown key", replaced("vocab", "vocabulary"), &["mine.toml", "`vocab`"]),
        ("text for a number", replaced("layers = 2", "layers = \"2\""), &["mine.toml:3:"]),
        ("NaN", replaced("layers = 2", "layers = nan"), &["mine.toml:3:"]),
        ("negative", replaced("layers = 2", "layers = -2"), &["mine.toml:3:"]),
        ("no layers", replaced("layers = 2", "layers = 0"), &["mine.toml", "layers = 0"]),
        ("no heads", replaced("q_heads = 8", "q_heads = 0"), &["mine.toml", "q_heads"]),
        ("odd heads", replaced("kv_heads = 2", "kv_heads = 3"), &["mine.toml", "heads"]),
        ("absurd heads", replaced("q_heads = 8", "q_heads = 70000"), &["mine.toml:5:"]),
        ("absurd layers", replaced("layers = 2", "layers = 4000000000"), &["mine.toml", "layers"]),
    ];
    for (what, content, expected) in cases {
        lab.write("mine.toml", content);
        refused(&lab, what, "model=\"./mine.toml\"", expected);
    }
    refused(&lab, "absent", "model=\"absent.toml\"", &["absent.toml", "No such file"]);
    lab.write("mine.toml", MODEL);
    lab.run("run tiny.toml --set model=./mine.toml --quick --out x").ok();
}

#[test]
fn length_files() {
    let lab = Lab::tiny();
    let cases: [(&str, &str, &[u8], &str); 17] = [
        ("empty", "l.txt", b"", "l.txt"),
        ("blank lines", "l.txt", b"\n\n\n", "no document"),
        ("words", "l.txt", b"12\nabc\n", "l.txt:2"),
        ("negative", "l.txt", b"12\n13\n-4\n", "l.txt:3"),
        ("zero", "l.txt", b"12\n0\n", "l.txt:2"),
        ("NaN", "l.txt", b"nan\n", "l.txt:1"),
        ("infinite", "l.txt", b"5\ninf\n", "l.txt:2"),
        ("half a token", "l.txt", b"5.5\n", "l.txt:1"),
        ("absurd", "l.txt", b"1099511627777\n", "l.txt:1"),
        ("binary", "l.txt", b"\xff\xfe\x00", "l.txt"),
        ("no lengths", "l.csv", b"tokens\n", "no document"),
        ("other column", "l.csv", b"a,b\n1,2\n", "l.csv"),
        ("negative", "l.csv", b"tokens\n5\n-1\n", "l.csv"),
        ("torn JSON", "l.jsonl", b"{\"tokens\": 5}\n{\"tokens\": ", "l.jsonl:2"),
        ("text for a number", "l.jsonl", b"{\"tokens\": \"five\"}\n", "l.jsonl:1"),
        ("torn array", "l.npy", b"\x93NUMPY\x01\x00", "l.npy"),
        ("torn Parquet", "l.parquet", b"PAR1\x15\x04PAR1", "l.parquet"),
    ];
    for (what, name, content, expected) in cases {
        lab.write(name, content);
        refused(&lab, what, &format!("workload.0.name=\"{name}\""), &[expected]);
        let message = lab.run(&format!("workload describe ./{name} --window 4096")).error(10);
        assert!(message.contains(expected), "{what}: {message}");
    }
    refused(&lab, "absent", "workload.0.name=\"absent.txt\"", &["absent.txt", "No such file"]);
    lab.write("l.txt", "8192\n1\n77\n4000\n");
    lab.run("run tiny.toml --set workload.0.name=l.txt --quick --out x").ok();
}
