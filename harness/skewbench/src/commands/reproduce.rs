//! `skewbench reproduce`: the paper's figures, into one folder with a report.

use std::path::PathBuf;

use super::run::{Study, finish};
use crate::card::Card;
use crate::cards::{find_study, run_studies, studies};
use crate::cli::{Backend, CommonRunArgs, ReproduceArgs};
use crate::experiment::{Scale, experiments, find};
use crate::failure::{Failure, nearest};

/// Runs the experiments of the paper's figures and writes the report.
///
/// # Errors
/// Unknown figures or systems, a folder of other inputs, failed cells (exit 21).
pub fn run(args: &ReproduceArgs) -> Result<(), Failure> {
    if args.common.backend == Backend::Cuda {
        if let Some(figure) = args.figures.first() {
            return Err(Failure::usage(format!(
                "--figure {figure}: figures are of more cards than a host has; --backend cuda runs the studies for cards, --backend replay times a figure's launches on one card"
            )));
        }
        let all = || studies().map(find_study).collect::<Result<Vec<_>, _>>();
        return run_studies(all, &args.systems, &args.common);
    }
    let ids: Vec<&str> = experiments().filter(|id| id.starts_with("paper/") || args.all).collect();
    let figure = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    for wanted in &args.figures {
        if !ids.iter().any(|id| figure(id) == *wanted) {
            let known: Vec<String> = ids.iter().map(|id| figure(id)).collect();
            let hint = nearest(wanted, known.iter().map(String::as_str));
            return Err(Failure::usage(format!("unknown figure {wanted}{hint}; known: {}", known.join(", "))));
        }
    }
    let mut found = Vec::new();
    for id in ids {
        if args.figures.is_empty() || args.figures.contains(&figure(id)) {
            found.push(find(id, &[])?);
        }
    }
    found.sort_by_key(|f| reading_order(&f.experiment.figure));
    let card = open_card(&args.common)?;
    let scale = Scale {
        quick: args.quick,
        systems: args.systems.clone(),
        seed: args.common.seed,
        profile: args.common.profile.clone(),
        replay: card.as_ref().map(|card| card.key(args.common.budget)),
    };
    let study = Study::new(found, scale, &[])?;
    let name = if args.quick { "reproduce-quick" } else { "reproduce" };
    let out = args.common.out.clone().unwrap_or_else(|| PathBuf::from("results/runs").join(study.name(name)));
    finish(study, &args.common, card, &out, false)
}

/// Figures in the order of their numbers, tables after them.
fn reading_order(figure: &str) -> (bool, u32, String) {
    let number = figure.strip_prefix("fig").and_then(|n| n.parse().ok());
    (number.is_none(), number.unwrap_or(0), figure.to_owned())
}

/// Opens the card that a backend needs; none for the simulator.
///
/// # Errors
/// [`Exit::Unavailable`](crate::failure::Exit::Unavailable) where the machine lacks what the backend needs.
pub fn open_card(common: &CommonRunArgs) -> Result<Option<Card>, Failure> {
    match common.backend {
        Backend::Sim => Ok(None),
        Backend::Replay => Card::open(common.card).map(Some),
        Backend::Cuda => {
            Err(Failure::usage("--backend cuda runs studies for cards; name them in run, or use reproduce"))
        }
    }
}
