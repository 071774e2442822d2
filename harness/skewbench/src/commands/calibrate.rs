//! `skewbench calibrate`.

use std::path::{Path, PathBuf};

use skewbench_cuda::gemm::{CublasLt, GemmTimer};
use skewbench_cuda::run::{SessionTimer, cards};
use skewbench_cuda::{CudaError, LinkTimer};
use skewbench_sim::{Overrides, Pricing};

use crate::calibrate::{
    Instruments, Journal, Machine, Point, build, held_out, measure, points, points_csv, validation_csv,
};
use crate::card::Card;
use crate::cards::{factory, predict};
use crate::cells::Resources;
use crate::cli::{CalibrateArgs, Kernel};
use crate::failure::{Exit, Failure};
use crate::present::write_text;
use crate::scheduler::{store_failure, watch_interruptions};
use crate::share::one_process;

const REVISION: &str = env!("SKEWBENCH_REVISION");
/// Cards whose link is timed.
const LINKED: usize = 2;

/// Measures a card and writes a profile, or compares a profile with launches that it does not hold.
///
/// # Errors
/// No card (exit 11); a file that cannot be used or is measured already (exit 10); fewer points than planned (exit 20), the
/// profile is written nonetheless.
pub fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let known = args.validate.as_ref().unwrap_or(&args.base);
    let mut resources = Resources::default();
    let key = resources.machine(known, &Overrides::default())?;
    let pricing = resources.pricing(&key)?.clone();
    let out = args.out.clone().unwrap_or_else(|| default_out(args, &pricing));
    if let Some(run) = &args.run {
        return compare_waves(run, &pricing, &out);
    }
    one_process()?;
    let mut card = Card::open(args.card)?;
    let points = if args.validate.is_some() { held_out(&pricing, args.seed)? } else { points(&pricing, args.seed)? };
    if let Some(folder) = out.parent().filter(|f| !f.as_os_str().is_empty()) {
        skewbench_store::create_folder(folder).map_err(store_failure)?;
    }
    let mut journal = Journal::open(&beside(&out, "points.jsonl"), &card.info, args.seed, Some(REVISION), args.resume)?;
    watch_interruptions();
    let seconds: f64 = points.iter().map(|p| p.seconds).sum();
    eprintln!(
        "calibrate: {} points on {}, about {seconds:.0} s, budget {} s",
        points.len(),
        card.info.name,
        args.budget
    );
    let mut products = products(args.card)?;
    let kernels = || factory(Kernel::Cudnn, false);
    let mut copies = SessionTimer::new(1, kernels());
    let present = cards()?;
    let mut links = (present > 1).then(|| SessionTimer::new(LINKED.min(present), kernels()));
    let mut instruments = Instruments {
        launches: &mut *card.timer,
        products: products.as_mut().map(|p| p as &mut dyn GemmTimer),
        copies: Some(&mut copies),
        links: links.as_mut().map(|timer| timer as &mut dyn LinkTimer),
    };
    let left = measure(&points, &mut instruments, &mut journal, f64::from(args.budget))?;
    match &args.validate {
        Some(_) => write_text(&validation_csv(&points, &journal, &pricing), &out)?,
        None => write_profile(args, &points, &journal, &pricing, &card, &out)?,
    }
    eprintln!("written: {}", out.display());
    if left > 0 {
        let what = format!("{left} points did not fit the budget; --resume measures them");
        return Err(Failure::new(Exit::Fewer, what));
    }
    Ok(())
}

/// Writes what the profile predicts for the waves of a run on cards beside what they took.
fn compare_waves(run: &Path, pricing: &Pricing, out: &Path) -> Result<(), Failure> {
    let predicted = predict(run, pricing)?;
    let folder = out.parent().unwrap_or(Path::new("."));
    skewbench_store::create_folder(folder).map_err(store_failure)?;
    for (name, rows) in [("waves.csv", &predicted.waves), ("ranks.csv", &predicted.ranks)] {
        let mut text = csv::Writer::from_writer(Vec::new());
        rows.iter().try_for_each(|row| text.serialize(row)).map_err(Failure::internal)?;
        let bytes = text.into_inner().map_err(Failure::internal)?;
        let path = folder.join(name);
        write_text(&String::from_utf8(bytes).map_err(Failure::internal)?, &path)?;
        eprintln!("written: {}", path.display());
    }
    Ok(())
}

fn default_out(args: &CalibrateArgs, pricing: &Pricing) -> PathBuf {
    match &args.validate {
        Some(_) => PathBuf::from("results/validation").join(&pricing.profile().name).join("launches.csv"),
        None => PathBuf::from("profile.json"),
    }
}

/// A file beside another, named after it.
fn beside(out: &Path, suffix: &str) -> PathBuf {
    out.with_extension(suffix)
}

/// What times products; none, with a word about it, where the library is absent.
fn products(card: usize) -> Result<Option<CublasLt>, Failure> {
    match CublasLt::open(card) {
        Ok(timer) => Ok(Some(timer)),
        Err(error @ CudaError::Library { .. }) => {
            eprintln!("matrix products are left out: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn write_profile(
    args: &CalibrateArgs,
    points: &[Point],
    journal: &Journal,
    base: &Pricing,
    card: &Card,
    out: &Path,
) -> Result<(), Failure> {
    let date = skewbench_store::today();
    let name = out.file_stem().map_or_else(|| "profile".into(), |stem| stem.to_string_lossy().into_owned());
    let machine = Machine {
        run: format!("calibrate-{date}-seed-{}", args.seed),
        name,
        date,
        revision: REVISION.to_owned(),
        card: card.info.clone(),
    };
    let profile = build(points, journal, base.profile(), &machine)?;
    let text = serde_json::to_string_pretty(&profile).map_err(Failure::internal)?;
    write_text(&format!("{text}\n"), out)?;
    write_text(&points_csv(points, journal), &beside(out, "points.csv"))
}
