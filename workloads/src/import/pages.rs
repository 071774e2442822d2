//! A look at the page headers of a Parquet column before it is decoded.
//!
//! The decoder sizes its buffers by what page headers promise. A damaged file can promise so much that the allocation
//! fails, which ends the process and cannot be caught, so promises are compared with the file first.

use std::io::{Cursor, Read, Seek, SeekFrom};

use polars_io::parquet::metadata::FileMetadataRef;
use polars_parquet_format::PageHeader;
use polars_parquet_format::thrift::protocol::TCompactInputProtocol;

/// Bytes that a page header needs at most; statistics of long strings make it this large.
const MAX_HEADER: u64 = 1 << 20;
/// Bytes of a page once unpacked; writers aim at 1 MiB.
const MAX_PAGE: i64 = 1 << 30;
/// Rows of a row group.
const MAX_GROUP_ROWS: usize = 1 << 31;

/// Checks all pages of the column under this root.
pub(crate) fn check(
    reader: &mut (impl Read + Seek),
    size: u64,
    metadata: &FileMetadataRef,
    column: &str,
) -> Result<(), String> {
    let mut rows: usize = 0;
    for (index, group) in metadata.row_groups.iter().enumerate() {
        let at = format!("row group {}", index + 1);
        if group.num_rows() > MAX_GROUP_ROWS {
            return Err(format!("{at} promises {} rows", group.num_rows()));
        }
        rows = rows.saturating_add(group.num_rows());
        let chunks = group.columns_under_root_iter(column).ok_or_else(|| format!("{at} lacks column {column:?}"))?;
        for chunk in chunks {
            let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let place = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
            let (start, end) = place
                .and_then(|(start, length)| Some((start, start.checked_add(length)?)))
                .filter(|(_, end)| *end <= size)
                .ok_or_else(|| format!("{at} lies outside the file"))?;
            let flat = chunk.descriptor().path_in_schema.len() == 1;
            if chunk.num_values() < 0 || (flat && chunk.num_values() as u64 != group.num_rows() as u64) {
                return Err(format!("{at} has {} values for {} rows", chunk.num_values(), group.num_rows()));
            }
            check_pages(reader, start, end, chunk.num_values()).map_err(|why| format!("{at}: {why}"))?;
        }
    }
    if rows == metadata.num_rows {
        Ok(())
    } else {
        Err(format!("{rows} rows where {} are promised", metadata.num_rows))
    }
}

fn check_pages(reader: &mut (impl Read + Seek), start: u64, end: u64, values: i64) -> Result<(), String> {
    let mut at = start;
    let mut seen = 0;
    let mut pages = 0u64;
    while seen < values {
        pages += 1;
        let (header, length) = header(reader, at, end)?;
        let body = i64::from(header.compressed_page_size);
        let fits = body >= 0 && body as u64 <= (end - at).saturating_sub(length);
        if !fits || !(0..=MAX_PAGE).contains(&i64::from(header.uncompressed_page_size)) {
            return Err(format!("page {pages} promises {body} bytes"));
        }
        let in_data = header.data_page_header.as_ref().map(|h| h.num_values);
        let in_data_2 = header.data_page_header_v2.as_ref().map(|h| h.num_values);
        let in_dictionary = header.dictionary_page_header.as_ref().map(|h| h.num_values);
        for promised in [in_data, in_data_2, in_dictionary].into_iter().flatten() {
            if promised < 0 || i64::from(promised) > values {
                return Err(format!("page {pages} promises {promised} values of {values}"));
            }
        }
        seen += i64::from(in_data.or(in_data_2).unwrap_or(0));
        at += length + body as u64;
    }
    if seen == values { Ok(()) } else { Err(format!("pages hold {seen} values of {values}")) }
}

/// The page header at `at` and its length.
fn header(reader: &mut (impl Read + Seek), at: u64, end: u64) -> Result<(PageHeader, u64), String> {
    let mut why = String::from("no page header");
    // Most headers take tens of bytes; a long one is read again with more.
    for limit in [256, MAX_HEADER] {
        let mut bytes = Vec::new();
        reader
            .seek(SeekFrom::Start(at))
            .and_then(|_| reader.by_ref().take(limit.min(end - at)).read_to_end(&mut bytes))
            .map_err(|e| e.to_string())?;
        let mut cursor = Cursor::new(&bytes[..]);
        let mut protocol = TCompactInputProtocol::new(&mut cursor, MAX_HEADER as usize);
        match PageHeader::read_from_in_protocol(&mut protocol) {
            Ok(header) => return Ok((header, cursor.position())),
            Err(e) => why = e.to_string(),
        }
    }
    Err(why)
}
