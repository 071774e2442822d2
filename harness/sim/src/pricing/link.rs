use crate::profile::Link;

/// A link as latency plus a monotone function of the bytes that a card sends in one call.
#[derive(Clone, Debug)]
pub(crate) struct LinkFit {
    latency_ps: u64,
    /// Bytes, and picoseconds beyond the latency.
    points: Vec<(f64, f64)>,
}

impl LinkFit {
    /// Makes the points monotone (mean of the largest before and the smallest after); the first is the latency.
    pub(crate) fn new(link: &Link) -> Self {
        let mut points: Vec<(f64, f64)> =
            link.points_bytes_ns.iter().map(|(bytes, ns)| (*bytes as f64, ns * 1e3)).collect();
        let mut below: Vec<f64> = points.iter().map(|p| p.1).collect();
        let mut above = below.clone();
        for i in 1..below.len() {
            below[i] = below[i].max(below[i - 1]);
        }
        for i in (1..above.len()).rev() {
            above[i - 1] = above[i - 1].min(above[i]);
        }
        let latency = points.first().map_or(0.0, |_| 0.5 * (below[0] + above[0]));
        for (point, (low, high)) in points.iter_mut().zip(below.iter().zip(&above)) {
            point.1 = 0.5 * (low + high) - latency;
        }
        Self { latency_ps: latency as u64, points }
    }

    /// Picoseconds before the first byte arrives.
    pub(crate) fn latency_ps(&self) -> u64 {
        self.latency_ps
    }

    /// Picoseconds a byte when a card sends `bytes` in one call; beyond the largest point at that point's bandwidth.
    pub(crate) fn ps_per_byte(&self, bytes: u64) -> f64 {
        if bytes == 0 {
            return 0.0;
        }
        let bytes = bytes as f64;
        match self.points.last() {
            Some((last, ps)) if bytes >= *last => ps / last,
            _ => self.between(bytes) / bytes,
        }
    }

    /// Picoseconds of `bytes`, linear between points, below the last one.
    fn between(&self, bytes: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= bytes);
        let (Some(left), Some(right)) = (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) else {
            return self.points.first().map_or(0.0, |point| point.1);
        };
        left.1 + (right.1 - left.1) * ((bytes - left.0) / (right.0 - left.0))
    }

    /// Picoseconds a byte of a large transfer.
    pub(crate) fn bulk_ps_per_byte(&self) -> f64 {
        self.ps_per_byte(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::LinkFit;
    use crate::Profile;

    #[test]
    fn time_is_monotone_in_bytes() {
        let profile = Profile::named("h200").expect("built in");
        for link in [&profile.intra_node.nccl, &profile.intra_node.copy_engines] {
            let fit = LinkFit::new(link);
            let mut before = 0.0;
            for step in 0..4000u64 {
                let bytes = 1 + step * step * 200;
                let ps = fit.ps_per_byte(bytes) * bytes as f64;
                assert!(ps >= before - 1e-3, "{bytes} bytes: {ps} after {before}");
                before = ps;
            }
        }
    }
}
