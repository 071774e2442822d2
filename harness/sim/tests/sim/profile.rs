//! Profiles, overrides and models: strict parsing, clear refusals.

use proptest::prelude::*;
use skewbench_config::parse_strict;
use skewbench_sim::{
    Overrides, Profile, Transport,
    profile::{SourceKind, built_in},
    step_model::Model,
};

fn text() -> &'static str {
    built_in("h200").expect("built in")
}

fn refusal(from: &str, to: &str) -> String {
    assert!(text().contains(from), "{from}");
    Profile::parse(&text().replacen(from, to, 1), "mine.json").expect_err("must be refused").to_string()
}

fn refused(from: &str, to: &str, key: &str) {
    let message = refusal(from, to);
    assert!(message.starts_with(&format!("mine.json: {key} = ")), "{to}: {message}");
}

/// What follows `start` in the built-in profile, up to one of these.
fn after(start: &str, ends: &[char]) -> &'static str {
    let rest = text().split_once(start).expect("there").1;
    rest.split(ends).next().expect("a part")
}

#[test]
fn the_built_in_profile_is_valid_and_says_its_sources() {
    let profile = Profile::named("h200").expect("valid");
    for (part, source) in profile.sources() {
        assert!(!source.note.is_empty(), "{part}");
        assert_eq!(source.kind == SourceKind::Measured, source.run.is_some(), "{part}");
    }
    let again = serde_json::to_string(&profile).expect("serialises");
    assert_eq!(Profile::parse(&again, "again"), Ok(profile));
}

#[test]
fn unknown_keys_name_file_line_and_the_nearest_key() {
    let message = refusal("\"oversubscription\"", "\"oversubscripton\"");
    let line = text().lines().position(|l| l.contains("oversubscription\"")).expect("there") + 1;
    assert!(message.starts_with(&format!("mine.json:{line}: unknown key `oversubscripton`")), "{message}");
    assert!(message.contains("did you mean `oversubscription`?"), "{message}");
    let message = Profile::named("h20").expect_err("unknown").to_string();
    assert!(message.contains("did you mean h200?"), "{message}");
}

#[test]
fn impossible_values_name_their_key() {
    for (from, to, key) in [
        ("\"schema\": 1", "\"schema\": 2", "schema"),
        ("\"memory_bytes\": 141000000000", "\"memory_bytes\": 0", "card.memory_bytes"),
        ("\"bf16_flops_per_s\": 989400000000000.0", "\"bf16_flops_per_s\": -1", "card.bf16_flops_per_s"),
        ("\"bf16_flops_per_s\": 989400000000000.0", "\"bf16_flops_per_s\": 1e30", "card.bf16_flops_per_s"),
        ("\"multiprocessors\": 132", "\"multiprocessors\": 0", "card.multiprocessors"),
        ("\"efficiency\": 0.9", "\"efficiency\": 1.9", "network.efficiency"),
        ("\"oversubscription\": 1.0", "\"oversubscription\": 0.5", "network.oversubscription"),
        ("\"latency_ns\": 10000.0", "\"latency_ns\": -3", "network.latency_ns"),
        ("\"relative_sd\": 0.0", "\"relative_sd\": 2", "card_speed.relative_sd"),
    ] {
        refused(from, to, key);
    }
    // Numbers that change with every calibration are taken from the file.
    let rate = after("\"transfer_rate\": ", &[',', '\n']);
    refused(&format!("\"transfer_rate\": {rate}"), "\"transfer_rate\": 0", "contention.nccl.transfer_rate");
    let point = after("\"points_bytes_ns\": [", &[']']).trim_start().trim_start_matches('[');
    let (bytes, ns) = point.split_once(", ").expect("a pair");
    refused(&format!("[{point}]"), &format!("[0, {ns}]"), "intra_node.nccl.points_bytes_ns");
    refused(&format!("[{point}]"), &format!("[{bytes}, 0]"), "intra_node.nccl.points_bytes_ns");
    let row = after("\"bottom_right\": [", &[']']).trim_start();
    let fields: Vec<&str> = row.split(", ").collect();
    let longer = format!("{}0", fields[4]);
    for (place, with) in [(5, "1"), (2, "5"), (3, longer.as_str())] {
        let mut changed = fields.clone();
        changed[place] = with;
        refused(row, &changed.join(", "), "attention.bottom_right[0]");
    }
    assert!(refusal("\"50 GB/s\"", "\"50 GBps\"").contains("write a number and a unit"));
    assert!(refusal("\"50 GB/s\"", "\"0 GB/s\"").contains("network.bandwidth"));
    assert!(refusal("\"nccl\",", "\"ncl\",").contains("did you mean `nccl`?"));
}

#[test]
fn overrides_are_strict_and_labelled() {
    let profile = Profile::named("h200").expect("valid");
    let text = "network_bandwidth = \"200 Gb/s\"\ntransport = \"copy_engines\"\noversubscription = 2.0";
    let parsed: Overrides = parse_strict(text, "fig.toml").expect("valid");
    let changed = parsed.apply(&profile, "fig.toml").expect("valid");
    assert_eq!(changed.network.bandwidth.bytes_per_s(), 25e9);
    assert_eq!(changed.transport, Transport::CopyEngines);
    assert!(changed.network.source.note.starts_with("set by the experiment"));
    assert_eq!(Overrides::default().apply(&profile, "fig.toml"), Ok(profile.clone()));
    let unknown = parse_strict::<Overrides>("nic = \"per_card\"\nnetwork_bandwith = \"1 Gb/s\"", "fig.toml");
    let message = unknown.expect_err("refused").to_string();
    let expected = "fig.toml:2: unknown key `network_bandwith`; did you mean `network_bandwidth`?";
    assert!(message.starts_with(expected), "{message}");
    let nan: Overrides = parse_strict("network_efficiency = nan", "fig.toml").expect("a number");
    let message = nan.apply(&profile, "fig.toml").expect_err("refused").to_string();
    assert!(message.starts_with("fig.toml: network.efficiency = NaN"), "{message}");
}

#[test]
fn model_files_are_strict() {
    assert_eq!(Model::presets().expect("valid").len(), 5);
    let qwen = Model::named("qwen3-30b-a3b").expect("there");
    assert_eq!((qwen.layers, qwen.hidden, qwen.head_dim), (48, 2048, 128));
    assert!(Model::named("llama-3-8").expect_err("unknown").to_string().contains("did you mean llama-3-8b?"));
    let good = "[[model]]\nname = \"m\"\nlayers = 2\nhidden = 64\nq_heads = 8\nkv_heads = 2\nhead_dim = 16\nffn = 128\nexperts = 0\n\
                experts_per_token = 0\nmoe_ffn = 0\nvocab = 100\nsource = \"mine\"\nunverified = []\n";
    assert!(Model::parse_list(good, "m.toml").is_ok());
    for (from, to, expected) in [
        ("ffn = 128", "fnn = 128", "m.toml:8: unknown key `fnn`; did you mean `ffn`?"),
        ("layers = 2", "layers = 0", "m.toml: model m: layers = 0"),
        ("layers = 2", "layers = -2", "m.toml:3: "),
        ("kv_heads = 2", "kv_heads = 3", "m.toml: model m: kv_heads = 3: must divide q_heads"),
        ("ffn = 128", "ffn = 0", "m.toml: model m: ffn = 0"),
        ("experts = 0", "experts = 4", "m.toml: model m: experts_per_token = 0"),
        ("vocab = 100\n", "", "m.toml:1: key `vocab` is missing"),
    ] {
        let message = Model::parse_list(&good.replacen(from, to, 1), "m.toml").expect_err("refused").to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_profiles_never_panic(at in any::<prop::sample::Index>(), with in "[ -~]{0,4}", cut in any::<bool>()) {
        let mut damaged = text().to_owned();
        let at = at.index(damaged.len());
        if cut {
            damaged.truncate(at);
        } else {
            damaged.replace_range(at..(at + 1).min(text().len()), &with);
        }
        if let Ok(profile) = Profile::parse(&damaged, "damaged") {
            skewbench_sim::Pricing::new(profile);
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,200}") {
        let _ = Profile::parse(&text, "any");
        let _ = Model::parse_list(&text, "any");
        let _ = text.parse::<skewbench_sim::profile::Bandwidth>();
    }
}
