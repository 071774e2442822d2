use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewbench_plan::{AttentionShape, Pass, Plan, Tensor};

use crate::Table;

/// Weight of a needle's key for its row, in weights of all keys that the row sees with a score of 0: the needle has most
/// of the row, and what is left is enough to notice any other key.
const NEEDLE_WEIGHT: f64 = 9.0;
/// Longest needle, in lengths of a unit-normal key: longer ones would make gradients ill-conditioned in f32.
const LONGEST_NEEDLE: f64 = 6.0;

/// Q, K, V and dO of a set of packed sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Heads.
    pub shape: AttentionShape,
    /// Document bounds of every packed sequence: `0, l0, l0 + l1, ...`.
    pub sequences: Vec<Vec<u32>>,
    /// Queries.
    pub q: Table,
    /// Keys.
    pub k: Table,
    /// Values.
    pub v: Table,
    /// Gradient of the output.
    pub d_o: Table,
}

/// A key that has most of the weight of one row: whoever shows it to the row, or hides it, changes the row's output
/// altogether.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needle {
    /// Packed sequence.
    pub seq: u32,
    /// Row of the packed sequence.
    pub row: u32,
    /// Key of the same document, visible from the row or not.
    pub key: u32,
}

impl Inputs {
    /// Unit-normal inputs of sequences with these document bounds.
    pub fn random(sequences: &[Vec<u32>], shape: AttentionShape, seed: u64) -> Self {
        let tokens = tokens(sequences);
        let made = |tensor: Tensor| {
            let mut table = Table::poisoned(tensor, shape, &tokens);
            for (seq, values) in table.all_mut() {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                // One stream for every tensor and sequence.
                rng.set_stream((tensor as u64) << 32 | seq as u64);
                fill_normal(values, &mut rng);
            }
            table
        };
        Self {
            shape,
            sequences: sequences.to_vec(),
            q: made(Tensor::Q),
            k: made(Tensor::K),
            v: made(Tensor::V),
            d_o: made(Tensor::DO),
        }
    }

    /// Replaces keys by needles; needles outside the sequences are left out, and heads whose query is so short (or
    /// head_dim so small) that its needle would be far longer than other keys. Of a group of query heads that share a
    /// key one is dominated, another one for every needle.
    pub fn with_needles(mut self, needles: &[Needle]) -> Self {
        let group = self.shape.q_heads.checked_div(self.shape.kv_heads).unwrap_or(0).max(1);
        let root = f64::from(self.shape.head_dim).sqrt();
        for (turn, needle) in (0u16..=u16::MAX).cycle().zip(needles) {
            let bounds = self.sequences.get(needle.seq as usize).map(Vec::as_slice).unwrap_or_default();
            let next = bounds.partition_point(|start| *start <= needle.row);
            let seen = needle.row.saturating_add(1) - next.checked_sub(1).map_or(0, |document| bounds[document]);
            let score = libm::log(NEEDLE_WEIGHT * f64::from(seen));
            for head in 0..self.shape.kv_heads {
                let query = self.q.at(needle.seq, needle.row, head * group + turn % group).map(<[f32]>::to_vec);
                let (Some(query), Some(key)) = (query, self.k.at_mut(needle.seq, needle.key, head)) else { continue };
                let square: f64 = query.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
                if score > LONGEST_NEEDLE * square.sqrt() {
                    continue;
                }
                let scale = score * root / square;
                key.iter_mut().zip(&query).for_each(|(k, q)| *k = (scale * f64::from(*q)) as f32);
            }
        }
        self
    }

    /// Tokens of every packed sequence.
    pub fn tokens(&self) -> Vec<u32> {
        tokens(&self.sequences)
    }

    /// The table of an input tensor.
    pub(crate) fn table(&self, tensor: Tensor) -> Option<&Table> {
        match tensor {
            Tensor::Q => Some(&self.q),
            Tensor::K => Some(&self.k),
            Tensor::V => Some(&self.v),
            Tensor::DO => Some(&self.d_o),
            _ => None,
        }
    }
}

fn tokens(sequences: &[Vec<u32>]) -> Vec<u32> {
    sequences.iter().map(|bounds| bounds.last().copied().unwrap_or(0)).collect()
}

/// Box and Muller's pairs.
fn fill_normal(values: &mut [f32], rng: &mut ChaCha8Rng) {
    for pair in values.chunks_mut(2) {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.random::<f64>()));
        let angle = std::f64::consts::TAU * rng.random::<f64>();
        for (value, part) in pair.iter_mut().zip([libm::cos(angle), libm::sin(angle)]) {
            *value = (radius * part) as f32;
        }
    }
}

/// Needles at the bounds of a plan's tiles, at most `most`, spread over them: the first key of a tile, and at the end of
/// its rows the last key that a row sees and the first that it must not see. Every key is a needle of one row at most.
pub fn needles(plan: &Plan, most: usize) -> Vec<Needle> {
    let mut bounds: BTreeSet<(u32, u32)> = BTreeSet::new();
    for tile in [Pass::Forward, Pass::Backward].iter().flat_map(|pass| &plan.pass(*pass).tiles) {
        for rows in [tile.q, tile.k] {
            bounds.extend([(tile.seq, rows.start), (tile.seq, rows.end())]);
        }
    }
    for (seq, documents) in (0u32..).zip(&plan.sequences) {
        bounds.extend(documents.iter().map(|bound| (seq, *bound)));
    }
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for (seq, bound) in bounds {
        let Some(documents) = plan.sequences.get(seq as usize) else { continue };
        let next = documents.partition_point(|start| *start <= bound);
        let document = next.checked_sub(1).map(|first| documents[first]).zip(documents.get(next).copied());
        let Some((start, end)) = document else { continue };
        let last = bound.checked_sub(1).filter(|last| *last >= start);
        // Row before the bound: must not see the key at the bound. Row at the bound: sees itself and the key before it.
        // Last row of the document: sees its first key.
        let wanted = [
            last.map(|row| (row, bound)),
            last.map(|key| (bound, key)),
            (bound == start && end - start > 2).then_some((end - 1, start)),
            (bound + 1 < end).then_some((bound, bound + 1)),
        ];
        for (row, key) in wanted.into_iter().flatten() {
            if row < end && key < end && taken.insert((seq, key)) {
                found.push(Needle { seq, row, key });
            }
        }
    }
    let step = found.len().div_ceil(most.max(1)).max(1);
    found.into_iter().step_by(step).collect()
}
