use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;
use serde::Serialize;
use skewbench_cpu::Needle;
use skewbench_plan::Tensor;

use super::exact::{DqParts, RowReference, Statistics, dot, key_reference, row_reference};
use super::inputs::{Generated, needle_heads, value};
use super::session::Session;
use super::tables::indices;
use crate::CudaError;
use crate::steps::Region;

/// Largest relative error of a tensor of right results in bf16: root of sums of squares over all sampled rows, and of a
/// single one. References follow what kernels read, so what is left is the rounding of operands and results to 8 bits: of O
/// 1.3e-3 from one call and 2.3e-3 merged from parts in bf16, of gradients 2e-3 to 3e-3, and 3.4e-3 in the worst row,
/// needles or not. Twice to four times that is right; a mask that is off by one key, a needle that is dropped and a part
/// that is lost or counts twice leave 0.05 to 1.
pub const SAMPLE_TOLERANCE: (f64, f64) = (6e-3, 1.5e-2);
/// The same of LSE, which is f32 everywhere: right kernels leave 1e-7, 1.3e-7 in the worst row on the host.
pub const SAMPLE_LSE_TOLERANCE: (f64, f64) = (2e-6, 1e-5);

/// Largest relative errors of a tensor: of all sampled rows together, and of any one.
pub fn tolerances(tensor: &str) -> (f64, f64) {
    if tensor == Tensor::Lse.name() { SAMPLE_LSE_TOLERANCE } else { SAMPLE_TOLERANCE }
}
/// Which rows are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// Rows and query heads of O, LSE and dQ.
    pub rows: usize,
    /// Keys and KV heads of dK and dV.
    pub keys: usize,
    /// Most (query, key) pairs of rows together, and of keys together; a pair takes about half a microsecond of one core.
    pub most_pairs: u64,
    /// Seed of the choice.
    pub seed: u64,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self { rows: 64, keys: 32, most_pairs: 32 << 20, seed: 1 }
    }
}

/// What holds the results of a wave: cards, or a test's pretence of them.
pub(super) trait Held {
    /// Ranks of a domain with their results.
    fn results(&self, domain: usize) -> Result<Vec<(usize, Vec<Region>)>, CudaError>;

    /// Some heads of neighbouring rows of a region, numbers from its first row and head: `[rows, heads, width]`.
    fn read_rows(
        &mut self,
        rank: usize,
        region: &Region,
        rows: (u32, u32),
        heads: (u32, u32),
    ) -> Result<Vec<f32>, CudaError>;
}

/// Verifies sampled rows of a domain in f64: O and LSE from the inputs alone, gradients from the inputs and what kernels of
/// the backward read beside them, which has been verified: the cards' own O, and for dK and dV their LSE.
pub struct Sampler {
    domain: usize,
    inputs: Generated,
    sequences: Vec<Vec<u32>>,
    rows: Vec<RowSample>,
    keys: Vec<KeySample>,
    found: BTreeMap<Tensor, Vec<Compared>>,
}

/// A row and query head, and the keys that it sees.
pub(super) struct RowSample {
    pub seq: u32,
    pub row: u32,
    pub head: u16,
    pub keys: Range<u32>,
    pub dq: Vec<f64>,
}

/// A sequence, a row of it, and where its head is not any: the first that may be chosen, and the distance to the next.
type Place = (u32, u32, Option<(u16, u16)>);

struct KeySample {
    seq: u32,
    key: u32,
    head: u16,
    end: u32,
    gradients: [Vec<f64>; 2],
}

struct Compared {
    at: (u32, u32, u16),
    difference: f64,
    norm: f64,
}

/// What sampled rows show.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleReport {
    /// O, LSE, dQ, dK, dV, as far as they were sampled.
    pub tensors: Vec<TensorSample>,
}

/// What sampled rows of one tensor show.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorSample {
    /// The tensor.
    pub tensor: &'static str,
    /// Rows and heads that were compared.
    pub rows: usize,
    /// Rows and heads that were chosen.
    pub wanted: usize,
    /// |a - b| / |b| over all of them, a what the cards leave, b in f64; infinite where a is not a number.
    pub error: f64,
    /// The same of the worst row and head; rows much shorter than the others count as half of their mean length,
    /// since a row at which a needle makes dS nearly cancel keeps the rounding of a row that is not.
    pub worst: f64,
    /// Sequence, row and head of the worst.
    pub at: Option<(u32, u32, u16)>,
}

/// Why sampled rows are no proof.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleWrong {
    /// They are wrong.
    #[error("{} of sampled rows has relative error {:.1e}, and {:.1e} at sequence {}, row {}, head {}", .0.tensor, .0.error,
        .0.worst, .0.at.unwrap_or_default().0, .0.at.unwrap_or_default().1, .0.at.unwrap_or_default().2)]
    Wrong(TensorSample),
    /// Some were not compared.
    #[error("{} of {} of {} sampled rows was compared; nothing is known of the others", .0.tensor, .0.rows, .0.wanted)]
    Partial(TensorSample),
}

impl SampleReport {
    /// Whether all rows that were chosen were compared, all tensors are within their tolerances together and all rows alone
    /// ([`tolerances`]).
    ///
    /// # Errors
    /// The first tensor that is not.
    pub fn verdict(&self) -> Result<(), SampleWrong> {
        for one in &self.tensors {
            let (all, row) = tolerances(one.tensor);
            if one.rows < one.wanted {
                return Err(SampleWrong::Partial(one.clone()));
            }
            // What is not a number is not within.
            if !(one.error <= all && one.worst <= row) {
                return Err(SampleWrong::Wrong(one.clone()));
            }
        }
        Ok(())
    }
}

impl Sampler {
    /// Chooses rows of a domain of the loaded wave: half of them at needles and at document bounds, the others anywhere.
    /// `sequences` are the document bounds of every packed sequence.
    pub fn new(
        domain: usize,
        inputs: Generated,
        sequences: &[Vec<u32>],
        needles: &[Needle],
        options: SampleOptions,
    ) -> Self {
        let shape = inputs.shape();
        let group = shape.q_heads.checked_div(shape.kv_heads).unwrap_or(1).max(1);
        let mut draw = Draw { seed: options.seed, next: 0 };
        let wanted =
            |special: Vec<Place>, most: usize, heads: u16, cost: &dyn Fn(u32, &Range<u32>) -> u64, draw: &mut Draw| {
                let mut taken = BTreeSet::new();
                let (mut chosen, mut pairs) = (Vec::new(), 0);
                let step = special.len().div_ceil((most / 2).max(1)).max(1);
                let fixed = special.into_iter().step_by(step).map(Some);
                for place in fixed.chain(std::iter::repeat_n(None, 4 * most)) {
                    let Some((seq, row, of)) = place.or_else(|| draw.row(sequences)) else { break };
                    let Some(document) = document(sequences, seq, row) else { continue };
                    // A needle is that of one query head of every group.
                    let (first, step) = of.unwrap_or((0, 1));
                    let choices = heads.saturating_sub(first).div_ceil(step.max(1));
                    let head = first + step * draw.below(u64::from(choices)) as u16;
                    let more = cost(row, &document);
                    if chosen.len() < most && pairs + more <= options.most_pairs && taken.insert((seq, row, head)) {
                        pairs += more;
                        chosen.push((seq, row, head, document));
                    }
                }
                chosen
            };
        let bounds = || {
            let of = |(seq, bounds): (u32, &Vec<u32>)| {
                let ends = |b: &[u32]| [(seq, b[0], None), (seq, b[1].saturating_sub(1), None)];
                bounds.windows(2).flat_map(ends).collect::<Vec<_>>()
            };
            (0u32..).zip(sequences).flat_map(of)
        };
        let turns = needle_heads(group).zip(needles);
        let rows = turns.map(|(head, needle)| (needle.seq, needle.row, Some((head, group)))).chain(bounds()).collect();
        let keys = needles.iter().map(|needle| (needle.seq, needle.key, None)).chain(bounds()).collect();
        let of_row = |row: u32, document: &Range<u32>| u64::from(row + 1 - document.start);
        let of_key = |key: u32, document: &Range<u32>| u64::from(document.end - key) * u64::from(group);
        let rows = wanted(rows, options.rows, shape.q_heads, &of_row, &mut draw);
        let keys = wanted(keys, options.keys, shape.kv_heads, &of_key, &mut draw);
        let row = |(seq, row, head, document): (u32, u32, u16, Range<u32>)| RowSample {
            seq,
            row,
            head,
            keys: document.start..row + 1,
            dq: Vec::new(),
        };
        let key = |(seq, key, head, document): (u32, u32, u16, Range<u32>)| KeySample {
            seq,
            key,
            head,
            end: document.end,
            gradients: Default::default(),
        };
        let (rows, keys) = (rows.into_iter().map(row).collect(), keys.into_iter().map(key).collect());
        Self { domain, inputs, sequences: sequences.to_vec(), rows, keys, found: BTreeMap::new() }
    }

    /// Compares O and LSE, and keeps what the gradients need. To be called after the forward, before the backward.
    ///
    /// # Errors
    /// A card cannot be read.
    pub fn forward(&mut self, session: &mut Session) -> Result<(), CudaError> {
        self.forward_of(session)
    }

    pub(super) fn forward_of(&mut self, held: &mut impl Held) -> Result<(), CudaError> {
        let regions = held.results(self.domain)?;
        self.cover(&regions);
        let inputs = &self.inputs;
        let references: Vec<RowReference> = self.rows.par_iter().map(|sample| row_reference(inputs, sample)).collect();
        for (at, reference) in references.into_iter().enumerate() {
            let RowSample { seq, row, head, .. } = self.rows[at];
            let o = read(held, &regions, Tensor::O, (seq, row, head))?;
            self.compare(Tensor::O, (seq, row, head), &o, &reference.o);
            let lse = read(held, &regions, Tensor::Lse, (seq, row, head))?;
            self.compare(Tensor::Lse, (seq, row, head), &lse, &[reference.lse]);
            self.rows[at].dq = self.dq((seq, row, head), &o, &reference.dq);
        }
        // Keys of one document and head share what is read.
        let mut groups: BTreeMap<(u32, u32, u16), Vec<usize>> = BTreeMap::new();
        for (at, sample) in self.keys.iter().enumerate() {
            groups.entry((sample.seq, sample.end, sample.head)).or_default().push(at);
        }
        for ((seq, end, head), samples) in groups {
            let first = samples.iter().map(|at| self.keys[*at].key).min().unwrap_or(end);
            let read = Statistics::read(held, &regions, &self.inputs, seq, first..end, head)?;
            for at in samples {
                let key = self.keys[at].key;
                self.keys[at].gradients = key_reference(&self.inputs, &read, key);
            }
        }
        Ok(())
    }

    /// Adds a row of every rank that leaves an output of which no row was chosen.
    fn cover(&mut self, regions: &[(usize, Vec<Region>)]) {
        for region in regions.iter().flat_map(|(_, all)| all).filter(|region| region.tensor == Tensor::O) {
            let has = |one: &RowSample| {
                (region.heads.start..region.heads.end).contains(&one.head)
                    && indices(region, one.seq, one.row).next().is_some()
            };
            let first = region.runs.iter().find(|run| run.rows.len > 0).filter(|_| !self.rows.iter().any(has));
            let Some((seq, row)) = first.map(|run| (run.seq, run.rows.start + run.rows.len / 2 * run.rows.stride))
            else {
                continue;
            };
            if let Some(document) = document(&self.sequences, seq, row) {
                let keys = document.start..row + 1;
                self.rows.push(RowSample { seq, row, head: region.heads.start, keys, dq: Vec::new() });
            }
        }
    }

    /// dQ as kernels get it from a card's O of the row, which is rounded to bf16: where one key has most of a row's weight,
    /// dP of that key and its mean nearly cancel, and the rounding of O would be most of an error.
    fn dq(&self, (seq, row, head): (u32, u32, u16), o: &[f32], parts: &DqParts) -> Vec<f64> {
        let mut d_o = vec![0.0; usize::from(self.inputs.shape().head_dim)];
        self.inputs.row(Tensor::DO, seq, row, head, &mut d_o);
        parts.dq(if o.len() == d_o.len() { dot(&d_o, o) } else { f64::NAN })
    }

    /// Compares dQ, dK and dV. To be called after the backward.
    ///
    /// # Errors
    /// A card cannot be read.
    pub fn backward(&mut self, session: &mut Session) -> Result<(), CudaError> {
        self.backward_of(session)
    }

    pub(super) fn backward_of(&mut self, held: &mut impl Held) -> Result<(), CudaError> {
        let regions = held.results(self.domain)?;
        for at in 0..self.rows.len() {
            let RowSample { seq, row, head, .. } = self.rows[at];
            let dq = read(held, &regions, Tensor::DQ, (seq, row, head))?;
            let reference = std::mem::take(&mut self.rows[at].dq);
            self.compare(Tensor::DQ, (seq, row, head), &dq, &reference);
        }
        for at in 0..self.keys.len() {
            let KeySample { seq, key, head, .. } = self.keys[at];
            let gradients = std::mem::take(&mut self.keys[at].gradients);
            for (tensor, reference) in [Tensor::DK, Tensor::DV].into_iter().zip(gradients) {
                let ours = read(held, &regions, tensor, (seq, key, head))?;
                self.compare(tensor, (seq, key, head), &ours, &reference);
            }
        }
        Ok(())
    }

    /// What was found. A tensor of which less was compared than was chosen says so.
    pub fn report(&self) -> SampleReport {
        let tokens = self.sequences.iter().filter_map(|bounds| bounds.last()).any(|last| *last > 0);
        let least = usize::from(tokens);
        let of = |tensor: Tensor| {
            let wanted = if tensor.is_kv() { self.keys.len() } else { self.rows.len() };
            let found = self.found.get(&tensor).map(Vec::as_slice).unwrap_or_default();
            summary(tensor, wanted.max(least), found)
        };
        SampleReport { tensors: [Tensor::O, Tensor::Lse, Tensor::DQ, Tensor::DK, Tensor::DV].map(of).to_vec() }
    }

    fn compare(&mut self, tensor: Tensor, at: (u32, u32, u16), ours: &[f32], reference: &[f64]) {
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
        let mut differences = ours.iter().zip(reference).map(|(a, b)| f64::from(*a) - b);
        let difference = squares(&mut differences);
        let difference =
            if ours.len() == reference.len() && difference.is_finite() { difference } else { f64::INFINITY };
        let norm = squares(&mut reference.iter().copied());
        self.found.entry(tensor).or_default().push(Compared { at, difference, norm });
    }
}

fn summary(tensor: Tensor, wanted: usize, all: &[Compared]) -> TensorSample {
    let difference: f64 = all.iter().map(|one| one.difference).sum();
    let norm: f64 = all.iter().map(|one| one.norm).sum();
    let least = 0.25 * norm / all.len().max(1) as f64;
    let of = |one: &Compared| ratio(one.difference, one.norm.max(least));
    let worst = all.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
    TensorSample {
        tensor: tensor.name(),
        rows: all.len(),
        wanted,
        error: ratio(difference, norm),
        worst: worst.map_or(0.0, of),
        at: worst.map(|one| one.at),
    }
}

fn ratio(difference: f64, norm: f64) -> f64 {
    if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() }
}

/// Draws from the counter of the generator of inputs.
struct Draw {
    seed: u64,
    next: u32,
}

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.next += 1;
        // Four elements have enough noise for any position.
        let bits = |element| u64::from(value(self.seed, Tensor::Lse, 0, self.next, 0, element).to_bits() >> 16);
        let all = bits(0) ^ bits(1) << 11 ^ bits(2) << 23 ^ bits(3) << 37;
        all.wrapping_mul(0x9e37_79b9_7f4a_7c15) % bound.max(1)
    }

    fn row(&mut self, sequences: &[Vec<u32>]) -> Option<Place> {
        let tokens = |bounds: &Vec<u32>| u64::from(bounds.last().copied().unwrap_or(0));
        let all: u64 = sequences.iter().map(tokens).sum();
        let mut at = if all == 0 { return None } else { self.below(all) };
        for (seq, bounds) in (0u32..).zip(sequences) {
            match at.checked_sub(tokens(bounds)) {
                Some(past) => at = past,
                None => return Some((seq, at as u32, None)),
            }
        }
        None
    }
}

fn document(sequences: &[Vec<u32>], seq: u32, row: u32) -> Option<Range<u32>> {
    let bounds = sequences.get(seq as usize)?;
    let next = bounds.partition_point(|start| *start <= row);
    Some(*bounds.get(next.checked_sub(1)?)?..*bounds.get(next)?)
}

/// What the cards hold of a row and head: the last region that has it.
fn read(
    held: &mut impl Held,
    regions: &[(usize, Vec<Region>)],
    tensor: Tensor,
    (seq, row, head): (u32, u32, u16),
) -> Result<Vec<f32>, CudaError> {
    let mut place = None;
    for (rank, region) in regions.iter().flat_map(|(rank, all)| all.iter().map(move |region| (*rank, region))) {
        if region.tensor == tensor && region.heads.start <= head && head < region.heads.end {
            place = indices(region, seq, row).last().map(|index| (rank, region, index)).or(place);
        }
    }
    match place {
        Some((rank, region, index)) => {
            held.read_rows(rank, region, (index, 1), (u32::from(head - region.heads.start), 1))
        }
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use skewbench_cpu::{Inputs, Needle, reference};
    use skewbench_plan::{AttentionShape, Tensor};

    use super::{Compared, RowSample, SampleOptions, Sampler, document, summary};
    use crate::run::exact::{Statistics, dot, key_reference, row_reference};
    use crate::run::inputs::Generated;

    const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 16 };

    /// The generated inputs as tables.
    fn tables(made: &Generated, sequences: &[Vec<u32>]) -> Inputs {
        let mut inputs = Inputs::random(sequences, SHAPE, 0);
        let tokens = inputs.tokens();
        for (tensor, table) in [
            (Tensor::Q, &mut inputs.q),
            (Tensor::K, &mut inputs.k),
            (Tensor::V, &mut inputs.v),
            (Tensor::DO, &mut inputs.d_o),
        ] {
            for (seq, rows) in (0u32..).zip(&tokens) {
                for row in 0..*rows {
                    for head in 0..table.heads() as u16 {
                        made.row(tensor, seq, row, head, table.at_mut(seq, row, head).expect("a row"));
                    }
                }
            }
        }
        inputs
    }

    fn close(a: &[f64], b: &[f32]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - f64::from(*b)).abs() < 2e-5 * (1.0 + a.abs()), "{a} {b}");
        }
    }

    #[test]
    fn references_agree_with_dense_attention() {
        let sequences = [vec![0, 40, 100], vec![0, 33]];
        let made = Generated::new(5, 0, SHAPE).with_needles(&sequences, &[Needle { seq: 0, row: 90, key: 50 }]);
        let dense = reference::attention(&tables(&made, &sequences));
        for (seq, row, head) in [(0, 90, 1), (0, 39, 3), (0, 40, 0), (1, 32, 2)] {
            let keys = document(&sequences, seq, row).expect("a document").start..row + 1;
            let ours = row_reference(&made, &RowSample { seq, row, head, keys, dq: Vec::new() });
            close(&ours.o, dense.o.at(seq, row, head).expect("O"));
            close(&[ours.lse], dense.lse.at(seq, row, head).expect("LSE"));
            let mut d_o = vec![0.0; 16];
            made.row(Tensor::DO, seq, row, head, &mut d_o);
            close(
                &ours.dq.dq(dot(&d_o, dense.o.at(seq, row, head).expect("O"))),
                dense.dq.at(seq, row, head).expect("dQ"),
            );
        }
        for (seq, key, head) in [(0, 50, 1), (0, 0, 0), (0, 39, 1), (1, 3, 0)] {
            let rows = key..document(&sequences, seq, key).expect("a document").end;
            let of = |row: u32, of: u16| {
                let head = head * 2 + of;
                let (mut d_o, o) = (vec![0.0; 16], dense.o.at(seq, row, head).expect("O"));
                made.row(Tensor::DO, seq, row, head, &mut d_o);
                (dense.lse.at(seq, row, head).expect("LSE")[0], dot(&d_o, o))
            };
            let all: Vec<_> = rows.clone().flat_map(|row| [of(row, 0), of(row, 1)]).collect();
            let (lse, change) = all.into_iter().unzip();
            let read = Statistics { seq, rows, head, group: 2, lse, change };
            let [dk, dv] = key_reference(&made, &read, key);
            close(&dk, dense.dk.at(seq, key, head).expect("dK"));
            close(&dv, dense.dv.at(seq, key, head).expect("dV"));
        }
    }

    #[test]
    fn samples_are_distinct_and_within_the_budget() {
        let sequences = [vec![0, 1000, 1001, 5000]];
        let needle = Needle { seq: 0, row: 1500, key: 1200 };
        let options = SampleOptions { rows: 20, keys: 10, most_pairs: 20_000, seed: 3 };
        let sampler = Sampler::new(0, Generated::new(1, 0, SHAPE), &sequences, &[needle], options);
        let pairs: u64 = sampler.rows.iter().map(|sample| sample.keys.len() as u64).sum();
        assert!(pairs <= 20_000 && sampler.rows.len() >= 5 && sampler.keys.len() >= 3, "{pairs}");
        assert!(sampler.rows.iter().any(|sample| sample.row == 1500));
        assert!(sampler.keys.iter().any(|sample| sample.key == 1200));
        assert!(sampler.rows.iter().all(|sample| sample.row < 5000 && sample.head < 4));
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_wrong() {
        let right = || Compared { at: (0, 1, 0), difference: 1e-6, norm: 1.0 };
        let broken = Compared { at: (0, 7, 2), difference: f64::INFINITY, norm: 1.0 };
        let report = summary(Tensor::O, 2, &[right(), broken]);
        assert_eq!((report.error, report.at), (f64::INFINITY, Some((0, 7, 2))));
        assert!((summary(Tensor::O, 2, &[right(), right()]).error - 1e-3).abs() < 1e-9);
    }
}
