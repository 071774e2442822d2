//! Whole pictures: a panel for the page in a wide and a narrow version, a figure as a file of its own.

use crate::canvas::{Canvas, Target, push_escaped};
use crate::figure::{Figure, Panel};
use crate::palette::Paint;
use crate::plot::{self, Drawn, Entry, Style};
use crate::text::clean;

/// Width of the narrow version: a phone of 390 pixels less its margins. Text is legible there at its own size.
const NARROW: f64 = 356.0;
/// Space between panels and around them in a file.
const SPACE: f64 = 28.0;

/// A panel as it stands on the page, for the template.
pub(crate) struct PanelPictures {
    pub(crate) wide: String,
    pub(crate) narrow: String,
    pub(crate) not_drawn: usize,
}

/// Width of the wide version by the number of panels of the figure.
fn wide(panels: usize) -> f64 {
    match panels {
        0 | 1 => 760.0,
        2 | 4 => 520.0,
        _ => 340.0,
    }
}

/// Draws a panel twice; the style sheet shows the version that suits the screen, so that text keeps its size.
pub(crate) fn panel(figure: &Figure, index: usize, panel: &Panel, style: &Style<'_>) -> Result<PanelPictures, String> {
    let id = format!("_{}-{index}", figure.id);
    let wide = plot::draw(panel, style, &id, wide(figure.panels.len()), Target::Page)?;
    let narrow = plot::draw(panel, style, &id, NARROW, Target::Phone)?;
    Ok(PanelPictures {
        wide: on_page(figure, index, panel, &wide, "wide"),
        narrow: on_page(figure, index, panel, &narrow, "narrow"),
        not_drawn: wide.not_drawn,
    })
}

fn on_page(figure: &Figure, index: usize, panel: &Panel, drawn: &Drawn, version: &str) -> String {
    let id = format!("_{}-{index}-{version}", figure.id);
    let mut svg = format!(
        "<svg class=\"{version}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" {defaults}><title id=\"{id}-t\">",
        w = drawn.width,
        h = drawn.height.ceil(),
        defaults = Target::DEFAULTS,
    );
    push_escaped(&mut svg, &clean(&title(figure, Some(panel))));
    svg.push_str(&format!("</title><desc id=\"{id}-d\">"));
    push_escaped(&mut svg, &clean(description(figure)));
    svg.push_str("</desc>\n");
    svg.push_str(&drawn.body);
    svg.push_str("</svg>");
    svg
}

fn title(figure: &Figure, panel: Option<&Panel>) -> String {
    let title = if figure.title.is_empty() { &figure.id } else { &figure.title };
    match panel.map(|p| p.title.as_str()).filter(|t| !t.is_empty()) {
        Some(panel) => format!("{title}: {panel}"),
        None => title.clone(),
    }
}

fn description(figure: &Figure) -> &str {
    [&figure.description, &figure.caption, &figure.title]
        .into_iter()
        .find(|text| !text.trim().is_empty())
        .map_or(&figure.id, |text| text)
}

/// The figure as an SVG file: panels two abreast, legend below, colours of a light page.
pub(crate) fn file(figure: &Figure, style: &Style<'_>, legend: &[Entry]) -> Result<String, String> {
    let count = figure.panels.len();
    let columns = if count <= 1 { 1 } else { 2 };
    let each = if count <= 1 { 640.0 } else { 480.0 };
    let drawn: Vec<Drawn> =
        figure.panels.iter().map(|p| plot::draw(p, style, "panel", each, Target::File)).collect::<Result<_, _>>()?;
    let inner = each * columns as f64 + SPACE * (columns as f64 - 1.0);
    let mut canvas = Canvas::new(Target::File);
    let mut body = String::new();
    let mut y = SPACE / 2.0;
    for row in drawn.chunks(columns) {
        for (i, panel) in row.iter().enumerate() {
            let x = SPACE / 2.0 + (each + SPACE) * i as f64;
            body.push_str(&format!("<g transform=\"translate({x} {y})\">\n{}</g>\n", panel.body));
        }
        y += row.iter().map(|p| p.height.ceil()).fold(0.0, f64::max) + SPACE / 2.0;
    }
    canvas.at((SPACE / 2.0, y), |canvas| y += plot::draw_legend(canvas, legend, inner));
    body.push_str(&canvas.finish()?);
    let (width, height) = (inner + SPACE, y + SPACE / 2.0);
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"t d\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" {} font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif\">\n<title id=\"t\">",
        Target::DEFAULTS,
    );
    push_escaped(&mut svg, &clean(&title(figure, None)));
    svg.push_str("</title><desc id=\"d\">");
    push_escaped(&mut svg, &clean(description(figure)));
    svg.push_str(&format!(
        "</desc>\n<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
        Paint::light(Paint::Paper.index())
    ));
    svg.push_str(&body);
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Ours over published as a point with its interval on a scale from a quarter to four, for a cell of the summary.
/// Where it lies beyond, an arrow points there.
pub(crate) fn ratio(ratio: f64, low: Option<f64>, high: Option<f64>) -> Result<Option<String>, String> {
    const WIDTH: f64 = 120.0;
    const HEIGHT: f64 = 18.0;
    if !(ratio.is_finite() && ratio > 0.0) {
        return Ok(None);
    }
    let x = |ratio: f64| WIDTH / 2.0 + libm::log2(ratio).clamp(-2.2, 2.2) / 2.2 * (WIDTH / 2.0 - 4.0);
    let y = HEIGHT / 2.0;
    let mut canvas = Canvas::new(Target::Page);
    canvas.path(&[(4.0, y), (WIDTH - 4.0, y)], Paint::Grid, 1.0, None);
    for tick in [0.25, 0.5, 2.0, 4.0] {
        canvas.path(&[(x(tick), y - 3.0), (x(tick), y + 3.0)], Paint::Grid, 1.0, None);
    }
    canvas.path(&[(x(1.0), 1.0), (x(1.0), HEIGHT - 1.0)], Paint::Muted, 1.2, None);
    let at = x(ratio);
    if let (Some(low), Some(high)) = (low, high)
        && low > 0.0
        && high.is_finite()
    {
        canvas.path(&[(x(low), y), (x(high), y)], Paint::Series(0), 3.0, None);
    }
    if libm::log2(ratio).abs() > 2.2 {
        let tip = if ratio > 1.0 { 1.0 } else { -1.0 };
        canvas.polygon(
            &[(at + 4.0 * tip, y), (at - 4.0 * tip, y - 4.5), (at - 4.0 * tip, y + 4.5)],
            Paint::Series(0),
            1.0,
            None,
        );
    } else {
        canvas.marker((at, y), 4.2, crate::palette::Marker::Circle, Paint::Series(0));
    }
    let body = canvas.finish()?;
    Ok(Some(format!(
        "<svg class=\"ratio\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" {} aria-hidden=\"true\" focusable=\"false\">{body}</svg>",
        Target::DEFAULTS
    )))
}
