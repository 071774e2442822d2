//! How even a placement is: R over pools and ranks of a step, and the waiting inside waves.

use std::ops::Range;

use skewbench_plan::PlacedStep;

/// Work of workers that wait for each other: pools or data-parallel ranks of one wave, or all pools of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Work of each worker, in the unit of the work that was given.
    pub work: Vec<u64>,
    /// Sequences that each worker holds, and so its share of the ranks.
    pub places: Vec<u32>,
}

impl Loads {
    /// Loads of groups of items, each on as many ranks as it has items.
    pub fn of_groups(work: &[u64], groups: &[Vec<u32>]) -> Self {
        let sum = |group: &Vec<u32>| group.iter().map(|&item| work.get(item as usize).copied().unwrap_or(0)).sum();
        Self { work: groups.iter().map(sum).collect(), places: groups.iter().map(|g| g.len() as u32).collect() }
    }

    /// The greatest work per place; 0 without workers.
    pub fn max(&self) -> f64 {
        let per_place =
            self.work.iter().zip(&self.places).filter(|(_, p)| **p > 0).map(|(w, p)| *w as f64 / f64::from(*p));
        per_place.fold(0.0, f64::max)
    }

    /// Work per place over all workers; 0 without workers.
    pub fn mean(&self) -> f64 {
        let places: u64 = self.places.iter().map(|&p| u64::from(p)).sum();
        if places == 0 {
            return 0.0;
        }
        self.work.iter().map(|&w| u128::from(w)).sum::<u128>() as f64 / places as f64
    }

    /// R = max / mean over the workers; 1 when there is no work. Workers of different size are compared per place, which is
    /// the plain max / mean where all have one size.
    pub fn r(&self) -> f64 {
        ratio(self.max(), self.mean())
    }
}

/// Balance of one step over one kind of worker.
#[derive(Clone, Debug, PartialEq)]
pub struct StepBalance {
    /// Loads of the workers of each wave.
    pub waves: Vec<Loads>,
}

impl StepBalance {
    /// Over the pools of every wave. `work` is per sequence of the placed step.
    pub fn of_pools(placed: &PlacedStep, work: &[u64]) -> Self {
        Self::of(placed, work, &placed.pools)
    }

    /// Over the data-parallel ranks of every wave: what a system that moves no attention between sequences is exposed to.
    pub fn of_ranks(placed: &PlacedStep, work: &[u64]) -> Self {
        let width = placed.pools.iter().map(|p| p.end).max().unwrap_or(0);
        let ranks: Vec<Range<u32>> = (0..width).map(|r| r..r + 1).collect();
        Self::of(placed, work, &ranks)
    }

    fn of(placed: &PlacedStep, work: &[u64], workers: &[Range<u32>]) -> Self {
        let wave = |sequences: &[u32]| {
            let groups: Vec<Vec<u32>> = workers
                .iter()
                .map(|w| sequences.get(w.start as usize..w.end as usize).unwrap_or_default().to_vec())
                .collect();
            Loads::of_groups(work, &groups)
        };
        Self { waves: placed.waves.iter().map(|w| wave(&w.sequences)).collect() }
    }

    /// R over all workers of the step, whatever their wave.
    pub fn r(&self) -> f64 {
        let all = Loads {
            work: self.waves.iter().flat_map(|w| &w.work).copied().collect(),
            places: self.waves.iter().flat_map(|w| &w.places).copied().collect(),
        };
        all.r()
    }

    /// Sum over waves of the wave's max / sum of the wave's mean - 1.
    pub fn wave_r(&self) -> f64 {
        let (max, mean) = self.sums();
        ratio(max, mean) - 1.0
    }

    /// Share of the workers' time that they wait for the heaviest worker of their wave: 1 - sum of means / sum of maxima.
    pub fn waiting(&self) -> f64 {
        let (max, mean) = self.sums();
        if max > 0.0 { 1.0 - mean / max } else { 0.0 }
    }

    fn sums(&self) -> (f64, f64) {
        self.waves.iter().fold((0.0, 0.0), |(max, mean), wave| (max + wave.max(), mean + wave.mean()))
    }
}

fn ratio(max: f64, mean: f64) -> f64 {
    if mean > 0.0 { max / mean } else { 1.0 }
}
