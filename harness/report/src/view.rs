//! What the templates see: the model with numbers as text and figures as SVG. `report-templates/README.md` lists it.

use serde::Serialize;

use crate::error::ReportError;
use crate::export;
use crate::figure::{Cell, Figure, Table};
use crate::model::{Status, SummaryRow, Verdict};
use crate::names::Names;
use crate::number;
use crate::palette::Looks;
use crate::pgfplots;
use crate::picture;
use crate::plot::{self, Style};

/// Tables with more rows than this are folded.
const FOLD_BEYOND: usize = 40;
/// Rows of a table that a page shows; its files have all.
const MOST_ROWS: usize = 100;
/// Rows of a digest that a page shows.
const MOST_DIGEST_ROWS: usize = 300;
/// Rows of a table that is also written for LaTeX, which sets it on few pages.
pub(crate) const MOST_LATEX_ROWS: usize = 300;
/// Cells with more characters than this are broken over lines.
const LONG_CELL: usize = 28;

/// A row of the table of published values beside ours.
#[derive(Serialize)]
pub(crate) struct SummaryView<'a> {
    figure: &'a str,
    /// Pages of the figure, workload and system; empty where there is none.
    href: String,
    dataset_href: String,
    system_href: String,
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

/// A figure as it stands on a page.
#[derive(Serialize)]
pub(crate) struct FigureView<'a> {
    id: &'a str,
    /// Whether the page is the figure's own.
    lone: bool,
    title: &'a str,
    kind: &'static str,
    caption: &'a str,
    findings: &'a [String],
    notes: &'a [String],
    panels: Vec<PanelView>,
    columns: usize,
    legend: Vec<LegendView>,
    not_drawn: usize,
    /// The table that the page shows: the digest where there is one.
    table: TableView<'a>,
    /// Rows of the files.
    rows: usize,
    /// Whether the page shows a digest of the files.
    digested: bool,
    latex: bool,
    parquet: bool,
    /// Whether it is there as a LaTeX document.
    pgfplots: bool,
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
    /// Rows that the page shows.
    shown: usize,
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
    /// Text that may run from right to left, and so must be kept from what is around it.
    bidi: bool,
}

/// A figure's picture as a file.
pub(crate) struct FigureFile {
    pub(crate) svg: String,
}

/// Where a figure stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a page of its own, whose title is the figure's.
    Own,
    /// At the top of the first page, where words follow it: its table is folded.
    First,
    /// Among others, under its title.
    Among,
}

/// Draws a figure.
pub(crate) fn figure<'a>(
    figure: &'a Figure,
    looks: &Looks,
    place: Place,
) -> Result<(FigureView<'a>, FigureFile), ReportError> {
    let fault = |message: String| ReportError::Draw { figure: figure.id.clone(), message };
    let style = Style::new(looks, figure);
    let legend = plot::entries(figure, &style);
    let svg = picture::file(figure, &style, &legend).map_err(fault)?;
    let mut view = figure_view(figure, &style, &legend).map_err(fault)?;
    view.lone = place != Place::Among;
    view.table.folded |= place == Place::First;
    Ok((view, FigureFile { svg }))
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

/// A row of the table of published values beside ours.
pub(crate) fn summary<'a>(row: &'a SummaryRow, names: &Names) -> Result<SummaryView<'a>, ReportError> {
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
        href: names.figure(&row.figure),
        dataset_href: names.workload(&row.dataset),
        system_href: names.system(&row.system),
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
        lone: false,
        title: if figure.title.is_empty() { &figure.id } else { &figure.title },
        kind: figure.kind.word(),
        caption: &figure.caption,
        findings: &figure.findings,
        notes: &figure.notes,
        panels,
        columns,
        legend,
        not_drawn,
        table: match &figure.digest {
            Some(digest) => table_view(digest, MOST_DIGEST_ROWS),
            None => table_view(&figure.table, MOST_ROWS),
        },
        rows: figure.table.rows.len(),
        digested: figure.digest.is_some(),
        latex: figure.table.rows.len() <= MOST_LATEX_ROWS,
        parquet: figure.parquet.is_some(),
        pgfplots: pgfplots::possible(figure),
    })
}

fn table_view(table: &Table, most: usize) -> TableView<'_> {
    let decimals = export::decimals(table);
    let cell = |row: &[Cell], i: usize, decimals: Option<usize>| match row.get(i) {
        Some(Cell::Number(value)) => CellView {
            text: decimals.map_or_else(|| number::significant(*value, 4), |d| number::fixed(*value, d)),
            number: true,
            long: false,
            bidi: false,
        },
        Some(Cell::Text(text)) => CellView {
            text: text.clone(),
            number: false,
            long: text.chars().count() > LONG_CELL,
            bidi: !text.is_ascii(),
        },
        Some(Cell::Empty) | None => {
            CellView { text: String::new(), number: decimals.is_some(), long: false, bidi: false }
        }
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
            .take(most)
            .map(|row| decimals.iter().enumerate().map(|(i, d)| cell(row, i, *d)).collect())
            .collect(),
        count: table.rows.len(),
        shown: table.rows.len().min(most),
        folded: table.rows.len() > FOLD_BEYOND,
    }
}
