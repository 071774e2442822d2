//! The spread of one call over cards that are alike.

use serde_json::{Map, json};
use skewbench_report::{Mark, Panel, Point, Scale};

use super::figures::axis;
use super::{Loaded, Value};
use crate::cells::{CellSpec, SPREAD_TABLE, SpreadCell};
use crate::experiment::Metric;
use crate::metrics::{Draws, Estimated, estimate_mean, runtime_spread};

/// The spread of every step and the number of cards.
fn by_step(loaded: &Loaded, cell: &CellSpec) -> Result<(Vec<f64>, usize), String> {
    let table = loaded.table(SPREAD_TABLE, cell)?;
    let (steps, times) =
        (table.u32("step").map_err(|e| e.to_string())?, table.f64("time_ns").map_err(|e| e.to_string())?);
    let cards = steps.iter().take_while(|step| steps.first() == Some(step)).count();
    let spread = times.chunks(cards.max(1)).map(runtime_spread).collect::<Option<Vec<f64>>>();
    Ok((spread.ok_or("one card has no spread; two are the fewest")?, cards))
}

pub(super) fn values(loaded: &Loaded, cell: &CellSpec, spec: &SpreadCell, values: &mut Vec<Value>) {
    let spread = by_step(loaded, cell);
    let cards = spread.as_ref().map_or(spec.cards as usize, |(_, cards)| *cards);
    let mut push = |stat: &str, estimated: Result<Estimated, String>| {
        let at = json!({ "gpus": cards, "tokens": spec.tokens, "steps": spec.steps, "stat": stat });
        values.push(Value {
            metric: Metric::RuntimeSpread,
            unit: Metric::RuntimeSpread.unit(),
            dataset: "none".into(),
            system: "gpu".into(),
            at: at.as_object().cloned().unwrap_or_else(Map::new),
            estimated,
            simulated: false,
        });
    };
    let steps = spread.map(|(steps, _)| steps);
    let draws = Draws::single(loaded.expanded.seed);
    let mean = steps.clone().and_then(|s| estimate_mean(&s, draws, "runtime_spread").map_err(|e| e.to_string()));
    push("mean", mean);
    // The largest of the run: a fact of these steps, without an interval.
    push("max", steps.map(|s| Estimated::exact(s.iter().copied().fold(0.0, f64::max), s.len() as u64)));
}

/// The spread of every step.
pub(super) fn panels(loaded: &Loaded) -> Vec<Panel> {
    let cells = loaded.parts().flat_map(|(_, part)| part.expanded.cells.iter().map(move |cell| (part, cell)));
    let shown = cells.filter_map(|(part, cell)| Some((cell, by_step(part, cell).ok()?)));
    shown
        .map(|(cell, (steps, cards))| {
            let points = steps.iter().enumerate().map(|(i, y)| Point { x: i as f64, y: *y, low: None, high: None });
            let CellSpec::Spread(spec) = cell else { return Panel::default() };
            Panel {
                title: format!("{cards} cards, {} tokens", spec.tokens),
                x: axis("step", "", Scale::Linear),
                y: axis(Metric::RuntimeSpread.label(), "", Scale::Linear),
                marks: vec![Mark::Points { series: "gpu".into(), points: points.collect() }],
            }
        })
        .collect()
}
