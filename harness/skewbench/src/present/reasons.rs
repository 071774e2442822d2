//! Why a value of ours is not the published one, from what the same report holds and from what the source of the number says.

use skewbench_store::{Reference, SummaryRow};

use super::summary::short;

/// The reason that stands beside a row with a published value; nothing where there is no more to say than the numbers do.
pub(super) fn reason(row: &SummaryRow, rows: &[SummaryRow], reference: &Reference) -> Option<String> {
    let differs = row.verdict.as_deref() == Some("differs");
    let entry = reference.find(&row.figure, &row.dataset, &row.system, &row.metric, &row.at);
    let bound = entry.is_some_and(|e| e.value.is_none() || row.at.contains_key("highest_of"));
    let noted = entry.and_then(|e| e.note.as_deref()).filter(|_| differs || bound);
    let noted = noted.map(|note| format!("The source: {note}."));
    let ours = if differs { explained(row, rows, reference) } else { None };
    let parts: Vec<String> = noted.into_iter().chain(ours).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn explained(row: &SummaryRow, rows: &[SummaryRow], reference: &Reference) -> Option<String> {
    let has = |key: &str, word: &str| row.at.get(key).and_then(serde_json::Value::as_str) == Some(word);
    match row.metric.as_str() {
        "scaling" | "scaling_efficiency" => scaling(row, rows),
        "throughput_speedup" => speedup(row, rows),
        "forward_spread" => forward_spread(row, rows, reference),
        "straggler_mean" if row.at.contains_key("base") => bandwidth(row, rows),
        "straggler_mean" if has("pass", "both") => Some(format!(
            "Ours is of profile {}; ratios between systems are what can be compared.",
            row.profile.as_deref()?
        )),
        _ => None,
    }
}

/// Another row of the figure at the same place: every coordinate that both have is the same, but for those named.
fn beside<'a>(
    row: &SummaryRow,
    rows: &'a [SummaryRow],
    (system, metric): (&str, &str),
    but: &[&str],
    wanted: &[(&str, &str)],
) -> Option<&'a SummaryRow> {
    rows.iter().find(|other| {
        let same = |(key, value): (&String, &serde_json::Value)| {
            but.contains(&key.as_str()) || other.at.get(key).is_none_or(|theirs| theirs == value)
        };
        let has = |(key, word): &(&str, &str)| other.at.get(*key).and_then(serde_json::Value::as_str) == Some(*word);
        other.figure == row.figure
            && other.system == system
            && other.metric == metric
            && other.dataset == row.dataset
            && other.value.is_some()
            && row.at.iter().all(same)
            && wanted.iter().all(has)
    })
}

/// The one number that linear work was fitted on, and what that leaves to be predicted.
fn scaling(row: &SummaryRow, rows: &[SummaryRow]) -> Option<String> {
    let fitted = rows.iter().find(|r| r.metric == "scaling" && r.verdict.as_deref() == Some("fitted"))?;
    let at = |key: &str| fitted.at.get(key).map(ToString::to_string).unwrap_or_default();
    let mut text = format!(
        "One published scaling is fitted by linear work ({} on {}, DP = {}, CP = {}); what the same linear work gives here is a prediction.",
        short(fitted.published?),
        fitted.dataset,
        at("dp"),
        at("cp")
    );
    let (ours, published) = (row.value?, row.published?);
    // The running text does not say which window its numbers are of.
    if row.dataset != fitted.dataset && row.figure != "text" {
        let more = if ours > published { "more" } else { "less" };
        text.push_str(&format!(
            " Both published numbers hold together only if attention weighs {more} against linear work on {} than its exact pairs make it.",
            row.dataset
        ));
    }
    Some(text)
}

/// A speedup is one efficiency over another: which of the two differs.
fn speedup(row: &SummaryRow, rows: &[SummaryRow]) -> Option<String> {
    let base = row.at.get("base")?.as_str()?;
    let of = |system: &str| beside(row, rows, (system, "scaling_efficiency"), &["base"], &[("base", "shared")]);
    let (ours, theirs) = (of(&row.system)?, of(base)?);
    let (published, other) = (ours.published?, theirs.published?);
    Some(format!(
        "It is the efficiency of {} over that of {base}: {} over {} here, {} over {} published. With {base} as published it would be {}.",
        row.system,
        short(ours.value?),
        short(theirs.value?),
        short(published),
        short(other),
        short(ours.value? / other)
    ))
}

/// What linear work and unequal cards can make of the spread.
fn forward_spread(row: &SummaryRow, rows: &[SummaryRow], reference: &Reference) -> Option<String> {
    let (value, published) = (row.value?, row.published?);
    let physical = beside(row, rows, (&row.system, "forward_spread"), &["linear"], &[("linear", "physical")]);
    let physical = physical.and_then(|r| r.value);
    let between = physical.is_some_and(|other| (value.min(other)..=value.max(other)).contains(&published));
    let mut parts = Vec::new();
    if let Some(other) = physical {
        let rest = if between {
            ", so that the published value lies between both: the share of linear work decides"
        } else {
            ""
        };
        parts.push(format!("With physical linear work, its lower bound, it is {} here{rest}", short(other)));
    }
    let spread = reference.of_figure("fig3").filter(|e| e.metric == "runtime_spread").filter_map(|e| e.value);
    if let Some(most) = spread.reduce(f64::max).filter(|_| !between) {
        parts.push(format!(
            "cards as unequal as the publication's at most are (fig3: {}) would raise {} to {}; the rest is not in this model, whose cards \
             are equal and whose network is assumed",
            short(most),
            short(value),
            short(value * (1.0 + most))
        ));
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// What the assumed network makes of a ratio.
fn bandwidth(row: &SummaryRow, rows: &[SummaryRow]) -> Option<String> {
    let base = row.at.get("base")?.as_str()?;
    let at = |network: &str| {
        let wanted = [("network", network)];
        let ours = beside(row, rows, (&row.system, "straggler_mean"), &["base"], &wanted)?;
        let theirs = beside(row, rows, (base, "straggler_mean"), &["base", "p"], &wanted).filter(|r| r.n == ours.n)?;
        Some((ours.value? / theirs.value?, ours.n))
    };
    let ((half, n), (double, _)) = (at("half")?, at("double")?);
    let published = row.published?;
    let within = if (double.min(half)..=double.max(half)).contains(&published) { "lies" } else { "does not lie" };
    Some(format!(
        "The network between nodes is assumed: at half and at double its bandwidth the ratio over {base} on the same steps and network is {} and {} (n = {n}), and the published {} {within} between them.",
        short(half),
        short(double),
        short(published)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};
    use skewbench_store::{Kind, SummaryKey, SummaryValue};

    use super::*;

    fn row(system: &str, metric: &str, at: serde_json::Value, published: Option<f64>, value: f64) -> SummaryRow {
        let key = SummaryKey {
            figure: "fig11".into(),
            dataset: "paper-1m".into(),
            system: system.into(),
            metric: metric.into(),
            unit: "1".into(),
            at: at.as_object().cloned().unwrap_or_else(Map::new),
            published,
            kind: Kind::Modelled,
            backend: "sim".into(),
            profile: Some("h200".into()),
        };
        let ours = SummaryValue { value, interval: None, n: 20 };
        SummaryRow::ok(key, ours, published.map(|_| "differs".to_owned()))
    }

    fn reference() -> Reference {
        let text = "paper = \"p\"\n[[entry]]\nid = \"a\"\nfigure = \"fig3\"\ndataset = \"none\"\nsystem = \"gpu\"\nmetric = \"runtime_spread\"\nvalue = 0.15\nunit = \"1\"\nsource = \"s\"\n\
            [[entry]]\nid = \"b\"\nfigure = \"fig11\"\ndataset = \"paper-1m\"\nsystem = \"libra\"\nmetric = \"throughput_speedup\"\nvalue = 2.54\nunit = \"1\"\nsource = \"s\"\nnote = \"up to\"\n";
        Reference::parse(text, "test.toml").unwrap()
    }

    #[test]
    fn a_speedup_is_taken_apart() {
        let shared = json!({ "dp": 16, "base": "shared", "transfers": "charged" });
        let rows = [
            row("libra", "scaling_efficiency", shared.clone(), Some(0.703), 0.68),
            row("ulysses", "scaling_efficiency", shared, Some(0.276), 0.32),
            row(
                "libra",
                "throughput_speedup",
                json!({ "dp": 16, "base": "ulysses", "transfers": "charged" }),
                Some(2.54),
                2.125,
            ),
        ];
        let text = reason(&rows[2], &rows, &reference()).unwrap_or_default();
        assert!(text.starts_with("The source: up to."), "{text}");
        assert!(text.contains("0.6800 over 0.3200 here") && text.contains("it would be 2.464"), "{text}");
    }

    #[test]
    fn a_ratio_is_held_against_the_same_steps_on_other_networks() {
        let time = |system: &str, pool: u32, network: Option<&str>, value| {
            let mut at = json!({ "dp": 16, "p": pool, "pass": "both" });
            if let Some(network) = network {
                at["network"] = json!(network);
            }
            row(system, "straggler_mean", at, None, value)
        };
        let rows = [
            // Of other steps than those at other bandwidths.
            time("ulysses", 8, None, 50.0),
            time("ulysses", 8, Some("half"), 100.0),
            time("ulysses", 8, Some("double"), 80.0),
            time("libra", 4, Some("half"), 80.0),
            time("libra", 4, Some("double"), 40.0),
            row("libra", "straggler_mean", json!({ "dp": 16, "p": 4, "base": "ulysses" }), Some(0.33), 0.55),
        ];
        let text = reason(&rows[5], &rows, &reference()).unwrap_or_default();
        assert!(text.contains("0.8000 and 0.5000 (n = 20)") && text.contains("does not lie"), "{text}");
        let mut rows = rows;
        rows[1].n = 50;
        assert!(!reason(&rows[5], &rows, &reference()).unwrap_or_default().contains("bandwidth"), "other steps");
    }

    #[test]
    fn spreads_and_times_say_what_the_model_lacks() {
        let rows = [row("libra", "forward_spread", json!({ "linear": "fitted" }), Some(3.0), 2.0)];
        let text = reason(&rows[0], &rows, &reference()).unwrap_or_default();
        assert!(text.contains("would raise 2.000 to 2.300"), "{text}");
        let rows = [row("ulysses", "straggler_mean", json!({ "pass": "both" }), Some(3.0), 2.0)];
        assert!(reason(&rows[0], &rows, &reference()).is_some_and(|text| text.contains("profile h200")));
        assert_eq!(reason(&row("ulysses", "mfu", json!({}), None, 1.0), &[], &reference()), None);
    }
}
