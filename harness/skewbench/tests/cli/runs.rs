//! Runs end to end: what they leave, that it does not depend on threads, and that it does depend on its inputs.

use serde_json::Value;

use crate::common::{Lab, MOVING, TINY, differing};

/// Every named system on the tiny experiment.
fn all_systems(lab: &Lab) -> Vec<String> {
    let systems = lab.run("systems --format json").json();
    systems.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

/// (system, metric, value) of a study's rows.
fn values(lab: &Lab, study: &str) -> Vec<(String, String, f64)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    lab.summary(study)
        .iter()
        .map(|r| (text(r, "system"), format!("{} {}", text(r, "metric"), r["at"]), r["value"].as_f64().unwrap()))
        .collect()
}

#[test]
fn every_system_on_every_window() {
    let lab = Lab::tiny();
    let systems = all_systems(&lab);
    let names = format!("systems.names={}", serde_json::to_string(&systems).unwrap());
    for (window, cp) in [(4096, 2), (4099, 2), (16_384, 2), (8192, 3), (1000, 7)] {
        let out = format!("w{window}-cp{cp}");
        let (window, cp) = (format!("workload.0.window_tokens={window}"), format!("layout.cp={cp}"));
        let set = ["--set", &names, "--set", &window, "--set", &cp, "--set", "steps=2"];
        let table = lab.run_words(&[&["run", "tiny.toml", "--out", &out][..], &set].concat()).ok();
        for file in [
            "index.html",
            "tiny.html",
            "method.html",
            "environment.html",
            "summary.json",
            "data/tiny.csv",
            "data/tiny.parquet",
            "data/tiny.pdf",
            "data/tiny.svg",
            "data/tiny.tex",
            "run/tiny/samples.parquet",
        ] {
            assert!(lab.path(&out).join(file).is_file(), "{out}: no {file}");
        }
        let rows = lab.summary(&out);
        let page = std::fs::read_to_string(lab.path(&out).join("index.html")).unwrap();
        for system in &systems {
            assert!(table.contains(system.as_str()) && page.contains(system.as_str()), "{out}: {system} is missing");
            let mine: Vec<&Value> = rows.iter().filter(|r| r["system"] == **system).collect();
            assert!(!mine.is_empty(), "{out}: {system}");
            for row in mine {
                assert_eq!(row["status"], "ok", "{out}: {row}");
                assert!(row["value"].as_f64().unwrap() > 0.0, "{out}: {row}");
                assert_eq!((&row["kind"], &row["backend"]), (&"simulated".into(), &"sim".into()));
                // A queue of documents takes half of the steps to settle at most.
                let n = row["n"].as_u64().unwrap();
                assert!(n == 2 || n == 1 && system == "wlb", "{out}: {row}");
            }
        }
        assert!(!page.contains("<script") && page.contains("Content-Security-Policy"));
    }
}

#[test]
fn threads_do_not_change_a_byte() {
    let lab = Lab::tiny();
    let names = format!("systems.names={}", serde_json::to_string(&all_systems(&lab)).unwrap());
    let run = |threads: &str, out: &str| {
        lab.run_words(&["run", "tiny.toml", "--set", &names, "--threads", threads, "--out", out]).ok();
        lab.shared_bytes(out)
    };
    let (one, four) = (run("1", "one"), run("4", "four"));
    assert!(one.len() >= 9, "{:?}", one.keys());
    assert_eq!(differing(&one, &four), [""; 0]);
    let figures = "reproduce --quick --figure fig8 --figure fig5 --figure table1";
    lab.run(&format!("{figures} --threads 1 --out r1")).ok();
    lab.run(&format!("{figures} --threads 4 --out r4")).ok();
    assert_eq!(differing(&lab.shared_bytes("r1"), &lab.shared_bytes("r4")), [""; 0]);
    lab.run("results check r4").ok();
}

#[test]
fn a_finished_run_is_only_rendered_again() {
    let lab = Lab::tiny();
    let first = lab.run("run tiny.toml --out study");
    assert!(first.stderr.contains("3 cells computed, 0 reused, 0 failed"), "{}", first.stderr);
    let before = lab.shared_bytes("study");
    std::fs::remove_file(lab.path("study/index.html")).unwrap();
    std::fs::remove_file(lab.path("study/summary.json")).unwrap();
    let again = lab.run("run tiny.toml --out study");
    assert!(again.stderr.contains("reusing 3 finished cells of 3"), "{}", again.stderr);
    assert!(again.stderr.contains("0 cells computed, 3 reused, 0 failed"), "{}", again.stderr);
    assert_eq!((again.code, &again.stdout), (Some(0), &first.stdout));
    assert_eq!(differing(&before, &lab.shared_bytes("study")), [""; 0]);
}

#[test]
fn cells_are_shared_between_experiments() {
    let lab = Lab::tiny();
    let other = TINY.replace("\"tiny\"", "\"other\"").replace("\"straggler_mean\", ", "\"wave_r\", ");
    lab.write("other.toml", other.replace("\"libra\"", "\"libra-tap\""));
    let done = lab.run("run tiny.toml other.toml --out study");
    assert!(done.stderr.contains("4 cells computed"), "{}", done.stderr);
    done.ok();
}

#[test]
fn inputs_change_the_numbers() {
    let lab = Lab::tiny();
    lab.run(&format!("run tiny.toml --out base {MOVING}")).ok();
    let base = values(&lab, "base");
    let of = |values: &[(String, String, f64)], system: &str| -> Vec<f64> {
        values.iter().filter(|v| v.0 == system).map(|v| v.2).collect()
    };
    // Groups of two cards fill a node of two, so only pools over both groups meet the network.
    for (name, change, ulysses_changes) in [
        ("seed", "--seed 2", true),
        ("bandwidth", "--set machine.network_bandwidth='100Gb/s'", false),
        ("oversubscription", "--set machine.oversubscription=4.0", false),
        ("latency", "--set machine.network_latency_ns=50000.0", false),
        ("transport", "--set machine.transport=copy_engines", true),
        ("cards", "--set machine.card_relative_sd=0.05", true),
        ("spread", "--set layout.cards_per_node=1", true),
        ("together", "--set layout.cards_per_node=8", false),
        ("window", "--set workload.0.window_tokens=4096", true),
        ("packing", "--set workload.0.packing=split", true),
        ("workload", "--set workload.0.name=magi", true),
        ("model", "--set model=llama-3-8b", true),
    ] {
        lab.run(&format!("run tiny.toml --out {name} {MOVING} {change}")).ok();
        let changed = values(&lab, name);
        assert_ne!(of(&changed, "libra"), of(&base, "libra"), "{name}");
        assert_eq!(of(&changed, "ulysses") != of(&base, "ulysses"), ulysses_changes, "{name}");
    }
    let slower = |name: &str| of(&values(&lab, name), "libra").iter().zip(of(&base, "libra")).all(|(a, b)| *a > b);
    assert!(slower("bandwidth") && slower("oversubscription") && slower("latency"));
}

#[test]
fn options_change_the_numbers() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --out base").ok();
    let base = values(&lab, "base");
    for (name, value) in [("pieces", "1"), ("block", "256"), ("head_shards", "4"), ("pool", "1")] {
        lab.run(&format!("run tiny.toml --out {name} --set options.libra.{name}={value}")).ok();
        let changed = values(&lab, name);
        let same = |system: &str| {
            let of =
                |all: &[(String, String, f64)]| all.iter().filter(|v| v.0 == system).map(|v| v.2).collect::<Vec<_>>();
            of(&base) == of(&changed)
        };
        assert!(same("ulysses") && !same("libra"), "{name}");
    }
}

#[test]
fn a_failed_cell_is_a_row_with_a_reason() {
    let lab = Lab::tiny();
    let done = lab.run("run tiny.toml --out study --set memory_limit_bytes=60000000");
    assert!(matches!(done.code, Some(20 | 21)), "{:?} {}", done.code, done.stderr);
    let rows = lab.summary("study");
    let failed: Vec<&Value> = rows.iter().filter(|r| r["status"] == "failed").collect();
    assert!(!failed.is_empty());
    for row in failed {
        assert!(row["value"].is_null());
        let reason = row["reason"].as_str().unwrap();
        assert!(reason.contains("60000000"), "{reason}");
    }
    // Nothing is tried again unless asked for.
    let again = lab.run("run tiny.toml --out study --set memory_limit_bytes=60000000");
    assert_eq!(again.code, done.code);
    assert!(again.stderr.contains("0 cells computed"), "{}", again.stderr);
    let requeued = lab.run("run tiny.toml --out study --set memory_limit_bytes=60000000 --requeue");
    assert_eq!(requeued.code, done.code);
    assert!(!requeued.stderr.contains("0 cells computed"), "{}", requeued.stderr);
}

#[test]
fn formats_of_the_closing_table() {
    let lab = Lab::tiny();
    let rows = lab.run("run tiny.toml --out study --format json").json();
    assert_eq!(rows, Value::Array(lab.summary("study")));
    let count = rows.as_array().unwrap().len();
    let lines = lab.run("run tiny.toml --out study --format jsonl").ok();
    assert!(lines.lines().count() == count && lines.lines().all(|l| serde_json::from_str::<Value>(l).is_ok()));
    let csv = lab.run("run tiny.toml --out study --format csv").ok();
    assert_eq!(csv.lines().count(), count + 1);
    assert!(csv.starts_with("figure,dataset,system,metric,"));
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    let expected = [
        "figure",
        "dataset",
        "system",
        "metric",
        "unit",
        "at",
        "published",
        "value",
        "ratio",
        "ci_low",
        "ci_high",
        "n",
        "kind",
        "backend",
        "profile",
        "status",
        "verdict",
    ];
    assert!(expected.iter().all(|k| keys.iter().any(|key| key == k)), "{keys:?}");
}

#[test]
fn text_of_an_experiment_is_escaped() {
    let lab = Lab::new();
    lab.write("tiny.toml", TINY.replace("\"Tiny\"", "\"<script>alert(1)</script>\""));
    lab.run("run tiny.toml --quick --out study").ok();
    for page in ["study/index.html", "study/tiny.html"] {
        let page = std::fs::read_to_string(lab.path(page)).unwrap();
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"));
    }
}
