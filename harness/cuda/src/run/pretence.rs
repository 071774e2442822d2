//! Kernels that compute in bf16 what a card would, on the host, right or wrong: what the verdict on sampled rows is worth.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use rayon::prelude::*;
use skewbench_cpu::Needle;
use skewbench_plan::{AttentionShape, HeadRange, Rows, Run, Tensor};

use super::exact::row_reference;
use super::inputs::Generated;
use super::sample::{Held, RowSample, SampleOptions, SampleReport, SampleWrong, Sampler, tolerances};
use crate::CudaError;
use crate::steps::{Element, Region};

/// What is wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The mask lets every row see one key more.
    SeesNext,
    /// The mask hides every row's own key.
    MissesOwn,
    /// This key is seen by nobody.
    Drops(u32),
    /// The part of this stretch of keys counts twice.
    Twice(usize),
    /// The part of this stretch of keys is lost.
    Loses(usize),
}

/// O, LSE and the mean of dP of a row and head.
#[derive(Clone)]
struct RowResult {
    o: Vec<f32>,
    lse: f32,
    change: f32,
}

/// One document, whose keys are computed in stretches that are merged, as a ring does.
struct Pretence {
    made: Generated,
    tokens: u32,
    /// Where stretches of keys (of rows, for gradients of keys) start.
    cuts: Vec<u32>,
    /// In the forward and in the backward.
    faults: [Fault; 2],
    rows: HashMap<(u32, u16), RowResult>,
}

fn round(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|x| round(*x)).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    lanes.iter().sum()
}

fn add(to: &mut [f32], factor: f32, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

impl Pretence {
    fn new(made: Generated, tokens: u32, cuts: Vec<u32>) -> Self {
        Self { made, tokens, cuts, faults: [Fault::None; 2], rows: HashMap::new() }
    }

    fn input(&self, tensor: Tensor, row: u32, head: u16) -> Vec<f32> {
        let mut values = vec![0.0; usize::from(self.made.shape().head_dim)];
        self.made.row(tensor, 0, row, head, &mut values);
        values
    }

    fn group(&self) -> u16 {
        self.made.shape().q_heads / self.made.shape().kv_heads
    }

    fn scale(&self) -> f32 {
        1.0 / f32::from(self.made.shape().head_dim).sqrt()
    }

    fn stretches(&self) -> impl Iterator<Item = (usize, Range<u32>)> + '_ {
        let ends = self.cuts.iter().skip(1).copied().chain([self.tokens]);
        self.cuts.iter().zip(ends).map(|(start, end)| *start..end).enumerate()
    }

    fn sees(&self, fault: Fault, row: u32, key: u32) -> bool {
        match fault {
            Fault::SeesNext => key <= row + 1,
            Fault::MissesOwn => key < row,
            Fault::Drops(lost) => key <= row && key != lost,
            _ => key <= row,
        }
    }

    fn times(fault: Fault, stretch: usize) -> usize {
        match fault {
            Fault::Twice(of) if of == stretch => 2,
            Fault::Loses(of) if of == stretch => 0,
            _ => 1,
        }
    }

    fn forward(&self, row: u32, head: u16) -> RowResult {
        let (q, d_o) = (self.input(Tensor::Q, row, head), self.input(Tensor::DO, row, head));
        let (kv, fault) = (head / self.group(), self.faults[0]);
        let (mut o, mut lse) = (vec![0.0; q.len()], f32::NEG_INFINITY);
        for (number, keys) in self.stretches() {
            let keys = keys.filter(|key| self.sees(fault, row, *key));
            let scores: Vec<(u32, f32)> =
                keys.map(|key| (key, dot(&q, &self.input(Tensor::K, key, kv)) * self.scale())).collect();
            let most = scores.iter().map(|(_, score)| *score).fold(f32::NEG_INFINITY, f32::max);
            if scores.is_empty() {
                continue;
            }
            let (mut part, mut sum) = (vec![0.0; q.len()], 0.0);
            for (key, score) in scores {
                let weight = (score - most).exp();
                sum += weight;
                add(&mut part, round(weight), &self.input(Tensor::V, key, kv));
            }
            let part: Vec<f32> = part.iter().map(|x| round(x / sum)).collect();
            let of_part = most + sum.ln();
            for _ in 0..Self::times(fault, number) {
                let most = lse.max(of_part);
                let (a, b) = ((lse - most).exp(), (of_part - most).exp());
                o.iter_mut().zip(&part).for_each(|(o, part)| *o = (a * *o + b * part) / (a + b));
                lse = most + (a + b).ln();
            }
        }
        let o = rounded(&o);
        RowResult { change: dot(&d_o, &o), o, lse }
    }

    /// P and dS of a row and key, as the second products read them.
    fn weights(&self, row: u32, head: u16, q: &[f32], d_o: &[f32], key: u32) -> Option<(f32, f32)> {
        let result = self.rows.get(&(row, head))?;
        let kv = head / self.group();
        let p = (dot(q, &self.input(Tensor::K, key, kv)) * self.scale() - result.lse).exp();
        let ds = p * (dot(d_o, &self.input(Tensor::V, key, kv)) - result.change) * self.scale();
        Some((round(p), round(ds)))
    }

    fn dq(&self, row: u32, head: u16) -> Vec<f32> {
        let (q, d_o) = (self.input(Tensor::Q, row, head), self.input(Tensor::DO, row, head));
        let mut dq = vec![0.0; q.len()];
        for (number, keys) in self.stretches() {
            let mut part = vec![0.0; q.len()];
            for key in keys.filter(|key| self.sees(self.faults[1], row, *key)) {
                if let Some((_, ds)) = self.weights(row, head, &q, &d_o, key) {
                    add(&mut part, ds, &self.input(Tensor::K, key, head / self.group()));
                }
            }
            add(&mut dq, Self::times(self.faults[1], number) as f32, &rounded(&part));
        }
        rounded(&dq)
    }

    fn dkv(&self, key: u32, kv: u16) -> [Vec<f32>; 2] {
        let width = usize::from(self.made.shape().head_dim);
        let mut sums = [vec![0.0; width], vec![0.0; width]];
        for (number, rows) in self.stretches() {
            let mut parts = [vec![0.0; width], vec![0.0; width]];
            for row in rows.filter(|row| self.sees(self.faults[1], *row, key)) {
                for head in kv * self.group()..(kv + 1) * self.group() {
                    let (q, d_o) = (self.input(Tensor::Q, row, head), self.input(Tensor::DO, row, head));
                    if let Some((p, ds)) = self.weights(row, head, &q, &d_o, key) {
                        add(&mut parts[0], ds, &q);
                        add(&mut parts[1], p, &d_o);
                    }
                }
            }
            let times = Self::times(self.faults[1], number) as f32;
            sums.iter_mut().zip(&parts).for_each(|(sum, part)| add(sum, times, &rounded(part)));
        }
        sums.map(|sum| rounded(&sum))
    }

    /// Computes rows that have not been.
    fn compute(&mut self, rows: Range<u32>, heads: Range<u16>) {
        let all = rows.flat_map(|row| heads.clone().map(move |head| (row, head)));
        let missing: Vec<(u32, u16)> = all.filter(|at| !self.rows.contains_key(at)).collect();
        let made: Vec<_> = missing.par_iter().map(|at| (*at, self.forward(at.0, at.1))).collect();
        self.rows.extend(made);
    }
}

impl Held for Pretence {
    fn results(&self, _: usize) -> Result<Vec<(usize, Vec<Region>)>, CudaError> {
        let shape = self.made.shape();
        let region = |tensor: Tensor| Region {
            offset: 0,
            tensor,
            element: Element::Bf16,
            heads: HeadRange::new(0, if tensor.is_kv() { shape.kv_heads } else { shape.q_heads }),
            width: if tensor == Tensor::Lse { 1 } else { u32::from(shape.head_dim) },
            runs: Arc::from([Run { seq: 0, rows: Rows::range(0, self.tokens), offset: 0, mixed: false }]),
        };
        let tensors = [Tensor::O, Tensor::Lse, Tensor::DQ, Tensor::DK, Tensor::DV];
        Ok(vec![(0, tensors.map(region).to_vec())])
    }

    fn read_rows(
        &mut self,
        _: usize,
        region: &Region,
        (row, rows): (u32, u32),
        (head, heads): (u32, u32),
    ) -> Result<Vec<f32>, CudaError> {
        let (rows, heads) = (row..row + rows, head as u16..(head + heads) as u16);
        if !region.tensor.is_kv() {
            self.compute(rows.clone(), heads.clone());
        }
        let places: Vec<(u32, u16)> = rows.flat_map(|row| heads.clone().map(move |head| (row, head))).collect();
        let of = |&(row, head): &(u32, u16)| match region.tensor {
            Tensor::O => self.rows[&(row, head)].o.clone(),
            Tensor::Lse => vec![self.rows[&(row, head)].lse],
            Tensor::DQ => self.dq(row, head),
            Tensor::DK => self.dkv(row, head)[0].clone(),
            _ => self.dkv(row, head)[1].clone(),
        };
        Ok(places.par_iter().map(of).collect::<Vec<_>>().concat())
    }
}

const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 128 };

/// A document of two stretches: needles on both sides of their bound, as those of plans are.
fn pretence(tokens: u32, cuts: &[u32]) -> (Pretence, Sampler) {
    let needle = |row, key| Needle { seq: 0, row, key };
    let bounds = cuts.iter().copied().filter(|cut| *cut > 0);
    let mut needles: Vec<Needle> = bounds
        .flat_map(|cut| [needle(cut - 1, cut), needle(cut, cut - 1), needle(cut, cut + 1), needle(cut - 2, cut - 2)])
        .collect();
    needles.push(needle(tokens - 1, 0));
    let sequences = [vec![0, tokens]];
    let made = Generated::new(11, 0, SHAPE).with_needles(&sequences, &needles);
    let options = SampleOptions { rows: 48, keys: 48, ..SampleOptions::default() };
    let sampler = Sampler::new(0, made.clone(), &sequences, &needles, options);
    (Pretence::new(made, tokens, cuts.to_vec()), sampler)
}

fn sampled((mut held, mut sampler): (Pretence, Sampler), faults: [Fault; 2]) -> SampleReport {
    held.faults = faults;
    sampler.forward_of(&mut held).expect("read");
    sampler.backward_of(&mut held).expect("read");
    sampler.report()
}

/// By how much the worst tensor leaves its tolerances.
fn excess(report: &SampleReport) -> f64 {
    let of = |one: &super::TensorSample| {
        let (all, row) = tolerances(one.tensor);
        (one.error / all).max(one.worst / row)
    };
    report.tensors.iter().map(of).fold(0.0, f64::max)
}

/// A ring's five parts of a document.
const CUTS: [u32; 5] = [0, 60, 81, 160, 250];

#[test]
fn right_kernels_are_far_within_the_tolerances() {
    for (tokens, cuts) in [(300, &[0][..]), (300, &CUTS)] {
        let report = sampled(pretence(tokens, cuts), [Fault::None; 2]);
        report.verdict().expect("right");
        // Rounding leaves 2e-3 to 3.5e-3 wherever the row is, and 1.3e-7 of LSE.
        assert!(excess(&report) < 0.6, "{report:?}");
    }
}

/// Why references take the card's O: with their own, a right kernel is wrong where a needle has most of a row.
#[test]
fn the_rounding_of_o_is_most_of_the_error_at_needles() {
    let (mut held, _) = pretence(300, &CUTS);
    let mut worst = [0.0f64; 2];
    for row in [60, 81, 160, 250, 299] {
        for head in 0..SHAPE.q_heads {
            held.compute(row..row + 1, head..head + 1);
            let sample = RowSample { seq: 0, row, head, keys: 0..row + 1, dq: Vec::new() };
            let (ours, reference) = (held.dq(row, head), row_reference(&held.made, &sample));
            let d_o = held.input(Tensor::DO, row, head);
            let exact: Vec<f32> = reference.o.iter().map(|x| *x as f32).collect();
            for (o, worst) in [&held.rows[&(row, head)].o, &exact].into_iter().zip(&mut worst) {
                let expected = reference.dq.dq(super::exact::dot(&d_o, o));
                let squares = |values: Vec<f64>| values.iter().map(|x| x * x).sum::<f64>();
                let difference = ours.iter().zip(&expected).map(|(a, b)| f64::from(*a) - b).collect();
                *worst = worst.max((squares(difference) / squares(expected)).sqrt());
            }
        }
    }
    assert!(worst[0] < 6e-3 && worst[1] > 3.0 * worst[0], "{worst:?}");
}

#[test]
fn wrong_kernels_are_far_beyond_the_tolerances() {
    let all = [
        Fault::SeesNext,
        Fault::MissesOwn,
        // A needle of the row after it.
        Fault::Drops(80),
        Fault::Twice(2),
        Fault::Loses(1),
    ];
    for fault in all {
        for faults in [[fault, Fault::None], [Fault::None, fault], [fault, fault]] {
            let report = sampled(pretence(300, &CUTS), faults);
            assert!(matches!(report.verdict(), Err(SampleWrong::Wrong(_))), "{faults:?}: {report:?}");
            assert!(excess(&report) > 5.0, "{faults:?}: {} of {report:?}", excess(&report));
        }
    }
}

#[test]
fn what_was_not_compared_is_no_proof() {
    let (mut held, mut sampler) = pretence(300, &[0]);
    sampler.forward_of(&mut held).expect("read");
    let half = sampler.report().verdict();
    assert!(matches!(half, Err(SampleWrong::Partial(ref one)) if one.tensor == "dQ" && one.rows == 0), "{half:?}");
    sampler.backward_of(&mut held).expect("read");
    let mut report = sampler.report();
    report.verdict().expect("right");
    let last = report.tensors.last_mut().expect("dV");
    last.rows -= 1;
    assert!(matches!(report.verdict(), Err(SampleWrong::Partial(_))));
}

/// A rank that holds nothing of what it should.
struct Silent(Pretence);

impl Held for Silent {
    fn results(&self, domain: usize) -> Result<Vec<(usize, Vec<Region>)>, CudaError> {
        let mut all = self.0.results(domain)?;
        for region in all.iter_mut().flat_map(|(_, regions)| regions) {
            region.runs = Arc::from([Run { seq: 0, rows: Rows::range(0, 100), offset: 0, mixed: false }]);
        }
        Ok(all)
    }

    fn read_rows(
        &mut self,
        rank: usize,
        region: &Region,
        rows: (u32, u32),
        heads: (u32, u32),
    ) -> Result<Vec<f32>, CudaError> {
        self.0.read_rows(rank, region, rows, heads)
    }
}

#[test]
fn rows_that_no_rank_holds_are_wrong() {
    let (held, mut sampler) = pretence(300, &[0]);
    let mut held = Silent(held);
    sampler.forward_of(&mut held).expect("read");
    sampler.backward_of(&mut held).expect("read");
    let wrong = sampler.report().verdict().expect_err("nobody holds the last rows");
    assert!(matches!(wrong, SampleWrong::Wrong(ref one) if one.error.is_infinite()), "{wrong:?}");
}
