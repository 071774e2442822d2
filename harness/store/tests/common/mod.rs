//! What the integration tests share.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use skewbench_store::{Cell, CellId, Column, Run, RunInputs, StrColumn, Table, Timings};

/// Object literal as a map.
pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Inputs of a run of `cells` cells.
pub fn inputs(cells: u32) -> RunInputs {
    RunInputs {
        command: vec!["skewbench".to_owned(), "run".to_owned()],
        experiment: "steps = 3\n".to_owned(),
        inputs: json!({ "profile": "h200" }),
        seeds: BTreeMap::from([("master".to_owned(), 7)]),
        cells: (0..cells).map(|i| Cell::new(&json!({ "i": i }), object(json!({ "dp": i })))).collect(),
        ..RunInputs::default()
    }
}

/// The deterministic result of a cell; some cells have a second kind of table.
pub fn result(id: &CellId) -> Vec<(String, Table)> {
    let seed = u32::from_str_radix(&id.as_str()[..4], 16).unwrap();
    let rows = 50 + seed % 100;
    let samples = Table::from_columns([
        ("rank", Column::U32((0..rows).map(|i| i % 8).collect())),
        ("sent_bytes", Column::U64((0..rows).map(|i| u64::from(i) * u64::from(seed)).collect())),
        ("latency_ns", Column::F64((0..rows).map(|i| f64::from(i * seed) / 7.0).collect())),
        (
            "pass",
            Column::Str((0..rows).map(|i| if i % 2 == 0 { "forward" } else { "backward" }).collect::<StrColumn>()),
        ),
        ("warm_up", Column::Bool((0..rows).map(|i| i < 3).collect())),
    ])
    .unwrap();
    let mut tables = vec![("samples".to_owned(), samples)];
    if seed.is_multiple_of(3) {
        tables.push(("waves".to_owned(), Table::from_columns([("wave", Column::U32(vec![seed]))]).unwrap()));
    }
    tables
}

/// Computes every pending cell; every fifth of the plan fails.
pub fn work(run: &Run) {
    let planned: Vec<CellId> = inputs(run.manifest().planned as u32).cells.into_iter().map(|c| c.id).collect();
    let pending: Vec<CellId> = run.pending().into_iter().map(|c| c.id.clone()).collect();
    for id in pending {
        let position = planned.iter().position(|p| *p == id).unwrap();
        if position % 5 == 4 {
            run.fail_cell(&id, "the operand does not fit the memory").unwrap();
        } else {
            run.finish_cell(&id, result(&id), Timings::from([("planning_s".to_owned(), 0.5)])).unwrap();
        }
    }
}

/// Bytes of every file that identical runs share.
pub fn shared_bytes(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let own = ["manifest.json", "timings.json", "events.jsonl"];
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}
