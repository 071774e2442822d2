//! `verify` and `plan --executed`: right systems pass, wrong ones end with exit code 12 and a message that says where.

use crate::common::{Done, Lab};

/// Standard error of a command that must have ended with this code.
#[track_caller]
fn failed(done: Done, code: i32) -> String {
    assert_eq!(done.code, Some(code), "{}{}", done.stdout, done.stderr);
    done.stderr
}

#[test]
fn right_systems_pass_with_one_row_each() {
    let lab = Lab::new();
    let rows = lab.run("verify --system libra --system ring-zigzag+vrsp --cases 4 --seed 3 --format json").json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, name) in rows.iter().zip(["libra", "ring-zigzag+vrsp"]) {
        assert_eq!((&row["system"], &row["verdict"], &row["checker"]), (&name.into(), &"ok".into(), &"accepts".into()));
        assert_eq!((&row["cases"], &row["refused"]), (&4.into(), &0.into()));
        let error = row["worst_error"].as_f64().unwrap();
        assert!(error > 0.0 && error <= row["tolerance"].as_f64().unwrap(), "{row}");
        assert!(row["load_over_bound"].as_f64().unwrap() <= 1.0, "{row}");
    }
    let again = "verify --system libra --cases 3 --seed 3 --format json";
    assert_eq!(lab.run(again).ok(), lab.run(again).ok());
    let table = lab.run("verify --system ulysses --cases 1").ok();
    assert!(table.contains("worst_error") && table.contains("ok"), "{table}");
}

#[test]
fn backends_can_be_chosen() {
    let lab = Lab::new();
    let run = |backends: &str| lab.run(&format!("verify --system ulysses --cases 2 --format json {backends}")).json();
    let (both, cpu, sim) = (run(""), run("--backend cpu"), run("--backend sim"));
    assert_eq!(both, run("--backend all"));
    assert_eq!(both, run("--backend sim --backend cpu"));
    assert_eq!(both, cpu);
    assert_eq!((&sim[0]["verdict"], &sim[0]["cases"]), (&"ok".into(), &2.into()));
    assert!(sim[0]["worst_error"].is_null() && sim[0]["of"].is_null() && sim[0]["plans"] == cpu[0]["plans"], "{sim}");
    assert!(failed(lab.run("verify --backend gpu"), 2).contains("possible values: cpu, sim, cuda, all"));
}

#[test]
fn unknown_systems_are_usage_errors() {
    let lab = Lab::new();
    assert!(failed(lab.run("verify --system ulyses"), 2).contains("did you mean ulysses"));
    assert!(failed(lab.run("verify --cases 0"), 2).contains("--cases"));
    assert!(failed(lab.run("verify --case 5 --seed 1"), 2).contains("--seed"));
}

/// A lab with a program `name` that answers every request with its number and `answer`, which follows it in the JSON object.
#[cfg(unix)]
fn lab_with(name: &str, answer: &str) -> Lab {
    let lab = Lab::new();
    std::fs::create_dir(lab.path("external")).unwrap();
    let hello =
        format!(r#"{{"type":"hello","protocol":1,"name":"{name}","version":"1","plans":true,"scope":"sequence"}}"#);
    let script = format!(
        "read -r line\nprintf '%s\\n' '{hello}'\nwhile read -r line; do\nid=${{line#*\\\"id\\\":}}; id=${{id%%,*}}\n\
         printf '{{\"id\":%s,%s}}\\n' \"$id\" '{answer}'\ndone\n"
    );
    lab.write(&format!("external/{name}.sh"), script);
    let manifest = format!("name = \"{name}\"\ncommand = [\"sh\", \"{name}.sh\"]\nsummary = \"of a test\"\n");
    lab.write(&format!("external/{name}.toml"), manifest);
    lab
}

#[cfg(unix)]
#[test]
fn a_wrong_program_fails_with_the_smallest_case_found() {
    // Assigns nobody: rows are left out.
    let lab = lab_with("lazy", r#""assignment":{"blocks":[]}"#);
    let done = lab.run("verify --system lazy --cases 2");
    assert!(done.stdout.contains("failed"), "{}", done.stdout);
    let message = failed(done, 12);
    for part in
        ["lazy", "smallest case found", "verification failed for lazy", "again: skewbench verify --system lazy --case"]
    {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[cfg(unix)]
#[test]
fn a_program_that_refuses_its_defaults_fails_with_its_reason() {
    let lab = lab_with("shy", r#""error":"not today""#);
    let done = lab.run("verify --system shy --cases 2 --format json");
    assert!(done.stdout.contains("\"refused\": 2") && done.stdout.contains("\"failed\""), "{}", done.stdout);
    let message = failed(done, 12);
    for part in ["shy", "not today", "default options", "verification failed for shy"] {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn a_wave_runs_on_the_cpu() {
    let lab = Lab::new();
    let small = "--workload paper-256k --window 192 --layout dp=2,cp=2 --option block=64";
    let table = lab.run(&format!("plan --system libra {small} --executed")).ok();
    assert!(table.contains("executed on the CPU: worst error"), "{table}");
    let trace = lab.run(&format!("plan --system libra {small} --executed --format perfetto")).json();
    assert_eq!(trace["otherData"]["clock"], "executed on the CPU, wall clock");
    let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X");
    assert!(slices.count() > 8);
    let large = lab.run("plan --system ulysses --workload paper-256k --layout cp=8 --executed").error(2);
    assert!(large.contains("choose a smaller --window"), "{large}");
}
