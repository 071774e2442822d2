//! The numbers of a picture in few rows: systems down, what the figure sweeps or the metrics across.

use skewbench_report::{Cell, Column, Table};

use super::figures::{distinct, headline};
use super::{Loaded, Value, swept};
use crate::experiment::{Axis, Metric};

/// Values from which a figure's table has a digest.
const MANY: usize = 100;

/// A table with one row for each system, workload and reading; nothing where the whole table is short.
pub(super) fn digest(loaded: &Loaded, values: &[Value]) -> Option<Table> {
    let plot = &loaded.expanded.found.experiment.plot;
    let simulated = values.iter().any(|v| v.simulated);
    if values.len() <= MANY || plot.y.is_some() || !simulated {
        return None;
    }
    let shown: Vec<&Value> = values.iter().filter(|v| headline(v)).collect();
    let table = match &plot.x {
        Axis::System => by_metric(loaded, &shown),
        x => {
            let first = plot.metrics.first()?;
            let of_first: Vec<&Value> = shown.into_iter().filter(|v| v.metric == *first).collect();
            by_position(loaded, &of_first, *first, x)
        }
    };
    (table.rows.len() > 1).then_some(table)
}

/// What tells rows apart, in words: workload, what is swept beside the axes, how linear work is priced, system.
fn row_key(loaded: &Loaded, value: &Value) -> [String; 4] {
    let linear = value.text("linear").unwrap_or_default().to_owned();
    [value.dataset.clone(), swept::aside(loaded, value), linear, value.system.clone()]
}

fn pivot(columns: Vec<Column>, cells: Vec<([String; 4], usize, Option<f64>)>) -> Table {
    let width = columns.len();
    let mut rows: Vec<([String; 4], Vec<Cell>)> = Vec::new();
    for (key, column, value) in cells {
        let at = rows.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            rows.push((key, vec![Cell::Empty; width]));
            rows.len() - 1
        });
        if let Some(cell) = rows.get_mut(at).and_then(|(_, cells)| cells.get_mut(column)) {
            *cell = value.into();
        }
    }
    // Names of readings that are the same everywhere tell nothing.
    let titles = ["workload", "at", "linear work", "system"];
    let used: Vec<usize> = (0..titles.len()).filter(|i| rows.iter().any(|(key, _)| !key[*i].is_empty())).collect();
    let mut all: Vec<Column> = used.iter().map(|i| Column::new(titles[*i], titles[*i], "")).collect();
    all.extend(columns);
    let rows = rows.into_iter().map(|(key, cells)| {
        let names = used.iter().map(|i| Cell::Text(key[*i].clone()));
        names.chain(cells).collect()
    });
    Table { rows: rows.collect(), columns: all }
}

fn by_position(loaded: &Loaded, values: &[&Value], metric: Metric, x: &Axis) -> Table {
    let coordinate = x.coordinate();
    let at = |v: &Value| v.at.get(coordinate).map(|x| x.as_str().map_or_else(|| x.to_string(), str::to_owned));
    let mut positions = Vec::new();
    for position in values.iter().filter_map(|v| at(v)) {
        if !positions.contains(&position) {
            positions.push(position);
        }
    }
    if let Some(numbers) = positions.iter().map(|p| p.parse::<f64>().ok()).collect::<Option<Vec<f64>>>() {
        let mut order: Vec<usize> = (0..positions.len()).collect();
        order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        positions = order.into_iter().map(|i| positions[i].clone()).collect();
    }
    let unit = if metric.unit() == "1" { "" } else { metric.unit() };
    let name = coordinate.replace('_', " ");
    let mut columns: Vec<Column> =
        positions.iter().map(|p| Column::new(format!("{name} = {p}"), p.as_str(), unit)).collect();
    let mut cells: Vec<([String; 4], usize, Option<f64>)> = Vec::new();
    for value in values {
        let Some(column) = positions.iter().position(|p| Some(p) == at(value).as_ref()) else { continue };
        cells.push((row_key(loaded, value), column, value.estimated.as_ref().ok().map(|e| e.value)));
    }
    // What pools do not concern has one value, at whatever size.
    let rows: Vec<[String; 4]> = cells.iter().map(|(key, ..)| key.clone()).collect();
    let alone = |key: &[String; 4]| rows.iter().filter(|other| *other == key).count() == 1;
    if *x == Axis::Pool && positions.len() > 1 && rows.iter().any(alone) {
        for (key, column, _) in &mut cells {
            if alone(key) {
                *column = positions.len();
            }
        }
        columns.push(Column::new(format!("any {name}"), "any", unit));
    }
    pivot(columns, cells)
}

fn by_metric(loaded: &Loaded, values: &[&Value]) -> Table {
    let name = |v: &Value| {
        let told = ["network", "link", "over"].into_iter().filter_map(|key| v.text(key));
        let words: Vec<&str> = std::iter::once(v.metric.name()).chain(told).collect();
        words.join(" ").replace('_', " ")
    };
    let names: Vec<String> = values.iter().map(|v| name(v)).collect();
    let names = distinct(names.iter().map(String::as_str));
    let unit = |title: &String| {
        let unit = values.iter().find(|v| name(v) == *title).map_or("", |v| v.unit);
        if unit == "1" { "" } else { unit }
    };
    let columns = names.iter().map(|title| Column::new(title.as_str(), title.replace(' ', "_"), unit(title)));
    // One row a system: what only training steps have, a way of pricing linear work, tells no rows apart.
    let several = distinct(values.iter().filter_map(|v| v.text("linear"))).len() > 1;
    let cells = values.iter().filter_map(|v| {
        let column = names.iter().position(|n| *n == name(v))?;
        let mut key = row_key(loaded, v);
        if !several {
            key[2].clear();
        }
        Some((key, column, v.estimated.as_ref().ok().map(|e| e.value)))
    });
    pivot(columns.collect(), cells.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_find_their_rows() {
        let key = |system: &str| [String::from("w"), String::new(), String::new(), system.to_owned()];
        let columns = vec![Column::new("dp = 1", "1", ""), Column::new("dp = 2", "2", "")];
        let cells = vec![(key("a"), 0, Some(1.0)), (key("b"), 1, Some(4.0)), (key("a"), 1, Some(2.0))];
        let table = pivot(columns, cells);
        assert_eq!(table.columns.len(), 4);
        assert_eq!(table.rows[0], vec!["w".into(), "a".into(), 1.0.into(), 2.0.into()]);
        assert_eq!(table.rows[1], vec!["w".into(), "b".into(), Cell::Empty, 4.0.into()]);
    }
}
