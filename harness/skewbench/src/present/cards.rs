use std::collections::BTreeMap;

use rayon::prelude::*;
use skewbench_external::Catalogue;
use skewbench_report::{SystemCard, SystemOption, WorkloadCard};

use super::standing::standing;
use super::timeline::timeline;
use super::{Loaded, Value, costs};
use crate::cells::Resources;

/// What each system of the report is, how it stands against the others, and a wave of it over time.
pub(super) fn systems(experiments: &[(Loaded, Vec<Value>)], resources: &Resources) -> Vec<SystemCard> {
    let mut names: Vec<(&String, &Catalogue)> = Vec::new();
    for (loaded, _) in experiments {
        for name in &loaded.expanded.systems {
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, &loaded.expanded.catalogue));
            }
        }
    }
    names.into_par_iter().filter_map(|(name, catalogue)| card(experiments, resources, name, catalogue)).collect()
}

fn card(
    experiments: &[(Loaded, Vec<Value>)],
    resources: &Resources,
    name: &str,
    catalogue: &Catalogue,
) -> Option<SystemCard> {
    let d = catalogue.describe(name).ok()?;
    let (compared, findings) = standing(experiments, name).unzip();
    let mut figures: Vec<_> = compared.into_iter().chain(costs::of_system(experiments, resources, name)).collect();
    figures.extend(waves(experiments, name));
    Some(SystemCard {
        notes: experiments.iter().find_map(|(loaded, _)| loaded.accounting(&d.name)).into_iter().collect(),
        name: d.name,
        placement: d.placement,
        planner: d.planner,
        description: d.summary,
        source: d.source,
        options: d
            .options
            .iter()
            .map(|o| SystemOption {
                name: o.name.to_owned(),
                value: o.default.json().to_string().trim_matches('"').to_owned(),
                meaning: o.summary.to_owned(),
            })
            .collect(),
        findings: findings.unwrap_or_default(),
        figures,
    })
}

/// A wave of the system on each workload of which the runs kept one, at the layout of the experiment that comes first.
fn waves(experiments: &[(Loaded, Vec<Value>)], system: &str) -> Vec<skewbench_report::Figure> {
    let mut found: BTreeMap<String, skewbench_report::Figure> = BTreeMap::new();
    for (loaded, _) in experiments {
        let e = &loaded.expanded;
        let layout = &e.found.experiment.layout;
        let own =
            |at: &crate::experiment::At| at.workload < e.own_workloads && at.system == system && at.dp == layout.dp;
        for (at, slot) in e.places.iter().filter(|(at, _)| own(at)) {
            let dataset = e.dataset(at.workload);
            if !found.contains_key(&dataset)
                && let Some(figure) = timeline(loaded, *slot, &dataset)
            {
                found.insert(dataset, figure);
            }
        }
    }
    found.into_values().collect()
}

/// What each workload of the report is; facts that differ between the experiments and points that ran it stand side by side.
pub(super) fn workloads(experiments: &[(Loaded, Vec<Value>)]) -> Vec<WorkloadCard> {
    let mut cards: Vec<WorkloadCard> = Vec::new();
    for part in experiments.iter().flat_map(|(loaded, _)| loaded.parts()).map(|(_, part)| part) {
        for workload in 0..part.expanded.own_workloads {
            let name = part.expanded.dataset(workload);
            let (key, cp) = &part.expanded.workloads[workload];
            let fingerprint: String = key.fingerprint.chars().take(16).collect();
            let facts = [
                ("Window", format!("{} tokens", key.window_tokens)),
                ("Packing", key.packing.clone()),
                ("Context parallelism", cp.to_string()),
                ("Fingerprint", fingerprint),
            ];
            let known = cards.iter().position(|card| card.name == name).unwrap_or_else(|| {
                let named = facts.iter().map(|(fact, _)| ((*fact).to_owned(), String::new())).collect();
                cards.push(WorkloadCard { name: name.clone(), description: key.description.clone(), facts: named });
                cards.len() - 1
            });
            let Some(card) = cards.get_mut(known) else { continue };
            for ((_, all), (_, own)) in card.facts.iter_mut().zip(facts) {
                if all.is_empty() {
                    *all = own;
                } else if !all.split(", ").any(|one| one == own) {
                    *all = format!("{all}, {own}");
                }
            }
        }
    }
    cards
}
