use std::fmt;
use std::slice::Chunks;

use skewbench_plan::Pass;

use crate::steps::{AttendCall, AttendMask, Slot, Strides};

/// How cuDNN is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuDnnOptions {
    /// The backward gives the same bits in every run. Slots then run one after another, slower, and with scratch of
    /// rows x keys x heads.
    pub repeatable: bool,
    /// Calls of one slot with at least this many rows get a graph of their exact shape; all others share graphs of shape
    /// buckets.
    pub dense_rows: u32,
}

impl Default for CuDnnOptions {
    fn default() -> Self {
        Self { repeatable: false, dense_rows: 1024 }
    }
}

/// What a graph is built for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GraphKey {
    pub pass: Pass,
    pub mask: AttendMask,
    pub q_heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub strides: Strides,
    pub form: Form,
    pub repeatable: bool,
}

/// Which shapes a graph serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// One slot of exactly this many rows and keys.
    Dense { q: u32, k: u32 },
    /// Up to so many slots of up to so many rows and keys.
    Ragged { slots: u32, q: u32, k: u32 },
}

/// Fewest rows and keys of a bucket: below, kernels work in tiles of this size anyway.
const LEAST: u32 = 128;

impl GraphKey {
    /// The key of some slots of a call.
    pub fn new(call: &AttendCall, slots: &[Slot], options: &CuDnnOptions) -> Self {
        let repeatable = options.repeatable && call.pass == Pass::Backward;
        let (mut q, mut k) = (LEAST, LEAST);
        for slot in slots {
            q = q.max(slot.q_rows);
            k = k.max(slot.k_rows);
        }
        let form = match slots {
            [slot] if slot.q_rows >= options.dense_rows && slot.lse.is_multiple_of(ALIGNMENT) => {
                Form::Dense { q: slot.q_rows, k: slot.k_rows }
            }
            // The scratch of a repeatable backward grows with the product of both.
            [_] if repeatable => Form::Ragged { slots: 1, q: q.next_multiple_of(LEAST), k: k.next_multiple_of(LEAST) },
            _ => Form::Ragged {
                slots: (slots.len() as u32).next_power_of_two(),
                q: q.next_power_of_two(),
                k: k.next_power_of_two(),
            },
        };
        let strides = match call.pass {
            Pass::Forward => Strides { d_o: 0, dq: 0, dkv: 0, ..call.strides },
            Pass::Backward => call.strides,
        };
        Self {
            pass: call.pass,
            mask: call.mask,
            q_heads: call.q_heads,
            kv_heads: call.kv_heads,
            head_dim: call.head_dim,
            strides,
            form,
            repeatable,
        }
    }

    /// Slots, rows and keys that tensors are declared with.
    pub fn shape(&self) -> (i64, i64, i64) {
        match self.form {
            Form::Dense { q, k } => (1, q.into(), k.into()),
            Form::Ragged { slots, q, k } => (slots.into(), q.into(), k.into()),
        }
    }

    /// Whether slots have lengths and offsets.
    pub fn is_ragged(&self) -> bool {
        matches!(self.form, Form::Ragged { .. })
    }

    /// Query heads of a KV head.
    pub fn group(&self) -> u32 {
        self.q_heads / self.kv_heads
    }

    /// Elements of all query heads of a row.
    pub fn q_width(&self) -> u32 {
        self.q_heads * self.head_dim
    }
}

impl fmt::Display for GraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slots, q, k) = self.shape();
        let form = if self.is_ragged() { "ragged" } else { "dense" };
        write!(
            f,
            "{:?} {:?} {form} slots {slots} rows {q} keys {k} heads {}:{} head_dim {}{}",
            self.pass,
            self.mask,
            self.q_heads,
            self.kv_heads,
            self.head_dim,
            if self.repeatable { " repeatable" } else { "" }
        )
    }
}

/// The slots that run in one go, in the order of the call: all, but every slot alone in a repeatable backward.
pub(super) fn groups<'c>(call: &'c AttendCall, options: &CuDnnOptions) -> Chunks<'c, Slot> {
    let alone = options.repeatable && call.pass == Pass::Backward;
    call.slots.chunks(if alone { 1 } else { call.slots.len().max(1) })
}

/// Bytes that every address handed to cuDNN is a multiple of.
pub(super) const ALIGNMENT: u64 = 16;

/// Where the slots of one tensor start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Byte that offsets count from.
    pub base: u64,
    /// First element of every slot, then one for every place without a slot and one for the end.
    pub offsets: Vec<i64>,
    /// Elements from the base to the end of the last row.
    pub elements: u64,
}

/// The extent of a tensor whose slots start at these bytes and have these rows, `stride` elements of `element` bytes apart,
/// among `places` places.
pub(super) fn extent(
    slots: impl Iterator<Item = (u64, u32)> + Clone,
    stride: u32,
    element: u64,
    places: u32,
) -> Extent {
    let base = slots.clone().map(|(start, _)| start).min().unwrap_or(0) / ALIGNMENT * ALIGNMENT;
    let mut offsets = vec![0; places as usize + 1];
    let mut elements = 0;
    for (offset, (start, rows)) in offsets.iter_mut().zip(slots) {
        let first = (start - base) / element;
        *offset = first as i64;
        elements = elements.max(first + u64::from(rows) * u64::from(stride));
    }
    Extent { base, offsets, elements }
}

/// The extent of slots that follow each other from `base`; places without a slot are at the end.
pub(super) fn packed_extent(base: u64, rows: impl Iterator<Item = u32>, stride: u32, places: u32) -> Extent {
    let mut offsets = Vec::with_capacity(places as usize + 1);
    let mut elements = 0u64;
    for rows in rows {
        offsets.push(elements as i64);
        elements += u64::from(rows) * u64::from(stride);
    }
    offsets.resize(places as usize + 1, elements as i64);
    Extent { base, offsets, elements }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(pass: Pass, slots: Vec<Slot>) -> AttendCall {
        AttendCall {
            pass,
            mask: AttendMask::BottomRight,
            q_heads: 8,
            kv_heads: 2,
            head_dim: 128,
            strides: Strides { q: 1024, kv: 256, o: 1024, lse: 8, d_o: 1024, dq: 1024, dkv: 512 },
            slots,
        }
    }

    fn slot(q_rows: u32, k_rows: u32) -> Slot {
        Slot { q_rows, k_rows, ..Slot::default() }
    }

    #[test]
    fn several_slots_share_a_bucket() {
        let options = CuDnnOptions::default();
        let key = |slots: &[Slot]| GraphKey::new(&call(Pass::Forward, slots.to_vec()), slots, &options);
        let a = key(&[slot(700, 5000), slot(90, 3000), slot(1, 9)]);
        assert_eq!(a.form, Form::Ragged { slots: 4, q: 1024, k: 8192 });
        assert_eq!(a, key(&[slot(600, 4097), slot(1, 1), slot(5, 5), slot(5, 5)]));
        assert_eq!(key(&[slot(1, 7)]).form, Form::Ragged { slots: 1, q: 128, k: 128 });
        assert_eq!(a.strides.dq, 0, "a forward does not depend on the layout of gradients");
    }

    #[test]
    fn a_long_slot_alone_has_its_exact_shape() {
        let options = CuDnnOptions::default();
        let slots = [slot(1500, 70_001)];
        let key = GraphKey::new(&call(Pass::Backward, slots.to_vec()), &slots, &options);
        assert_eq!(key.form, Form::Dense { q: 1500, k: 70_001 });
        let ragged = CuDnnOptions { dense_rows: u32::MAX, ..options };
        let key = GraphKey::new(&call(Pass::Backward, slots.to_vec()), &slots, &ragged);
        assert_eq!(key.form, Form::Ragged { slots: 1, q: 2048, k: 131_072 });
        let shifted = [Slot { lse: 4, ..slots[0] }];
        assert!(GraphKey::new(&call(Pass::Forward, shifted.to_vec()), &shifted, &options).is_ragged());
    }

    #[test]
    fn a_repeatable_backward_runs_slots_alone() {
        let options = CuDnnOptions { repeatable: true, ..CuDnnOptions::default() };
        let backward = call(Pass::Backward, vec![slot(300, 900), slot(1, 7)]);
        let groups_of: Vec<_> = groups(&backward, &options).collect();
        assert_eq!(groups_of.len(), 2);
        let key = GraphKey::new(&backward, groups_of[0], &options);
        assert_eq!((key.form, key.repeatable), (Form::Ragged { slots: 1, q: 384, k: 1024 }, true));
        assert_eq!(groups(&call(Pass::Forward, backward.slots.clone()), &options).count(), 1);
        assert_eq!(groups(&call(Pass::Forward, Vec::new()), &options).count(), 0);
    }

    #[test]
    fn offsets_count_elements_from_an_aligned_base() {
        let starts = [(4128u64, 3u32), (100, 2)];
        let lse = extent(starts.iter().copied(), 8, 4, 4);
        assert_eq!(lse, Extent { base: 96, offsets: vec![1008, 1, 0, 0, 0], elements: 1008 + 24 });
        let packed = packed_extent(64, [3, 2].into_iter(), 10, 3);
        assert_eq!(packed, Extent { base: 64, offsets: vec![0, 30, 50, 50], elements: 50 });
    }
}
