//! Configuration errors, reference values, summary rows, environment.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use skewbench_store::{
    Agreement, Kind, Reference, RowStatus, SummaryKey, SummaryRow, SummaryValue, collect_environment, parse_strict,
    parse_strict_json,
};

const PAPER: &str = include_str!("../../../results/reference/paper.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its keys matter")]
struct Experiment {
    steps: u32,
    layout: Layout,
    #[serde(default)]
    sweep: Vec<Layout>,
    backend: Option<Backend>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its keys matter")]
struct Layout {
    dp: u32,
    cp: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Backend {
    Sim,
    Cuda,
}

fn toml_error(text: &str) -> String {
    parse_strict::<Experiment>(text, "x.toml").unwrap_err().to_string()
}

#[test]
fn toml_errors_name_file_line_and_the_nearest_key() {
    let good = "steps = 3\nbackend = \"sim\"\n[layout]\ndp = 2\n[[sweep]]\ndp = 1\ncp = 4\n";
    assert!(parse_strict::<Experiment>(good, "x.toml").is_ok());
    assert_eq!(
        toml_error("step = 3\n[layout]\ndp = 2\n"),
        "x.toml:1: unknown key `step`; did you mean `steps`? known are steps, layout, sweep, backend"
    );
    assert_eq!(
        toml_error("steps = 3\n\n[layout]\n# no\ndq = 2\n"),
        "x.toml:5: unknown key `dq`; did you mean `dp`? known are dp, cp"
    );
    assert!(
        toml_error("steps = 3\n[layout]\ndp = 2\n[[sweep]]\ndp = 1\n[[sweep]]\ndp = 1\nCP = 2\n")
            .starts_with("x.toml:8: unknown")
    );
    let variant = toml_error("steps = 3\nbackend = \"simm\"\n[layout]\ndp = 2\n");
    assert!(variant.starts_with("x.toml:2: unknown value `simm`; did you mean `sim`?"), "{variant}");
    assert!(toml_error("steps = -3\n[layout]\ndp = 2\n").starts_with("x.toml:1: invalid value"));
    assert!(toml_error("steps = 3\nsteps = 4\n").starts_with("x.toml:2: "), "{}", toml_error("steps = 3\nsteps = 4\n"));
    assert!(toml_error("steps = 3\n[layout\n").starts_with("x.toml:2: "));
    assert!(toml_error("steps = 3\n").contains("key `layout` is missing"));
    assert_eq!(toml_error(" \n"), "x.toml: is empty");
}

#[test]
fn json_errors_name_file_line_and_the_nearest_key() {
    let error = parse_strict_json::<Layout>("{\n \"dp\": 1,\n \"cq\": 2}", "x.json").unwrap_err().to_string();
    assert_eq!(error, "x.json:3: unknown key `cq`; did you mean `cp`? known are dp, cp");
    let error = parse_strict_json::<Layout>("{\"dp\": 1", "x.json").unwrap_err().to_string();
    assert!(error.starts_with("x.json:1: "), "{error}");
    assert!(parse_strict_json::<Layout>("{\"dp\": 1} x", "x.json").is_err());
    assert!(parse_strict_json::<Layout>("", "x.json").is_err());
}

#[test]
fn the_paper_is_read() {
    let paper = Reference::parse(PAPER, "paper.toml").unwrap();
    let at = |value: Value| value.as_object().cloned().unwrap_or_default();
    let mut place = json!({ "dp": 16, "cp": 8, "linear": "fitted", "base": "shared", "transfers": "left_out" });
    let found = paper.find("fig11", "paper-256k", "ulysses", "scaling", &at(place.clone()));
    place["transfers"] = json!("charged");
    assert!(paper.find("fig11", "paper-256k", "ulysses", "scaling", &at(place)).is_none());
    let entry = found.unwrap();
    assert_eq!((entry.number(), entry.inconsistent), (Some(7.63), true));
    assert!(paper.find("fig11", "paper-256k", "ulysses", "scaling", &at(json!({ "dp": 8 }))).is_none());
    let value = |value, interval| SummaryValue { value, interval, n: 20 };
    assert_eq!(entry.judge(&value(7.6, None), 0.05).agreement, Agreement::Agrees);
    assert_eq!(entry.judge(&value(6.0, None), 0.05).agreement, Agreement::Differs);
    assert_eq!(entry.judge(&value(6.0, Some((5.0, 8.0))), 0.05).agreement, Agreement::Agrees);
    let bound = paper.find("fig8", "paper-1m", "vrsp", "r_minus_1", &at(json!({ "p": 8, "gbs": 128 }))).unwrap();
    assert_eq!(bound.number(), Some(0.007));
    assert_eq!(bound.judge(&value(0.004, None), 0.05).agreement, Agreement::Agrees);
    assert_eq!(bound.judge(&value(0.01, None), 0.05).agreement, Agreement::Differs);
    let range = paper.of_figure("fig15").next().unwrap();
    assert_eq!((range.number(), range.judge(&value(1.0, None), 0.05).agreement), (None, Agreement::Agrees));
    let formula = paper.of_figure("eq3").next().unwrap();
    assert_eq!(formula.judge(&value(1.0, None), 0.05).agreement, Agreement::Unpublished);
    assert_eq!(paper.entry.iter().filter(|e| e.inconsistent).count(), 8);
}

#[test]
fn bad_reference_entries_are_refused() {
    let entry = |more: &str| {
        let base = "paper = \"p\"\n[[entry]]\nid = \"a\"\ndataset = \"d\"\nsystem = \"s\"\nmetric = \"m\"\nunit = \"1\"\nsource = \"x\"\n";
        Reference::parse(&format!("{base}{more}\n"), "r.toml").unwrap_err().to_string()
    };
    assert!(entry("figure = \"fig2\"\nvalue = 1.0").contains("unknown figure `fig2`"));
    assert!(entry("figure = \"fig1\"").contains("entry `a`: give one of value"));
    assert!(entry("figure = \"fig1\"\nvalue = 1.0\nhigh = 2.0").contains("give one"));
    assert!(entry("figure = \"fig1\"\nvalue = nan").contains("finite"));
    assert!(entry("figure = \"fig1\"\nlow = 3.0\nhigh = 2.0").contains("low is above high"));
    assert!(entry("figure = \"fig1\"\nvalu = 1.0").contains("did you mean `value`"));
    let one = PAPER.find("[[entry]]").map(|i| &PAPER[i..]).unwrap_or_default();
    assert!(Reference::parse(&format!("{PAPER}\n{one}"), "r.toml").unwrap_err().what.contains("twice"));
}

fn key(published: Option<f64>) -> SummaryKey {
    SummaryKey {
        figure: "fig11".to_owned(),
        dataset: "paper-1m".to_owned(),
        system: "ulysses".to_owned(),
        metric: "scaling".to_owned(),
        unit: "1".to_owned(),
        at: Map::from_iter([("dp".to_owned(), json!(16))]),
        published,
        kind: Kind::Modelled,
        backend: "sim".to_owned(),
        profile: Some("h200".to_owned()),
    }
}

#[test]
fn summary_rows_have_a_value_exactly_when_ok() {
    let row = SummaryRow::ok(key(Some(4.0)), SummaryValue { value: 4.5, interval: Some((4.25, 4.75)), n: 200 }, None);
    let text = serde_json::to_string(&row).unwrap();
    assert_eq!(
        text,
        "{\"figure\":\"fig11\",\"dataset\":\"paper-1m\",\"system\":\"ulysses\",\"metric\":\"scaling\",\"unit\":\"1\",\
         \"at\":{\"dp\":16},\"published\":4.0,\"value\":4.5,\"ratio\":1.125,\"ci_low\":4.25,\"ci_high\":4.75,\
         \"n\":200,\"kind\":\"modelled\",\"backend\":\"sim\",\"profile\":\"h200\",\"status\":\"ok\",\"verdict\":null}"
    );
    assert_eq!(serde_json::from_str::<SummaryRow>(&text).unwrap(), row);
    let failed = SummaryRow::without_value(key(None), RowStatus::Ok, "out of memory");
    assert_eq!(
        (failed.status, failed.value, failed.reason.as_deref()),
        (RowStatus::Failed, None, Some("out of memory"))
    );
    let text = serde_json::to_string(&failed).unwrap();
    assert_eq!(serde_json::from_str::<SummaryRow>(&text).unwrap(), failed);
    assert!(serde_json::from_str::<SummaryRow>(&text.replace("failed", "ok")).is_err());
    let infinite = SummaryRow::ok(key(None), SummaryValue { value: f64::INFINITY, interval: None, n: 1 }, None);
    assert_eq!(infinite.status, RowStatus::Failed);
}

#[test]
fn secrets_are_never_recorded() {
    let names = ["NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_JOB_ID", "RUST_LOG", "HOME", "PATH"];
    let secret = ["SLURM_JWT_TOKEN", "NCCL_api_key", "CUDA_SECRET", "SLURM_PASSWORD", "GITHUB_TOKEN"];
    let all = names.iter().chain(&secret).map(|name| ((*name).to_owned(), "value".to_owned()));
    let kept: Vec<String> = collect_environment(all).into_keys().collect();
    assert_eq!(kept, ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "OMP_NUM_THREADS", "RUST_LOG", "SLURM_JOB_ID"]);
}

proptest! {
    #[test]
    fn any_text_is_refused_with_the_file_name(text in "\\PC{0,80}(\\n\\PC{0,40}){0,4}") {
        if let Err(e) = parse_strict::<Experiment>(&text, "x.toml") {
            prop_assert!(e.to_string().starts_with("x.toml:"));
        }
        if let Err(e) = parse_strict_json::<Experiment>(&text, "x.json") {
            prop_assert!(e.to_string().starts_with("x.json:"));
        }
        let _ = Reference::parse(&text, "r.toml");
    }

    #[test]
    fn a_damaged_reference_file_is_an_error_or_a_reference(at in any::<prop::sample::Index>(), with in "\\PC{0,3}") {
        let mut text = PAPER.to_owned();
        let at = at.index(text.len());
        if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
            text.replace_range(at..at + 1, &with);
        }
        let _ = Reference::parse(&text, "r.toml");
    }

    #[test]
    fn any_json_row_is_a_row_or_an_error(keys in proptest::collection::btree_map("[a-z_]{1,9}", any::<i32>(), 0..9)) {
        let value: BTreeMap<String, i32> = keys;
        prop_assert!(serde_json::from_value::<SummaryRow>(json!(value)).is_err());
    }
}
