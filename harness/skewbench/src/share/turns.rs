use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::json;
use skewbench_cluster::{Attempt, Claim, ClusterError, Former, Loss, Owner};
use skewbench_store::{CellId, CellStatus};

use super::Session;
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// How long a process that waits for others sleeps before it looks again.
const NAP: Duration = Duration::from_millis(500);
/// Processes that may break down in the middle of a cell before it counts as their cause.
const MOST_BROKEN: usize = 3;

/// A cell whose turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number.
    pub cell: usize,
    /// Why it is not computed but fails: so many processes broke down in the middle of it.
    pub given_up: Option<String>,
}

/// What the runs of a study hold, by the number of a cell.
pub trait Board {
    /// What is stored for a cell, as far as this process knows.
    fn known(&self, cell: usize) -> CellStatus;
    /// Takes in what other processes have stored for any cell.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn look_again(&self) -> Result<(), Failure>;
    /// Takes in what is stored for one cell.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn result_of(&self, cell: usize) -> Result<CellStatus, Failure>;
    /// Makes a cell that failed count as missing.
    fn retry(&self, cell: usize);
    /// True when the runs are sealed.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn is_sealed(&self) -> Result<bool, Failure>;
    /// Notes that a claim was taken over.
    ///
    /// # Errors
    /// A store that cannot be written.
    fn taken_over(&self, cell: usize, owner: &Owner, loss: Loss) -> Result<(), Failure>;
}

/// Which cell is computed next: all of them in order by a process alone; by one of several, what it can claim.
pub struct Turns<'a> {
    session: Option<&'a Session>,
    ids: &'a [CellId],
    /// Cells that failed are computed again, once a submission.
    again: bool,
    /// Cells to look at.
    ahead: VecDeque<usize>,
    /// Cells that others had when they were looked at.
    held: Vec<usize>,
    /// Cells that failed in this submission.
    failed: BTreeSet<usize>,
    claim: Option<Claim>,
}

impl<'a> Turns<'a> {
    /// Turns over cells of these ids.
    pub fn new(session: Option<&'a Session>, ids: &'a [CellId], again: bool) -> Self {
        let mut ahead: VecDeque<usize> = (0..ids.len()).collect();
        ahead.rotate_left(session.map_or(0, |session| session.start(ids.len())));
        Self { session, ids, again, ahead, held: Vec::new(), failed: BTreeSet::new(), claim: None }
    }

    /// The next cell to compute; none when nothing is left for this process.
    ///
    /// # Errors
    /// An interruption, claims that cannot be made, a store that cannot be read.
    pub fn next(&mut self, board: &dyn Board) -> Result<Option<Turn>, Failure> {
        let Some(session) = self.session else {
            return Ok(self.ahead.pop_front().map(|cell| Turn { cell, given_up: None }));
        };
        // Cells that others had are looked at once more at the end: some will be done, some lost.
        let mut last = usize::MAX;
        loop {
            while let Some(cell) = self.ahead.pop_front() {
                check_interrupted()?;
                if let Some(turn) = self.attempt(session, board, cell)? {
                    return Ok(Some(turn));
                }
            }
            board.look_again()?;
            let held: Vec<usize> = std::mem::take(&mut self.held);
            self.ahead = held.into_iter().filter(|cell| !self.is_done(board, *cell)).collect();
            if self.ahead.is_empty() || board.is_sealed()? {
                return Ok(None);
            }
            if self.ahead.len() == last {
                if !session.stays() {
                    return Ok(None);
                }
                std::thread::sleep(NAP);
            }
            last = self.ahead.len();
        }
    }

    fn is_done(&self, board: &dyn Board, cell: usize) -> bool {
        match board.known(cell) {
            CellStatus::Finished => true,
            CellStatus::Failed { .. } => !self.again || self.failed.contains(&cell),
            CellStatus::Missing => false,
        }
    }

    /// The cell, when it is this process's to compute.
    fn attempt(&mut self, session: &Session, board: &dyn Board, cell: usize) -> Result<Option<Turn>, Failure> {
        if self.is_done(board, cell) {
            return Ok(None);
        }
        let found = board.result_of(cell)?;
        if self.is_done(board, cell) {
            return Ok(None);
        }
        let failed = found != CellStatus::Missing;
        let submission = &session.claims.owner().submission;
        match session.claims.claim(self.ids[cell].as_str(), |owner| failed && owner.submission != *submission) {
            Ok(Attempt::Ours(claim, before)) => {
                self.claim = Some(claim);
                if let Some(Former { owner, loss: Some(loss) }) = before.last() {
                    board.taken_over(cell, owner, *loss)?;
                }
                // Whoever lost the claim may have stored the result, and whoever sealed the runs removes it.
                let found = board.result_of(cell)?;
                let needed = match found {
                    CellStatus::Finished => false,
                    CellStatus::Failed { .. } => self.again,
                    CellStatus::Missing => !board.is_sealed()?,
                };
                if needed {
                    board.retry(cell);
                } else {
                    self.over(cell, found != CellStatus::Finished)?;
                }
                Ok(needed.then(|| Turn { cell, given_up: given_up(&before) }))
            }
            Ok(Attempt::Theirs(_)) => {
                self.held.push(cell);
                Ok(None)
            }
            Ok(Attempt::Done(_)) => {
                self.failed.insert(cell);
                Ok(None)
            }
            // Whoever sealed the runs removed the claims.
            Err(ClusterError::Io { .. }) if board.is_sealed()? => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// True unless another process has taken the present cell over: what this one computed is then dropped.
    ///
    /// # Errors
    /// This process could not show that it lives.
    pub fn is_ours(&self) -> Result<bool, Failure> {
        match (self.session, &self.claim) {
            (Some(session), Some(claim)) => Ok(session.claims.is_ours(claim)?),
            _ => Ok(true),
        }
    }

    /// A cell has a result. That it failed is noted, so that processes that try failed cells again try it once.
    ///
    /// # Errors
    /// The claim cannot be written.
    pub fn over(&mut self, cell: usize, failed: bool) -> Result<(), Failure> {
        if let (Some(session), Some(claim)) = (self.session, self.claim.take())
            && failed
        {
            self.failed.insert(cell);
            session.claims.done(&claim)?;
        }
        Ok(())
    }

    /// True when this process is the one that seals the runs and renders the report: a process alone always is. Of several it
    /// is whoever comes first once all cells are done; it keeps that claim until it ends.
    ///
    /// # Errors
    /// Claims that cannot be made, an interruption.
    pub fn seals(&mut self, board: &dyn Board) -> Result<bool, Failure> {
        let Some(session) = self.session else { return Ok(true) };
        let name = format!("seal-{}", CellId::of(&json!(self.ids)));
        loop {
            check_interrupted()?;
            board.look_again()?;
            if !(0..self.ids.len()).all(|cell| self.is_done(board, cell)) {
                return Ok(false);
            }
            match session.claims.claim(&name, |_| true) {
                Ok(Attempt::Ours(..)) => return Ok(true),
                Err(ClusterError::Io { .. }) if board.is_sealed()? => return Ok(false),
                Err(e) => return Err(e.into()),
                Ok(_) if !session.stays() || board.is_sealed()? => return Ok(false),
                Ok(_) => std::thread::sleep(NAP),
            }
        }
    }
}

/// Why a cell is computed no more; none as long as few broke down in it.
fn given_up(before: &[Former]) -> Option<String> {
    let broken: Vec<String> =
        before.iter().filter(|former| former.broke_down()).map(|former| former.owner.to_string()).collect();
    (broken.len() >= MOST_BROKEN).then(|| {
        let (n, all) = (broken.len(), broken.join(", "));
        format!("{n} processes ended without a word while they computed it, out of memory or killed: {all}")
    })
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        if let (Some(session), Some(claim)) = (self.session, &self.claim) {
            // Where it cannot be given back, the end of this process does it.
            let _ = session.claims.release(claim);
        }
    }
}
