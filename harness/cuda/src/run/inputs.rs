use std::collections::HashMap;

use half::bf16;
use skewbench_cpu::{Inputs, Needle};
use skewbench_plan::{AttentionShape, Tensor};

/// The step of splitmix64's counter.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// One over the standard deviation of a sum of four uniform 16-bit integers.
const SCALE: u32 = 0x37dd_b3d7;
/// The mean of such a sum.
const MEAN: i32 = 131_070;
/// Weight of a needle's key for its row, in weights of all keys that the row sees with a score of 0.
const NEEDLE_WEIGHT: f64 = 9.0;
/// Longest needle, in lengths of a unit-normal key.
const LONGEST_NEEDLE: f64 = 6.0;

/// Inputs of one domain that are made from their coordinates alone, on the card and on the host bit by bit the same:
/// bf16, close to normal (sums of four uniform numbers) with unit variance.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    seed: u64,
    shape: AttentionShape,
    overwrites: HashMap<(u32, u32, u16), Vec<f32>>,
}

/// A key that is not what the generator makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overwrite {
    pub seq: u32,
    pub row: u32,
    pub head: u16,
    pub values: Vec<bf16>,
}

/// Of every group of so many query heads the one that each needle is for, one needle after another.
pub(super) fn needle_heads(group: u16) -> impl Iterator<Item = u16> {
    (0..group.max(1)).cycle()
}

/// One element of an input: Q, K, V or dO of a row and head.
pub fn value(seed: u64, tensor: Tensor, seq: u32, row: u32, head: u16, element: u32) -> f32 {
    element_of(place(key(seed, tensor, seq), row), head, element)
}

/// What the elements of a tensor of a sequence have in common.
pub(super) fn key(seed: u64, tensor: Tensor, seq: u32) -> u64 {
    mix(mix(seed.wrapping_add(GOLDEN)) ^ ((tensor as u64) << 32 | u64::from(seq)))
}

fn place(key: u64, row: u32) -> u64 {
    mix(key.wrapping_add((u64::from(row) + 1).wrapping_mul(GOLDEN)))
}

fn element_of(place: u64, head: u16, element: u32) -> f32 {
    let counter = (u64::from(head) << 32 | u64::from(element)) + 1;
    let bits = mix(place.wrapping_add(counter.wrapping_mul(GOLDEN)));
    let sum: i32 = (0..4).map(|part| (bits >> (16 * part) & 0xffff) as i32).sum();
    // The sum is exact in f32; one product and one rounding follow, here and on the card.
    bf16::from_f32((sum - MEAN) as f32 * f32::from_bits(SCALE)).to_f32()
}

/// As splitmix64 mixes its counter.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Generated {
    /// The inputs of a domain of a wave.
    pub fn new(seed: u64, domain: u32, shape: AttentionShape) -> Self {
        Self { seed: mix(seed ^ mix(u64::from(domain) + 1)), shape, overwrites: HashMap::new() }
    }

    /// Heads.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// The seed of this domain, which [`value`] takes.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Replaces keys by needles: keys that have most of the weight of one row of one query head of their group. Needles
    /// outside the sequences (document bounds `0, l0, l0 + l1, ...`) are left out, and those that would be far longer than
    /// other keys.
    pub fn with_needles(mut self, sequences: &[Vec<u32>], needles: &[Needle]) -> Self {
        let (dim, kv_heads) = (usize::from(self.shape.head_dim), self.shape.kv_heads);
        let group = self.shape.q_heads.checked_div(kv_heads).unwrap_or(0).max(1);
        let mut query = vec![0.0; dim];
        for (of, needle) in needle_heads(group).zip(needles) {
            let bounds = sequences.get(needle.seq as usize).map(Vec::as_slice).unwrap_or_default();
            let end = bounds.last().copied().unwrap_or(0);
            if needle.row >= end || needle.key >= end {
                continue;
            }
            let next = bounds.partition_point(|start| *start <= needle.row);
            let seen = needle.row + 1 - next.checked_sub(1).map_or(0, |document| bounds[document]);
            let score = (NEEDLE_WEIGHT * f64::from(seen)).ln();
            for head in 0..kv_heads {
                self.row(Tensor::Q, needle.seq, needle.row, head * group + of, &mut query);
                let square: f64 = query.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
                if score > LONGEST_NEEDLE * square.sqrt() {
                    continue;
                }
                let scale = score * (dim as f64).sqrt() / square;
                let values = query.iter().map(|q| bf16::from_f64(scale * f64::from(*q)).to_f32()).collect();
                self.overwrites.insert((needle.seq, needle.key, head), values);
            }
        }
        self
    }

    /// One row and head of Q, K, V or dO; `to` has head_dim elements.
    pub fn row(&self, tensor: Tensor, seq: u32, row: u32, head: u16, to: &mut [f32]) {
        if let Some(values) = self.overwrites.get(&(seq, row, head)).filter(|_| tensor == Tensor::K) {
            to.iter_mut().zip(values).for_each(|(to, from)| *to = *from);
            return;
        }
        let place = place(key(self.seed, tensor, seq), row);
        (0u32..).zip(to).for_each(|(element, to)| *to = element_of(place, head, element));
    }

    /// The keys that are not what the generator makes.
    pub(super) fn overwrites(&self) -> Vec<Overwrite> {
        let bf16s = |values: &[f32]| values.iter().map(|x| bf16::from_f32(*x)).collect();
        let made = self.overwrites.iter();
        made.map(|(&(seq, row, head), values)| Overwrite { seq, row, head, values: bf16s(values) }).collect()
    }
}

/// Inputs as a card holds them: every element rounded to bf16, in f32.
pub fn rounded(mut inputs: Inputs) -> Inputs {
    let sequences = inputs.tokens();
    let tables = [&mut inputs.q, &mut inputs.k, &mut inputs.v, &mut inputs.d_o];
    for table in tables {
        for (seq, rows) in (0u32..).zip(&sequences) {
            let heads = table.heads() as u16;
            for (row, head) in (0..*rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
                let values = table.at_mut(seq, row, head).unwrap_or_default();
                values.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
            }
        }
    }
    inputs
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use skewbench_cpu::Needle;
    use skewbench_plan::{AttentionShape, Tensor};

    use super::{Generated, SCALE, value};

    const SHAPE: AttentionShape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 64 };

    #[test]
    fn the_scale_is_one_over_the_deviation() {
        let deviation = ((65_536f64 * 65_536.0 - 1.0) / 3.0).sqrt();
        assert_eq!(f32::from_bits(SCALE), (1.0 / deviation) as f32);
    }

    #[test]
    fn elements_have_mean_0_and_variance_1_and_do_not_follow_each_other() {
        let all: Vec<f64> = (0..4096)
            .flat_map(|row| (0..64).map(move |element| f64::from(value(7, Tensor::K, 0, row, 1, element))))
            .collect();
        let n = all.len() as f64;
        let mean = all.iter().sum::<f64>() / n;
        let variance = all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let along = all.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / n;
        let across = all.iter().zip(&all[64..]).map(|(a, b)| a * b).sum::<f64>() / n;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.01, "{variance}");
        assert!(along.abs() < 0.01 && across.abs() < 0.01, "{along} {across}");
        assert!(all.iter().all(|x| x.abs() < 3.5));
    }

    #[test]
    fn every_coordinate_counts() {
        let of = |seed, tensor, seq, row, head| {
            (0..4).map(|e| value(seed, tensor, seq, row, head, e).to_bits()).collect::<Vec<_>>()
        };
        let all = [
            of(1, Tensor::Q, 0, 0, 0),
            of(2, Tensor::Q, 0, 0, 0),
            of(1, Tensor::K, 0, 0, 0),
            of(1, Tensor::Q, 1, 0, 0),
            of(1, Tensor::Q, 0, 1, 0),
            of(1, Tensor::Q, 0, 0, 1),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_ne!(Generated::new(1, 0, SHAPE).seed(), Generated::new(1, 1, SHAPE).seed());
    }

    #[test]
    fn a_needle_has_most_of_its_row() {
        let needle = Needle { seq: 0, row: 50, key: 20 };
        let outside = Needle { seq: 0, row: 200, key: 20 };
        let inputs = Generated::new(3, 0, SHAPE).with_needles(&[vec![0, 10, 100]], &[needle, outside]);
        assert_eq!(inputs.overwrites().len(), 2);
        let (mut q, mut k) = (vec![0.0; 64], vec![0.0; 64]);
        inputs.row(Tensor::Q, 0, 50, 0, &mut q);
        let mut weight = |key| {
            inputs.row(Tensor::K, 0, key, 0, &mut k);
            let dot: f64 = q.iter().zip(&k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            (dot / 8.0).exp()
        };
        let all: f64 = (10..=50).map(&mut weight).sum();
        assert!(weight(20) / all > 0.7);
    }
}
