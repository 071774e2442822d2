use std::ops::Range;

use skewbench_store::{StoreError, Table};

/// Latencies of one wave in picoseconds; each is that of its slowest worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaveView {
    /// Forward and backward together, of the worker with the largest sum.
    pub both_ps: f64,
    /// Forward.
    pub forward_ps: f64,
    /// Backward.
    pub backward_ps: f64,
    /// Forward and backward together with transfers that take no time.
    pub compute_ps: f64,
    /// Transfers alone, forward and backward.
    pub transfer_ps: f64,
    /// Forward of every data-parallel rank.
    pub forward_by_rank_ps: Vec<f64>,
    /// Forward and backward of every data-parallel rank.
    pub both_by_rank_ps: Vec<f64>,
    /// The same with transfers that take no time.
    pub compute_by_rank_ps: Vec<f64>,
    /// Backward of every data-parallel rank.
    pub backward_by_rank_ps: Vec<f64>,
    /// Tokens of every data-parallel rank's packed sequence.
    pub tokens_by_rank: Vec<f64>,
    /// `both_ps` at half and at double the bandwidth between nodes; 0 where the cell has no band.
    pub band_ps: [f64; 2],
    /// Busiest rank's bytes inside its node.
    pub sent_intra_bytes: f64,
    /// Busiest rank's bytes to other nodes.
    pub sent_inter_bytes: f64,
    /// Fullest rank's bytes.
    pub peak_bytes: f64,
}

impl WaveView {
    /// Forward of every data-parallel rank that has tokens, with so much linear work a token.
    pub fn forward_with_linear_ps(&self, linear_ps_per_token: f64) -> impl Iterator<Item = f64> + '_ {
        let ranks = self.forward_by_rank_ps.iter().zip(&self.tokens_by_rank).filter(|(_, tokens)| **tokens > 0.0);
        ranks.map(move |(ps, tokens)| ps + tokens * linear_ps_per_token)
    }
}

/// Waves of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepView {
    /// Waves, in order of execution.
    pub waves: Vec<WaveView>,
}

impl StepView {
    fn mean(&self, of: impl Fn(&WaveView) -> f64) -> f64 {
        self.waves.iter().map(of).sum::<f64>() / self.waves.len() as f64
    }

    /// Mean straggler latency of the step's waves.
    pub fn straggler_mean_ps(&self) -> f64 {
        self.mean(|w| w.both_ps)
    }

    /// Mean over the step's waves of something that each has.
    pub fn mean_of(&self, of: impl Fn(&WaveView) -> f64) -> f64 {
        self.mean(of)
    }

    /// Straggler latency of the step's slowest wave.
    pub fn straggler_max_ps(&self) -> f64 {
        self.waves.iter().map(|w| w.both_ps).fold(0.0, f64::max)
    }

    /// Tokens of the step.
    pub fn tokens(&self) -> f64 {
        self.waves.iter().flat_map(|w| &w.tokens_by_rank).sum()
    }

    /// Straggler latencies of the step's waves one after another.
    pub fn attention_ps(&self) -> f64 {
        self.waves.iter().map(|w| w.both_ps).sum()
    }

    /// Time of the step's waves one after another, each as long as its slowest data-parallel rank, with so much linear work
    /// a token.
    pub fn total_ps(&self, linear_ps_per_token: f64, with_transfers: bool) -> f64 {
        let wave = |w: &WaveView| {
            let attention = if with_transfers { &w.both_by_rank_ps } else { &w.compute_by_rank_ps };
            let ranks = attention.iter().zip(&w.tokens_by_rank);
            ranks.map(|(ps, tokens)| ps + tokens * linear_ps_per_token).fold(0.0, f64::max)
        };
        self.waves.iter().map(wave).sum()
    }

    /// Slowest over fastest forward of a micro-batch on a data-parallel rank, each with so much linear work a token.
    pub fn forward_spread(&self, linear_ps_per_token: f64) -> f64 {
        let all = || self.waves.iter().flat_map(|w| w.forward_with_linear_ps(linear_ps_per_token));
        all().fold(0.0, f64::max) / all().fold(f64::INFINITY, f64::min)
    }

    /// Waiting inside waves in time: sum of wave maxima over sum of wave means, less one.
    pub fn wave_r(&self) -> f64 {
        let max: f64 = self.waves.iter().map(|w| w.both_ps).sum();
        let mean: f64 = self
            .waves
            .iter()
            .map(|w| w.both_by_rank_ps.iter().sum::<f64>() / w.both_by_rank_ps.len().max(1) as f64)
            .sum();
        max / mean - 1.0
    }
}

/// All steps of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WavesView {
    /// Steps, in order.
    pub steps: Vec<StepView>,
    /// Steps after the end of the data, which run what a placement still held back.
    pub drain: Vec<StepView>,
    /// What a placement delayed.
    pub delay: Delay,
    /// True when the view holds only some waves of its steps, drawn from those after the warm-up.
    pub drawn: bool,
}

/// What a placement delayed over all steps of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delay {
    /// Tokens of every step that run in a later one than they were delivered in.
    pub late_tokens: Vec<f64>,
    /// Those tokens times the steps of their delay.
    pub late_token_steps: Vec<f64>,
    /// Tokens that were delivered in each step.
    pub delivered_tokens: Vec<f64>,
    /// Longest delay of a document, in steps.
    pub steps_max: u32,
    /// True when every step ran exactly the documents that were delivered in it.
    pub preserved: bool,
}

impl WavesView {
    /// Reads a cell's samples and steps.
    ///
    /// # Errors
    /// When a column is missing.
    pub fn of(table: &Table, steps: &Table) -> Result<Self, StoreError> {
        let column = |name: &str| table.u64(name);
        let (step, wave) = (table.u32("step")?, table.u32("wave")?);
        let (forward, backward) = (column("forward_ps")?, column("backward_ps")?);
        let (forward_compute, backward_compute) = (column("forward_compute_ps")?, column("backward_compute_ps")?);
        let (forward_transfer, backward_transfer) = (column("forward_transfer_ps")?, column("backward_transfer_ps")?);
        let (intra, inter, peak) = (column("sent_intra_bytes")?, column("sent_inter_bytes")?, column("peak_bytes")?);
        let (half, double) = (column("half_network_ps")?, column("double_network_ps")?);
        let tokens = column("tokens")?;
        let mut view = Self::default();
        let mut last = None;
        for row in 0..table.rows() {
            if last.map(|(s, _)| s) != Some(step[row]) {
                view.steps.push(StepView::default());
            }
            let Some(current) = view.steps.last_mut() else { continue };
            if last != Some((step[row], wave[row])) {
                current.waves.push(WaveView::default());
            }
            last = Some((step[row], wave[row]));
            let Some(w) = current.waves.last_mut() else { continue };
            let raise = |slot: &mut f64, value: u64| *slot = slot.max(value as f64);
            raise(&mut w.both_ps, forward[row] + backward[row]);
            raise(&mut w.forward_ps, forward[row]);
            raise(&mut w.backward_ps, backward[row]);
            raise(&mut w.compute_ps, forward_compute[row] + backward_compute[row]);
            raise(&mut w.transfer_ps, forward_transfer[row] + backward_transfer[row]);
            raise(&mut w.sent_intra_bytes, intra[row]);
            raise(&mut w.sent_inter_bytes, inter[row]);
            raise(&mut w.peak_bytes, peak[row]);
            w.forward_by_rank_ps.push(forward[row] as f64);
            w.both_by_rank_ps.push((forward[row] + backward[row]) as f64);
            w.backward_by_rank_ps.push(backward[row] as f64);
            w.tokens_by_rank.push(tokens[row] as f64);
            w.compute_by_rank_ps.push((forward_compute[row] + backward_compute[row]) as f64);
            raise(&mut w.band_ps[0], half[row]);
            raise(&mut w.band_ps[1], double[row]);
        }
        // Runs of versions that ran all waves do not say how many there are.
        let all: Option<u32> = steps.u32("waves").ok().map(|waves| waves.iter().sum());
        view.drawn = all.is_some_and(|all| view.steps.iter().map(|s| s.waves.len()).sum::<usize>() < all as usize);
        let drain = steps.bool("drain")?;
        view.drain = view.steps.split_off(drain.iter().filter(|drain| !**drain).count().min(view.steps.len()));
        view.delay = Delay::of(steps)?;
        Ok(view)
    }

    /// Holds the view against what its steps say: every step, wave and rank is there, and so are their tokens.
    ///
    /// # Errors
    /// What is missing or too much.
    pub fn check(&self, steps: &Table, dp: u32, planned: u32, some_waves: bool) -> Result<(), String> {
        let text = |e: StoreError| e.to_string();
        let described = self.steps.len() + self.drain.len() == steps.rows();
        if !described || (self.steps.len() != planned as usize && !some_waves) {
            return Err(format!(
                "{} of {planned} steps have samples, {} in all, {} are described",
                self.steps.len(),
                self.steps.len() + self.drain.len(),
                steps.rows()
            ));
        }
        let (waves, tokens) = (steps.u32("waves").map_err(text)?, steps.u64("placed_tokens").map_err(text)?);
        for (i, step) in self.steps.iter().chain(&self.drain).enumerate() {
            if let Some(wave) = step.waves.iter().find(|wave| wave.both_by_rank_ps.len() != dp as usize) {
                return Err(format!("a wave of step {i} has {} rows, not {dp}", wave.both_by_rank_ps.len()));
            }
            if some_waves {
                continue;
            }
            let found: f64 = step.waves.iter().flat_map(|w| &w.tokens_by_rank).sum();
            if step.waves.len() != waves[i] as usize || found != tokens[i] as f64 {
                return Err(format!(
                    "step {i} has {} waves of {found} tokens, not {} of {}",
                    step.waves.len(),
                    waves[i],
                    tokens[i]
                ));
            }
        }
        Ok(())
    }

    /// Steps that a placement needs before as much comes out of its queue as goes in: the longest delay, at most half of the
    /// steps; none for placements that hold nothing back.
    pub fn warm_up(&self) -> usize {
        if self.drawn {
            return 0;
        }
        (self.delay.steps_max as usize).min(self.steps.len() / 2)
    }

    /// Steps after the warm-up.
    pub fn settled(&self) -> &[StepView] {
        &self.steps[self.warm_up()..]
    }

    /// Steps that both views have and that come after the warm-up of either.
    pub fn settled_in_both(&self, other: &Self) -> Range<usize> {
        let common = self.steps.len().min(other.steps.len());
        self.warm_up().max(other.warm_up()).min(common)..common
    }

    /// One value a step, the warm-up left out.
    pub fn by_step(&self, of: impl Fn(&StepView) -> f64) -> Vec<f64> {
        self.settled().iter().map(of).collect()
    }

    /// A quantity of every step. What steps after the end of the data add is shared evenly among the steps, so that sums
    /// over all steps are those of everything that ran.
    pub fn by_step_with_drain(&self, of: impl Fn(&StepView) -> f64) -> Vec<f64> {
        let share = self.drain.iter().map(&of).sum::<f64>() / self.steps.len().max(1) as f64;
        self.steps.iter().map(|step| of(step) + share).collect()
    }

    /// True when steps depend on those before them.
    pub fn stateful(&self) -> bool {
        !self.drain.is_empty() || self.delay.steps_max > 0
    }

    /// Consecutive steps that are drawn together for intervals: as many as the longest delay and one more, at most a quarter
    /// of the steps; 1 where steps do not depend on one another.
    pub fn block(&self) -> usize {
        if self.stateful() { (self.delay.steps_max as usize + 1).min(self.steps.len() / 4).max(1) } else { 1 }
    }

    /// Attention of every wave by data-parallel rank with transfers that take no time, in picoseconds.
    pub fn compute_by_wave(&self) -> Vec<Vec<u64>> {
        let waves = self.steps.iter().flat_map(|s| &s.waves);
        waves.map(|w| w.compute_by_rank_ps.iter().map(|ps| *ps as u64).collect()).collect()
    }

    /// Hidden share of the transfers of each step: (T - exposed) / ((M - 1) / M x T), T the transfers of the step's waves
    /// alone, exposed the waves less their computation alone. Steps without transfers are left out.
    pub fn hidden_share(&self, pieces: u32) -> Vec<f64> {
        let hideable = 1.0 - 1.0 / f64::from(pieces.max(2));
        self.settled()
            .iter()
            .filter_map(|step| {
                let transfers: f64 = step.waves.iter().map(|w| w.transfer_ps).sum();
                let exposed: f64 = step.waves.iter().map(|w| w.both_ps - w.compute_ps).sum();
                (transfers > 0.0).then(|| (transfers - exposed) / (hideable * transfers))
            })
            .collect()
    }
}

impl Delay {
    fn of(steps: &Table) -> Result<Self, StoreError> {
        let numbers = |name: &str| Ok::<_, StoreError>(steps.u64(name)?.iter().map(|v| *v as f64).collect::<Vec<_>>());
        Ok(Self {
            late_tokens: numbers("late_tokens")?,
            late_token_steps: numbers("late_token_steps")?,
            delivered_tokens: numbers("delivered_tokens")?,
            steps_max: steps.u32("late_steps_max")?.iter().copied().max().unwrap_or(0),
            preserved: steps.bool("preserved")?.iter().all(|p| *p),
        })
    }

    /// Share of all tokens that ran in a later step than they were delivered in.
    pub fn late_share(&self) -> f64 {
        self.late_tokens.iter().sum::<f64>() / self.delivered_tokens.iter().sum::<f64>()
    }

    /// Mean delay of those tokens in steps; 0 when there are none.
    pub fn mean_steps(&self) -> f64 {
        let late: f64 = self.late_tokens.iter().sum();
        if late > 0.0 { self.late_token_steps.iter().sum::<f64>() / late } else { 0.0 }
    }
}
