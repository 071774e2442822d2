//! `skewbench verify`.

use rayon::prelude::*;
use serde_json::{Map, Value, json};
use skewbench_external::{Catalogue, CatalogueError};
use skewbench_plan::SystemError;
use skewbench_systems::OptionSpec;
use skewbench_systems::registry::{self, RegistryError, System};
use skewbench_verify::{Backend, Case, Ending, Finding, Outcome, Systems, smallest_wrong, verify_number};

use super::output;
use crate::cards::{CardOptions, Cards};
use crate::cells::Resources;
use crate::cli::{Format, Interpreter, VerifyArgs};
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::scheduler::{check_interrupted, watch_interruptions};
use crate::share::{Connect, Group, detect, one_process, together};

/// Systems that are built in, and programs.
struct Programs<'a>(&'a Catalogue);

impl Systems for Programs<'_> {
    fn options(&self, system: &str) -> Result<Vec<OptionSpec>, String> {
        Ok(self.0.describe(system).map_err(|e| e.to_string())?.options)
    }

    fn build(
        &self,
        system: &str,
        options: &Map<String, Value>,
        seed: u64,
    ) -> Result<Result<System, SystemError>, String> {
        match self.0.system(system, options, seed) {
            Ok(built) => Ok(Ok(built)),
            Err(CatalogueError::Registry(RegistryError::Value { source, .. })) => Ok(Err(source)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What the cases of one system showed.
#[derive(Default)]
struct Tally<'b> {
    right: u32,
    refused: u32,
    refused_options: u32,
    plans: u32,
    load_over_bound: f64,
    worst: Option<(&'static str, f64)>,
    wrong: Option<(Case, Backend<'b>, Finding)>,
    /// Largest error that the backends allow.
    tolerance: f64,
    /// The first case that was refused with default options, and why.
    refusal: Option<(u64, String)>,
}

/// Verifies systems on small seeded cases, prints one table, and fails when one of them is wrong or refuses a case with its
/// default options. `connect` connects the processes of a launch that has several.
///
/// # Errors
/// Unknown systems; a system that fails.
pub fn run(args: &VerifyArgs, connect: Option<Connect>) -> Result<(), Failure> {
    if args.backends.contains(&Interpreter::Cuda) {
        one_process()?;
    }
    let launch = detect()?;
    together(&launch, connect, |group| verify(args, group, launch.rank == 0))
}

/// Verifies in all processes of a group alike; the one that `speaks` prints what came of it.
fn verify(args: &VerifyArgs, group: Option<&Group<'_>>, speaks: bool) -> Result<(), Failure> {
    watch_interruptions();
    let asked: Vec<String> = if args.systems.is_empty() {
        registry::SYSTEMS.iter().map(|s| s.name.to_owned()).collect()
    } else {
        args.systems.clone()
    };
    let resources = Resources::default();
    let catalogue = Programs(resources.catalogue());
    let names = asked.iter().map(|name| catalogue.0.admit(name)).collect::<Result<Vec<_>, _>>()?;
    let seeds: Vec<u64> = match args.case {
        Some(case) => vec![case],
        None => (0..u64::from(args.cases)).map(|i| args.seed.wrapping_mul(1_000_003).wrapping_add(i)).collect(),
    };
    let options = CardOptions { kernel: args.kernel, repeatable: args.repeatable };
    let cards = args.backends.contains(&Interpreter::Cuda).then(|| Cards::open(options)).transpose()?;
    let backends = backends(&args.backends, group, cards.as_ref());
    let progress = Progress::new("systems", names.len() as u64);
    let mut tallies = Vec::new();
    for name in &names {
        tallies.push((name, tally(&catalogue, name, &seeds, &backends)?));
        progress.advance(1, name);
    }
    progress.finish();
    let rows: Vec<Map<String, Value>> = tallies.iter().map(|(name, tally)| tally.row(name, args.format)).collect();
    if speaks {
        output::records(&rows, args.format)?;
    }
    let failed: Vec<&str> = tallies.iter().filter(|(_, tally)| tally.failed()).map(|(name, _)| name.as_str()).collect();
    for ((name, tally), asked) in tallies.iter().zip(&asked).filter(|_| speaks) {
        tally.explain(name, asked);
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Verification, format!("verification failed for {}", failed.join(", "))))
}

/// The backends that are asked for, each once; the CPU's is a group of processes where the launch has several.
fn backends<'c>(asked: &[Interpreter], group: Option<&'c Group<'c>>, cards: Option<&'c Cards>) -> Vec<Backend<'c>> {
    let wanted = |name| asked.contains(&name) || asked.contains(&Interpreter::All);
    let mut backends = Vec::new();
    if wanted(Interpreter::Cpu) {
        backends.push(group.map_or(Backend::Cpu, |group| Backend::Runner(group)));
    }
    if wanted(Interpreter::Sim) {
        backends.push(Backend::Sim);
    }
    backends.extend(cards.map(|cards| Backend::Runner(cards as _)));
    backends
}

fn tally<'b>(
    systems: &Programs<'_>,
    name: &str,
    seeds: &[u64],
    backends: &[Backend<'b>],
) -> Result<Tally<'b>, Failure> {
    let outcomes: Vec<(usize, Outcome)> = seeds
        .par_iter()
        .flat_map_iter(|seed| (0..backends.len()).map(|backend| (*seed, backend)))
        .map(|(seed, backend)| {
            check_interrupted()?;
            Ok((backend, verify_number(systems, name, seed, backends[backend]).map_err(Failure::config)?))
        })
        .collect::<Result<_, Failure>>()?;
    // A program that was stopped by an interruption has not failed.
    check_interrupted()?;
    let tolerance = backends.iter().map(|backend| backend.tolerance()).fold(0.0, f64::max);
    let mut tally = Tally { tolerance, ..Tally::default() };
    for (backend, outcome) in outcomes {
        // Every case runs on all backends and counts once.
        tally.add(systems, name, backends[backend], outcome, u32::from(backend == 0));
    }
    Ok(tally)
}

impl<'b> Tally<'b> {
    fn add(&mut self, systems: &Programs<'_>, name: &str, backend: Backend<'b>, outcome: Outcome, counted: u32) {
        let Outcome { case, ending, refused, .. } = outcome;
        self.refused_options += counted * u32::from(refused.is_some());
        match ending {
            Ending::Right(seen) => {
                self.right += counted;
                self.plans += counted * seen.domains;
                self.load_over_bound = self.load_over_bound.max(seen.load_over_bound);
                for (tensor, error) in seen.errors {
                    if self.worst.is_none_or(|(_, worst)| error > worst) {
                        self.worst = Some((tensor, error));
                    }
                }
            }
            Ending::Refused(why) => {
                self.refused += counted;
                self.refusal.get_or_insert_with(|| (case.seed, why.to_string()));
            }
            Ending::Wrong(finding) if self.wrong.is_none() => {
                // A program that hangs would take its time limit for every smaller case.
                let broke_down = matches!(finding, Finding::Failed { .. });
                let (smallest, finding) =
                    if broke_down { (case, finding) } else { smallest_wrong(systems, name, &case, finding, backend) };
                self.wrong = Some((smallest, backend, finding));
            }
            Ending::Wrong(_) => {}
        }
    }

    /// Wrong in a case, or refused it.
    fn failed(&self) -> bool {
        self.wrong.is_some() || self.refusal.is_some()
    }

    fn row(&self, name: &str, format: Format) -> Map<String, Value> {
        let rounded = |v: f64, digits: i32| json!((v * 10f64.powi(digits)).round() / 10f64.powi(digits));
        let checker = match &self.wrong {
            Some((_, _, Finding::Checker { .. })) => "refuses",
            _ if self.plans == 0 => "no plan",
            _ => "accepts",
        };
        let worst = match (self.worst, format) {
            (None, _) => Value::Null,
            (Some((_, error)), Format::Human) => json!(format!("{error:.1e}")),
            (Some((_, error)), _) => json!(error),
        };
        let mut row = Map::new();
        row.insert("system".into(), json!(name));
        row.insert("cases".into(), json!(self.right));
        row.insert("refused".into(), json!(self.refused));
        row.insert("refused_options".into(), json!(self.refused_options));
        row.insert("plans".into(), json!(self.plans));
        row.insert("checker".into(), json!(checker));
        row.insert("worst_error".into(), worst);
        row.insert("of".into(), json!(self.worst.map(|(tensor, _)| tensor)));
        row.insert("tolerance".into(), json!(self.tolerance));
        row.insert("load_over_bound".into(), rounded(self.load_over_bound, 4));
        row.insert("verdict".into(), json!(if self.failed() { "failed" } else { "ok" }));
        row
    }

    /// Says what is wrong, and how a system that was asked for as `asked` is run again.
    fn explain(&self, name: &str, asked: &str) {
        if let Some((case, backend, finding)) = &self.wrong {
            eprintln!("{name}: {finding}");
            eprintln!("  smallest case found, on the {} backend: {}", backend.name(), json!(case));
            eprintln!("  again: skewbench verify --system {asked} --case {} --backend {}", case.seed, backend.name());
        }
        if let Some((number, why)) = &self.refusal {
            eprintln!("{name}: refuses a case with its default options: {why}");
            eprintln!("  again: skewbench verify --system {asked} --case {number}");
        }
    }
}
