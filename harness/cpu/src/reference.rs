//! Dense causal attention from its definition, in f64.
//!
//! For every document, head and row i: p_ij = exp(q_i . k_j / sqrt(head_dim)) over j <= i, divided by their sum;
//! o_i = sum_j p_ij v_j; LSE_i is the log of the sum. With dO: dV_j = sum_i p_ij dO_i; dP_ij = dO_i . v_j;
//! dS_ij = p_ij (dP_ij - sum_j p_ij dP_ij); dQ_i = sum_j dS_ij k_j / sqrt(head_dim); dK_j = sum_i dS_ij q_i / sqrt(head_dim).
//! Query head h reads KV head h / (query heads / KV heads), whose gradients sum over those query heads.

use rayon::prelude::*;
use skewbench_plan::{AttentionShape, Tensor};

use crate::{Inputs, Table};

/// What attention leaves, rounded to f32 once.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Output.
    pub o: Table,
    /// Log-sum-exp of the scaled scores.
    pub lse: Table,
    /// Gradient of the queries.
    pub dq: Table,
    /// Gradient of the keys.
    pub dk: Table,
    /// Gradient of the values.
    pub dv: Table,
}

/// One document and KV head, row by row; those with query heads have the heads of its group one after another.
struct Group {
    seq: u32,
    start: u32,
    kv_head: u16,
    o: Vec<f64>,
    lse: Vec<f64>,
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
}

/// Attention and its gradients of all documents.
pub fn attention(inputs: &Inputs) -> Reference {
    let shape = inputs.shape;
    let mut jobs = Vec::new();
    for (seq, bounds) in (0u32..).zip(&inputs.sequences) {
        for document in bounds.windows(2) {
            jobs.extend((0..shape.kv_heads).map(|kv_head| (seq, document[0], document[1], kv_head)));
        }
    }
    let groups: Vec<Group> = jobs.into_par_iter().map(|job| group(inputs, job)).collect();
    let tokens = inputs.tokens();
    let table = |tensor| Table::poisoned(tensor, shape, &tokens);
    let mut all = Reference {
        o: table(Tensor::O),
        lse: table(Tensor::Lse),
        dq: table(Tensor::DQ),
        dk: table(Tensor::DK),
        dv: table(Tensor::DV),
    };
    let heads = shape.q_heads / shape.kv_heads.max(1);
    for group in &groups {
        let first = group.kv_head * heads;
        put(&mut all.o, group, &group.o, first, heads);
        put(&mut all.lse, group, &group.lse, first, heads);
        put(&mut all.dq, group, &group.dq, first, heads);
        put(&mut all.dk, group, &group.dk, group.kv_head, 1);
        put(&mut all.dv, group, &group.dv, group.kv_head, 1);
    }
    all
}

fn put(table: &mut Table, group: &Group, values: &[f64], first: u16, heads: u16) {
    let per_head = values.len() / usize::from(heads.max(1));
    let width = table.width();
    for (head, values) in (first..).zip(values.chunks(per_head.max(1))) {
        for (row, values) in (group.start..).zip(values.chunks(width)) {
            if let Some(to) = table.at_mut(group.seq, row, head) {
                to.iter_mut().zip(values).for_each(|(to, value)| *to = *value as f32);
            }
        }
    }
}

fn read(table: &Table, (seq, start, end): (u32, u32, u32), head: u16) -> Vec<f64> {
    (start..end).flat_map(|row| table.at(seq, row, head).unwrap_or_default()).map(|x| f64::from(*x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Four sums at once, which compilers can keep in vector registers.
    let mut sums = [0.0; 4];
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for i in 0..4 {
            sums[i] += a[i] * b[i];
        }
    }
    rest + sums.iter().sum::<f64>()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

fn group(inputs: &Inputs, (seq, start, end, kv_head): (u32, u32, u32, u16)) -> Group {
    let AttentionShape { q_heads, kv_heads, head_dim } = inputs.shape;
    let dim = usize::from(head_dim);
    let rows = (seq, start, end);
    let len = (end - start) as usize;
    let heads = q_heads / kv_heads;
    let scale = 1.0 / f64::from(head_dim).sqrt();
    let (k, v) = (read(&inputs.k, rows, kv_head), read(&inputs.v, rows, kv_head));
    let (mut dk, mut dv) = (vec![0.0; len * dim], vec![0.0; len * dim]);
    let (mut o, mut lse, mut dq) = (Vec::new(), Vec::new(), Vec::new());
    let (mut p, mut dp) = (vec![0.0; len], vec![0.0; len]);
    let at = |i: usize| i * dim..(i + 1) * dim;
    for head in kv_head * heads..(kv_head + 1) * heads {
        let (q, d_o) = (read(&inputs.q, rows, head), read(&inputs.d_o, rows, head));
        for i in 0..len {
            let (q, d_o) = (&q[at(i)], &d_o[at(i)]);
            for j in 0..=i {
                p[j] = dot(q, &k[at(j)]) * scale;
                dp[j] = dot(d_o, &v[at(j)]);
            }
            let most = p[..=i].iter().fold(f64::NEG_INFINITY, |most, s| most.max(*s));
            p[..=i].iter_mut().for_each(|s| *s = libm::exp(*s - most));
            let sum: f64 = p[..=i].iter().sum();
            p[..=i].iter_mut().for_each(|s| *s /= sum);
            let mean = dot(&p[..=i], &dp[..=i]);
            let (mut o_row, mut dq_row) = (vec![0.0; dim], vec![0.0; dim]);
            for j in 0..=i {
                let ds = p[j] * (dp[j] - mean) * scale;
                add(&mut o_row, p[j], &v[at(j)]);
                add(&mut dq_row, ds, &k[at(j)]);
                add(&mut dk[at(j)], ds, q);
                add(&mut dv[at(j)], p[j], d_o);
            }
            o.extend(o_row);
            lse.push(most + libm::log(sum));
            dq.extend(dq_row);
        }
    }
    Group { seq, start, kv_head, o, lse, dq, dk, dv }
}
