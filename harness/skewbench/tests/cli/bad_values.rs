//! Values that no run can have: one error that names file, line and key, exit code 10, and nothing written.

use crate::common::{Lab, TINY};

/// Replaces `from` in the tiny experiment, appends `more`, and runs it, which must be refused.
#[track_caller]
fn refused(from: &str, to: &str, expected: &[&str]) {
    let lab = Lab::new();
    assert!(from.is_empty() || TINY.contains(from), "{from}");
    lab.write("tiny.toml", if from.is_empty() { format!("{TINY}{to}") } else { TINY.replacen(from, to, 1) });
    let message = lab.run("run tiny.toml --out x").error(10);
    for part in expected {
        assert!(message.contains(part), "{from} -> {to}: {part:?} is missing in: {message}");
    }
    assert_eq!(lab.names(), ["tiny.toml"], "{from} -> {to} left something");
}

#[test]
fn impossible_layouts() {
    for (to, expected) in [
        ("dp = 0", "dp is 0"),
        ("dp = 3", "dp = 3 does not divide gbs = 8"),
        ("dp = 16", "dp = 16 does not divide gbs = 8"),
        ("dp = 2\ntp = 0", "tp is 0"),
        ("dp = 2\npp = 0", "pp is 0"),
        ("dp = 2\ntp = 3", "tp = 3 does not divide the 32 query heads"),
        ("dp = 2\ntp = 8", "tp = 8 does not divide the 4 KV heads"),
        ("dp = 2\npp = 1000000", "cards"),
    ] {
        refused("dp = 2", to, &["tiny.toml:16:", "key `layout`", expected]);
    }
    refused("cp = 2", "cp = 0", &["tiny.toml:16:", "cp is 0"]);
    refused("cp = 2", "cp = 8193", &["tiny.toml:16:", "cp = 8193 is above the 8192 tokens of a window"]);
    refused("cp = 2", "cp = 4000000000", &["tiny.toml:16:", "cards"]);
    refused("cp = 2", "cp = 5000000000", &["tiny.toml:18:", "u32"]);
    refused("cp = 2", "cp = -1", &["tiny.toml:18:", "u32"]);
    refused("cards_per_node = 2", "cards_per_node = 0", &["tiny.toml:16:", "cards_per_node is 0"]);
    refused("window_tokens = 8192", "window_tokens = 8192\ncp = 0", &["cp is 0"]);
    refused("", "\n[sweep]\ndp = [2, 3]\n", &["dp = 3 does not divide gbs = 8"]);
    refused("", "\n[sweep]\ndp = [2, 0]\n", &["dp is 0"]);
    refused("", "\n[sweep]\ncp = [2, 10000]\n", &["cp = 10000 is above"]);
    refused("", "\n[sweep]\npool = [0]\n", &["pool = 0"]);
    refused("", "\n[sweep]\npool = [2, 2]\n", &["tiny.toml:26:", "key `sweep.pool`", "2 is listed twice"]);
}

#[test]
fn impossible_step_models() {
    for (to, expected) in [
        ("expert_parallel = 0", "groups of 0 ranks"),
        ("expert_parallel = 3", "3 ranks cannot share the 128 experts"),
        ("expert_parallel = 8", "DP = 2 x CP = 2 has 4"),
    ] {
        let more = format!("\n[step_model]\n{to}\n");
        refused("", &more, &["tiny.toml:26:", "key `step_model.expert_parallel`", expected]);
    }
    for (size, expected) in [("0", "groups of 0 ranks"), ("3", "groups of 3 ranks")] {
        let more = format!("\n[step_model]\nsharding = {{ hybrid = {size} }}\n");
        refused("", &more, &["key `step_model.sharding`", expected]);
    }
}

#[test]
fn figures_without_a_place_of_their_own() {
    for figure in ["index", "method", "answer", "runs", "validation", "wave-x", "tiny-table"] {
        refused(
            "figure = \"tiny\"",
            &format!("figure = \"{figure}\""),
            &["tiny.toml:2:", "key `figure`", "the report's own"],
        );
    }
    refused("\"straggler_max\"]", "\"network_band\"]", &["key `plot.metrics`", "bandwidth_band = true"]);
}

#[test]
fn impossible_numbers() {
    refused("gbs = 8", "gbs = 0", &["tiny.toml:5:", "key `gbs`", "give at least 1"]);
    refused("gbs = 8", "gbs = 4294967294", &["tiny.toml:5:", "key `gbs`", "4294967294 sequences"]);
    refused("gbs = 8", "gbs = nan", &["tiny.toml:5:"]);
    refused("steps = 6", "steps = 0", &["tiny.toml:6:", "key `steps`", "give at least 1"]);
    refused("steps = 6", "steps = -6", &["tiny.toml:6:"]);
    refused("steps = 6", "steps = 4000000000", &["tiny.toml:6:", "key `steps`", "at most 1000000"]);
    refused("steps = 6", "steps = inf", &["tiny.toml:6:"]);
    refused("quick_steps = 1", "quick_steps = 0", &["tiny.toml:7:", "key `quick_steps`"]);
    refused("gbs = 8", "gbs = 8\nseed = -1", &["tiny.toml:6:"]);
    refused("gbs = 8", "gbs = 8\nmemory_limit_bytes = 0", &["tiny.toml:6:", "key `memory_limit_bytes`"]);
    refused("window_tokens = 8192", "window_tokens = 0", &["tiny.toml:12:", "window = 0"]);
    refused("window_tokens = 8192", "window_tokens = 4294967295", &["tiny.toml:12:", "window = 4294967295"]);
    refused("window_tokens = 8192", "window_tokens = 1", &["cp = 2 is above the 1 tokens"]);
    refused("window_tokens = 8192", "packing = \"fff\"", &["tiny.toml:12:", "choose ff, cut, split"]);
    refused("window_tokens = 8192", "packing = \"ff:open=0\"", &["tiny.toml:12:"]);
    refused("", "\n[steps_of]\nlibra = 0\n", &["tiny.toml:26:", "key `steps_of.libra`"]);
    refused("", "\n[steps_of]\nlirba = 5\n", &["tiny.toml:26:", "did you mean libra?"]);
    for scaling in ["nan", "inf", "-1.0", "0.0", "17.0"] {
        let more = format!("\n[step_model.fitted]\nscaling = {scaling}\n");
        refused("", &more, &["tiny.toml:26:", "key `step_model.fitted.scaling`", "above 0 and at most dp"]);
    }
}

#[test]
fn impossible_machines() {
    for (key, value, expected) in [
        ("oversubscription", "nan", "network.oversubscription = NaN"),
        ("oversubscription", "inf", "network.oversubscription"),
        ("oversubscription", "-1.0", "network.oversubscription = -1"),
        ("oversubscription", "0.0", "network.oversubscription = 0"),
        ("oversubscription", "1e300", "network.oversubscription"),
        ("network_bandwidth", "\"0 Gb/s\"", "network.bandwidth = 0"),
        ("network_bandwidth", "\"400\"", "write a number and a unit"),
        ("network_bandwidth", "\"-4 Gb/s\"", "is not a bandwidth"),
        ("network_bandwidth", "\"nan Gb/s\"", "is not a bandwidth"),
        ("network_bandwidth", "400", "tiny.toml:26"),
        ("network_efficiency", "2.0", "network.efficiency"),
        ("network_latency_ns", "-1.0", "network.latency_ns"),
        ("card_relative_sd", "nan", "relative_sd"),
        ("gemm_flops_per_s", "0.0", "gemm.flops_per_s"),
        ("transport", "\"ncl\"", "did you mean `nccl`?"),
        ("nic", "\"crad\"", "did you mean `per_card`?"),
        ("network_bandwith", "1.0", "did you mean `network_bandwidth`?"),
    ] {
        refused("", &format!("\n[machine]\n{key} = {value}\n"), &["tiny.toml", expected]);
    }
}

#[test]
fn impossible_options() {
    for (key, value, expected) in [
        ("tua", "0.1", "did you mean tau?"),
        ("tau", "nan", "use a number from 0 to 10"),
        ("tau", "inf", "use a number from 0 to 10"),
        ("tau", "-0.1", "use a number from 0 to 10"),
        ("tau", "\"x\"", "use a number from 0 to 10"),
        ("block", "0", "block = 0"),
        ("pieces", "0", "pieces = 0"),
        ("pieces", "2.5", "pieces = 2.5"),
        ("head_shards", "100000", "head_shards = 100000"),
        ("pool", "0", "pool = 0"),
        ("resend", "1", "resend = 1"),
    ] {
        refused("", &format!("\n[options.libra]\n{key} = {value}\n"), &["tiny.toml", "key `options`", expected]);
    }
    refused("", "\n[options.lirba]\ntau = 0.1\n", &["tiny.toml:25:", "system that does not exist"]);
}

#[test]
fn nothing_to_draw() {
    let metrics = "[\"straggler_mean\", \"straggler_max\"]";
    refused(metrics, "[]", &["tiny.toml:22:", "key `plot.metrics`", "no metric"]);
    refused(metrics, "[\"r_minus_1\"]", &["tiny.toml:22:", "kind waves has no r_minus_1"]);
    refused(metrics, "[\"scaling\"]\n[step_model]\nlinear = []\n[plot.x]", &["tiny.toml"]);
    refused("x = \"system\"", "x = \"block\"", &["tiny.toml:23:", "key `plot.x`", "choose from dp, cp, pool, system"]);
    refused(
        "x = \"system\"",
        "x = \"system\"\nbaseline = \"ulyses\"",
        &["tiny.toml:24:", "key `plot.baseline`", "did you mean ulysses?"],
    );
    refused("\"waves\"", "\"balance\"", &["grouping"]);
    refused("\"waves\"", "\"kernels\"", &["tiny.toml:22:", "kind kernels has no straggler_mean"]);
    refused(
        "names = [\"ulysses\", \"ulysses+sorted\", \"libra\"]",
        "names = []",
        &["tiny.toml:9:", "key `systems`", "no system"],
    );
    refused("names = [", "with = [\"telepathy\"]\nnames = [", &["tiny.toml:10:", "key `with`"]);
    refused("\"tiny\"", "\"\"", &["tiny.toml:2:", "key `figure`"]);
    refused("\"tiny\"", "\"../../tiny\"", &["tiny.toml:2:", "key `figure`"]);
}

#[test]
fn balance_experiments() {
    let balance = |groupings: &str, pools: &str, gbs: &str| {
        format!(
            "title = \"B\"\nfigure = \"b\"\nkind = \"balance\"\ndescription = \"B.\"\nsteps = 2\nquick_steps = 1\ngbs = {gbs}\n\
             groupings = {groupings}\n[[workload]]\nname = \"paper-256k\"\n[layout]\ndp = 4\n[sweep]\npool = {pools}\n\
             [plot]\nmetrics = [\"r_minus_1\", \"wave_r\"]\nx = \"pool\"\n"
        )
    };
    let lab = Lab::new();
    for (groupings, pools, gbs, expected) in [
        ("[]", "[2]", "8", "no grouping"),
        ("[\"random\", \"random\"]", "[2]", "8", "random is listed twice"),
        ("[\"zigzg\"]", "[2]", "8", "unknown grouping zigzg"),
        ("[\"random\"]", "[0]", "8", "a pool of 0 sequences"),
        ("[\"random\"]", "[9]", "8", "a pool of 9 sequences"),
        ("[\"random\"]", "[2, 4, 2]", "8", "2 is listed twice"),
        ("[\"random\"]", "[2]", "0", "gbs"),
    ] {
        lab.write("b.toml", balance(groupings, pools, gbs));
        let message = lab.run("run b.toml --out x").error(10);
        assert!(message.contains("b.toml:") && message.contains(expected), "{message}");
        assert!(!lab.exists("x"));
    }
    lab.write("b.toml", balance("[\"random\", \"vrsp\"]", "[1, 2, 8]", "8"));
    lab.run("run b.toml --out x").ok();
    let rows = lab.summary("x");
    assert_eq!(rows.len(), 2 * 2 * 3);
    assert!(rows.iter().all(|r| r["kind"] == "computed" && r["status"] == "ok" && r["n"] == 2));
}

#[test]
fn figures_of_one_study_have_names_of_their_own() {
    let lab = Lab::tiny();
    lab.write("again.toml", TINY);
    let message = lab.run("run tiny.toml again.toml --out x").error(10);
    assert!(message.contains("two experiments draw figure tiny"), "{message}");
    assert!(!lab.exists("x"));
}
