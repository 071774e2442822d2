//! Programs good and hostile, written in the shell: what a system made of them does.
#![cfg(unix)]

use std::path::Path;

use serde_json::{Map, Value, json};
use skewbench_external::{Catalogue, Ledger};
use skewbench_plan::check::{Limits, check};
use skewbench_plan::{
    AttentionShape, Domain, FlopsCost, Layout, PackedSequence, Pass, PlaceContext, Plan, Scope, Step, SystemError,
};
use skewbench_systems::registry::{self, System};

const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 8 };
const HELLO: &str = r#"{"type":"hello","protocol":1,"name":"script","version":"1","plans":true,"scope":"pool"}"#;
/// One block of eight rows on rank 1.
const ANSWER: &str =
    r#"printf '{"id":%s,"assignment":{"blocks":[{"seq":0,"start":0,"end":8,"workers":[1]}]}}\n' "$id""#;

/// A folder with a manifest and its program.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    /// A program that runs `body` for every request, with its number in `$id` and the request in `$line`.
    fn serving(hello: &str, body: &str) -> Self {
        let id = r#"id=${line#*\"id\":}; id=${id%%,*}"#;
        Self::running(&format!("read -r line\nprintf '%s\\n' '{hello}'\nwhile read -r line; do\n{id}\n{body}\ndone\n"))
    }

    fn running(script: &str) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap() };
        lab.write("script.sh", script);
        lab.manifest("timeout_s = 1\nhello_timeout_s = 1\n");
        lab
    }

    fn manifest(&self, more: &str) {
        self.write("script.toml", &format!("name = \"script\"\ncommand = [\"sh\", \"script.sh\"]\n{more}"));
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::at(self.folder.path())
    }

    /// Plans eight tokens on two ranks, ends the system, and returns the plan or the reason with the ledger.
    fn plan(&self) -> (Result<Plan, String>, Ledger) {
        self.plan_of(&[5, 3], "script")
    }

    fn plan_of(&self, documents: &[u32], name: &str) -> (Result<Plan, String>, Ledger) {
        let catalogue = self.catalogue();
        let system = catalogue.system(name, &Map::new(), 7).unwrap();
        let plan = plan(&system, &[documents], 2).map_err(|e| e.to_string());
        drop(system);
        (plan, catalogue.take_ledger())
    }

    /// The reason for which there is no plan.
    #[track_caller]
    fn reason(&self) -> String {
        let message = self.plan().0.expect_err("a plan of a hostile program");
        assert!(message.contains("external system script (sh script.sh) "), "{message}");
        assert!(!message.contains('\n') && message.len() < 1000, "{message}");
        message
    }
}

fn plan(system: &System, sequences: &[&[u32]], cp: u32) -> Result<Plan, SystemError> {
    let sequences: Vec<PackedSequence> = sequences.iter().map(|s| PackedSequence::new(s.iter().copied())).collect();
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes = vec![0; sequences.len() * cp as usize];
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &cost, time_factors: &[] };
    system.planner().plan(&domain)
}

#[track_caller]
fn contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn a_good_program_plans_and_leaves_its_time_in_the_ledger() {
    let (plan, ledger) = Lab::serving(HELLO, ANSWER).plan();
    let plan = plan.unwrap();
    assert_eq!(plan.planner, "script");
    assert_eq!(plan.load(Pass::Forward), [0, (15 + 6) * 4]);
    check(&plan, &Limits::default()).unwrap();
    assert_eq!((ledger.plans, ledger.places, &ledger.complaint), (1, 0, &None));
    assert_eq!(ledger.timings().iter().map(|t| t.0).collect::<Vec<_>>(), ["external_plan_s", "external_plans"]);
}

#[test]
fn a_system_reuses_its_process_and_the_same_question_has_the_same_answer() {
    let lab = Lab::serving(HELLO, &format!("echo \"$id\" >> ids\n{ANSWER}"));
    let catalogue = lab.catalogue();
    let system = catalogue.system("script", &Map::new(), 7).unwrap();
    let plans: Vec<Plan> = (0..3).map(|_| plan(&system, &[&[5, 3]], 2).unwrap()).collect();
    assert!(plans.iter().all(|p| *p == plans[0]));
    assert_eq!(std::fs::read_to_string(lab.folder.path().join("ids")).unwrap(), "1\n2\n3\n");
    assert!(!system.planner().trusted() && system.planner().scope() == Scope::Pool);
}

#[test]
fn seed_options_and_domain_are_sent() {
    let hello = HELLO.replace(
        "\"plans\"",
        r#""options":[{"name":"block","kind":"integer","default":64,"min":1,"max":4096},{"name":"mode","kind":"choice","default":"a","words":["a","b"]},{"name":"slack","kind":"number","default":0.5,"min":0,"max":1},{"name":"deep","kind":"flag","default":false}],"plans""#,
    );
    let lab = Lab::serving(&hello, &format!("printf '%s' \"$line\" > request\n{ANSWER}"));
    lab.manifest("[options]\nslack = 0.25\nblock = 16\n");
    let catalogue = lab.catalogue();
    let given = json!({"block": 512, "deep": true}).as_object().cloned().unwrap();
    let system = catalogue.system("script", &given, 42).unwrap();
    plan(&system, &[&[5, 3]], 2).unwrap();
    let request: Value =
        serde_json::from_str(&std::fs::read_to_string(lab.folder.path().join("request")).unwrap()).unwrap();
    let wanted = json!({
        "type": "plan", "id": 1, "seed": 42, "sequences": [[5, 3]], "cp": 2, "ranks": 2,
        "shape": {"q_heads": 4, "kv_heads": 2, "head_dim": 8}, "nodes": [0, 0], "time_factors": [],
        "options": {"block": 512, "mode": "a", "slack": 0.25, "deep": true},
    });
    assert_eq!(request, wanted);
    for (option, part) in [
        (json!({"block": 0}), "block = 0: use a whole number from 1 to 4096"),
        (json!({"mode": "c"}), "use one of a, b"),
        (json!({"blok": 1}), "script has no option blok, did you mean block?"),
    ] {
        let message = catalogue.system("script", option.as_object().unwrap(), 0).unwrap_err().to_string();
        contains(&message, &[part]);
    }
}

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
    contains(&Lab::running("sleep 1000").reason(), &["did not say hello within 1 s"]);
    let lab = Lab::serving(HELLO, "sleep 1000 & echo $! > pid; wait");
    contains(&lab.reason(), &["did not plan within 1 s"]);
    assert!(is_gone(&lab.folder.path().join("pid")), "the child of a killed program lives on");
    contains(&Lab::serving(HELLO, "printf '{\"id\"'; sleep 1000").reason(), &["did not plan within 1 s", "has no end"]);
    contains(&Lab::serving(HELLO, "while :; do echo flood >&2; done").reason(), &["did not plan within 1 s"]);
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
    lab.manifest("timeout_s = 120\n");
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
        let script = std::fs::read_to_string(lab.folder.path().join("script.sh")).unwrap();
        lab.write("script.sh", &format!("{script}\n{last}\n"));
        let (plan, ledger) = lab.plan();
        plan.unwrap();
        ledger.complaint
    };
    assert_eq!(end("exit 0"), None);
    contains(&end("echo bye >&2; exit 7").unwrap(), &["exit status: 7 once it had no more to do", "ends: bye"]);
    contains(&end("sleep 1000").unwrap(), &["did not end within 1 s"]);
    contains(&end("echo late").unwrap(), &["printed what nobody asked for: late"]);
}

#[test]
fn a_flood_of_standard_error_is_kept_in_bounds() {
    let body = format!("echo begin >&2; head -c 3000000 /dev/zero | tr '\\0' e >&2; echo end >&2\n{ANSWER}");
    let lab = Lab::serving(HELLO, &body);
    lab.manifest("timeout_s = 60\n");
    let (plan, ledger) = lab.plan();
    plan.unwrap();
    let kept = ledger.standard_error.iter().find(|kept| !kept.text.is_empty()).unwrap();
    assert!(kept.text.starts_with("begin\n") && kept.text.len() < 70_000);
    assert!(kept.dropped_bytes > 2_900_000 && kept.text.ends_with("end\n"), "{}", kept.dropped_bytes);
}

#[test]
fn slow_readers_and_those_that_never_read() {
    let documents = vec![1; 100_000];
    let body = r#"printf '{"id":%s,"assignment":{"blocks":[{"seq":0,"start":0,"end":100000,"workers":[1]}]}}\n' "$id""#;
    let slow = Lab::serving(HELLO, body);
    let script = std::fs::read_to_string(slow.folder.path().join("script.sh")).unwrap();
    slow.write("script.sh", &script.replacen("while", "sleep 0.2\nwhile", 1));
    slow.manifest("timeout_s = 60\n");
    slow.plan_of(&documents, "script").0.unwrap();
    let never = Lab::running(&format!("read -r l; echo '{HELLO}'; sleep 1000"));
    contains(&never.plan_of(&documents, "script").0.unwrap_err(), &["did not plan within 1 s"]);
    let hasty = Lab::running(&format!("read -r l; echo '{HELLO}'; echo '{{\"id\":1}}'; sleep 1000"));
    let message = hasty.plan_of(&documents, "script").0.unwrap_err();
    contains(&message, &["printed what nobody asked for"]);
}

#[test]
fn assignments_that_do_not_fit() {
    for (assignment, part) in [
        (r#"{"blocks":[]}"#, "blocks of packed sequence 0 must rise to its 8 tokens and end there; they end at 0"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":4,"workers":[0]}]}"#, "they end at 4"),
        (
            r#"{"blocks":[{"seq":0,"start":5,"end":8,"workers":[0]},{"seq":0,"start":0,"end":4,"workers":[0]}]}"#,
            "rows 5..8 of packed sequence 0 and nobody rows 4..5",
        ),
        (
            r#"{"blocks":[{"seq":0,"start":0,"end":5,"workers":[0]},{"seq":0,"start":4,"end":8,"workers":[0]}]}"#,
            "rows 4..8 of packed sequence 0 although rows to 5 are assigned already",
        ),
        (r#"{"blocks":[{"seq":0,"start":0,"end":9,"workers":[0]}]}"#, "they end at 9"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":8,"workers":[2]}]}"#, "worker 2 does not exist"),
        (r#"{"blocks":[{"seq":1,"start":0,"end":8,"workers":[0]}]}"#, "the domain has sequences 0 to 0"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":8,"workers":[]}]}"#, "1 head shards need one each"),
        (r#"{"head_shards":5,"blocks":[{"seq":0,"start":0,"end":8,"workers":[0,0,0,0,0]}]}"#, "5 head shards"),
        (r#"{"pieces":0,"blocks":[{"seq":0,"start":0,"end":8,"workers":[0]}]}"#, "0 head pieces"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":4294967296,"workers":[0]}]}"#, "4294967296"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":-1,"workers":[0]}]}"#, "-1"),
        (r#"{"blocks":[{"seq":0,"start":0,"end":1e999,"workers":[0]}]}"#, "number out of range"),
    ] {
        let body = format!("echo '{{\"id\":1,\"assignment\":{assignment}}}'");
        contains(&Lab::serving(HELLO, &body).reason(), &[part]);
    }
}

/// A whole plan of the domain that [`Lab::plan`] asks for.
fn whole() -> Value {
    let system = registry::system("ulysses", &Map::new()).unwrap();
    serde_json::to_value(plan(&system, &[&[5, 3]], 2).unwrap()).unwrap()
}

fn answering(plan: &Value) -> Lab {
    let lab = Lab::serving(HELLO, "printf '{\"id\":%s,\"plan\":' \"$id\"; cat plan.json; echo '}'");
    lab.write("plan.json", &plan.to_string());
    lab
}

#[test]
fn whole_plans_are_taken_and_left_to_the_checker() {
    let plan = answering(&whole()).plan().0.unwrap();
    assert_eq!(plan.planner, "script");
    check(&plan, &Limits::default()).unwrap();

    let edits: [(&str, fn(&mut Value)); 5] = [
        ("a tile is dropped", |p| {
            let tiles = p["forward"]["tiles"].as_array_mut().unwrap();
            let first = tiles[0].clone();
            tiles.fill(first);
        }),
        ("rows outside", |p| p["forward"]["tiles"][0]["q"]["start"] = json!(7)),
        ("huge rows", |p| p["backward"]["tiles"][0]["k"]["len"] = json!(u32::MAX)),
        ("a rank outside", |p| p["forward"]["moves"][0]["to"] = json!(u32::MAX)),
        ("a span outside", |p| p["forward"]["calls"][0]["parts"][0]["moves"]["end"] = json!(u32::MAX)),
    ];
    for (what, edit) in edits {
        let mut wrong = whole();
        edit(&mut wrong);
        let plan = answering(&wrong).plan().0.unwrap();
        let error = check(&plan, &Limits::default()).expect_err(what).to_string();
        contains(&error, &["plan of script, "]);
    }
}

#[test]
fn whole_plans_of_another_domain_are_refused() {
    let edits: [(&str, fn(&mut Value)); 6] = [
        ("planned 4294967295 ranks; the domain has 2", |p| p["ranks"] = json!(u32::MAX)),
        ("planned heads", |p| p["shape"]["q_heads"] = json!(8)),
        ("other document bounds for packed sequence 0", |p| p["sequences"][0][1] = json!(4)),
        ("planned 0 sequences; the domain has 1", |p| p["sequences"] = json!([])),
        ("invalid value: integer `4294967296`", |p| p["ranks"] = json!(1u64 << 32)),
        ("missing field `forward`", |p| drop(p.as_object_mut().unwrap().remove("forward"))),
    ];
    for (part, edit) in edits {
        let mut wrong = whole();
        edit(&mut wrong);
        contains(&answering(&wrong).reason(), &[part]);
    }
}

fn place(system: &System) -> Result<Vec<Vec<u32>>, String> {
    let step = Step { index: 3, window: 8, sequences: (0..4).map(|i| PackedSequence::new([5 - i, 3 + i])).collect() };
    let cost = FlopsCost { flops_per_s: 4e14, bytes_per_s: 4e10 };
    let context = PlaceContext { layout: Layout::dp_cp(2, 2), pool: 2, seed: 9, shape: SHAPE, cost: &cost };
    let placed = system.placement().placer().place(&step, &context).map_err(|e| e.to_string())?;
    assert!(placed.preserved && placed.sequences == step.sequences && placed.pools == [0..2]);
    Ok(placed.waves.into_iter().map(|w| w.sequences).collect())
}

#[test]
fn programs_place_too() {
    let hello = HELLO.replace("\"plans\":true", "\"places\":true");
    let lab = Lab::serving(&hello, "printf '%s' \"$line\" > request; echo '{\"id\":1,\"waves\":[[3,0],[1,2]]}'");
    let catalogue = lab.catalogue();
    for name in ["script", "ulysses+script"] {
        let system = catalogue.system(name, &Map::new(), 1).unwrap();
        assert_eq!(place(&system).unwrap(), [[3, 0], [1, 2]], "{name}");
        let described = catalogue.describe(name).unwrap();
        assert_eq!((described.planner.as_str(), described.placement.as_str()), ("ulysses", "script"));
    }
    let request: Value =
        serde_json::from_str(&std::fs::read_to_string(lab.folder.path().join("request")).unwrap()).unwrap();
    assert_eq!(request["type"], "place");
    assert_eq!(request["sequences"], json!([[5, 3], [4, 4], [3, 5], [2, 6]]));
    assert_eq!((&request["pools"], &request["seed"], &request["window"]), (&json!([[0, 2]]), &json!(9), &json!(8)));
    let message = catalogue.admit("script+vrsp").unwrap_err().to_string();
    assert_eq!(message, "external system script does not plan; name it as a placement, for example ulysses+script");

    let wrong = Lab::serving(&hello, "echo '{\"id\":1,\"waves\":[[3,0],[1,1]]}'");
    let message = place(&wrong.catalogue().system("script", &Map::new(), 1).unwrap()).unwrap_err();
    contains(&message, &["external system script (sh script.sh) placed sequence 1 twice"]);
}

#[test]
fn names_pairs_and_paths() {
    let lab = Lab::serving(HELLO, ANSWER);
    let elsewhere = Catalogue::at("no-such-folder");
    let path = lab.folder.path().join("script.toml").display().to_string();
    assert_eq!(elsewhere.admit(&path).unwrap(), "script");
    assert_eq!(elsewhere.admit(&format!("{path}+vrsp")).unwrap(), "script+vrsp");
    assert_eq!(elsewhere.admit("script+sorted").unwrap(), "script+sorted");
    let message = elsewhere.admit(&format!("ulysses+{path}")).unwrap_err().to_string();
    contains(&message, &["does not place", "script+vrsp"]);
    assert_eq!(elsewhere.admit("libra").unwrap(), "libra");
    assert!(elsewhere.keys("libra").is_empty() && elsewhere.keys("script").len() == 1);
    let other = Lab::serving(HELLO, "exit 1");
    let message =
        elsewhere.admit(&other.folder.path().join("script.toml").display().to_string()).unwrap_err().to_string();
    contains(&message, &["another manifest of the name script"]);
    let message = lab.catalogue().admit("scrip").unwrap_err().to_string();
    contains(&message, &["unknown system scrip", "did you mean script?", "libra"]);

    // What a run recorded is described without the program, and not run.
    let records: Vec<_> = elsewhere.records("script");
    let recorded = Catalogue::recorded(serde_json::from_value(json!(records)).unwrap()).unwrap();
    assert_eq!(recorded.admit(&path).unwrap(), "script");
    assert_eq!(recorded.describe("script").unwrap().source, elsewhere.describe("script").unwrap().source);
    assert_eq!(recorded.keys("script"), elsewhere.keys("script"));
    let message = plan(&recorded.system("script", &Map::new(), 0).unwrap(), &[&[5, 3]], 2).unwrap_err().to_string();
    contains(&message, &["results of a run can be read without it"]);
}

#[test]
fn a_changed_program_has_another_key() {
    let lab = Lab::serving(HELLO, ANSWER);
    lab.write("table.txt", "1");
    lab.manifest("files = [\"table.txt\"]\n");
    let key = || lab.catalogue().keys("script").remove(0);
    let first = key();
    assert_eq!((first.name.as_str(), first.version.as_deref(), key()), ("script", Some("1"), first.clone()));
    lab.write("table.txt", "2");
    let second = key();
    lab.manifest("files = [\"table.txt\"]\ntimeout_s = 3\n");
    let third = key();
    let script = std::fs::read_to_string(lab.folder.path().join("script.sh")).unwrap();
    lab.write("script.sh", &format!("{script}\n# more\n"));
    let keys = [first, second, third, key()].map(|k| k.fingerprint);
    assert!((0..4).all(|i| !keys[..i].contains(&keys[i])), "{keys:?}");
}

#[test]
fn manifests_that_cannot_be_used() {
    let lab = Lab::serving(HELLO, ANSWER);
    for (text, part) in [
        ("name = \"other\"\ncommand = [\"x\"]\n", "name is \"other\"; it must be that of the file, \"script\""),
        ("name = \"script\"\ncommand = []\n", "command is empty"),
        ("name = \"script\"\ncommand = \"sh script.sh\"\n", "script.toml:2"),
        ("name = \"script\"\ncommand = [\"x\"]\ntimeout_s = 0\n", "timeout_s = 0"),
        ("name = \"script\"\ncommand = [\"x\"]\ntimeout_s = nan\n", "timeout_s = NaN"),
        ("name = \"script\"\ncommand = [\"x\"]\ntimeouts = 1\n", "did you mean `timeout_s`?"),
        ("name = \"script\"\ncommand = [\"x\"]\nfiles = [\"gone\"]\n", "names gone, which is no file"),
        ("", "is empty"),
    ] {
        lab.write("script.toml", text);
        let message = lab.catalogue().admit("script").unwrap_err().to_string();
        contains(&message, &["script.toml", part]);
        assert_eq!(lab.catalogue().listed()[0].name, "script");
    }
    lab.write("libra.toml", "name = \"libra\"\ncommand = [\"x\"]\n");
    let path = lab.folder.path().join("libra.toml").display().to_string();
    contains(&lab.catalogue().admit(&path).unwrap_err().to_string(), &["that of a built-in system"]);
}

#[test]
fn the_python_example_balances_to_within_one_block() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the Python example: python3 is not installed");
        return;
    }
    let catalogue = Catalogue::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../external"));
    let options = json!({"block": 8}).as_object().cloned().unwrap();
    let system = catalogue.system("greedy-blocks", &options, 1).unwrap();
    for sequences in [
        vec![&[64u32][..], &[1; 64], &[30, 34], &[7, 1, 13, 43]],
        vec![&[1][..], &[1]],
        vec![&[65][..], &[3, 62]],
        vec![&[9, 8, 7][..]],
    ] {
        let made = plan(&system, &sequences, 3).unwrap();
        check(&made, &Limits::default()).unwrap();
        assert_eq!(made, plan(&system, &sequences, 3).unwrap());
        let load = made.load(Pass::Forward);
        let mean = load.iter().sum::<u64>() / load.len() as u64;
        assert!(load.iter().all(|l| *l <= mean + made.accounting.largest_tile), "{sequences:?}: {load:?}");
    }
    drop(system);
    assert_eq!(catalogue.take_ledger().complaint, None);
}
