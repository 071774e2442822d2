use std::path::{Path, PathBuf};
use std::time::Duration;

use skewbench_cuda::card_info::CardInfo;
use skewbench_cuda::run::cards;

use super::bench::{OnCards, unavailable};
use super::log::Log;
use super::measure::{Plan, measure};
use super::study::FoundStudy;
use crate::cells::Resources;
use crate::cli::CommonRunArgs;
use crate::failure::{Exit, Failure};
use crate::scheduler::watch_interruptions;
use crate::shipped::write_about;

/// Time in which a study is measured unless another is given.
const BUDGET: Duration = Duration::from_secs(300);

/// Executes studies on the cards of this host, each into a folder of its own below `out`, and renders them.
///
/// # Errors
/// No card or library (exit 11), folders that hold something, a study that gives no sample (exit 20), systems or cases
/// that failed (exit 21).
pub fn run_studies(studies: &[FoundStudy], systems: &[String], common: &CommonRunArgs) -> Result<(), Failure> {
    watch_interruptions();
    let present = cards().map_err(unavailable)?;
    let mut resources = Resources::default();
    let mut failed = 0;
    for found in studies {
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
    systems: &[String],
    common: &CommonRunArgs,
    present: usize,
    out: &Path,
    resources: &mut Resources,
) -> Result<usize, Failure> {
    let study = &found.study;
    let asked = if systems.is_empty() { &study.systems } else { systems };
    let systems = asked.iter().map(|name| resources.catalogue().admit(name)).collect::<Result<Vec<_>, _>>()?;
    let ranks = study.cases.iter().map(|case| case.ranks() as usize).filter(|ranks| *ranks <= present).max();
    let Some(ranks) = ranks else {
        let needed = study.cases.iter().map(|case| case.ranks() as usize).min().unwrap_or(0);
        return Err(unavailable(skewbench_cuda::CudaError::Cards { needed, found: present }));
    };
    claim(out, common.force)?;
    let mut bench = OnCards::open(ranks)?;
    let budget = common.budget.map_or(BUDGET, Duration::from_secs);
    let plan = Plan {
        study,
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
    let mut log = Log::new(out)?;
    measure(&plan, &mut bench, resources, &mut log)?;
    let info = CardInfo::of_cards(ranks).map_err(unavailable)?;
    let (taken, failed) = (log.taken, log.failed);
    log.finish()?;
    std::fs::write(out.join("study.toml"), &found.text)
        .map_err(|e| Failure::config(format!("{}: {e}", out.display())))?;
    write_about(out, &study.title, &study.description, &info)?;
    let page = crate::shipped::render(out, common.templates.as_deref())?;
    eprintln!("report: {}", page.display());
    if taken == 0 {
        return Err(Failure::new(Exit::Fewer, "no wave gave a sample"));
    }
    Ok(failed)
}

/// Takes an empty or new folder; with `force` one that holds something is set aside.
fn claim(out: &Path, force: bool) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::config(format!("{}: {e}", out.display()));
    let holds = |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if holds(out) {
        if !force {
            return Err(Failure::config(format!(
                "{}: holds files; choose an empty or new folder with --out, or set this one aside with --force",
                out.display()
            )));
        }
        let aside = (1..).map(|n| out.with_extension(format!("old-{n}"))).find(|path| !path.exists());
        std::fs::rename(out, aside.unwrap_or_default()).map_err(fail)?;
    }
    std::fs::create_dir_all(out).map_err(fail)
}
