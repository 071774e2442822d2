//! Experiments that vary any of their keys, and every shipped experiment at smoke scale.

use std::collections::BTreeSet;

use serde_json::Value;
use skewbench_store::Reference;

use crate::common::{Lab, TINY, repository};

/// The tiny experiment with other last lines.
fn swept(sweep: &str, x: &str) -> String {
    TINY.replace("x = \"system\"", &format!("x = \"{x}\"")).replace("[plot]", &format!("{sweep}\n\n[plot]"))
}

#[test]
fn every_shipped_experiment_runs_at_smoke_scale() {
    let lab = Lab::new();
    let listed = lab.run("run --list").ok();
    let ids: Vec<&str> = listed.lines().collect();
    assert!(ids.iter().any(|id| id.starts_with("beyond/")));
    let mut words = vec!["run", "--quick", "--out", "study"];
    words.extend(&ids);
    lab.run_words(&words).ok();
    let rows = lab.summary("study");
    let failed: Vec<_> = rows.iter().filter(|r| r["status"] == "failed").collect();
    assert!(failed.is_empty(), "{failed:?}");
    let figures: BTreeSet<&str> = rows.iter().filter_map(|r| r["figure"].as_str()).filter(|f| *f != "eq3").collect();
    assert_eq!(figures.len(), ids.len(), "{figures:?}");
    // Every published number stands beside a value, or a reason why there is none.
    let paper = Reference::parse(&repository("results/reference/paper.toml"), "paper.toml").unwrap();
    for entry in paper.entry.iter().filter(|e| e.number().is_some() || e.formula.is_some()) {
        let told = rows.iter().filter(|r| {
            let names = [&r["figure"], &r["system"], &r["metric"]].map(|v| v.as_str().unwrap_or_default());
            names == [&entry.figure, &entry.system, &entry.metric]
                && (entry.dataset == "unspecified" || r["dataset"] == entry.dataset.as_str())
                && r["published"].as_f64().is_some_and(|p| entry.number().is_none_or(|number| number == p))
        });
        let sound = |r: &Value| r["ratio"].is_number() && r["verdict"].is_string() || r["reason"].is_string();
        let told: Vec<&Value> = told.collect();
        assert!(!told.is_empty(), "{}", entry.id);
        assert!(told.into_iter().all(|r| sound(r) || r["kind"] == "modelled"), "{}", entry.id);
    }
    // Modelled spreads claim nothing.
    let spread = rows.iter().filter(|r| r["figure"] == "fig3");
    assert!(
        spread.clone().count() > 0 && spread.into_iter().all(|r| r["kind"] == "modelled" && r["verdict"].is_null())
    );
}

#[test]
fn combinations_are_rows_with_coordinates_and_are_read_back() {
    let lab = Lab::tiny();
    let sweep =
        "[sweep.set]\n\"options.*.tau\" = [0.0, 0.5]\n\"machine.network_bandwidth\" = [\"100 Gb/s\", \"400 Gb/s\"]";
    lab.write("swept.toml", swept(sweep, "tau"));
    lab.run("run swept.toml --out study").ok();
    let rows = lab.summary("study");
    let libra: BTreeSet<String> = rows
        .iter()
        .filter(|r| r["system"] == "libra" && r["metric"] == "straggler_max")
        .map(|r| format!("{} {}", r["at"]["tau"], r["at"]["network_bandwidth"]))
        .collect();
    let expected = ["0.0 \"100 Gb/s\"", "0.0 \"400 Gb/s\"", "0.5 \"100 Gb/s\"", "0.5 \"400 Gb/s\""];
    assert_eq!(libra, expected.map(String::from).into());
    // A system without the option has one cell for each machine; a faster network is not slower.
    let of = |network: &str| {
        let mut found = rows.iter().filter(|r| r["system"] == "ulysses" && r["at"]["network_bandwidth"] == network);
        found.next().unwrap()["value"].as_f64().unwrap()
    };
    assert!(of("400 Gb/s") <= of("100 Gb/s"));
    let page = std::fs::read(lab.path("study/index.html")).unwrap();
    lab.run("report study").ok();
    assert_eq!(lab.summary("study"), rows);
    assert_eq!(page.len(), std::fs::read(lab.path("study/index.html")).unwrap().len());
}

#[test]
fn variants_models_profiles_and_workloads_are_swept() {
    let lab = Lab::tiny();
    let sweep = "[[variant]]\nname = \"other card\"\nset = { profile = \"h100\" }\n\n[[variant]]\nname = \"other model\"\nset = { model = \"llama-3-8b\" }\n\n[[variant]]\nname = \"longer tail\"\nset = { \"workload.name\" = \"paper-256k:long_token_share=0.6\" }";
    lab.write("swept.toml", swept(sweep, "variant"));
    lab.run("run swept.toml --out study").ok();
    let rows = lab.summary("study");
    let names: BTreeSet<&str> = rows.iter().filter_map(|r| r["at"]["variant"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["longer tail", "other card", "other model"]));
    assert!(rows.iter().any(|r| r["profile"] == "h100") && rows.iter().any(|r| r["profile"] == "h200"));
    std::fs::remove_file(lab.path("swept.toml")).unwrap();
    lab.run("report study").ok();
    assert_eq!(lab.summary("study"), rows);
}

#[test]
fn a_second_axis_makes_a_grid_with_its_ends() {
    let lab = Lab::tiny();
    let sweep = "[sweep.set]\n\"options.libra.block\" = [256, 512]\n\"options.libra.head_shards\" = [1, 2]";
    lab.write("swept.toml", swept(sweep, "block").replace("x = \"block\"", "x = \"block\"\ny = \"head_shards\""));
    lab.run("run swept.toml --quick --out study").ok();
    let rows = lab.summary("study");
    let end = |word: &str| {
        let mut found = rows.iter().filter(|r| r["dataset"] == "all" && r["at"]["grid"] == word);
        found.find(|r| r["system"] == "libra").unwrap()["value"].as_f64().unwrap()
    };
    let both = |r: &&Value| r["at"]["pass"] == "both" && r["dataset"] != "all" && r["metric"] == "straggler_mean";
    for row in rows.iter().filter(both).filter(|r| r["system"] == "libra") {
        assert!(row["value"].as_f64().unwrap() <= end("highest"));
    }
    assert!(end("lowest") <= end("highest"));
}

#[test]
fn sweeps_that_cannot_run_are_refused() {
    let lab = Lab::tiny();
    let refused = |text: String, code: i32, parts: &[&str]| {
        lab.write("swept.toml", text);
        let message = lab.run("run swept.toml --quick --out x").error(code);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(!lab.exists("x"));
    };
    let tau = "[sweep.set]\n\"options.*.tau\" = [0.1]";
    let unknown = swept("[sweep.set]\n\"machine.bandwith\" = [1]", "bandwith");
    refused(unknown, 10, &["swept.toml at bandwith = 1", "bandwith"]);
    refused(swept("[sweep.set]\ngbs = []", "gbs"), 10, &["no values"]);
    let option = swept("[sweep.set]\n\"options.*.taw\" = [0.1]", "taw");
    refused(option, 10, &["no system of the experiment has an option taw"]);
    refused(swept(tau, "tua"), 10, &["key `plot.x`", "did you mean tau?"]);
    let twins = swept("[[variant]]\nset = { gbs = 8 }\n\n[[variant]]\nset = { gbs = 8 }", "gbs");
    refused(twins, 10, &["same coordinates"]);
    let profile = swept("[sweep.set]\nprofile = [\"h200\", \"h201\"]", "profile");
    refused(profile, 2, &["at profile = h201", "did you mean"]);
    refused(swept(tau, "tau").replace("[systems]", "[systems]\ntuned = true"), 10, &["are not tuned"]);
}
