//! `compare`: the same run is the same, a slower network is found.

use serde_json::Value;

use crate::common::{Lab, MOVING, differing};

#[test]
fn the_same_run_is_the_same() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --out a").ok();
    lab.run("run tiny.toml --out b --threads 1").ok();
    let rows = lab.run("compare a b --fail-on 0 --format json").json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3 * 2);
    for row in rows {
        assert_eq!((&row["verdict"], row["ratio"].as_f64()), (&Value::from("same"), Some(1.0)), "{row}");
    }
    assert!(lab.run("compare a b").ok().contains("same"));
    // A run folder by itself is as good as its study.
    lab.run("compare a/run/tiny b/run/tiny --fail-on 0").ok();
}

#[test]
fn a_slower_network_is_a_regression() {
    let lab = Lab::tiny();
    lab.run(&format!("run tiny.toml --out fast {MOVING}")).ok();
    lab.run(&format!("run tiny.toml --out slow {MOVING} --set machine.network_bandwidth='50Gb/s'")).ok();
    let verdict = |rows: &Value, system: &str, metric: &str| {
        let rows = rows.as_array().unwrap();
        rows.iter().find(|r| r["system"] == system && r["metric"] == metric).unwrap()["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let rows = lab.run("compare fast slow --format json").json();
    assert_eq!(verdict(&rows, "libra", "straggler_mean"), "slower");
    assert_eq!(verdict(&rows, "libra", "throughput"), "slower");
    assert_eq!(verdict(&rows, "ulysses", "straggler_mean"), "same");
    let rows = lab.run("compare slow fast --fail-on 0.5 --format json").json();
    assert_eq!(verdict(&rows, "libra", "straggler_mean"), "faster");
    let message = lab.run("compare fast slow --fail-on 1");
    assert_eq!(message.code, Some(30), "{}", message.stderr);
    assert!(message.stderr.contains("libra") && message.stderr.contains("worse"), "{}", message.stderr);
    lab.run("compare fast slow --fail-on 100000").ok();
}

#[test]
fn several_runs_have_a_page_that_says_what_can_be_compared() {
    let lab = Lab::tiny();
    lab.run(&format!("run tiny.toml --quick --out fast {MOVING}")).ok();
    lab.run(&format!("run tiny.toml --quick --out slow {MOVING} --set machine.network_bandwidth='50Gb/s'")).ok();
    lab.run(&format!("run tiny.toml --quick --out drawn --seed 9 {MOVING}")).ok();
    let done = lab.run("compare fast slow --out both");
    assert!(done.stderr.contains("runs.html"), "{}", done.stderr);
    let page = |path: &str| std::fs::read_to_string(lab.path(path)).unwrap();
    let both = page("both/runs.html");
    assert!(both.contains("ran the same steps but are not comparable as systems: other profile"), "{both}");
    assert!(both.contains("compare-1-2") && lab.exists("both/tiny-run2.html"));
    assert!(page("both/tiny.html").contains("(fast)") && page("both/tiny-run2.html").contains("(slow)"));
    // Rows of the two runs are told apart.
    let rows = lab.summary("both");
    assert_eq!(rows.iter().filter(|r| r["at"]["run"] == "slow").count() * 2, rows.len());
    lab.run("report fast drawn --out other").ok();
    let other = page("other/runs.html");
    assert!(other.contains("cannot be compared: other seed (1 against 9)"), "{other}");
    assert!(!other.contains("compare-1-2"));
    // Rendering the same runs again gives the same bytes, and one run alone has no such page.
    lab.run("report fast slow --out again").ok();
    assert_eq!(differing(&lab.shared_bytes("both"), &lab.shared_bytes("again")), [""; 0]);
    assert!(!lab.exists("fast/runs.html"));
}

#[test]
fn a_wave_of_every_system_is_shown_over_time() {
    let lab = Lab::tiny();
    lab.run(&format!("run tiny.toml --quick --out study {MOVING} --set bandwidth_band=true")).ok();
    assert!(lab.exists("study/run/tiny/timeline.parquet"));
    for system in ["libra", "ulysses"] {
        let page = std::fs::read_to_string(lab.path(&format!("study/system-{system}.html"))).unwrap();
        assert!(page.contains("A wave over time") && page.contains("is the straggler"), "{system}");
    }
    lab.run("results check study").ok();
}

#[test]
fn runs_that_share_nothing() {
    let lab = Lab::tiny();
    lab.run("run tiny.toml --quick --out a").ok();
    for (out, change) in
        [("seed", "--seed 9"), ("window", "--set workload.0.window_tokens=4096"), ("layout", "--set layout.dp=4")]
    {
        lab.run(&format!("run tiny.toml --quick --out {out} {change}")).ok();
        let message = lab.run(&format!("compare a {out}")).error(10);
        assert!(message.contains("share no cell"), "{message}");
    }
}

#[test]
fn systems_that_hold_documents_back_are_compared_over_all_that_ran() {
    let lab = Lab::tiny();
    let set = "--set systems.names=[\"ulysses\",\"wlb\"] --set steps=12 --set plot.metrics=[\"time_per_token\",\"speedup\",\"late_share\",\"delay_steps\",\"throughput\"]";
    lab.run(&format!("run tiny.toml --out a {set}")).ok();
    lab.run(&format!("run tiny.toml --out b {set} --set options.wlb.max_delay=2")).ok();
    let table = lab.run("compare a b").ok();
    assert!(table.contains("wlb"), "{table}");
    let rows = lab.summary("a");
    let of = |metric: &str| rows.iter().find(|r| r["system"] == "wlb" && r["metric"] == metric).unwrap();
    assert!(of("late_share")["value"].as_f64().unwrap() > 0.0);
    assert!(of("delay_steps")["value"].as_f64().unwrap() >= 1.0);
    let per_token = |system: &str| {
        let row = rows.iter().find(|r| r["system"] == system && r["metric"] == "time_per_token").unwrap();
        row["value"].as_f64().unwrap()
    };
    let speedup = of("speedup")["value"].as_f64().unwrap();
    assert!((speedup - per_token("ulysses") / per_token("wlb")).abs() < 1e-9 * speedup);

    // What was held back would be missing from a shorter comparison.
    lab.run(&format!("run tiny.toml --out c {set} --set steps_of.ulysses=5"));
    let reason = lab.summary("c").into_iter().find(|r| r["system"] == "wlb" && r["metric"] == "speedup").unwrap();
    assert!(reason["reason"].as_str().unwrap().contains("holds documents back"), "{reason}");
}
