use crate::CudaError;
use crate::steps::{Action, Element, RowMove};

/// Units that a warp does for a move; rows and heads that it merges.
const CHUNK: u64 = 32 * 4;
const MERGES: u64 = 8;
/// Most units of one entry of a table; units are counted in 32 bits on the card.
const MOST_UNITS: u64 = 1 << 31;

const COPY_16: u32 = 0;
const COPY_4: u32 = 1;
const COPY_2: u32 = 2;
const WIDEN_4: u32 = 3;
const ROUND_4: u32 = 5;
const ADD_4: u32 = 8;
const ADD_BF16_4: u32 = 10;
const MERGE: u32 = 16;
const MERGE_BF16: u32 = 17;
const TAKE: u32 = 32;
const SCALAR: u32 = 64;

/// One entry, as the kernels `move_rows` and `merge_rows` read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DeviceMove {
    from: u64,
    to: u64,
    from_stride: u64,
    to_stride: u64,
    from_lse: u64,
    to_lse: u64,
    from_lse_stride: u64,
    to_lse_stride: u64,
    units: u32,
    across: u32,
    width: u32,
    bits: u32,
    kind: u32,
    pad: u32,
}

/// The moves of one launch, with the number of the first chunk of each: a warp finds its chunk by search.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RowTable {
    pub moves: Vec<DeviceMove>,
    pub first: Vec<u32>,
    pub chunks: u32,
    /// Some of them are merges, which another kernel does.
    pub merges: bool,
}

/// A move in units: rows of `across` units that lie next to each other.
struct Units {
    kind: u32,
    across: u64,
    rows: u64,
}

impl RowTable {
    /// The table of some moves in an arena of so many bytes that starts at an address.
    ///
    /// # Errors
    /// A move leaves the arena, is not aligned to its elements, or has element types that its action does not take.
    pub fn new(moves: &[RowMove], arena: u64, bytes: u64) -> Result<Self, CudaError> {
        let mut table = Self::default();
        let mut chunks = 0u64;
        for one in moves.iter().filter(|one| one.rows > 0 && one.heads > 0 && one.width > 0) {
            inside(one, bytes)?;
            let units = units(one)?;
            let merges = units.kind & !(TAKE | SCALAR) >= MERGE;
            table.merges |= merges;
            let each = if merges { MERGES } else { CHUNK };
            // Rows that the card can count are one entry.
            let most = (MOST_UNITS / units.across).max(1);
            let mut row = 0;
            while row < units.rows {
                let rows = most.min(units.rows - row);
                table.first.push(u32::try_from(chunks).map_err(|_| too_much())?);
                table.moves.push(entry(one, &units, arena, row, rows)?);
                chunks += (rows * units.across).div_ceil(each);
                row += rows;
            }
        }
        table.chunks = u32::try_from(chunks).map_err(|_| too_much())?;
        Ok(table)
    }
}

fn too_much() -> CudaError {
    CudaError::Program("the rows of one move are more than a card can count".to_owned())
}

fn entry(one: &RowMove, units: &Units, arena: u64, row: u64, rows: u64) -> Result<DeviceMove, CudaError> {
    let mut made = DeviceMove {
        from: arena + one.from + row * one.from_stride,
        to: arena + one.to + row * one.to_stride,
        from_stride: one.from_stride,
        to_stride: one.to_stride,
        units: u32::try_from(rows * units.across).map_err(|_| too_much())?,
        across: u32::try_from(units.across).map_err(|_| too_much())?,
        width: one.width,
        kind: units.kind,
        ..DeviceMove::default()
    };
    match one.action {
        Action::Take { bits } => made.bits = bits,
        Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride } => {
            made.from_lse = arena + from_lse + row * from_lse_stride;
            made.to_lse = arena + to_lse + row * to_lse_stride;
            made.from_lse_stride = from_lse_stride;
            made.to_lse_stride = to_lse_stride;
        }
        Action::Write | Action::Add => {}
    }
    Ok(made)
}

/// How a move is cut into units: as wide as all its addresses allow.
fn units(one: &RowMove) -> Result<Units, CudaError> {
    let (from, to) = (one.from_element, one.to_element);
    let (rows, heads, width) = (u64::from(one.rows), u64::from(one.heads), u64::from(one.width));
    let elements = heads * width;
    let refused = |what: &str| Err(CudaError::Program(format!("rows cannot be moved: {what} ({one:?})")));
    let strides = |stride: u64| if rows > 1 { stride } else { 0 };
    let at_from = one.from | strides(one.from_stride);
    let at_to = one.to | strides(one.to_stride);
    if !at_from.is_multiple_of(from.bytes()) || !at_to.is_multiple_of(to.bytes()) {
        return refused("an address is not a multiple of its element");
    }
    let by_four =
        elements.is_multiple_of(4) && at_from.is_multiple_of(4 * from.bytes()) && at_to.is_multiple_of(4 * to.bytes());
    let quads = |kind: u32| if by_four { (kind, elements / 4) } else { (kind + 1, elements) };
    let (kind, across) = match (one.action, from, to) {
        (Action::Take { .. }, Element::Bf16, _) => return refused("what is taken is not f32"),
        (Action::Write, Element::Bf16, Element::F32) => quads(WIDEN_4),
        (Action::Write | Action::Take { .. }, Element::F32, Element::Bf16) => quads(ROUND_4),
        (Action::Write | Action::Take { .. }, ..) => {
            let bytes = elements * from.bytes();
            match at_from | at_to | bytes {
                all if all.is_multiple_of(16) => (COPY_16, bytes / 16),
                all if all.is_multiple_of(4) => (COPY_4, bytes / 4),
                _ => (COPY_2, bytes / 2),
            }
        }
        (Action::Add, Element::F32, Element::F32) => quads(ADD_4),
        (Action::Add, Element::Bf16, Element::F32) => quads(ADD_BF16_4),
        (Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride }, from, Element::F32) => {
            if !(from_lse | to_lse | strides(from_lse_stride) | strides(to_lse_stride)).is_multiple_of(4) {
                return refused("an address of LSE is not a multiple of 4");
            }
            let kind = if from == Element::F32 { MERGE } else { MERGE_BF16 };
            let scalar = !width.is_multiple_of(4) || !by_four;
            (if scalar { kind | SCALAR } else { kind }, heads)
        }
        (Action::Add | Action::Merge { .. }, _, Element::Bf16) => return refused("sums are f32"),
    };
    let kind = if matches!(one.action, Action::Take { .. }) { kind | TAKE } else { kind };
    if across > MOST_UNITS {
        return Err(too_much());
    }
    Ok(Units { kind, across, rows })
}

/// All that a move reads and writes lies in the arena.
fn inside(one: &RowMove, bytes: u64) -> Result<(), CudaError> {
    let (rows, heads) = (u64::from(one.rows), u64::from(one.heads));
    let row = |element: Element| heads * u64::from(one.width) * element.bytes();
    let mut parts =
        vec![(one.from, one.from_stride, row(one.from_element)), (one.to, one.to_stride, row(one.to_element))];
    if let Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride } = one.action {
        parts.extend([(from_lse, from_lse_stride, heads * 4), (to_lse, to_lse_stride, heads * 4)]);
    }
    let ends = |(start, stride, row): (u64, u64, u64)| {
        stride.checked_mul(rows - 1).and_then(|skip| skip.checked_add(row)).and_then(|length| length.checked_add(start))
    };
    match parts.into_iter().all(|part| ends(part).is_some_and(|end| end <= bytes)) {
        true => Ok(()),
        false => Err(CudaError::Program(format!("rows leave the arena of {bytes} bytes ({one:?})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ADD_4, ADD_BF16_4, CHUNK, COPY_2, COPY_4, COPY_16, DeviceMove, MERGE, MERGE_BF16, MERGES, ROUND_4, RowTable,
        SCALAR, TAKE, WIDEN_4,
    };
    use crate::run::tables::NAN_WORD;
    use crate::steps::{Action, Element, RowMove};

    fn rows(rows: u32, heads: u32, width: u32, from: u64) -> RowMove {
        let bytes = u64::from(heads * width) * 2;
        RowMove {
            from,
            to: 1 << 20,
            rows,
            heads,
            width,
            from_stride: bytes,
            to_stride: bytes,
            from_element: Element::Bf16,
            to_element: Element::Bf16,
            action: Action::Write,
        }
    }

    #[test]
    fn the_kernel_counts_as_the_host_does() {
        let source = include_str!("rows.cu");
        for line in [format!("#define UNITS {} ", CHUNK / 32), format!("#define MERGES {MERGES} ")] {
            assert!(source.contains(&line), "{line}");
        }
        let kinds = [
            ("COPY_16", COPY_16),
            ("COPY_4", COPY_4),
            ("COPY_2", COPY_2),
            ("WIDEN_4", WIDEN_4),
            ("ROUND_4", ROUND_4),
            ("ADD_4", ADD_4),
            ("ADD_BF16_4", ADD_BF16_4),
            ("MERGE", MERGE),
            ("MERGE_BF16", MERGE_BF16),
        ];
        assert!(kinds.iter().all(|(name, kind)| source.contains(&format!(" {name} = {kind},"))));
        assert!(
            source.contains(&format!("#define TAKE {TAKE} ")) && source.contains(&format!("#define SCALAR {SCALAR} "))
        );
        assert_eq!(size_of::<DeviceMove>(), 88);
        // Memory that is poisoned does not look like a row that is being merged into.
        assert!(source.contains("#define BUSY 0x7fb1c0deu") && NAN_WORD != 0x7fb1_c0de);
    }

    #[test]
    fn chunks_are_counted_move_by_move() {
        let moves = [rows(3, 2, 128, 0), rows(0, 2, 128, 0), rows(1000, 2, 128, 4096), rows(1, 1, 1, 2)];
        let table = RowTable::new(&moves, 256, 1 << 30).expect("a table");
        // 3 rows are 96 units of 16 bytes, 1000 rows 32,000; the empty move has no entry.
        assert_eq!(table.first, [0, 1, 1 + 32_000u32.div_ceil(CHUNK as u32)]);
        assert_eq!(table.chunks, table.first[2] + 1);
        assert_eq!(
            table.moves.iter().map(|m| (m.kind, m.across, m.units)).collect::<Vec<_>>(),
            [(COPY_16, 32, 96), (COPY_16, 32, 32_000), (COPY_2, 1, 1)]
        );
        assert_eq!((table.moves[1].from, table.moves[1].to), (256 + 4096, 256 + (1 << 20)));
    }

    #[test]
    fn units_are_as_wide_as_addresses_allow() {
        let kind = |one: RowMove| RowTable::new(&[one], 0, 1 << 30).map(|table| table.moves[0].kind);
        assert_eq!(kind(rows(2, 1, 100, 4)), Ok(COPY_4));
        assert_eq!(kind(rows(2, 1, 101, 4)), Ok(COPY_2));
        let widen = |from| RowMove { to_element: Element::F32, to_stride: 512, ..rows(2, 1, 128, from) };
        assert_eq!(kind(widen(8)), Ok(WIDEN_4));
        assert_eq!(kind(widen(4)), Ok(WIDEN_4 + 1));
        let lse = Action::Merge { from_lse: 0, to_lse: 64, from_lse_stride: 4, to_lse_stride: 4 };
        let merge = |one: RowMove| kind(RowMove { action: lse, ..one });
        assert_eq!(merge(widen(8)), Ok(MERGE_BF16));
        assert_eq!(merge(RowMove { width: 126, ..widen(8) }), Ok(MERGE_BF16 | SCALAR));
        let f32s = RowMove { from_element: Element::F32, from_stride: 512, ..widen(16) };
        assert_eq!(merge(f32s), Ok(MERGE));
        assert_eq!(kind(RowMove { action: Action::Take { bits: 0 }, ..f32s }), Ok(COPY_16 | TAKE));
    }

    #[test]
    fn tables_with_merges_are_told_apart() {
        let merge = RowMove {
            to_element: Element::F32,
            to_stride: 1024,
            action: Action::Merge { from_lse: 0, to_lse: 64, from_lse_stride: 8, to_lse_stride: 8 },
            ..rows(5, 2, 128, 0)
        };
        let table = |moves: &[RowMove]| RowTable::new(moves, 0, 1 << 30).expect("a table");
        assert!(!table(&[rows(3, 2, 128, 0)]).merges);
        let both = table(&[rows(3, 2, 128, 0), merge]);
        // 5 rows of 2 heads are merged in chunks of 8.
        assert_eq!((both.merges, both.first.clone(), both.chunks), (true, vec![0, 1], 3));
    }

    #[test]
    fn what_cannot_be_moved_is_refused() {
        let refused = |one: RowMove| RowTable::new(&[one], 0, 1 << 30).expect_err("refused").to_string();
        assert!(refused(rows(1, 1, 1, 1)).contains("not a multiple of its element"));
        assert!(refused(RowMove { action: Action::Add, ..rows(1, 1, 1, 0) }).contains("sums are f32"));
        assert!(refused(RowMove { action: Action::Take { bits: 0 }, ..rows(1, 1, 1, 0) }).contains("not f32"));
        assert!(refused(RowMove { from: (1 << 30) - 2, ..rows(2, 1, 1, 0) }).contains("leave the arena"));
        assert!(refused(RowMove { from_stride: u64::MAX, ..rows(3, 1, 1, 0) }).contains("leave the arena"));
    }

    #[test]
    fn more_units_than_32_bits_count_are_several_entries() {
        let one = RowMove { from_stride: 0, to_stride: 0, ..rows(1 << 31, 1, 64, 0) };
        let table = RowTable::new(&[one], 0, 1 << 30).expect("a table");
        assert_eq!(table.moves.len(), 8);
        assert!(table.moves.iter().all(|m| m.units == 1 << 31));
        assert_eq!(u64::from(table.chunks), (1u64 << 34) / CHUNK);
    }
}
