//! The same calls in f64 on the host, and how far results are from them.

use half::bf16;
use skewbench_cuda::steps::{AttendCall, AttendMask, Slot};
use skewbench_plan::Pass;

/// Results of one slot and query head: `[row][d]`.
struct Head {
    slot: usize,
    head: usize,
    o: Vec<f64>,
    lse: Vec<f64>,
    dq: Vec<f64>,
}

/// Results of a call.
pub struct Reference {
    heads: Vec<Head>,
    /// Slot, KV head, dK, dV.
    keys: Vec<(usize, usize, Vec<f64>, Vec<f64>)>,
}

fn read(bytes: &[u8], start: u64, stride: u32, head: usize, d: usize, rows: u32) -> Vec<f64> {
    let mut values = Vec::with_capacity(rows as usize * d);
    for row in 0..rows as usize {
        let at = start as usize + (row * stride as usize + head * d) * 2;
        values.extend(
            (0..d).map(|x| f64::from(bf16::from_le_bytes([bytes[at + 2 * x], bytes[at + 2 * x + 1]]).to_f32())),
        );
    }
    values
}

fn read_f32(bytes: &[u8], start: u64, stride: u32, head: usize, rows: u32) -> Vec<f64> {
    let at = |row: usize| start as usize + (row * stride as usize + head) * 4;
    (0..rows as usize)
        .map(|row| f64::from(f32::from_le_bytes(bytes[at(row)..at(row) + 4].try_into().expect("four bytes"))))
        .collect()
}

/// In eight sums, which the compiler keeps in vectors.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks(8), b.chunks(8));
    for (a, b) in a.zip(b) {
        for ((s, a), b) in sums.iter_mut().zip(a).zip(b) {
            *s += a * b;
        }
    }
    sums.iter().sum()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    for (t, f) in to.iter_mut().zip(from) {
        *t += factor * f;
    }
}

/// Computes a backward call, with its forward, from the operands in an arena. One thread for every slot and query head.
pub fn reference(call: &AttendCall, bytes: &[u8]) -> Reference {
    let mut reference = Reference { heads: Vec::new(), keys: Vec::new() };
    let group = (call.q_heads / call.kv_heads) as usize;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for slot in 0..call.slots.len() {
            for head in 0..call.q_heads as usize {
                threads.push((slot, head, scope.spawn(move || head_of(call, bytes, slot, head))));
            }
        }
        for (slot, head, thread) in threads {
            let (result, dk, dv) = thread.join().expect("the reference does not fail");
            reference.heads.push(result);
            match reference.keys.last_mut() {
                Some((_, _, dk_sum, dv_sum)) if !head.is_multiple_of(group) => {
                    add(dk_sum, 1.0, &dk);
                    add(dv_sum, 1.0, &dv);
                }
                _ => reference.keys.push((slot, head / group, dk, dv)),
            }
        }
    });
    reference
}

/// Results of one slot and query head, and what it adds to dK and dV.
fn head_of(call: &AttendCall, bytes: &[u8], index: usize, head: usize) -> (Head, Vec<f64>, Vec<f64>) {
    let (slot, s, d) = (&call.slots[index], &call.strides, call.head_dim as usize);
    let kv_head = head / (call.q_heads / call.kv_heads) as usize;
    let (rows, keys) = (slot.q_rows as usize, slot.k_rows as usize);
    let q = read(bytes, slot.q, s.q, head, d, slot.q_rows);
    let k = read(bytes, slot.k, s.kv, kv_head, d, slot.k_rows);
    let v = read(bytes, slot.v, s.kv, kv_head, d, slot.k_rows);
    let d_o = read(bytes, slot.d_o, s.d_o, head, d, slot.q_rows);
    let scale = (d as f64).sqrt().recip();
    let (mut dk, mut dv) = (vec![0.0; keys * d], vec![0.0; keys * d]);
    let mut result =
        Head { slot: index, head, o: vec![0.0; rows * d], lse: vec![f64::NEG_INFINITY; rows], dq: vec![0.0; rows * d] };
    for row in 0..rows {
        let at = row * d..(row + 1) * d;
        let seen = match call.mask {
            AttendMask::Full => keys,
            AttendMask::TopLeft => (row + 1).min(keys),
            AttendMask::BottomRight => (row + 1 + keys).saturating_sub(rows).min(keys),
        };
        if seen == 0 {
            continue;
        }
        let scores: Vec<f64> = (0..seen).map(|key| dot(&q[at.clone()], &k[key * d..(key + 1) * d]) * scale).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = top + scores.iter().map(|x| (x - top).exp()).sum::<f64>().ln();
        result.lse[row] = lse;
        let p: Vec<f64> = scores.iter().map(|x| (x - lse).exp()).collect();
        for (key, p) in p.iter().enumerate() {
            add(&mut result.o[at.clone()], *p, &v[key * d..(key + 1) * d]);
        }
        let delta = dot(&d_o[at.clone()], &result.o[at.clone()]);
        for (key, p) in p.iter().enumerate() {
            let of_key = key * d..(key + 1) * d;
            let ds = p * (dot(&d_o[at.clone()], &v[of_key.clone()]) - delta) * scale;
            add(&mut dv[of_key.clone()], *p, &d_o[at.clone()]);
            add(&mut dk[of_key.clone()], ds, &q[at.clone()]);
            add(&mut result.dq[at.clone()], ds, &k[of_key]);
        }
    }
    (result, dk, dv)
}

/// How far the results of a case are from the reference: relative Frobenius errors of O, LSE, dQ, dK, dV; infinite where one is
/// not a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    pub of: [f64; 5],
    /// Bytes that changed though no result lies there.
    pub stray: usize,
}

/// Names of the results.
pub const RESULTS: [&str; 5] = ["o", "lse", "dq", "dk", "dv"];
/// Largest errors that are those of bf16 (measured kernels: 2 to 3e-3) and of f32.
const LARGEST: [f64; 5] = [6e-3, 1e-5, 6e-3, 6e-3, 6e-3];

impl Errors {
    pub fn passed(&self) -> bool {
        self.stray == 0 && self.of.iter().zip(LARGEST).all(|(e, most)| *e <= most)
    }
}

/// Compares an arena after both passes with the reference and with the arena before.
pub fn errors(call: &AttendCall, reference: &Reference, before: &[u8], after: &[u8]) -> Errors {
    let (s, d) = (&call.strides, call.head_dim as usize);
    let mut sums = [(0.0, 0.0); 5];
    let mut meet = |which: usize, ours: &[f64], exact: &[f64]| {
        for (ours, exact) in ours.iter().zip(exact) {
            let off = if ours == exact { 0.0 } else { ours - exact };
            sums[which].0 += if off.is_nan() { f64::INFINITY } else { off * off };
            // A floor, since gradients of a lone key are zero but for rounding.
            sums[which].1 += if exact.is_finite() { (exact * exact).max(1e-6) } else { 0.0 };
        }
    };
    for head in &reference.heads {
        let slot = &call.slots[head.slot];
        meet(0, &read(after, slot.o, s.o, head.head, d, slot.q_rows), &head.o);
        meet(1, &read_f32(after, slot.lse, s.lse, head.head, slot.q_rows), &head.lse);
        meet(2, &read(after, slot.dq, s.dq, head.head, d, slot.q_rows), &head.dq);
    }
    for (slot, head, dk, dv) in &reference.keys {
        let slot = &call.slots[*slot];
        meet(3, &read(after, slot.dk, s.dkv, *head, d, slot.k_rows), dk);
        meet(4, &read(after, slot.dv, s.dkv, *head, d, slot.k_rows), dv);
    }
    let of = sums.map(|(off, all): (f64, f64)| if off == 0.0 { 0.0 } else { (off / all.max(1e-6)).sqrt() });
    Errors { of, stray: stray(call, before, after) }
}

/// Bytes that differ outside of the results.
fn stray(call: &AttendCall, before: &[u8], after: &[u8]) -> usize {
    assert_eq!(call.pass, Pass::Backward);
    let mut ours = vec![false; before.len()];
    let (s, d) = (&call.strides, call.head_dim);
    let mut mark = |start: u64, rows: u32, stride: u32, width: u32, element: usize| {
        for row in 0..rows as usize {
            let at = start as usize + row * stride as usize * element;
            ours[at..at + width as usize * element].fill(true);
        }
    };
    for slot in &call.slots {
        let Slot { q_rows, k_rows, .. } = *slot;
        mark(slot.o, q_rows, s.o, call.q_heads * d, 2);
        mark(slot.lse, q_rows, s.lse, call.q_heads, 4);
        mark(slot.dq, q_rows, s.dq, call.q_heads * d, 2);
        mark(slot.dk, k_rows, s.dkv, call.kv_heads * d, 2);
        mark(slot.dv, k_rows, s.dkv, call.kv_heads * d, 2);
    }
    before.iter().zip(after).zip(&ours).filter(|((a, b), ours)| !**ours && a != b).count()
}
