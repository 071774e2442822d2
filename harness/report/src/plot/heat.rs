//! Heat maps: a grid of fields with their values in them.

use crate::canvas::{Align, Canvas};
use crate::figure::{Axis, HeatCell, Mark, Panel};
use crate::number;
use crate::palette::{Paint, RAMP};
use crate::plot::panel::{FONT, LINE, axis_label, label_above, label_below, no_data};
use crate::text;

/// Colours of the fields.
struct Ramp {
    low: f64,
    high: f64,
    /// Half the span on each side of the centre, as a ratio (logarithm) or a difference.
    center: Option<f64>,
    ratio: bool,
}

impl Ramp {
    fn new(values: &[f64], center: Option<f64>) -> Self {
        let center = center.filter(|c| c.is_finite());
        let ratio = center.is_some_and(|c| c > 0.0) && values.iter().all(|v| *v > 0.0);
        let mapped = values.iter().map(|v| if ratio { libm::log2(*v) } else { *v });
        let (low, high) = mapped.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        Self { low, high, center, ratio }
    }

    /// Colour of a value and of the text on it.
    fn paints(&self, value: f64) -> (Paint, Paint) {
        let map = |v: f64| if self.ratio { libm::log2(v) } else { v };
        let steps = (RAMP - 1) as f64;
        let step =
            |share: f64| if share.is_finite() { (share * steps).round().clamp(0.0, steps) as usize } else { RAMP / 2 };
        match self.center {
            Some(center) => {
                let center = map(center);
                let reach = (self.high - center).abs().max((center - self.low).abs());
                let step = step(0.5 + 0.5 * (map(value) - center) / reach);
                (Paint::Diverging(step), Paint::OnDiverging(step))
            }
            None => {
                let step = step((map(value) - self.low) / (self.high - self.low));
                (Paint::Sequential(step), Paint::OnSequential(step))
            }
        }
    }
}

fn names<'a>(axis: &'a Axis, cells: &[&'a HeatCell], pick: fn(&HeatCell) -> &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = axis.categories.iter().map(String::as_str).collect();
    for &cell in cells {
        let name = pick(cell);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Draws the panel below `top`; returns its height and the number of values not drawn.
pub(crate) fn draw(canvas: &mut Canvas, panel: &Panel, width: f64, top: f64) -> (f64, usize) {
    let mut cells: Vec<&HeatCell> = Vec::new();
    let mut center = None;
    let mut others = 0;
    for mark in &panel.marks {
        match mark {
            Mark::Heat { cells: these, center: this } => {
                cells.extend(these);
                center = center.or(*this);
            }
            _ => others += 1,
        }
    }
    let columns = names(&panel.x, &cells, |c| &c.column);
    let rows = names(&panel.y, &cells, |c| &c.row);
    let values: Vec<f64> = cells.iter().map(|c| c.value).filter(|v| v.is_finite()).collect();
    let ramp = Ramp::new(&values, center);
    let top = label_above(canvas, &panel.y, width, top);
    let widest = rows.iter().map(|r| text::width(r, FONT)).fold(0.0, f64::max).min(width * 0.3);
    let (left, right) = (widest + 9.0, width);
    if columns.is_empty() || rows.is_empty() {
        no_data(canvas, (left, right), (top, top + 60.0));
        return (label_below(canvas, &panel.x, (left, right), top + 60.0, width), others);
    }
    let cell_width = (right - left) / columns.len() as f64;
    let cell_height = (cell_width * 0.62).clamp(26.0, 46.0);
    let bottom = top + cell_height * rows.len() as f64;
    for (i, row) in rows.iter().enumerate() {
        let y = top + cell_height * (i as f64 + 0.5);
        canvas.text((left - 7.0, y), &text::fit(row, FONT, widest), FONT, Paint::Muted, Align::Right, false);
    }
    for (i, column) in columns.iter().enumerate() {
        let x = left + cell_width * (i as f64 + 0.5);
        let label = text::fit(column, FONT, cell_width - 2.0);
        canvas.text((x, bottom + 12.0), &label, FONT, Paint::Muted, Align::Center, false);
    }
    let mut not_drawn = others;
    for cell in &cells {
        let column = columns.iter().position(|c| *c == cell.column);
        let row = rows.iter().position(|r| *r == cell.row);
        let (Some(column), Some(row)) = (column, row) else { continue };
        if !cell.value.is_finite() {
            not_drawn += 1;
            continue;
        }
        let (fill, ink) = ramp.paints(cell.value);
        let (x, y) = (left + cell_width * column as f64, top + cell_height * row as f64);
        let words = format!(
            "{} {}, {} {}: {}",
            axis_label(&panel.x),
            cell.column,
            axis_label(&panel.y),
            cell.row,
            number::short(cell.value, 4)
        );
        canvas.titled(&words, |canvas| {
            canvas.rect((x + 0.8, y + 0.8), (x + cell_width - 0.8, y + cell_height - 0.8), fill, 1.0, None);
            let value = number::significant(cell.value, 3);
            let value =
                if text::width(&value, FONT) <= cell_width - 2.0 { value } else { number::short(cell.value, 2) };
            let value = text::fit(&value, FONT, cell_width);
            canvas.text((x + cell_width / 2.0, y + cell_height / 2.0), &value, FONT, ink, Align::Center, false);
        });
    }
    (label_below(canvas, &panel.x, (left, right), bottom + LINE + 4.0, width), not_drawn)
}
