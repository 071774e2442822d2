//! One panel: decides what kind of axes it needs, and what all kinds share.

use std::collections::BTreeMap;

use crate::canvas::{Align, Canvas, Target, Xy};
use crate::figure::{Axis, Figure, Mark, Named, Panel, Scale};
use crate::number;
use crate::palette::{Looks, Paint};
use crate::plot::{category, heat, numeric, timeline};
use crate::scale::Numeric;
use crate::text;

/// Font size of labels, in pixels.
pub(crate) const FONT: f64 = 12.0;
/// Font size of panel titles, in pixels.
pub(crate) const TITLE_FONT: f64 = 13.5;
/// Width of bold letters over that of others.
pub(crate) const BOLD: f64 = 1.12;
/// Height of a line of labels.
pub(crate) const LINE: f64 = 15.5;
/// Radius of a marker.
pub(crate) const MARKER: f64 = 3.9;

const DASHES: [&str; 5] = ["6 4", "2 3", "9 3 2 3", "4 2 1 2", "12 4"];

/// How the series and dashed lines of one figure look.
pub(crate) struct Style<'a> {
    pub(crate) looks: &'a Looks,
    dashes: BTreeMap<&'a str, &'static str>,
}

impl<'a> Style<'a> {
    /// Looks for a figure: series have those of the report, dashed lines get theirs by order of appearance.
    pub(crate) fn new(looks: &'a Looks, figure: &'a Figure) -> Self {
        let mut dashes = BTreeMap::new();
        for mark in figure.panels.iter().flat_map(|p| &p.marks) {
            if let Mark::Curve { label, .. } | Mark::Reference { label, .. } = mark {
                let next = DASHES[dashes.len() % DASHES.len()];
                dashes.entry(label.as_str()).or_insert(next);
            }
        }
        Self { looks, dashes }
    }

    /// Dashes of a curve or reference line.
    pub(crate) fn dash(&self, label: &str) -> &'static str {
        self.dashes.get(label).copied().unwrap_or(DASHES[0])
    }

    /// Colour of a published value.
    pub(crate) fn published(&self, series: Option<&str>) -> Paint {
        series.map_or(Paint::Ink, |series| self.looks.of(series).paint)
    }
}

/// A finished panel.
pub(crate) struct Drawn {
    pub(crate) body: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Values that the axes cannot show: not finite, not positive on a logarithmic axis, outside fixed ends.
    pub(crate) not_drawn: usize,
}

/// Draws a panel at a width in pixels. The height follows from what is on it.
/// `id` is the panel's on its page.
pub(crate) fn draw(panel: &Panel, style: &Style<'_>, id: &str, width: f64, target: Target) -> Result<Drawn, String> {
    let mut canvas = Canvas::new(target);
    let top = title(&mut canvas, panel, width);
    let (height, not_drawn) = if panel.marks.iter().any(|m| matches!(m, Mark::Heat { .. })) {
        heat::draw(&mut canvas, panel, width, top)
    } else if panel.marks.iter().any(|m| matches!(m, Mark::Timeline { .. })) {
        timeline::draw(&mut canvas, panel, &format!("{id}-lanes"), width, top)
    } else if is_category(&panel.y) {
        category::draw(&mut canvas, panel, style, width, top, category::Direction::Horizontal)
    } else if is_category(&panel.x) || has_names(panel) {
        category::draw(&mut canvas, panel, style, width, top, category::Direction::Vertical)
    } else {
        numeric::draw(&mut canvas, panel, style, width, top)
    };
    Ok(Drawn { body: canvas.finish()?, width, height, not_drawn })
}

fn is_category(axis: &Axis) -> bool {
    match axis.scale {
        Scale::Category => true,
        Scale::Auto => !axis.categories.is_empty(),
        _ => false,
    }
}

fn has_names(panel: &Panel) -> bool {
    panel.marks.iter().any(|mark| {
        matches!(mark, Mark::Bars { .. } | Mark::Dots { .. } | Mark::Boxes { .. } | Mark::PublishedNamed { .. })
    })
}

fn title(canvas: &mut Canvas, panel: &Panel, width: f64) -> f64 {
    let mut y = 2.0;
    if !panel.title.is_empty() {
        for line in text::wrap(&panel.title, TITLE_FONT * BOLD, width, 2) {
            y += 17.0;
            canvas.text((0.0, y - 8.5), &line, TITLE_FONT, Paint::Ink, Align::Left, true);
        }
    }
    y
}

/// Label of an axis with its unit.
pub(crate) fn axis_label(axis: &Axis) -> String {
    match (axis.label.is_empty(), axis.unit.is_empty()) {
        (_, true) => axis.label.clone(),
        (true, false) => axis.unit.clone(),
        (false, false) => format!("{} ({})", axis.label, axis.unit),
    }
}

/// Writes the label of the vertical axis above the plot, level with the title, and returns where the next line starts.
pub(crate) fn label_above(canvas: &mut Canvas, axis: &Axis, width: f64, top: f64) -> f64 {
    let mut y = top;
    let label = axis_label(axis);
    if !label.is_empty() {
        for line in text::wrap(&label, FONT, width, 2) {
            y += LINE;
            canvas.text((0.0, y - LINE / 2.0), &line, FONT, Paint::Muted, Align::Left, false);
        }
    }
    y + 9.0
}

/// Writes the label of the horizontal axis below the ticks, and returns the bottom.
pub(crate) fn label_below(canvas: &mut Canvas, axis: &Axis, (left, right): Xy, top: f64, width: f64) -> f64 {
    let mut y = top;
    let label = axis_label(axis);
    if !label.is_empty() {
        for line in text::wrap(&label, FONT, width, 2) {
            y += LINE;
            let half = text::width(&line, FONT) / 2.0;
            let middle = ((left + right) / 2.0).clamp(half.min(width / 2.0), (width - half).max(width / 2.0));
            canvas.text((middle, y - LINE / 2.0), &line, FONT, Paint::Muted, Align::Center, false);
        }
    }
    y + 3.0
}

/// Vertical grid lines with their labels below `bottom`; labels that would touch are left out.
pub(crate) fn ticks_below(canvas: &mut Canvas, scale: &Numeric, (left, right): Xy, (top, bottom): Xy, width: f64) {
    let span = right - left;
    let ticks = scale.ticks((span / 54.0) as usize);
    for tick in &ticks {
        let x = left + tick.at * span;
        let (top, bottom) = if tick.label.is_empty() { (bottom, bottom + 3.0) } else { (top, bottom + 4.0) };
        canvas.path(&[(x, top), (x, bottom)], Paint::Grid, 1.0, None);
    }
    let mut free_from = f64::NEG_INFINITY;
    for tick in ticks.iter().filter(|tick| !tick.label.is_empty()) {
        let x = left + tick.at * span;
        let half = text::width(&tick.label, FONT) / 2.0;
        let center = x.clamp(half.min(width / 2.0), (width - half).max(width / 2.0));
        if center - half >= free_from {
            canvas.text((center, bottom + 13.0), &tick.label, FONT, Paint::Muted, Align::Center, false);
            free_from = center + half + 8.0;
        }
    }
}

/// Horizontal grid lines with their labels left of `left`.
pub(crate) fn ticks_left(canvas: &mut Canvas, scale: &Numeric, (left, right): Xy, (top, bottom): Xy) {
    let span = bottom - top;
    let ticks = scale.ticks((span / 42.0) as usize);
    for tick in &ticks {
        let y = bottom - tick.at * span;
        let (left, right) = if tick.label.is_empty() { (left - 3.0, left) } else { (left, right) };
        canvas.path(&[(left, y), (right, y)], Paint::Grid, 1.0, None);
    }
    for tick in &ticks {
        canvas.text((left - 7.0, bottom - tick.at * span), &tick.label, FONT, Paint::Muted, Align::Right, false);
    }
}

/// Room that the labels of `ticks_left` need.
pub(crate) fn room_left(scale: &Numeric, height: f64) -> f64 {
    let widest = scale.ticks((height / 42.0) as usize).iter().map(|t| text::width(&t.label, FONT)).fold(0.0, f64::max);
    widest + 9.0
}

/// An error bar between two points, with caps across.
pub(crate) fn error_bar(canvas: &mut Canvas, a: Xy, b: Xy, paint: Paint) {
    let cap = 3.0;
    let (dx, dy) = if a.0 == b.0 { (cap, 0.0) } else { (0.0, cap) };
    canvas.path(&[a, b], paint, 1.3, None);
    for (x, y) in [a, b] {
        canvas.path(&[(x - dx, y - dy), (x + dx, y + dy)], paint, 1.3, None);
    }
}

/// What pointing at a value says.
pub(crate) fn reading(series: &str, at: &str, value: f64, low: Option<f64>, high: Option<f64>, axis: &Axis) -> String {
    let mut words = series.to_owned();
    if !at.is_empty() && at != series {
        words = if words.is_empty() { at.to_owned() } else { format!("{words}, {at}") };
    }
    words = format!("{words}: {}", number::short(value, 4));
    if !axis.unit.is_empty() {
        words.push(' ');
        words.push_str(&axis.unit);
    }
    if let (Some(low), Some(high)) = (low, high) {
        words.push_str(&format!(" [{}, {}]", number::short(low, 4), number::short(high, 4)));
    }
    words
}

/// All numbers of a value with its interval.
pub(crate) fn reach(value: &Named) -> impl Iterator<Item = f64> {
    [Some(value.value), value.low, value.high].into_iter().flatten()
}

/// Says that there is nothing to see.
pub(crate) fn no_data(canvas: &mut Canvas, (left, right): Xy, (top, bottom): Xy) {
    let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
    canvas.text(middle, "no data", FONT, Paint::Muted, Align::Center, false);
}
