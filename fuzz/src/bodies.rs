//! Bodies of the fuzz targets: each takes arbitrary bytes and must return. The tests of the command line run them too.

use skewbench::experiment;
use skewbench::imported;
use skewbench_plan::Plan;
use skewbench_plan::check::{Limits, check};
use skewbench_sim::Profile;
use skewbench_sim::profile::Bandwidth;
use skewbench_sim::step_model::Model;
use skewbench_store::Reference;

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Experiment file; what is accepted survives being written and read again.
pub fn experiment(bytes: &[u8]) {
    if let Ok(found) = experiment::recorded("fuzz", &text(bytes)) {
        let written = toml::to_string(&found.experiment).expect("an experiment that was read can be written");
        let again = experiment::recorded("fuzz", &written).expect("an experiment that was written can be read");
        // Compared as text, for NaN differs from itself.
        assert_eq!(format!("{:?}", again.experiment), format!("{:?}", found.experiment));
    }
}

/// Measured times of two groups of two ranks; what is read has a time above 0 of every rank.
pub fn times(bytes: &[u8]) {
    for name in ["fuzz.csv", "fuzz.jsonl"] {
        if let Ok(measured) = imported::parse(&text(bytes), name, 2, 2) {
            let times = measured.waves.iter().flat_map(|w| w.times.values());
            times.for_each(|times| assert!(times.len() == 4 && times.iter().all(|ns| *ns > 0.0 && ns.is_finite())));
            assert!(measured.waves.iter().all(|w| w.sequences.len() == 2));
        }
    }
}

/// File of published numbers.
pub fn reference(bytes: &[u8]) {
    if let Ok(reference) = Reference::parse(&text(bytes), "fuzz.toml") {
        for entry in &reference.entry {
            assert!(entry.number().is_none_or(f64::is_finite));
        }
    }
}

/// Plan in JSON; what is read is judged by the checker, and what it accepts survives being written and read again.
pub fn plan(bytes: &[u8]) {
    if let Ok(plan) = serde_json::from_slice::<Plan>(bytes)
        && check(&plan, &Limits::default()).is_ok()
    {
        let written = serde_json::to_vec(&plan).expect("a plan that was read can be written");
        let again: Plan = serde_json::from_slice(&written).expect("a plan that was written can be read");
        assert!(check(&again, &Limits::default()).is_ok());
    }
}

/// Machine profile; one that is accepted stays acceptable when it is written and read again.
pub fn profile(bytes: &[u8]) {
    if let Ok(profile) = Profile::parse(&text(bytes), "fuzz.json") {
        let written = serde_json::to_string(&profile).expect("a profile that was read can be written");
        assert_eq!(Profile::parse(&written, "fuzz.json"), Ok(profile));
    }
}

/// Model file.
pub fn model(bytes: &[u8]) {
    for model in Model::parse_list(&text(bytes), "fuzz.toml").unwrap_or_default() {
        assert!(model.layer_flops_per_token().is_finite() && model.layer_flops_per_token() > 0.0);
    }
}

/// Bandwidth with its unit.
pub fn bandwidth(bytes: &[u8]) {
    if let Ok(bandwidth) = text(bytes).parse::<Bandwidth>() {
        assert!(bandwidth.bytes_per_s().is_finite());
    }
}

/// Archive of a run; one that is refused leaves nothing.
pub fn archive(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (archive, run) = (folder.path().join("run.tar.zst"), folder.path().join("run"));
    std::fs::write(&archive, bytes).expect("a temporary file");
    let imported = skewbench_store::import(&archive, &run).is_ok();
    assert_eq!(run.exists(), imported);
    let entries = std::fs::read_dir(folder.path()).expect("a temporary folder").count();
    assert_eq!(entries, 1 + usize::from(imported));
}
