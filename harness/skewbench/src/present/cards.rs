use std::collections::BTreeMap;

use rayon::prelude::*;
use skewbench_external::Catalogue;
use skewbench_report::{SystemCard, WorkloadCard};

use super::standing::standing;
use super::timeline::timeline;
use super::{Loaded, Value};

/// What each system of the report is, how it stands against the others, and a wave of it over time.
pub(super) fn systems(experiments: &[(Loaded, Vec<Value>)]) -> Vec<SystemCard> {
    let mut names: Vec<(&String, &Catalogue)> = Vec::new();
    for (loaded, _) in experiments {
        for name in &loaded.expanded.systems {
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, &loaded.expanded.catalogue));
            }
        }
    }
    names.into_par_iter().filter_map(|(name, catalogue)| card(experiments, name, catalogue)).collect()
}

fn card(experiments: &[(Loaded, Vec<Value>)], name: &str, catalogue: &Catalogue) -> Option<SystemCard> {
    let d = catalogue.describe(name).ok()?;
    let (compared, findings) = standing(experiments, name).unzip();
    let mut figures: Vec<_> = compared.into_iter().collect();
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
            .map(|o| (o.name.to_owned(), format!("{} ({})", o.default.json().to_string().trim_matches('"'), o.summary)))
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

/// What each workload of the report is.
pub(super) fn workloads(experiments: &[(Loaded, Vec<Value>)]) -> Vec<WorkloadCard> {
    let mut cards: Vec<WorkloadCard> = Vec::new();
    for (loaded, _) in experiments {
        for workload in 0..loaded.expanded.own_workloads {
            let name = loaded.expanded.dataset(workload);
            if cards.iter().any(|card| card.name == name) {
                continue;
            }
            let (key, cp) = &loaded.expanded.workloads[workload];
            let fingerprint: String = key.fingerprint.chars().take(16).collect();
            cards.push(WorkloadCard {
                name,
                description: key.description.clone(),
                facts: vec![
                    ("Window".into(), format!("{} tokens", key.window_tokens)),
                    ("Packing".into(), key.packing.clone()),
                    ("Context parallelism".into(), cp.to_string()),
                    ("Fingerprint".into(), fingerprint),
                ],
            });
        }
    }
    cards
}
