use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use skewbench_plan::{PackedSequence, Step};
use skewbench_workloads::{StreamOptions, WindowStream, Workload};

use crate::failure::Failure;

/// Steps of one workload, seed and step size, shared by all cells that run on them.
pub struct StepSource {
    stream: WindowStream,
    chunks: Mutex<HashMap<u64, Arc<Vec<Step>>>>,
}

/// Seed of what a placement or grouping draws in one step.
pub fn step_seed(seed: u64, step: u64) -> u64 {
    seed ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Chunks that a source keeps at once; cells that go through more steps make them anew.
const KEPT: usize = 8;

impl StepSource {
    /// Steps of `gbs` windows.
    ///
    /// # Errors
    /// When a step would not fit in memory.
    pub fn new(workload: &Workload, gbs: u32, seed: u64) -> Result<Self, Failure> {
        let options = StreamOptions { gbs, ..StreamOptions::default() };
        let stream = WindowStream::with_options(workload, seed, options).map_err(Failure::config)?;
        Ok(Self { stream, chunks: Mutex::new(HashMap::new()) })
    }

    /// Steps of a chunk.
    pub fn steps_per_chunk(&self) -> u32 {
        self.stream.steps_per_chunk() as u32
    }

    /// Documents of a chunk's windows, not kept.
    pub fn windows(&self, chunk: u64) -> Vec<Vec<skewbench_workloads::Window>> {
        self.stream.chunk(chunk)
    }

    /// The steps of a chunk.
    pub fn chunk(&self, chunk: u64) -> Arc<Vec<Step>> {
        let lock = || self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(steps) = lock().get(&chunk) {
            return steps.clone();
        }
        let window = self.stream.workload().window();
        let first = chunk * u64::from(self.steps_per_chunk());
        let steps: Vec<Step> = self
            .stream
            .chunk(chunk)
            .into_iter()
            .enumerate()
            .map(|(i, windows)| Step {
                index: first + i as u64,
                window,
                sequences: windows.into_iter().map(|w| PackedSequence::new(w.iter().copied())).collect(),
            })
            .collect();
        let steps = Arc::new(steps);
        let mut kept = lock();
        if kept.len() >= KEPT {
            let farthest = kept.keys().copied().max_by_key(|c| c.abs_diff(chunk));
            farthest.map(|c| kept.remove(&c));
        }
        kept.insert(chunk, steps.clone());
        steps
    }
}
