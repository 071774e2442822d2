//! x
use skewbench_store::{stats::Bootstrap, *};
use std::time::Instant;
fn main() {
    let x: Vec<f64> = (0..4000).map(|i| f64::from(i).sqrt()).collect();
    for _ in 0..5 {
        let t = Instant::now();
        let i = Bootstrap::new(1, "a").mean(&x).unwrap();
        println!("mean {:?} {i:?}", t.elapsed());
    }
    let t = Instant::now();
    let i = Bootstrap::new(1, "a").ratio(&x, &x).unwrap();
    println!("ratio {:?} {i:?}", t.elapsed());
    let rows = 2_000_000u32;
    let table = Table::from_columns([
        ("rank", Column::U32((0..rows).map(|i| i % 256).collect())),
        ("latency_ns", Column::F64((0..rows).map(|i| f64::from(i).sqrt()).collect())),
        ("system", Column::Str((0..rows).map(|i| ["ulysses", "libra"][i as usize % 2]).collect())),
    ])
    .unwrap();
    let t = Instant::now();
    let mut v = Vec::new();
    table.write_parquet(&mut v).unwrap();
    println!("parquet write {:?} {} bytes", t.elapsed(), v.len());
    let t = Instant::now();
    Table::parse_parquet(v, std::path::Path::new("x")).unwrap();
    println!("parquet read {:?}", t.elapsed());
    let dir = tempfile::tempdir().unwrap();
    let cells: Vec<Cell> = (0..500).map(|i| Cell::new(&serde_json::json!(i), Default::default())).collect();
    let inputs = RunInputs { cells: cells.clone(), ..Default::default() };
    let (run, _) = Run::open(&dir.path().join("r"), &inputs, OpenOptions::default()).unwrap();
    let part = table.slice(0, 4000);
    let t = Instant::now();
    for c in &cells {
        run.finish_cell(&c.id, vec![("samples".into(), part.clone())], Timings::new()).unwrap();
    }
    println!("500 cells of 4000 rows {:?}", t.elapsed());
    let t = Instant::now();
    run.seal().unwrap();
    println!("seal {:?}", t.elapsed());
}
