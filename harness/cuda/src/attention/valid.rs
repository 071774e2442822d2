use skewbench_plan::Pass;

use crate::CudaError;
use crate::steps::{AttendCall, AttendMask, Slot, Strides};

/// Most rows or keys of a slot: kernels count them, and sums of both, in 32 bits.
const LONGEST: u32 = 1 << 30;

/// An error where a call breaks what [`AttendCall`] promises: kernels would read or write elsewhere.
pub(super) fn valid(kernel: &'static str, call: &AttendCall) -> Result<(), CudaError> {
    match fault(call) {
        None => Ok(()),
        Some(why) => Err(CudaError::Unsupported {
            kernel,
            what: format!(
                "{:?} {:?} of {}:{} heads of {}",
                call.pass, call.mask, call.q_heads, call.kv_heads, call.head_dim
            ),
            why,
        }),
    }
}

fn fault(call: &AttendCall) -> Option<String> {
    let (q, kv) = (u64::from(call.q_heads), u64::from(call.kv_heads));
    let d = u64::from(call.head_dim);
    if q == 0 || kv == 0 || d == 0 || !q.is_multiple_of(kv) {
        return Some("every KV head must serve the same number of query heads".to_owned());
    }
    let s = call.strides;
    let mut rows = vec![("q", s.q, q * d), ("k, v", s.kv, kv * d), ("o", s.o, q * d), ("lse", s.lse, q)];
    if call.pass == Pass::Backward {
        rows.extend([("d_o", s.d_o, q * d), ("dq", s.dq, q * d), ("dk, dv", s.dkv, kv * d)]);
    }
    // What heads are aligned to, rows must be, too: kernels read several elements at once.
    let step = 1 << d.trailing_zeros().min(3);
    for (name, stride, width) in rows {
        if name != "lse" && !stride.is_multiple_of(step) {
            return Some(format!("rows of {name} are {stride} elements apart, which is no multiple of {step}"));
        }
        if u64::from(stride) < width || stride > LONGEST {
            return Some(format!("rows of {name} are {width} elements wide and {stride} apart"));
        }
    }
    let of_slots =
        call.slots.iter().enumerate().find_map(|(i, slot)| slot_fault(call, slot).map(|why| format!("slot {i} {why}")));
    of_slots.or_else(|| if call.pass == Pass::Backward { gap(call, [q * d, kv * d], q) } else { None })
}

/// Where a backward has gaps that it must not have, see [`AttendCall`].
fn gap(call: &AttendCall, [rows, keys]: [u64; 2], heads: u64) -> Option<String> {
    type Start = fn(&Slot) -> u64;
    let Strides { q, o, lse, d_o, dq, dkv, .. } = call.strides;
    let dq: (&str, u32, u64, u64, Start) = ("dq", dq, rows, 2, |s| s.dq);
    let of_rows: [(&str, u32, u64, u64, Start); 4] = [
        ("q", q, rows, 2, |s| s.q),
        ("o", o, rows, 2, |s| s.o),
        ("lse", lse, heads, 4, |s| s.lse),
        ("d_o", d_o, rows, 2, |s| s.d_o),
    ];
    let of_keys: [(&str, u32, u64, u64, Start); 2] = [("dk", dkv, keys, 2, |s| s.dk), ("dv", dkv, keys, 2, |s| s.dv)];
    let several = call.slots.len() > 1;
    let of_rows = of_rows.into_iter().filter(|_| several).chain([dq]).map(|t| (t, false));
    let mut all = of_rows.chain(of_keys.into_iter().filter(|_| several).map(|t| (t, true)));
    all.find_map(|((name, stride, width, element, start), keys)| {
        if u64::from(stride) != width {
            return Some(format!("rows of {name} are {width} elements wide and {stride} apart: it has no gaps"));
        }
        let mut at = start(call.slots.first()?);
        if name != "lse" && !at.is_multiple_of(16) {
            return Some(format!("{name} starts at an address that is no multiple of 16"));
        }
        for (i, slot) in call.slots.iter().enumerate() {
            if start(slot) != at {
                return Some(format!(
                    "{name} of slot {i} starts at {}, not at {at}: slots follow each other",
                    start(slot)
                ));
            }
            at = at.saturating_add(u64::from(if keys { slot.k_rows } else { slot.q_rows }) * width * element);
        }
        None
    })
}

fn slot_fault(call: &AttendCall, slot: &Slot) -> Option<String> {
    let Slot { q_rows, k_rows, .. } = *slot;
    if q_rows == 0 || k_rows == 0 || q_rows > LONGEST || k_rows > LONGEST {
        return Some(format!("has {q_rows} rows and {k_rows} keys, each from 1 to {LONGEST}"));
    }
    if call.mask == AttendMask::TopLeft && q_rows != k_rows {
        return Some(format!("has {q_rows} rows and {k_rows} keys under a mask for squares"));
    }
    let mut starts = vec![slot.q, slot.k, slot.v, slot.o];
    if call.pass == Pass::Backward {
        starts.extend([slot.d_o, slot.dk, slot.dv]);
    }
    let aligned = starts.iter().all(|s| s.is_multiple_of(16)) && slot.lse.is_multiple_of(4);
    (!aligned).then(|| "starts at an address that is no multiple of 16 (LSE: 4)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> AttendCall {
        AttendCall {
            pass: Pass::Forward,
            mask: AttendMask::TopLeft,
            q_heads: 4,
            kv_heads: 2,
            head_dim: 64,
            strides: Strides { q: 256, kv: 128, o: 256, lse: 4, ..Strides::default() },
            slots: vec![Slot { q_rows: 3, k_rows: 3, lse: 4, ..Slot::default() }],
        }
    }

    fn why(change: impl FnOnce(&mut AttendCall)) -> String {
        let mut call = call();
        change(&mut call);
        valid("test", &call).expect_err("it is not valid").to_string()
    }

    #[test]
    fn a_call_that_keeps_its_promises_is_valid() {
        assert_eq!(valid("test", &call()), Ok(()));
    }

    #[test]
    fn what_a_kernel_would_trip_over_is_refused() {
        assert!(why(|c| c.kv_heads = 0).contains("every KV head"));
        assert!(why(|c| c.kv_heads = 3).contains("every KV head"));
        assert!(why(|c| c.strides.o = 248).contains("rows of o are 256 elements wide and 248 apart"));
        assert!(why(|c| c.strides.kv = 130).contains("no multiple of 8"));
        assert!(why(|c| c.pass = Pass::Backward).contains("rows of d_o"));
        assert!(why(|c| c.slots[0].k_rows = 4).contains("slot 0 has 3 rows and 4 keys under a mask for squares"));
        assert!(why(|c| c.slots[0].q_rows = 0).contains("has 0 rows"));
        assert!(why(|c| c.slots[0].v = 8).contains("multiple of 16"));
    }

    #[test]
    fn slots_of_a_backward_follow_each_other() {
        let mut backward = call();
        backward.pass = Pass::Backward;
        backward.strides = Strides { d_o: 256, dq: 256, dkv: 128, ..backward.strides };
        let first =
            Slot { q: 1 << 20, o: 2 << 20, d_o: 3 << 20, dq: 32, dk: 4 << 20, dv: 5 << 20, ..backward.slots[0] };
        let behind = |at: u64| at + 3 * 512;
        let second = Slot {
            q_rows: 7,
            k_rows: 7,
            q: behind(first.q),
            o: behind(first.o),
            d_o: behind(first.d_o),
            dq: behind(first.dq),
            lse: first.lse + 3 * 4 * 4,
            dk: first.dk + 3 * 256,
            dv: first.dv + 3 * 256,
            ..first
        };
        backward.slots = vec![first, second];
        assert_eq!(valid("test", &backward), Ok(()));
        let why = |change: fn(&mut AttendCall)| {
            let mut call = backward.clone();
            change(&mut call);
            valid("test", &call).expect_err("it is not valid").to_string()
        };
        assert!(why(|c| c.strides.dq = 512).contains("rows of dq are 256 elements wide and 512 apart"));
        assert!(why(|c| c.slots[1].dq += 512).contains("dq of slot 1 starts at 2080, not at 1568"));
        assert!(why(|c| c.slots[1].q += 512).contains("q of slot 1"));
        assert!(why(|c| c.slots[1].lse += 4).contains("lse of slot 1"));
        assert!(why(|c| c.slots[1].dv += 256).contains("dv of slot 1"));
        assert!(why(|c| c.slots.swap(0, 1)).contains("q of slot 1"));
        assert!(why(|c| c.slots[0].dq = 8).contains("multiple of 16"));
        assert!(why(|c| c.slots[0].dq = u64::MAX - 15).contains("dq of slot 1"));
        // Keys lie anywhere, and one slot alone, too.
        backward.slots[1].k += 4096;
        backward.strides.kv = 256;
        assert_eq!(valid("test", &backward), Ok(()));
        backward.slots.truncate(1);
        (backward.strides.q, backward.strides.dkv) = (1024, 512);
        assert_eq!(valid("test", &backward), Ok(()));
    }
}
