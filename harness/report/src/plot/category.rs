//! Panels with a category axis: bars, dots, boxes.

use crate::canvas::{Align, Canvas, Xy};
use crate::figure::{Axis, Mark, Named, Panel, Quantiles};
use crate::palette::Paint;
use crate::plot::panel::{
    FONT, MARKER, Style, error_bar, label_above, label_below, no_data, reach, reading, room_left, ticks_below,
    ticks_left,
};
use crate::scale::{Fit, Numeric};
use crate::text;

/// Which way the values run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the right; categories from the top down.
    Horizontal,
    /// Upwards; categories from left to right, if their names fit there.
    Vertical,
}

/// Height of one slot of a row.
const SLOT: f64 = 15.0;
/// Space between rows.
const GAP: f64 = 9.0;
/// Largest share of the width that category names take.
const NAMES: f64 = 0.36;

/// A mark's value in a category, and which of the category's slots it has.
struct Item<'a> {
    category: usize,
    slot: Option<usize>,
    series: &'a str,
    shape: Shape<'a>,
}

#[derive(Clone, Copy)]
enum Shape<'a> {
    Bar(&'a Named),
    Dot(&'a Named),
    Box(&'a Quantiles),
    Published(&'a Named, &'a str),
}

/// Where things are: values along one direction, slots across it.
struct Plot<'a> {
    direction: Direction,
    scale: Numeric,
    values: &'a Axis,
    /// Ends of the value axis, low end first.
    ends: Xy,
    /// Start and width of each category across.
    bands: Vec<Xy>,
    slots: Vec<usize>,
    /// Whether there are bars, on which only ink stands out.
    bars: bool,
}

/// Draws the panel below `top`; returns its height and the number of values not drawn.
pub(crate) fn draw(
    canvas: &mut Canvas,
    panel: &Panel,
    style: &Style<'_>,
    width: f64,
    top: f64,
    wanted: Direction,
) -> (f64, usize) {
    let (names_axis, values) = match wanted {
        Direction::Horizontal => (&panel.y, &panel.x),
        Direction::Vertical => (&panel.x, &panel.y),
    };
    let names = categories(panel, names_axis);
    let (items, slots) = items(panel, &names);
    let lines =
        panel.marks.iter().filter_map(|m| if let Mark::Reference { value, .. } = m { Some(*value) } else { None });
    let from_zero = items.iter().any(|i| matches!(i.shape, Shape::Bar(_)));
    let fit = if from_zero { Fit::FromZero } else { Fit::NearZero };
    let scale = Numeric::new(values, items.iter().flat_map(|i| i.shape.reach()).chain(lines), fit);
    let direction = match wanted {
        Direction::Vertical if fits_below(&names, &slots, width) => Direction::Vertical,
        _ => Direction::Horizontal,
    };
    let mut plot = Plot { direction, scale, values, ends: (0.0, 1.0), bands: Vec::new(), slots, bars: from_zero };
    let bottom = match direction {
        Direction::Horizontal => plot.frame_horizontal(canvas, &names, names_axis, width, top),
        Direction::Vertical => plot.frame_vertical(canvas, &names, names_axis, width, top),
    };
    let mut not_drawn = 0;
    // Bars would hide a line behind them; dots and boxes are thin enough to stand before it.
    if !from_zero {
        not_drawn += plot.references(canvas, panel, style);
    }
    for item in &items {
        not_drawn += usize::from(!plot.item(canvas, item, &names, style));
    }
    if from_zero {
        not_drawn += plot.references(canvas, panel, style);
    }
    let elsewhere = panel.marks.iter().map(|mark| mark.points().len());
    not_drawn += elsewhere.sum::<usize>();
    (bottom, not_drawn)
}

impl Shape<'_> {
    fn category(&self) -> &str {
        match self {
            Self::Bar(v) | Self::Dot(v) | Self::Published(v, _) => &v.category,
            Self::Box(q) => &q.category,
        }
    }

    fn reach(&self) -> Vec<f64> {
        match self {
            Self::Bar(v) | Self::Dot(v) | Self::Published(v, _) => reach(v).collect(),
            Self::Box(q) => vec![q.p5, q.p25, q.p50, q.p75, q.p95, q.max],
        }
    }
}

fn shapes(mark: &Mark) -> (Option<&str>, Vec<Shape<'_>>) {
    match mark {
        Mark::Bars { series, values } => (Some(series), values.iter().map(Shape::Bar).collect()),
        Mark::Dots { series, values } => (Some(series), values.iter().map(Shape::Dot).collect()),
        Mark::Boxes { series, values } => (Some(series), values.iter().map(Shape::Box).collect()),
        Mark::PublishedNamed { series, label, values } => {
            (series.as_deref(), values.iter().map(|v| Shape::Published(v, label)).collect())
        }
        _ => (None, Vec::new()),
    }
}

fn categories<'a>(panel: &'a Panel, axis: &'a Axis) -> Vec<&'a str> {
    let mut names: Vec<&str> = axis.categories.iter().map(String::as_str).collect();
    for mark in &panel.marks {
        let found = match mark {
            Mark::Bars { values, .. } | Mark::Dots { values, .. } | Mark::PublishedNamed { values, .. } => {
                values.iter().map(|v| v.category.as_str()).collect()
            }
            Mark::Boxes { values, .. } => values.iter().map(|q| q.category.as_str()).collect(),
            _ => Vec::new(),
        };
        for name in found {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// All values with their slots, published ones last, and the number of slots of each category. A series has a slot
/// only in the categories where it has a value; a published value shares its series' slot.
fn items<'a>(panel: &'a Panel, names: &[&str]) -> (Vec<Item<'a>>, Vec<usize>) {
    let mut taken: Vec<Vec<&str>> = vec![Vec::new(); names.len()];
    let (mut ours, mut published) = (Vec::new(), Vec::new());
    for mark in &panel.marks {
        let (series, shapes) = shapes(mark);
        for shape in shapes {
            let Some(category) = names.iter().position(|n| *n == shape.category()) else { continue };
            let item = Item { category, slot: None, series: series.unwrap_or(""), shape };
            match shape {
                Shape::Published(..) => published.push(item),
                _ => ours.push(item),
            }
        }
    }
    for item in ours.iter_mut().chain(published.iter_mut()) {
        let Some(slots) = taken.get_mut(item.category) else { continue };
        item.slot = slots.iter().position(|s| *s == item.series);
        let shares_all = matches!(item.shape, Shape::Published(..)) && item.series.is_empty() && !slots.is_empty();
        if item.slot.is_none() && !shares_all {
            item.slot = Some(slots.len());
            slots.push(item.series);
        }
    }
    ours.append(&mut published);
    (ours, taken.iter().map(|t| t.len().max(1)).collect())
}

fn fits_below(names: &[&str], slots: &[usize], width: f64) -> bool {
    let band = (width - 60.0) / names.len().max(1) as f64;
    let widest_slot = slots.iter().copied().max().unwrap_or(1) as f64;
    band * 0.84 >= widest_slot * 9.0
        && names.iter().all(|name| {
            let lines = text::wrap(name, FONT, band - 6.0, 2);
            !lines.iter().any(|line| line.ends_with('…') && !name.ends_with('…'))
        })
}

impl Plot<'_> {
    fn frame_horizontal(&mut self, canvas: &mut Canvas, names: &[&str], axis: &Axis, width: f64, top: f64) -> f64 {
        let mut y = label_above(canvas, axis, width, top);
        let widest = names.iter().map(|n| text::width(n, FONT)).fold(0.0, f64::max);
        let (left, right) = (widest.min(width * NAMES) + 10.0, width - 10.0);
        let start = y;
        for slots in &self.slots {
            let band = SLOT * *slots as f64 + GAP;
            self.bands.push((y, band));
            y += band;
        }
        if names.is_empty() {
            y += 60.0;
            no_data(canvas, (left, right), (start, y));
        }
        ticks_below(canvas, &self.scale, (left, right), (start, y), width);
        canvas.path(&[(left, start), (left, y)], Paint::Muted, 1.0, None);
        for (name, (from, band)) in names.iter().zip(&self.bands) {
            let lines = text::wrap(name, FONT, left - 10.0, if *band >= 2.0 * 13.0 { 2 } else { 1 });
            let first = from + band / 2.0 - 13.0 * (lines.len() as f64 - 1.0) / 2.0;
            for (i, line) in lines.iter().enumerate() {
                canvas.text((left - 7.0, first + 13.0 * i as f64), line, FONT, Paint::Ink, Align::Right, false);
            }
        }
        self.ends = (left, right);
        label_below(canvas, self.values, (left, right), y + 21.0, width)
    }

    fn frame_vertical(&mut self, canvas: &mut Canvas, names: &[&str], axis: &Axis, width: f64, top: f64) -> f64 {
        let top = label_above(canvas, self.values, width, top);
        let bottom = top + (width * 0.5).clamp(200.0, 280.0);
        let (left, right) = (room_left(&self.scale, bottom - top), width - 4.0);
        ticks_left(canvas, &self.scale, (left, right), (top, bottom));
        canvas.path(&[(left, bottom), (right, bottom)], Paint::Muted, 1.0, None);
        let band = (right - left) / names.len().max(1) as f64;
        let mut depth: f64 = 1.0;
        for (i, name) in names.iter().enumerate() {
            let from = left + band * i as f64;
            self.bands.push((from, band));
            let lines = text::wrap(name, FONT, band - 4.0, 2);
            depth = depth.max(lines.len() as f64);
            for (i, line) in lines.iter().enumerate() {
                let at = (from + band / 2.0, bottom + 13.0 + 13.5 * i as f64);
                canvas.text(at, line, FONT, Paint::Ink, Align::Center, false);
            }
        }
        self.ends = (bottom, top);
        label_below(canvas, axis, (left, right), bottom + 8.0 + 13.5 * depth, width)
    }

    /// Distance along the value axis.
    fn along(&self, at: f64) -> f64 {
        self.ends.0 + at * (self.ends.1 - self.ends.0)
    }

    fn value(&self, value: f64) -> Option<f64> {
        Some(self.along(self.scale.at(value)?))
    }

    fn clamped(&self, value: f64) -> Option<f64> {
        Some(self.along(self.scale.clamped(value)?))
    }

    /// A position from its distances along and across.
    fn xy(&self, along: f64, across: f64) -> Xy {
        match self.direction {
            Direction::Horizontal => (along, across),
            Direction::Vertical => (across, along),
        }
    }

    /// Middle and half width of a slot, across.
    fn slot(&self, item: &Item<'_>) -> Option<Xy> {
        let (from, band) = *self.bands.get(item.category)?;
        let count = *self.slots.get(item.category)? as f64;
        let used = if self.direction == Direction::Horizontal { band - GAP } else { (band * 0.8).min(count * 34.0) };
        let each = used / count;
        let start = from + (band - used) / 2.0;
        Some(match item.slot {
            Some(slot) => (start + each * (slot as f64 + 0.5), each / 2.0),
            None => (from + band / 2.0, used / 2.0),
        })
    }

    /// Draws one value; false if the axis cannot show it.
    fn item(&self, canvas: &mut Canvas, item: &Item<'_>, names: &[&str], style: &Style<'_>) -> bool {
        let Some((across, half)) = self.slot(item) else { return false };
        let category = names.get(item.category).copied().unwrap_or("");
        let look = style.looks.of(item.series);
        match item.shape {
            Shape::Bar(v) | Shape::Dot(v) => {
                let Some(along) = self.value(v.value) else { return false };
                let words = reading(item.series, category, v.value, v.low, v.high, self.values);
                let bar = matches!(item.shape, Shape::Bar(_)) && !self.scale.is_log();
                let interval = v.low.and_then(|l| self.clamped(l)).zip(v.high.and_then(|h| self.clamped(h)));
                canvas.titled(&words, |canvas| {
                    if bar {
                        let base = self.along(self.scale.base());
                        let half = (half - 1.5).max(1.0);
                        canvas.rect(
                            self.xy(base, across - half),
                            self.xy(along, across + half),
                            look.paint,
                            0.85,
                            None,
                        );
                    }
                    if let Some((low, high)) = interval {
                        let paint = if bar { Paint::Ink } else { look.paint };
                        error_bar(canvas, self.xy(low, across), self.xy(high, across), paint);
                    }
                    if !bar {
                        canvas.marker(self.xy(along, across), MARKER, look.marker, look.paint);
                    }
                });
                true
            }
            Shape::Box(q) => self.box_plot(canvas, q, (across, half), look.paint, item.series, category),
            Shape::Published(v, label) => {
                let on_bar = self.bars && !self.scale.is_log();
                let Some(along) = self.value(v.value) else { return false };
                let whose = if item.series.is_empty() { label.to_owned() } else { format!("{label}, {}", item.series) };
                let words = reading(&whose, category, v.value, v.low, v.high, self.values);
                let paint = if item.series.is_empty() || on_bar { Paint::Ink } else { look.paint };
                canvas.titled(&words, |canvas| canvas.diamond(self.xy(along, across), paint));
                true
            }
        }
    }

    fn box_plot(
        &self,
        canvas: &mut Canvas,
        q: &Quantiles,
        (across, half): Xy,
        paint: Paint,
        series: &str,
        category: &str,
    ) -> bool {
        let places = [q.p5, q.p25, q.p50, q.p75, q.p95, q.max].map(|v| self.value(v));
        let [Some(p5), Some(p25), Some(p50), Some(p75), Some(p95), Some(max)] = places else { return false };
        let half = (half - 2.5).clamp(2.0, 11.0);
        let words = reading(series, category, q.p50, Some(q.p5), Some(q.p95), self.values);
        canvas.titled(&format!("{words} (p50 [p5, p95])"), |canvas| {
            canvas.path(&[self.xy(p5, across), self.xy(p25, across)], paint, 1.5, None);
            canvas.path(&[self.xy(p75, across), self.xy(p95, across)], paint, 1.5, None);
            for end in [p5, p95] {
                canvas.path(&[self.xy(end, across - half * 0.6), self.xy(end, across + half * 0.6)], paint, 1.5, None);
            }
            let (a, b) = (self.xy(p25, across - half), self.xy(p75, across + half));
            canvas.rect(a, b, Paint::Paper, 1.0, None);
            canvas.rect(a, b, paint, 0.28, Some((paint, 1.3)));
            canvas.path(&[self.xy(p50, across - half), self.xy(p50, across + half)], paint, 2.4, None);
            let (x, y) = self.xy(max, across);
            for sign in [-1.0, 1.0] {
                canvas.path(&[(x - 3.0, y - 3.0 * sign), (x + 3.0, y + 3.0 * sign)], paint, 1.4, None);
            }
        });
        true
    }

    /// Draws the reference lines; returns how many the axis cannot show.
    fn references(&self, canvas: &mut Canvas, panel: &Panel, style: &Style<'_>) -> usize {
        let mut not_drawn = 0;
        for mark in &panel.marks {
            if let Mark::Reference { label, value, .. } = mark {
                not_drawn += usize::from(!self.reference(canvas, *value, style.dash(label)));
            }
        }
        not_drawn
    }

    fn reference(&self, canvas: &mut Canvas, value: f64, dash: &str) -> bool {
        let (Some(along), Some(first), Some(last)) = (self.value(value), self.bands.first(), self.bands.last()) else {
            return false;
        };
        let ends = [self.xy(along, first.0), self.xy(along, last.0 + last.1)];
        canvas.path(&ends, Paint::Ink, 1.5, Some(dash));
        true
    }
}
