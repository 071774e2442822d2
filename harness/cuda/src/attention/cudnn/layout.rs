use crate::steps::Slot;

use super::key::{Extent, GraphKey, HeadScratch, extent, packed_extent};
use super::recipe::{Role, offset_role, roles, scratch_roles};

/// Where everything that a plan binds lies, for some slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Roles in the arena, with the byte that each starts at.
    pub operands: Vec<(i64, u64)>,
    /// Roles in scratch, likewise.
    pub scratch: Vec<(i64, u64)>,
    /// Where cuDNN's workspace starts in scratch.
    pub workspace: u64,
    /// Bytes of scratch.
    pub scratch_bytes: u64,
    /// Tensors in the table of offsets and lengths, likewise.
    pub table: Vec<(i64, u64)>,
    /// That table.
    pub words: Vec<i32>,
}

/// Parts of scratch start at multiples of this many bytes.
const PART: u64 = 1024;
/// Rows behind the last one that a kernel which works in tiles may touch in scratch.
const TILE: u64 = 128;

/// The layout of some slots under a plan of this key with a workspace of so many bytes.
pub(super) fn layout(key: &GraphKey, slots: &[Slot], workspace: u64) -> Layout {
    let mut layout = Layout { workspace: 0, scratch_bytes: workspace.next_multiple_of(PART), ..Layout::default() };
    let places = key.shape().0 as u32;
    let own = scratch_roles(key);
    let mut shared: Vec<(Role, Extent)> = Vec::new();
    for role in roles(key) {
        let of = offset_role(key, role);
        let extent = match shared.iter().find(|(r, _)| *r == of) {
            Some((_, extent)) if of != role => extent.clone(),
            _ => role_extent(key, role, slots, places),
        };
        if own.contains(&role) {
            layout.scratch.push((role.number(), layout.scratch_bytes));
            layout.scratch_bytes += scratch_size(key, role, &extent).next_multiple_of(PART);
        } else {
            layout.operands.push((role.number(), extent.base));
        }
        if of == role && key.is_ragged() {
            layout.put(role.offsets(), extent.offsets.iter().flat_map(|o| [*o as i32, (*o >> 32) as i32]));
        }
        shared.push((role, extent));
    }
    if key.is_ragged() {
        let padding = places as usize - slots.len();
        let lengths = |of: fn(&Slot) -> u32| {
            slots.iter().map(move |s| of(s) as i32).chain(std::iter::repeat_n(0, padding)).collect::<Vec<_>>()
        };
        layout.put(Role::Rows.number(), lengths(|s| s.q_rows));
        layout.put(Role::Keys.number(), lengths(|s| s.k_rows));
    }
    layout
}

impl Layout {
    fn put(&mut self, number: i64, words: impl IntoIterator<Item = i32>) {
        self.table.push((number, self.words.len() as u64 * 4));
        self.words.extend(words);
        self.words.resize(self.words.len().next_multiple_of(4), 0);
    }
}

fn role_extent(key: &GraphKey, role: Role, slots: &[Slot], places: u32) -> Extent {
    let strides = key.strides;
    let (sum, dq, full) = key.scratch_strides();
    let arena = |start: fn(&Slot) -> u64, rows: fn(&Slot) -> u32, stride, element| {
        extent(slots.iter().map(|s| (start(s), rows(s))), stride, element, places)
    };
    let rows = |s: &Slot| s.q_rows;
    let keys = |s: &Slot| s.k_rows;
    let heads = || {
        let reduced = key.head_scratch == HeadScratch::OwnReduced;
        packed_extent(slots.iter().map(keys), if reduced { key.kv_heads * key.head_dim } else { full }, places)
    };
    match role {
        Role::Q => arena(|s| s.q, rows, strides.q, 2),
        Role::K => arena(|s| s.k, keys, strides.kv, 2),
        Role::V => arena(|s| s.v, keys, strides.kv, 2),
        Role::O => arena(|s| s.o, rows, strides.o, 2),
        Role::Lse => arena(|s| s.lse, rows, strides.lse, 4),
        Role::DO => arena(|s| s.d_o, rows, strides.d_o, 2),
        Role::DQ => arena(|s| s.dq, rows, strides.dq, 2),
        Role::DK => arena(|s| s.dk, keys, strides.dkv, 2),
        Role::DV => arena(|s| s.dv, keys, strides.dkv, 2),
        Role::Sum => packed_extent(slots.iter().map(rows), sum, places),
        Role::DqSum => packed_extent(slots.iter().map(rows), dq, places),
        Role::DkHeads | Role::DvHeads => heads(),
        Role::Rows | Role::Keys => Extent { base: 0, offsets: Vec::new(), elements: 0 },
    }
}

/// Bytes of a role in scratch whose slots lie so.
fn scratch_size(key: &GraphKey, role: Role, extent: &Extent) -> u64 {
    let (sum, dq, full) = key.scratch_strides();
    let (_, q, _) = key.shape();
    let row = u64::from(key.q_heads);
    if !key.is_ragged() {
        let width = if role == Role::Sum { 1 } else { u64::from(key.head_dim) };
        return row * (q as u64).next_multiple_of(TILE) * width * 4;
    }
    match role {
        Role::Sum => (extent.elements + TILE * u64::from(sum)) * 4,
        Role::DqSum => (extent.elements + TILE * u64::from(dq)) * 4,
        _ => {
            let elements = match key.head_scratch {
                HeadScratch::OwnFull => extent.elements,
                HeadScratch::Shared | HeadScratch::OwnReduced => extent.elements * u64::from(key.group()),
            };
            (elements + TILE * u64::from(full)) * 2
        }
    }
}

#[cfg(test)]
mod tests {
    use skewbench_plan::Pass;

    use super::super::key::{CuDnnOptions, RowScratch};
    use super::*;
    use crate::steps::{AttendCall, AttendMask, Strides};

    fn slots() -> Vec<Slot> {
        // The second slot shares the keys of the first and lies before it.
        let at = |q_rows, k_rows, token: u64, lse| Slot {
            q_rows,
            k_rows,
            q: 4096 + token * 1024,
            k: 0,
            v: 65_536,
            o: 1 << 20 | (token * 1024),
            lse,
            d_o: 2 << 20,
            dq: 3 << 20 | (token * 1024),
            dk: 4 << 20 | (token * 256),
            dv: 5 << 20 | (token * 256),
        };
        vec![at(5, 9, 3, 640), at(3, 4, 0, 620), at(1, 2, 8, 700)]
    }

    fn key(pass: Pass, options: &CuDnnOptions) -> GraphKey {
        let slots = slots();
        let call = AttendCall {
            pass,
            mask: AttendMask::Full,
            q_heads: 4,
            kv_heads: 1,
            head_dim: 128,
            strides: Strides { q: 512, kv: 128, o: 512, lse: 4, d_o: 512, dq: 512, dkv: 128 },
            slots: slots.clone(),
        };
        GraphKey::new(&call, &slots, options)
    }

    fn offsets(layout: &Layout, role: Role) -> Vec<i64> {
        let at = layout.table.iter().find(|(n, _)| *n == role.offsets()).expect("offsets").1 as usize / 4;
        layout.words[at..at + 10].chunks(2).map(|w| i64::from(w[0].cast_unsigned()) | i64::from(w[1]) << 32).collect()
    }

    #[test]
    fn every_tensor_has_its_own_base_and_offsets() {
        let layout = layout(&key(Pass::Forward, &CuDnnOptions::default()), &slots(), 700);
        assert_eq!(layout.operands, [(1, 4096), (2, 0), (3, 65_536), (4, 1 << 20), (5, 608)]);
        assert_eq!(offsets(&layout, Role::Q), [1536, 0, 4096, 0, 0]);
        assert_eq!(offsets(&layout, Role::K), [0; 5]);
        assert_eq!(offsets(&layout, Role::Lse), [8, 3, 23, 0, 0]);
        assert!(layout.scratch.is_empty());
        assert_eq!(layout.scratch_bytes, 1024);
        assert!(layout.table.iter().all(|(_, at)| at.is_multiple_of(16)));
        let rows = layout.table.iter().find(|(n, _)| *n == Role::Rows.number()).expect("lengths").1 as usize / 4;
        assert_eq!(layout.words[rows..rows + 8], [5, 3, 1, 0, 9, 4, 2, 0]);
    }

    #[test]
    fn scratch_of_a_backward_holds_the_real_tokens() {
        let layout = layout(&key(Pass::Backward, &CuDnnOptions::default()), &slots(), 0);
        assert_eq!(offsets(&layout, Role::Sum), [0, 20, 32, 0, 0]);
        assert_eq!(offsets(&layout, Role::DqSum), [0, 5 * 512, 8 * 512, 0, 0]);
        assert_eq!(offsets(&layout, Role::DkHeads), [0, 9 * 128, 13 * 128, 0, 0]);
        let sizes: Vec<u64> = [(9 + 128) * 4 * 4, (9 + 128) * 512 * 4, (15 + 128) * 512 * 2, (15 + 128) * 512 * 2]
            .map(|b: u64| b.next_multiple_of(1024))
            .to_vec();
        assert_eq!(layout.scratch_bytes, sizes.iter().sum::<u64>());
        assert_eq!(layout.scratch.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [10, 11, 12, 13]);
    }

    #[test]
    fn shared_scratch_follows_the_gaps_of_its_tensor() {
        let options = CuDnnOptions {
            row_scratch: RowScratch::Shared,
            head_scratch: HeadScratch::Shared,
            ..CuDnnOptions::default()
        };
        let layout = layout(&key(Pass::Backward, &options), &slots(), 0);
        assert!(layout.table.iter().all(|(n, _)| *n < Role::Sum.offsets()));
        // dK: 12 tokens to the end of the first slot, times 4 query heads.
        let heads = layout.scratch[3].1 - layout.scratch[2].1;
        assert_eq!(heads, ((12 * 128 * 4 + 128 * 512) * 2u64).next_multiple_of(1024));
    }

    #[test]
    fn a_repeatable_backward_needs_no_sums_of_dq() {
        let options = CuDnnOptions { repeatable: true, ..CuDnnOptions::default() };
        let slot = &slots()[..1];
        let call_key = GraphKey { repeatable: true, ..key(Pass::Backward, &options) };
        let layout = layout(&call_key, slot, 0);
        assert!(!layout.scratch.iter().any(|(n, _)| *n == Role::DqSum.number()));
    }
}
