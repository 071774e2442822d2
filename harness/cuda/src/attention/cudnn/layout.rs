use crate::steps::Slot;

use super::key::{Extent, GraphKey, extent, packed_extent};
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
    for role in roles(key) {
        let extent = role_extent(key, role, slots, places);
        if own.contains(&role) {
            layout.scratch.push((role.number(), layout.scratch_bytes));
            layout.scratch_bytes += scratch_size(key, role, &extent).next_multiple_of(PART);
        } else {
            layout.operands.push((role.number(), extent.base));
        }
        if offset_role(role) == role && key.is_ragged() {
            layout.put(role.offsets(), extent.offsets.iter().flat_map(|o| [*o as i32, (*o >> 32) as i32]));
        }
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
    let arena = |start: fn(&Slot) -> u64, rows: fn(&Slot) -> u32, stride, element| {
        extent(slots.iter().map(|s| (start(s), rows(s))), stride, element, places)
    };
    let rows = |s: &Slot| s.q_rows;
    let keys = |s: &Slot| s.k_rows;
    match role {
        Role::Q => arena(|s| s.q, rows, strides.q, 2),
        Role::K => arena(|s| s.k, keys, strides.kv, 2),
        Role::V => arena(|s| s.v, keys, strides.kv, 2),
        Role::O => arena(|s| s.o, rows, strides.o, 2),
        Role::Lse => arena(|s| s.lse, rows, strides.lse, 4),
        Role::DO => arena(|s| s.d_o, rows, strides.d_o, 2),
        // Calls promise that slots of dQ follow each other.
        Role::DQ | Role::DqSum => {
            packed_extent(slots.first().map_or(0, |s| s.dq), slots.iter().map(rows), key.q_width(), places)
        }
        Role::DK => arena(|s| s.dk, keys, strides.dkv, 2),
        Role::DV => arena(|s| s.dv, keys, strides.dkv, 2),
        Role::Sum => packed_extent(0, slots.iter().map(rows), key.q_heads, places),
        // In elements of a tensor of KV heads: cuDNN multiplies offsets by the query heads of a KV head.
        Role::DkHeads | Role::DvHeads => packed_extent(0, slots.iter().map(keys), key.kv_heads * key.head_dim, places),
        Role::Rows | Role::Keys => Extent { base: 0, offsets: Vec::new(), elements: 0 },
    }
}

/// Bytes of a role in scratch whose slots lie so.
fn scratch_size(key: &GraphKey, role: Role, extent: &Extent) -> u64 {
    let (_, q, _) = key.shape();
    let (heads, width) = (u64::from(key.q_heads), u64::from(key.q_width()));
    match role {
        Role::Sum | Role::DqSum if !key.is_ragged() => {
            (q as u64).next_multiple_of(TILE) * if role == Role::Sum { heads } else { width } * 4
        }
        Role::Sum => (extent.elements + TILE * heads) * 4,
        Role::DqSum => (extent.elements + TILE * width) * 4,
        _ => (extent.elements * u64::from(key.group()) + TILE * width) * 2,
    }
}

#[cfg(test)]
mod tests {
    use skewbench_plan::Pass;

    use super::super::key::CuDnnOptions;
    use super::*;
    use crate::steps::{AttendCall, AttendMask, Strides};

    fn slots() -> Vec<Slot> {
        // The second slot shares the keys of the first and lies before it, but for dQ.
        let at = |q_rows, k_rows, token: u64, lse, before: u64| Slot {
            q_rows,
            k_rows,
            q: 4096 + token * 1024,
            k: 0,
            v: 65_536,
            o: 1 << 20 | (token * 1024),
            lse,
            d_o: 2 << 20,
            dq: 3 << 20 | (before * 1024),
            dk: 4 << 20 | (token * 256),
            dv: 5 << 20 | (token * 256),
        };
        vec![at(5, 9, 3, 640, 0), at(3, 4, 0, 620, 5), at(1, 2, 8, 700, 8)]
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
        assert_eq!(offsets(&layout, Role::Sum), [0, 20, 32, 36, 36]);
        assert_eq!(offsets(&layout, Role::DkHeads), [0, 9 * 128, 13 * 128, 15 * 128, 15 * 128]);
        let sizes: Vec<u64> = [(9 + 128) * 4 * 4, (9 + 128) * 512 * 4, (15 + 128) * 512 * 2, (15 + 128) * 512 * 2]
            .map(|b: u64| b.next_multiple_of(1024))
            .to_vec();
        assert_eq!(layout.scratch_bytes, sizes.iter().sum::<u64>());
        assert_eq!(layout.scratch.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [10, 11, 12, 13]);
    }

    #[test]
    fn dq_and_its_sums_have_the_same_offsets() {
        let layout = layout(&key(Pass::Backward, &CuDnnOptions::default()), &slots(), 0);
        assert_eq!(layout.operands[6], (Role::DQ.number(), 3 << 20));
        assert_eq!(offsets(&layout, Role::DQ), [0, 5 * 512, 8 * 512, 9 * 512, 9 * 512]);
        assert_eq!(offset_role(Role::DqSum), Role::DQ);
        assert!(layout.table.iter().all(|(n, _)| *n != Role::DqSum.offsets()));
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
