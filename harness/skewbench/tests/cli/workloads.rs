//! `workload`: presets, descriptions, samples, imports.

use crate::common::Lab;

#[test]
fn presets_are_listed() {
    let lab = Lab::new();
    let list = lab.run("workload list --format json").json();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    for name in [
        "paper-256k",
        "paper-1m",
        "real-256k",
        "real-1m",
        "magi",
        "magi-long",
        "magi-short",
        "prolong",
        "wlb-lengths",
        "wikipedia",
        "longmino",
    ] {
        assert!(names.contains(&name), "{name}");
        let described =
            lab.run(&format!("workload describe {name} --window 16384 --gbs 16 --steps 4 --format json")).json();
        assert_eq!(described[0]["window_tokens"], 16_384, "{name}");
        let groupings = described[0]["balance"].as_array().unwrap();
        assert_eq!(groupings.len(), 5 * 5, "{name}");
    }
}

#[test]
fn a_description_says_what_the_issue_asks() {
    let lab = Lab::new();
    let text = lab.run("workload describe paper-256k --window 32768 --steps 20").ok();
    for part in [
        "quantiles",
        "mean x",
        "CV of x",
        "one full document",
        "longest 1%",
        "random",
        "zigzag-swap-all",
        "vrsp",
        "wave_r",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text, lab.run("workload describe paper-256k --window 32768 --steps 20").ok());
    assert_ne!(text, lab.run("workload describe paper-256k --window 32768 --steps 20 --seed 2").ok());
    for line in [
        "describe paper-256k --steps 0",
        "describe paper-256k --gbs 0",
        "sample paper-256k --steps 0",
        "sample paper-256k --gbs 0",
    ] {
        lab.run(&format!("workload {line}")).error(10);
    }
    lab.run("workload describe paper-256k --window 1 --gbs 2 --steps 2").ok();
}

#[test]
fn samples_fill_their_windows() {
    let lab = Lab::new();
    for packing in ["ff", "cut", "split"] {
        let line = format!("workload sample magi --window 5000 --gbs 3 --steps 4 --packing {packing}");
        let text = lab.run(&line).ok();
        assert_eq!(text.lines().count(), 12);
        for window in text.lines() {
            assert_eq!(window.split(' ').map(|l| l.parse::<u64>().unwrap()).sum::<u64>(), 5000);
        }
        let csv = lab.run(&format!("{line} --format csv")).ok();
        assert_eq!(csv.lines().count() - 1, text.split_whitespace().count());
        let jsonl = lab.run(&format!("{line} --format jsonl")).ok();
        assert!(jsonl.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["documents"].is_array()));
    }
}

#[test]
fn imported_lengths_are_a_workload() {
    let lab = Lab::new();
    let lengths: Vec<u32> = (0..500).map(|i| 1 + i * i % 3000).collect();
    let lines = |each: &dyn Fn(&u32) -> String| lengths.iter().map(each).collect::<Vec<_>>().join("\n");
    lab.write("a.txt", lines(&u32::to_string));
    lab.write("a.jsonl", lines(&|l| format!("{{\"id\": \"x\", \"size\": {l}}}")));
    lab.write("a.csv", format!("name,size\n{}\n", lines(&|l| format!("\"a,b\",{l}"))));
    let tokens: u32 = lengths.iter().sum();
    for (name, field) in [("a.txt", ""), ("a.jsonl", "--field size"), ("a.csv", "--field size")] {
        let report = lab.run(&format!("workload import {name} {field} --out {name}.parquet")).ok();
        assert!(report.contains("500 documents") && report.contains(&format!("{tokens} tokens")), "{report}");
    }
    let describe = |name: &str| {
        lab.run(&format!("workload describe {name} --window 4096 --gbs 16 --steps 4 --format json")).json()
    };
    let first = describe("a.txt.parquet");
    for name in ["a.jsonl.parquet", "a.csv.parquet"] {
        assert_eq!(describe(name)[0]["balance"], first[0]["balance"], "{name}");
    }
    assert!(lab.run("workload import a.txt --out a.txt.parquet").error(10).contains("a.txt.parquet"));
    lab.run("workload import a.txt a.csv --field size --out a.txt.parquet --force").ok();
    assert!(lab.run("workload import a.csv --field sise --out b.parquet").error(10).contains("size"));
    assert!(lab.run("workload import absent.txt --out b.parquet").error(10).contains("absent.txt"));
    lab.run("plan --system libra --workload ./a.csv.parquet --window 4096 --layout dp=2,cp=2").ok();
    assert!(!lab.exists("b.parquet"));
}
