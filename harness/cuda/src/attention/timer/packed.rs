use skewbench_plan::{LaunchShape, Mask, Pass};

use crate::steps::{AttendCall, AttendMask, Slot, Strides};

/// A launch with operands that follow each other in an arena.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedCall {
    /// The call. A backward has its forward's operands and results, too.
    pub call: AttendCall,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Operands that the call reads and that no forward makes: first byte and bf16 elements.
    pub inputs: Vec<(u64, u64)>,
    /// What the call writes: first byte, elements, bytes of an element.
    pub results: Vec<(u64, u64, u64)>,
}

impl PackedCall {
    /// The forward that makes O and LSE of a backward.
    pub fn forward(&self) -> AttendCall {
        let mut call = self.call.clone();
        call.pass = Pass::Forward;
        let strides = &mut call.strides;
        (strides.d_o, strides.dq, strides.dkv) = (0, 0, 0);
        call
    }
}

/// Regions of the arena start at multiples of this many bytes.
const REGION: u64 = 256;

/// The launch as one call over packed operands, and the arena that it needs.
///
/// Causal squares are whole documents: each has its own keys and the top-left mask, which is the same function. Other tiles
/// share one region of keys, as tiles of one document with a common prefix do; each has its own dK and dV. An exclusive mask
/// hides the last key, which is dropped. Tiles without rows or keys are dropped. Longest first.
pub fn packed(launch: &LaunchShape<'_>) -> PackedCall {
    let hidden = u32::from(launch.mask == Mask::CausalExclusive);
    let mut shapes: Vec<(u32, u32)> =
        launch.tiles.iter().map(|t| (t.q, t.k.saturating_sub(hidden))).filter(|(q, k)| *q > 0 && *k > 0).collect();
    let mask = match launch.mask {
        Mask::Full => AttendMask::Full,
        Mask::Causal | Mask::CausalExclusive if shapes.iter().all(|(q, k)| q == k) => AttendMask::TopLeft,
        Mask::Causal | Mask::CausalExclusive => AttendMask::BottomRight,
    };
    let seen = if mask == AttendMask::Full { Mask::Full } else { Mask::Causal };
    shapes.sort_by_key(|(q, k)| std::cmp::Reverse(seen.pairs(*q, *k)));

    let d = u32::from(launch.head_dim);
    let (q_width, kv_width) = (launch.q_heads * d, launch.kv_heads * d);
    let backward = launch.pass == Pass::Backward;
    let own_keys = mask == AttendMask::TopLeft;
    let rows: u64 = shapes.iter().map(|(q, _)| u64::from(*q)).sum();
    let contributions: u64 = shapes.iter().map(|(_, k)| u64::from(*k)).sum();
    let longest = shapes.iter().map(|(_, k)| u64::from(*k)).max().unwrap_or(0);
    let keys = if own_keys { contributions } else { longest };

    let mut arena_bytes = 0;
    let mut region = |rows: u64, width: u32, element: u64| {
        let start = arena_bytes;
        arena_bytes = (start + rows * u64::from(width) * element).next_multiple_of(REGION);
        (start, rows * u64::from(width))
    };
    let q = region(rows, q_width, 2);
    let k = region(keys, kv_width, 2);
    let v = region(keys, kv_width, 2);
    let o = region(rows, q_width, 2);
    let lse = region(rows, launch.q_heads, 4);
    let (mut inputs, mut results) = (vec![q, k, v], vec![(o.0, o.1, 2), (lse.0, lse.1, 4)]);
    let mut gradients = [(0, 0); 4];
    if backward {
        gradients = [
            region(rows, q_width, 2),
            region(rows, q_width, 2),
            region(contributions, kv_width, 2),
            region(contributions, kv_width, 2),
        ];
        inputs.push(gradients[0]);
        results = gradients[1..].iter().map(|(start, elements)| (*start, *elements, 2)).collect();
    }

    let (mut row, mut key) = (0u64, 0u64);
    let slots = shapes
        .into_iter()
        .map(|(q_rows, k_rows)| {
            let q_at = |(start, _): (u64, u64)| start + row * u64::from(q_width) * 2;
            let kv_at = |(start, _): (u64, u64), key: u64| start + key * u64::from(kv_width) * 2;
            let gradient = |of: u64| if backward { of } else { 0 };
            let shared = if own_keys { key } else { 0 };
            let slot = Slot {
                q_rows,
                k_rows,
                q: q_at(q),
                k: kv_at(k, shared),
                v: kv_at(v, shared),
                o: q_at(o),
                lse: lse.0 + row * u64::from(launch.q_heads) * 4,
                d_o: gradient(q_at(gradients[0])),
                dq: gradient(q_at(gradients[1])),
                dk: gradient(kv_at(gradients[2], key)),
                dv: gradient(kv_at(gradients[3], key)),
            };
            row += u64::from(q_rows);
            key += u64::from(k_rows);
            slot
        })
        .collect();
    let of_gradient = |width: u32| if backward { width } else { 0 };
    let call = AttendCall {
        pass: launch.pass,
        mask,
        q_heads: launch.q_heads,
        kv_heads: launch.kv_heads,
        head_dim: d,
        strides: Strides {
            q: q_width,
            kv: kv_width,
            o: q_width,
            lse: launch.q_heads,
            d_o: of_gradient(q_width),
            dq: of_gradient(q_width),
            dkv: of_gradient(kv_width),
        },
        slots,
    };
    PackedCall { call, arena_bytes, inputs, results }
}

#[cfg(test)]
mod tests {
    use skewbench_plan::TileShape;

    use super::*;
    use crate::attention::valid::valid;

    fn pack(pass: Pass, mask: Mask, tiles: &[(u32, u32)]) -> PackedCall {
        let tiles: Vec<_> = tiles.iter().map(|&(q, k)| TileShape { q, k }).collect();
        packed(&LaunchShape { pass, mask, q_heads: 4, kv_heads: 2, head_dim: 64, tiles: &tiles })
    }

    #[test]
    fn squares_are_documents_with_keys_of_their_own() {
        let packed = pack(Pass::Forward, Mask::Causal, &[(2, 2), (5, 5)]);
        assert_eq!(packed.call.mask, AttendMask::TopLeft);
        let [a, b] = packed.call.slots[..] else { panic!("two slots") };
        assert_eq!((a.q_rows, b.q_rows), (5, 2), "longest first");
        assert_eq!(b.k - a.k, 5 * 2 * 64 * 2);
        assert_eq!(b.q - a.q, 5 * 4 * 64 * 2);
        assert_eq!(b.lse - a.lse, 5 * 4 * 4);
        assert_eq!((b.dk, packed.call.strides.dkv), (0, 0));
        assert_eq!(packed.results, [(a.o, 7 * 4 * 64, 2), (a.lse, 7 * 4, 4)]);
    }

    #[test]
    fn rectangles_share_keys_and_have_gradients_of_their_own() {
        let packed = pack(Pass::Backward, Mask::Causal, &[(2, 3), (2, 9)]);
        assert_eq!(packed.call.mask, AttendMask::BottomRight);
        let [a, b] = packed.call.slots[..] else { panic!("two slots") };
        assert_eq!((a.k, a.v), (b.k, b.v));
        assert_eq!(b.dk - a.dk, 9 * 2 * 64 * 2);
        assert_eq!(packed.inputs.len(), 4);
        assert_eq!(packed.inputs[1].1, 9 * 2 * 64);
        assert_eq!(packed.results[2].1, 12 * 2 * 64);
        let end = packed.results.iter().map(|(start, elements, bytes)| start + elements * bytes).max();
        assert!(end.is_some_and(|e| e <= packed.arena_bytes && packed.arena_bytes < e + REGION));
        let forward = packed.forward();
        assert_eq!((forward.pass, forward.strides.dq, forward.strides.q), (Pass::Forward, 0, 256));
        assert_eq!(valid("test", &packed.call), Ok(()));
        assert_eq!(valid("test", &forward), Ok(()));
    }

    #[test]
    fn an_exclusive_mask_drops_a_key() {
        let packed = pack(Pass::Forward, Mask::CausalExclusive, &[(4, 5), (3, 1), (0, 7), (2, 3)]);
        assert_eq!(packed.call.mask, AttendMask::TopLeft);
        let shapes: Vec<_> = packed.call.slots.iter().map(|s| (s.q_rows, s.k_rows)).collect();
        assert_eq!(shapes, [(4, 4), (2, 2)]);
    }

    #[test]
    fn nothing_is_nothing() {
        let packed = pack(Pass::Backward, Mask::Full, &[(0, 7)]);
        assert!(packed.call.slots.is_empty());
        assert_eq!(packed.arena_bytes, 0);
    }
}
