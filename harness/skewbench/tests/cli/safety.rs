//! What must never be stored, shown or trusted: secrets of the environment, names of others as markup, files of others.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Lab, TINY, differing};

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn planted_secrets_are_nowhere_in_a_run() {
    const SECRETS: [(&str, &str); 7] = [
        ("HF_TOKEN", "hf_plantedplanted1"),
        ("SLURM_JWT", "eyJplanted.planted2"),
        ("AWS_SECRET_ACCESS_KEY", "planted3/planted+planted"),
        ("WANDB_API_KEY", "planted4planted"),
        ("NCCL_PASSWORD", "planted5planted"),
        ("DB_CREDENTIALS", "planted6 \"planted\""),
        ("SESSION_COOKIE", "planted7=planted"),
    ];
    let lab = Lab::tiny();
    std::fs::create_dir(lab.path("external")).unwrap();
    // A program that prints all that it was given, and puts a secret into its refusal.
    lab.write(
        "external/leaky.sh",
        "env >&2\nread -r line\n\
         printf '%s\\n' '{\"type\":\"hello\",\"protocol\":1,\"name\":\"leaky\",\"version\":\"1\",\"plans\":true,\"scope\":\"pool\"}'\n\
         while read -r line; do id=${line#*\\\"id\\\":}; id=${id%%,*}; \
         echo \"{\\\"id\\\":$id,\\\"error\\\":\\\"no plan for $HF_TOKEN at $WANDB_API_KEY\\\"}\"; done\n",
    );
    lab.write("external/leaky.toml", "name = \"leaky\"\ncommand = [\"sh\", \"leaky.sh\"]\n");
    let mut command = lab.command();
    command.args(["run", "tiny.toml", "--out", "study", "--set", "systems.names=[\"ulysses\",\"leaky\"]"]);
    command.args(["--set", "description=\"hf_plantedplanted1\""]);
    command.envs(SECRETS).env("NCCL_DEBUG", "INFO").env("NCCL_CONF_FILE", "/etc/planted4planted/nccl.conf");
    command.env("SLURM_SUBMIT_DIR", "/home/planted8").env("SLURM_JOB_USER", "planted9");
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(21), "{}", String::from_utf8_lossy(&output.stderr));
    let run = lab.path("study/run/tiny");
    let manifest = std::fs::read_to_string(run.join("manifest.json")).unwrap();
    assert!(manifest.contains("NCCL_DEBUG") && manifest.contains("/etc/[hidden]/nccl.conf"), "{manifest}");
    let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    assert!(events.contains("external_standard_error") && events.contains("no plan for [hidden] at [hidden]"));
    // What the user writes into an experiment is the user's; all else is looked through.
    let description = manifest.matches("hf_plantedplanted1").count();
    assert_eq!(description, manifest.matches("description = \\\"hf_plantedplanted1\\\"").count(), "{manifest}");
    for path in files(&lab.path("study")) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        for (name, value) in SECRETS {
            let allowed = value == "hf_plantedplanted1";
            assert!(allowed || !text.contains(value), "{name} in {}", path.display());
            assert!(!text.contains(name), "{name} in {}", path.display());
        }
        assert!(!text.contains("planted\\\""), "DB_CREDENTIALS in {}", path.display());
    }
    // What the program itself prints of other variables is the program's; what we record is on the list.
    assert!(!manifest.contains("planted8") && !manifest.contains("planted9"), "{manifest}");
}

#[test]
fn folders_are_their_owners_only() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out a/b/study").ok();
    lab.run("results export a/b/study --out c.tar.zst").ok();
    lab.run("results import c.tar.zst --out d/e").ok();
    lab.run("results import a/b/study --out f/g").ok();
    lab.run("report a/b/study --out h/report").ok();
    let made =
        "a a/b a/b/study a/b/study/run a/b/study/run/tiny a/b/study/data d d/e f f/g f/g/run/tiny h h/report/data";
    for folder in made.split(' ') {
        let mode = std::fs::metadata(lab.path(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
    // Pages and data of the report are among them.
    for run in ["a/b/study", "d/e", "f/g/run/tiny", "h/report"] {
        for path in files(&lab.path(run)) {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
    }
    assert_eq!(differing(&lab.shared_bytes("a/b/study/run"), &lab.shared_bytes("f/g/run")), [""; 0]);
    lab.run("report f/g").ok();
}

#[test]
fn folders_of_others_are_not_trusted() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    lab.write("secret", "content");
    let timings = lab.path("study/run/tiny/timings.json");
    std::fs::remove_file(&timings).unwrap();
    std::os::unix::fs::symlink(lab.path("secret"), &timings).unwrap();
    for source in ["study", "study/run/tiny"] {
        let message = lab.run(&format!("results import {source} --out far")).error(10);
        assert!(message.contains("timings.json") && message.contains("not a plain file"), "{message}");
    }
    std::fs::remove_file(&timings).unwrap();
    std::fs::copy(lab.path("secret"), &timings).unwrap();
    std::fs::copy(lab.path("study/run/tiny/samples.parquet"), lab.path("study/run/tiny/samples-2.parquet")).unwrap();
    assert!(lab.run("results import study --out far").error(10).contains("samples-2.parquet is not part of the run"));
    // A run that is a link to somewhere else is none.
    std::fs::create_dir_all(lab.path("linked/run")).unwrap();
    std::os::unix::fs::symlink(lab.path("study/run/tiny"), lab.path("linked/run/tiny")).unwrap();
    assert!(lab.run("results import linked --out far").error(10).contains("no run in this folder"));
    assert_eq!(lab.names(), ["linked", "secret", "study", "tiny.toml"]);
}

#[test]
fn hostile_names_stay_text_everywhere() {
    let lab = Lab::new();
    let long = "very-long-".repeat(40);
    let names = [
        "<script>alert(1)<",
        "\"><img src=x onerror=alert(1)>",
        "'; rm -rf ~; '",
        "{{ site.title }}{% raw %}",
        "line\nbreak\u{1b}[31m\ttab",
        "\u{202e}gnp.exe",
        &long,
    ];
    for (i, name) in names.iter().enumerate() {
        // A file's name has at most 255 bytes.
        let file = format!("{}.txt", &name[..name.len().min(200)]);
        lab.write(&file, "700\n300\n4000\n96\n2000\n".repeat(200));
        let quoted = serde_json::to_string(name).unwrap().replace("\\u001b", "\\u001B");
        let experiment = TINY
            .replace("\"Tiny\"", &quoted)
            .replace("\"Straggler latency of every system on short windows.\"", &quoted)
            .replace("\"paper-256k\"", &serde_json::to_string(&file).unwrap());
        lab.write("hostile.toml", experiment);
        let study = format!("study-{i}");
        let words = ["run", "hostile.toml", "--quick", "--out", &study, "--set", "plot.metrics=[\"straggler_mean\"]"];
        let done = lab.run_words(&words);
        assert_eq!(done.code, Some(0), "{name:?}: {}", done.stderr);
        for text in [&done.stdout, &done.stderr] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{name:?}: {text:?}");
        }
        let mut pages = 0;
        for path in files(&lab.path(&study)) {
            let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            if !matches!(kind, "html" | "svg") {
                continue;
            }
            pages += 1;
            let page = std::fs::read_to_string(&path).unwrap();
            let page_name = path.display();
            let markup = ["<script", "<img", "onerror=alert(1)>"];
            assert!(!markup.iter().any(|text| page.contains(text)), "{name:?} in {page_name}");
            assert!(!page.contains(['\u{1b}', '\u{202e}']), "{name:?} in {page_name}");
        }
        assert!(pages > 4, "{pages} pages");
        lab.run_words(&["results", "check", &study]).ok();
    }
}

/// A run that was killed when it had some cells and lacked others.
fn killed(lab: &Lab) -> Vec<PathBuf> {
    let many = TINY.replace("steps = 6", "steps = 200").replace("[plot]", "[sweep]\ndp = [1, 2]\n\n[plot]");
    lab.write("tiny.toml", many);
    let cells = lab.path("study/run/tiny/cells");
    let list = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&cells).into_iter().flatten().flatten().map(|e| e.path());
        let mut whole: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "cell")).collect();
        whole.sort();
        whole
    };
    for _ in 0..20 {
        let mut process = lab.command().args(["run", "tiny.toml", "--out", "study", "--threads", "1"]).spawn().unwrap();
        let started = Instant::now();
        while list().len() < 3 && started.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(2));
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let found = list();
        if (3..6).contains(&found.len()) {
            return found;
        }
        std::fs::remove_dir_all(lab.path("study")).unwrap();
    }
    panic!("no kill came between the third cell and the last");
}

#[test]
fn torn_and_copied_cells_are_named_by_check_report_and_resume() {
    let lab = Lab::tiny();
    let cells = killed(&lab);
    lab.run("run tiny.toml --out whole").ok();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let bytes = std::fs::read(&cells[0]).unwrap();
    std::fs::write(&cells[0], &bytes[..bytes.len() / 2]).unwrap();
    std::fs::copy(&cells[2], &cells[1]).unwrap();
    std::fs::copy(&cells[2], cells[2].with_file_name("copy.cell")).unwrap();
    let wrong = [
        format!("cells/{} is not a whole cell file: its checksum does not match", name(&cells[0])),
        format!("cells/{} is not a whole cell file: it holds cell", name(&cells[1])),
        "cells/copy.cell is the file of no planned cell".to_owned(),
    ];
    let check = lab.run("results check study");
    assert_eq!(check.code, Some(12));
    let report = lab.run("report study");
    assert_eq!(report.code, Some(20), "{}", report.stderr);
    for what in &wrong {
        assert!(check.stdout.contains(what), "{what}: {}", check.stdout);
        assert!(report.stderr.contains(what), "{what}: {}", report.stderr);
    }
    std::fs::remove_file(cells[2].with_file_name("copy.cell")).unwrap();
    let again = lab.run("run tiny.toml --out study");
    for path in &cells[..2] {
        let named = again.stderr.lines().any(|l| l.contains(&name(path)) && l.ends_with("the cell is computed again"));
        assert!(named, "{}: {}", path.display(), again.stderr);
    }
    again.ok();
    assert_eq!(differing(&lab.shared_bytes("study/run"), &lab.shared_bytes("whole/run")), [""; 0]);
}

#[test]
fn damaged_tables_are_named_by_report_and_compare() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out study").ok();
    lab.run("run tiny.toml --quick --out other").ok();
    for name in ["samples.parquet", "steps.parquet", "cells.json", "failures.json", "manifest.json", "checksums.json"] {
        let path = lab.path("study/run/tiny").join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        for line in ["report study", "compare other study"] {
            let message = lab.run(line).error(10);
            assert!(message.contains(name), "{line}: {name}: {message}");
        }
        std::fs::write(&path, whole).unwrap();
    }
    std::fs::copy(lab.path("study/run/tiny/samples.parquet"), lab.path("study/run/tiny/samples (1).parquet")).unwrap();
    let done = lab.run("report study");
    assert!(done.stderr.contains("samples (1).parquet is not part of the run"), "{}", done.stderr);
    done.ok();
}
