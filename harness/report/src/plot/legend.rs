//! Legends: a list of swatches with text. On the page they are HTML below the picture, so that they never cover data
//! and wrap with the screen; in a file of its own they are drawn below the panels.

use crate::canvas::{Align, Canvas, Target};
use crate::figure::{Activity, Figure, Mark, Panel};
use crate::palette::{Look, Paint};
use crate::plot::panel::{FONT, MARKER, Style, error_bar};
use crate::plot::timeline;
use crate::text;

/// Width of a swatch.
const WIDTH: f64 = 28.0;
/// Height of a swatch.
const HEIGHT: f64 = 16.0;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Glyph {
    Line(Look),
    Dot(Look),
    Steps(Look),
    Bar(Look),
    Box(Look),
    Band(Look),
    Diamond,
    Block(Paint),
    Straggler,
    Dashed(&'static str),
    Interval,
    BoxKey,
}

/// One line of a legend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    glyph: Glyph,
    /// What the swatch stands for.
    pub(crate) label: String,
}

/// The legend of a figure: its series in the report's order, then what is published or computed, then how to read
/// intervals and boxes. Series that name their own category are left out.
pub(crate) fn entries(figure: &Figure, style: &Style<'_>) -> Vec<Entry> {
    let (mut series, mut others): (Vec<Entry>, Vec<Entry>) = (Vec::new(), Vec::new());
    let (mut interval, mut boxes) = (false, false);
    let add = |list: &mut Vec<Entry>, glyph, label: &str| {
        if !label.is_empty() && !list.iter().any(|e| e.label == label) {
            list.push(Entry { glyph, label: label.to_owned() });
        }
    };
    for panel in &figure.panels {
        for mark in &panel.marks {
            interval |= has_interval(mark);
            match mark {
                Mark::Line { series: name, .. } => add(&mut series, Glyph::Line(style.looks.of(name)), name),
                Mark::Points { series: name, .. } => add(&mut series, Glyph::Dot(style.looks.of(name)), name),
                Mark::Steps { series: name, .. } => add(&mut series, Glyph::Steps(style.looks.of(name)), name),
                Mark::Bars { series: name, .. } if !names_itself(panel, name) => {
                    add(&mut series, Glyph::Bar(style.looks.of(name)), name);
                }
                Mark::Dots { series: name, .. } if !names_itself(panel, name) => {
                    add(&mut series, Glyph::Dot(style.looks.of(name)), name);
                }
                Mark::Boxes { series: name, .. } => {
                    boxes = true;
                    if !names_itself(panel, name) {
                        add(&mut series, Glyph::Box(style.looks.of(name)), name);
                    }
                }
                Mark::Band { series: name, label, .. } => add(&mut others, Glyph::Band(style.looks.of(name)), label),
                Mark::Curve { label, .. } | Mark::Reference { label, .. } => {
                    add(&mut others, Glyph::Dashed(style.dash(label)), label);
                }
                Mark::Published { label, .. } | Mark::PublishedNamed { label, .. } => {
                    add(&mut others, Glyph::Diamond, label);
                }
                Mark::Timeline { lanes } => {
                    for activity in Activity::ALL {
                        if lanes.iter().flat_map(|l| &l.spans).any(|s| s.activity == activity) {
                            add(&mut others, Glyph::Block(timeline::paint(activity)), activity.words());
                        }
                    }
                    if !lanes.is_empty() {
                        add(&mut others, Glyph::Block(Paint::Grid), "waiting");
                    }
                    if lanes.iter().any(|l| l.straggler) {
                        add(&mut others, Glyph::Straggler, "straggler");
                    }
                }
                Mark::Bars { .. } | Mark::Dots { .. } | Mark::Heat { .. } => {}
            }
        }
    }
    series.sort_by_key(|entry| style.looks.rank(&entry.label));
    series.append(&mut others);
    if interval {
        series.push(Entry { glyph: Glyph::Interval, label: "95% interval".to_owned() });
    }
    if boxes {
        series.push(Entry { glyph: Glyph::BoxKey, label: "p5, p25, p50, p75, p95; × largest".to_owned() });
    }
    series
}

fn has_interval(mark: &Mark) -> bool {
    match mark {
        Mark::Line { points, .. } | Mark::Points { points, .. } => {
            points.iter().any(|p| p.low.is_some() && p.high.is_some())
        }
        Mark::Bars { values, .. } | Mark::Dots { values, .. } => {
            values.iter().any(|v| v.low.is_some() && v.high.is_some())
        }
        _ => false,
    }
}

/// Whether all values of a series on a panel belong to the category of its own name.
fn names_itself(panel: &Panel, name: &str) -> bool {
    panel.marks.iter().all(|mark| match mark {
        Mark::Bars { series, values } | Mark::Dots { series, values } if series == name => {
            values.iter().all(|v| v.category == name)
        }
        Mark::Boxes { series, values } if series == name => values.iter().all(|q| q.category == name),
        _ => true,
    })
}

fn glyph(canvas: &mut Canvas, glyph: Glyph) {
    let (middle, center) = (HEIGHT / 2.0, WIDTH / 2.0);
    let ends = [(1.0, middle), (WIDTH - 1.0, middle)];
    match glyph {
        Glyph::Line(look) => {
            canvas.path(&ends, look.paint, 1.8, look.dash);
            canvas.marker((center, middle), MARKER, look.marker, look.paint);
        }
        Glyph::Dot(look) => canvas.marker((center, middle), MARKER, look.marker, look.paint),
        Glyph::Steps(look) => canvas.path(&ends, look.paint, 1.8, look.dash),
        Glyph::Bar(look) => canvas.rect((6.0, 3.0), (WIDTH - 6.0, HEIGHT - 3.0), look.paint, 0.85, None),
        Glyph::Box(look) => {
            canvas.rect((5.0, 3.0), (WIDTH - 5.0, HEIGHT - 3.0), look.paint, 0.28, Some((look.paint, 1.3)));
            canvas.path(&[(center, 3.0), (center, HEIGHT - 3.0)], look.paint, 2.4, None);
        }
        Glyph::Band(look) => canvas.rect((2.0, 2.0), (WIDTH - 2.0, HEIGHT - 2.0), look.paint, 0.16, None),
        Glyph::Diamond => canvas.diamond((center, middle), Paint::Ink),
        Glyph::Block(paint) => canvas.rect((6.0, 3.0), (WIDTH - 6.0, HEIGHT - 3.0), paint, 1.0, None),
        Glyph::Straggler => canvas.polygon(
            &[(center + 4.0, middle), (center - 4.0, middle - 4.5), (center - 4.0, middle + 4.5)],
            Paint::Ink,
            1.0,
            None,
        ),
        Glyph::Dashed(dash) => canvas.path(&ends, Paint::Ink, 1.5, Some(dash)),
        Glyph::Interval => error_bar(canvas, (center - 8.0, middle), (center + 8.0, middle), Paint::Muted),
        Glyph::BoxKey => {
            canvas.path(&[(1.0, middle), (22.0, middle)], Paint::Muted, 1.3, None);
            canvas.rect((6.0, 4.0), (17.0, HEIGHT - 4.0), Paint::Paper, 1.0, Some((Paint::Muted, 1.3)));
            canvas.path(&[(11.0, 4.0), (11.0, HEIGHT - 4.0)], Paint::Muted, 2.0, None);
            for sign in [-1.0, 1.0] {
                canvas.path(
                    &[(23.5, middle - 2.5 * sign), (WIDTH - 0.5, middle + 2.5 * sign)],
                    Paint::Muted,
                    1.2,
                    None,
                );
            }
        }
    }
}

/// The swatch of an entry as a small picture for the page, without meaning of its own.
pub(crate) fn swatch(entry: &Entry) -> Result<String, String> {
    let mut canvas = Canvas::new(Target::Page);
    glyph(&mut canvas, entry.glyph);
    let body = canvas.finish()?;
    Ok(format!(
        "<svg class=\"swatch\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" {} aria-hidden=\"true\" focusable=\"false\">{body}</svg>",
        Target::DEFAULTS
    ))
}

/// Draws the legend in lines no wider than `width` and returns its height.
pub(crate) fn draw_legend(canvas: &mut Canvas, entries: &[Entry], width: f64) -> f64 {
    let (mut x, mut y) = (0.0, 0.0);
    for entry in entries {
        let label = text::fit(&entry.label, FONT, width - WIDTH - 8.0);
        let needed = WIDTH + 6.0 + text::width(&label, FONT) + 18.0;
        if x > 0.0 && x + needed > width {
            (x, y) = (0.0, y + 20.0);
        }
        canvas.at((x, y), |canvas| {
            glyph(canvas, entry.glyph);
            canvas.text((WIDTH + 6.0, HEIGHT / 2.0), &label, FONT, Paint::Ink, Align::Left, false);
        });
        x += needed;
    }
    if entries.is_empty() { 0.0 } else { y + 20.0 }
}
