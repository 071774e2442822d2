//! Programs that crash, hang, flood and lie about themselves.

use std::path::Path;

use crate::{ANSWER, HELLO, Lab, contains};

#[test]
fn crashes_name_program_status_and_last_words() {
    contains(&Lab::running("echo no licence >&2; exit 3").reason(), &["exit status: 3 instead", "ends: no licence"]);
    let crash = Lab::serving(HELLO, "echo first >&2; echo 'Error: oops' >&2; exit 1");
    contains(&crash.reason(), &["ended with exit status: 1", "its standard error ends: Error: oops"]);
    assert_eq!(crash.plan().1.standard_error[0].text, "first\nError: oops\n");
    contains(&Lab::serving(HELLO, "kill -9 $$").reason(), &["signal: 9"]);
    contains(&Lab::running(&format!("read -r l; echo '{HELLO}'; exit 0")).reason(), &["exit status: 0"]);
    contains(&Lab::serving(HELLO, "printf '{\"id\":1'; exit 0").reason(), &["exit status: 0", "has no end"]);
}

#[test]
fn a_program_that_does_not_exist() {
    let lab = Lab::serving(HELLO, ANSWER);
    lab.write("script.toml", "name = \"script\"\ncommand = [\"./no-such-program\"]\n");
    let message = lab.plan().0.unwrap_err();
    contains(&message, &["no-such-program", "cannot be started", "No such file"]);
}

#[test]
fn hangs_end_at_the_time_limit_with_the_whole_group() {
    contains(&Lab::running("sleep 1000").hasty().reason(), &["did not say hello within 2 s"]);
    let lab = Lab::serving(HELLO, "sleep 1000 & echo $! > pid; wait").hasty();
    contains(&lab.reason(), &["did not plan within 1 s"]);
    assert!(is_gone(&lab.folder.path().join("pid")), "the child of a killed program lives on");
    contains(
        &Lab::serving(HELLO, "printf '{\"id\"'; sleep 1000").hasty().reason(),
        &["did not plan within 1 s", "has no end"],
    );
    contains(&Lab::serving(HELLO, "while :; do echo flood >&2; done").hasty().reason(), &["did not plan within 1 s"]);
}

/// True when the process in a file of its number has ended; whether anyone has waited for it is the system's matter.
fn is_gone(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).unwrap();
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "))
    })
}

#[test]
fn a_child_that_holds_the_pipe_does_not_hide_the_end() {
    let lab = Lab::serving(HELLO, "sleep 1000 & echo $! > pid; exit 4");
    lab.manifest("timeout_s = 600\n");
    contains(&lab.reason(), &["ended with exit status: 4"]);
    assert!(is_gone(&lab.folder.path().join("pid")));
}

#[test]
fn closed_pipes() {
    contains(&Lab::serving(HELLO, "exec >&-; sleep 1000").reason(), &["closed its standard output"]);
}

#[test]
fn garbage_names_what_was_printed() {
    let message = Lab::serving(HELLO, "echo 'hello world'").reason();
    contains(&message, &["not a valid answer to plan", "it printed: hello world"]);
    contains(&Lab::serving(HELLO, "printf 'a\\001\\377\\n'").reason(), &["it printed: a\\u{1}\u{fffd}"]);
    contains(&Lab::serving(HELLO, "echo").reason(), &["not a valid answer to plan"]);
    contains(&Lab::serving(HELLO, "echo '{\"id\":99}'").reason(), &["answered request 99, the question was 1"]);
    contains(&Lab::serving(HELLO, "echo '{\"id\":1}'").reason(), &["neither or both of assignment and plan"]);
    contains(&Lab::serving(HELLO, "echo '{\"id\":1,\"waves\":[]}'").reason(), &["neither or both"]);
    contains(&Lab::serving(HELLO, "echo '{\"id\":1,\"plans\":1}'").reason(), &["unknown field `plans`"]);
    contains(
        &Lab::serving(HELLO, "printf '%s\\n' '{\"id\":1,\"error\":\"too\\nlong\"}'").reason(),
        &["refused: too\\nlong"],
    );
    let deep = "head -c 100000 /dev/zero | tr '\\0' '['; echo";
    contains(&Lab::serving(HELLO, deep).reason(), &["not a valid answer to plan"]);
}

#[test]
fn lines_are_bounded() {
    let lab = Lab::serving(HELLO, "head -c 70000000 /dev/zero | tr '\\0' x; echo");
    contains(&lab.reason(), &["a line longer than 67108864 bytes"]);
}

#[test]
fn wrong_hellos() {
    for (hello, part) in [
        ("{\"type\":\"hello\",\"protocol\":2,\"title\":\"x\"}", "speaks protocol 2, this skewbench speaks 1"),
        ("{\"type\":\"hello\"}", "it names no protocol"),
        ("{\"protocol\":1}", "missing field `type`"),
        ("usage: script", "not a valid answer to hello"),
        ("{\"type\":\"hello\",\"protocol\":1,\"name\":\"s\",\"version\":\"1\"}", "neither places nor plans"),
        ("{\"type\":\"hello\",\"protocol\":1,\"name\":\"\",\"version\":\"1\",\"plans\":true}", "the name must have"),
        (
            "{\"type\":\"hello\",\"protocol\":1,\"name\":\"s\",\"version\":\"1\",\"plans\":true,\"load_bound\":0.5}",
            "a load bound of 0.5",
        ),
        (
            "{\"type\":\"hello\",\"protocol\":1,\"name\":\"s\",\"version\":\"1\",\"plans\":true,\"options\":[{\"name\":\"pool\",\"kind\":\"flag\",\"default\":true}]}",
            "one that every system has",
        ),
        (
            "{\"type\":\"hello\",\"protocol\":1,\"name\":\"s\",\"version\":\"1\",\"plans\":true,\"options\":[{\"name\":\"n\",\"kind\":\"integer\",\"default\":9,\"min\":1,\"max\":8}]}",
            "the default 9 is not accepted",
        ),
    ] {
        contains(&Lab::serving(hello, ANSWER).reason(), &[part]);
    }
    let moody = Lab::running(&format!(
        "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; read -r l; echo '{}' | sed \"s/VERSION/$n/\"; cat > /dev/null",
        HELLO.replace("\"1\"", "\"VERSION\"")
    ));
    contains(&moody.reason(), &["something else about itself each time"]);
}

#[test]
fn extra_output_is_refused_even_after_the_last_answer() {
    for body in [format!("{ANSWER}\necho done"), format!("{ANSWER}\nsleep 0.1\nprintf more")] {
        let (plan, ledger) = Lab::serving(HELLO, &body).plan();
        let message = plan.err().or(ledger.complaint).expect("extra output passed");
        contains(&message, &["printed what nobody asked for", "external system script"]);
    }
}

#[test]
fn a_bad_end_is_a_complaint() {
    let end = |last: &str| {
        let lab = Lab::serving(HELLO, ANSWER);
        lab.manifest("hello_timeout_s = 2\n");
        let script = std::fs::read_to_string(lab.folder.path().join("script.sh")).unwrap();
        lab.write("script.sh", &format!("{script}\n{last}\n"));
        let (plan, ledger) = lab.plan();
        plan.unwrap();
        ledger.complaint
    };
    assert_eq!(end("exit 0"), None);
    contains(&end("echo bye >&2; exit 7").unwrap(), &["exit status: 7 once it had no more to do", "ends: bye"]);
    contains(&end("sleep 1000").unwrap(), &["did not end within 2 s"]);
    contains(&end("echo late").unwrap(), &["printed what nobody asked for: late"]);
}

#[test]
fn slow_readers_and_those_that_never_read() {
    let documents = vec![1; 100_000];
    let body = r#"printf '{"id":%s,"assignment":{"blocks":[{"seq":0,"start":0,"end":100000,"workers":[1]}]}}\n' "$id""#;
    let slow = Lab::serving(HELLO, body);
    let script = std::fs::read_to_string(slow.folder.path().join("script.sh")).unwrap();
    slow.write("script.sh", &script.replacen("while", "sleep 0.2\nwhile", 1));
    slow.plan_of(&documents, "script").0.unwrap();
    let never = Lab::running(&format!("read -r l; echo '{HELLO}'; sleep 1000")).hasty();
    contains(&never.plan_of(&documents, "script").0.unwrap_err(), &["did not plan within 1 s"]);
    let hasty = Lab::running(&format!("read -r l; echo '{HELLO}'; echo '{{\"id\":1}}'; sleep 1000")).hasty();
    let message = hasty.plan_of(&documents, "script").0.unwrap_err();
    contains(&message, &["printed what nobody asked for"]);
}

#[test]
fn a_flood_of_standard_error_is_kept_in_bounds() {
    let body = format!("echo begin >&2; head -c 3000000 /dev/zero | tr '\\0' e >&2; echo end >&2\n{ANSWER}");
    let lab = Lab::serving(HELLO, &body);
    let (plan, ledger) = lab.plan();
    plan.unwrap();
    let kept = ledger.standard_error.iter().find(|kept| !kept.text.is_empty()).unwrap();
    assert!(kept.text.starts_with("begin\n") && kept.text.len() < 70_000);
    assert!(kept.dropped_bytes > 2_900_000 && kept.text.ends_with("end\n"), "{}", kept.dropped_bytes);
}
