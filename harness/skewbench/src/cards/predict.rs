use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use skewbench_plan::Pass;
use skewbench_sim::{Machine, Overrides, Pricing, Profile, Runs, Transport, simulate_pass};
use skewbench_store::stats::median;

use super::study::{CaseFile, StudyFile, parse_study};
use super::waves::{Setting, Wave, step_of, waves_of};
use crate::cells::Resources;
use crate::failure::Failure;
use crate::present::write_text;
use crate::shipped::{Mode, Placed, Published, Sample, Shipped};

/// File of what a run planned with.
const PLANNED: &str = "planned.json";

/// What a run planned with: enough to plan its waves again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Planned {
    /// Seed of the packed windows.
    pub seed: u64,
    /// Prices that planners balanced by.
    pub profile: Profile,
}

impl Planned {
    /// Writes it beside the samples.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        write_text(&serde_json::to_string(self).map_err(Failure::internal)?, &folder.join(PLANNED))
    }

    fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(PLANNED);
        let fail = |e: &dyn std::fmt::Display| Failure::config(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|e| fail(&e))?;
        let planned: Self = serde_json::from_str(&text).map_err(|e| fail(&e))?;
        planned.profile.validate(&path.display().to_string()).map_err(Failure::config)?;
        Ok(planned)
    }
}

/// Waves and ranks of a run on cards beside what a profile predicts for them.
pub struct Predicted {
    /// The slowest ranks.
    pub waves: Vec<Placed>,
    /// All ranks.
    pub ranks: Vec<Placed>,
}

/// What one wave was, apart from its samples.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    case: String,
    heads: (u32, u32),
    system: String,
    layout: String,
    transport: String,
}

/// Plans the waves of a run on cards again and simulates them on a profile.
///
/// # Errors
/// A folder that is none of a run on cards; a wave that is planned otherwise than it was.
pub fn predict(folder: &Path, pricing: &Pricing) -> Result<Predicted, Failure> {
    let run = Published::parse(&Shipped::read(folder)?)?;
    let study = parse_study(folder)?;
    let planned = Planned::read(folder)?;
    let prices = Pricing::new(planned.profile);
    let mut resources = Resources::default();
    let mut by_wave: BTreeMap<Of, Vec<&Sample>> = BTreeMap::new();
    for sample in run.samples.iter().filter(|s| s.mode == Mode::All && !s.warm_up) {
        let of = Of {
            case: sample.case.clone(),
            heads: (sample.q_heads, sample.kv_heads),
            system: sample.system.clone(),
            layout: sample.layout.clone(),
            transport: sample.transport.clone(),
        };
        by_wave.entry(of).or_default().push(sample);
    }
    let mut predicted = Predicted { waves: Vec::new(), ranks: Vec::new() };
    for (of, samples) in by_wave {
        let waves = replanned(&study, &of, planned.seed, &prices, &mut resources)?;
        let on = on_transport(pricing, &of.transport)?;
        for (number, wave) in (0u32..).zip(&waves) {
            for pass in [Pass::Forward, Pass::Backward] {
                let times = simulated(wave, pass, &on)?;
                let mine = samples.iter().filter(|s| (s.wave, s.pass) == (number, pass));
                let mut repeats: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
                for sample in mine {
                    repeats.entry(sample.sample).or_default().insert(sample.rank, sample.ns as f64);
                }
                if repeats.is_empty() {
                    continue;
                }
                let row = |rank: Option<u32>, predicted_ns: f64, mut times: Vec<f64>| {
                    times.sort_by(f64::total_cmp);
                    Placed {
                        source: "cuda".to_owned(),
                        system: of.system.clone(),
                        workload: format!("{} {}:{} {}", of.case, of.heads.0, of.heads.1, of.transport),
                        layout: of.layout.clone(),
                        pass,
                        wave: number,
                        rank,
                        predicted_ns,
                        measured_ns_median: median(&times),
                        measured_ns_min: times.first().copied().unwrap_or(0.0),
                        measured_ns_max: times.last().copied().unwrap_or(0.0),
                        n: times.len() as u32,
                    }
                };
                let slowest = |ranks: &BTreeMap<u32, f64>| ranks.values().copied().fold(0.0, f64::max);
                let most = times.iter().copied().fold(0.0, f64::max);
                predicted.waves.push(row(None, most, repeats.values().map(slowest).collect()));
                for (rank, ns) in (0u32..).zip(&times) {
                    let mine: Vec<f64> = repeats.values().filter_map(|ranks| ranks.get(&rank).copied()).collect();
                    // A rank without work has no time that could be predicted.
                    if *ns > 0.0 && !mine.is_empty() {
                        predicted.ranks.push(row(Some(rank), *ns, mine));
                    }
                }
            }
        }
    }
    Ok(predicted)
}

fn replanned(
    study: &StudyFile,
    of: &Of,
    seed: u64,
    prices: &Pricing,
    resources: &mut Resources,
) -> Result<Vec<Wave>, Failure> {
    let case = study.cases.iter().find(|case| case.name == of.case);
    let case = case.ok_or_else(|| Failure::config(format!("study.toml has no case {}", of.case)))?;
    let seed = case.seed(seed);
    let step = step_of(case, seed, resources)?;
    let shape = CaseFile::shape((of.heads.0 as u16, of.heads.1 as u16), study.head_dim);
    waves_of(&of.system, &step, &Setting { case, shape, seed, pricing: prices }, resources)
}

fn on_transport(pricing: &Pricing, name: &str) -> Result<std::sync::Arc<Pricing>, Failure> {
    let transport = if name == "nccl" { Transport::Nccl } else { Transport::CopyEngines };
    let overrides = Overrides { transport: Some(transport), ..Overrides::default() };
    let profile = overrides.apply(pricing.profile(), &pricing.profile().name).map_err(Failure::config)?;
    Ok(std::sync::Arc::new(Pricing::new(profile)))
}

/// Nanoseconds of every rank of a wave on one host.
fn simulated(wave: &Wave, pass: Pass, pricing: &std::sync::Arc<Pricing>) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::new();
    for domain in &wave.domains {
        let ranks = domain.program.pass(pass).ranks.len();
        let machine = Machine::new(pricing.clone(), vec![0; ranks]);
        let times = simulate_pass(&domain.program, pass, &machine, Runs::default()).map_err(Failure::internal)?;
        all.extend(times.rank_end_ps.iter().map(|ps| *ps as f64 / 1e3));
    }
    Ok(all)
}
