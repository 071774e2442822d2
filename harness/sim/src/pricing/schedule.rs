//! When the last block ends if every multiprocessor, once free, takes the next block of a list.

/// Blocks of one head of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// How many.
    pub(crate) count: u64,
    /// Nanoseconds of the longest.
    pub(crate) longest: f64,
    /// By how much each is shorter than the next longer one.
    pub(crate) slope: f64,
}

impl Blocks {
    /// Nanoseconds of the shortest.
    #[inline]
    pub(crate) fn shortest(&self) -> f64 {
        self.longest - self.slope * (self.count as f64 - 1.0)
    }
}

/// Nanoseconds of `heads` heads one after another, each from its shortest block to its longest.
///
/// With one head this is exact: a block then always follows the one `multiprocessors` places before it, so the time is the sum along the chain
/// that ends in the longest. Among many heads a multiprocessor takes blocks of any length in turn, so that the last one starts as in a renewal
/// process ([`renewed`]). A few heads lie between. Against a simulated list the error is below 1% in the median, below 4% for 95 of 100 and at
/// most 10%. It falls with no argument.
pub(crate) fn rising(blocks: &Blocks, heads: u64, multiprocessors: u64) -> f64 {
    let (sms, n) = (multiprocessors as f64, heads as f64);
    let total = blocks.count * heads;
    let rounds = total.div_ceil(multiprocessors) as f64;
    let whole = rounds * blocks.longest;
    if blocks.slope == 0.0 || rounds <= 1.0 {
        return whole;
    }
    let chain = whole - blocks.slope * (sms / n * rounds * (rounds - 1.0) * 0.5);
    let many = blocks.longest + renewed(blocks, total as f64 / sms, rounds);
    (chain + (many - chain) * (1.0 - 1.0 / n)).min(whole)
}

/// Nanoseconds until as many blocks have ended that the last of `per` a multiprocessor starts, lengths being evenly spread.
fn renewed(blocks: &Blocks, per: f64, rounds: f64) -> f64 {
    let shortest = blocks.shortest();
    let spread = blocks.longest - shortest;
    // While first blocks end, and second ones shorter than the difference to the first.
    let second = |ended: f64| {
        let alone = (shortest / spread).min(1.0);
        shortest + spread * (ended.min(alone) + libm::log1p((ended - alone).max(0.0)))
    };
    if rounds <= 2.0 {
        return second(per - 1.0);
    }
    // Later rounds spread as sums of so many lengths do, until they run into one another.
    let mean = 0.5 * (shortest + blocks.longest);
    let blurred = (spread * libm::sqrt(rounds - 1.0) / mean).min(1.0);
    let start = mean * (rounds - 1.0 + blurred * (per - rounds + 0.5));
    (start - blurred * blurred * spread * spread / (24.0 * mean)).max(second(1.0))
}

/// Nanoseconds of `heads` heads one after another, each from its longest block to its shortest.
///
/// Two rounds fold: the longest blocks are followed by the shortest. With many heads the last one's longest block starts late, as in a renewal
/// process. Against a simulated list the error is below 1% in the median, below 7% for 95 of 100 and at most 16%, with three heads. It falls
/// with no argument.
pub(crate) fn falling(blocks: &Blocks, heads: u64, multiprocessors: u64) -> f64 {
    let (sms, n, count) = (multiprocessors as f64, heads as f64, blocks.count as f64);
    let total = blocks.count * heads;
    let rounds = total.div_ceil(multiprocessors);
    let at = |place: f64| blocks.longest - blocks.slope * place / n;
    let pairs = (rounds / 2) as f64;
    let mut folded = 2.0 * (pairs * blocks.longest - blocks.slope * sms / n * pairs * pairs);
    if rounds >= 2 {
        // Only in the last pair can the longer block outlast two of the middle.
        folded += (at(2.0 * (pairs - 1.0) * sms) - 2.0 * at((2.0 * pairs - 1.0) * sms)).max(0.0);
    }
    if rounds % 2 == 1 {
        folded += at((rounds - 1) as f64 * sms);
    }
    // The last head starts when so many blocks of the heads before it have ended.
    let before = (n - 1.0) * count / sms;
    let last = if before > 1.0 { blocks.longest + renewed(blocks, before, before.ceil()) } else { blocks.longest };
    folded.max(last.min(rounds as f64 * blocks.longest))
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::{Blocks, falling, rising};

    const SMS: u64 = 132;

    /// The list itself, in whole nanoseconds.
    fn simulated(blocks: &[u64]) -> f64 {
        let mut free: BinaryHeap<Reverse<u64>> = (0..SMS).map(|_| Reverse(0)).collect();
        for block in blocks {
            let Reverse(start) = free.pop().expect("there are some");
            free.push(Reverse(start + block));
        }
        free.into_iter().map(|Reverse(end)| end).max().expect("there are some") as f64
    }

    fn errors(law: fn(&Blocks, u64, u64) -> f64, upwards: bool) -> Vec<f64> {
        let mut errors = Vec::new();
        for heads in [1, 2, 3, 4, 8, 16, 32] {
            for count in [1u64, 2, 4, 7, 12, 16, 23, 32, 50, 64, 99, 128, 133, 200, 264, 300] {
                // As many keys as rows; twice and eight times as many.
                for prefix in if upwards { vec![0, count, 7 * count] } else { vec![0] } {
                    let mut lengths: Vec<u64> = (1..=count).map(|i| 800 + 1500 * (prefix + i)).collect();
                    if !upwards {
                        lengths.reverse();
                    }
                    let list = lengths.repeat(heads as usize);
                    let longest = *lengths.iter().max().expect("some") as f64;
                    let found = law(&Blocks { count, longest, slope: 1500.0 }, heads, SMS);
                    errors.push((found / simulated(&list) - 1.0).abs());
                }
            }
        }
        errors.sort_by(f64::total_cmp);
        errors
    }

    #[test]
    fn closed_forms_follow_the_simulated_list() {
        for (law, upwards, most, worst) in
            [(rising as fn(&_, _, _) -> _, true, 0.04, 0.10), (falling, false, 0.07, 0.16)]
        {
            let errors = errors(law, upwards);
            assert!(errors[errors.len() / 2] < 0.01, "{upwards}: {}", errors[errors.len() / 2]);
            assert!(errors[errors.len() * 95 / 100] < most, "{upwards}: {}", errors[errors.len() * 95 / 100]);
            assert!(errors[errors.len() - 1] < worst, "{upwards}: {}", errors[errors.len() - 1]);
        }
    }

    #[test]
    fn one_head_is_exact_upwards_and_equal_blocks_come_in_rounds() {
        for count in [1u64, 131, 132, 133, 264, 265, 700] {
            let list: Vec<u64> = (1..=count).map(|i| 500 + 1000 * i).collect();
            let blocks = Blocks { count, longest: (500 + 1000 * count) as f64, slope: 1000.0 };
            assert!((rising(&blocks, 1, SMS) - simulated(&list)).abs() < 1e-3);
            let equal = Blocks { slope: 0.0, ..blocks };
            assert_eq!(rising(&equal, 3, SMS), (3 * count).div_ceil(SMS) as f64 * blocks.longest);
        }
    }
}
