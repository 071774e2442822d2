use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::check::shape;
use crate::{HeadRange, MoveIndices, OpId, Order, Pass, Plan, PlanError, Provider, RankSlabs, Tensor, TensorSet};

/// What follows from a plan's tables and streams alone; the checker and the lowering both need it.
#[derive(Clone, Debug)]
pub struct Facts {
    forward: PassFacts,
    backward: PassFacts,
}

/// [`Facts`] of one pass.
#[derive(Clone, Debug)]
pub struct PassFacts {
    /// Moves of every span by rank.
    pub indices: MoveIndices,
    /// Slabs of every rank.
    pub slabs: Vec<RankSlabs>,
    /// Happens-before on every rank.
    pub order: Order,
}

/// Where the operands of one launch lie.
#[derive(Clone, Debug, Default)]
pub struct LaunchOperands {
    /// For each entry of [`operands`], slabs of the rank that hold its tensors for the launch's heads.
    pub slabs: [SlabList; 4],
    /// For each tile of the launch, its rows in one of those slabs; launches that find the same share them.
    pub rows: Arc<[TileRows]>,
}

/// Indices of slabs of a rank. Few need no memory of their own.
#[derive(Clone, Debug)]
pub enum SlabList {
    /// The first so many of these.
    Few(usize, [usize; 2]),
    /// All of these.
    Many(Vec<usize>),
}

impl Default for SlabList {
    fn default() -> Self {
        Self::Few(0, [0; 2])
    }
}

impl Deref for SlabList {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match self {
            Self::Few(len, list) => list.get(..*len).unwrap_or_default(),
            Self::Many(list) => list,
        }
    }
}

impl DerefMut for SlabList {
    fn deref_mut(&mut self) -> &mut [usize] {
        match self {
            Self::Few(len, list) => list.get_mut(..*len).unwrap_or_default(),
            Self::Many(list) => list,
        }
    }
}

impl FromIterator<usize> for SlabList {
    fn from_iter<I: IntoIterator<Item = usize>>(slabs: I) -> Self {
        let mut all = Self::default();
        for slab in slabs {
            match &mut all {
                Self::Few(len, list) if *len < list.len() => {
                    list[*len] = slab;
                    *len += 1;
                }
                Self::Few(_, list) => {
                    let mut list = list.to_vec();
                    list.push(slab);
                    all = Self::Many(list);
                }
                Self::Many(list) => list.push(slab),
            }
        }
        all
    }
}

/// Places of one tile's operands: for each entry of [`operands`], position in [`LaunchOperands::slabs`] and row there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileRows {
    /// Places.
    pub at: [(u16, u32); 4],
}

/// Operands of all launches of a pass.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    /// By rank, then by launch in the order of the compute stream.
    pub ranks: Vec<Vec<LaunchOperands>>,
}

impl Facts {
    /// Works out the facts of a plan.
    ///
    /// # Errors
    /// When an index of the plan is outside its table, a shard layout does not partition the sequences, or operations
    /// wait for each other.
    pub fn of(plan: &Plan) -> Result<Self, PlanError> {
        shape::check(plan)?;
        let mut forward = MoveIndices::of(&plan.forward, plan.ranks);
        let mut backward = MoveIndices::beside(&plan.backward, plan.ranks, &plan.forward, &forward);
        let order = Order::of(plan, Pass::Forward, &forward)?;
        let backward_order = Order::of(plan, Pass::Backward, &backward)?;
        let [slabs, backward_slabs] = RankSlabs::both(plan, [&forward, &backward]);
        let homes: Vec<_> = backward_slabs.iter().map(RankSlabs::home).collect();
        forward.find_homeward(&plan.forward, &homes);
        backward.find_homeward(&plan.backward, &homes);
        Ok(Self {
            forward: PassFacts { indices: forward, slabs, order },
            backward: PassFacts { indices: backward, slabs: backward_slabs, order: backward_order },
        })
    }

    /// Facts of one pass.
    pub fn pass(&self, pass: Pass) -> &PassFacts {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
        }
    }
}

impl PassFacts {
    /// Indices of the slabs of `rank` that hold `tensors` of `heads` when `op` starts, the latest provider first.
    pub fn candidates(&self, rank: u32, op: OpId, tensors: TensorSet, heads: HeadRange) -> SlabList {
        candidates(&self.slabs[rank as usize], &self.order, rank, op, tensors, heads)
    }
}

pub(crate) fn candidates(
    slabs: &RankSlabs,
    order: &Order,
    rank: u32,
    op: OpId,
    tensors: TensorSet,
    heads: HeadRange,
) -> SlabList {
    let ready = |provider: Provider| match provider {
        Provider::Entry | Provider::Exit | Provider::Kept(_) => true,
        Provider::Call(call) => order.post(rank, call).is_some_and(|post| order.before(rank, post, op)),
    };
    let slabs = slabs.slabs.iter().enumerate().rev();
    slabs.filter(|(_, s)| s.holds(tensors, heads) && ready(s.provider)).map(|(i, _)| i).collect()
}

/// Tensors that a launch reads, and whether its key rows (rather than its query rows) index them.
pub fn operands(pass: Pass) -> &'static [(TensorSet, bool)] {
    const FORWARD: &[(TensorSet, bool)] = &[(TensorSet::Q, false), (TensorSet::KV, true)];
    const BACKWARD: &[(TensorSet, bool)] = &[
        (TensorSet::Q, false),
        (TensorSet::KV, true),
        (TensorSet::of(&[Tensor::DO]), false),
        (TensorSet::O_LSE, false),
    ];
    match pass {
        Pass::Forward => FORWARD,
        Pass::Backward => BACKWARD,
    }
}
