//! Attention kernel calls of an emulated rank, in f64.

use skewbench_cuda::steps::{AttendCall, AttendMask, Element, Slot};
use skewbench_plan::Pass;

use super::arena::Arena;

/// One operand or result of a slot.
#[derive(Clone, Copy)]
struct Grid {
    at: u64,
    stride: u32,
    width: u32,
    element: Element,
}

impl Grid {
    fn place(&self, row: u32, head: u32) -> u64 {
        let element = u64::from(row) * u64::from(self.stride) + u64::from(head) * u64::from(self.width);
        self.at + element * self.element.bytes()
    }

    fn read(&self, arena: &Arena, row: u32, head: u32) -> Vec<f64> {
        let start = self.place(row, head);
        let values = (0..u64::from(self.width)).map(|i| arena.get(start + i * self.element.bytes(), self.element));
        let values: Vec<f64> = values.map(f64::from).collect();
        assert!(values.iter().all(|x| !x.is_nan()), "a call reads at {start} what has never been written");
        values
    }

    fn write(&self, arena: &mut Arena, row: u32, head: u32, values: &[f64]) {
        let start = self.place(row, head);
        for (i, value) in (0u64..).zip(values) {
            arena.set(start + i * self.element.bytes(), self.element, *value as f32);
        }
    }

    /// Bytes of every row.
    fn rows(&self, rows: u32, heads: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bytes = u64::from(heads) * u64::from(self.width) * self.element.bytes();
        (0..rows).map(move |row| (self.place(row, 0), self.place(row, 0) + bytes))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// Runs a call after checking that its operands are aligned and that no two of its results meet.
pub fn attend(arena: &mut Arena, call: &AttendCall) {
    let mut results: Vec<(u64, u64)> = Vec::new();
    let mut work = u64::MAX;
    assert!(!call.slots.is_empty() && call.kv_heads > 0 && call.q_heads.is_multiple_of(call.kv_heads));
    for slot in &call.slots {
        assert!(slot.q_rows > 0 && slot.k_rows > 0, "an empty slot");
        let pairs = match call.mask {
            AttendMask::Full => u64::from(slot.q_rows) * u64::from(slot.k_rows),
            _ => skewbench_plan::Mask::Causal.pairs(slot.q_rows, slot.k_rows),
        };
        assert!(call.mask != AttendMask::TopLeft || slot.q_rows == slot.k_rows, "a slot that is not square");
        assert!(pairs <= work || call.pass == Pass::Backward, "slots are not sorted by work");
        work = pairs;
        let grids = Grids::new(call, slot);
        let operands = [slot.q, slot.k, slot.v, slot.o, slot.d_o, slot.dq, slot.dk, slot.dv];
        assert!(!call.head_dim.is_multiple_of(8) || operands.iter().all(|at| at % 16 == 0), "{slot:?} is not aligned");
        assert_eq!(slot.lse % 4, 0);
        match call.pass {
            Pass::Forward => {
                results.extend(grids.o.rows(slot.q_rows, call.q_heads));
                results.extend(grids.lse.rows(slot.q_rows, call.q_heads));
            }
            Pass::Backward => {
                results.extend(grids.dq.rows(slot.q_rows, call.q_heads));
                results.extend(grids.dk.rows(slot.k_rows, call.kv_heads));
                results.extend(grids.dv.rows(slot.k_rows, call.kv_heads));
            }
        }
    }
    for pair in call.slots.windows(2).filter(|_| call.pass == Pass::Backward) {
        let (a, b) = (&pair[0], &pair[1]);
        let row = u64::from(call.q_heads * call.head_dim) * 2;
        let (rows, keys) = (u64::from(a.q_rows), u64::from(a.k_rows));
        let of_rows = [(a.q, b.q), (a.o, b.o), (a.d_o, b.d_o), (a.dq, b.dq)];
        assert!(of_rows.iter().all(|(a, b)| a + rows * row == *b), "rows of slots are not one block");
        assert_eq!(a.lse + rows * u64::from(call.q_heads) * 4, b.lse, "LSE of slots is not one block");
        let key = u64::from(call.kv_heads * call.head_dim) * 2;
        assert!([(a.dk, b.dk), (a.dv, b.dv)].iter().all(|(a, b)| a + keys * key == *b), "dK, dV are not one block");
    }
    results.sort_unstable();
    assert!(results.windows(2).all(|pair| pair[0].1 <= pair[1].0), "results of a call meet");
    for slot in &call.slots {
        run(arena, call, slot, &Grids::new(call, slot));
    }
}

struct Grids {
    q: Grid,
    k: Grid,
    v: Grid,
    o: Grid,
    lse: Grid,
    d_o: Grid,
    dq: Grid,
    dk: Grid,
    dv: Grid,
}

impl Grids {
    fn new(call: &AttendCall, slot: &Slot) -> Self {
        let s = call.strides;
        let grid = |at, stride| Grid { at, stride, width: call.head_dim, element: Element::Bf16 };
        Self {
            q: grid(slot.q, s.q),
            k: grid(slot.k, s.kv),
            v: grid(slot.v, s.kv),
            o: grid(slot.o, s.o),
            lse: Grid { at: slot.lse, stride: s.lse, width: 1, element: Element::F32 },
            d_o: grid(slot.d_o, s.d_o),
            dq: grid(slot.dq, s.dq),
            dk: grid(slot.dk, s.dkv),
            dv: grid(slot.dv, s.dkv),
        }
    }
}

fn run(arena: &mut Arena, call: &AttendCall, slot: &Slot, grids: &Grids) {
    let dim = call.head_dim as usize;
    let scale = 1.0 / f64::from(call.head_dim).sqrt();
    let group = call.q_heads / call.kv_heads;
    for kv in 0..call.kv_heads {
        let keys: Vec<Vec<f64>> = (0..slot.k_rows).map(|j| grids.k.read(arena, j, kv)).collect();
        let values: Vec<Vec<f64>> = (0..slot.k_rows).map(|j| grids.v.read(arena, j, kv)).collect();
        let (mut dk, mut dv) = (vec![vec![0.0; dim]; keys.len()], vec![vec![0.0; dim]; keys.len()]);
        for head in kv * group..(kv + 1) * group {
            for row in 0..slot.q_rows {
                let seen = match call.mask {
                    AttendMask::Full => slot.k_rows,
                    AttendMask::TopLeft => row + 1,
                    AttendMask::BottomRight => (slot.k_rows + row + 1).saturating_sub(slot.q_rows),
                } as usize;
                let q = grids.q.read(arena, row, head);
                let scores: Vec<f64> = keys[..seen].iter().map(|k| scale * dot(&q, k)).collect();
                if call.pass == Pass::Forward {
                    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                    let mut o = vec![0.0; dim];
                    let weights = scores.iter().map(|s| (s - most).exp() / sum);
                    weights.zip(&values).for_each(|(p, v)| add(&mut o, p, v));
                    grids.o.write(arena, row, head, &o);
                    grids.lse.write(arena, row, head, &[most + sum.ln()]);
                    continue;
                }
                let (o, d_o) = (grids.o.read(arena, row, head), grids.d_o.read(arena, row, head));
                let lse = grids.lse.read(arena, row, head)[0];
                let delta = dot(&o, &d_o);
                let mut dq = vec![0.0; dim];
                for (j, s) in scores.iter().enumerate() {
                    let p = (s - lse).exp();
                    let ds = scale * p * (dot(&d_o, &values[j]) - delta);
                    add(&mut dq, ds, &keys[j]);
                    add(&mut dk[j], ds, &q);
                    add(&mut dv[j], p, &d_o);
                }
                grids.dq.write(arena, row, head, &dq);
            }
        }
        if call.pass == Pass::Backward {
            for j in 0..slot.k_rows {
                grids.dk.write(arena, j, kv, &dk[j as usize]);
                grids.dv.write(arena, j, kv, &dv[j as usize]);
            }
        }
    }
}
