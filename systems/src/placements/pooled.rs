use skewbench_plan::{PlaceContext, PlacedStep, Placement, PlacementBound, Placer, Step, SystemError, Wave, Worker};

use super::work::lpt_bound;
use super::{Deal, Grouping, Measure, group};

/// A placement that groups a step's sequences into pools and deals the pools to waves.
#[derive(Clone, Copy, Debug)]
pub struct Pooled {
    /// How pools are made.
    pub grouping: Grouping,
    /// What counts as work.
    pub measure: Measure,
    /// How pools are dealt to waves.
    pub deal: Deal,
}

impl Placement for Pooled {
    fn name(&self) -> &str {
        self.grouping.name()
    }

    fn pooled(&self) -> bool {
        true
    }

    fn placer(&self) -> Box<dyn Placer + '_> {
        Box::new(*self)
    }

    /// VRSP over pools of one size: the mean of the pools and one sequence.
    fn load_bound(&self, step: &Step, context: &PlaceContext<'_>) -> Option<PlacementBound> {
        let pools = context.pools();
        let even = pools.iter().all(|p| p.len() == pools[0].len());
        let waves = step.sequences.len() as u32 / context.layout.dp.max(1);
        let pairs = lpt_bound(step, self.measure, waves.saturating_mul(pools.len() as u32))?;
        (even && self.grouping == Grouping::Vrsp).then_some(PlacementBound { over: Worker::Pool, pairs })
    }
}

impl Placer for Pooled {
    fn place(&mut self, step: &Step, context: &PlaceContext<'_>) -> Result<PlacedStep, SystemError> {
        let waves = waves_of(step, context)?;
        let pools = context.pools();
        let work = self.measure.on(&step.sequences, context.shape, context.cost);
        let capacities: Vec<u32> = (0..waves).flat_map(|_| pools.iter().map(|p| p.end - p.start)).collect();
        let groups = group(&work, &capacities, self.grouping, context.seed)?;
        Ok(placed(step, context, self.deal.waves(&groups, &work, waves, &pools)))
    }
}

/// Number of waves of a step.
pub(crate) fn waves_of(step: &Step, context: &PlaceContext<'_>) -> Result<usize, SystemError> {
    let (gbs, dp) = (step.sequences.len(), context.layout.dp as usize);
    if dp == 0 || gbs == 0 || !gbs.is_multiple_of(dp) {
        let what = format!("gbs = {gbs} sequences cannot be dealt to dp = {dp} ranks; choose dp that divides gbs");
        return Err(SystemError::Impossible(what));
    }
    Ok(gbs / dp)
}

/// A placed step that only reorders the sequences of `step`.
pub(crate) fn placed(step: &Step, context: &PlaceContext<'_>, waves: Vec<Vec<u32>>) -> PlacedStep {
    PlacedStep {
        sequences: step.sequences.clone(),
        waves: waves.into_iter().map(|sequences| Wave { sequences }).collect(),
        pools: context.pools(),
        preserved: true,
        late: Vec::new(),
        delayed_tokens: 0,
    }
}
