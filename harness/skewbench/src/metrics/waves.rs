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
    /// `both_ps` at half and at double the bandwidth between nodes; 0 where the cell has no band.
    pub band_ps: [f64; 2],
    /// Busiest rank's bytes inside its node.
    pub sent_intra_bytes: f64,
    /// Busiest rank's bytes to other nodes.
    pub sent_inter_bytes: f64,
    /// Fullest rank's bytes.
    pub peak_bytes: f64,
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

    /// The same of one pass.
    pub fn straggler_mean_of(&self, of: impl Fn(&WaveView) -> f64) -> f64 {
        self.mean(of)
    }

    /// Straggler latency of the step's slowest wave.
    pub fn straggler_max_ps(&self) -> f64 {
        self.waves.iter().map(|w| w.both_ps).fold(0.0, f64::max)
    }

    /// Time of the step's waves one after another, each with so much linear work.
    pub fn total_ps(&self, linear_ps: f64, with_transfers: bool) -> f64 {
        self.waves.iter().map(|w| linear_ps + if with_transfers { w.both_ps } else { w.compute_ps }).sum()
    }

    /// Slowest over fastest forward of a micro-batch on a data-parallel rank, each with so much linear work.
    pub fn forward_spread(&self, linear_ps: f64) -> f64 {
        let all = || self.waves.iter().flat_map(|w| w.forward_by_rank_ps.iter().map(|f| f + linear_ps));
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
}

impl WavesView {
    /// Reads a cell's samples.
    ///
    /// # Errors
    /// When a column is missing.
    pub fn of(table: &Table) -> Result<Self, StoreError> {
        let column = |name: &str| table.u64(name);
        let (step, wave) = (table.u32("step")?, table.u32("wave")?);
        let (forward, backward) = (column("forward_ps")?, column("backward_ps")?);
        let (forward_compute, backward_compute) = (column("forward_compute_ps")?, column("backward_compute_ps")?);
        let (forward_transfer, backward_transfer) = (column("forward_transfer_ps")?, column("backward_transfer_ps")?);
        let (intra, inter, peak) = (column("sent_intra_bytes")?, column("sent_inter_bytes")?, column("peak_bytes")?);
        let (half, double) = (column("half_network_ps")?, column("double_network_ps")?);
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
            w.compute_by_rank_ps.push((forward_compute[row] + backward_compute[row]) as f64);
            raise(&mut w.band_ps[0], half[row]);
            raise(&mut w.band_ps[1], double[row]);
        }
        Ok(view)
    }

    /// One value a step.
    pub fn by_step(&self, of: impl Fn(&StepView) -> f64) -> Vec<f64> {
        self.steps.iter().map(of).collect()
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
        self.steps
            .iter()
            .filter_map(|step| {
                let transfers: f64 = step.waves.iter().map(|w| w.transfer_ps).sum();
                let exposed: f64 = step.waves.iter().map(|w| w.both_ps - w.compute_ps).sum();
                (transfers > 0.0).then(|| (transfers - exposed) / (hideable * transfers))
            })
            .collect()
    }
}
