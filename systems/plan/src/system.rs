use std::ops::Range;

use crate::{AttentionShape, Cost, Layout, PackedSequence, Plan, Step, SystemError};

/// What a placement may know beside the step.
#[derive(Clone, Copy, Debug)]
pub struct PlaceContext {
    /// The job's layout.
    pub layout: Layout,
    /// Sequences of a pool, P; cut to DP where DP < P.
    pub pool: u32,
    /// Seed of the placement's own stream for this step.
    pub seed: u64,
}

impl PlaceContext {
    /// Data-parallel ranks of every pool of a wave: P at a time, the last pool smaller where P does not divide DP.
    pub fn pools(&self) -> Vec<Range<u32>> {
        let dp = self.layout.dp;
        let pool = self.pool.clamp(1, dp);
        (0..dp).step_by(pool as usize).map(|start| start..(start + pool).min(dp)).collect()
    }
}

/// The sequences that execute at once, one a data-parallel rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// `sequences[dp rank]`: index into [`PlacedStep::sequences`].
    pub sequences: Vec<u32>,
}

/// A step dealt to data-parallel ranks and waves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedStep {
    /// The step's packed sequences; the step's own unless the placement repacks.
    pub sequences: Vec<PackedSequence>,
    /// Waves in order of execution.
    pub waves: Vec<Wave>,
    /// Data-parallel ranks of each pool, the same in every wave.
    pub pools: Vec<Range<u32>>,
    /// True when the multiset of the step's documents is what the data loader delivered.
    pub preserved: bool,
    /// Tokens that were put off to a later step.
    pub delayed_tokens: u64,
}

/// Deals the sequences of steps to ranks. May keep state between steps.
pub trait Placer: Send {
    /// Places one step.
    ///
    /// # Errors
    /// When the step does not fit the layout.
    fn place(&mut self, step: &Step, context: &PlaceContext) -> Result<PlacedStep, SystemError>;
}

/// A placement algorithm.
pub trait Placement: Send + Sync {
    /// Its name in pairs such as `ulysses+sorted`.
    fn name(&self) -> &str;

    /// True when a step's placement depends on the steps before it, so that steps must be placed in order by one placer.
    fn stateful(&self) -> bool {
        false
    }

    /// A placer at the start of a stream of steps.
    fn placer(&self) -> Box<dyn Placer + '_>;
}

/// Which ranks plan together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The CP group of one sequence.
    Sequence,
    /// The P sequences of a pool.
    Pool,
    /// All sequences of a wave.
    Wave,
}

/// The ranks that exchange work in one wave, and their sequences.
///
/// Rank `s * cp + c` is context-parallel rank `c` of the data-parallel rank that holds sequence `s`.
#[derive(Clone, Copy)]
pub struct Domain<'a> {
    /// One packed sequence a data-parallel rank of the domain.
    pub sequences: &'a [&'a PackedSequence],
    /// Context-parallel ranks of a sequence.
    pub cp: u32,
    /// Heads of one tensor-parallel shard.
    pub shape: AttentionShape,
    /// Node of every rank.
    pub nodes: &'a [u32],
    /// Predicted times.
    pub cost: &'a dyn Cost,
}

impl Domain<'_> {
    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.sequences.len() as u32 * self.cp
    }
}

/// A planning algorithm.
pub trait Planner: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// Which ranks plan together.
    fn scope(&self) -> Scope;

    /// Plans the attention of one domain, forward and backward.
    ///
    /// # Errors
    /// When an option does not suit the domain.
    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError>;
}
