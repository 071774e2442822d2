use super::WavesView;

/// Linear work of one micro-batch on one card, for one layer, forward and backward, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearTimes {
    /// Forward.
    pub forward_ps: f64,
    /// Backward, recomputation included.
    pub backward_ps: f64,
}

impl LinearTimes {
    /// Both together.
    pub fn both_ps(self) -> f64 {
        self.forward_ps + self.backward_ps
    }
}

/// The linear time of a micro-batch with which the throughput at `scaled` over that at `single` is `target`, the
/// throughput of the same steps on one data-parallel rank being the reference: a wait for the slowest rank at every
/// micro-batch, transfers left out. `None` when no time gives it.
///
/// With linear time l, scaling = DP x sum(l + single) / (N x sum(l + scaled wave)) falls as attention gains weight.
pub fn fit_linear(single: &WavesView, scaled: &WavesView, dp: f64, target: f64) -> Option<f64> {
    let scaling = |linear: f64| {
        let total = |view: &WavesView| view.steps.iter().map(|s| s.total_ps(linear, false)).sum::<f64>();
        total(single) / total(scaled)
    };
    // Cards grow by DP while the waves of a step shrink by DP, so pure linear work scales by DP exactly.
    let (mut low, mut high) = (0.0, 1e18);
    if !(scaling(low) < target && target < dp) {
        return None;
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if scaling(middle) < target { low = middle } else { high = middle }
    }
    Some(0.5 * (low + high))
}
