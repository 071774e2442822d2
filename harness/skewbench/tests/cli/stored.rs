//! Checking, exporting, importing and rendering stored runs.

use skewbench_store::{Column, Table};

use crate::common::{Lab, TINY, differing};

#[test]
fn a_run_travels_and_gives_the_same_pages() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --out study").ok();
    assert!(lab.run("results check study").ok().contains("3 of 3 cells finished, 0 failed"));
    lab.run("results export study --out run.tar.zst").ok();
    lab.run("results import run.tar.zst --out far/run/tiny").ok();
    assert!(lab.run("results check far").ok().contains("sound"));
    lab.run("report far").ok();
    assert_eq!(differing(&lab.shared_bytes("study"), &lab.shared_bytes("far")), [""; 0]);
    // Rendering leaves a sealed run as it was.
    lab.run("report far/run/tiny").ok();
    assert!(lab.exists("far/run/tiny-report/index.html") && !lab.exists("far/run/tiny/index.html"));
    lab.run("results check far/run/tiny").ok();
    assert!(lab.run("results import run.tar.zst --out far/run/tiny").error(10).contains("exists already"));
    assert!(lab.run("results export study --out run.tar.zst").error(10).contains("run.tar.zst"));
}

#[test]
fn a_study_of_several_runs_travels_too() {
    let lab = Lab::tiny();
    lab.write("other.toml", TINY.replace("\"tiny\"", "\"other\""));
    lab.run("run other.toml tiny.toml --quick --out study").ok();
    lab.run("results export study --out archives").ok();
    assert!(lab.exists("archives/tiny.tar.zst") && lab.exists("archives/other.tar.zst"));
    lab.run("results import archives --out far").ok();
    lab.run("report far").ok();
    assert_eq!(differing(&lab.shared_bytes("study"), &lab.shared_bytes("far")), [""; 0]);
    assert!(lab.run("results import archives --out far").error(10).contains("exists already"));
    assert!(lab.run("results export study --out archives").error(10).contains("archives"));
}

#[test]
fn several_runs_in_one_report() {
    let lab = Lab::tiny();
    lab.write("other.toml", TINY.replace("\"tiny\"", "\"other\""));
    lab.run("run tiny.toml --quick --out a").ok();
    lab.run("run other.toml --quick --out b").ok();
    lab.run("report a b --out both").ok();
    let (a, b, both) = (lab.summary("a"), lab.summary("b"), lab.summary("both"));
    assert_eq!([a, b].concat(), both);
    // A run without its files of origin is enough.
    std::fs::remove_file(lab.path("tiny.toml")).unwrap();
    lab.run("report a --out again").ok();
    assert_eq!(lab.summary("again"), lab.summary("a"));
}

#[test]
fn tampering_is_found() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    let run = lab.path("study/run/tiny");
    for name in ["samples.parquet", "ranks.parquet", "cells.json", "failures.json", "checksums.json", "manifest.json"] {
        let path = run.join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        // The middle of the manifest is the experiment's text, of every other file a byte that is covered by a checksum.
        let at = if name == "manifest.json" { position(&whole, b"Straggler latency") } else { whole.len() / 2 };
        changed[at] ^= 1;
        for (what, bytes) in [("changed", &changed[..]), ("cut", &whole[..whole.len() / 2]), ("empty", &[])] {
            std::fs::write(&path, bytes).unwrap();
            let done = lab.run("results check study");
            assert_eq!(done.code, Some(12), "{name} {what}: {}{}", done.stdout, done.stderr);
            assert!(done.stdout.contains("NOT sound"), "{name} {what}: {}", done.stdout);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(lab.run("results check study").code, Some(10 | 12)), "{name} removed");
        std::fs::write(&path, whole).unwrap();
    }
    lab.write("study/run/tiny/more.txt", "x");
    let done = lab.run("results check study");
    assert_eq!(done.code, Some(12));
    assert!(done.stdout.contains("more.txt is not part of the run"), "{}", done.stdout);
    std::fs::remove_file(lab.path("study/run/tiny/more.txt")).unwrap();
    lab.run("results check study").ok();
}

/// Whoever edits a table and seals it again does not make it whole.
#[test]
fn tables_without_some_of_their_content_are_found() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    let run = lab.path("study/run/tiny");
    let whole = std::fs::read(run.join("samples.parquet")).unwrap();
    let sums = std::fs::read_to_string(run.join("checksums.json")).unwrap();
    let rows = Table::load_parquet(&run.join("samples.parquet")).unwrap();
    let retyped = |name: &str, to: fn(&Column) -> Option<Column>| {
        let columns =
            rows.columns().filter_map(|(n, c)| if n == name { Some((n, to(c)?)) } else { Some((n, c.clone())) });
        Table::from_columns(columns).unwrap()
    };
    let floats = |column: &Column| match column {
        Column::U64(v) => Some(Column::F64(v.iter().map(|x| *x as f64).collect())),
        _ => None,
    };
    for (edited, expected) in [
        (rows.slice(0, rows.rows() - 1), "a wave of step 0 has 1 rows, not 2"),
        (rows.slice(rows.rows() - 2, rows.rows()), "no rows of cell"),
        (retyped("forward_ps", floats), "column forward_ps"),
        (retyped("forward_ps", |_| None), "forward_ps"),
    ] {
        let mut bytes = Vec::new();
        edited.write_parquet(&mut bytes).unwrap();
        let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        let resealed = sums
            .replace(&digest(&whole), &digest(&bytes))
            .replace(&format!("\"bytes\": {}", whole.len()), &format!("\"bytes\": {}", bytes.len()));
        assert_ne!(resealed, sums);
        std::fs::write(run.join("samples.parquet"), &bytes).unwrap();
        std::fs::write(run.join("checksums.json"), resealed).unwrap();
        let found = lab.run("results check study");
        assert!(found.stdout.contains("NOT sound") && found.stdout.contains(expected), "{}", found.stdout);
        assert!(found.stdout.contains("samples.parquet"), "{}", found.stdout);
        found.error(12);
        let message = lab.run("report study").error(10);
        assert!(message.contains("samples.parquet") && message.contains(expected), "{message}");
    }
}

fn position(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).position(|w| w == needle).unwrap()
}

#[test]
fn archives_are_not_trusted() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    lab.run("results export study --out run.tar.zst").ok();
    let whole = std::fs::read(lab.path("run.tar.zst")).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        lab.write("cut.tar.zst", &whole[..cut]);
        let message = lab.run("results import cut.tar.zst --out x").error(10);
        assert!(message.contains("cut.tar.zst"), "{cut}: {message}");
    }
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 0x10;
    lab.write("cut.tar.zst", changed);
    lab.run("results import cut.tar.zst --out x").error(10);
    lab.write("cut.tar.zst", "plain text");
    lab.run("results import cut.tar.zst --out x").error(10);
    assert_eq!(lab.names(), ["cut.tar.zst", "run.tar.zst", "study", "tiny.toml"]);
}

#[test]
fn folders_without_runs() {
    let lab = Lab::tiny();
    for line in [
        "results check .",
        "results check absent",
        "results export . --out a",
        "report .",
        "report absent",
        "compare . absent",
    ] {
        assert!(lab.run(line).error(10).contains("no run in this folder"), "{line}");
    }
    assert_eq!(lab.names(), ["tiny.toml"]);
}
