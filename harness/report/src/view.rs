//! What the templates see: the model with numbers as text and figures as SVG. `report-templates/README.md` lists it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::ReportError;
use crate::export;
use crate::figure::{Cell, Figure, Mark};
use crate::model::{Page, Site, Status, SummaryRow, Verdict};
use crate::number;
use crate::palette::{self, Looks};
use crate::picture;
use crate::plot::{self, Style};

/// Tables with more rows than this are folded.
const FOLD_BEYOND: usize = 40;
/// Cells with more characters than this are broken over lines.
const LONG_CELL: usize = 28;

/// Everything on the first page.
#[derive(Serialize)]
pub(crate) struct View<'a> {
    site: &'a Site,
    facts: Vec<Fact<'a>>,
    summary: Vec<SummaryView<'a>>,
    figures: Vec<FigureView<'a>>,
    failures: Vec<FailureView<'a>>,
    palette_light: String,
    palette_dark: String,
    palette_classes: String,
}

/// Everything on a further page.
#[derive(Serialize)]
pub(crate) struct PageView<'a> {
    /// Title of the report.
    report: &'a str,
    revision: &'a str,
    page: &'a Page,
    figures: Vec<FigureView<'a>>,
    palette_light: String,
    palette_dark: String,
    palette_classes: String,
}

#[derive(Serialize)]
struct Fact<'a> {
    name: &'static str,
    value: &'a str,
    code: bool,
}

#[derive(Serialize)]
struct SummaryView<'a> {
    figure: &'a str,
    /// Whether the page has that figure.
    linked: bool,
    dataset: &'a str,
    system: &'a str,
    quantity: &'a str,
    published: &'a str,
    value: String,
    interval: String,
    n: String,
    ratio: String,
    /// SVG, or empty.
    ratio_picture: String,
    kind: &'static str,
    status: &'static str,
    reason: &'a str,
    verdict: &'static str,
    verdict_text: &'a str,
}

#[derive(Serialize)]
struct FigureView<'a> {
    id: &'a str,
    title: &'a str,
    kind: &'static str,
    caption: &'a str,
    notes: &'a [String],
    panels: Vec<PanelView>,
    columns: usize,
    legend: Vec<LegendView>,
    not_drawn: usize,
    table: TableView<'a>,
    parquet: bool,
}

#[derive(Serialize)]
struct PanelView {
    wide: String,
    narrow: String,
}

#[derive(Serialize)]
struct LegendView {
    swatch: String,
    label: String,
}

#[derive(Serialize)]
struct TableView<'a> {
    columns: Vec<ColumnView<'a>>,
    rows: Vec<Vec<CellView>>,
    count: usize,
    folded: bool,
}

#[derive(Serialize)]
struct ColumnView<'a> {
    title: &'a str,
    unit: &'a str,
    number: bool,
}

#[derive(Serialize)]
struct CellView {
    text: String,
    number: bool,
    /// Text that is to be broken over lines.
    long: bool,
}

#[derive(Serialize)]
struct FailureView<'a> {
    experiment: &'a str,
    cell: &'a str,
    status: &'static str,
    reason: &'a str,
}

/// A figure's picture as a file.
pub(crate) struct FigureFile {
    pub(crate) id: String,
    pub(crate) svg: String,
}

/// Draws everything and prepares the page.
pub(crate) fn build(site: &Site) -> Result<(View<'_>, Vec<FigureFile>), ReportError> {
    let looks = looks(site, &site.figures);
    let ids: BTreeSet<&str> = site.figures.iter().map(|f| f.id.as_str()).collect();
    let (figures, files) = draw(&site.figures, &looks)?;
    let facts = [
        ("Command", &site.command, true),
        ("Revision", &site.revision, true),
        ("Backend", &site.backend, false),
        ("Profile", &site.profile, false),
        ("Seed", &site.seed, false),
        ("Made from", &site.created_from, false),
    ];
    let view = View {
        site,
        facts: facts
            .into_iter()
            .filter(|(_, value, _)| !value.is_empty())
            .map(|(name, value, code)| Fact { name, value, code })
            .collect(),
        summary: site.summary.iter().map(|row| summary_view(row, &ids)).collect::<Result<_, _>>()?,
        figures,
        failures: site
            .failures
            .iter()
            .map(|f| FailureView {
                experiment: &f.experiment,
                cell: &f.cell,
                status: f.status.word(),
                reason: &f.reason,
            })
            .collect(),
        palette_light: palette::variables(false),
        palette_dark: palette::variables(true),
        palette_classes: palette::classes(),
    };
    Ok((view, files))
}

/// Draws a further page and prepares it.
pub(crate) fn build_page<'a>(site: &'a Site, page: &'a Page) -> Result<(PageView<'a>, Vec<FigureFile>), ReportError> {
    let (figures, files) = draw(&page.figures, &looks(site, &page.figures))?;
    let view = PageView {
        report: &site.title,
        revision: &site.revision,
        page,
        figures,
        palette_light: palette::variables(false),
        palette_dark: palette::variables(true),
        palette_classes: palette::classes(),
    };
    Ok((view, files))
}

/// Colours and markers: systems as everywhere in the report, then what the figures add.
fn looks(site: &Site, figures: &[Figure]) -> Looks {
    Looks::new(site.series_order.iter().map(String::as_str).chain(series(figures)))
}

fn draw<'a>(figures: &'a [Figure], looks: &Looks) -> Result<(Vec<FigureView<'a>>, Vec<FigureFile>), ReportError> {
    let mut views = Vec::new();
    let mut files = Vec::new();
    for figure in figures {
        let fault = |message: String| ReportError::Draw { figure: figure.id.clone(), message };
        let style = Style::new(looks, figure);
        let legend = plot::entries(figure, &style);
        files.push(FigureFile { id: figure.id.clone(), svg: picture::file(figure, &style, &legend).map_err(fault)? });
        views.push(figure_view(figure, &style, &legend).map_err(fault)?);
    }
    Ok((views, files))
}

/// Series in order of appearance.
fn series(figures: &[Figure]) -> impl Iterator<Item = &str> {
    figures.iter().flat_map(|f| &f.panels).flat_map(|p| &p.marks).filter_map(|mark| match mark {
        Mark::Line { series, .. }
        | Mark::Points { series, .. }
        | Mark::Steps { series, .. }
        | Mark::Bars { series, .. }
        | Mark::Dots { series, .. }
        | Mark::Boxes { series, .. }
        | Mark::Band { series, .. } => Some(series.as_str()),
        Mark::Published { series, .. } | Mark::PublishedNamed { series, .. } => series.as_deref(),
        Mark::Curve { .. } | Mark::Heat { .. } | Mark::Reference { .. } => None,
    })
}

fn with_unit(value: f64, unit: &str) -> String {
    let value = number::significant(value, 3);
    match unit {
        "" => value,
        "x" | "×" => format!("{value}×"),
        "%" => format!("{value}\u{202f}%"),
        unit => format!("{value} {unit}"),
    }
}

fn summary_view<'a>(row: &'a SummaryRow, ids: &BTreeSet<&str>) -> Result<SummaryView<'a>, ReportError> {
    let interval = match (row.ci_low, row.ci_high) {
        (Some(low), Some(high)) => format!("{} to {}", number::significant(low, 3), number::significant(high, 3)),
        _ => String::new(),
    };
    let scaled = |end: Option<f64>| Some(end? / row.value? * row.ratio?);
    let picture = match row.ratio {
        Some(ratio) => picture::ratio(ratio, scaled(row.ci_low), scaled(row.ci_high))
            .map_err(|message| ReportError::Draw { figure: row.figure.clone(), message })?,
        None => None,
    };
    let (verdict, word) = match (row.status, row.verdict) {
        (Status::Failed, _) => ("failed", "failed"),
        (Status::Skipped, _) => ("skipped", "skipped"),
        (Status::Ok, Verdict::Agrees) => ("agrees", "agrees"),
        (Status::Ok, Verdict::Differs) => ("differs", "differs"),
        (Status::Ok, Verdict::Unclear) => ("unclear", "unclear"),
        (Status::Ok, Verdict::None) => ("none", "not compared"),
    };
    Ok(SummaryView {
        figure: &row.figure,
        linked: ids.contains(row.figure.as_str()),
        dataset: &row.dataset,
        system: &row.system,
        quantity: &row.quantity,
        published: row.published.as_deref().unwrap_or(""),
        value: row.value.map(|v| with_unit(v, &row.unit)).unwrap_or_default(),
        interval,
        n: row.n.map(|n| number::fixed(n as f64, 0)).unwrap_or_default(),
        ratio: row.ratio.map(|r| number::significant(r, 3)).unwrap_or_default(),
        ratio_picture: picture.unwrap_or_default(),
        kind: row.kind.word(),
        status: row.status.word(),
        reason: &row.reason,
        verdict,
        verdict_text: if row.verdict_text.is_empty() { word } else { &row.verdict_text },
    })
}

fn figure_view<'a>(figure: &'a Figure, style: &Style<'_>, legend: &[plot::Entry]) -> Result<FigureView<'a>, String> {
    let mut not_drawn = 0;
    let mut panels = Vec::new();
    for (index, panel) in figure.panels.iter().enumerate() {
        let pictures = picture::panel(figure, index, panel, style)?;
        not_drawn += pictures.not_drawn;
        panels.push(PanelView { wide: pictures.wide, narrow: pictures.narrow });
    }
    let legend = legend
        .iter()
        .map(|entry| Ok(LegendView { swatch: plot::swatch(entry)?, label: entry.label.clone() }))
        .collect::<Result<_, String>>()?;
    let columns = match panels.len() {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    Ok(FigureView {
        id: &figure.id,
        title: if figure.title.is_empty() { &figure.id } else { &figure.title },
        kind: figure.kind.word(),
        caption: &figure.caption,
        notes: &figure.notes,
        panels,
        columns,
        legend,
        not_drawn,
        table: table_view(figure),
        parquet: figure.parquet.is_some(),
    })
}

fn table_view(figure: &Figure) -> TableView<'_> {
    let decimals = export::decimals(figure);
    let table = &figure.table;
    let cell = |row: &[Cell], i: usize, decimals: Option<usize>| match row.get(i) {
        Some(Cell::Number(value)) => CellView {
            text: decimals.map_or_else(|| number::significant(*value, 4), |d| number::fixed(*value, d)),
            number: true,
            long: false,
        },
        Some(Cell::Text(text)) => {
            CellView { text: text.clone(), number: false, long: text.chars().count() > LONG_CELL }
        }
        Some(Cell::Empty) | None => CellView { text: String::new(), number: decimals.is_some(), long: false },
    };
    TableView {
        columns: table
            .columns
            .iter()
            .zip(&decimals)
            .map(|(c, d)| ColumnView { title: &c.title, unit: &c.unit, number: d.is_some() })
            .collect(),
        rows: table
            .rows
            .iter()
            .map(|row| decimals.iter().enumerate().map(|(i, d)| cell(row, i, *d)).collect())
            .collect(),
        count: table.rows.len(),
        folded: table.rows.len() > FOLD_BEYOND,
    }
}
