//! Looks at the page headers of a Parquet column chunk before the Parquet reader does: it believes their counts, and a count
//! that lies makes it ask for more memory than there is, which ends the process.

/// Largest page, uncompressed. Ours are of a row group at most; the text of a long one is not.
const MAX_PAGE_BYTES: i64 = 1 << 27;
/// Deepest nesting of a page header.
const MAX_DEPTH: u32 = 8;

/// Checks that a column chunk is a dictionary page at most, then data pages that hold `rows` values together, and nothing else.
pub(super) fn check(mut chunk: &[u8], rows: usize) -> Result<(), String> {
    let mut values = 0usize;
    let mut first = true;
    while !chunk.is_empty() {
        let page = PageHeader::read(&mut chunk).ok_or("a page header ends early")?;
        let count = page.values.and_then(|v| usize::try_from(v).ok()).filter(|v| *v <= rows);
        let count = count.ok_or("a page holds an impossible number of values")?;
        match page.kind {
            Some(DATA) => values += count,
            Some(DICTIONARY) if first => {}
            _ => return Err("a page is of a kind that tables do not have".to_owned()),
        }
        let size = page.size.and_then(|s| usize::try_from(s).ok()).and_then(|s| chunk.split_at_checked(s));
        (_, chunk) = size.ok_or("a page is longer than its column")?;
        if page.full_size.is_none_or(|s| !(0..=MAX_PAGE_BYTES).contains(&s)) {
            return Err("a page is too large".to_owned());
        }
        first = false;
    }
    if values == rows { Ok(()) } else { Err(format!("a column holds {values} of {rows} values")) }
}

const DATA: i64 = 0;
const DICTIONARY: i64 = 2;

/// What matters of Parquet's `PageHeader`.
#[derive(Default)]
struct PageHeader {
    kind: Option<i64>,
    full_size: Option<i64>,
    size: Option<i64>,
    values: Option<i64>,
}

impl PageHeader {
    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut header = Self::default();
        let mut id = 0;
        while let Some(of) = field(bytes, &mut id)? {
            match (id, of) {
                (1, I32) => header.kind = Some(integer(bytes)?),
                (2, I32) => header.full_size = Some(integer(bytes)?),
                (3, I32) => header.size = Some(integer(bytes)?),
                // Headers of data and of dictionary pages both start with their number of values.
                (5 | 7, STRUCT) => {
                    let mut inner = 0;
                    while let Some(of) = field(bytes, &mut inner)? {
                        if (inner, of) == (1, I32) {
                            header.values = Some(integer(bytes)?);
                        } else {
                            skip(bytes, of, MAX_DEPTH)?;
                        }
                    }
                }
                _ => skip(bytes, of, MAX_DEPTH)?,
            }
        }
        Some(header)
    }
}

// Types of Thrift's compact protocol.
const I32: u8 = 5;
const STRUCT: u8 = 12;

/// Reads a field's head: its type, or none at the end of the struct. The outer option is none where the bytes end.
fn field(bytes: &mut &[u8], id: &mut i64) -> Option<Option<u8>> {
    let head = byte(bytes)?;
    if head & 0x0f == 0 {
        return Some(None);
    }
    *id = if head >> 4 == 0 { integer(bytes)? } else { *id + i64::from(head >> 4) };
    Some(Some(head & 0x0f))
}

fn skip(bytes: &mut &[u8], of: u8, depth: u32) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match of {
        1 | 2 => {}
        3 => drop(byte(bytes)?),
        4..=6 => drop(varint(bytes)?),
        7 => take(bytes, 8)?,
        8 => {
            let len = varint(bytes)?;
            take(bytes, usize::try_from(len).ok()?)?;
        }
        STRUCT => {
            let mut id = 0;
            while let Some(of) = field(bytes, &mut id)? {
                skip(bytes, of, depth)?;
            }
        }
        _ => return None,
    }
    Some(())
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn take(bytes: &mut &[u8], len: usize) -> Option<()> {
    *bytes = bytes.get(len..)?;
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let part = byte(bytes)?;
        value |= u64::from(part & 0x7f) << shift;
        if part & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn integer(bytes: &mut &[u8]) -> Option<i64> {
    let raw = varint(bytes)?;
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}
