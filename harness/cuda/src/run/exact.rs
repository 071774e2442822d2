use std::ops::Range;

use rayon::prelude::*;
use skewbench_plan::Tensor;

use super::inputs::Generated;
use super::sample::{Held, RowSample};
use crate::CudaError;
use crate::steps::Region;

/// Keys or rows of one task.
const CHUNK: u32 = 2048;
/// Most rows that are read from a card at once.
const PIECE: u32 = 1 << 15;

/// O and LSE of a row and head, exact, and what dQ is made of.
pub(super) struct RowReference {
    pub o: Vec<f64>,
    pub lse: f64,
    pub dq: DqParts,
}

/// dQ of a row and head as a function of the mean of dP, which kernels take from the O that they read.
#[derive(Clone, Debug, Default)]
pub(super) struct DqParts {
    /// Sums of weights times dO V times K, and of weights times K, over the root of the head's elements.
    changed: Vec<f64>,
    keys: Vec<f64>,
}

impl DqParts {
    /// dQ where the mean of dP is `change`: dO times O.
    pub fn dq(&self, change: f64) -> Vec<f64> {
        self.changed.iter().zip(&self.keys).map(|(a, b)| a - change * b).collect()
    }
}

/// Sums over some keys, in weights of the largest score among them.
struct Partial {
    most: f64,
    sum: f64,
    o: Vec<f64>,
    /// Of weights times dO V times K, and of weights times K.
    changed: Vec<f64>,
    keys: Vec<f64>,
}

impl Partial {
    fn empty(width: usize) -> Self {
        let zeros = || vec![0.0; width];
        Self { most: f64::NEG_INFINITY, sum: 0.0, o: zeros(), changed: zeros(), keys: zeros() }
    }

    fn scaled(mut self, most: f64) -> Self {
        let factor = if self.sum == 0.0 { 0.0 } else { (self.most - most).exp() };
        let Self { sum, o, changed, keys, .. } = &mut self;
        std::iter::once(sum)
            .chain(o.iter_mut())
            .chain(changed.iter_mut())
            .chain(keys.iter_mut())
            .for_each(|x| *x *= factor);
        Self { most, ..self }
    }

    fn with(self, other: Self) -> Self {
        let most = self.most.max(other.most);
        let (mut all, other) = (self.scaled(most), other.scaled(most));
        all.sum += other.sum;
        add(&mut all.o, &other.o);
        add(&mut all.changed, &other.changed);
        add(&mut all.keys, &other.keys);
        all
    }
}

fn add(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn add_scaled(to: &mut [f64], factor: f64, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * f64::from(*from));
}

fn chunks(range: Range<u32>) -> impl IndexedParallelIterator<Item = Range<u32>> {
    let count = range.len().div_ceil(CHUNK as usize);
    (0..count as u32).into_par_iter().map(move |i| {
        let start = range.start + i * CHUNK;
        start..(start + CHUNK).min(range.end)
    })
}

/// O, LSE and the parts of dQ of a row in one pass over its keys.
pub(super) fn row_reference(inputs: &Generated, sample: &RowSample) -> RowReference {
    let shape = inputs.shape();
    let width = usize::from(shape.head_dim);
    let kv_head = sample.head / shape.q_heads.checked_div(shape.kv_heads).unwrap_or(1).max(1);
    let root = (width as f64).sqrt();
    let (mut q, mut d_o) = (vec![0.0; width], vec![0.0; width]);
    inputs.row(Tensor::Q, sample.seq, sample.row, sample.head, &mut q);
    inputs.row(Tensor::DO, sample.seq, sample.row, sample.head, &mut d_o);
    let of_chunk = |range: Range<u32>| {
        let (mut k, mut v) = (vec![0.0; width], vec![0.0; width]);
        let mut all = Partial::empty(width);
        for key in range {
            inputs.row(Tensor::K, sample.seq, key, kv_head, &mut k);
            inputs.row(Tensor::V, sample.seq, key, kv_head, &mut v);
            let score = dot(&q, &k) / root;
            if score > all.most {
                all = all.scaled(score);
            }
            let weight = (score - all.most).exp();
            let change = dot(&d_o, &v);
            all.sum += weight;
            add_scaled(&mut all.o, weight, &v);
            add_scaled(&mut all.changed, weight * change, &k);
            add_scaled(&mut all.keys, weight, &k);
        }
        all
    };
    let all = chunks(sample.keys.clone()).map(of_chunk).reduce(|| Partial::empty(width), Partial::with);
    let over = |values: &[f64], by: f64| values.iter().map(|x| x / by).collect::<Vec<_>>();
    RowReference {
        o: over(&all.o, all.sum),
        lse: all.most + all.sum.ln(),
        dq: DqParts { changed: over(&all.changed, all.sum * root), keys: over(&all.keys, all.sum * root) },
    }
}

/// The card's own LSE, and dO times its own O, of all rows of a document that see a key, for the query heads of a KV head.
pub(super) struct Statistics {
    pub seq: u32,
    pub rows: Range<u32>,
    pub head: u16,
    pub group: u16,
    pub lse: Vec<f32>,
    pub change: Vec<f64>,
}

impl Statistics {
    /// Reads them from the cards, as numbers that are none where a card has none.
    ///
    /// # Errors
    /// A card cannot be read.
    pub fn read(
        held: &mut impl Held,
        regions: &[(usize, Vec<Region>)],
        inputs: &Generated,
        seq: u32,
        rows: Range<u32>,
        head: u16,
    ) -> Result<Self, CudaError> {
        let shape = inputs.shape();
        let group = shape.q_heads.checked_div(shape.kv_heads).unwrap_or(1).max(1);
        let size = rows.len() * usize::from(group);
        let mut read = Self { seq, rows, head, group, lse: vec![f32::NAN; size], change: vec![f64::NAN; size] };
        for (rank, region) in regions.iter().flat_map(|(rank, all)| all.iter().map(move |region| (*rank, region))) {
            if matches!(region.tensor, Tensor::O | Tensor::Lse) {
                read.region(held, inputs, rank, region)?;
            }
        }
        Ok(read)
    }

    fn region(
        &mut self,
        held: &mut impl Held,
        inputs: &Generated,
        rank: usize,
        region: &Region,
    ) -> Result<(), CudaError> {
        let first = (self.head * self.group).max(region.heads.start);
        let last = ((self.head + 1) * self.group).min(region.heads.end);
        if first >= last {
            return Ok(());
        }
        let (heads, width) = (u32::from(last - first), region.width as usize);
        for run in region.runs.iter().filter(|run| run.seq == self.seq && run.rows.len > 0) {
            let stride = run.rows.stride.max(1);
            let index = |row: u32| row.saturating_sub(run.rows.start).div_ceil(stride).min(run.rows.len);
            let (mut next, end) = (index(self.rows.start), index(self.rows.end));
            while next < end {
                let count = PIECE.min(end - next);
                let at = (run.offset + next, count);
                let values = held.read_rows(rank, region, at, (u32::from(first - region.heads.start), heads))?;
                let start = run.rows.start + next * stride;
                let place = |row: u32, head: u16| {
                    (row - self.rows.start) as usize * usize::from(self.group)
                        + usize::from(head - self.head * self.group)
                };
                let one = |i: usize| (start + (i as u32 / heads) * stride, first + (i as u32 % heads) as u16);
                if region.tensor == Tensor::Lse {
                    values.iter().enumerate().for_each(|(i, lse)| {
                        let (row, head) = one(i);
                        self.lse[place(row, head)] = *lse;
                    });
                } else {
                    let change = |(i, o): (usize, &[f32])| {
                        let (row, head) = one(i);
                        let mut d_o = vec![0.0; o.len()];
                        inputs.row(Tensor::DO, self.seq, row, head, &mut d_o);
                        (place(row, head), dot(&d_o, o))
                    };
                    let all: Vec<_> = values.par_chunks_exact(width.max(1)).enumerate().map(change).collect();
                    all.into_iter().for_each(|(at, change)| self.change[at] = change);
                }
                next += count;
            }
        }
        Ok(())
    }
}

/// dK and dV of a key.
pub(super) fn key_reference(inputs: &Generated, read: &Statistics, key: u32) -> [Vec<f64>; 2] {
    let width = usize::from(inputs.shape().head_dim);
    let root = (width as f64).sqrt();
    let (mut k, mut v) = (vec![0.0; width], vec![0.0; width]);
    inputs.row(Tensor::K, read.seq, key, read.head, &mut k);
    inputs.row(Tensor::V, read.seq, key, read.head, &mut v);
    let of_chunk = |range: Range<u32>| {
        let (mut q, mut d_o) = (vec![0.0; width], vec![0.0; width]);
        let (mut dk, mut dv) = (vec![0.0; width], vec![0.0; width]);
        for (row, head) in range.flat_map(|row| (0..read.group).map(move |head| (row, head))) {
            let at = (row - read.rows.start) as usize * usize::from(read.group) + usize::from(head);
            inputs.row(Tensor::Q, read.seq, row, read.head * read.group + head, &mut q);
            inputs.row(Tensor::DO, read.seq, row, read.head * read.group + head, &mut d_o);
            let weight = (dot(&q, &k) / root - f64::from(read.lse[at])).exp();
            add_scaled(&mut dv, weight, &d_o);
            add_scaled(&mut dk, weight * (dot(&d_o, &v) - read.change[at]) / root, &q);
        }
        [dk, dv]
    };
    let sum = |[mut a, mut b]: [Vec<f64>; 2], [c, d]: [Vec<f64>; 2]| {
        add(&mut a, &c);
        add(&mut b, &d);
        [a, b]
    };
    chunks(key..read.rows.end).map(of_chunk).reduce(|| [vec![0.0; width], vec![0.0; width]], sum)
}
