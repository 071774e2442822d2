//! Small cases: operands on the host in an arena like a program's.

use half::bf16;
use skewbench_cuda::steps::{AttendCall, AttendMask, Slot, Strides};
use skewbench_plan::Pass;

/// Where slots lie. Those of dQ follow each other in any case, as calls promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// One behind the other in a region of their tensor.
    Packed,
    /// Whole rows apart, in falling order.
    Rows,
    /// Anywhere that addresses allow, tensors mixed.
    Anywhere,
    /// These tensors anywhere, the others packed.
    Some(&'static [usize]),
}

/// A call in both passes.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub mask: AttendMask,
    pub q_heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub slots: Vec<(u32, u32)>,
    pub place: Place,
    /// Rows are this many times as far apart as they are wide, those of dQ once.
    pub spread: u32,
    /// All slots read the first keys of one region.
    pub shared_keys: bool,
}

impl Case {
    pub fn new(name: &'static str, mask: AttendMask, heads: (u32, u32), head_dim: u32, slots: &[(u32, u32)]) -> Self {
        let (q_heads, kv_heads) = heads;
        Self {
            name,
            mask,
            q_heads,
            kv_heads,
            head_dim,
            slots: slots.to_vec(),
            place: Place::Packed,
            spread: 1,
            shared_keys: false,
        }
    }

    pub fn place(mut self, place: Place, spread: u32) -> Self {
        (self.place, self.spread) = (place, spread);
        self
    }

    /// Places that a backward does not have.
    pub fn forward_only(&self) -> bool {
        let apart = match self.place {
            Place::Packed => false,
            Place::Rows | Place::Anywhere => true,
            Place::Some(tensors) => tensors.iter().any(|t| *t != K && *t != V),
        };
        self.slots.len() > 1 && (apart || self.spread > 1)
    }

    pub fn shared(mut self) -> Self {
        self.shared_keys = true;
        self
    }
}

/// The cases that every implementation must pass.
pub fn cases() -> Vec<Case> {
    use AttendMask::{BottomRight, Full, TopLeft};
    let three = [(100, 100), (500, 500), (700, 700)];
    let tiles = [(128, 700), (64, 300), (1, 9)];
    vec![
        Case::new("one key", Full, (4, 1), 128, &[(1, 1)]),
        Case::new("seven rows", TopLeft, (4, 4), 128, &[(7, 7)]),
        Case::new("odd rectangle 8:1", BottomRight, (8, 1), 128, &[(333, 777)]),
        Case::new("odd rectangle 1:1 full", Full, (4, 4), 128, &[(333, 777)]),
        Case::new("documents", TopLeft, (4, 1), 128, &three),
        Case::new("documents bottom right", BottomRight, (4, 1), 128, &three),
        Case::new("tiles 32:4", BottomRight, (32, 4), 128, &tiles),
        Case::new("tiles full", Full, (4, 2), 128, &tiles),
        Case::new("head_dim 64", BottomRight, (4, 1), 64, &[(333, 777), (64, 64), (7, 100)]),
        Case::new("rows without keys", BottomRight, (4, 1), 128, &[(300, 100), (50, 50)]),
        Case::new("gaps of rows, falling order", BottomRight, (4, 1), 128, &tiles).place(Place::Rows, 1),
        Case::new("spread rows", BottomRight, (4, 1), 128, &tiles).place(Place::Packed, 3),
        Case::new("anywhere", BottomRight, (4, 1), 128, &tiles).place(Place::Anywhere, 1),
        Case::new("anywhere 1:1", BottomRight, (4, 4), 128, &tiles).place(Place::Anywhere, 1),
        Case::new("anywhere, spread rows", BottomRight, (8, 2), 128, &tiles).place(Place::Anywhere, 2),
        Case::new("keys anywhere", BottomRight, (4, 1), 128, &tiles).place(Place::Some(&[K, V]), 1),
        Case::new("keys anywhere 1:1", BottomRight, (4, 4), 128, &tiles).place(Place::Some(&[K, V]), 1),
        Case::new("shared keys", BottomRight, (4, 1), 128, &[(100, 900), (100, 800), (100, 700)]).shared(),
        Case::new("shared keys anywhere", BottomRight, (4, 1), 128, &[(100, 900), (100, 800), (100, 700)])
            .shared()
            .place(Place::Anywhere, 1),
        Case::new("dense bottom right", BottomRight, (4, 1), 128, &[(1024, 1536)]),
        Case::new("dense document", TopLeft, (2, 2), 128, &[(1100, 1100)]),
        Case::new("dense odd full", Full, (2, 1), 128, &[(1030, 1031)]),
        Case::new("dense spread rows", BottomRight, (4, 2), 128, &[(1024, 1100)]).place(Place::Packed, 3),
        Case::new("long tile anywhere", BottomRight, (4, 2), 128, &[(1024, 1100)]).place(Place::Anywhere, 3),
    ]
}

/// Cases for head sizes that only the plain kernels take.
pub fn plain_cases() -> Vec<Case> {
    use AttendMask::BottomRight;
    let tiles = [(70, 200), (64, 65), (3, 5)];
    vec![
        Case::new("head_dim 33", BottomRight, (4, 2), 33, &tiles),
        Case::new("head_dim 80", BottomRight, (4, 2), 80, &tiles).place(Place::Anywhere, 2),
        Case::new("head_dim 256", BottomRight, (4, 2), 256, &tiles),
        Case::new("head_dim 1", BottomRight, (2, 1), 1, &tiles),
    ]
}

/// A case in memory.
pub struct Arena {
    pub bytes: Vec<u8>,
    /// Both passes over the same slots.
    pub forward: AttendCall,
    pub backward: AttendCall,
}

/// Numbers that look random and are the same in every run: sums of uniform ones, mean 0, variance 1.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f32 {
        let mut sum = 0.0;
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        sum * 3f32.sqrt()
    }
}

/// Tensors in the order in which they are placed: rows or keys, heads, bytes of an element, whether it is an operand.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const O: usize = 3;
const LSE: usize = 4;
const D_O: usize = 5;
const DQ: usize = 6;
const DK: usize = 7;
const DV: usize = 8;

pub fn arena(case: &Case) -> Arena {
    let d = case.head_dim;
    let (q_width, kv_width) = (case.q_heads * d, case.kv_heads * d);
    let width = |t: usize| match t {
        LSE => case.q_heads,
        K | V | DK | DV => kv_width,
        _ => q_width,
    };
    let element = |t: usize| if t == LSE { 4u64 } else { 2 };
    let spread = |t: usize| if t == DQ { 1 } else { case.spread };
    let row_bytes = |t: usize| u64::from(width(t) * spread(t)) * element(t);
    let rows = |t: usize, slot: usize| match t {
        K | V | DK | DV => case.slots[slot].1,
        _ => case.slots[slot].0,
    };
    let mut at = vec![[0u64; 9]; case.slots.len()];
    let mut end = 4096u64;
    let anywhere = |t: usize| match case.place {
        Place::Packed | Place::Rows => false,
        Place::Anywhere => true,
        Place::Some(tensors) => tensors.contains(&t),
    };
    let n = case.slots.len();
    let in_order = (0..9).filter(|t| !anywhere(*t)).flat_map(|t| (0..n).map(move |s| (t, s)));
    let mixed = (0..n).rev().flat_map(|s| (0..9).map(move |t| (t, s))).filter(|(t, _)| anywhere(*t));
    for (t, index) in in_order.chain(mixed) {
        let slot = if case.place == Place::Rows { case.slots.len() - 1 - index } else { index };
        let shared = case.shared_keys && (t == K || t == V);
        if t == DQ {
            continue;
        }
        // Slots are sorted by falling length: the first one's keys hold those of all.
        if shared && slot != 0 {
            continue;
        }
        if index == 0 || anywhere(t) {
            end = end.next_multiple_of(256);
        }
        if anywhere(t) {
            end += if t == LSE { 4 } else { 16 * (3 + 2 * t as u64) };
        } else if case.place == Place::Rows {
            end += row_bytes(t) * (1 + index as u64);
        }
        at[slot][t] = end;
        end += row_bytes(t) * u64::from(rows(t, slot));
        // Narrow rows of one slot may end anywhere; slots start at multiples of 16.
        if t != LSE {
            end = end.next_multiple_of(16);
        }
    }
    end = end.next_multiple_of(256) + if case.place == Place::Packed { 0 } else { 16 * 15 };
    for (slot, starts) in at.iter_mut().enumerate() {
        starts[DQ] = end;
        end += row_bytes(DQ) * u64::from(rows(DQ, slot));
    }
    if case.shared_keys {
        for slot in 1..at.len() {
            (at[slot][K], at[slot][V]) = (at[0][K], at[0][V]);
        }
    }
    let mut bytes = vec![0xff; end.next_multiple_of(256) as usize + 4096];
    // Other numbers in every case: what an earlier one left in scratch must not pass for a result.
    let mut random = Random(case.name.bytes().fold(u64::from(d), |seed, byte| seed * 131 + u64::from(byte)));
    for (slot, starts) in at.iter().enumerate() {
        for t in [Q, K, V, D_O] {
            if case.shared_keys && slot > 0 && (t == K || t == V) {
                continue;
            }
            for row in 0..u64::from(rows(t, slot)) {
                for x in 0..u64::from(width(t)) {
                    let byte = (starts[t] + row * row_bytes(t) + x * 2) as usize;
                    bytes[byte..byte + 2].copy_from_slice(&bf16::from_f32(random.next()).to_le_bytes());
                }
            }
        }
    }
    let slots = case
        .slots
        .iter()
        .zip(&at)
        .map(|(&(q_rows, k_rows), a)| Slot {
            q_rows,
            k_rows,
            q: a[Q],
            k: a[K],
            v: a[V],
            o: a[O],
            lse: a[LSE],
            d_o: a[D_O],
            dq: a[DQ],
            dk: a[DK],
            dv: a[DV],
        })
        .collect();
    let (q, kv, lse) = (q_width * case.spread, kv_width * case.spread, case.q_heads * case.spread);
    let backward = AttendCall {
        pass: Pass::Backward,
        mask: case.mask,
        q_heads: case.q_heads,
        kv_heads: case.kv_heads,
        head_dim: d,
        strides: Strides { q, kv, o: q, lse, d_o: q, dq: q_width, dkv: kv },
        slots,
    };
    let mut forward = backward.clone();
    forward.pass = Pass::Forward;
    forward.strides = Strides { d_o: 0, dq: 0, dkv: 0, ..backward.strides };
    Arena { bytes, forward, backward }
}
