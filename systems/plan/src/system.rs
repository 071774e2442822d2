use std::ops::Range;

use crate::{AttentionShape, Cost, Layout, PackedSequence, Plan, Step, SystemError};

/// What a placement may know beside the step.
#[derive(Clone, Copy)]
pub struct PlaceContext<'a> {
    /// The job's layout.
    pub layout: Layout,
    /// Sequences of a pool, P; cut to DP where DP < P.
    pub pool: u32,
    /// Seed of the placement's own stream for this step.
    pub seed: u64,
    /// Heads of one tensor-parallel shard.
    pub shape: AttentionShape,
    /// Predicted times.
    pub cost: &'a dyn Cost,
}

impl PlaceContext<'_> {
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
    /// Documents of earlier steps that run in this one.
    pub late: Vec<LateDocument>,
    /// Tokens that wait for a later step once this one is placed.
    pub delayed_tokens: u64,
}

impl PlacedStep {
    /// Data-parallel ranks of each domain of a wave: the ranks of `dp` that plan together.
    pub fn domains(&self, scope: Scope, dp: u32) -> Vec<Range<u32>> {
        match scope {
            Scope::Sequence => (0..dp).map(|rank| rank..rank + 1).collect(),
            Scope::Pool => self.pools.clone(),
            Scope::Wave => std::iter::once(0..dp).collect(),
        }
    }
}

/// A document that runs in a later step than the one it was delivered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LateDocument {
    /// Its length.
    pub tokens: u32,
    /// How many steps later.
    pub steps: u32,
}

/// Deals the sequences of steps to ranks. May keep state between steps.
pub trait Placer: Send {
    /// Places one step.
    ///
    /// # Errors
    /// When the step does not fit the layout.
    fn place(&mut self, step: &Step, context: &PlaceContext<'_>) -> Result<PlacedStep, SystemError>;

    /// Steps that run what is still held back once the data has ended; none for placements that hold nothing back.
    ///
    /// # Errors
    /// When what is held back does not fit the layout.
    fn finish(&mut self, context: &PlaceContext<'_>) -> Result<Vec<PlacedStep>, SystemError> {
        let _ = context;
        Ok(Vec::new())
    }
}

/// A placement algorithm.
pub trait Placement: Send + Sync {
    /// Its name in pairs such as `ulysses+sorted`.
    fn name(&self) -> &str;

    /// True when a step's placement depends on the steps before it, so that steps must be placed in order by one placer.
    fn stateful(&self) -> bool {
        false
    }

    /// True when it groups sequences into pools, so that what it does depends on P.
    fn pooled(&self) -> bool {
        false
    }

    /// A placer at the start of a stream of steps.
    fn placer(&self) -> Box<dyn Placer + '_>;

    /// Work that no pool or rank exceeds once the step is placed, worked out from the sequences alone; `None` for placements
    /// that promise no balance.
    fn load_bound(&self, step: &Step, context: &PlaceContext<'_>) -> Option<PlacementBound> {
        let _ = (step, context);
        None
    }
}

/// The balance that a placement promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementBound {
    /// Whose work is bounded.
    pub over: Worker,
    /// Pairs that none of them exceeds.
    pub pairs: u64,
}

/// Who is balanced by a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// Every pool of every wave.
    Pool,
    /// Every data-parallel rank, over all waves of the step.
    Rank,
}

impl Worker {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Rank => "data-parallel rank",
        }
    }

    /// The heaviest worker of a placed step, with its pairs. Pools are numbered over all waves.
    pub fn heaviest(self, placed: &PlacedStep) -> (usize, u64) {
        let pairs = |s: &u32| placed.sequences.get(*s as usize).map_or(0, PackedSequence::pairs);
        let loads: Vec<u64> = match self {
            Self::Pool => {
                let of = |wave: &Wave, pool: &Range<u32>| {
                    wave.sequences
                        .get(pool.start as usize..pool.end as usize)
                        .unwrap_or_default()
                        .iter()
                        .map(pairs)
                        .sum()
                };
                placed.waves.iter().flat_map(|wave| placed.pools.iter().map(move |pool| of(wave, pool))).collect()
            }
            Self::Rank => {
                let ranks = placed.waves.iter().map(|w| w.sequences.len()).max().unwrap_or(0);
                (0..ranks).map(|r| placed.waves.iter().filter_map(|w| w.sequences.get(r)).map(pairs).sum()).collect()
            }
        };
        loads.into_iter().enumerate().max_by_key(|(i, load)| (*load, std::cmp::Reverse(*i))).unwrap_or_default()
    }
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
    /// Time of every rank's card over the nominal time; empty when all cards are nominal or their speeds are not known.
    pub time_factors: &'a [f64],
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

    /// Pairs x query heads that no rank of [`plan`](Self::plan)'s result exceeds in a pass: the balance that the planner
    /// promises, worked out from the documents and not from the plan.
    ///
    /// # Errors
    /// When the planner cannot plan the domain.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError>;

    /// False when plans come from outside the program: they are checked even where an experiment switches checking off.
    fn trusted(&self) -> bool {
        true
    }
}
