//! Which system a user should run: of every system the best pool, of all systems the fastest, and what cannot be told from it.

use serde_json::{Map, Value};
use skewbench_report::{Axis, Cell, Column, Figure, Kind, Mark, Named, Panel, Scale, Side, Table};
use skewbench_sim::Profile;
use skewbench_store::stats::{Comparison, Verdict};

use super::Loaded;
use super::figures::distinct;
use super::paired::{Times, word, words};
use crate::cells::Resources;
use crate::experiment::{At, describe};
use crate::metrics::WavesView;

/// Figure of experiments that `recommend` makes.
pub const FIGURE: &str = "recommend";
/// Coordinate of the bandwidth between nodes.
const NETWORK: &str = "network_bandwidth";

/// A system at its best pool, in one setting.
#[derive(Clone, Debug)]
pub struct Standing {
    /// System.
    pub system: String,
    /// Sequences of its pools; none where pools of all sizes that were tried take the same time.
    pub pool: Option<u32>,
    /// Tokens a card and second of training steps.
    pub tokens_per_card_s: f64,
    /// Its training time per token over that of the fastest system, on the same steps; none for the fastest itself, and
    /// where the two have no steps that can be paired.
    pub over_best: Option<Comparison>,
    /// The baseline's training time per token over its own.
    pub gain: Option<f64>,
    /// Straggler latency of attention per token over that of the fastest system.
    pub attention_over_best: f64,
    /// Most bytes that a rank holds for one layer's attention.
    pub attention_bytes: f64,
    /// True when every step runs exactly the documents that were delivered in it.
    pub preserved: bool,
}

/// What is known of one workload, layout and network.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// Workload.
    pub dataset: String,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// The layout in words.
    pub layout: String,
    /// Bandwidth between nodes, where several are compared.
    pub network: Option<String>,
    /// True for the network of the profile, and where only that is asked for.
    pub nominal: bool,
    /// Profile that everything is simulated on.
    pub profile: String,
    /// System that gains are over.
    pub baseline: String,
    /// Systems, the fastest first; never empty.
    pub standings: Vec<Standing>,
    /// Training time per token of the fastest over that of the baseline.
    pub over_baseline: Option<Comparison>,
    /// Systems that gave nothing, and why.
    pub failed: Vec<(String, String)>,
    /// Training steps of the fastest system.
    fastest: Times,
    seed: u64,
}

/// A place with the times that decide.
struct Candidate<'a> {
    at: &'a At,
    view: &'a WavesView,
    training: Times,
    attention: Times,
}

/// Every setting of an experiment that compares systems, in the order of its points.
pub fn recommendations(loaded: &Loaded, resources: &Resources) -> Vec<Recommendation> {
    let nominal = nominal_bandwidth(loaded, resources);
    let mut all = Vec::new();
    for (coordinates, part) in loaded.parts() {
        let e = &part.expanded;
        let mut settings: Vec<(usize, u32, u32)> = Vec::new();
        for (at, _) in &e.places {
            let setting = (at.workload, at.dp, at.cp);
            if at.workload < e.own_workloads && !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        for setting in settings {
            all.extend(one(part, resources, coordinates, setting, nominal.as_deref()));
        }
    }
    all
}

/// The value of the swept bandwidth that is the profile's own.
fn nominal_bandwidth(loaded: &Loaded, resources: &Resources) -> Option<String> {
    let e = &loaded.expanded;
    let pricing = resources.pricing(e.machine.as_ref()?).ok()?;
    Some(gigabits(pricing.profile(), 1.0))
}

/// So many times the bandwidth of a port between nodes, as experiments write it.
pub fn gigabits(profile: &Profile, times: f64) -> String {
    format!("{} Gb/s", profile.network.bandwidth.bytes_per_s() * 8.0 / 1e9 * times)
}

fn one(
    part: &Loaded,
    resources: &Resources,
    coordinates: Option<&Map<String, Value>>,
    (workload, dp, cp): (usize, u32, u32),
    nominal: Option<&str>,
) -> Option<Recommendation> {
    let e = &part.expanded;
    let seed = e.seed;
    let (mut best_pools, mut failed) = (Vec::new(), Vec::new());
    let baseline = &e.found.experiment.plot.baseline;
    let mut systems: Vec<&String> = e.systems.iter().collect();
    // Gains need the baseline, also where it is not asked for, and what it beats is no answer.
    systems.extend((!e.systems.contains(baseline)).then_some(baseline));
    for system in systems {
        let here = |at: &&At| at.workload == workload && at.dp == dp && at.cp == cp && at.system == *system;
        let found = e.places.iter().map(|(at, _)| at).filter(here).map(|at| candidate(part, resources, at));
        let (found, errors): (Vec<_>, Vec<_>) = found.partition(Result::is_ok);
        let found: Vec<Candidate<'_>> = found.into_iter().flatten().collect();
        let varies = found.iter().any(|c| c.training != found[0].training);
        match (smallest_of_the_best(found, seed), errors.into_iter().find_map(Result::err)) {
            (Some(chosen), _) => best_pools.push((chosen, varies)),
            (None, Some(why)) => failed.push((system.clone(), why)),
            (None, None) => {}
        }
    }
    best_pools.sort_by(|(a, _), (b, _)| a.training.per_token().total_cmp(&b.training.per_token()));
    let base = best_pools.iter().find(|(c, _)| c.at.system == *baseline).map(|(c, _)| c.training.clone());
    let (best, _) = best_pools.first()?;
    let standings = best_pools.iter().enumerate().map(|(i, (c, varies))| Standing {
        system: c.at.system.clone(),
        pool: varies.then_some(c.at.pool),
        tokens_per_card_s: 1.0 / c.training.per_token(),
        over_best: (i > 0).then(|| c.training.over(&best.training, seed)).flatten(),
        gain: base.as_ref().map(|base| base.per_token() / c.training.per_token()),
        attention_over_best: c.attention.per_token() / best.attention.per_token(),
        attention_bytes: c
            .view
            .steps
            .iter()
            .chain(&c.view.drain)
            .flat_map(|s| &s.waves)
            .map(|w| w.peak_bytes)
            .fold(0.0, f64::max),
        preserved: c.view.delay.preserved,
    });
    let network = coordinates.and_then(|at| at.get(NETWORK)).and_then(Value::as_str).map(str::to_owned);
    let other = coordinates.into_iter().flatten().filter(|(key, _)| ![NETWORK, "dp", "cp"].contains(&key.as_str()));
    let other = describe(other);
    let other = if other.is_empty() { other } else { format!(", {other}") };
    Some(Recommendation {
        dataset: e.dataset(workload),
        dp,
        cp,
        layout: format!("DP = {dp}, CP = {cp}{other}"),
        nominal: network.is_none() || network.as_deref() == nominal,
        network,
        standings: standings.collect(),
        over_baseline: base.filter(|_| best.at.system != *baseline).and_then(|base| best.training.over(&base, seed)),
        failed,
        profile: e.machine.as_ref().map(|m| m.profile.clone()).unwrap_or_default(),
        baseline: baseline.clone(),
        fastest: best.training.clone(),
        seed,
    })
}

fn candidate<'a>(part: &'a Loaded, resources: &Resources, at: &'a At) -> Result<Candidate<'a>, String> {
    let view = part.view(at)?;
    Ok(Candidate { at, view, training: Times::training(part, resources, at)?, attention: Times::attention(view) })
}

/// Of a system's pools the smallest that none beats clearly, because transfers and memory grow with a pool.
fn smallest_of_the_best<'a>(mut pools: Vec<Candidate<'a>>, seed: u64) -> Option<Candidate<'a>> {
    let by_time = |a: &&Candidate<'_>, b: &&Candidate<'_>| a.training.per_token().total_cmp(&b.training.per_token());
    let best = pools.iter().min_by(by_time)?.training.clone();
    let slower = |c: &Candidate<'_>| c.training.over(&best, seed).is_none_or(|c| c.verdict == Verdict::Slower);
    pools.retain(|c| !slower(c));
    pools.into_iter().min_by_key(|c| c.at.pool)
}

impl Standing {
    /// The system with its pool, in words.
    pub fn name(&self) -> String {
        self.pool.map_or_else(|| self.system.clone(), |pool| format!("{} with P = {pool}", self.system))
    }

    /// True where the fastest system is faster, and not by chance.
    pub fn clearly_slower(&self) -> bool {
        self.over_best.as_ref().is_some_and(|c| c.verdict == Verdict::Slower)
    }
}

impl Recommendation {
    /// The setting in words.
    pub fn setting(&self) -> String {
        let network = self.network.as_deref().map(|n| format!(", {n} between nodes")).unwrap_or_default();
        format!("{}, {}{network}", self.dataset, self.layout)
    }

    /// The fastest system.
    pub fn best(&self) -> &Standing {
        &self.standings[0]
    }

    /// Systems that cannot be told from the fastest.
    pub fn rivals(&self) -> impl Iterator<Item = &Standing> {
        self.standings[1..].iter().filter(|s| !s.clearly_slower())
    }

    /// The same workload and layout on other networks.
    pub fn elsewhere<'a>(&'a self, all: &'a [Self]) -> impl Iterator<Item = &'a Self> {
        all.iter().filter(|r| !r.nominal && (&r.dataset, &r.layout) == (&self.dataset, &self.layout))
    }

    /// Whether the fastest is faster than all others, in a word, and why not; nothing where it is alone.
    pub fn verdict(&self) -> Option<(&'static str, Option<String>)> {
        let next = self.rivals().next().or(self.standings.get(1))?;
        Some(match &next.over_best {
            Some(c) if c.verdict == Verdict::Slower => (word(Verdict::Faster), None),
            Some(c) => (word(c.verdict), Some(format!("{}: {}", next.name(), words(c)))),
            None => (word(Verdict::Unclear), Some(format!("{}: no steps that can be paired", next.name()))),
        })
    }

    /// The answer in a sentence: the system, its pool, its gain, and whether anything cannot be told from it and why.
    pub fn sentence(&self) -> String {
        let (best, baseline) = (self.best(), &self.baseline);
        let gain = self.over_baseline.as_ref().map(|c| {
            let sure = match c.too_few() {
                true => format!("{} steps, too few for an interval", c.n),
                false => format!("{:.2} to {:.2}x", 1.0 / c.ci_high, 1.0 / c.ci_low),
            };
            format!(", {:.2}x the throughput of {baseline} ({sure})", 1.0 / c.ratio)
        });
        let mut text = format!(
            "{} (simulated, profile {}): {} is fastest{}",
            self.setting(),
            self.profile,
            best.name(),
            gain.unwrap_or_default()
        );
        let rivals: Vec<String> = self.rivals().map(|s| format!("{} is {}", s.name(), compared(s))).collect();
        if rivals.is_empty() {
            let next = self.standings.get(1).map(|s| format!("; clear: next is {}, {}", s.name(), compared(s)));
            text.push_str(&next.unwrap_or_default());
        } else {
            text.push_str(&format!("; unclear: {}", rivals.join("; ")));
        }
        if !best.preserved {
            text.push_str("; it runs documents in later steps than they were delivered in");
            if let Some(next) = self.standings.iter().find(|s| s.preserved) {
                text.push_str(&format!(", the fastest that does not is {}, {}", next.name(), compared(next)));
            }
        }
        text + "."
    }
}

fn compared(standing: &Standing) -> String {
    standing.over_best.as_ref().map_or_else(|| "not comparable, because no steps can be paired".into(), words)
}

/// Sentences about all settings: one each where the network is the profile's and what other networks change, then which layout
/// of several makes most of a card.
pub fn sentences(all: &[Recommendation]) -> Vec<String> {
    let mut sentences = Vec::new();
    let nominal: Vec<&Recommendation> = all.iter().filter(|r| r.nominal).collect();
    for here in &nominal {
        sentences.push(here.sentence());
        let others: Vec<String> = here.elsewhere(all).map(|other| compared_elsewhere(here, other)).collect();
        if !others.is_empty() {
            sentences.push(format!("{}, {}: {}.", here.dataset, here.layout, others.join("; ")));
        }
    }
    let mut told: Vec<&str> = Vec::new();
    for dataset in nominal.iter().map(|r| r.dataset.as_str()) {
        if !told.contains(&dataset) {
            told.push(dataset);
            sentences.extend(layouts(dataset, &nominal));
        }
    }
    sentences
}

/// Which layout makes most of a card.
fn layouts(dataset: &str, nominal: &[&Recommendation]) -> Option<String> {
    let mut here: Vec<&Recommendation> = nominal.iter().filter(|r| r.dataset == dataset).copied().collect();
    here.sort_by(|a, b| a.fastest.per_token().total_cmp(&b.fastest.per_token()));
    let (best, others) = here.split_first().filter(|(_, others)| !others.is_empty())?;
    let name = |r: &Recommendation| format!("{} with {}", r.layout, r.best().name());
    let others = others.iter().map(|r| {
        let compared = r.fastest.over(&best.fastest, r.seed);
        let compared = compared.as_ref().map_or_else(|| "not comparable".into(), words);
        format!("{} is {compared}", name(r))
    });
    let others: Vec<String> = others.collect();
    Some(format!("{dataset}, layouts by tokens/s/card: {} is fastest; {}.", name(best), others.join("; ")))
}

/// What another network makes of a recommendation.
fn compared_elsewhere(nominal: &Recommendation, other: &Recommendation) -> String {
    let network = other.network.as_deref().unwrap_or_default();
    let (chosen, best) = (nominal.best(), other.best());
    let there = other.standings.iter().find(|s| s.system == chosen.system);
    match there {
        Some(s) if s.system == best.system => format!("with {network} it stays {}", best.name()),
        Some(s) if s.clearly_slower() => {
            format!("with {network} it becomes {}, and {} is {}", best.name(), s.name(), compared(s))
        }
        Some(s) => format!("with {network} {} is fastest, and {} is {}", best.name(), s.name(), compared(s)),
        None => format!("with {network} it becomes {}, because {} failed", best.name(), chosen.system),
    }
}

/// The answer in one picture: the training time of every system over that of the fastest.
pub(super) fn picture(all: &[Recommendation]) -> Option<Figure> {
    let first = all.first()?;
    let panel = |r: &Recommendation| {
        let dot = |s: &Standing| {
            let (low, high) = s.over_best.as_ref().filter(|c| c.n > 1).map(|c| (c.ci_low, c.ci_high)).unzip();
            Named { category: s.name(), value: s.over_best.as_ref().map_or(1.0, |c| c.ratio), low, high }
        };
        let mut marks = vec![Mark::Reference { label: "as fast".into(), side: Side::X, value: 1.0 }];
        marks.extend(r.standings.iter().map(|s| Mark::Dots { series: s.system.clone(), values: vec![dot(s)] }));
        Panel {
            title: r.setting(),
            x: Axis { label: "training time over that of the fastest".into(), ..Axis::default() },
            y: Axis {
                scale: Scale::Category,
                categories: r.standings.iter().map(Standing::name).collect(),
                ..Axis::default()
            },
            marks,
        }
    };
    let row = |r: &Recommendation, s: &Standing| -> Vec<Cell> {
        let c = s.over_best.as_ref();
        vec![
            r.setting().into(),
            s.system.clone().into(),
            s.pool.map(f64::from).into(),
            s.tokens_per_card_s.into(),
            c.map(|c| c.ratio).into(),
            c.map(|c| c.ci_low).into(),
            c.map(|c| c.ci_high).into(),
            c.map_or("fastest", |c| word(c.verdict)).into(),
            c.and_then(|c| c.reason.clone()).unwrap_or_default().into(),
            s.attention_over_best.into(),
        ]
    };
    Some(Figure {
        id: "answer".into(),
        title: "Training time of every system over that of the fastest".into(),
        description: "One dot for each system at its best pool, the fastest on top; right of the line it is slower."
            .into(),
        kind: Kind::Simulated,
        panels: all.iter().map(panel).collect(),
        caption: format!(
            "Time of training steps per token on the same steps, physical linear work, simulated on profile {}. Error bars: 95% bootstrap interval over steps, drawn in pairs.",
            first.profile
        ),
        systems: distinct(all.iter().flat_map(|r| &r.standings).map(|s| s.system.as_str())),
        workloads: distinct(all.iter().map(|r| r.dataset.as_str())),
        table: Table {
            columns: vec![
                Column::new("setting", "setting", ""),
                Column::new("system", "system", ""),
                Column::new("P", "p", ""),
                Column::new("throughput", "throughput", "tokens/s/card"),
                Column::new("time over the fastest", "ratio", ""),
                Column::new("95% low", "ci_low", ""),
                Column::new("95% high", "ci_high", ""),
                Column::new("verdict", "verdict", ""),
                Column::new("reason", "reason", ""),
                Column::new("attention over the fastest", "attention", ""),
            ],
            rows: all.iter().flat_map(|r| r.standings.iter().map(|s| row(r, s))).collect(),
        },
        ..Figure::default()
    })
}
