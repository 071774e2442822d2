use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use cudarc::nccl::sys::ncclUniqueId;

use super::board::Board;
use super::nccl;
use super::options::{Placement, RankTime, SessionOptions};
use super::rank::Shared;
use super::rendezvous::Rendezvous;
use super::session::{AttentionFactory, GRACE, Session};
use super::wave::Wave;
use crate::CudaError;

/// Ranks of which each has a process. What threads of one process share is here shared through the rendezvous: names of
/// communicators, handles of arenas and events, a board in memory.
impl Session {
    /// Joins the other processes of a session, each of which has one rank and calls this at once. Rank r is on card r, or on
    /// the only card that its process is shown.
    ///
    /// Ranks start together as threads do: the card of each waits for an event of every other card, so that the hosts need
    /// not be aligned, and a start differs between cards by what an event takes to be seen, some microseconds.
    ///
    /// All processes run on one host, and must come within the patience of the options. A process that fails, or ends without
    /// a word, ends the next or current call of all others.
    ///
    /// # Errors
    /// [`CudaError::Peer`] when another process fails or does not come; [`CudaError::Cards`] when two ranks have one card and
    /// are not to share it; as [`Session::open`].
    pub fn join(
        rendezvous: Rendezvous,
        options: SessionOptions,
        attention: AttentionFactory,
    ) -> Result<Self, CudaError> {
        let others = Arc::new(rendezvous);
        let joined = Self::joined(&others, options, &attention);
        if let Err(error) = &joined {
            others.fail(&error.to_string());
        }
        joined
    }

    fn joined(
        others: &Arc<Rendezvous>,
        options: SessionOptions,
        attention: &AttentionFactory,
    ) -> Result<Self, CudaError> {
        others.barrier("the start", options.patience)?;
        let (rank, ranks) = (others.rank(), others.ranks());
        let mut session = Self::start(rank..rank + 1, ranks, options, attention, Some(Arc::clone(others)))?;
        let patience = session.options.patience;
        let uuid = session.each(ranks, None, patience, |rank| {
            let uuid = rank.card.context.uuid().map_err(rank.card.failed("cuDeviceGetUuid"))?;
            Ok(uuid.bytes.map(|byte| byte as u8))
        })?;
        let mut cards = others.exchange(uuid.as_flattened(), "opening its card", patience)?;
        cards.sort_unstable();
        cards.dedup();
        if session.options.placement == Placement::OneEach && cards.len() < ranks {
            return Err(CudaError::Cards { needed: ranks, found: cards.len() });
        }
        Ok(session)
    }

    /// The times of all ranks, from those of this process's; traces stay where they are. All processes call it after the
    /// same execution.
    ///
    /// # Errors
    /// [`CudaError::Peer`] when another process fails or does not come.
    pub fn all_times(&mut self, local: &[RankTime]) -> Result<Vec<RankTime>, CudaError> {
        let Some(others) = self.others.clone() else { return Ok(local.to_vec()) };
        let bytes: Vec<u8> =
            local.iter().flat_map(|time| [time.ns, time.issue_ns]).flat_map(u64::to_le_bytes).collect();
        let all = others.exchange(&bytes, "gathering times", self.options.patience);
        let all = self.told(all)?;
        let times = all.iter().flat_map(|bytes| bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes));
        let times: Vec<u64> = times.collect();
        let (pairs, _) = times.as_chunks();
        Ok(pairs.iter().map(|&[ns, issue_ns]| RankTime { ns, issue_ns, trace: Vec::new() }).collect())
    }

    /// Waits for all other processes.
    ///
    /// # Errors
    /// [`CudaError::Peer`] when another process fails or does not come.
    pub(super) fn meet_all(&self, what: &str, limit: Duration) -> Result<(), CudaError> {
        self.others.as_ref().map_or(Ok(()), |others| others.barrier(what, limit))
    }

    /// Frees what is loaded, after all processes have closed what they opened of each other.
    pub(super) fn unload(&mut self) -> Result<(), CudaError> {
        let all = self.others.as_ref().map_or(usize::MAX, |others| others.ranks());
        let patience = self.options.patience;
        if self.others.is_some() {
            self.each(all, None, patience, |rank| {
                rank.part();
                Ok(())
            })?;
            self.meet_all("loading a wave", patience)?;
        }
        self.each(all, None, patience, |rank| {
            rank.unload();
            Ok(())
        })
        .map(drop)
    }

    /// The name of the communicator of a stream of a domain: from the process that has the domain's first rank.
    pub(super) fn nccl_name(&self, first: usize, stream: usize) -> Result<ncclUniqueId, CudaError> {
        let Some(others) = &self.others else { return nccl::name() };
        let blob = format!("nccl-{}.{first}.{stream}", self.loads);
        if self.ranks.contains_key(&first) {
            let name = nccl::name()?;
            others.publish_name(&blob, &name.internal.map(|byte| byte as u8))?;
            return Ok(name);
        }
        let bytes = others.wait_name(&blob, first, self.options.patience)?;
        let bytes: [u8; 128] = bytes.try_into().map_err(|_| CudaError::Program(format!("{blob} is damaged")))?;
        Ok(ncclUniqueId { internal: bytes.map(|byte| byte as c_char) })
    }

    /// The board of all processes; none when there is one process.
    pub(super) fn joint_board(&self, wave: &Wave) -> Result<Option<Board>, CudaError> {
        let Some(others) = &self.others else { return Ok(None) };
        let (slots, name) = (Shared::board_slots(wave), format!("board-{}", self.loads));
        Board::joint(slots, others, &name, self.options.patience).map(Some)
    }

    /// Shows what the ranks of this process have loaded to the others, and opens theirs.
    pub(super) fn meet(&mut self, shared: &Arc<Shared>) -> Result<(), CudaError> {
        let Some(others) = self.others.clone() else { return Ok(()) };
        let (ranks, transport, patience) = (shared.wave.ranks.len(), self.options.transport, self.options.patience);
        let exported = self.each(ranks, Some(shared), patience, move |rank| rank.export(transport))?;
        let all = others.exchange(&exported.concat(), "sharing its memory", patience)?;
        self.each(ranks, Some(shared), patience, move |rank| rank.meet(transport, &all)).map(drop)
    }

    /// Tells other processes of a failure of this one.
    pub(super) fn tell(&mut self, error: &CudaError) {
        if let Some(others) = &self.others {
            self.refused = true;
            if !matches!(error, CudaError::Elsewhere(_) | CudaError::Peer { .. }) {
                others.fail(&error.to_string());
            }
        }
    }

    /// Tells other processes of a failure; one that came from them gets its reason.
    pub(super) fn told<T>(&mut self, result: Result<T, CudaError>) -> Result<T, CudaError> {
        result.map_err(|error| {
            self.tell(&error);
            let reason = self.others.as_ref().filter(|_| matches!(error, CudaError::Elsewhere(_)));
            reason.and_then(|others| others.failure()).unwrap_or(error)
        })
    }

    /// Closes what is open of other processes, and waits for them to do so, before anything is freed.
    pub(super) fn leave(&mut self) {
        if self.others.is_some() && !self.refused {
            let closed = self.each(usize::MAX, None, GRACE, |rank| {
                rank.part();
                Ok(())
            });
            // Nobody is left to be told; what the others do not close in time is freed all the same.
            let _ = closed.and_then(|_| self.meet_all("the end", self.options.patience.min(GRACE)));
        }
    }
}
