//! `import`: times of which everything is known give it back, and a profile that predicts them.

use std::fmt::Write;

use rand::RngExt;
use serde_json::Value;
use skewbench::cells::Resources;
use skewbench::imported::{Observation, Of, Setup, observations, read};
use skewbench_plan::Layout;
use skewbench_sim::step_model::Recompute;
use skewbench_store::stats::stream;

use crate::common::Lab;

const WAVES: u32 = 40;
const SPEEDS: [f64; 4] = [0.97, 1.0, 1.0, 1.03];
const FACTOR: f64 = 1.25;
const CONSTANT_NS: f64 = 40_000.0;

/// Documents of two data-parallel ranks in many waves, with a time of 1 ms for every rank.
fn unmeasured() -> String {
    let mut random = stream(5, "documents");
    let mut text = "wave,rank,time_ms,documents\n".to_owned();
    for wave in 0..WAVES {
        for dp in 0..2 {
            let length = 1024 << random.random_range(0..5);
            let documents = vec![length.to_string(); 16_384 / length];
            for cp in 0..2 {
                let documents = if cp == 0 { documents.join(" ") } else { String::new() };
                writeln!(text, "{wave},{},1,{documents}", dp * 2 + cp).unwrap();
            }
        }
    }
    text
}

/// What the simulator predicts for a file.
fn predicted(lab: &Lab, file: &str, of: Of) -> Vec<Observation> {
    let mut resources = Resources::default();
    let system = resources.catalogue().system("ulysses", &serde_json::Map::new(), 1).unwrap();
    let model = resources.model("qwen3-30b-a3b").unwrap();
    let machine = resources.machine("h200", &Default::default()).unwrap();
    let pricing = resources.pricing(&machine).unwrap();
    let layout = Layout { cards_per_node: 2, ..Layout::dp_cp(2, 2) };
    let setup = Setup { system: &system, layout, model: &model, pricing, of, recompute: Recompute::None };
    observations(&read(&lab.path(file), 2, 2).unwrap(), &setup).unwrap()
}

/// A lab with times that a machine of known differences from the profile would take.
fn known(of: Of) -> Lab {
    let lab = Lab::new();
    lab.write("unmeasured.csv", unmeasured());
    let all = predicted(&lab, "unmeasured.csv", of);
    let mut random = stream(6, "noise");
    let text = unmeasured();
    let mut lines = text.lines();
    let mut text = format!("{}\n", lines.next().unwrap());
    for (line, o) in lines.zip(&all) {
        let fields: Vec<&str> = line.split(',').collect();
        let exact = CONSTANT_NS + FACTOR * SPEEDS[o.rank] * o.kernels + o.rest;
        let time = exact * (1.0 + 0.01 * (random.random::<f64>() - 0.5)) * 1e-6;
        writeln!(text, "{},{},{time},{}", fields[0], fields[1], fields[3]).unwrap();
    }
    lab.write("times.csv", text);
    lab
}

fn find<'a>(rows: &'a Value, quantity: &str) -> &'a Value {
    rows.as_array().unwrap().iter().find(|r| r["quantity"] == quantity).unwrap_or_else(|| panic!("{quantity}: {rows}"))
}

const LAYOUT: &str = "--layout dp=2,cp=2,cards_per_node=2";

#[test]
fn what_made_the_times_is_recovered() {
    for (of, word) in [(Of::Kernels, "kernels"), (Of::Attention, "attention")] {
        let lab = known(of);
        let line = format!("import times.csv {LAYOUT} --of {word}");
        let rows = lab.run(&format!("{line} --format json --out report --write ours.json --name ours")).json();
        let holds = |quantity: &str, truth: f64, within: f64| {
            let row = find(&rows, quantity);
            let (low, high) = (row["ci_low"].as_f64().unwrap(), row["ci_high"].as_f64().unwrap());
            assert!(low - within <= truth && truth <= high + within && high - low < 20.0 * within, "{word}: {row}");
            assert_eq!(row["n"], WAVES);
        };
        holds("kernel time, both", FACTOR, 0.005);
        holds("constant of a wave, both", CONSTANT_NS * 1e-3, 2.0);
        for (rank, speed) in SPEEDS.iter().enumerate() {
            holds(&format!("kernel time, rank {rank}"), *speed, 0.002);
        }
        let error = |key: &str| find(&rows, "error of ranks, median")[key].as_f64().unwrap();
        assert!(error("profile") > 0.15 && error("fitted") < 0.01, "{rows}");
        let page = std::fs::read_to_string(lab.path("report/imported.html")).unwrap();
        assert!(page.contains("Ranks: predicted over measured") && page.contains("time factor"));
        // The profile that was written needs no such change any more.
        let profile: Value = serde_json::from_slice(&std::fs::read(lab.path("ours.json")).unwrap()).unwrap();
        assert_eq!((&profile["name"], &profile["attention"]["source"]["kind"]), (&"ours".into(), &"measured".into()));
        assert!(profile["attention"]["source"]["run"].as_str().unwrap().starts_with("import of times.csv"));
        assert!(
            (profile["card_speed"]["relative_sd"].as_f64().unwrap() - 0.0245).abs() < 0.003,
            "{}",
            profile["card_speed"]
        );
        assert_eq!(profile["network"]["source"]["kind"], "assumed");
        let rows = lab.run(&format!("{line} --format json --profile ours.json")).json();
        let factor = find(&rows, "kernel time, both")["fitted"].as_f64().unwrap();
        assert!((factor - 1.0).abs() < 0.06, "{word}: {factor}");
        assert!(find(&rows, "error of ranks, median")["profile"].as_f64().unwrap() < 0.06, "{word}: {rows}");
        // It is a profile like any other.
        lab.run("plan --system libra --workload paper-256k --window 8192 --layout dp=1,cp=2 --profile ours.json").ok();
    }
}

#[test]
fn passes_and_steps() {
    let lab = Lab::new();
    for (file, unit) in [("layer.csv", "time_us"), ("step.csv", "time_ms")] {
        let mut text = format!("wave,rank,pass,sample,{unit},sequences\n");
        for wave in 0..6 {
            for (rank, pass, time) in
                [(0, "forward", 100), (0, "backward", 250), (1, "forward", 100), (1, "backward", 250)]
            {
                for sample in 0..3 {
                    let length = 2048 << (wave % 3);
                    let time = time * (1 + wave % 3);
                    writeln!(text, "{wave},{rank},{pass},{sample},{time},{length};{length}").unwrap();
                }
            }
        }
        lab.write(file, text);
    }
    for (file, of) in [("layer.csv", "kernels"), ("layer.csv", "attention"), ("step.csv", "step")] {
        let rows = lab.run(&format!("import {file} --layout dp=2,cp=1 --of {of} --format json")).json();
        for pass in ["forward", "backward"] {
            assert!(find(&rows, &format!("kernel time, {pass}"))["fitted"].as_f64().unwrap() > 0.0, "{of}: {rows}");
        }
    }
    let human = lab.run("import layer.csv --layout dp=2,cp=1 --system ring").ok();
    assert!(human.contains("slowest over mean rank") && human.contains("correlation"), "{human}");
    // Layers take microseconds, not milliseconds: what else a step takes is more than all that was measured.
    assert!(lab.run("import layer.csv --layout dp=2,cp=1 --of step").error(10).contains("do not grow"));
}

#[test]
fn nothing_is_written_of_what_cannot_be_used() {
    let lab = Lab::new();
    let good = "wave,rank,time_ms,documents\n0,0,1,128\n0,1,2,128\n";
    lab.write("good.csv", good);
    lab.write("nan.csv", good.replace("0,1,2,128", "0,1,nan,128"));
    lab.write("twice.csv", format!("{good}0,1,2,\n"));
    lab.write("missing.csv", format!("{good}1,0,1,128\n"));
    lab.write("bytes.csv", [0xff, 0xfe]);
    for (line, code, expected) in [
        ("nan.csv --layout dp=2,cp=1", 10, "nan.csv:3: time_ms: \"nan\""),
        ("twice.csv --layout dp=2,cp=1", 10, "twice.csv:4: wave 0, rank 1"),
        ("missing.csv --layout dp=2,cp=1", 10, "wave 1 has no documents of data-parallel rank 1"),
        ("good.csv --layout dp=1,cp=1", 10, "good.csv:3: rank 1; the layout"),
        ("good.csv --layout dp=2", 10, "give no intervals"),
        ("good.csv --layout dp=2,pp=2", 2, "pp = 1"),
        ("good.csv --layout dp=0", 10, "dp is 0"),
        ("good.csv --layout dp=2 --system lirba", 2, "did you mean libra?"),
        ("good.csv --layout dp=2 --profile h20", 2, "did you mean h200"),
        ("absent.csv --layout dp=2", 10, "absent.csv"),
        ("bytes.csv --layout dp=2", 10, "UTF-8"),
    ] {
        let message = lab.run(&format!("import {line} --write x.json --name x --out x")).error(code);
        assert!(message.contains(expected), "{line}: {message}");
        assert!(!lab.exists("x.json") && !lab.exists("x"), "{line}");
    }
    lab.write("x.json", "{}");
    assert!(lab.run("import good.csv --layout dp=2 --write x.json --name x").error(10).contains("--force"));
    assert_eq!(lab.run("import good.csv --layout dp=2 --write y.json").code, Some(2));
}
