use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::card::Card;
use super::rank::Rank;
use super::session::AttentionFactory;
use crate::CudaError;

/// What a rank is to do next, in its thread.
pub(super) type Job = Box<dyn FnOnce(&mut Rank) + Send>;

/// The thread of a rank.
pub(super) struct Worker {
    pub jobs: Option<Sender<Job>>,
    pub thread: Option<JoinHandle<()>>,
}

/// Starts the thread of a rank.
pub(super) fn worker(
    index: usize,
    card: Arc<Card>,
    attention: AttentionFactory,
    ready: Sender<Result<(), CudaError>>,
) -> Result<Worker, CudaError> {
    let (jobs, todo) = channel::<Job>();
    let work = move || {
        let started = || {
            card.context.bind_to_thread().map_err(card.failed("cuCtxSetCurrent"))?;
            attention(&card.context)
        };
        let abnormal = |_| Err(CudaError::Program(format!("the kernels of rank {index} ended abnormally")));
        let made = match catch_unwind(AssertUnwindSafe(started)).unwrap_or_else(abnormal) {
            Ok(made) => made,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let mut rank = Rank { index, card, attention: made, loaded: None };
        let _ = ready.send(Ok(()));
        drop(ready);
        while let Ok(job) = todo.recv() {
            job(&mut rank);
        }
        rank.unload();
    };
    let thread = std::thread::Builder::new().name(format!("rank {index}")).spawn(work);
    let thread = thread.map_err(|error| CudaError::Program(format!("no thread for rank {index}: {error}")))?;
    Ok(Worker { jobs: Some(jobs), thread: Some(thread) })
}
