//! `skewbench recommend`: which system for a user's lengths, model and cluster.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use skewbench_plan::Layout;
use skewbench_systems::registry;

use super::output;
use super::plan::layout;
use super::run::{Study, carry_out, elsewhere, judge};
use crate::cells::Resources;
use crate::cli::{Backend, Format, RecommendArgs};
use crate::experiment::{Experiment, Found, LayoutFile, Scale, find, made};
use crate::failure::{Exit, Failure};
use crate::present::{Loaded, RECOMMEND as ID, Recommendation, Standing, gigabits, recommendations, sentences};

/// Packed sequences of a data-parallel rank, unless told otherwise.
const WAVES: u32 = 8;
/// Largest pool that is tried unless asked for: what larger ones take to plan grows faster than what they can gain.
const LARGEST_POOL: u32 = 16;
/// Shares of the profile's bandwidth between nodes that are tried beside it.
const NETWORKS: [f64; 3] = [0.5, 1.0, 2.0];
/// Keys of an experiment that stay; all others say what it draws and how much it runs.
const KEPT: [&str; 13] = [
    "workload",
    "systems",
    "options",
    "model",
    "profile",
    "machine",
    "layout",
    "gbs",
    "seed",
    "check",
    "memory_limit_bytes",
    "step_model",
    "tuned",
];

/// Compares all systems on a user's lengths and says which to run.
///
/// # Errors
/// Unknown names, unreadable files, layouts that cannot be run, another backend than the simulator, failed cells (exit 21).
pub fn run(args: &RecommendArgs) -> Result<(), Failure> {
    if args.common.backend != Backend::Sim {
        return Err(Failure::usage(
            "--backend: recommend compares training steps, of which only the simulator has all waves; leave it out, and check the answer with run --backend replay",
        ));
    }
    if args.steps == 0 {
        return Err(Failure::usage("--steps 0; give at least 1, and 5 for verdicts"));
    }
    if args.window == Some(0) {
        return Err(Failure::usage("--window 0; give tokens of a packed sequence"));
    }
    if let Some(twice) = (1..args.layouts.len()).find(|i| args.layouts[..*i].contains(&args.layouts[*i])) {
        return Err(Failure::usage(format!("--layout {} is given twice", args.layouts[twice])));
    }
    let found = experiment(args)?;
    let scale = Scale {
        systems: args.systems.clone(),
        seed: args.common.seed,
        profile: args.common.profile.clone(),
        ..Scale::default()
    };
    let study = Study::new(vec![found], scale, &args.changes)?;
    let out = args.common.out.clone().unwrap_or_else(|| PathBuf::from("results/runs").join(study.name(ID)));
    let done = carry_out(study, &args.common, None, &out, false)?;
    let Some(page) = &done.page else {
        elsewhere(&done.outcome);
        return Ok(());
    };
    let mut resources = Resources::default();
    let mut all = Vec::new();
    for folder in &done.folders {
        all.extend(recommendations(&Loaded::open(folder, &mut resources)?, &resources));
    }
    print(&all, args.common.format)?;
    eprintln!("report: {}", page.display());
    if done.outcome.failed > 0 {
        let what = "some cells failed; the report and summary.json say which and why";
        return judge(&done.rows).and(Err(Failure::new(Exit::Cells, what)));
    }
    judge(&done.rows)
}

/// The experiment that answers the question.
fn experiment(args: &RecommendArgs) -> Result<Found, Failure> {
    let mut table = toml::Table::new();
    let mut layouts = args.layouts.iter().map(|text| layout(text)).collect::<Result<Vec<_>, _>>()?;
    let mut degrees = (vec![0], vec![0]);
    let mut pools = args.pools.clone();
    if args.name.ends_with(".toml") {
        if args.window.is_some() || args.packing.is_some() {
            return Err(Failure::usage("--window and --packing are those of the experiment's workloads; use --set"));
        }
        let Found { text, experiment, .. } = find(&args.name, &[])?;
        table = toml::from_str(&text).map_err(Failure::internal)?;
        if !(experiment.variants.is_empty() && experiment.sweep.set.is_empty()) {
            let what = "sweeps other keys than dp, cp and pool; recommend sweeps the network itself, remove `variant` and `sweep.set`";
            return Err(Failure::config(format!("{}: {what}", args.name)));
        }
        table.retain(|key, _| KEPT.contains(&key));
        let listed = |list: &[u32], one: u32| if list.is_empty() { vec![one] } else { list.to_vec() };
        degrees =
            (listed(&experiment.sweep.dp, experiment.layout.dp), listed(&experiment.sweep.cp, experiment.layout.cp));
        if pools.is_empty() {
            pools = experiment.sweep.pool;
        }
        put(&mut table, "plot.baseline", args.baseline.as_ref().unwrap_or(&experiment.plot.baseline).as_str());
    } else {
        let mut workload = toml::Table::new();
        workload.insert("name".into(), args.name.clone().into());
        workload.extend(args.window.map(|window| ("window_tokens".into(), i64::from(window).into())));
        workload.extend(args.packing.clone().map(|packing| ("packing".into(), packing.into())));
        table.insert("workload".into(), vec![toml::Value::Table(workload)].into());
        put(&mut table, "plot.baseline", args.baseline.as_deref().unwrap_or("ulysses"));
        if layouts.is_empty() {
            layouts.push(Layout::dp_cp(8, 8));
        }
    }
    if !table.contains_key("systems") {
        let all: Vec<toml::Value> = registry::systems().into_iter().map(|s| s.name.into()).collect();
        put(&mut table, "systems.names", all);
    }
    if let Some(model) = &args.model {
        put(&mut table, "model", model.as_str());
    }
    if layouts.is_empty() {
        put(&mut table, "sweep.dp", numbers(&degrees.0));
        put(&mut table, "sweep.cp", numbers(&degrees.1));
    } else {
        place(&mut table, &layouts);
        degrees = (layouts.iter().map(|l| l.dp).collect(), Vec::new());
    }
    let most = degrees.0.iter().copied().max().unwrap_or(1);
    match args.gbs {
        Some(gbs) => put(&mut table, "gbs", i64::from(gbs)),
        None if !table.contains_key("gbs") => put(&mut table, "gbs", i64::from(most.saturating_mul(WAVES))),
        None => {}
    }
    if pools.is_empty() {
        pools = (0..).map(|i| 1 << i).take_while(|p| *p <= most.min(LARGEST_POOL)).collect();
    }
    put(&mut table, "sweep.pool", numbers(&pools));
    describe(&mut table, args);
    let base = made(ID, &table, &args.changes)?;
    if args.one_network || !between_nodes(&base.experiment, &layouts) {
        return Ok(base);
    }
    let mut table: toml::Table = toml::from_str(&base.text).map_err(Failure::internal)?;
    let bandwidths = networks(&base.experiment, args.common.profile.as_deref())?;
    let mut set = toml::Table::new();
    set.insert("machine.network_bandwidth".into(), bandwidths.into());
    put(&mut table, "sweep.set", set);
    made(ID, &table, &[])
}

/// What the experiment is called, draws and runs.
fn describe(table: &mut toml::Table, args: &RecommendArgs) {
    let texts = [
        ("title", format!("Which system for {}", args.name)),
        ("figure", ID.to_owned()),
        ("kind", "waves".to_owned()),
        ("description", "Tokens a card and second of training steps with physical linear work, against the sequences of a pool; systems without pools are level lines.".to_owned()),
        ("plot.x", "pool".to_owned()),
    ];
    for (key, text) in texts {
        put(table, key, text);
    }
    let differs = [
        "A simulation of your lengths on a profile: its errors, and those of the network that it assumes, are in no interval.",
        "System and pool are chosen on the steps that they are reported on: among systems that are not told apart the fastest is so partly by chance.",
        "A system that holds documents back has a queue that a few steps do not settle; what is left in it runs in extra steps that count. More --steps tell it better.",
    ];
    put(table, "differs", differs.map(toml::Value::from).to_vec());
    let metrics = [
        "throughput",
        "speedup",
        "straggler_mean",
        "straggler_max",
        "wave_r",
        "sent_bytes",
        "peak_memory",
        "late_share",
    ];
    put(table, "plot.metrics", metrics.map(toml::Value::from).to_vec());
    put(table, "steps", i64::from(args.steps));
    put(table, "quick_steps", i64::from(args.steps));
}

/// Puts one layout into the experiment, or several as variants.
fn place(table: &mut toml::Table, layouts: &[Layout]) {
    type Degree = (&'static str, fn(&Layout) -> u32);
    const DEGREES: [Degree; 5] = [
        ("dp", |l| l.dp),
        ("cp", |l| l.cp),
        ("pp", |l| l.pp),
        ("tp", |l| l.tp),
        ("cards_per_node", |l| l.cards_per_node),
    ];
    // Workloads of an experiment may have context parallelism of their own.
    for workload in table.get_mut("workload").and_then(toml::Value::as_array_mut).into_iter().flatten() {
        workload.as_table_mut().map(|workload| workload.remove("cp"));
    }
    let Some(first) = layouts.first() else { return };
    for (key, of) in DEGREES {
        put(table, &format!("layout.{key}"), i64::from(of(first)));
    }
    if layouts.len() > 1 {
        let differs = |of: fn(&Layout) -> u32| layouts.iter().any(|l| of(l) != of(first));
        let variants = layouts.iter().map(|layout| {
            let told = DEGREES.iter().filter(|(key, of)| ["dp", "cp"].contains(key) || differs(*of));
            let set = told.map(|(key, of)| (format!("layout.{key}"), i64::from(of(layout)).into()));
            toml::Value::Table([("set".to_owned(), toml::Value::Table(set.collect()))].into_iter().collect())
        });
        table.insert("variant".into(), variants.collect::<Vec<_>>().into());
    }
}

/// True where a layout has cards in several nodes.
fn between_nodes(e: &Experiment, layouts: &[Layout]) -> bool {
    let LayoutFile { pp, tp, cards_per_node, .. } = e.layout;
    let largest = |list: &[u32], one: u32| list.iter().copied().max().unwrap_or(one);
    let cp = e.workloads.iter().filter_map(|w| w.cp).fold(largest(&e.sweep.cp, e.layout.cp), u32::max);
    let cards = [largest(&e.sweep.dp, e.layout.dp), cp, pp, tp].into_iter().map(u64::from).product::<u64>();
    cards > u64::from(cards_per_node) || layouts.iter().any(|l| l.cards() > u64::from(l.cards_per_node))
}

/// Bandwidths between nodes that are tried.
fn networks(e: &Experiment, profile: Option<&str>) -> Result<Vec<toml::Value>, Failure> {
    let mut resources = Resources::default();
    let machine = resources.machine(profile.unwrap_or(&e.profile), &e.machine)?;
    let profile = resources.pricing(&machine)?.profile();
    Ok(NETWORKS.iter().map(|times| gigabits(profile, *times).into()).collect())
}

fn numbers(list: &[u32]) -> Vec<toml::Value> {
    list.iter().map(|n| i64::from(*n).into()).collect()
}

/// Sets a key of a table, or of a table in it.
fn put(table: &mut toml::Table, key: &str, value: impl Into<toml::Value>) {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value.into())),
        Some((outer, inner)) => {
            let nested = table.entry(outer).or_insert_with(|| toml::Table::new().into());
            if let Some(nested) = nested.as_table_mut() {
                nested.insert(inner.to_owned(), value.into());
            }
        }
    }
}

fn print(all: &[Recommendation], format: Format) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Jsonl => output::records(&all.iter().map(setting).collect::<Vec<_>>(), format),
        Format::Csv => {
            output::records(&all.iter().flat_map(|r| r.standings.iter().map(|s| row(r, s))).collect::<Vec<_>>(), format)
        }
        Format::Human => {
            for nominal in all.iter().filter(|r| r.nominal) {
                output::line(format!("{}, simulated on profile {}", nominal.setting(), nominal.profile))?;
                output::records(&table(nominal, all), format)?;
                output::line("")?;
            }
            sentences(all).iter().try_for_each(output::line)
        }
    }
}

fn rounded(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

/// The systems of a setting as they are printed for people, with what other networks make of them.
fn table(nominal: &Recommendation, all: &[Recommendation]) -> Vec<Map<String, Value>> {
    let others: Vec<&Recommendation> = nominal.elsewhere(all).collect();
    let over = |s: &Standing| s.over_best.as_ref().map_or_else(|| "1.000".into(), |c| format!("{:.3}", c.ratio));
    let verdict = |s: &Standing| s.over_best.as_ref().map_or_else(|| "fastest".into(), |c| json!(c.verdict));
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for s in &nominal.standings {
        let mut row = Map::new();
        row.insert("system".into(), json!(s.system));
        row.insert("P".into(), s.pool.map_or_else(|| "".into(), Into::into));
        row.insert("tokens/s/card".into(), json!(format!("{:.0}", s.tokens_per_card_s)));
        row.insert(format!("over {}", nominal.baseline), json!(s.gain.map(|gain| format!("{gain:.2}x"))));
        row.insert("time".into(), json!(over(s)));
        let interval = s.over_best.as_ref().map(|c| format!("{:.3} .. {:.3}", c.ci_low, c.ci_high));
        row.insert("95% interval".into(), json!(interval));
        row.insert("verdict".into(), verdict(s));
        row.insert("attention".into(), json!(format!("{:.3}", s.attention_over_best)));
        for other in &others {
            let there = other.standings.iter().find(|t| t.system == s.system);
            let text = there.map_or_else(
                || "failed".into(),
                |t| {
                    let pool = t.pool.filter(|p| Some(*p) != s.pool).map(|p| format!(", P = {p}")).unwrap_or_default();
                    format!("{} {}{pool}", over(t), verdict(t).as_str().unwrap_or_default())
                },
            );
            row.insert(other.network.clone().unwrap_or_default(), json!(text));
        }
        rows.push(row);
    }
    let keys: Vec<String> = rows.first().map(|row| row.keys().cloned().collect()).unwrap_or_default();
    for (system, why) in &nominal.failed {
        let cell = |key: &String| match key.as_str() {
            "system" => json!(system),
            "verdict" => json!(format!("failed: {why}")),
            _ => json!(""),
        };
        rows.push(keys.iter().map(|key| (key.clone(), cell(key))).collect());
    }
    rows
}

/// One system of a setting with all that is known.
fn row(r: &Recommendation, s: &Standing) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("dataset".into(), json!(r.dataset));
    row.insert("layout".into(), json!(r.layout));
    row.insert("network".into(), json!(r.network));
    row.insert("profile".into(), json!(r.profile));
    row.insert("kind".into(), json!("simulated"));
    row.extend(standing(s));
    row
}

fn standing(s: &Standing) -> Map<String, Value> {
    let c = s.over_best.as_ref();
    let mut row = Map::new();
    row.insert("system".into(), json!(s.system));
    row.insert("p".into(), json!(s.pool));
    row.insert("tokens_per_card_s".into(), json!((s.tokens_per_card_s * 100.0).round() / 100.0));
    row.insert("gain".into(), json!(s.gain.map(rounded)));
    row.insert("time_over_fastest".into(), json!(c.map(|c| rounded(c.ratio))));
    row.insert("ci_low".into(), json!(c.map(|c| rounded(c.ci_low))));
    row.insert("ci_high".into(), json!(c.map(|c| rounded(c.ci_high))));
    row.insert("n".into(), json!(c.map(|c| c.n)));
    row.insert("verdict".into(), json!(c.map(|c| c.verdict)));
    row.insert("reason".into(), json!(c.and_then(|c| c.reason.clone())));
    row.insert("attention_over_fastest".into(), rounded(s.attention_over_best));
    row.insert("attention_bytes".into(), json!(s.attention_bytes as u64));
    row.insert("preserved".into(), json!(s.preserved));
    row
}

/// A setting as one record.
fn setting(r: &Recommendation) -> Map<String, Value> {
    let (verdict, reason) = r.verdict().unzip();
    let gain = r.over_baseline.as_ref();
    let record = json!({
        "dataset": r.dataset,
        "layout": r.layout,
        "dp": r.dp,
        "cp": r.cp,
        "network": r.network,
        "nominal": r.nominal,
        "kind": "simulated",
        "profile": r.profile,
        "baseline": r.baseline,
        "system": r.best().system,
        "p": r.best().pool,
        "gain": gain.map(|c| rounded(1.0 / c.ratio)),
        "gain_low": gain.map(|c| rounded(1.0 / c.ci_high)),
        "gain_high": gain.map(|c| rounded(1.0 / c.ci_low)),
        "verdict": verdict,
        "reason": reason.flatten(),
        "sentence": r.sentence(),
        "systems": r.standings.iter().map(standing).collect::<Vec<_>>(),
        "failed": r.failed.iter().map(|(system, reason)| json!({ "system": system, "reason": reason })).collect::<Vec<_>>(),
    });
    if let Value::Object(map) = record { map } else { Map::new() }
}
