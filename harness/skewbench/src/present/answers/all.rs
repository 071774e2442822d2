use skewbench_report::{Answer, Figure};

use super::super::claims::claims;
use super::super::standing::compared;
use super::super::{Loaded, Value};
use super::asked::Asked;
use super::{swept, systems};
use crate::cells::Resources;

/// The answers, each with links to the pages that hold its numbers; `figures` are those of the experiments.
pub(in super::super) fn answers(
    experiments: &[(Loaded, Vec<Value>)],
    resources: &Resources,
    figures: &[Figure],
) -> Vec<Answer> {
    let mut answers = Vec::new();
    if let Some((loaded, values)) = compared(experiments) {
        let e = &loaded.expanded;
        let asked = Asked {
            loaded,
            values,
            datasets: (0..e.own_workloads).map(|w| e.dataset(w)).collect(),
            figure: &e.found.experiment.figure,
            baseline: &e.found.experiment.plot.baseline,
        };
        answers.push(systems::suffices(&asked, experiments));
        answers.push(systems::costs(&asked, resources));
        answers.push(systems::sorted(&asked, figures));
        answers.push(systems::deferring(&asked, experiments));
        answers.push(systems::rankings(&asked));
    }
    answers.push(swept::elsewhere(figures));
    answers.push(swept::sizes(experiments));
    answers.push(swept::ranks(experiments));
    answers.push(Answer {
        question: "What the publication claims in words, and what this run says of it".into(),
        text: claims(experiments),
        links: ["fig8", "fig13", "baselines", "scale-out"].map(String::from).into(),
    });
    answers.retain(|answer| !answer.text.is_empty());
    answers
}
