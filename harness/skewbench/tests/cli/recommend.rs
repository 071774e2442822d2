//! `recommend`: one answer a workload, layout and network, from the run that it leaves.

use serde_json::Value;

use crate::common::{Lab, TINY, differing};

const SMALL: &str = "--window 8192 --layout dp=2,cp=2,cards_per_node=2 --gbs 8 --steps 6";
const THREE: &str = "--system ulysses --system ulysses+sorted --system libra";

fn numbers(systems: &Value, key: &str) -> Vec<f64> {
    systems.as_array().unwrap().iter().map(|s| s[key].as_f64().unwrap()).collect()
}

#[test]
fn an_answer_for_every_network() {
    let lab = Lab::new();
    let line = format!("recommend paper-256k {SMALL} {THREE} --out advice --set options.libra.block=512");
    let answers = lab.run(&format!("{line} --format json")).json();
    let answers = answers.as_array().unwrap();
    let networks: Vec<&str> = answers.iter().map(|a| a["network"].as_str().unwrap()).collect();
    assert_eq!(networks, ["200 Gb/s", "400 Gb/s", "800 Gb/s"]);
    let nominal = &answers[1];
    assert_eq!(answers.iter().filter(|a| a["nominal"] == true).count(), 1);
    assert_eq!((&nominal["kind"], &nominal["profile"]), (&Value::from("simulated"), &Value::from("h200")));
    assert_eq!((&nominal["nominal"], nominal["systems"].as_array().unwrap().len()), (&Value::from(true), 3));
    for answer in answers {
        let systems = &answer["systems"];
        let rates = numbers(systems, "tokens_per_card_s");
        assert!(rates.is_sorted_by(|a, b| a >= b), "{answer}");
        assert_eq!(answer["system"], systems[0]["system"]);
        assert!(systems[0]["verdict"].is_null() && systems[1]["verdict"].is_string(), "{answer}");
        assert!((systems[1]["time_over_fastest"].as_f64().unwrap() - rates[0] / rates[1]).abs() < 1e-3, "{answer}");
        for system in systems.as_array().unwrap() {
            assert!(system["p"].is_null() || system["system"] == "libra", "{system}");
            assert_eq!(
                (&system["preserved"], &system["n"].is_number()),
                (&Value::from(true), &system["verdict"].is_string())
            );
        }
        let clear = systems[1]["verdict"] == "slower";
        let sentence = answer["sentence"].as_str().unwrap();
        assert_eq!(answer["verdict"] == "faster", clear && systems[2]["verdict"] == "slower", "{answer}");
        assert!(
            sentence.contains(answer["system"].as_str().unwrap()) && sentence.contains("(simulated, profile h200)")
        );
    }
    // The page says the same, and comes from the run alone.
    let page = std::fs::read_to_string(lab.path("advice/recommend.html")).unwrap();
    assert!(page.contains("Finding: paper-256k, DP = 2, CP = 2, 400 Gb/s between nodes (simulated, profile h200)"));
    lab.run("results check advice").ok();
    lab.run("report advice/run/recommend --out again").ok();
    let again = std::fs::read(lab.path("again/recommend.html")).unwrap();
    assert!(again == std::fs::read(lab.path("advice/recommend.html")).unwrap());
    // Asked again, nothing is computed again.
    let text = lab.run(&line);
    assert!(text.stderr.contains("reusing"), "{}", text.stderr);
    let text = text.ok();
    for part in ["simulated on profile h200", "tokens/s/card", "over ulysses", "95% interval", "800 Gb/s", "fastest"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn answers_do_not_depend_on_threads() {
    let lab = Lab::new();
    lab.run(&format!("recommend paper-256k {SMALL} {THREE} --out a")).ok();
    lab.run(&format!("recommend paper-256k {SMALL} {THREE} --out b --threads 1")).ok();
    assert_eq!(differing(&lab.shared_bytes("a"), &lab.shared_bytes("b")), [""; 0]);
}

#[test]
fn lengths_of_ones_own_inside_one_node() {
    let lab = Lab::new();
    let lengths: Vec<String> = (0..400).map(|i| (1 + i * i % 3000).to_string()).collect();
    lab.write("lengths.txt", lengths.join("\n"));
    let line = "recommend lengths.txt --window 4096 --layout dp=2,cp=2 --gbs 8 --steps 5";
    let answers = lab.run(&format!("{line} {THREE} --out advice --format json")).json();
    // No cards in other nodes, no network to vary.
    assert_eq!((answers.as_array().unwrap().len(), &answers[0]["network"]), (1, &Value::Null));
    assert_eq!((&answers[0]["dataset"], &answers[0]["nominal"]), (&"lengths.txt".into(), &true.into()));
    let csv = lab.run(&format!("{line} {THREE} --out advice --format csv")).ok();
    assert_eq!(csv.lines().count(), 1 + 3);
    assert!(csv.starts_with("dataset,layout,network,profile,kind,system,p,"), "{csv}");
}

#[test]
fn few_steps_give_no_verdict() {
    let lab = Lab::new();
    let line = "recommend paper-256k --window 8192 --layout dp=2,cp=2 --gbs 8 --steps 2";
    let answers = lab.run(&format!("{line} {THREE} --out advice --format json")).json();
    assert_eq!(answers[0]["verdict"], "unclear");
    assert!(answers[0]["reason"].as_str().unwrap().contains("2 pairs, fewer than 5"), "{answers}");
    let page = std::fs::read_to_string(lab.path("advice/recommend.html")).unwrap();
    assert!(page.contains("2 pairs, fewer than 5"));
}

#[test]
fn an_experiment_says_the_rest() {
    let lab = Lab::tiny();
    let line =
        "recommend tiny.toml --steps 5 --one-network --layout dp=2,cp=2 --layout dp=4,cp=1 --baseline ulysses+sorted";
    let answers = lab.run(&format!("{line} --out advice --format json")).json();
    let layouts: Vec<&str> = answers.as_array().unwrap().iter().map(|a| a["layout"].as_str().unwrap()).collect();
    assert_eq!(layouts, ["DP = 2, CP = 2", "DP = 4, CP = 1"]);
    assert_eq!(answers[0]["baseline"], "ulysses+sorted");
    let text = lab.run(&format!("{line} --out advice")).ok();
    assert!(text.contains("layouts by tokens/s/card: DP = "), "{text}");
    // Its own layouts and systems, where none are given.
    let answers = lab.run("recommend tiny.toml --steps 5 --one-network --out own --format json").json();
    assert_eq!((answers.as_array().unwrap().len(), answers[0]["systems"].as_array().unwrap().len()), (1, 3));
    lab.write("swept.toml", format!("{TINY}[sweep.set]\ngbs = [4, 8]\n"));
    let message = lab.run("recommend swept.toml --out x").error(10);
    assert!(message.contains("swept.toml") && message.contains("sweep.set"), "{message}");
    assert!(lab.run("recommend tiny.toml --window 4096 --out x").error(2).contains("--set"));
    assert!(!lab.exists("x"));
}

#[test]
fn the_baseline_competes_also_where_it_is_not_asked_for() {
    let lab = Lab::new();
    let line = "recommend paper-256k --window 16384 --layout dp=1,cp=8 --one-network --system ring --out advice";
    let answers = lab.run(&format!("{line} --steps 5 --format json")).json();
    let systems: Vec<&str> =
        answers[0]["systems"].as_array().unwrap().iter().map(|s| s["system"].as_str().unwrap()).collect();
    assert_eq!(systems, ["ulysses", "ring"]);
    let text = lab.run(&format!("{line} --steps 5")).ok();
    assert!(text.contains("ulysses is fastest") && !text.contains("ring is fastest"), "{text}");
}

#[test]
fn what_no_answer_could_be_given_to() {
    let lab = Lab::new();
    for (line, code, expected) in [
        ("paper-25k", 2, "paper-256k"),
        ("paper-256k --system lirba", 2, "did you mean libra?"),
        ("paper-256k --baseline lirba", 10, "did you mean libra?"),
        ("paper-256k --profile h20", 2, "did you mean h200"),
        ("paper-256k --model qwen3-4", 2, "did you mean qwen3-4b"),
        ("paper-256k --layout dp=3,cp=8 --gbs 8", 10, "dp = 3 does not divide gbs = 8"),
        ("paper-256k --layout dp=2,cq=8", 2, "did you mean cp?"),
        ("paper-256k --layout dp=2,cp=8 --layout dp=2,cp=8", 2, "--layout dp=2,cp=8 is given twice"),
        ("paper-256k --window 0", 2, "--window 0"),
        ("paper-256k --steps 0", 2, "--steps 0"),
        ("paper-256k --pool 0", 10, "pool"),
        ("paper-256k --backend replay", 2, "run --backend replay"),
        ("absent.txt", 10, "absent.txt"),
        ("absent.toml", 10, "absent.toml"),
    ] {
        let message = lab.run(&format!("recommend {line} --out x")).error(code);
        assert!(message.contains(expected), "{line}: {message}");
        assert!(!lab.exists("x"), "{line}");
    }
}
