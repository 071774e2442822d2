use skewbench_cuda::attention::LaunchTimer;
use skewbench_cuda::launch_timer;
use skewbench_cuda::run::cards;
use skewbench_plan::{Cost, LaunchShape, Mask, Pass, TileShape};
use skewbench_store::{Column, Table};

use super::steps::step_seed;
use super::{CellTables, Resources, SpreadCell};
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// One row a step and card.
pub const SPREAD_TABLE: &str = "spread";

/// Calls of every card before those that count.
const WARM_UP: u32 = 3;
/// Where the random operands of timed calls start.
const OPERANDS_SEED: u64 = 1;

/// Times of the same call on every card, one row of cards a step.
pub(super) fn compute(cell: &SpreadCell, resources: &Resources) -> Result<CellTables, Failure> {
    let tile = [TileShape { q: cell.tokens, k: cell.tokens }];
    let launch = LaunchShape {
        pass: Pass::Forward,
        mask: Mask::Causal,
        q_heads: u32::from(cell.shape.q_heads),
        kv_heads: u32::from(cell.shape.kv_heads),
        head_dim: cell.shape.head_dim,
        tiles: &tile,
    };
    let by_card =
        if cell.replay.is_some() { measured(&launch, cell.steps)? } else { modelled(cell, &launch, resources)? };
    let cards = by_card.len() as u32;
    let rows = || (0..cell.steps).flat_map(|step| (0..cards).map(move |card| (step, card)));
    let table = Table::from_columns([
        ("step", Column::U32(rows().map(|(step, _)| step).collect())),
        ("card", Column::U32(rows().map(|(_, card)| card).collect())),
        ("time_ns", Column::F64(rows().map(|(step, card)| by_card[card as usize][step as usize]).collect())),
    ]);
    Ok(vec![(SPREAD_TABLE, table.map_err(Failure::internal)?)])
}

/// The profile's price with a factor for the card, the same in every step, and one for the card in the step.
fn modelled(cell: &SpreadCell, launch: &LaunchShape<'_>, resources: &Resources) -> Result<Vec<Vec<f64>>, Failure> {
    let pricing = resources.pricing(&cell.machine)?;
    let price_ns = pricing.launch_ps(launch) as f64 * 1e-3;
    let cards = cell.cards as usize;
    let lasting = pricing.profile().card_time_factors(cards, cell.seed);
    let mut passing = pricing.profile().clone();
    passing.card_speed.relative_sd = cell.step_relative_sd;
    let mut by_card = vec![Vec::with_capacity(cell.steps as usize); cards];
    for step in 0..cell.steps {
        check_interrupted()?;
        // Steps count from 1 here: step 0's seed is that of the lasting factors.
        let factors = passing.card_time_factors(cards, step_seed(cell.seed, u64::from(step) + 1));
        for ((times, passing), lasting) in by_card.iter_mut().zip(factors).zip(&lasting) {
            times.push(price_ns * lasting * passing);
        }
    }
    Ok(by_card)
}

/// Times on every card that is present, all cards at once.
fn measured(launch: &LaunchShape<'_>, steps: u32) -> Result<Vec<Vec<f64>>, Failure> {
    let present = cards()?;
    let time_one = |ordinal: usize| -> Result<Vec<f64>, Failure> {
        let mut timer = launch_timer(ordinal, OPERANDS_SEED)?;
        timer.time(launch, WARM_UP, steps).map_err(Failure::from)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..present).map(|ordinal| scope.spawn(move || time_one(ordinal))).collect();
        let panicked = || Err(Failure::internal("a thread that timed a card ended early"));
        running.into_iter().map(|card| card.join().unwrap_or_else(|_| panicked())).collect()
    })
}
