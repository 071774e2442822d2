use std::collections::HashMap;

use skewbench_cuda::CudaError;
use skewbench_cuda::attention::LaunchTimer;
use skewbench_plan::{Cost, LaunchShape};
use skewbench_sim::{Pricing, Profile};

/// What a launch takes.
pub enum Law {
    /// The built-in profile's price.
    Exact,
    /// So many times that.
    Factor(f64),
    /// That, with noise of this relative size that depends on the launch and the call.
    Noise(f64),
    /// That; no memory for launches of so many heads.
    NoMemoryFor { q_heads: u32 },
}

/// A card made of the built-in profile.
pub struct FakeCard {
    pricing: Pricing,
    law: Law,
    timed: HashMap<String, u32>,
}

impl FakeCard {
    pub fn new(law: Law) -> Self {
        let profile = Profile::named("h200").expect("built in");
        Self { pricing: Pricing::new(profile), law, timed: HashMap::new() }
    }

    /// Launches that were timed.
    pub fn calls(&self) -> u32 {
        self.timed.values().sum()
    }

    /// Launches that were timed again.
    pub fn repeated(&self) -> u32 {
        self.timed.values().map(|n| n - 1).sum()
    }
}

impl LaunchTimer for FakeCard {
    fn time(&mut self, launch: &LaunchShape<'_>, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        assert_eq!(warm_up, 0, "warm-up is kept");
        let key = format!("{launch:?}");
        *self.timed.entry(key.clone()).or_default() += 1;
        let price_ns = self.pricing.launch_ps(launch) as f64 * 1e-3;
        let noise = |call: u32| {
            let hash = blake3::hash(format!("{key} {call}").as_bytes());
            f64::from(u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])) / f64::from(u16::MAX) - 0.5
        };
        match self.law {
            Law::NoMemoryFor { q_heads } if launch.q_heads == q_heads => {
                Err(CudaError::Memory { card: 0, needed: 2, free: 1 })
            }
            Law::Exact | Law::NoMemoryFor { .. } => Ok(vec![price_ns; repeats as usize]),
            Law::Factor(factor) => Ok(vec![price_ns * factor; repeats as usize]),
            Law::Noise(size) => Ok((0..repeats).map(|call| price_ns * (1.0 + 2.0 * size * noise(call))).collect()),
        }
    }
}
