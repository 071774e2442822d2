//! Tables: round trips, equal bytes, torn and hostile files.

use std::io::Write;
use std::path::Path;

use proptest::prelude::*;
use skewbench_store::{Column, ColumnType, StrColumn, Table, units};

fn any_column(rows: usize) -> impl Strategy<Value = Column> {
    use proptest::collection::vec;
    prop_oneof![
        vec(any::<u32>(), rows).prop_map(Column::U32),
        vec(any::<u64>(), rows).prop_map(Column::U64),
        vec(prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::NEG_INFINITY), Just(-0.0)], rows).prop_map(Column::F64),
        vec(any::<bool>(), rows).prop_map(Column::Bool),
        vec(prop_oneof!["[a-c]{0,2}", "\\PC{0,20}", Just("a,\"b\"\r\n".to_owned())], rows)
            .prop_map(|v| Column::Str(v.iter().collect::<StrColumn>())),
    ]
}

fn any_table() -> impl Strategy<Value = Table> {
    (0usize..60, 1usize..6)
        .prop_flat_map(|(rows, columns)| proptest::collection::vec(any_column(rows), columns))
        .prop_map(|columns| {
            Table::from_columns(columns.into_iter().enumerate().map(|(i, c)| (format!("c{i}"), c))).unwrap()
        })
}

fn parquet(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_parquet(&mut bytes).unwrap();
    bytes
}

fn parse(bytes: &[u8]) -> Result<Table, skewbench_store::StoreError> {
    Table::parse_parquet(bytes.to_vec(), Path::new("some.parquet"))
}

/// A table of several row groups.
fn large(rows: u32) -> Table {
    Table::from_columns([
        ("rank", Column::U32((0..rows).map(|i| i % 256).collect())),
        ("latency_ns", Column::F64((0..rows).map(|i| f64::from(i).sqrt()).collect())),
        ("system", Column::Str((0..rows).map(|i| ["ulysses", "libra"][i as usize % 2]).collect())),
    ])
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn parquet_gives_back_the_table(table in any_table()) {
        let bytes = parquet(&table);
        prop_assert_eq!(&bytes, &parquet(&table));
        prop_assert_eq!(parse(&bytes).unwrap(), table);
    }

    #[test]
    fn csv_gives_back_the_table(table in any_table()) {
        let schema = table.schema();
        let schema: Vec<(&str, ColumnType)> = schema.iter().map(|(n, t)| (n.as_str(), *t)).collect();
        let mut bytes = Vec::new();
        table.write_csv(&mut bytes).unwrap();
        let back = Table::read_csv(bytes.as_slice(), Path::new("some.csv"), &schema).unwrap();
        // Not-a-number has many bit patterns and one text.
        let text = |t: &Table| { let mut out = Vec::new(); t.write_csv(&mut out).unwrap(); out };
        prop_assert_eq!(text(&back), bytes);
        prop_assert_eq!(back.rows(), table.rows());
    }

    #[test]
    fn altered_parquet_never_panics(
        table in any_table(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = parquet(&table);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(e) = parse(&bytes) {
            prop_assert!(e.to_string().starts_with("some.parquet: "), "{}", e);
        }
    }

    #[test]
    fn arbitrary_text_is_an_error_or_a_table(text in "\\PC{0,200}") {
        let schema = [("rank", ColumnType::U32), ("latency_ns", ColumnType::F64)];
        let _ = Table::read_csv(text.as_bytes(), Path::new("some.csv"), &schema);
        prop_assert!(parse(text.as_bytes()).is_err());
    }
}

#[test]
fn row_groups_do_not_depend_on_how_rows_arrive() {
    let table = large(300_000);
    let whole = parquet(&table);
    for piece in [70_000, 131_072, 299_999] {
        let mut bytes = Vec::new();
        let mut writer = skewbench_store::TableWriter::new(&mut bytes, &table.schema()).unwrap();
        for start in (0..table.rows()).step_by(piece) {
            writer.append(&table.slice(start, start + piece)).unwrap();
        }
        writer.finish().unwrap();
        assert!(bytes == whole, "pieces of {piece}");
    }
    assert_eq!(parse(&whole).unwrap(), table);
}

#[test]
fn files_are_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let table = large(100);
    let path = folder.path().join("t.parquet");
    table.save_parquet(&path).unwrap();
    assert_eq!(Table::load_parquet(&path).unwrap(), table);
    table.save_csv(&folder.path().join("t.csv")).unwrap();
    let text = std::fs::read_to_string(folder.path().join("t.csv")).unwrap();
    assert!(text.starts_with("rank,latency_ns,system\n0,0,ulysses\n1,1,libra\n"), "{}", &text[..60]);
    let missing = Table::load_parquet(&folder.path().join("none.parquet")).unwrap_err().to_string();
    assert!(missing.contains("none.parquet"), "{missing}");
    let folder_error = Table::load_parquet(folder.path()).unwrap_err().to_string();
    assert!(folder_error.contains(&folder.path().display().to_string()), "{folder_error}");
}

#[test]
fn a_csv_error_names_file_line_and_column() {
    let schema = [("rank", ColumnType::U32), ("ok", ColumnType::Bool)];
    let read = |text: &str| Table::read_csv(text.as_bytes(), Path::new("x.csv"), &schema).unwrap_err().to_string();
    assert_eq!(read("rank,ok\n1,true\n-2,true\n"), "x.csv: line 3: rank is \"-2\", not U32");
    assert_eq!(read("rank,fine\n"), "x.csv: columns are rank,fine, not rank,ok");
    assert!(read("rank,ok\n1\n").contains("x.csv"));
}

#[test]
fn tables_refuse_what_does_not_fit() {
    let mut table = large(4);
    assert!(table.add("rank", vec![1u32, 2, 3, 4]).is_err());
    assert!(table.add("a b", vec![1u32, 2, 3, 4]).is_err());
    assert!(table.add("short", vec![1u32]).is_err());
    assert!(table.append(&Table::new()).is_err());
    assert!(table.f64("rank").unwrap_err().to_string().contains("U32"));
    assert!(table.f64("latency_ms").unwrap_err().to_string().contains("latency_ns"));
    assert!(Table::new().write_parquet(Vec::new()).is_err());
    assert_eq!(table.select(&[3, 0, 9]).u32("rank").unwrap(), [3, 0]);
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let table = large(1000);
    for room in [0, 10, 1000] {
        assert!(table.write_parquet(Full(room)).is_err(), "{room}");
        assert!(table.write_csv(Full(room)).is_err(), "{room}");
    }
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        assert!(table.write_parquet(std::io::BufWriter::new(full)).is_err());
    }
}

#[test]
fn units_are_told_from_names() {
    assert_eq!(units::unit_of("latency_ns"), Some("ns"));
    assert_eq!(units::unit_of("link_bytes_per_s"), Some("bytes_per_s"));
    assert_eq!(units::unit_of("r_minus_1"), Some("1"));
    assert_eq!(units::unit_of("latency"), None);
    assert_eq!(units::unit_of("tokens"), Some("tokens"));
    let table = Table::from_columns([("latency", Column::F64(vec![1.0])), ("rank", Column::U32(vec![0]))]).unwrap();
    assert_eq!(units::unknown_units(&table), ["column latency does not end in a unit"]);
    let unit = |u: &str| Column::Str(StrColumn::repeat(u, 1));
    let long = |u: &str| Table::from_columns([("value", Column::F64(vec![1.0])), ("unit", unit(u))]).unwrap();
    assert!(units::unknown_units(&long("ms")).is_empty());
    assert_eq!(units::unknown_units(&long("parsecs")), ["unit parsecs is not known"]);
}
