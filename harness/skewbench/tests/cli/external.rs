//! Programs as systems: by name and path, in experiments, figures, plans and comparisons, good and hostile.
#![cfg(unix)]

use std::io::Write;

use serde_json::Value;

use crate::common::{Lab, TINY, differing, repository};

/// Says hello, then hands every request as `$line` to a body.
fn serving(body: &str) -> String {
    let hello = r#"{"type":"hello","protocol":1,"name":"whole","version":"2.1","plans":true,"scope":"pool"}"#;
    format!("read -r line\nprintf '%s\\n' '{hello}'\nwhile read -r line; do\n{body}\ndone\n")
}

/// Every packed sequence whole on the first rank of its group.
const WHOLE: &str = r#"printf '%s\n' "$line" | awk '{
  match($0, /"id":[0-9]+/); id = substr($0, RSTART + 5, RLENGTH - 5)
  match($0, /"cp":[0-9]+/); cp = substr($0, RSTART + 5, RLENGTH - 5)
  rest = substr($0, index($0, "\"sequences\":[[") + 14)
  n = split(substr(rest, 1, index(rest, "]]") - 1), sequences, "],\\[")
  for (s = 1; s <= n; s++) {
    m = split(sequences[s], lengths, ","); rows = 0
    for (i = 1; i <= m; i++) rows += lengths[i]
    out = out (s > 1 ? "," : "") "{\"seq\":" s - 1 ",\"start\":0,\"end\":" rows ",\"workers\":[" (s - 1) * cp "]}"
  }
  printf "{\"id\":%s,\"assignment\":{\"blocks\":[%s]}}\n", id, out
}'"#;

/// A lab with the tiny experiment and `external/whole.toml`, whose program serves with `body`.
fn lab(body: &str) -> Lab {
    let lab = Lab::tiny();
    std::fs::create_dir(lab.path("external")).unwrap();
    lab.write("external/whole.sh", serving(body));
    let manifest = "name = \"whole\"\ncommand = [\"sh\", \"whole.sh\"]\nsummary = \"all on one rank\"\n";
    lab.write("external/whole.toml", manifest);
    lab
}

const WITH_WHOLE: &str = "--set systems.names=[\"ulysses\",\"whole\",\"libra\"]";

fn rows<'a>(rows: &'a [Value], system: &str) -> Vec<&'a Value> {
    rows.iter().filter(|r| r["system"] == system).collect()
}

fn events(lab: &Lab, study: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(lab.path(study).join("run/tiny/events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_program_runs_by_name_path_and_pair() {
    let lab = lab(&format!("echo working >&2; {WHOLE}"));
    let set = "--set systems.names=[\"whole\",\"whole+vrsp\",\"external/whole.toml\",\"ulysses\"]";
    lab.run(&format!("run tiny.toml --out study {set}")).ok();
    let summary = lab.summary("study");
    for system in ["whole", "whole+vrsp", "ulysses"] {
        let mine = rows(&summary, system);
        assert_eq!(mine.len(), rows(&summary, "ulysses").len(), "{system}");
        assert!(mine.iter().all(|r| r["status"] == "ok" && r["value"].as_f64().unwrap() > 0.0), "{system}");
    }
    let page = std::fs::read_to_string(lab.path("study/system-whole.html")).unwrap();
    assert!(page.contains("external program whole 2.1, files ") && page.contains("all on one rank"));
    let manifest = std::fs::read_to_string(lab.path("study/run/tiny/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let external = &manifest["inputs"]["externals"][0];
    assert_eq!((&external["name"], &external["hello"]["version"]), (&"whole".into(), &"2.1".into()));
    let timings = std::fs::read_to_string(lab.path("study/run/tiny/timings.json")).unwrap();
    let timings: Value = serde_json::from_str(&timings).unwrap();
    let planned = timings["cells"].as_object().unwrap().values().filter(|c| c["external_plans"].as_f64() > Some(0.0));
    assert_eq!(planned.filter(|c| c["external_plan_s"].as_f64() > Some(0.0)).count(), 2);
    let kept = events(&lab, "study");
    let kept = kept.iter().find(|e| e["event"] == "external_standard_error").unwrap();
    assert!(kept["system"] == "whole" && kept["text"].as_str().unwrap().starts_with("working\n"));
    lab.run("results check study").ok();

    let figure = "reproduce --quick --figure fig13 --system external/whole.toml --out figure";
    lab.run(figure).ok();
    assert!(rows(&lab.summary("figure"), "whole").iter().any(|r| r["status"] == "ok"));
    let plan = lab.run("plan --system whole --workload paper-256k --window 8192 --layout dp=2,cp=2");
    assert!(plan.stderr.contains("whole: working"), "{}", plan.stderr);
    assert!(plan.ok().contains("whole: 4 ranks, "));

    // Results are read without the program.
    std::fs::remove_dir_all(lab.path("external")).unwrap();
    let table = lab.run("compare study study").ok();
    assert!(table.contains("whole+vrsp"), "{table}");
    lab.run("report study --out again").ok();
}

#[test]
fn a_changed_program_is_another_cell() {
    let lab = lab(WHOLE);
    lab.run(&format!("run tiny.toml --out study {WITH_WHOLE}")).ok();
    let again = lab.run(&format!("run tiny.toml --out study {WITH_WHOLE}"));
    assert!(again.stderr.contains("0 cells computed, 3 reused"), "{}", again.stderr);
    lab.write("external/whole.sh", format!("{}# another\n", serving(WHOLE)));
    let message = lab.run(&format!("run tiny.toml --out study {WITH_WHOLE}")).error(10);
    assert!(message.contains("study"), "{message}");
    lab.run(&format!("run tiny.toml --out study {WITH_WHOLE} --force")).ok();
}

#[test]
fn hostile_programs_are_failed_rows_that_say_why() {
    let id = r#"id=${line#*\"id\":}; id=${id%%,*}; "#;
    let plan = r#"{"planner":"p","shape":{"q_heads":32,"kv_heads":4,"head_dim":128},"sequences":[],"ranks":4,"entry":[],"exit":[],"forward":{"tiles":[],"moves":[],"calls":[],"ranks":[]},"backward":{"tiles":[],"moves":[],"calls":[],"ranks":[]},"accounting":{"padding_tokens":0,"idle_ranks":0,"replicated_kv_heads":0,"largest_tile":0}}"#;
    for (body, parts) in [
        (
            "echo Traceback >&2; exit 1".to_owned(),
            vec!["ended with exit status: 1", "its standard error ends: Traceback"],
        ),
        ("sleep 1000".to_owned(), vec!["did not plan within 2 s"]),
        ("echo hello".to_owned(), vec!["not a valid answer to plan", "it printed: hello"]),
        // Seen before the next request, or in the place of its answer.
        (format!("{WHOLE}\necho done"), vec!["printed", ": done"]),
        (format!("{id}echo \"{{\\\"id\\\":$id,\\\"assignment\\\":{{\\\"blocks\\\":[]}}}}\""), vec!["must rise to its"]),
        (
            format!("{id}printf '{{\"id\":%s,\"plan\":%s}}\\n' \"$id\" '{plan}'"),
            vec!["planned 0 sequences; the domain has 2"],
        ),
    ] {
        let lab = lab(&body);
        if body == "sleep 1000" {
            let hasty = "name = \"whole\"\ncommand = [\"sh\", \"whole.sh\"]\ntimeout_s = 2\n";
            lab.write("external/whole.toml", hasty);
        }
        let done = lab.run(&format!("run tiny.toml --out study {WITH_WHOLE} --set check=false"));
        assert_eq!(done.code, Some(21), "{body}: {}", done.stderr);
        let summary = lab.summary("study");
        for system in ["ulysses", "libra"] {
            assert!(rows(&summary, system).iter().all(|r| r["status"] == "ok"), "{body}: {system}");
        }
        let failed = rows(&summary, "whole");
        assert_eq!(failed.len(), rows(&summary, "libra").len(), "{body}");
        for row in failed {
            assert!(row["status"] == "failed" && row["value"].is_null(), "{body}: {row}");
            let reason = row["reason"].as_str().unwrap();
            assert!(reason.contains("external system whole (sh whole.sh) "), "{body}: {reason}");
            assert!(parts.iter().all(|part| reason.contains(part)), "{body}: {reason}");
        }
        lab.run("results check study").ok();
    }
}

#[test]
fn a_program_that_says_no_hello_fails_its_cells_alone() {
    let lab = lab(WHOLE);
    lab.write("external/whole.sh", "echo cannot import torch >&2; exit 1");
    let done = lab.run(&format!("run tiny.toml --out study {WITH_WHOLE} --set options.whole.block=7"));
    assert_eq!(done.code, Some(21), "{}", done.stderr);
    let summary = lab.summary("study");
    assert!(rows(&summary, "libra").iter().all(|r| r["status"] == "ok"));
    let reason = rows(&summary, "whole")[0]["reason"].as_str().unwrap();
    assert!(reason.contains("exit status: 1") && reason.ends_with("cannot import torch"), "{reason}");
}

#[test]
fn plans_are_checked_even_where_checking_is_off() {
    // A plan of the right domain that computes half of its tiles twice and the rest never.
    let lab = lab("cat plan.json; echo");
    let text = lab
        .run("plan --system ulysses --workload paper-256k --window 8192 --layout cp=2 --gbs 1 --seed 2 --format json")
        .ok();
    let mut plan: Value = serde_json::from_str(&text).unwrap();
    let tiles = plan["forward"]["tiles"].as_array_mut().unwrap();
    assert!(tiles.len() > 1, "a window of several documents");
    let first = tiles[0].clone();
    tiles.fill(first);
    lab.write("external/plan.json", format!("{{\"id\":1,\"plan\":{plan}}}"));
    let one = "--seed 2 --set layout.dp=1 --set gbs=1 --set steps=1 --set check=false --set systems.names=[\"whole\"]";
    let done = lab.run(&format!("run tiny.toml --out study {one}"));
    assert_eq!(done.code, Some(20), "{}", done.stderr);
    let summary = lab.summary("study");
    let reason = summary[0]["reason"].as_str().unwrap();
    assert!(reason.contains("plan of whole, forward: "), "{reason}");
}

#[test]
fn an_interrupt_ends_a_program_that_hangs() {
    let lab = lab("sleep 1000 & echo $! > pid.new; mv pid.new pid; wait");
    lab.write("external/whole.toml", "name = \"whole\"\ncommand = [\"sh\", \"whole.sh\"]\ntimeout_s = 600\n");
    let mut command = lab.command();
    let mut process =
        command.args(["run", "tiny.toml", "--out", "study", "--set", "systems.names=[\"whole\"]"]).spawn().unwrap();
    while !lab.exists("external/pid") {
        assert_eq!(process.try_wait().unwrap(), None, "the run ended before it could be interrupted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = std::process::Command::new("sh").args(["-c", &format!("kill -INT {}", process.id())]).status().unwrap();
    assert!(kill.success());
    assert_eq!(process.wait().unwrap().code(), Some(130));
    let pid = std::fs::read_to_string(lab.path("external/pid")).unwrap();
    let stat = std::path::Path::new("/proc").join(pid.trim()).join("stat");
    let gone = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "))
    });
    assert!(gone, "the child of the program lives on");
}

#[test]
fn names_and_manifests_are_explained() {
    let lab = lab(WHOLE);
    let plan = "--workload paper-256k --window 8192";
    let message = lab.run(&format!("plan --system whol {plan}")).error(2);
    assert!(message.contains("unknown system whol, did you mean whole?"), "{message}");
    let message = lab.run(&format!("plan --system ulysses+whole {plan}")).error(2);
    assert!(message.contains("external system whole does not place; name it as a planner"), "{message}");
    let message = lab.run(&format!("plan --system whole {plan} --option block=1")).error(10);
    assert!(message.contains("whole has no option block"), "{message}");
    let message = lab.run(&format!("plan --system nowhere/whole.toml {plan}")).error(10);
    assert!(message.contains("nowhere/whole.toml"), "{message}");
    lab.write("external/whole.toml", "name = \"whole\"\ncomand = [\"sh\"]\n");
    let message = lab.run(&format!("plan --system whole {plan}")).error(10);
    assert!(message.contains("external/whole.toml:2") && message.contains("`command`"), "{message}");
    let listed = lab.run("systems --format json").json();
    let whole = listed.as_array().unwrap().iter().find(|s| s["name"] == "whole").unwrap();
    assert!(whole["summary"].as_str().unwrap().starts_with("cannot be used: "), "{whole}");
}

#[test]
fn the_shipped_example_is_a_system_like_any_other() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        // Past the capture of the test harness: a skip must be seen.
        writeln!(std::io::stderr(), "SKIPPED: the Python example: python3 is not installed").unwrap();
        return;
    }
    let lab = Lab::new();
    std::fs::create_dir(lab.path("external")).unwrap();
    for file in ["external/greedy-blocks.toml", "external/greedy_blocks.py"] {
        lab.write(file, repository(file));
    }
    lab.write("tiny.toml", TINY.replace("\"libra\"", "\"libra\", \"greedy-blocks\", \"greedy-blocks+vrsp\""));
    let run = |threads: u32, out: &str| {
        let set = "--set options.greedy-blocks.block=512";
        lab.run(&format!("run tiny.toml {set} --threads {threads} --out {out}")).ok();
        lab.shared_bytes(out)
    };
    assert_eq!(differing(&run(1, "one"), &run(4, "four")), [""; 0]);
    let summary = lab.summary("one");
    for system in ["greedy-blocks", "greedy-blocks+vrsp"] {
        assert!(rows(&summary, system).iter().all(|r| r["status"] == "ok"), "{system}");
    }
    let table = lab.run("compare one four").ok();
    assert!(table.contains("greedy-blocks+vrsp"), "{table}");
    lab.run("reproduce --quick --figure fig14 --system greedy-blocks --out figure").ok();
    assert!(rows(&lab.summary("figure"), "greedy-blocks").iter().all(|r| r["status"] == "ok"));
}
