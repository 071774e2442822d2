//! A drawing in pixels, drawn by plotters and rewritten on the way out: plotters' SVG backend knows whole pixels and
//! fixed colours only, the page needs tenths of a pixel and colours that follow the reader's theme.

use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon};
use plotters::prelude::{DrawingArea, IntoDrawingArea, IntoFont, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, RGBAColor, RGBColor, ShapeStyle, TextStyle};

use crate::palette::{Marker, Paint};
use crate::text::clean;

/// Backend units in a pixel.
const UNITS: f64 = 10.0;
/// The backend divides font sizes by this.
const FONT_FACTOR: f64 = 1.24;
/// Farthest a coordinate may be from the origin, in backend units.
const FAR: f64 = 99_999.0;

/// Width and height of the backend's drawing, to whose edges it moves what lies beyond.
const EXTENT: u32 = 1_000_000;

/// A position in pixels, from the top left.
pub(crate) type Xy = (f64, f64);

/// A horizontal stroke on a grid: row, first column and number of columns.
pub(crate) type Stroke = (usize, usize, usize);

/// Where the drawing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Into the page: colours are CSS classes.
    Page,
    /// Into the page for a phone, where nothing is pointed at; it takes from the page's drawing what they share.
    Phone,
    /// Into a file of its own: colours are those of a light page.
    File,
}

impl Target {
    /// Attributes of the enclosing `<svg>` that elements leave out.
    pub(crate) const DEFAULTS: &'static str = "fill=\"none\" font-size=\"12\"";
    const FONT_SIZE: f64 = 12.0;
}

/// Horizontal alignment of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

/// A drawing under construction.
pub(crate) struct Canvas {
    target: Target,
    body: String,
    /// The look of the path that ends the body, and where the path's data end.
    last: Option<(String, usize)>,
    fault: Option<String>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Canvas {
    /// An empty drawing.
    pub(crate) fn new(target: Target) -> Self {
        Self { target, body: String::new(), last: None, fault: None }
    }

    /// The elements drawn, without an enclosing `<svg>`.
    pub(crate) fn finish(self) -> Result<String, String> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(self.body),
        }
    }

    /// Puts what `draw` draws into a group that shows `title` when pointed at.
    pub(crate) fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        if self.target != Target::Page {
            return draw(self);
        }
        let mut tag = "<g><title>".to_owned();
        push_escaped(&mut tag, &clean(title));
        tag.push_str("</title>");
        self.group(&tag, draw, "</g>\n");
    }

    /// Puts what `draw` draws at an offset.
    pub(crate) fn at(&mut self, (x, y): Xy, draw: impl FnOnce(&mut Self)) {
        let tag = format!("<g transform=\"translate({} {})\">", pixels(x), pixels(y));
        self.group(&tag, draw, "</g>\n");
    }

    /// Puts what `draw` draws at an offset, in units of its own. Page and phone share it under an id: it is drawn once.
    pub(crate) fn shared(&mut self, id: &str, (x, y): Xy, (width, height): Xy, draw: impl FnOnce(&mut Self)) {
        let place = format!("translate({} {})scale({width:.4} {height:.4})", pixels(x), pixels(y));
        match self.target {
            Target::Page => self.group(&format!("<g transform=\"{place}\"><g id=\"{id}\">"), draw, "</g></g>\n"),
            Target::Phone => {
                self.body.push_str(&format!("<use href=\"#{id}\" transform=\"{place}\"/>\n"));
                self.last = None;
            }
            Target::File => self.group(&format!("<g transform=\"{place}\">"), draw, "</g>\n"),
        }
    }

    fn group(&mut self, tag: &str, draw: impl FnOnce(&mut Self), end: &str) {
        self.body.push_str(tag);
        self.last = None;
        draw(self);
        self.body.push_str(end);
        self.last = None;
    }

    /// A line through points.
    pub(crate) fn path(&mut self, points: &[Xy], paint: Paint, width: f64, dash: Option<&str>) {
        let style = ShapeStyle { color: stand_in(paint, 1.0), filled: false, stroke_width: units(width) };
        let element = PathElement::new(points.iter().map(|p| place(*p)).collect::<Vec<_>>(), style);
        let extra = dash.map(|dash| format!(" stroke-dasharray=\"{dash}\"")).unwrap_or_default();
        self.draw(&extra, |area| area.draw(&element).map_err(|e| e.to_string()));
    }

    /// Horizontal strokes, sorted: a drawing has thousands of them.
    pub(crate) fn strokes(&mut self, strokes: &[Stroke], paint: Paint, width: f64) {
        let mut data = String::new();
        let mut at = None;
        for (row, column, length) in strokes {
            match at {
                Some((same, end)) if same == row => data.push_str(&format!("m{} 0", column - end)),
                _ => data.push_str(&format!("M{column} {row}")),
            }
            data.push_str(&format!("h{length}"));
            at = Some((row, column + length));
        }
        if data.is_empty() {
            return;
        }
        let look = match self.target {
            Target::File => format!(" stroke=\"{}\"", Paint::light(paint.index())),
            _ => format!(" class=\"s-{}\"", Paint::name(paint.index())),
        };
        self.push_path(&data, &format!(" stroke-width=\"{width:.2}\"{look}"), false);
    }

    /// Appends a path; one that looks as the path before it becomes part of that.
    fn push_path(&mut self, data: &str, look: &str, filled: bool) {
        match &mut self.last {
            Some((known, end)) if !filled && known == look => {
                self.body.insert_str(*end, data);
                *end += data.len();
            }
            _ => {
                self.body.push_str("<path d=\"");
                self.body.push_str(data);
                self.last = (!filled).then(|| (look.to_owned(), self.body.len()));
                self.body.push_str(&format!("\"{look}/>\n"));
            }
        }
    }

    /// A filled polygon, with an outline if asked for.
    pub(crate) fn polygon(&mut self, points: &[Xy], fill: Paint, alpha: f64, outline: Option<(Paint, f64)>) {
        let style = ShapeStyle { color: stand_in(fill, alpha), filled: true, stroke_width: 0 };
        let element = Polygon::new(points.iter().map(|p| place(*p)).collect::<Vec<_>>(), style);
        let extra = self.outline(outline);
        self.draw(&extra, |area| area.draw(&element).map_err(|e| e.to_string()));
    }

    /// A filled rectangle given by two corners.
    pub(crate) fn rect(&mut self, (x0, y0): Xy, (x1, y1): Xy, fill: Paint, alpha: f64, outline: Option<(Paint, f64)>) {
        self.polygon(&[(x0, y0), (x1, y0), (x1, y1), (x0, y1)], fill, alpha, outline);
    }

    fn circle(&mut self, center: Xy, radius: f64, fill: Paint, outline: Option<(Paint, f64)>) {
        let style = ShapeStyle { color: stand_in(fill, 1.0), filled: true, stroke_width: 0 };
        let element = Circle::new(place(center), units(radius), style);
        let extra = self.outline(outline);
        self.draw(&extra, |area| area.draw(&element).map_err(|e| e.to_string()));
    }

    /// A point of a series, set off from what is below it.
    pub(crate) fn marker(&mut self, center: Xy, radius: f64, marker: Marker, paint: Paint) {
        let (x, y) = center;
        let rim = Some((Paint::Paper, 1.0));
        let scaled = |shape: &[Xy]| shape.iter().map(|(dx, dy)| (x + dx * radius, y + dy * radius)).collect::<Vec<_>>();
        match marker {
            Marker::Circle => self.circle(center, radius, paint, rim),
            Marker::Square => {
                self.polygon(&scaled(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]), paint, 1.0, rim);
            }
            Marker::Up => self.polygon(&scaled(&[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)]), paint, 1.0, rim),
            Marker::Down => self.polygon(&scaled(&[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)]), paint, 1.0, rim),
            Marker::Hexagon => {
                let shape = [(0.0, -1.15), (1.0, -0.58), (1.0, 0.58), (0.0, 1.15), (-1.0, 0.58), (-1.0, -0.58)];
                self.polygon(&scaled(&shape), paint, 1.0, rim);
            }
            Marker::Cross | Marker::Plus => {
                let arms: [[Xy; 2]; 2] = if marker == Marker::Cross {
                    [[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]]
                } else {
                    [[(-1.2, 0.0), (1.2, 0.0)], [(0.0, -1.2), (0.0, 1.2)]]
                };
                for (paint, width) in [(Paint::Paper, 4.2), (paint, 2.2)] {
                    for arm in &arms {
                        self.path(&scaled(arm), paint, width, None);
                    }
                }
            }
        }
    }

    /// The mark of a published value: a hollow diamond, so that what lies below stays visible.
    pub(crate) fn diamond(&mut self, (x, y): Xy, paint: Paint) {
        let r = 6.0;
        let shape = [(x, y - r), (x + r, y), (x, y + r), (x - r, y), (x, y - r), (x + r, y)];
        self.path(&shape, Paint::Paper, 3.6, None);
        self.path(&shape, paint, 1.7, None);
    }

    /// A text centred vertically on the position. The text is escaped by the backend.
    pub(crate) fn text(&mut self, at: Xy, text: &str, size: f64, paint: Paint, align: Align, bold: bool) {
        if text.is_empty() {
            return;
        }
        let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let anchor = match align {
            Align::Left => HPos::Left,
            Align::Center => HPos::Center,
            Align::Right => HPos::Right,
        };
        let style: TextStyle<'_> = ("sans-serif", size * UNITS * FONT_FACTOR).into_font().style(weight).into();
        let color = stand_in(paint, 1.0);
        let style = style.color(&color).pos(Pos::new(anchor, VPos::Center));
        let text = &clean(text);
        self.draw("", |area| area.draw_text(text, &style, place(at)).map_err(|e| e.to_string()));
    }

    fn outline(&self, outline: Option<(Paint, f64)>) -> String {
        let Some((paint, width)) = outline else { return String::new() };
        let width = if width == 1.0 { String::new() } else { format!(" stroke-width=\"{width}\"") };
        match self.target {
            Target::File => format!("{width} stroke=\"{}\"", Paint::light(paint.index())),
            _ => format!("{width} class=\"s-{}\"", Paint::name(paint.index())),
        }
    }

    fn draw(&mut self, extra: &str, draw: impl FnOnce(&Area<'_>) -> Result<(), String>) {
        let mut raw = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut raw, (EXTENT, EXTENT)).into_drawing_area();
            draw(&area).and_then(|()| area.present().map_err(|e| e.to_string()))
        };
        match drawn {
            Ok(()) => self.rewrite(&raw, extra),
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Copies the elements inside the backend's `<svg>`, in pixels and with real paints. Relies on the backend escaping
    /// `<`, `>` and `"` in texts and attributes.
    fn rewrite(&mut self, raw: &str, extra: &str) {
        for piece in raw.split('<').skip(1) {
            let Some((tag, text)) = piece.split_once('>') else { continue };
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let attributes = attributes.trim_end_matches('/');
            match name {
                "svg" | "/svg" => {}
                "polyline" | "polygon" => {
                    let (points, look) = look_of(attributes, extra, self.target);
                    let closed = name == "polygon";
                    self.push_path(&path_data(&points, closed), &look, closed);
                }
                _ => {
                    self.body.push('<');
                    self.body.push_str(name);
                    if !name.starts_with('/') {
                        self.body.push_str(&look_of(attributes, extra, self.target).1);
                    }
                    self.body.push_str(if tag.ends_with('/') { "/>\n" } else { ">" });
                    self.body.push_str(text.trim_matches('\n'));
                    if name.starts_with('/') {
                        self.body.push('\n');
                    }
                    self.last = None;
                }
            }
        }
    }
}

/// The colour that stands for a paint inside the backend: its number in the blue channel.
fn stand_in(paint: Paint, alpha: f64) -> RGBAColor {
    RGBColor(0, 0, paint.index() as u8).mix(alpha)
}

fn units(pixels: f64) -> u32 {
    (pixels * UNITS).round().clamp(0.0, FAR) as u32
}

fn place((x, y): Xy) -> (i32, i32) {
    let one = |v: f64| if v.is_finite() { (v * UNITS).round().clamp(-FAR, FAR) as i32 } else { 0 };
    (one(x), one(y))
}

/// Backend units as pixels, without needless digits.
fn tenths(value: f64) -> String {
    let text = format!("{:.1}", value / UNITS);
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Pixels to a tenth, without needless digits.
fn pixels(value: f64) -> String {
    tenths(value * UNITS)
}

/// Text for markup.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// The points of an element, and its other attributes.
fn look_of(attributes: &str, extra: &str, target: Target) -> (Vec<(i64, i64)>, String) {
    let mut out = String::new();
    let mut points = Vec::new();
    let mut classes: Vec<String> = Vec::new();
    let extra = match extra.split_once(" class=\"") {
        Some((before, class)) => {
            classes.push(class.trim_end_matches('"').to_owned());
            before
        }
        None => extra,
    };
    let outlined = extra.contains(" stroke-width=") || extra.contains(" stroke=") || !classes.is_empty();
    let size = value_of(attributes, "font-size").map(tenths_of);
    let mut rest = attributes;
    while let Some((key, after)) = rest.split_once("=\"") {
        let Some((value, next)) = after.split_once('"') else { break };
        rest = next;
        let key = key.trim();
        match key {
            "fill" | "stroke" if value.starts_with('#') => {
                let index = usize::from_str_radix(value.get(5..).unwrap_or(""), 16).unwrap_or(0);
                match target {
                    Target::File => attribute(&mut out, key, Paint::light(index)),
                    _ => classes.push(format!("{}-{}", key.get(..1).unwrap_or(""), Paint::name(index))),
                }
            }
            "fill" if value == "none" => {}
            "stroke" | "font-family" | "dy" => {}
            "stroke-width" if outlined || value == "0" || number(value) == "1" => {}
            "opacity" if value == "1" => {}
            "opacity" => {
                let alpha: f64 = value.parse().unwrap_or(1.0);
                attribute(&mut out, "fill-opacity", &format!("{alpha:.2}"));
            }
            "points" => {
                let pairs = value.split_whitespace().filter_map(|pair| pair.split_once(','));
                points.extend(pairs.filter_map(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?))));
            }
            "text-anchor" if value == "start" => {}
            "font-size" if size == Some(Target::FONT_SIZE) => {}
            // Texts are centred on their position; here that is where their baseline goes.
            "y" if size.is_some() => {
                attribute(&mut out, key, &pixels(tenths_of(value) + BASELINE * size.unwrap_or_default()));
            }
            "text-anchor" | "font-weight" => attribute(&mut out, key, value),
            _ => attribute(&mut out, key, &number(value)),
        }
    }
    out.push_str(extra);
    if !classes.is_empty() {
        attribute(&mut out, "class", &classes.join(" "));
    }
    (points, out)
}

/// Share of the font size that the baseline lies below the middle of small letters.
const BASELINE: f64 = 0.35;

fn value_of<'a>(attributes: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = attributes.split_once(&format!("{key}=\""))?;
    after.split_once('"').map(|(value, _)| value)
}

/// The data of a path through points in backend units.
fn path_data(points: &[(i64, i64)], closed: bool) -> String {
    let Some((&first, rest)) = points.split_first() else { return String::new() };
    let one = |value: i64| tenths(value as f64);
    let mut data = format!("M{} {}", one(first.0), one(first.1));
    let mut at = first;
    for &(x, y) in rest {
        let (dx, dy) = (x - at.0, y - at.1);
        at = (x, y);
        data.push_str(&match (dx, dy) {
            (0, 0) => continue,
            (_, 0) => format!("h{}", one(dx)),
            (0, _) => format!("v{}", one(dy)),
            _ => format!("l{} {}", one(dx), one(dy)),
        });
    }
    if closed {
        data.push('z');
    }
    data
}

/// A backend number in pixels.
fn tenths_of(value: &str) -> f64 {
    value.trim().parse::<f64>().map_or(0.0, |value| (value / UNITS * 10.0).round() / 10.0)
}

fn number(value: &str) -> String {
    value.trim().parse::<f64>().map_or_else(|_| "0".to_owned(), tenths)
}

fn attribute(out: &mut String, key: &str, value: &str) {
    out.push(' ');
    out.push_str(key);
    out.push_str("=\"");
    out.push_str(value);
    out.push('"');
}
