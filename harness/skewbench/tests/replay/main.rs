//! Replay from experiment to summary with a timer that stands in for a card.

mod calibrated;
mod fake;

use std::path::Path;

use fake::{FakeCard, Law};
use skewbench::calibrate::Journal;
use skewbench::cells::{CellSpec, LAUNCHES_TABLE, REPLAYED_TABLE, ReplayKey, Resources};
use skewbench::experiment::{Expanded, Metric, Scale, expand, find};
use skewbench::failure::{Exit, Failure};
use skewbench::present::{DRAWN, Loaded, evaluate, summary_rows};
use skewbench::replay::{Timing, prepare};
use skewbench::scheduler::{Options, Outcome, execute};
use skewbench_cuda::CardInfo;
use skewbench_store::{Kind, RowStatus, SummaryRow};

const TINY: &str = r#"title = "Tiny"
figure = "tiny"
kind = "waves"
description = "Straggler latency of every system on short windows."
gbs = 8
steps = 6
quick_steps = 1

[systems]
names = ["ulysses", "ulysses+sorted", "libra", "wlb"]

[options.libra]
block = 512

[[workload]]
name = "paper-256k"
window_tokens = 8192

[layout]
dp = 2
cp = 2
cards_per_node = 2

[plot]
metrics = ["straggler_mean", "speedup", "straggler_max"]
x = "system"
"#;

fn scale(budget_s: u32, replayed: bool) -> Scale {
    let key = ReplayKey { card: "a card".into(), driver: "1".into(), cudnn: "2".into(), budget_s };
    Scale { replay: replayed.then_some(key), ..Scale::default() }
}

struct Bench {
    folder: tempfile::TempDir,
    resources: Resources,
    expanded: Expanded,
}

impl Bench {
    fn new(text: &str, scale: &Scale) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tiny.toml");
        std::fs::write(&file, text).expect("written");
        let mut resources = Resources::default();
        let found = find(&file.to_string_lossy(), &[]).expect("an experiment");
        let expanded = expand(&found, scale, &mut resources).expect("expands");
        Self { folder, resources, expanded }
    }

    fn run(&self, card: &mut FakeCard) -> Result<Outcome, Failure> {
        let out = self.folder.path().join("out");
        execute(&[(&self.expanded, Path::new(&out))], &self.resources, &Options::default(), |cells| {
            let journal = self.folder.path().join("launches.jsonl");
            let journal = Journal::open(&journal, &CardInfo::default(), 1, None, true)?;
            prepare(cells, &self.resources, &mut Timing { timer: card, journal: Some(journal) })
        })
    }

    fn loaded(&self) -> (Loaded, Resources) {
        let mut resources = Resources::default();
        let loaded = Loaded::open(&self.folder.path().join("out"), &mut resources).expect("reads back");
        (loaded, resources)
    }

    fn rows(&self) -> Vec<SummaryRow> {
        let (loaded, resources) = self.loaded();
        let values = evaluate(&loaded, &resources);
        let reference = skewbench::commands::run::reference().expect("shipped");
        summary_rows(&loaded, &values, &reference)
    }
}

/// Mean straggler latencies of both passes, by system.
fn means(rows: &[SummaryRow]) -> Vec<(String, f64)> {
    let both = |row: &&SummaryRow| row.metric == "straggler_mean" && row.at["pass"] == "both";
    rows.iter().filter(both).map(|row| (row.system.clone(), row.value.expect("a value"))).collect()
}

#[test]
fn a_card_that_takes_what_the_profile_says_gives_what_the_simulator_gives() {
    let replayed = Bench::new(TINY, &scale(100_000, true));
    let mut card = FakeCard::new(Law::Exact);
    let outcome = replayed.run(&mut card).expect("runs");
    assert_eq!((outcome.failed, outcome.computed), (0, 4));
    let simulated = Bench::new(TINY, &scale(0, false));
    simulated.run(&mut FakeCard::new(Law::Exact)).expect("runs");
    let (ours, theirs) = (means(&replayed.rows()), means(&simulated.rows()));
    // Systems that hold documents back are replayed from their second half of the steps on.
    for ((system, ours), (other, theirs)) in ours.iter().zip(&theirs).filter(|((s, _), _)| s != "wlb") {
        assert_eq!(system, other);
        let steps_differ = 0.35;
        assert!((ours / theirs - 1.0).abs() < steps_differ, "{system}: {ours} {theirs}");
    }
}

#[test]
fn all_waves_of_stateless_systems_are_the_simulators() {
    let text = TINY.replace(", \"wlb\"", "");
    let replayed = Bench::new(&text, &scale(100_000, true));
    let mut card = FakeCard::new(Law::Exact);
    replayed.run(&mut card).expect("runs");
    let simulated = Bench::new(&text, &scale(0, false));
    simulated.run(&mut FakeCard::new(Law::Exact)).expect("runs");
    let (rows, theirs) = (replayed.rows(), simulated.rows());
    assert_eq!(rows.len(), theirs.len());
    for (ours, theirs) in rows.iter().zip(&theirs) {
        let (a, b) = (ours.value.expect("a value"), theirs.value.expect("a value"));
        assert!((a / b - 1.0).abs() < 1e-6, "{} {}: {a} {b}", ours.system, ours.metric);
        assert_eq!((ours.kind, ours.backend.as_str(), ours.n), (Kind::Replayed, "replay", theirs.n));
        assert_eq!((theirs.kind, theirs.backend.as_str()), (Kind::Simulated, "sim"));
    }
    assert_eq!(card.repeated(), 0, "a launch was timed twice");
    // A second run of the same folder asks the card nothing.
    let before = card.calls();
    let again = replayed.run(&mut card).expect("runs");
    assert_eq!((again.computed, card.calls()), (0, before));
}

#[test]
fn a_slow_card_slows_waves_and_ranks_that_were_not_timed() {
    let text = TINY
        .replace(", \"wlb\"", "")
        .replace("cp = 2\n", "cp = 16\n")
        .replace("[\"ulysses\", \"ulysses+sorted\", ", "[\"ring\", ");
    let slow = Bench::new(&text, &scale(100_000, true));
    slow.run(&mut FakeCard::new(Law::Factor(2.0))).expect("runs");
    let exact = Bench::new(&text, &scale(100_000, true));
    exact.run(&mut FakeCard::new(Law::Exact)).expect("runs");
    for ((system, slow), (_, exact)) in means(&slow.rows()).iter().zip(&means(&exact.rows())) {
        let ratio = slow / exact;
        assert!(ratio > 1.05 && ratio < 2.001, "{system}: {ratio}");
    }
    let (loaded, _) = slow.loaded();
    let waves = loaded.data.table(REPLAYED_TABLE).expect("a table");
    let (ranks, timed) = (waves.u32("ranks").expect("ranks"), waves.u32("timed_ranks").expect("timed"));
    assert!(ranks.iter().zip(timed).any(|(all, timed)| timed < all), "all ranks were timed");
    for ratio in waves.f64("forward_ratio").expect("ratios") {
        assert!((ratio - 2.0).abs() < 1e-6, "{ratio}");
    }
    let launches = loaded.data.table(LAUNCHES_TABLE).expect("a table");
    let warm_up = launches.bool("warm_up").expect("warm-up");
    let calls = launches.u32("call").expect("calls");
    assert!(warm_up.iter().zip(calls).all(|(warm_up, call)| !*warm_up || *call == 0));
    let (measured, predicted) = (launches.f64("measured_ns").expect("ns"), launches.f64("predicted_ns").expect("ns"));
    assert!(measured.iter().zip(predicted).all(|(m, p)| (m / p - 2.0).abs() < 1e-6));
}

#[test]
fn the_budget_sets_how_many_waves_are_timed() {
    let text = TINY.replace("steps = 6", "steps = 40").replace(", \"wlb\"", "");
    let bench = Bench::new(&text, &scale(4, true));
    bench.run(&mut FakeCard::new(Law::Noise(0.03))).expect("runs");
    let rows = bench.rows();
    let max: Vec<&SummaryRow> = rows.iter().filter(|r| r.metric == "straggler_max").collect();
    assert_eq!(max.len(), 3);
    assert!(max.iter().all(|r| r.status == RowStatus::Skipped && r.reason.as_deref() == Some(DRAWN)));
    let (loaded, _) = bench.loaded();
    let waves = loaded.data.table(REPLAYED_TABLE).expect("a table");
    let per_system = waves.rows() / 3;
    assert!((8..160).contains(&per_system), "{per_system}");
    assert!(means(&rows).len() == 3);
}

#[test]
fn a_budget_that_is_too_small_says_how_much_is_needed() {
    let bench = Bench::new(TINY, &scale(1, true));
    let failure = bench.run(&mut FakeCard::new(Law::Exact)).expect_err("too small");
    assert_eq!(failure.exit, Exit::Config);
    assert!(failure.message.contains("give --budget"), "{failure}");
}

#[test]
fn a_budget_for_some_cells_leaves_the_others_out_with_the_reason() {
    let text = TINY.replace(", \"wlb\"", "");
    let found = (1..60).find_map(|budget_s| {
        let bench = Bench::new(&text, &scale(budget_s, true));
        let outcome = bench.run(&mut FakeCard::new(Law::Exact)).ok()?;
        (outcome.failed > 0).then_some((bench, outcome))
    });
    let (bench, outcome) = found.expect("a budget for some");
    assert!(outcome.failed < 3, "{outcome:?}");
    let rows = bench.rows();
    let left_out = |r: &&SummaryRow| r.reason.as_deref().is_some_and(|why| why.contains("left out: "));
    assert!(rows.iter().any(|r| r.status == RowStatus::Ok));
    assert!(rows.iter().filter(|r| r.status == RowStatus::Failed).all(|r| left_out(&r)));
}

#[test]
fn a_stopped_run_goes_on_with_the_launches_that_it_timed() {
    let text = TINY.replace(", \"wlb\"", "");
    let bench = Bench::new(&text, &scale(100_000, true));
    let mut card = FakeCard::new(Law::Noise(0.03));
    bench.run(&mut card).expect("runs");
    let rows = bench.rows();
    // As if the process had ended after half of the launches, before any cell was stored.
    let journal = bench.folder.path().join("launches.jsonl");
    let lines: Vec<String> = std::fs::read_to_string(&journal).expect("a journal").lines().map(str::to_owned).collect();
    assert_eq!(lines.len() as u32, card.calls() + 1);
    let kept = lines.len() / 2;
    std::fs::write(&journal, format!("{}\n", lines[..kept].join("\n"))).expect("written");
    std::fs::remove_dir_all(bench.folder.path().join("out")).expect("removed");
    let again = Bench { resources: Resources::default(), ..bench };
    let mut resources = Resources::default();
    let expanded = expand(&again.expanded.found, &again.expanded.scale, &mut resources).expect("expands");
    let again = Bench { resources, expanded, ..again };
    let mut rest = FakeCard::new(Law::Noise(0.03));
    again.run(&mut rest).expect("runs");
    assert_eq!(rest.calls() as usize, lines.len() - kept);
    assert_eq!(
        again.rows().iter().map(|r| r.value).collect::<Vec<_>>(),
        rows.iter().map(|r| r.value).collect::<Vec<_>>()
    );
}

#[test]
fn launches_that_the_card_refuses_fail_their_cells_only() {
    let text = TINY.replace(", \"wlb\"", "");
    let bench = Bench::new(&text, &scale(100_000, true));
    let outcome = bench.run(&mut FakeCard::new(Law::NoMemoryFor { q_heads: 16 })).expect("runs");
    assert!(outcome.failed > 0 && outcome.failed < 4, "{outcome:?}");
    let rows = bench.rows();
    let failed: Vec<&SummaryRow> = rows.iter().filter(|r| r.status == RowStatus::Failed).collect();
    assert!(failed.iter().any(|r| r.reason.as_deref().is_some_and(|why| why.contains("bytes free"))), "{failed:?}");
}

#[test]
fn kernel_rates_are_those_of_the_card() {
    let text = "title = \"Rates\"\nfigure = \"rates\"\nkind = \"kernels\"\ndescription = \"Rates.\"\nsteps = 1\nquick_steps = 1\n\
                [plot]\nmetrics = [\"kernel_rate\"]\nx = \"block\"\n";
    let replayed = |law: Law| {
        let bench = Bench::new(text, &scale(1000, true));
        bench.run(&mut FakeCard::new(law)).expect("runs");
        bench.rows()
    };
    let table = Bench::new(text, &scale(0, false));
    table.run(&mut FakeCard::new(Law::Exact)).expect("runs");
    let (slow, exact, table) = (replayed(Law::Factor(2.0)), replayed(Law::Exact), table.rows());
    assert_eq!((slow.len(), exact.len()), (table.len(), table.len()));
    let mut off = Vec::new();
    for ((slow, exact), table) in slow.iter().zip(&exact).zip(&table) {
        let [slow_rate, rate, row] = [slow, exact, table].map(|row| row.value.expect("a rate"));
        assert!((rate / slow_rate - 2.0).abs() < 1e-6, "{:?}: {rate} against {slow_rate}", slow.at);
        off.push((row / rate - 1.0).abs());
        assert_eq!((slow.kind, slow.backend.as_str(), table.backend.as_str()), (Kind::Measured, "replay", "none"));
        assert!(slow.n >= 1);
    }
    // The price of a shape is that of the law, its row what was measured.
    off.sort_by(f64::total_cmp);
    assert!(off[off.len() / 2] < 0.04, "{}", off[off.len() / 2]);
}

#[test]
fn experiments_of_whole_steps_and_of_lengths_stay_as_they_are() {
    let text = TINY
        .replace("metrics = [\"straggler_mean\", ", "metrics = [\"straggler_max\", \"straggler_mean\", ")
        .replace(", \"straggler_max\"]", "]");
    let bench = Bench::new(&text, &scale(300, true));
    assert!(bench.expanded.replay().is_none());
    let cells = bench.expanded.cells.iter();
    assert!(cells.filter_map(|c| if let CellSpec::Waves(c) = c { Some(c) } else { None }).all(|c| c.replay.is_none()));
    assert!(Metric::StragglerMean.of_single_waves() && !Metric::Throughput.of_single_waves());
}
