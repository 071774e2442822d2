//! The first page answers when to use what, from the values of the run alone.

use crate::common::Lab;

const ASKED: &str = concat!(
    r#"--set systems.names=["ulysses","ulysses+sorted","wlb","distca-pool","libra","libra-calibrated"] "#,
    r#"--set plot.metrics=["straggler_mean","straggler_max","speedup","speedup_max","sent_bytes","peak_memory","late_share","delay_steps"]"#
);

#[test]
fn questions_are_answered_from_the_run() {
    let lab = Lab::tiny();
    lab.run(&format!("run tiny.toml --out study --set steps=8 {ASKED}")).ok();
    let page = |name: &str| std::fs::read_to_string(lab.path(&format!("study/{name}"))).unwrap();
    let index = page("index.html");
    for text in [
        "When to use what",
        "Does balancing in bounded pools suffice?",
        "against the same tiles over one pool of all ranks (distca-pool), paired on the same steps",
        "What does it cost: bytes, memory, planning?",
        "the busiest rank sends, for one layer of a wave: ulysses",
        "When is placing whole sequences in sorted waves enough?",
        "When is holding long documents back (wlb) better?",
        "per token on the same steps",
        "Do the mean and the slowest wave lead to the same choice?",
        "href=\"planning.html\"",
        "id=\"costs\"",
    ] {
        assert!(index.contains(text), "{text}");
    }
    assert!(!index.contains("From how many data-parallel ranks"), "nothing swept DP");
    let planning = page("planning.html");
    assert!(planning.contains("thinks longest") && planning.contains("libra-calibrated"));
    let libra = page("system-libra.html");
    assert!(libra.contains("id=\"costs-libra\"") && libra.contains("href=\"planning.html\""));
    // The values of the table are those of summary.json.
    let rows = lab.summary("study");
    let speedup = rows.iter().find(|r| r["system"] == "libra" && r["metric"] == "speedup").unwrap();
    let csv = page("data/costs.csv");
    assert!(csv.contains(&format!(",libra,{}", speedup["value"])), "{csv}");
}

#[test]
fn a_run_of_one_system_answers_nothing() {
    let lab = Lab::tiny();
    lab.run(r#"run tiny.toml --quick --out study --set systems.names=["ring"] --set plot.metrics=["straggler_mean"]"#)
        .ok();
    let index = std::fs::read_to_string(lab.path("study/index.html")).unwrap();
    assert!(!index.contains("When to use what"));
}
