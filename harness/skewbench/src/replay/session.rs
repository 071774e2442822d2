use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::prelude::*;
use skewbench_cuda::attention::LaunchTimer;
use skewbench_plan::Layout;

use super::plan::{Budgeted, DrawnWave, Prices, calls};
use super::select::{Wanted, select};
use super::{Chosen, EFFORTS, Samples, Shape, draw_order, least_waves};
use crate::calibrate::{Entry, Journal};
use crate::cells::{CellSpec, KernelsCell, Placed, Predicted, Resources, WavesCell, kernel_shapes};
use crate::experiment::Expanded;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::scheduler::check_interrupted;

/// A launch that was timed, with its number among those of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Number.
    pub number: u32,
    /// Its times, or why there are none.
    pub samples: Result<Arc<Samples>, String>,
}

/// What has been timed in this process, and for which waves.
#[derive(Default)]
pub struct Session {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timed: HashMap<Arc<Shape>, Measured>,
    drawn: BTreeMap<String, Result<Vec<DrawnWave>, Failure>>,
}

impl Session {
    /// Times of a launch, where it was timed.
    pub fn timed(&self, shape: &Shape) -> Option<Measured> {
        self.lock().timed.get(shape).cloned()
    }

    /// The waves of a cell of which all that had to be timed was, in the order of the steps.
    ///
    /// # Errors
    /// Why there are none.
    pub fn drawn(&self, cell: &CellSpec) -> Result<Vec<DrawnWave>, Failure> {
        let none = || Err(Failure::new(Exit::Unavailable, "no launch of the cell was timed"));
        self.lock().drawn.get(Expanded::id(cell).as_str()).cloned().unwrap_or_else(none)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Times a launch that was not timed before, in this process or, by the journal, in one before it. Returns the seconds of
    /// the card that its calls take now or took then.
    fn measure(&self, card: &mut Timing<'_>, shape: &Arc<Shape>, price_ns: f64) -> Result<f64, Failure> {
        if self.lock().timed.contains_key(shape) {
            return Ok(0.0);
        }
        let (warm_up, repeats) = calls(price_ns);
        let point = shape.point(warm_up, repeats);
        let known = card.journal.as_ref().and_then(|journal| journal.get(&point));
        let known = known.and_then(|entry| Samples::of(entry.ns.clone(), warm_up, repeats));
        let samples = match known {
            Some(samples) => Ok(samples),
            None => {
                let taken = Samples::take(card.timer, shape, warm_up, repeats);
                // What failed is tried again by the next process.
                if let (Ok(samples), Some(journal)) = (&taken, &mut card.journal) {
                    let ns = samples.warm_up.iter().chain(&samples.repeats).copied().collect();
                    journal.add(Entry { point, ns, failed: None })?;
                }
                taken
            }
        };
        let seconds = samples.as_ref().map_or(0.0, |s| s.warm_up.iter().chain(&s.repeats).sum::<f64>() * 1e-9);
        let samples = samples.map(Arc::new).map_err(|e| e.to_string());
        let mut state = self.lock();
        let number = state.timed.len() as u32;
        state.timed.insert(shape.clone(), Measured { number, samples });
        Ok(seconds)
    }
}

/// A card that times launches, and where it keeps what it timed.
pub struct Timing<'a> {
    /// The card.
    pub timer: &'a mut dyn LaunchTimer,
    /// Launches on disk: those of a process that was stopped are not timed again.
    pub journal: Option<Journal>,
}

/// A cell on its way.
struct Job<'a> {
    cell: &'a CellSpec,
    spec: &'a WavesCell,
    placed: Placed<'a>,
    order: Vec<(u32, u32)>,
    waves: Vec<PlannedWave>,
}

/// A wave with what each effort would time of it.
struct PlannedWave {
    step: u32,
    wave: u32,
    choices: Vec<Vec<Chosen>>,
    /// Numbers of the launches of chosen ranks.
    launches: BTreeMap<usize, Vec<usize>>,
}

impl PlannedWave {
    fn numbers(&self, effort: usize) -> impl Iterator<Item = usize> + '_ {
        self.choices[effort].iter().flat_map(|chosen| &self.launches[&chosen.rank]).copied()
    }
}

impl Job<'_> {
    /// Plans the next wave.
    fn plan_next(&self) -> Result<Option<Predicted>, Failure> {
        let Some((step, wave)) = self.order.get(self.waves.len()) else { return Ok(None) };
        self.placed.predict(*step, *wave, &EFFORTS).map(Some)
    }

    /// What cells that are compared with each other share.
    fn panel(&self) -> (&str, u32, u64, Layout) {
        (&self.spec.workload.fingerprint, self.spec.gbs, self.spec.seed, self.spec.layout)
    }

    fn least(&self) -> usize {
        self.order.len().min(least_waves(self.spec.workload.window_tokens) as usize)
    }
}

/// Chooses the waves of all cells that are replayed, says what will be timed, and times it. Where the budget is too small for
/// the fewest waves of all cells, some are left out, each with the reason.
///
/// # Errors
/// A budget that is too small for any cell (exit 10), a journal that cannot be written, an interruption. A launch that fails,
/// or a system that cannot plan, fails its cells when they are computed.
pub fn prepare(cells: &[&CellSpec], resources: &Resources, card: &mut Timing<'_>) -> Result<(), Failure> {
    let session = resources.replay();
    let mut prices = Prices::default();
    let mut kernels: Vec<usize> = Vec::new();
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut budget_s = 0;
    for cell in cells {
        match cell {
            CellSpec::Kernels(KernelsCell { machine, replay: Some(key) }) => {
                budget_s = key.budget_s;
                let pricing = resources.pricing(machine)?;
                kernels.extend(kernel_shapes(pricing).into_iter().map(|shape| prices.add(shape, pricing)));
            }
            CellSpec::Waves(spec) if let Some(key) = &spec.replay => {
                budget_s = key.budget_s;
                match Placed::new(spec, resources) {
                    Ok(placed) => jobs.push(Job { cell, spec, placed, order: Vec::new(), waves: Vec::new() }),
                    Err(failure) => refuse(session, cell, failure)?,
                }
            }
            _ => {}
        }
    }
    if kernels.is_empty() && jobs.is_empty() {
        return Ok(());
    }
    draw(&mut jobs);
    let budget = f64::from(budget_s);
    let least = jobs.iter().map(Job::least).max().unwrap_or(0);
    for _ in 0..least {
        plan_round(session, &mut jobs, Job::least, &mut prices, resources)?;
    }
    let cost = |jobs: &[Job<'_>], prices: &Prices, effort: usize| -> Budgeted {
        let waves = jobs.iter().flat_map(|j| &j.waves).flat_map(|w| w.numbers(effort));
        prices.seconds(kernels.iter().copied().chain(waves))
    };
    let effort = (0..EFFORTS.len()).find(|effort| cost(&jobs, &prices, *effort).seconds <= budget);
    let effort = effort.unwrap_or(EFFORTS.len() - 1);
    let needed = cost(&jobs, &prices, effort);
    if needed.seconds > budget {
        let all = jobs.len();
        leave_out(session, &mut jobs, &kernels, effort, &prices, (needed, budget_s))?;
        if jobs.is_empty() && all > 0 || prices.seconds(kernels.iter().copied()).seconds > budget {
            return Err(Failure::config(too_small(needed, budget_s)));
        }
        eprintln!("replay: {} of {all} cells fit the budget; {}", jobs.len(), too_small(needed, budget_s));
    }
    // Cells that need fewer waves catch up first.
    let most = jobs.iter().map(|j| j.order.len()).max().unwrap_or(0);
    for target in 1..=most {
        plan_round(session, &mut jobs, |job| target.min(job.order.len()), &mut prices, resources)?;
        if cost(&jobs, &prices, effort).seconds > budget {
            jobs.iter_mut().for_each(|job| job.waves.truncate(job.least().max(target - 1)));
            break;
        }
    }
    announce(&jobs, kernels.len(), effort, cost(&jobs, &prices, effort), budget_s);
    time_all(session, &jobs, &kernels, effort, &prices, budget, card)
}

/// How much is needed.
fn too_small(needed: Budgeted, budget_s: u32) -> String {
    format!(
        "{} launches of the fewest waves that all cells need take about {:.0} s of a card and the budget is {budget_s} s; \
         give --budget {:.0}, or fewer systems or figures",
        needed.launches,
        needed.seconds,
        (needed.seconds * 1.1).ceil()
    )
}

/// Keeps the cells whose fewest waves fit the budget together; the others are refused.
fn leave_out(
    session: &Session,
    jobs: &mut Vec<Job<'_>>,
    kernels: &[usize],
    effort: usize,
    prices: &Prices,
    (needed, budget_s): (Budgeted, u32),
) -> Result<(), Failure> {
    let mut groups = Vec::new();
    let mut wanted = Vec::new();
    for job in jobs.iter() {
        let panel = job.panel();
        let group = groups.iter().position(|known| *known == panel).unwrap_or_else(|| {
            groups.push(panel);
            groups.len() - 1
        });
        wanted.push(Wanted { group, launches: job.waves.iter().flat_map(|wave| wave.numbers(effort)).collect() });
    }
    let chosen = select(&wanted, kernels, prices, budget_s.into());
    let mut kept = Vec::new();
    for (job, chosen) in std::mem::take(jobs).into_iter().zip(chosen) {
        if chosen {
            kept.push(job);
        } else {
            refuse(session, job.cell, Failure::config(format!("left out: {}", too_small(needed, budget_s))))?;
        }
    }
    *jobs = kept;
    Ok(())
}

/// Remembers why a cell cannot be replayed.
fn refuse(session: &Session, cell: &CellSpec, failure: Failure) -> Result<(), Failure> {
    check_interrupted()?;
    session.lock().drawn.insert(Expanded::id(cell).as_str().to_owned(), Err(failure));
    Ok(())
}

/// Gives every cell the order of its waves: of the same steps for all cells of one workload, and after the steps in which a
/// placement that holds documents back fills its queue.
fn draw(jobs: &mut [Job<'_>]) {
    let group = |job: &Job<'_>| (job.spec.workload.fingerprint.clone(), job.spec.gbs, job.spec.seed);
    let mut first: HashMap<_, u32> = HashMap::new();
    for job in jobs.iter() {
        let settled = if job.placed.stateful() { job.spec.steps / 2 } else { 0 };
        let first = first.entry(group(job)).or_default();
        *first = settled.max(*first);
    }
    for job in jobs.iter_mut() {
        let start = first.get(&group(job)).copied().unwrap_or(0);
        job.order = draw_order(start..job.spec.steps, |step| job.placed.waves_of(step));
    }
}

/// Plans another wave of every cell that has fewer than it is to have.
fn plan_round<'a>(
    session: &Session,
    jobs: &mut Vec<Job<'a>>,
    target: impl Fn(&Job<'a>) -> usize + Sync,
    prices: &mut Prices,
    resources: &Resources,
) -> Result<(), Failure> {
    let plan = |job: &Job<'a>| if job.waves.len() < target(job) { job.plan_next() } else { Ok(None) };
    let planned: Vec<_> = jobs.par_iter().map(plan).collect();
    let mut kept = Vec::with_capacity(jobs.len());
    for (mut job, planned) in std::mem::take(jobs).into_iter().zip(planned) {
        let predicted = match planned {
            Ok(predicted) => predicted,
            Err(failure) => {
                refuse(session, job.cell, failure)?;
                continue;
            }
        };
        if let (Some(predicted), Some((step, wave))) = (predicted, job.order.get(job.waves.len()).copied()) {
            let pricing = resources.pricing(&job.spec.machine)?;
            let mut launches = BTreeMap::new();
            for (rank, shapes) in predicted.launches {
                launches.insert(rank, shapes.into_iter().map(|shape| prices.add(shape, pricing)).collect());
            }
            job.waves.push(PlannedWave { step, wave, choices: predicted.choices, launches });
        }
        kept.push(job);
    }
    *jobs = kept;
    Ok(())
}

/// Says what will be timed.
fn announce(jobs: &[Job<'_>], kernels: usize, effort: usize, cost: Budgeted, budget_s: u32) {
    eprintln!(
        "replay: {} distinct launches, about {:.0} s of the card of a budget of {budget_s} s; at most {} of the slowest ranks of a \
         wave and {} of the others",
        cost.launches, cost.seconds, EFFORTS[effort].slowest, EFFORTS[effort].sample
    );
    if kernels > 0 {
        eprintln!("  {kernels} calls of the profile's table");
    }
    for job in jobs {
        let ranks: usize = job.waves.iter().map(|w| w.choices[effort].len()).sum();
        eprintln!(
            "  {} {} dp={} cp={} p={}: {} waves of {}, {ranks} ranks",
            job.spec.workload.name,
            job.spec.system,
            job.spec.layout.dp,
            job.spec.layout.cp,
            job.spec.pool(),
            job.waves.len(),
            job.order.len()
        );
    }
}

/// Share of the budget beyond which nothing more is timed: prices may be wrong.
const OVERRUN: f64 = 1.5;

/// A cell, by its position, and the number of one of its waves.
type Place = (usize, usize);

/// Times kernels, then the first wave of every cell, then the second ones.
fn time_all(
    session: &Session,
    jobs: &[Job<'_>],
    kernels: &[usize],
    effort: usize,
    prices: &Prices,
    budget: f64,
    card: &mut Timing<'_>,
) -> Result<(), Failure> {
    let rounds = jobs.iter().map(|j| j.waves.len()).max().unwrap_or(0);
    let mut queue: Vec<(Option<Place>, Vec<usize>)> = vec![(None, kernels.to_vec())];
    for round in 0..rounds {
        for (slot, job) in jobs.iter().enumerate() {
            if let Some(wave) = job.waves.get(round) {
                queue.push((Some((slot, round)), wave.numbers(effort).collect()));
            }
        }
    }
    let progress = Progress::new("launches", queue.iter().map(|(_, numbers)| numbers.len() as u64).sum());
    let started = Instant::now();
    let mut done: Vec<Vec<DrawnWave>> = vec![Vec::new(); jobs.len()];
    // Of launches that a process before this one has timed.
    let mut before = 0.0;
    for (place, numbers) in queue {
        let spent = before + started.elapsed().as_secs_f64();
        let needed = place.is_none_or(|(slot, round)| round < jobs[slot].least());
        if spent > budget * OVERRUN || (spent > budget && !needed) {
            progress.advance(numbers.len() as u64, "left out, the budget is spent");
            continue;
        }
        for number in numbers {
            check_interrupted()?;
            let (shape, price_ns) = prices.get(number);
            let begun = started.elapsed().as_secs_f64();
            let took = session.measure(card, shape, price_ns)?;
            before += (took - (started.elapsed().as_secs_f64() - begun)).max(0.0);
            progress.advance(1, place.map_or("kernels", |(slot, _)| &jobs[slot].spec.system));
        }
        if let Some((slot, round)) = place {
            let wave = &jobs[slot].waves[round];
            done[slot].push(DrawnWave { step: wave.step, wave: wave.wave, chosen: wave.choices[effort].clone() });
        }
    }
    progress.finish();
    for (job, mut waves) in jobs.iter().zip(done) {
        waves.sort_by_key(|w| (w.step, w.wave));
        let spent = || {
            Failure::config(format!(
                "the budget of {budget} s was spent before a wave was timed; give a larger --budget"
            ))
        };
        let drawn = if waves.is_empty() { Err(spent()) } else { Ok(waves) };
        session.lock().drawn.insert(Expanded::id(job.cell).as_str().to_owned(), drawn);
    }
    Ok(())
}
