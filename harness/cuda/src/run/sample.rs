use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;
use serde::Serialize;
use skewbench_cpu::Needle;
use skewbench_plan::Tensor;

use super::exact::{RowReference, Statistics, key_reference, row_reference};
use super::inputs::{Generated, value};
use super::session::Session;
use super::tables::indices;
use crate::CudaError;
use crate::steps::Region;

/// Largest relative error of a tensor (root of sums of squares over all sampled rows) of right results in bf16. Kernels
/// alone leave 2e-3 to 3e-3 on random inputs. Half of the rows are those of needles, where dP and its mean, each made of
/// O rounded to bf16, nearly cancel in dS: right programs leave 7e-3 (one kernel) to 1.6e-2 (a sum of rounded parts) in dQ
/// there, and a mask that is off by one key, or a tile that is lost, leaves about 1.
pub const SAMPLE_TOLERANCE: f64 = 3e-2;
/// The same for LSE, which is f32 everywhere.
pub const LSE_TOLERANCE: f64 = 1e-4;
/// Largest relative error of any single row.
pub const ROW_TOLERANCE: f64 = 1e-1;

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

/// Verifies sampled rows of a domain in f64: O, LSE and dQ from the inputs alone, dK and dV from the inputs and the card's
/// own O and LSE of the rows that see the key.
pub struct Sampler {
    domain: usize,
    inputs: Generated,
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
    /// Rows and heads.
    pub rows: usize,
    /// |a - b| / |b| over all of them, a what the cards leave, b in f64; infinite where a is not a number.
    pub error: f64,
    /// The same of the worst row and head; rows much shorter than the others count as half of their mean length,
    /// since a row at which a needle makes dS nearly cancel keeps the rounding of a row that is not.
    pub worst: f64,
    /// Sequence, row and head of the worst.
    pub at: Option<(u32, u32, u16)>,
}

/// Sampled rows are wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{} of sampled rows has relative error {:.1e}, and {:.1e} at sequence {}, row {}, head {}", .0.tensor, .0.error, .0.worst,
    .0.at.unwrap_or_default().0, .0.at.unwrap_or_default().1, .0.at.unwrap_or_default().2)]
pub struct SampleWrong(pub TensorSample);

impl SampleReport {
    /// Whether all tensors are within [`SAMPLE_TOLERANCE`] ([`LSE_TOLERANCE`]) and all rows within [`ROW_TOLERANCE`].
    ///
    /// # Errors
    /// The first tensor that is not.
    pub fn verdict(&self) -> Result<(), SampleWrong> {
        let right = |one: &&TensorSample| {
            let limit = if one.tensor == Tensor::Lse.name() { LSE_TOLERANCE } else { SAMPLE_TOLERANCE };
            one.error <= limit && one.worst <= ROW_TOLERANCE
        };
        match self.tensors.iter().find(|one| !right(one)) {
            Some(wrong) => Err(SampleWrong(wrong.clone())),
            None => Ok(()),
        }
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
        let group = u64::from(shape.q_heads.checked_div(shape.kv_heads).unwrap_or(1));
        let mut draw = Draw { seed: options.seed, next: 0 };
        let wanted = |special: Vec<(u32, u32)>,
                      most: usize,
                      heads: u16,
                      cost: &dyn Fn(u32, &Range<u32>) -> u64,
                      draw: &mut Draw| {
            let mut taken = BTreeSet::new();
            let (mut chosen, mut pairs) = (Vec::new(), 0);
            let step = special.len().div_ceil((most / 2).max(1)).max(1);
            let fixed = special.into_iter().step_by(step).map(Some);
            for place in fixed.chain(std::iter::repeat_n(None, 4 * most)) {
                let Some((seq, row)) = place.or_else(|| draw.row(sequences)) else { break };
                let Some(document) = document(sequences, seq, row) else { continue };
                let head = draw.below(u64::from(heads)) as u16;
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
                bounds.windows(2).flat_map(move |b| [(seq, b[0]), (seq, b[1].saturating_sub(1))]).collect::<Vec<_>>()
            };
            (0u32..).zip(sequences).flat_map(of)
        };
        let rows = needles.iter().map(|needle| (needle.seq, needle.row)).chain(bounds()).collect();
        let keys = needles.iter().map(|needle| (needle.seq, needle.key)).chain(bounds()).collect();
        let of_row = |row: u32, document: &Range<u32>| u64::from(row + 1 - document.start);
        let of_key = |key: u32, document: &Range<u32>| u64::from(document.end - key) * group;
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
        Self { domain, inputs, rows, keys, found: BTreeMap::new() }
    }

    /// Compares O and LSE, and keeps what the gradients need. To be called after the forward, before the backward.
    ///
    /// # Errors
    /// A card cannot be read.
    pub fn forward(&mut self, session: &mut Session) -> Result<(), CudaError> {
        let inputs = &self.inputs;
        let references: Vec<RowReference> = self.rows.par_iter().map(|sample| row_reference(inputs, sample)).collect();
        let regions = session.results(self.domain)?;
        for (at, reference) in references.into_iter().enumerate() {
            let RowSample { seq, row, head, .. } = self.rows[at];
            let o = held(session, &regions, Tensor::O, (seq, row, head))?;
            self.compare(Tensor::O, (seq, row, head), &o, &reference.o);
            let lse = held(session, &regions, Tensor::Lse, (seq, row, head))?;
            self.compare(Tensor::Lse, (seq, row, head), &lse, &[reference.lse]);
            self.rows[at].dq = reference.dq;
        }
        // Keys of one document and head share what is read.
        let mut groups: BTreeMap<(u32, u32, u16), Vec<usize>> = BTreeMap::new();
        for (at, sample) in self.keys.iter().enumerate() {
            groups.entry((sample.seq, sample.end, sample.head)).or_default().push(at);
        }
        for ((seq, end, head), samples) in groups {
            let first = samples.iter().map(|at| self.keys[*at].key).min().unwrap_or(end);
            let read = Statistics::read(session, &regions, &self.inputs, seq, first..end, head)?;
            for at in samples {
                let key = self.keys[at].key;
                self.keys[at].gradients = key_reference(&self.inputs, &read, key);
            }
        }
        Ok(())
    }

    /// Compares dQ, dK and dV. To be called after the backward.
    ///
    /// # Errors
    /// A card cannot be read.
    pub fn backward(&mut self, session: &mut Session) -> Result<(), CudaError> {
        let regions = session.results(self.domain)?;
        for at in 0..self.rows.len() {
            let RowSample { seq, row, head, .. } = self.rows[at];
            let dq = held(session, &regions, Tensor::DQ, (seq, row, head))?;
            let reference = std::mem::take(&mut self.rows[at].dq);
            self.compare(Tensor::DQ, (seq, row, head), &dq, &reference);
        }
        for at in 0..self.keys.len() {
            let KeySample { seq, key, head, .. } = self.keys[at];
            let gradients = std::mem::take(&mut self.keys[at].gradients);
            for (tensor, reference) in [Tensor::DK, Tensor::DV].into_iter().zip(gradients) {
                let ours = held(session, &regions, tensor, (seq, key, head))?;
                self.compare(tensor, (seq, key, head), &ours, &reference);
            }
        }
        Ok(())
    }

    /// What was found.
    pub fn report(&self) -> SampleReport {
        SampleReport { tensors: self.found.iter().map(|(tensor, all)| summary(*tensor, all)).collect() }
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

fn summary(tensor: Tensor, all: &[Compared]) -> TensorSample {
    let difference: f64 = all.iter().map(|one| one.difference).sum();
    let norm: f64 = all.iter().map(|one| one.norm).sum();
    let least = 0.25 * norm / all.len().max(1) as f64;
    let of = |one: &Compared| ratio(one.difference, one.norm.max(least));
    let worst = all.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
    TensorSample {
        tensor: tensor.name(),
        rows: all.len(),
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

    fn row(&mut self, sequences: &[Vec<u32>]) -> Option<(u32, u32)> {
        let tokens = |bounds: &Vec<u32>| u64::from(bounds.last().copied().unwrap_or(0));
        let all: u64 = sequences.iter().map(tokens).sum();
        let mut at = if all == 0 { return None } else { self.below(all) };
        for (seq, bounds) in (0u32..).zip(sequences) {
            match at.checked_sub(tokens(bounds)) {
                Some(past) => at = past,
                None => return Some((seq, at as u32)),
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
fn held(
    session: &mut Session,
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
            session.read_rows(rank, region, (index, 1), (u32::from(head - region.heads.start), 1))
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
            close(&ours.dq, dense.dq.at(seq, row, head).expect("dQ"));
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
        let report = summary(Tensor::O, &[right(), broken]);
        assert_eq!((report.error, report.at), (f64::INFINITY, Some((0, 7, 2))));
        assert!((summary(Tensor::O, &[right(), right()]).error - 1e-3).abs() < 1e-9);
    }
}
