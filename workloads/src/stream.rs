use std::sync::{Arc, Mutex, PoisonError};

use crate::error::WorkloadError;
use crate::pack::Packer;
use crate::rng::Draws;
use crate::workload::Workload;

/// Document lengths of one packed window, in packing order. They are at least 1 and sum to the window.
pub type Window = Box<[u32]>;

/// Documents drawn at a time: enough to keep the packer and the sampler in cache.
const BATCH: usize = 512;
/// Documents that a chunk holds at most by default, 64 MiB.
const CHUNK_DOCUMENTS: f64 = (1u32 << 24) as f64;
/// Documents above which a single step is refused, 1 GiB.
const STEP_DOCUMENTS: f64 = (1u32 << 28) as f64;

/// How a [`WindowStream`] deals windows to steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Packed windows of a step.
    pub gbs: u32,
    /// Steps of a chunk, among which windows are shuffled. `None` takes 32, fewer where windows hold so many
    /// documents that a chunk would need more than 64 MiB.
    pub steps_per_chunk: Option<u32>,
    /// Shuffle the windows of a chunk, as a data loader does. First fit's output is not exchangeable: neighbours in
    /// packing order are more alike than windows drawn at random, which lowers the imbalance of pools of neighbours.
    /// Without it windows come in the order in which the packer finished them.
    pub shuffle: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { gbs: 128, steps_per_chunk: None, shuffle: true }
    }
}

/// An endless stream of steps of packed windows with random access.
///
/// Windows come in chunks. A chunk has a random stream of its own, so that any chunk can be made at any time by any
/// thread; inside it the packer runs on, after a warm-up whose windows are dropped. The stream makes one chunk at a
/// time on the caller's thread; callers that want more make [chunks](WindowStream::chunk) in parallel.
#[derive(Debug)]
pub struct WindowStream {
    workload: Workload,
    seed: u64,
    gbs: usize,
    steps_per_chunk: usize,
    shuffle: bool,
    recent: Mutex<Option<Recent>>,
}

/// Steps of the chunk that was made last.
#[derive(Clone, Debug)]
struct Recent {
    chunk: u64,
    steps: Arc<Vec<Vec<Window>>>,
}

impl WindowStream {
    /// The stream of this seed with default options.
    ///
    /// # Errors
    /// A step would not fit in memory.
    pub fn new(workload: &Workload, seed: u64) -> Result<Self, WorkloadError> {
        Self::with_options(workload, seed, StreamOptions::default())
    }

    /// The stream of this seed.
    ///
    /// # Errors
    /// An option is 0, or a step or chunk would not fit in memory.
    pub fn with_options(workload: &Workload, seed: u64, options: StreamOptions) -> Result<Self, WorkloadError> {
        let error = |option, value: u32, why: String| WorkloadError::Stream { option, value: u64::from(value), why };
        if options.gbs == 0 {
            return Err(error("gbs", 0, "a step has at least 1 window".into()));
        }
        let step_documents = workload.documents_per_window() * f64::from(options.gbs);
        if step_documents > STEP_DOCUMENTS {
            let why = format!(
                "a step of windows of {} tokens would hold about {step_documents:.0} documents; choose a smaller gbs \
                 or window",
                workload.window()
            );
            return Err(error("gbs", options.gbs, why));
        }
        let steps_per_chunk = match options.steps_per_chunk {
            Some(0) => return Err(error("steps_per_chunk", 0, "a chunk has at least 1 step".into())),
            Some(steps) if f64::from(steps) * step_documents > STEP_DOCUMENTS => {
                let why = format!("a chunk would hold about {:.0} documents", f64::from(steps) * step_documents);
                return Err(error("steps_per_chunk", steps, why));
            }
            Some(steps) => steps,
            None => ((CHUNK_DOCUMENTS / step_documents) as u32).clamp(1, 32),
        };
        Ok(Self {
            workload: workload.clone(),
            seed,
            gbs: options.gbs as usize,
            steps_per_chunk: steps_per_chunk as usize,
            shuffle: options.shuffle,
            recent: Mutex::new(None),
        })
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Windows of a step.
    pub fn gbs(&self) -> usize {
        self.gbs
    }

    /// Steps of a chunk.
    pub fn steps_per_chunk(&self) -> usize {
        self.steps_per_chunk
    }

    /// Chunk number `index`: `steps_per_chunk` steps of `gbs` windows.
    pub fn chunk(&self, index: u64) -> Vec<Vec<Window>> {
        let mut windows = self.windows(index).into_iter();
        (0..self.steps_per_chunk).map(|_| windows.by_ref().take(self.gbs).collect()).collect()
    }

    /// Step number `index`. Steps of one chunk one after another cost one chunk: the last chunk is kept.
    pub fn step(&self, index: u64) -> Vec<Window> {
        let (chunk, step) = (index / self.steps_per_chunk as u64, (index % self.steps_per_chunk as u64) as usize);
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Made outside the lock: threads that walk different chunks must not wait for each other.
        let steps = match recent {
            Some(recent) if recent.chunk == chunk => recent.steps,
            _ => {
                let steps = Arc::new(self.chunk(chunk));
                let made = Recent { chunk, steps: Arc::clone(&steps) };
                *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
                steps
            }
        };
        steps[step].clone()
    }

    fn windows(&self, chunk: u64) -> Vec<Window> {
        let mut draws = Draws::new(self.seed, "windows", chunk);
        let mut packer = Packer::new(self.workload.packing(), self.workload.window());
        let warm_up = self.workload.packing().warm_up();
        let wanted = warm_up + self.gbs * self.steps_per_chunk;
        let mut windows = Vec::with_capacity(wanted);
        let mut documents = [0u64; BATCH];
        while windows.len() < wanted {
            self.workload.source().fill(&mut draws, &mut documents);
            packer.pack(&documents, &mut windows, wanted);
        }
        windows.drain(..warm_up);
        if self.shuffle {
            draws.shuffle(&mut windows);
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::Packing;
    use crate::source::LengthSource;

    fn stream(options: StreamOptions) -> WindowStream {
        WindowStream::with_options(&Workload::preset("paper-256k", None, None).unwrap(), 11, options).unwrap()
    }

    #[test]
    fn steps_are_the_steps_of_their_chunk_in_any_order() {
        let stream = stream(StreamOptions { gbs: 6, steps_per_chunk: Some(3), shuffle: true });
        let chunks = [stream.chunk(0), stream.chunk(1)];
        for index in [4u64, 0, 5, 2, 2, 3, 1] {
            assert_eq!(stream.step(index), chunks[index as usize / 3][index as usize % 3]);
        }
        assert_ne!(chunks[0], chunks[1]);
    }

    #[test]
    fn shuffling_only_reorders_a_chunk() {
        let options = StreamOptions { gbs: 6, steps_per_chunk: Some(3), shuffle: false };
        let flat = |shuffle| stream(StreamOptions { shuffle, ..options }).chunk(2).concat();
        let (mut plain, mut shuffled) = (flat(false), flat(true));
        assert_ne!(plain, shuffled);
        plain.sort();
        shuffled.sort();
        assert_eq!(plain, shuffled);
    }

    #[test]
    fn seeds_differ() {
        let workload = Workload::preset("magi", None, None).unwrap();
        let first = |seed| WindowStream::new(&workload, seed).unwrap().chunk(0);
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn many_tiny_documents_shrink_the_chunk_and_absurd_ones_are_refused() {
        let workload =
            |window| Workload::new("ones", "", LengthSource::list(vec![1]).unwrap(), window, Packing::Split).unwrap();
        assert_eq!(WindowStream::new(&workload(1 << 14), 1).unwrap().steps_per_chunk(), 8);
        let error = WindowStream::new(&workload(1 << 30), 1).unwrap_err().to_string();
        assert!(error.starts_with("gbs = 128: a step of windows of 1073741824 tokens would hold"), "{error}");
        for (gbs, steps_per_chunk) in [(0, None), (1, Some(0)), (1 << 14, Some(1 << 14))] {
            let options = StreamOptions { gbs, steps_per_chunk, shuffle: true };
            assert!(WindowStream::with_options(&workload(1 << 10), 1, options).is_err());
        }
    }

    #[test]
    fn streams_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<WindowStream>();
        shared::<Workload>();
    }
}
