//! Panels with two numeric axes.

use crate::canvas::{Canvas, Xy};
use crate::figure::{Mark, Panel, Point, Side};
use crate::number;
use crate::palette::{Look, Paint};
use crate::plot::panel::{
    MARKER, Style, error_bar, label_above, label_below, no_data, reading, room_left, ticks_below, ticks_left,
};
use crate::scale::{Fit, Numeric};

struct Plot<'a> {
    panel: &'a Panel,
    x: Numeric,
    y: Numeric,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    not_drawn: usize,
}

/// Draws the panel below `top`; returns its height and the number of values not drawn.
pub(crate) fn draw(canvas: &mut Canvas, panel: &Panel, style: &Style<'_>, width: f64, top: f64) -> (f64, usize) {
    let x = Numeric::new(&panel.x, panel.marks.iter().flat_map(xs), Fit::Tight);
    let y = Numeric::new(&panel.y, panel.marks.iter().flat_map(ys), Fit::NearZero);
    let top = label_above(canvas, &panel.y, width, top);
    let bottom = top + (width * 0.56).clamp(215.0, 310.0);
    let (left, right) = (room_left(&y, bottom - top), width - 8.0);
    ticks_left(canvas, &y, (left, right), (top, bottom));
    ticks_below(canvas, &x, (left, right), (top, bottom), width);
    canvas.path(&[(left, bottom), (right, bottom)], Paint::Muted, 1.0, None);
    let mut plot = Plot { panel, x, y, left, right, top, bottom, not_drawn: 0 };
    let is_back = |mark: &&Mark| matches!(mark, Mark::Band { .. });
    let is_front = |mark: &&Mark| matches!(mark, Mark::Published { .. });
    for mark in panel.marks.iter().filter(is_back) {
        plot.mark(canvas, mark, style);
    }
    for mark in panel.marks.iter().filter(|m| !is_back(m) && !is_front(m)) {
        plot.mark(canvas, mark, style);
    }
    for mark in panel.marks.iter().filter(is_front) {
        plot.mark(canvas, mark, style);
    }
    if panel.marks.iter().all(|mark| xs(mark).next().is_none() && ys(mark).next().is_none()) {
        no_data(canvas, (left, right), (top, bottom));
    }
    let height = label_below(canvas, &panel.x, (left, right), bottom + 21.0, width);
    (height, plot.not_drawn)
}

fn xs(mark: &Mark) -> Box<dyn Iterator<Item = f64> + '_> {
    match mark {
        Mark::Reference { side: Side::X, value, .. } => Box::new(std::iter::once(*value)),
        _ => Box::new(mark.points().iter().map(|p| p.x)),
    }
}

fn ys(mark: &Mark) -> Box<dyn Iterator<Item = f64> + '_> {
    match mark {
        Mark::Reference { side: Side::Y, value, .. } => Box::new(std::iter::once(*value)),
        Mark::Band { points, .. } => Box::new(points.iter().flat_map(|p| [p.low, p.high].into_iter().flatten())),
        _ => Box::new(mark.points().iter().flat_map(|p| [Some(p.y), p.low, p.high].into_iter().flatten())),
    }
}

impl Plot<'_> {
    fn px(&self, x: f64) -> Option<f64> {
        Some(self.left + self.x.at(x)? * (self.right - self.left))
    }

    fn py(&self, y: f64) -> Option<f64> {
        Some(self.bottom - self.y.at(y)? * (self.bottom - self.top))
    }

    fn py_clamped(&self, y: f64) -> Option<f64> {
        Some(self.bottom - self.y.clamped(y)? * (self.bottom - self.top))
    }

    fn place(&self, point: &Point) -> Option<Xy> {
        Some((self.px(point.x)?, self.py(point.y)?))
    }

    fn mark(&mut self, canvas: &mut Canvas, mark: &Mark, style: &Style<'_>) {
        match mark {
            Mark::Line { series, points } => self.line(canvas, series, points, style.looks.of(series), true),
            Mark::Points { series, points } => self.line(canvas, series, points, style.looks.of(series), false),
            Mark::Curve { label, points } => {
                self.runs(canvas, points, Paint::Ink, 1.5, Some(style.dash(label)));
            }
            Mark::Steps { series, points } => {
                let look = style.looks.of(series);
                let steps = self.steps(points);
                self.not_drawn += points.iter().filter(|p| self.place(p).is_none()).count();
                if steps.len() > 1 {
                    canvas.path(&steps, look.paint, 1.8, look.dash);
                }
            }
            Mark::Band { series, points, .. } => self.band(canvas, points, style.looks.of(series).paint),
            Mark::Published { series, label, points } => {
                let paint = style.published(series.as_deref());
                for point in points {
                    let Some(at) = self.place(point) else {
                        self.not_drawn += 1;
                        continue;
                    };
                    let whose = series.as_ref().map_or(label.clone(), |series| format!("{label}, {series}"));
                    canvas.titled(&self.words(&whose, point), |canvas| canvas.diamond(at, paint));
                }
            }
            Mark::Reference { label, side, value } => {
                let ends = match side {
                    Side::X => self.px(*value).map(|x| [(x, self.top), (x, self.bottom)]),
                    Side::Y => self.py(*value).map(|y| [(self.left, y), (self.right, y)]),
                };
                match ends {
                    Some(ends) => canvas.path(&ends, Paint::Ink, 1.5, Some(style.dash(label))),
                    None => self.not_drawn += 1,
                }
            }
            Mark::Bars { values, .. } | Mark::Dots { values, .. } | Mark::PublishedNamed { values, .. } => {
                self.not_drawn += values.len();
            }
            Mark::Boxes { values, .. } => self.not_drawn += values.len(),
            Mark::Heat { cells, .. } => self.not_drawn += cells.len(),
            Mark::Timeline { lanes } => self.not_drawn += lanes.len(),
        }
    }

    fn words(&self, series: &str, point: &Point) -> String {
        let name = if self.panel.x.label.is_empty() { "x" } else { &self.panel.x.label };
        let at = format!("{name} {}", number::short(point.x, 6));
        reading(series, &at, point.y, point.low, point.high, &self.panel.y)
    }

    /// Draws the line through neighbouring points that can be drawn, broken where one cannot.
    fn runs(&mut self, canvas: &mut Canvas, points: &[Point], paint: Paint, width: f64, dash: Option<&str>) {
        let mut run: Vec<Xy> = Vec::new();
        for point in points {
            match self.place(point) {
                Some(at) => run.push(at),
                None => {
                    self.not_drawn += 1;
                    if run.len() > 1 {
                        canvas.path(&run, paint, width, dash);
                    }
                    run.clear();
                }
            }
        }
        if run.len() > 1 {
            canvas.path(&run, paint, width, dash);
        }
    }

    fn line(&mut self, canvas: &mut Canvas, series: &str, points: &[Point], look: Look, joined: bool) {
        if joined {
            self.runs(canvas, points, look.paint, 1.8, look.dash);
        } else {
            self.not_drawn += points.iter().filter(|p| self.place(p).is_none()).count();
        }
        for point in points {
            let Some((x, y)) = self.place(point) else { continue };
            let (low, high) = (point.low.and_then(|v| self.py_clamped(v)), point.high.and_then(|v| self.py_clamped(v)));
            canvas.titled(&self.words(series, point), |canvas| {
                if let (Some(low), Some(high)) = (low, high) {
                    error_bar(canvas, (x, low), (x, high), look.paint);
                }
                canvas.marker((x, y), MARKER, look.marker, look.paint);
            });
        }
    }

    /// Corners of a step curve; points closer than half a pixel are merged.
    fn steps(&self, points: &[Point]) -> Vec<Xy> {
        let mut corners: Vec<Xy> = Vec::new();
        for (x, y) in points.iter().filter_map(|p| self.place(p)) {
            if let Some(&(last_x, last_y)) = corners.last() {
                if (x - last_x).abs() < 0.5 && (y - last_y).abs() < 0.5 {
                    continue;
                }
                corners.push((x, last_y));
            }
            corners.push((x, y));
        }
        corners
    }

    fn band(&mut self, canvas: &mut Canvas, points: &[Point], paint: Paint) {
        let edge = |pick: fn(&Point) -> Option<f64>| -> Vec<Xy> {
            points.iter().filter_map(|p| Some((self.px(p.x)?, self.py_clamped(pick(p)?)?))).collect()
        };
        let mut outline = edge(|p| p.low);
        let mut upper = edge(|p| p.high);
        if outline.len() != upper.len() || outline.len() < 2 {
            self.not_drawn += points.len();
            return;
        }
        upper.reverse();
        outline.append(&mut upper);
        canvas.polygon(&outline, paint, 0.16, None);
    }
}
