//! Which units column names may end in.

use crate::{ColumnType, StrColumn, Table};

/// Units with a dimension, as suffixes of column names.
const UNITS: &[&str] = &[
    "ps",
    "ns",
    "us",
    "ms",
    "s",
    "h",
    "bytes",
    "gib",
    "tokens",
    "rows",
    "pairs",
    "flops",
    "cards",
    "documents",
    "launches",
    "hz",
    "mhz",
    "celsius",
    "watts",
    "joules",
    "bytes_per_s",
    "gbit_per_s",
    "flops_per_s",
    "tokens_per_s",
    "tokens_per_s_per_card",
    "usd",
];

/// Suffixes of numbers without a dimension.
const DIMENSIONLESS: &[&str] = &[
    "ratio",
    "share",
    "fraction",
    "factor",
    "percent",
    "efficiency",
    "speedup",
    "scaling",
    "mfu",
    "r",
    "r_minus_1",
    "cv",
    "x",
    "count",
    "index",
    "id",
    "weight",
    "error",
    "probability",
    "tau",
    "imbalance",
    "slowdown",
];

/// The unit that a column name ends in: `latency_ns` gives `ns`, `sent_bytes_per_s` gives `bytes_per_s`. Names of numbers
/// without a dimension give `1`.
pub fn unit_of(name: &str) -> Option<&'static str> {
    let ends =
        |unit: &&&'static str| name == **unit || name.strip_suffix(**unit).is_some_and(|head| head.ends_with('_'));
    let longest = UNITS.iter().filter(ends).max_by_key(|u| u.len());
    longest.copied().or_else(|| DIMENSIONLESS.iter().find(ends).map(|_| "1"))
}

/// True for `1` and every unit that [`unit_of`] can return.
pub fn is_unit(unit: &str) -> bool {
    unit == "1" || UNITS.contains(&unit)
}

/// Columns of measured or computed numbers whose unit cannot be told: floating-point columns must end in a unit, except
/// `value` beside a string column `unit`. Whole numbers without a unit are coordinates.
pub fn unknown_units(table: &Table) -> Vec<String> {
    let units = table.str("unit").ok();
    let mut unknown = unknown_columns(&table.schema());
    unknown.extend(units.into_iter().flat_map(unknown_names));
    unknown
}

/// As [`unknown_units`], from the names and types of a table's columns alone.
pub(crate) fn unknown_columns(schema: &[(String, ColumnType)]) -> Vec<String> {
    let describes = schema.iter().any(|(name, of)| name == "unit" && *of == ColumnType::Str);
    let unknown = schema.iter().filter(|(name, of)| {
        let described = name == "value" && describes;
        *of == ColumnType::F64 && !described && unit_of(name).is_none()
    });
    unknown.map(|(name, _)| format!("column {name} does not end in a unit")).collect()
}

/// Which strings of a column of units are none.
pub(crate) fn unknown_names(units: &StrColumn) -> Vec<String> {
    units.distinct().iter().filter(|u| !is_unit(u)).map(|u| format!("unit {u} is not known")).collect()
}
