//! File of one finished or failed cell: magic, length, zstd frame of the content, blake3 of all before it.

use std::path::Path;

use super::{CellId, Timings};
use crate::table::{self, Table};
use crate::{StoreError, durable};

const MAGIC: &[u8; 8] = b"SKBCELL1";
const HASH_BYTES: usize = 32;
/// Largest content of one cell.
const MAX_BYTES: u64 = 1 << 33;

/// What a cell left behind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Its tables by kind.
    Finished { tables: Vec<(String, Table)>, timings: Timings },
    /// Why there are none.
    Failed { reason: String },
}

pub(super) fn write(path: &Path, id: &CellId, outcome: &Outcome) -> Result<(), StoreError> {
    let mut content = Vec::new();
    table::put_str(id.as_str(), &mut content);
    match outcome {
        Outcome::Finished { tables, timings } => {
            content.push(1);
            let timings = serde_json::to_string(timings).map_err(|e| StoreError::damaged(path, e))?;
            table::put_str(&timings, &mut content);
            content.extend((tables.len() as u32).to_le_bytes());
            for (kind, table) in tables {
                table::put_str(kind, &mut content);
                table::encode(table, &mut content);
            }
        }
        Outcome::Failed { reason } => {
            content.push(0);
            table::put_str(reason, &mut content);
        }
    }
    if content.len() as u64 > MAX_BYTES {
        let what = format!("has {} bytes of results; at most {MAX_BYTES} are supported", content.len());
        return Err(StoreError::Cell { cell: id.to_string(), what });
    }
    let mut file = MAGIC.to_vec();
    file.extend((content.len() as u64).to_le_bytes());
    file.extend(zstd::bulk::compress(&content, 1).map_err(StoreError::io("compress", path))?);
    let hash = blake3::hash(&file);
    file.extend(hash.as_bytes());
    durable::write(path, &file)
}

pub(super) fn read(path: &Path, id: &CellId) -> Result<Outcome, StoreError> {
    let bytes = durable::read(path, MAX_BYTES)?;
    parse(&bytes, id).map_err(|what| StoreError::damaged(path, format!("is not a whole cell file: {what}")))
}

fn parse(bytes: &[u8], id: &CellId) -> Result<Outcome, String> {
    let early = || "ends early".to_owned();
    let (body, hash) = bytes.split_at_checked(bytes.len().saturating_sub(HASH_BYTES)).ok_or_else(early)?;
    if blake3::hash(body).as_bytes() != hash {
        return Err("its checksum does not match".to_owned());
    }
    let rest = body.strip_prefix(MAGIC).ok_or("it has another format")?;
    let (len, frame) = rest.split_first_chunk::<8>().ok_or_else(early)?;
    let len = Some(u64::from_le_bytes(*len)).filter(|len| *len <= MAX_BYTES).ok_or("it is too large")?;
    let content =
        zstd::bulk::decompress(frame, usize::try_from(len).map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;

    let mut rest = content.as_slice();
    let found = table::take_str(&mut rest)?;
    if found != id.as_str() {
        return Err(format!("it holds cell {found}"));
    }
    let (flag, mut rest) = rest.split_first().ok_or_else(early)?;
    let outcome = if *flag == 0 {
        Outcome::Failed { reason: table::take_str(&mut rest)? }
    } else {
        let timings = serde_json::from_str(&table::take_str(&mut rest)?).map_err(|e| e.to_string())?;
        let count = table::take_u32(&mut rest)?;
        let tables = (0..count).map(|_| Ok((table::take_str(&mut rest)?, table::decode(&mut rest)?)));
        Outcome::Finished { tables: tables.collect::<Result<_, String>>()?, timings }
    };
    if rest.is_empty() { Ok(outcome) } else { Err(format!("{} bytes follow its end", rest.len())) }
}
