//! Compact binary form of a table, for per-cell files: their reader must never depend on the Parquet reader's care.

use super::{Column, ColumnType, StrColumn, Table};

/// Appends the table to `out`: column count, then name, type, row count and little-endian values of each column.
pub(crate) fn encode(table: &Table, out: &mut Vec<u8>) {
    out.extend((table.columns().len() as u32).to_le_bytes());
    for (name, column) in table.columns() {
        put_str(name, out);
        out.push(tag(column.column_type()));
        out.extend((column.len() as u64).to_le_bytes());
        match column {
            Column::U32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Column::U64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Column::F64(v) => v.iter().for_each(|x| out.extend(x.to_bits().to_le_bytes())),
            Column::Bool(v) => out.extend(v.iter().map(|x| u8::from(*x))),
            Column::Str(v) => {
                out.extend((v.distinct().len() as u32).to_le_bytes());
                v.distinct().iter().for_each(|s| put_str(s, out));
                v.codes().iter().for_each(|x| out.extend(x.to_le_bytes()));
            }
        }
    }
}

/// Reads one table from the front of `bytes`.
pub(crate) fn decode(bytes: &mut &[u8]) -> Result<Table, String> {
    let mut table = Table::new();
    for _ in 0..take_u32(bytes)? {
        let name = take_str(bytes)?;
        let of = take(bytes, 1)?.first().copied().and_then(from_tag).ok_or("unknown column type")?;
        let rows = usize::try_from(take_u64(bytes)?).map_err(|_| "too many rows")?;
        let column = match of {
            ColumnType::U32 => Column::U32(take_all(bytes, rows, u32::from_le_bytes)?),
            ColumnType::U64 => Column::U64(take_all(bytes, rows, u64::from_le_bytes)?),
            ColumnType::F64 => Column::F64(take_all(bytes, rows, |b| f64::from_bits(u64::from_le_bytes(b)))?),
            ColumnType::Bool => Column::Bool(take_all(bytes, rows, |[b]| b != 0)?),
            ColumnType::Str => {
                let count = take_u32(bytes)?;
                let distinct = (0..count).map(|_| take_str(bytes)).collect::<Result<Vec<_>, _>>()?;
                let codes = take_all(bytes, rows, u32::from_le_bytes)?;
                Column::Str(StrColumn::from_parts(distinct, codes).ok_or("string codes do not fit the strings")?)
            }
        };
        table.add(name, column).map_err(|e| e.to_string())?;
    }
    Ok(table)
}

/// Appends a string with its length.
pub(crate) fn put_str(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Reads a string with its length.
pub(crate) fn take_str(bytes: &mut &[u8]) -> Result<String, String> {
    let len = take_u32(bytes)? as usize;
    String::from_utf8(take(bytes, len)?.to_vec()).map_err(|_| "text is not UTF-8".to_owned())
}

/// Reads a 32-bit number.
pub(crate) fn take_u32(bytes: &mut &[u8]) -> Result<u32, String> {
    take_all(bytes, 1, u32::from_le_bytes)?.first().copied().ok_or_else(ends_early)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, String> {
    take_all(bytes, 1, u64::from_le_bytes)?.first().copied().ok_or_else(ends_early)
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], String> {
    let (head, tail) = bytes.split_at_checked(len).ok_or_else(ends_early)?;
    *bytes = tail;
    Ok(head)
}

fn take_all<const N: usize, T>(bytes: &mut &[u8], count: usize, from: impl Fn([u8; N]) -> T) -> Result<Vec<T>, String> {
    let raw = take(bytes, count.checked_mul(N).ok_or_else(ends_early)?)?;
    Ok(raw.as_chunks::<N>().0.iter().map(|chunk| from(*chunk)).collect())
}

fn ends_early() -> String {
    "ends early".to_owned()
}

fn tag(of: ColumnType) -> u8 {
    match of {
        ColumnType::U32 => 0,
        ColumnType::U64 => 1,
        ColumnType::F64 => 2,
        ColumnType::Str => 3,
        ColumnType::Bool => 4,
    }
}

fn from_tag(tag: u8) -> Option<ColumnType> {
    [ColumnType::U32, ColumnType::U64, ColumnType::F64, ColumnType::Str, ColumnType::Bool]
        .get(usize::from(tag))
        .copied()
}
