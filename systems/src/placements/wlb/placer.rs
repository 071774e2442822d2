use skewbench_plan::{LateDocument, PackedSequence, PlaceContext, PlacedStep, Placer, Step, SystemError, Wave};

use super::super::pooled::waves_of;
use super::micro_batches::MicroBatches;
use super::queues::Queues;
use super::{Deferral, Document, Packing};

/// Packs the steps of a stream.
pub(super) struct WlbPlacer {
    packing: Packing,
    max_delay: u64,
    queues: Queues,
    /// Documents that fitted nowhere.
    left: Vec<Document>,
    /// Number of the next step.
    now: u64,
    /// Micro-batches and window of the last step.
    last: (usize, u32),
}

impl WlbPlacer {
    pub(super) fn new(packing: Packing, deferral: Deferral) -> Self {
        let max_delay = deferral.max_delay;
        Self { packing, max_delay, queues: Queues::new(deferral), left: Vec::new(), now: 0, last: (0, 0) }
    }

    /// Packs what is ready into a step of `count` micro-batches; keeps what does not fit.
    fn pack(&mut self, ready: Vec<Document>, (count, window): (usize, u32)) -> MicroBatches {
        let mut packed = MicroBatches::new(self.packing, count, window);
        let (overdue, ready): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|d| self.now - d.delivered >= self.max_delay);
        let beyond = packed.pack(overdue);
        packed.force(beyond);
        let (beyond, left) = packed.pack(ready).into_iter().partition(|d| packed.never_fits(d));
        packed.force(beyond);
        self.left = left;
        while let Some((index, document)) = packed.empty().and_then(|i| Some((i, self.queues.take_oldest()?))) {
            packed.add(index, document);
        }
        packed
    }

    /// The step of these micro-batches, which delivered `fresh` documents; ends the step.
    fn placed(&mut self, packed: &MicroBatches, fresh: usize, context: &PlaceContext<'_>) -> PlacedStep {
        let late: Vec<LateDocument> = packed
            .documents
            .iter()
            .flatten()
            .filter(|document| document.delivered < self.now)
            .map(|document| LateDocument {
                tokens: document.tokens,
                steps: u32::try_from(self.now - document.delivered).unwrap_or(u32::MAX),
            })
            .collect();
        self.now += 1;
        let wave = |sequences: &[u32]| Wave { sequences: sequences.to_vec() };
        PlacedStep {
            sequences: packed.documents.iter().map(|d| PackedSequence::new(d.iter().map(|d| d.tokens))).collect(),
            waves: packed.dealt().chunks(context.layout.dp as usize).map(wave).collect(),
            pools: context.pools(),
            preserved: late.is_empty() && packed.documents.iter().map(Vec::len).sum::<usize>() == fresh,
            late,
            delayed_tokens: tokens(&self.left) + self.queues.tokens(),
        }
    }
}

fn tokens(documents: &[Document]) -> u64 {
    documents.iter().map(|document| u64::from(document.tokens)).sum()
}

impl Placer for WlbPlacer {
    fn place(&mut self, step: &Step, context: &PlaceContext<'_>) -> Result<PlacedStep, SystemError> {
        waves_of(step, context)?;
        self.last = (step.sequences.len(), step.window);
        let mut ready = std::mem::take(&mut self.left);
        let mut fresh = 0;
        for &tokens in step.sequences.iter().flat_map(|s| s.documents()) {
            fresh += 1;
            ready.extend(self.queues.admit(Document { tokens, delivered: self.now }, step.window));
        }
        ready.extend(self.queues.release(step.sequences.len(), self.now));
        let packed = self.pack(ready, self.last);
        Ok(self.placed(&packed, fresh, context))
    }

    fn finish(&mut self, context: &PlaceContext<'_>) -> Result<Vec<PlacedStep>, SystemError> {
        let (count, window) = self.last;
        let dp = context.layout.dp as usize;
        if dp == 0 {
            let what = "documents that wait cannot be dealt to dp = 0 ranks; choose dp of at least 1".to_owned();
            return Err(SystemError::Impossible(what));
        }
        let most = (count / dp).max(1) as u64;
        let mut steps = Vec::new();
        self.left.extend(self.queues.take_all());
        while !self.left.is_empty() {
            let ready = std::mem::take(&mut self.left);
            let a_wave = (u64::from(window) * dp as u64).max(1);
            let waves = tokens(&ready).div_ceil(a_wave).clamp(1, most);
            let packed = self.pack(ready, (waves as usize * dp, window));
            steps.push(self.placed(&packed, 0, context));
        }
        Ok(steps)
    }
}
