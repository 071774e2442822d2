//! A figure's numbers for other programs: CSV and LaTeX.

use crate::figure::{Cell, Column, Figure, Table};
use crate::number;
use crate::text;

/// Rows from which a LaTeX table may break over pages.
const LONG_TABLE: usize = 40;

fn key(column: &Column) -> &str {
    if column.key.is_empty() { &column.title } else { &column.key }
}

/// The table as CSV (RFC 4180, UTF-8, first row names): numbers with all their digits, nothing where there is none.
pub(crate) fn csv(figure: &Figure) -> String {
    let mut out = String::new();
    let columns = &figure.table.columns;
    let header: Vec<String> = columns.iter().map(|c| csv_field(key(c))).collect();
    push_record(&mut out, &header);
    for row in &figure.table.rows {
        let fields: Vec<String> = (0..columns.len())
            .map(|i| match row.get(i) {
                Some(Cell::Number(value)) => number::exact(*value),
                Some(Cell::Text(text)) => csv_field(text),
                Some(Cell::Empty) | None => String::new(),
            })
            .collect();
        push_record(&mut out, &fields);
    }
    out
}

fn push_record(out: &mut String, fields: &[String]) {
    out.push_str(&fields.join(","));
    out.push_str("\r\n");
}

fn csv_field(text: &str) -> String {
    let text = text::clean(text);
    if text.contains([',', '"']) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// Which columns hold numbers only, and with how many decimals.
pub(crate) fn decimals(table: &Table) -> Vec<Option<usize>> {
    (0..table.columns.len())
        .map(|i| {
            let mut numbers = Vec::new();
            for row in &table.rows {
                match row.get(i) {
                    Some(Cell::Number(value)) => numbers.push(*value),
                    Some(Cell::Text(_)) => return None,
                    Some(Cell::Empty) | None => {}
                }
            }
            (!numbers.is_empty()).then(|| number::column_decimals(&numbers))
        })
        .collect()
}

/// The table for LaTeX with the booktabs package.
pub(crate) fn latex(figure: &Figure) -> String {
    let table = &figure.table;
    let decimals = decimals(table);
    let long = table.rows.len() > LONG_TABLE;
    let environment = if long { "longtable" } else { "tabular" };
    let mut out = format!(
        "% {}\n% needs \\usepackage{{booktabs}}{}; values are {}\n",
        text::clean(&figure.title),
        if long { " and \\usepackage{longtable}" } else { "" },
        figure.kind.word(),
    );
    let spec: String = decimals.iter().map(|d| if d.is_some() { 'r' } else { 'l' }).collect();
    out.push_str(&format!("\\begin{{{environment}}}{{{spec}}}\n\\toprule\n"));
    let header: Vec<String> = table
        .columns
        .iter()
        .map(|c| if c.unit.is_empty() { tex(&c.title) } else { format!("{} ({})", tex(&c.title), tex(&c.unit)) })
        .collect();
    push_tex_row(&mut out, &header);
    out.push_str("\\midrule\n");
    if long {
        out.push_str("\\endhead\n");
    }
    for row in &table.rows {
        let cells: Vec<String> = decimals
            .iter()
            .enumerate()
            .map(|(i, decimals)| match row.get(i) {
                Some(Cell::Number(value)) => tex_number(*value, *decimals),
                Some(Cell::Text(text)) => tex(text),
                Some(Cell::Empty) | None => "--".to_owned(),
            })
            .collect();
        push_tex_row(&mut out, &cells);
    }
    out.push_str(&format!("\\bottomrule\n\\end{{{environment}}}\n"));
    out
}

fn push_tex_row(out: &mut String, cells: &[String]) {
    out.push_str(&cells.join(" & "));
    out.push_str(" \\\\\n");
}

fn tex_number(value: f64, decimals: Option<usize>) -> String {
    if !value.is_finite() {
        return "--".to_owned();
    }
    let decimals = decimals.unwrap_or(4);
    let small = value != 0.0 && value.abs() < libm::pow(10.0, -(decimals as f64)) * 0.5;
    if small || value.abs() >= 1e15 {
        let text = format!("{value:.2e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("${mantissa} \\times 10^{{{exponent}}}$");
    }
    let text = format!("{value:.decimals$}");
    if value < 0.0 { format!("${text}$") } else { text }
}

/// Text for LaTeX. What its fonts lack is written as a formula where there is one.
pub(crate) fn tex(text: &str) -> String {
    let mut out = String::new();
    for c in text::clean(text).chars() {
        let raised = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|d| d == c);
        match c {
            _ if raised.is_some() => out.push_str(&format!("\\textsuperscript{{{}}}", raised.unwrap_or(0))),
            '⁻' => out.push_str("\\textsuperscript{--}"),
            '\u{202f}' | '\u{a0}' => out.push_str("\\,"),
            '−' => out.push_str("$-$"),
            '×' => out.push_str("$\\times$"),
            '√' => out.push_str("$\\surd$"),
            '→' => out.push_str("$\\rightarrow$"),
            '≤' => out.push_str("$\\le$"),
            '≥' => out.push_str("$\\ge$"),
            '≈' => out.push_str("$\\approx$"),
            'τ' => out.push_str("$\\tau$"),
            'σ' => out.push_str("$\\sigma$"),
            'μ' => out.push_str("$\\mu$"),
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '{' | '}' | '$' | '&' | '#' | '_' | '%' => {
                out.push('\\');
                out.push(c);
            }
            // What pdfLaTeX's default encodings lack stops it.
            c if c as u32 > 0x17f && !matches!(c, '–' | '—' | '‘' | '’' | '“' | '”' | '…' | '•') => {
                out.push('?')
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Table;

    fn figure() -> Figure {
        Figure {
            id: "fig4".into(),
            title: "Spread 50% & more".into(),
            table: Table {
                columns: vec![
                    Column::new("System", "system", ""),
                    Column::new("R-1", "r_minus_1", "%"),
                    Column::new("Small", "small", ""),
                ],
                rows: vec![
                    vec!["a_b, \"c\"".into(), 0.897_651.into(), 1e-9.into()],
                    vec!["=x".into(), f64::NAN.into()],
                    vec!["y".into(), (-12.5).into(), 3.0.into()],
                ],
            },
            ..Figure::default()
        }
    }

    #[test]
    fn csv_keeps_all_digits() {
        assert_eq!(
            csv(&figure()),
            "system,r_minus_1,small\r\n\"a_b, \"\"c\"\"\",0.897651,1e-9\r\n=x,,\r\ny,-12.5,3\r\n"
        );
    }

    #[test]
    fn latex_is_escaped() {
        insta::assert_snapshot!(latex(&figure()));
    }
}
