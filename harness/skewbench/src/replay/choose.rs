use crate::cells::step_seed;

/// How many ranks of a wave are timed at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Of those that are predicted slowest.
    pub slowest: usize,
    /// Of the others.
    pub sample: usize,
}

/// From the most to the least; the first that fits the budget is used for all systems.
pub const EFFORTS: [Effort; 4] = [
    Effort { slowest: 8, sample: 4 },
    Effort { slowest: 4, sample: 3 },
    Effort { slowest: 2, sample: 2 },
    Effort { slowest: 1, sample: 1 },
];

/// Share of the slowest rank's time by which another must be faster not to be a candidate for the slowest.
const MARGIN: f64 = 0.05;

/// A rank that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its position among the ranks of the wave.
    pub rank: usize,
    /// True when it was drawn from those that are not predicted slowest.
    pub sampled: bool,
}

/// Ranks of a wave to time, from what each is predicted to take.
pub fn choose(predicted_ps: &[u64], effort: Effort, seed: u64) -> Vec<Chosen> {
    let slowest = predicted_ps.iter().copied().max().unwrap_or(0) as f64;
    let mut order: Vec<usize> = (0..predicted_ps.len()).collect();
    order.sort_by_key(|rank| std::cmp::Reverse(predicted_ps[*rank]));
    let near = order.iter().take_while(|rank| predicted_ps[**rank] as f64 >= (1.0 - MARGIN) * slowest).count();
    let mut others = order.split_off(near.min(effort.slowest));
    others.sort_by_key(|rank| *blake3::hash(&step_seed(seed, *rank as u64).to_le_bytes()).as_bytes());
    let mut chosen: Vec<Chosen> = order.into_iter().map(|rank| Chosen { rank, sampled: false }).collect();
    chosen.extend(others.into_iter().take(effort.sample).map(|rank| Chosen { rank, sampled: true }));
    chosen
}

#[cfg(test)]
mod tests {
    use super::{Effort, choose};

    #[test]
    fn the_slowest_are_taken_and_the_rest_is_sampled() {
        let predicted: Vec<u64> = (0..64).map(|i| if i % 16 == 3 { 1000 + i } else { 500 }).collect();
        let effort = Effort { slowest: 3, sample: 4 };
        let chosen = choose(&predicted, effort, 7);
        let ranks = |sampled: bool| chosen.iter().filter(|c| c.sampled == sampled).map(|c| c.rank).collect::<Vec<_>>();
        assert_eq!(ranks(false), [51, 35, 19]);
        assert_eq!(ranks(true).len(), 4);
        assert_eq!(chosen, choose(&predicted, effort, 7));
        assert_ne!(chosen, choose(&predicted, effort, 8));
    }

    #[test]
    fn few_ranks_are_all_timed() {
        assert_eq!(choose(&[5], Effort { slowest: 8, sample: 4 }, 1).len(), 1);
        assert_eq!(choose(&[], Effort { slowest: 8, sample: 4 }, 1), []);
        let one_slow = choose(&[100, 10, 10], Effort { slowest: 8, sample: 4 }, 1);
        assert_eq!(one_slow.iter().map(|c| c.sampled).collect::<Vec<_>>(), [false, true, true]);
    }
}
