//! Questions that the experiment which compares systems answers.

use skewbench_report::{Answer, Figure};
use skewbench_store::stats::{Comparison, Verdict};

use super::super::costs::card_bytes;
use super::super::paired::words;
use super::super::{Loaded, Value, planning};
use super::asked::{Asked, BOUNDED, DEFERRING, GLOBAL, OWN, SORTED};
use super::swept::head;
use crate::cells::Resources;
use crate::experiment::Metric;

/// Systems that are named of a ranking.
const NAMED: usize = 4;

/// The answer in a sentence, from what bounded pools take over what one pool over all ranks takes, by workload.
fn verdict(compared: &[(&str, Comparison)]) -> String {
    let names = |which: &dyn Fn(&Comparison) -> bool| {
        let found = compared.iter().filter(|(_, c)| which(c)).map(|(name, _)| *name);
        found.collect::<Vec<_>>().join(" and ")
    };
    let lost = names(&|c| c.verdict == Verdict::Slower);
    if !lost.is_empty() {
        return format!("Not everywhere: on {lost} one pool over all ranks is clearly faster.");
    }
    let short = names(&Comparison::too_few);
    if !short.is_empty() {
        return format!("These runs do not say for {short}: they have too few steps.");
    }
    let most = compared.iter().map(|(_, c)| c.ci_high).fold(1.0, f64::max);
    let bound = if most > 1.0 {
        format!("; in the mean they cost at most {:.1}% (the highest end of the 95% intervals)", 100.0 * (most - 1.0))
    } else {
        String::new()
    };
    format!("Yes: on none of the workloads is one pool over all ranks clearly faster than bounded pools{bound}.")
}

/// Whether pools of a few sequences leave anything that one pool over all ranks would gain.
pub(super) fn suffices(asked: &Asked<'_>, experiments: &[(Loaded, Vec<Value>)]) -> Answer {
    let mut text = Vec::new();
    let mut verdicts = Vec::new();
    for dataset in &asked.datasets {
        let Some(compared) = asked.over(dataset, BOUNDED, GLOBAL) else { continue };
        let pool = asked.place(dataset, BOUNDED).map_or(0, |at| at.pool.min(at.dp));
        let slowest = asked.slowest(dataset, [BOUNDED, GLOBAL]);
        let slowest = slowest.map(|s| format!("; its slowest wave over that of {} is shortened {s}", asked.baseline));
        text.push(format!(
            "On {dataset}, {BOUNDED} in pools of {pool} against the same tiles over one pool of all ranks ({GLOBAL}), paired on the same \
             steps: {}{}.",
            words(&compared),
            slowest.unwrap_or_default()
        ));
        verdicts.push((dataset.as_str(), compared));
    }
    if !text.is_empty() {
        text.insert(0, verdict(&verdicts));
        let own = asked.datasets.iter().filter_map(|dataset| {
            let compared = asked.over(dataset, OWN, GLOBAL)?;
            Some(format!("on {dataset} {}", words(&compared)))
        });
        let own: Vec<String> = own.collect();
        if !own.is_empty() {
            text.push(format!(
                "{OWN}, this project's own system, also in bounded pools and placed by predicted time, stands against that global pool as: {}.",
                own.join("; ")
            ));
        }
    }
    let balance = experiments.iter().flat_map(|(_, values)| values).filter(|v| v.metric == Metric::RMinus1);
    let mut told: Vec<String> = Vec::new();
    for value in balance.filter(|v| v.system == "vrsp" && v.number("p") == Some(8.0)) {
        let Ok(e) = &value.estimated else { continue };
        let sentence = format!("R - 1 = {:.2}% on {}", e.value * 100.0, value.dataset);
        if !told.contains(&sentence) {
            told.push(sentence);
        }
    }
    if !told.is_empty() && !text.is_empty() {
        text.push(format!(
            "Work is not what is missing: pools of eight placed by VRSP differ by {} (computed).",
            told.join(" and ")
        ));
    }
    Answer {
        question: "Does balancing in bounded pools suffice?".into(),
        text,
        links: asked.links(&["fig8", "table1", "scale-out", "map"]),
    }
}

/// Bytes, memory, and where planning time stands.
pub(super) fn costs(asked: &Asked<'_>, resources: &Resources) -> Answer {
    let mut text = Vec::new();
    let shown = [asked.baseline, BOUNDED, OWN, GLOBAL];
    for dataset in &asked.datasets {
        let of = |system: &str| {
            let sent =
                |link: &str| asked.estimated(Metric::SentBytes, dataset, system, &[("link", link)]).map(|e| e.value);
            let hidden = asked.number(Metric::HiddenShare, dataset, system);
            let hidden =
                hidden.map(|share| format!(" ({:.0}% of what can be hidden is)", share * 100.0)).unwrap_or_default();
            Some(format!(
                "{system} {:.0} MB inside its node and {:.0} MB between nodes{hidden}",
                sent("inside_node")?,
                sent("between_nodes")?
            ))
        };
        let told: Vec<String> = shown.into_iter().filter_map(of).collect();
        if !told.is_empty() {
            text.push(format!("On {dataset} the busiest rank sends, for one layer of a wave: {}.", told.join("; ")));
        }
    }
    text.extend(memory(asked, &shown, resources));
    if !text.is_empty() {
        text.push(
            "Planning costs processor time beside the cards, which may be hidden; the page of planning times has it for every system.".into(),
        );
    }
    Answer {
        question: "What does it cost: bytes, memory, planning?".into(),
        text,
        links: asked.links(&[planning::PAGE, "network", "scale-out"]),
    }
}

/// Memory of the fullest card, against what the card of the profile has.
fn memory(asked: &Asked<'_>, systems: &[&str], resources: &Resources) -> Option<String> {
    let card = card_bytes(asked.loaded, resources)? / f64::from(1u32 << 30);
    let of = |dataset: &String| {
        let used = systems.iter().filter_map(|s| Some((*s, asked.number(Metric::PeakMemory, dataset, s)?)));
        let told: Vec<String> = used.map(|(s, used)| format!("{s} {used:.0}")).collect();
        (!told.is_empty()).then(|| format!("{} on {dataset}", told.join(", ")))
    };
    let told: Vec<String> = asked.datasets.iter().filter_map(of).collect();
    let layout = &asked.loaded.expanded.found.experiment.layout;
    (!told.is_empty()).then(|| {
        format!(
            "The fullest card holds, in GiB of a training step at TP = {}, PP = {}: {}; the profile's card has {card:.0}.",
            layout.tp,
            layout.pp,
            told.join("; ")
        )
    })
}

/// Where placing whole sequences is enough, and where it gains nothing.
pub(super) fn sorted(asked: &Asked<'_>, figures: &[Figure]) -> Answer {
    let sentence = |dataset: &String| {
        let (mean, slowest) =
            (asked.number(Metric::Speedup, dataset, SORTED)?, asked.number(Metric::SpeedupMax, dataset, SORTED)?);
        let against: Vec<String> = [BOUNDED, OWN]
            .into_iter()
            .filter_map(|other| {
                let compared = asked.over(dataset, SORTED, other)?;
                let slowest = asked.number(Metric::SpeedupMax, dataset, other)?;
                Some(format!(
                    "against {other} it is {} in the mean, and {other} shortens the slowest wave {slowest:.2}x",
                    words(&compared)
                ))
            })
            .collect();
        let against = if against.is_empty() { String::new() } else { format!("; {}", against.join("; ")) };
        Some(format!(
            "On {dataset}, {SORTED} (whole sequences of like work in one wave, no attention moves) shortens the mean wave {mean:.2}x and the \
             slowest {slowest:.2}x over {}{against}.",
            asked.baseline
        ))
    };
    let mut text: Vec<String> = asked.datasets.iter().filter_map(sentence).collect();
    if !text.is_empty() {
        text.push(
            "Without a pipeline the mean wave counts; with one, and wherever everything waits for the slowest wave of a step, the slowest does."
                .into(),
        );
        text.extend(head(figures, "pipeline").map(|sentence| format!("Training steps with a pipeline: {sentence}")));
    }
    Answer {
        question: "When is placing whole sequences in sorted waves enough?".into(),
        text,
        links: asked.links(&["pipeline", "peers", "real", "map"]),
    }
}

/// What holding documents back gains, and what it does to the steps.
pub(super) fn deferring(asked: &Asked<'_>, experiments: &[(Loaded, Vec<Value>)]) -> Answer {
    let sentence = |dataset: &String| {
        let (mean, slowest) =
            (asked.number(Metric::Speedup, dataset, DEFERRING)?, asked.number(Metric::SpeedupMax, dataset, DEFERRING)?);
        let mut text = format!(
            "On {dataset}, {DEFERRING} shortens the mean wave {mean:.2}x and the slowest {slowest:.2}x over {}",
            asked.baseline
        );
        for other in [OWN, BOUNDED] {
            let slowest = asked.number(Metric::SpeedupMax, dataset, other);
            let slowest = slowest.map(|x| format!(", and shortens the slowest wave {x:.2}x")).unwrap_or_default();
            if let Some(against) = against(asked, experiments, dataset, other) {
                text.push_str(&format!("; {other} {against}{slowest}"));
            }
        }
        let late = asked.estimated(Metric::LateShare, dataset, DEFERRING, &[("over", "all")]);
        let delay = |over| asked.estimated(Metric::DelaySteps, dataset, DEFERRING, &[("over", over)]).map(|e| e.value);
        if let (Some(late), Some(mean), Some(longest)) = (late, delay("all"), delay("longest")) {
            text.push_str(&format!(
                ". {:.1}% of its tokens run in a later step than they were delivered in, by {mean:.1} steps in the mean and {longest:.0} at \
                 most",
                late.value * 100.0
            ));
        }
        Some(text + ".")
    };
    let mut text: Vec<String> = asked.datasets.iter().filter_map(sentence).collect();
    if !text.is_empty() {
        text.push(
            "It is a choice only where the order of samples may change; what that does to training is not priced here."
                .into(),
        );
    }
    Answer {
        question: "When is holding long documents back (wlb) better?".into(),
        text,
        links: asked.links(&["baselines", "tail"]),
    }
}

/// A system against the deferring one: on steps that both ran, in this experiment or another of the report; else by two
/// intervals that are not paired.
fn against(asked: &Asked<'_>, experiments: &[(Loaded, Vec<Value>)], dataset: &str, system: &str) -> Option<String> {
    if let Some(compared) = asked.over(dataset, system, DEFERRING) {
        return Some(format!("is {} per token on the same steps", words(&compared)));
    }
    let elsewhere = experiments.iter().filter(|(l, _)| l.expanded.points.is_empty()).find_map(|(loaded, values)| {
        let figure = &loaded.expanded.found.experiment.figure;
        let datasets = (0..loaded.expanded.own_workloads).map(|w| loaded.expanded.dataset(w)).collect();
        let baseline = &loaded.expanded.found.experiment.plot.baseline;
        let other = Asked { loaded, values, datasets, figure, baseline };
        Some(format!("is {} per token on the same steps of {figure}", words(&other.over(dataset, system, DEFERRING)?)))
    });
    elsewhere.or_else(|| {
        let time = |system| asked.estimated(Metric::TimePerToken, dataset, system, &[("pass", "both")]);
        let (ours, theirs) = (time(system)?, time(DEFERRING)?);
        let (a, b) = (ours.interval?, theirs.interval?);
        let apart = if a.1 < b.0 {
            "less, and their intervals do not meet"
        } else if b.1 < a.0 {
            "more, and their intervals do not meet"
        } else {
            "not told apart, their intervals meet"
        };
        Some(format!(
            "takes {:.3} times its time a token ({apart}: {:.3} to {:.3} against {:.3} to {:.3} ns; not paired, {} and {} steps were run)",
            ours.value / theirs.value,
            a.0,
            a.1,
            b.0,
            b.1,
            ours.n,
            theirs.n
        ))
    })
}

/// Whether the mean and the slowest wave lead to the same choice.
pub(super) fn rankings(asked: &Asked<'_>) -> Answer {
    let sentence = |dataset: &String| {
        let ranked = |metric: Metric| {
            let mut all: Vec<(&str, f64)> = asked
                .loaded
                .expanded
                .systems
                .iter()
                .filter_map(|s| Some((s.as_str(), asked.number(metric, dataset, s)?)))
                .collect();
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            all
        };
        let (mean, slowest) = (ranked(Metric::Speedup), ranked(Metric::SpeedupMax));
        let place = |list: &[(&str, f64)], system: &str| list.iter().position(|(s, _)| *s == system);
        let falls = mean.iter().enumerate().filter_map(|(i, (s, x))| Some((i, *s, *x, place(&slowest, s)?)));
        let (from, system, x, to) = falls.max_by_key(|(from, _, _, to)| to.saturating_sub(*from))?;
        let first = |list: &[(&str, f64)]| {
            let named: Vec<String> = list.iter().take(NAMED).map(|(s, x)| format!("{s} {x:.2}x")).collect();
            named.join(", ")
        };
        let same = if mean.first()?.0 == slowest.first()?.0 {
            "have the same first system"
        } else {
            "have different first systems"
        };
        let fall = if to > from {
            format!(
                "; {system} is number {} of {} by the mean ({x:.2}x) and number {} by the slowest ({:.2}x)",
                from + 1,
                mean.len(),
                to + 1,
                slowest.get(to)?.1
            )
        } else {
            String::new()
        };
        Some(format!(
            "On {dataset} the mean and the slowest wave {same}: {} by the mean, {} by the slowest{fall}.",
            first(&mean),
            first(&slowest)
        ))
    };
    let text: Vec<String> = asked.datasets.iter().filter_map(sentence).collect();
    Answer {
        question: "Do the mean and the slowest wave lead to the same choice?".into(),
        text,
        links: asked.links(&["pipeline"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_suffice_only_where_runs_tell() {
        let over = |verdict, n, ci_high| Comparison { ratio: 1.0, ci_low: 0.9, ci_high, n, verdict, reason: None };
        let says = |a, b| verdict(&[("a", a), ("b", b)]);
        let faster = over(Verdict::Faster, 50, 0.98);
        assert!(says(faster.clone(), faster.clone()).ends_with("than bounded pools."));
        assert!(says(faster.clone(), over(Verdict::Unclear, 50, 1.018)).contains("Yes: "));
        assert!(says(faster.clone(), over(Verdict::Unclear, 50, 1.018)).contains("at most 1.8% (the highest"));
        assert!(says(faster.clone(), over(Verdict::Unclear, 1, 1.5)).starts_with("These runs do not say for b"));
        assert!(says(over(Verdict::Slower, 50, 1.2), faster).starts_with("Not everywhere: on a one pool"));
    }
}
