use std::collections::BTreeMap;

use crate::StoreError;

/// A cell that geometric means leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The cell.
    pub cell: String,
    /// Systems without a value for it, sorted.
    pub missing: Vec<String>,
}

/// Geometric means over the cells that every system finished.
#[derive(Clone, Debug, PartialEq)]
pub struct GeometricMeans {
    /// Mean by system.
    pub means: BTreeMap<String, f64>,
    /// Cells that count, sorted.
    pub cells: Vec<String>,
    /// Cells that do not, sorted.
    pub left_out: Vec<LeftOut>,
}

/// Geometric mean of each system's values (by cell) over the cells that all systems have.
///
/// # Errors
/// No cell that all systems have, or a value there that is not finite and above 0.
pub fn geometric_means(values: &BTreeMap<String, BTreeMap<String, f64>>) -> Result<GeometricMeans, StoreError> {
    let mut missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for cell in values.values().flat_map(BTreeMap::keys) {
        missing.entry(cell).or_insert_with(|| {
            values.iter().filter(|(_, cells)| !cells.contains_key(cell)).map(|(system, _)| system.clone()).collect()
        });
    }
    let cells: Vec<String> = missing.iter().filter(|(_, m)| m.is_empty()).map(|(cell, _)| (*cell).to_owned()).collect();
    if cells.is_empty() {
        return Err(StoreError::Statistics("no cell was finished by every system".to_owned()));
    }
    let mut means = BTreeMap::new();
    for (system, by_cell) in values {
        let mut logs = 0.0;
        for cell in &cells {
            let value = by_cell.get(cell).copied().unwrap_or(f64::NAN);
            if !(value.is_finite() && value > 0.0) {
                let what = format!("{system} has {value} for {cell}; a geometric mean needs values above 0");
                return Err(StoreError::Statistics(what));
            }
            logs += libm::log(value);
        }
        means.insert(system.clone(), libm::exp(logs / cells.len() as f64));
    }
    let left_out = missing
        .into_iter()
        .filter(|(_, systems)| !systems.is_empty())
        .map(|(cell, missing)| LeftOut { cell: cell.to_owned(), missing })
        .collect();
    Ok(GeometricMeans { means, cells, left_out })
}
