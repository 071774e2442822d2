//! A figure as a LaTeX document of its own, drawn by pgfplots with the numbers in it.

use std::fmt::Write as _;

use crate::export::tex;
use crate::figure::{Axis, Figure, HeatCell, Mark, Named, Panel, Point, Scale, Side};
use crate::number;
use crate::palette::{Looks, Marker, Paint};
use crate::text;

/// Whether the figure can be plotted from numbers; a timeline has too many and is taken as PDF.
pub(crate) fn possible(figure: &Figure) -> bool {
    let timeline = |panel: &Panel| panel.marks.iter().any(|m| matches!(m, Mark::Timeline { .. }));
    !figure.panels.is_empty() && !figure.panels.iter().any(timeline)
}

/// The document: one picture a panel. Needs the packages standalone and pgfplots (1.16 or later), nothing else.
pub(crate) fn document(figure: &Figure, looks: &Looks) -> String {
    let mut out = format!(
        "% {}\n% {} values. Compiles by itself: pdflatex {}.tex\n\\documentclass[border=4pt]{{standalone}}\n\\usepackage[utf8]{{inputenc}}\n\
         \\usepackage{{pgfplots}}\n\\usepgfplotslibrary{{fillbetween,statistics}}\n\\pgfplotsset{{compat=1.16}}\n\\renewcommand{{\\familydefault}}{{\\sfdefault}}\n",
        text::clean(&figure.title),
        figure.kind.word(),
        figure.id
    );
    let series = series(figure);
    for (i, name) in series.iter().enumerate() {
        let hex = Paint::light(looks.of(name).paint.index()).trim_start_matches('#').to_uppercase();
        let _ = writeln!(out, "\\definecolor{{series{i}}}{{HTML}}{{{hex}}}");
    }
    out.push_str("\\begin{document}\n");
    for panel in &figure.panels {
        Plot { panel, series: &series, looks, out: &mut out }.draw();
    }
    out.push_str("\\end{document}\n");
    out
}

fn series(figure: &Figure) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in figure.panels.iter().flat_map(|p| &p.marks).filter_map(Mark::series) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

struct Plot<'a, 'o> {
    panel: &'a Panel,
    series: &'a [&'a str],
    looks: &'a Looks,
    out: &'o mut String,
}

/// A number as pgfplots reads it; nothing where it is not finite.
fn value(value: f64) -> Option<String> {
    value.is_finite().then(|| number::exact(value))
}

impl<'a> Plot<'a, '_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn draw(&mut self) {
        let categories = self.categories();
        let across = self.panel.y.scale == Scale::Category || !self.panel.y.categories.is_empty();
        let boxes = self.panel.marks.iter().any(|m| matches!(m, Mark::Boxes { .. }));
        let heat = self.panel.marks.iter().find_map(|m| match m {
            Mark::Heat { cells, .. } => Some(cells),
            _ => None,
        });
        let mut options = vec![
            "width=9cm".to_owned(),
            "grid=major".to_owned(),
            "grid style={gray!20}".to_owned(),
            format!("title={{{}}}", tex(&self.panel.title)),
            format!("xlabel={{{}}}", label(&self.panel.x)),
            format!("ylabel={{{}}}", label(&self.panel.y)),
            "legend style={font=\\scriptsize, at={(0.5,-0.22)}, anchor=north, legend columns=3, draw=none, /tikz/every even column/.append style={column sep=8pt}}".to_owned(),
            "legend cell align=left".to_owned(),
        ];
        let named = !categories.is_empty() && heat.is_none();
        for (axis, letter, own) in [(&self.panel.x, 'x', named && !across), (&self.panel.y, 'y', named && across)] {
            if own {
                let ticks: Vec<String> = (0..categories.len()).map(|i| i.to_string()).collect();
                let names: Vec<String> = categories.iter().map(|c| format!("{{{}}}", tex(c))).collect();
                options.push(format!("{letter}tick={{{}}}", ticks.join(",")));
                options.push(format!("{letter}ticklabels={{{}}}", names.join(",")));
                options.push(format!("{letter}ticklabel style={{font=\\scriptsize}}"));
                options.push(format!("{letter}min=-0.7, {letter}max={}", categories.len() as f64 - 0.3));
                if letter == 'y' {
                    options.push(format!("y dir=reverse, height={:.1}cm", 3.0 + 0.5 * categories.len() as f64));
                } else {
                    options.push("xticklabel style={rotate=35, anchor=east}".to_owned());
                }
                continue;
            }
            if self.panel.marks.iter().any(|m| matches!(m, Mark::Bars { .. })) {
                options.push(format!("{letter}min=0"));
            }
            match self.scale(axis, letter == 'x') {
                Scale::Log10 => options.push(format!("{letter}mode=log")),
                Scale::Log2 => options.push(format!("{letter}mode=log, log basis {letter}=2")),
                _ => {}
            }
            options.extend(axis.min.and_then(value).map(|v| format!("{letter}min={v}")));
            options.extend(axis.max.and_then(value).map(|v| format!("{letter}max={v}")));
        }
        if boxes {
            options.push("boxplot/draw direction=".to_owned() + if across { "x" } else { "y" });
        }
        if let Some(cells) = heat {
            options.extend(heat_ticks(cells));
        }
        self.line("\\begin{tikzpicture}");
        let _ = writeln!(self.out, "\\begin{{axis}}[{}]", options.join(",\n  "));
        if let Some(cells) = heat {
            self.heat(cells);
        }
        for (i, mark) in self.panel.marks.iter().enumerate() {
            self.mark(i, mark, &categories, across);
        }
        self.line("\\end{axis}");
        self.line("\\end{tikzpicture}");
    }

    /// The scale that an automatic axis takes, as in the pictures.
    fn scale(&self, axis: &Axis, horizontal: bool) -> Scale {
        if axis.scale != Scale::Auto {
            return axis.scale;
        }
        let (mut least, mut most, mut positive) = (f64::INFINITY, 0.0_f64, true);
        let mut see = |v: f64| {
            positive &= v > 0.0;
            (least, most) = (least.min(v), most.max(v));
        };
        for mark in &self.panel.marks {
            mark.points().iter().for_each(|p| see(if horizontal { p.x } else { p.y }));
            mark.named().iter().for_each(|v| see(v.value));
        }
        if positive && most / least > 100.0 { Scale::Log10 } else { Scale::Linear }
    }

    fn categories(&self) -> Vec<&'a str> {
        let axis = if self.panel.y.categories.is_empty() { &self.panel.x } else { &self.panel.y };
        let mut names: Vec<&str> = axis.categories.iter().map(String::as_str).collect();
        for mark in &self.panel.marks {
            let boxes: &[_] = if let Mark::Boxes { values, .. } = mark { values } else { &[] };
            for name in
                mark.named().iter().map(|v| v.category.as_str()).chain(boxes.iter().map(|q| q.category.as_str()))
            {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    fn style(&self, name: &str) -> String {
        let Some(i) = self.series.iter().position(|s| *s == name) else { return "black".to_owned() };
        let mark = match self.looks.of(name).marker {
            Marker::Circle => "*",
            Marker::Square => "square*",
            Marker::Up => "triangle*",
            Marker::Down => "triangle*, mark options={rotate=180}",
            Marker::Cross => "x",
            Marker::Plus => "+",
            Marker::Hexagon => "pentagon*",
        };
        format!("series{i}, mark={mark}, mark size=1.6pt")
    }

    fn legend(&mut self, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.out, "\\addlegendentry{{{}}}", tex(text));
        }
    }

    /// The legend of a series, unless every value stands under its name already.
    fn named_legend(&mut self, series: &str, values: &[Named]) {
        if values.iter().any(|v| v.category != series) {
            self.legend(series);
        }
    }

    /// Points with error bars of their own two lengths.
    fn plot(&mut self, options: &str, points: &[Point]) {
        let bars = points.iter().any(|p| p.low.is_some() && p.high.is_some());
        let extra = if bars { ", error bars/.cd, y dir=both, y explicit, error bar style={solid}" } else { "" };
        let _ = write!(self.out, "\\addplot[{options}{extra}] coordinates {{");
        for p in points {
            let (Some(x), Some(y)) = (value(p.x), value(p.y)) else { continue };
            let _ = write!(self.out, " ({x},{y})");
            if let (true, Some(low), Some(high)) = (bars, p.low, p.high)
                && let (Some(up), Some(down)) = (value(high - p.y), value(p.y - low))
            {
                let _ = write!(self.out, " += (0,{up}) -= (0,{down})");
            }
        }
        self.line(" };");
    }

    /// Series that have a bar or dot in a category, in order: each has a slot of its own there.
    fn slots(&self, category: &str) -> Vec<&'a str> {
        let mut slots: Vec<&str> = Vec::new();
        for mark in &self.panel.marks {
            let (Mark::Bars { series, values } | Mark::Dots { series, values }) = mark else { continue };
            if values.iter().any(|v| v.category == category) && !slots.contains(&series.as_str()) {
                slots.push(series);
            }
        }
        slots
    }

    /// Most slots of any category.
    fn most_slots(&self, categories: &[&str]) -> usize {
        categories.iter().map(|c| self.slots(c).len()).max().unwrap_or(0).max(1)
    }

    /// Values of categories, which stand at whole numbers, each in the slot of its series.
    fn named(&mut self, options: &str, series: Option<&str>, values: &[Named], categories: &[&str], across: bool) {
        let bars = values.iter().any(|v| v.low.is_some() && v.high.is_some());
        let letter = if across { 'x' } else { 'y' };
        let extra =
            if bars { format!(", error bars/.cd, {letter} dir=both, {letter} explicit") } else { String::new() };
        let _ = write!(self.out, "\\addplot[{options}{extra}] coordinates {{");
        for v in values {
            let Some(at) = categories.iter().position(|c| *c == v.category) else { continue };
            let pair = |v: &str, at: &str| if across { format!("({v},{at})") } else { format!("({at},{v})") };
            let Some(text) = value(v.value) else { continue };
            let slots = self.slots(&v.category);
            let slot = slots.iter().position(|s| Some(*s) == series);
            let shift = slot.map_or(0.0, |slot| (slot as f64 + 0.5) / slots.len() as f64 - 0.5);
            let _ = write!(self.out, " {}", pair(&text, &format!("{:.3}", at as f64 + 0.8 * shift)));
            if let (true, Some(low), Some(high)) = (bars, v.low, v.high)
                && let (Some(up), Some(down)) = (value(high - v.value), value(v.value - low))
            {
                let _ = write!(self.out, " += {} -= {}", pair(&up, "0"), pair(&down, "0"));
            }
        }
        self.line(" };");
    }

    fn mark(&mut self, i: usize, mark: &Mark, categories: &[&str], across: bool) {
        match mark {
            Mark::Line { series, points } => {
                self.plot(&self.style(series), points);
                self.legend(series);
            }
            Mark::Points { series, points } => {
                self.plot(&format!("{}, only marks", self.style(series)), points);
                self.legend(series);
            }
            Mark::Steps { series, points } => {
                self.plot(&format!("{}, mark=none, const plot", self.style(series)), points);
                self.legend(series);
            }
            Mark::Curve { label, points } => {
                self.plot("black, dashed, mark=none", points);
                self.legend(label);
            }
            Mark::Band { series, label, points } => {
                let edge = |pick: fn(&Point) -> Option<f64>| -> Vec<Point> {
                    points.iter().filter_map(|p| Some(Point { x: p.x, y: pick(p)?, low: None, high: None })).collect()
                };
                self.plot(&format!("draw=none, mark=none, forget plot, name path=low{i}"), &edge(|p| p.low));
                self.plot(&format!("draw=none, mark=none, forget plot, name path=high{i}"), &edge(|p| p.high));
                let style = self.style(series);
                let colour = style.split(',').next().unwrap_or("black").to_owned();
                let _ = writeln!(self.out, "\\addplot[{colour}, opacity=0.16] fill between[of=low{i} and high{i}];");
                self.legend(label);
            }
            Mark::Published { label, points, .. } => {
                self.plot("black, only marks, mark=diamond, mark size=3pt", points);
                self.legend(label);
            }
            Mark::Bars { series, values } => {
                let shape = if across { "xbar" } else { "ybar" };
                let style = self.style(series);
                let colour = style.split(',').next().unwrap_or("black").to_owned();
                let width = 0.74 / self.most_slots(categories) as f64;
                let forgotten = forgotten(series, values);
                let options = format!(
                    "{forgotten}{shape}, draw=none, fill={colour}, mark=none, bar width={width:.3}, bar shift=0pt, area legend"
                );
                self.named(&options, Some(series), values, categories, across);
                self.named_legend(series, values);
            }
            Mark::Dots { series, values } => {
                let forgotten = forgotten(series, values);
                self.named(
                    &format!("{forgotten}{}, only marks", self.style(series)),
                    Some(series),
                    values,
                    categories,
                    across,
                );
                self.named_legend(series, values);
            }
            Mark::PublishedNamed { series, label, values } => {
                let options = "black, only marks, mark=diamond, mark size=3pt";
                self.named(options, series.as_deref(), values, categories, across);
                self.legend(label);
            }
            Mark::Boxes { series, values } => {
                for q in values {
                    let numbers: Option<Vec<String>> =
                        [q.p5, q.p25, q.p50, q.p75, q.p95].into_iter().map(value).collect();
                    let (Some(numbers), Some(at)) = (numbers, categories.iter().position(|c| *c == q.category)) else {
                        continue;
                    };
                    let style = self.style(series);
                    let colour = style.split(',').next().unwrap_or("black").to_owned();
                    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|n| numbers[n].clone());
                    let _ = writeln!(
                        self.out,
                        "\\addplot[{colour}, solid, mark=none, boxplot prepared={{draw position={at}, lower whisker={a}, lower quartile={b}, median={c}, upper quartile={d}, upper whisker={e}}}] coordinates {{}};"
                    );
                }
            }
            Mark::Reference { label, side, value: at } => {
                let Some(at) = value(*at) else { return };
                let line = match side {
                    Side::X => format!(
                        "({{axis cs:{at},1}} |- {{rel axis cs:0,0}}) -- ({{axis cs:{at},1}} |- {{rel axis cs:0,1}})"
                    ),
                    Side::Y => format!(
                        "({{rel axis cs:0,0}} |- {{axis cs:1,{at}}}) -- ({{rel axis cs:1,0}} |- {{axis cs:1,{at}}})"
                    ),
                };
                let _ = writeln!(self.out, "\\draw[dashed] {line};");
                let _ = writeln!(self.out, "\\addlegendimage{{black, dashed}}");
                self.legend(label);
            }
            Mark::Heat { .. } | Mark::Timeline { .. } => {}
        }
    }

    fn heat(&mut self, cells: &[HeatCell]) {
        let (columns, rows) = (names(cells, |c| &c.column), names(cells, |c| &c.row));
        self.line("\\addplot[scatter, only marks, mark=square*, mark size=9pt, point meta=explicit, nodes near coords, nodes near coords style={anchor=center, font=\\tiny}] coordinates {");
        for cell in cells {
            let at = (columns.iter().position(|c| *c == cell.column), rows.iter().position(|r| *r == cell.row));
            if let ((Some(x), Some(y)), Some(text)) = (at, value(cell.value)) {
                let _ = writeln!(self.out, "({x},{y}) [{text}]");
            }
        }
        self.line("};");
    }
}

/// Keeps a series out of the legend whose values all stand under its name.
fn forgotten(series: &str, values: &[Named]) -> &'static str {
    if values.iter().all(|v| v.category == series) { "forget plot, " } else { "" }
}

fn names(cells: &[HeatCell], pick: fn(&HeatCell) -> &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in cells.iter().map(pick) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Ticks of a grid of fields, whose columns and rows stand at whole numbers.
fn heat_ticks(cells: &[HeatCell]) -> Vec<String> {
    let ticks = |letter: char, names: Vec<&str>| {
        let at: Vec<String> = (0..names.len()).map(|i| i.to_string()).collect();
        let names: Vec<String> = names.iter().map(|n| format!("{{{}}}", tex(n))).collect();
        format!("{letter}tick={{{}}}, {letter}ticklabels={{{}}}", at.join(","), names.join(","))
    };
    vec![ticks('x', names(cells, |c| &c.column)), ticks('y', names(cells, |c| &c.row))]
}

fn label(axis: &Axis) -> String {
    tex(&crate::plot::axis_label(axis))
}
