use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewbench_plan::Pass;

use crate::{Pricing, Profile};

/// Picoseconds of token-wise work per token of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinearCost {
    /// Forward.
    pub forward_ps_per_token: f64,
    /// Backward.
    pub backward_ps_per_token: f64,
}

impl LinearCost {
    /// Picoseconds per token in `pass`.
    pub fn of(&self, pass: Pass) -> f64 {
        match pass {
            Pass::Forward => self.forward_ps_per_token,
            Pass::Backward => self.backward_ps_per_token,
        }
    }
}

/// The cards that run one program.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Prices of calls and links.
    pub pricing: Arc<Pricing>,
    /// Node of every rank of the program.
    pub nodes: Vec<u32>,
    /// Cards of a node. Ranks of other programs on the node get their share of what the node's cards share.
    pub cards_per_node: u32,
    /// Time of every rank's kernels over the nominal time, 1 = nominal. Missing ranks are nominal.
    pub time_factors: Vec<f64>,
    /// Token-wise work that a program may contain.
    pub linear: LinearCost,
}

impl Machine {
    /// Nominal cards on the given nodes, eight a node, without token-wise work.
    pub fn new(pricing: Arc<Pricing>, nodes: Vec<u32>) -> Self {
        Self { pricing, nodes, cards_per_node: 8, time_factors: Vec::new(), linear: LinearCost::default() }
    }
}

/// Stream of the card speeds below a master seed.
const CARD_SPEED_STREAM: u64 = 0x6361_7264_7370_6565;

impl Profile {
    /// Time factors of the job's cards, lognormal with mean 1 and the profile's relative standard deviation. Card `i` has the same factor
    /// however many cards there are.
    pub fn card_time_factors(&self, cards: usize, seed: u64) -> Vec<f64> {
        let sd = self.card_speed.relative_sd;
        if sd == 0.0 {
            return vec![1.0; cards];
        }
        let variance = libm::log1p(sd * sd);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(CARD_SPEED_STREAM);
        (0..cards)
            .map(|_| {
                let (u, v): (f64, f64) = (rng.random(), rng.random());
                let normal = libm::sqrt(-2.0 * libm::log(1.0 - u)) * libm::cos(2.0 * std::f64::consts::PI * v);
                libm::exp(libm::sqrt(variance) * normal - 0.5 * variance)
            })
            .collect()
    }
}
