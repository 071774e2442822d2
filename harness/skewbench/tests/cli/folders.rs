//! Where runs are written, and what is never overwritten.

use std::process::Stdio;

use crate::common::{Lab, TINY, differing};

#[test]
fn other_inputs_are_refused_and_kept_with_force() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    let before = lab.shared_bytes("study");
    for (change, expected) in [
        ("--seed 2", "seed"),
        ("--set steps=7", "experiment"),
        ("--set gbs=4", "experiment"),
        ("--set machine.oversubscription=2.0", "experiment"),
    ] {
        let message = lab.run(&format!("run tiny.toml --quick --out study {change}")).error(10);
        assert!(message.contains("study") && message.contains(expected) && message.contains("--force"), "{message}");
        assert_eq!(differing(&lab.shared_bytes("study"), &before), [""; 0]);
    }
    lab.run("run tiny.toml --quick --out study --seed 2 --force").ok();
    assert_eq!(differing(&lab.shared_bytes("study.old-1"), &before), [""; 0]);
    assert_ne!(lab.shared_bytes("study"), before);
    lab.run("run tiny.toml --quick --out study --seed 3 --force").ok();
    assert_eq!(lab.names(), ["study", "study.old-1", "study.old-2", "tiny.toml"]);
    // With the same inputs there is nothing to keep.
    assert!(
        lab.run("run tiny.toml --quick --out study --seed 3 --force").stderr.contains("reusing 3 finished cells of 3")
    );
    assert_eq!(lab.names(), ["study", "study.old-1", "study.old-2", "tiny.toml"]);
}

#[test]
fn another_study_is_not_mixed_in() {
    let lab = Lab::tiny();
    lab.write("other.toml", TINY.replace("\"tiny\"", "\"other\""));
    lab.run("run tiny.toml --quick --out study").ok();
    let before = lab.shared_bytes("study");
    let message = lab.run("run other.toml --quick --out study").error(10);
    assert!(message.contains("run/tiny is no part of what was asked for"), "{message}");
    assert_eq!(differing(&lab.shared_bytes("study"), &before), [""; 0]);
    // More experiments than before complete the study.
    lab.run("run tiny.toml other.toml --quick --out study").ok();
    let figures: std::collections::BTreeSet<String> =
        lab.summary("study").iter().map(|r| r["figure"].as_str().unwrap().to_owned()).collect();
    assert_eq!(figures, ["other".to_owned(), "tiny".to_owned()].into());
}

#[test]
fn folders_of_something_else() {
    let lab = Lab::tiny();
    std::fs::create_dir(lab.path("mine")).unwrap();
    lab.write("mine/index.html", "my page");
    for force in ["", " --force"] {
        let message = lab.run(&format!("run tiny.toml --quick --out mine{force}")).error(10);
        assert!(message.contains("mine") && message.contains("index.html"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(lab.path("mine/index.html")).unwrap(), "my page");
    let message = lab.run("run tiny.toml --quick --out tiny.toml").error(10);
    assert!(message.contains("not a folder"), "{message}");
    let message = lab.run("report mine").error(10);
    assert!(message.contains("no run in this folder"), "{message}");
    lab.run("run tiny.toml --quick --out study").ok();
    let message = lab.run("report study --out mine").error(10);
    assert!(message.contains("holds files and no report"), "{message}");
    assert!(lab.run("report study study").error(2).contains("--out"));
    // No run among several is left out in silence.
    for runs in ["study mine", "mine study"] {
        assert!(lab.run(&format!("report {runs} --out x")).error(10).contains("mine: no run in this folder"));
    }
    assert!(!lab.exists("x"));
    // An empty folder is as good as none.
    std::fs::create_dir(lab.path("empty")).unwrap();
    lab.run("run tiny.toml --quick --out empty").ok();
}

#[test]
fn a_report_that_was_interrupted_is_made_anew() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    std::fs::create_dir(lab.path("whole")).unwrap();
    // A fault in a template comes before any page; what is left is known as the program's own.
    std::fs::create_dir(lab.path("faulty")).unwrap();
    lab.write("faulty/index.html", "{% if %}");
    lab.run("report study --out whole --templates faulty").error(10);
    assert_eq!(std::fs::read_dir(lab.path("whole")).unwrap().count(), 1);
    lab.write("whole/style.css", "half of it");
    lab.run("report study --out whole").ok();
    assert!(lab.exists("whole/summary.json") && !lab.exists("whole/.unfinished"));
}

#[test]
fn places_that_cannot_be_written() {
    let lab = Lab::tiny();
    for out in ["/dev/null/x", "/proc/x", "tiny.toml/x"] {
        let message = lab.run(&format!("run tiny.toml --quick --out {out}")).error(10);
        assert!(message.contains(out.rsplit_once('/').unwrap().0), "{message}");
    }
    lab.write("lengths.txt", "5\n6\n");
    for out in ["/dev/null/x.parquet", "/proc/x.parquet"] {
        let message = lab.run(&format!("workload import lengths.txt --out {out}")).error(10);
        assert!(message.contains(out.rsplit_once('/').unwrap().0), "{message}");
    }
    let message = lab.run("run tiny.toml --out x --templates absent").error(10);
    assert!(message.contains("absent"), "{message}");
    assert_eq!(lab.names(), ["lengths.txt", "tiny.toml"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_an_error() {
    let lab = Lab::tiny();
    for line in ["systems", "env --format json", "workload list --format csv", "man", "completions bash", "run --list"]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = lab.command();
        let output = command
            .args(line.split(' '))
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(10), "{line}: {message}");
        assert!(message.starts_with("error: standard output: "), "{line}: {message}");
    }
}

/// A limit on file sizes stands in for a full disk: the write fails in the same way, for every user.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --out whole").ok();
    for blocks in [0, 2, 8, 16] {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" run tiny.toml --out full");
        let mut command = std::process::Command::new("sh");
        command.current_dir(lab.path("")).args(["-c", &script, env!("CARGO_BIN_EXE_skewbench")]);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(10), "{blocks}: {message}");
        assert!(message.contains("full") && message.contains("File too large"), "{blocks}: {message}");
    }
    lab.run("run tiny.toml --out full").ok();
    assert_eq!(differing(&lab.shared_bytes("full"), &lab.shared_bytes("whole")), [""; 0]);
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --out study").ok();
    let lock = std::fs::File::open(lab.path("study/run/tiny/.lock"))
        .or_else(|_| std::fs::File::create(lab.path("study/run/tiny/.lock")))
        .unwrap();
    lock.lock().unwrap();
    for line in ["run tiny.toml --out study", "run tiny.toml --out study --seed 5 --force"] {
        let message = lab.run(line).error(10);
        assert!(message.contains("in use by another process"), "{message}");
    }
    drop(lock);
    lab.run("run tiny.toml --out study").ok();
}
