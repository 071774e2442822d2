use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skewbench_cuda::gemm::CublasLt;
use skewbench_cuda::run::{CardState, cards};
use skewbench_cuda::{CardInfo, CudaError};
use skewbench_store::collect_environment;

use super::bench::{Bench as _, OnCards};
use super::blocks::{resolve, tokens_of_ranks};
use super::layer::time_layer;
use super::log::Log;
use super::measure::{Plan, measure};
use super::predict::Planned;
use super::study::{FoundStudy, STUDY};
use crate::cells::Resources;
use crate::cli::CommonRunArgs;
use crate::commands::set_aside;
use crate::failure::{Exit, Failure};
use crate::present::{render_measured, write_text};
use crate::scheduler::{store_failure, watch_interruptions};
use crate::share::one_process;
use crate::shipped::{Card, Failed, write_about};

/// Folder of the samples below that of the report.
const SAMPLES: &str = "run";
/// File of the token-wise work.
const LAYER: &str = "layer.csv";

/// Executes the studies that `find` gives on the cards of this host, each into a folder of its own below `out`, and renders them.
///
/// # Errors
/// No card or library (exit 11), folders that hold something, a study that gives no sample (exit 20), systems or cases
/// that failed (exit 21).
pub fn run_studies(
    find: impl Fn() -> Result<Vec<FoundStudy>, Failure>,
    systems: &[String],
    common: &CommonRunArgs,
) -> Result<(), Failure> {
    watch_interruptions();
    one_process()?;
    // What the machine lacks comes first: no study could run on it.
    let present = cards()?;
    let studies = find()?;
    let mut resources = Resources::default();
    let mut failed = 0;
    for found in &studies {
        let out = match &common.out {
            Some(out) if studies.len() == 1 => out.clone(),
            Some(out) => out.join(found.id.replace(['/', '\\'], "-")),
            None => default_folder(found),
        };
        failed += one(found, systems, common, present, &out, &mut resources)?;
    }
    if failed > 0 {
        let what = format!("{failed} systems or cases gave no samples; failures.csv and the report say which and why");
        return Err(Failure::new(Exit::Cells, what));
    }
    Ok(())
}

fn default_folder(found: &FoundStudy) -> PathBuf {
    let hash = blake3::hash(found.text.as_bytes()).to_hex();
    PathBuf::from("results/runs").join(format!("{}-{}", found.id.replace(['/', '\\'], "-"), &hash[..12]))
}

fn one(
    found: &FoundStudy,
    systems_asked: &[String],
    common: &CommonRunArgs,
    present: usize,
    out: &Path,
    resources: &mut Resources,
) -> Result<usize, Failure> {
    let study = &found.study;
    let asked = if systems_asked.is_empty() { &study.systems } else { systems_asked };
    let systems = asked.iter().map(|name| resources.catalogue().admit(name)).collect::<Result<Vec<_>, _>>()?;
    let ranks = study.cases.iter().map(|case| case.ranks() as usize).filter(|ranks| *ranks <= present).max();
    let Some(ranks) = ranks else {
        let needed = study.cases.iter().map(|case| case.ranks() as usize).min().unwrap_or(0);
        return Err(CudaError::Cards { needed, found: present }.into());
    };
    claim(out, common.force)?;
    let budget = Duration::from_secs(common.budget.into());
    let plan = Plan {
        study,
        chosen: !systems_asked.is_empty(),
        systems,
        seed: common.seed.unwrap_or(study.seed),
        profile: common.profile.as_deref().unwrap_or("h200"),
        budget,
        ranks,
    };
    eprintln!(
        "{}: {} cases, {} systems, at most about {} s on {ranks} of {present} cards",
        found.id,
        study.cases.len(),
        plan.systems.len(),
        budget.as_secs()
    );
    let folder = out.join(SAMPLES);
    let machine = resources.machine(plan.profile, &Default::default())?;
    Planned { seed: plan.seed, profile: resources.pricing(&machine)?.profile().clone() }.write(&folder)?;
    let begun = skewbench_store::today();
    let mut log = Log::new(&folder)?;
    // Planned before a card is opened: what cannot be planned costs no time of one.
    let mut blocks = resolve(&plan, resources, &mut log)?;
    let mut bench = OnCards::open(ranks)?;
    let info = CardInfo::read(0)?;
    // What was measured until then is kept and shown, however it ends.
    let ended = measure(&plan, &mut blocks, &mut bench, &mut log);
    let states = bench.states();
    drop(bench);
    if ended.is_ok()
        && let Err(why) = layers(&plan, resources, &folder)
    {
        log.failed(&Failed {
            system: "token-wise work".to_owned(),
            case: study.model.clone().unwrap_or_default(),
            layout: "dp=1,cp=1".to_owned(),
            transport: "none".to_owned(),
            reason: why.message,
        })?;
    }
    let (taken, failed) = log.finish()?;
    write_text(&found.text, &folder.join(STUDY))?;
    write_about(&folder, &study.title, std::slice::from_ref(&study.description), &card(&info, ranks, &states, &begun))?;
    if taken == 0 {
        ended?;
        return Err(Failure::new(Exit::Fewer, "no wave gave a sample; failures.csv says why"));
    }
    let page = render_measured(&folder, common.templates.as_deref(), out)?;
    eprintln!("{taken} samples, {failed} systems or cases without");
    eprintln!("report: {}", page.display());
    ended.map(|()| failed)
}

/// Times the token-wise work of the study's model on the tokens of a rank of its cases, into `layer.csv`.
fn layers(plan: &Plan<'_>, resources: &mut Resources, folder: &Path) -> Result<(), Failure> {
    let Some(name) = &plan.study.model else { return Ok(()) };
    let model = resources.model(name)?;
    let heads = (model.q_heads, model.kv_heads);
    let tokens = tokens_of_ranks(plan, heads, resources);
    if tokens.is_empty() {
        return Ok(());
    }
    let mut timer = CublasLt::open(0)?;
    let path = folder.join(LAYER);
    let fail = |e: csv::Error| Failure::config(format!("{}: {e}", path.display()));
    let mut file = csv::Writer::from_path(&path).map_err(fail)?;
    for tokens in tokens {
        time_layer(&model, tokens, &mut timer)?.iter().try_for_each(|row| file.serialize(row)).map_err(fail)?;
    }
    file.flush().map_err(|e| fail(e.into()))
}

/// What was measured on, for the page and for whoever publishes the folder.
fn card(info: &CardInfo, cards: usize, states: &[Option<CardState>], begun: &str) -> Card {
    let clocks = states.iter().flatten().next().map(|state| {
        let mhz = |clock: Option<u32>| clock.map_or_else(|| "unknown".to_owned(), |mhz| format!("{mhz} MHz"));
        let held = if state.throttle_reasons.is_empty() { "nothing".into() } else { state.throttle_reasons.join(", ") };
        format!(
            "multiprocessors {}, memory {}, held back by {held}, after the last wave; states.csv has every turn",
            mhz(state.sm_mhz),
            mhz(state.memory_mhz)
        )
    });
    // Where the program lies is nobody's business.
    let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let command: Vec<String> = std::iter::once("skewbench".to_owned()).chain(arguments).collect();
    Card {
        card: info.name.clone(),
        cards: cards as u32,
        driver: info.driver.clone(),
        cuda: info.cuda.clone(),
        cudnn: info.cudnn.clone(),
        nccl: info.nccl.clone(),
        clocks,
        date: begun.to_owned(),
        revision: env!("SKEWBENCH_REVISION").to_owned(),
        commands: vec![command.join(" ")],
        settings: settings(),
    }
}

/// Variables that NCCL and CUDA read, of those that may be stored.
fn settings() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut all = collect_environment(std::env::vars_os().filter_map(text));
    all.retain(|name, _| name.starts_with("NCCL_") || name.starts_with("CUDA_"));
    all
}

/// Takes an empty or new folder; with `force` one that holds something is set aside.
fn claim(out: &Path, force: bool) -> Result<(), Failure> {
    let holds = |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if holds(out) {
        if !force {
            return Err(Failure::config(format!(
                "{}: holds files; choose an empty or new folder with --out, or set this one aside with --force",
                out.display()
            )));
        }
        if out.file_name().is_none() {
            return Err(Failure::usage(format!("--out {}: give a folder by its name to set it aside", out.display())));
        }
        set_aside(out)?;
    }
    skewbench_store::create_folder(&out.join(SAMPLES)).map_err(store_failure)
}
