use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use skewbench_cluster::{Attempt, Claim, Former, Life, Loss, Owner};
use skewbench_store::{CellId, CellStatus};

use super::retry::retrying;
use super::{Names, Session};
use crate::failure::Failure;
use crate::scheduler::check_interrupted;

/// How long a process that waits for others sleeps before it looks again.
pub(super) const NAP: Duration = Duration::from_millis(500);
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
    /// Takes in anew what is stored for cells that failed.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn look_at_failures(&self) -> Result<(), Failure>;
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
    names: &'a Names,
    ids: &'a [CellId],
    /// What this process has for as long as it tries failed cells again, each once a submission.
    retry: Option<Claim>,
    again: bool,
    /// Cells to look at.
    ahead: VecDeque<usize>,
    /// Cells that others had when they were looked at.
    held: Vec<(usize, Owner, Life)>,
    /// Processes of whom it was said that they are waited for.
    told: BTreeSet<String>,
    /// Cells that failed in this submission.
    failed: BTreeSet<usize>,
    claim: Option<Claim>,
    /// What this process seals the runs by.
    seal: Option<Claim>,
}

/// What remains when every cell has a result.
enum End {
    /// This process seals the runs.
    Ours,
    /// Another has, or does.
    Theirs,
    /// A cell has none any more: whoever tried it again was lost.
    More,
}

impl<'a> Turns<'a> {
    /// Turns over cells of these ids; `retry` is what [`begin_retry`](super::begin_retry) gave a process of several that tries
    /// failed cells again.
    pub fn new(session: Option<&'a Session>, names: &'a Names, ids: &'a [CellId], retry: Option<Claim>) -> Self {
        let mut ahead: VecDeque<usize> = (0..ids.len()).collect();
        ahead.rotate_left(session.map_or(0, |session| session.start(ids.len())));
        let (again, held, told, failed) = (retry.is_some(), Vec::new(), BTreeSet::new(), BTreeSet::new());
        Self { session, names, ids, retry, again, ahead, held, told, failed, claim: None, seal: None }
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
            let held = std::mem::take(&mut self.held);
            self.held = held.into_iter().filter(|(cell, ..)| !self.is_done(board, *cell)).collect();
            if self.held.is_empty() || board.is_sealed()? {
                self.held.clear();
                if let Some(retry) = self.retry.take() {
                    session.claims.done(&retry).or_else(|e| if e.is_gone() { Ok(()) } else { Err(e) })?;
                }
                match self.end(session, board)? {
                    End::Ours | End::Theirs => return Ok(None),
                    End::More => continue,
                }
            }
            if self.held.len() == last {
                // A cell is left only to who is seen to live.
                if !session.stays() && self.held.iter().all(|(_, _, life)| *life == Life::Shown) {
                    return Ok(None);
                }
                self.tell_silent();
                std::thread::sleep(NAP);
            }
            last = self.held.len();
            self.ahead = std::mem::take(&mut self.held).into_iter().map(|(cell, ..)| cell).collect();
        }
    }

    /// Says once of each process that is waited for why.
    fn tell_silent(&mut self) {
        for (cell, owner, life) in &self.held {
            if let Life::Unknown(silent) = life
                && self.told.insert(owner.id.clone())
            {
                let (id, silent) = (&self.ids[*cell], silent.as_secs());
                eprintln!("cell {id} is {owner}'s, silent for {silent} s; waiting to see whether that lives");
            }
        }
    }

    /// Cells that processes have that live, and that this one leaves to them.
    pub fn left(&self) -> impl Iterator<Item = (&CellId, &Owner)> {
        self.held.iter().map(|(cell, owner, _)| (&self.ids[*cell], owner))
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
        // Work that is over counts as long as its result is there.
        let missing = found == CellStatus::Missing;
        let submission = &session.claims.owner().submission;
        let again = |owner: &Owner| missing || owner.submission != *submission;
        match session.claims.claim(&self.names.cell(&self.ids[cell]), again) {
            Ok(Attempt::Ours(claim, before)) => {
                self.claim = Some(claim);
                // Whoever lost the claim may have stored the result, and whoever sealed the runs removes it.
                let found = board.result_of(cell)?;
                let needed = match found {
                    CellStatus::Finished => false,
                    CellStatus::Failed { .. } => self.again && !missing,
                    CellStatus::Missing => !board.is_sealed()?,
                };
                if needed {
                    if let Some(Former { owner, loss }) = before.last() {
                        board.taken_over(cell, owner, *loss)?;
                    }
                    board.retry(cell);
                } else {
                    self.over(cell, found != CellStatus::Finished)?;
                }
                Ok(needed.then(|| Turn { cell, given_up: given_up(&before) }))
            }
            Ok(Attempt::Theirs(owner, life)) => {
                self.held.push((cell, owner, life));
                Ok(None)
            }
            Ok(Attempt::Done(_)) => {
                self.failed.insert(cell);
                Ok(None)
            }
            Err(e) if e.is_gone() => {
                // Whoever sealed the runs removed the claims; another has no reason to.
                if !board.is_sealed()? {
                    session.claims.rejoin()?;
                    self.ahead.push_back(cell);
                }
                Ok(None)
            }
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
            // Processes that took this one for lost have ended the run, and removed the claims.
            session.claims.done(&claim).or_else(|e| if e.is_gone() { Ok(()) } else { Err(e) })?;
        }
        Ok(())
    }

    /// What remains when every cell has a result. Of several processes whoever comes first seals; it keeps that claim until it
    /// has also rendered what the runs hold.
    fn end(&mut self, session: &Session, board: &dyn Board) -> Result<End, Failure> {
        loop {
            check_interrupted()?;
            board.look_again()?;
            board.look_at_failures()?;
            let sealed = board.is_sealed()?;
            self.ahead = (0..self.ids.len()).filter(|cell| !self.is_done(board, *cell)).collect();
            if !self.ahead.is_empty() && !sealed {
                return Ok(End::More);
            }
            let found = match retrying(session, self.names) {
                Ok(None) => session.claims.claim(&self.names.seal(), |_| true),
                Ok(Some((owner, life))) => Ok(Attempt::Theirs(owner, life)),
                Err(e) => Err(e),
            };
            match found {
                Ok(Attempt::Ours(seal, _)) => {
                    // One that began to try failed cells again before this claim was made saw no other.
                    if retrying(session, self.names)?.is_none() {
                        self.seal = Some(seal);
                        return Ok(End::Ours);
                    }
                    session.claims.release(&seal)?;
                }
                Ok(Attempt::Theirs(_, life)) => {
                    if session.is_stage() && sealed || !session.stays() && life == Life::Shown {
                        return Ok(End::Theirs);
                    }
                }
                Ok(Attempt::Done(_)) => {}
                Err(e) if e.is_gone() && sealed => return Ok(End::Theirs),
                Err(e) if e.is_gone() => session.claims.rejoin()?,
                Err(e) => return Err(e.into()),
            }
            std::thread::sleep(NAP);
        }
    }

    /// What this process seals the runs by; none where another does. A process alone has no need of it.
    pub fn take_seal(&mut self) -> Option<Claim> {
        self.seal.take()
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
        let Some(session) = self.session else { return };
        for claim in self.claim.iter().chain(&self.retry).chain(&self.seal) {
            // Where it cannot be given back, the end of this process does it.
            let _ = session.claims.release(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Map, json};
    use skewbench_cluster::{Claims, Launch, Terms};
    use skewbench_store::{Cell, Column, Run, RunInputs, Table, Timings, check};

    use super::*;
    use crate::scheduler::store_failure;
    use crate::share::begin_retry;

    /// A run alone.
    struct One<'r>(&'r Run, &'r [CellId]);

    impl Board for One<'_> {
        fn known(&self, cell: usize) -> CellStatus {
            self.0.known(&self.1[cell])
        }

        fn look_again(&self) -> Result<(), Failure> {
            self.0.look_again().map_err(store_failure)
        }

        fn look_at_failures(&self) -> Result<(), Failure> {
            self.0.look_at_failures().map_err(store_failure)
        }

        fn result_of(&self, cell: usize) -> Result<CellStatus, Failure> {
            self.0.result_of(&self.1[cell]).map_err(store_failure)
        }

        fn retry(&self, cell: usize) {
            self.0.retry(&self.1[cell]);
        }

        fn is_sealed(&self) -> Result<bool, Failure> {
            self.0.is_sealed().map_err(store_failure)
        }

        fn taken_over(&self, _: usize, _: &Owner, _: Loss) -> Result<(), Failure> {
            Ok(())
        }
    }

    struct Lab {
        dir: tempfile::TempDir,
        inputs: RunInputs,
        ids: Vec<CellId>,
    }

    impl Lab {
        fn new(cells: usize) -> Self {
            let cells = (0..cells).map(|i| Cell::new(&json!(i), Map::from_iter([("i".to_owned(), json!(i))])));
            let inputs = RunInputs { cells: cells.collect(), ..RunInputs::default() };
            let ids = inputs.cells.iter().map(|cell| cell.id.clone()).collect();
            Self { dir: tempfile::tempdir().expect("a folder"), inputs, ids }
        }

        fn run(&self) -> std::path::PathBuf {
            self.dir.path().join("run")
        }

        fn names(&self) -> Names {
            Names::of([(Path::new("out/run"), &self.inputs)].into_iter())
        }

        /// A process of a submission of its own.
        fn session(&self) -> Session {
            let launch = Launch::alone("here");
            let owner = Owner::current(&launch).expect("an owner");
            let terms = Terms { lost_after: Duration::from_secs(3600), shares: true };
            let claims = Claims::join(&self.dir.path().join("claims"), owner, terms).expect("joined");
            Session::new(Arc::new(claims), Vec::new(), launch)
        }

        fn join(&self, session: &Session) -> Run {
            Run::join(&self.run(), &self.inputs, &session.worker()).expect("joined").0
        }

        /// Computes what comes until `lost` says that the process ends in the middle of a cell; true where it seals the run.
        fn work(
            &self,
            session: &Session,
            again: bool,
            lost: impl Fn(usize) -> bool,
            compute: impl Fn(usize) -> bool,
        ) -> Option<Run> {
            let names = self.names();
            let reopen = || Run::reopen_failed(&self.run(), &self.inputs).map(drop).map_err(store_failure);
            let retry = again.then(|| begin_retry(session, &names, reopen).expect("begun"));
            let run = self.join(session);
            let board = One(&run, &self.ids);
            let mut turns = Turns::new(Some(session), &names, &self.ids, retry);
            let mut done = 0;
            while let Some(Turn { cell, .. }) = turns.next(&board).expect("a turn") {
                if lost(done) {
                    return None;
                }
                done += 1;
                let fine = compute(cell);
                assert!(turns.is_ours().expect("known"));
                if fine {
                    let table = Table::from_columns([("wave", Column::U32(vec![cell as u32]))]).expect("a table");
                    run.finish_cell(&self.ids[cell], vec![("samples".to_owned(), table)], Timings::new())
                        .expect("stored");
                } else {
                    run.fail_cell(&self.ids[cell], "it does not fit").expect("stored");
                }
                turns.over(cell, !fine).expect("noted");
            }
            let sealed = turns.take_seal().is_some();
            drop(turns);
            sealed.then_some(run)
        }
    }

    /// Every tenth process ends in the middle of a cell, every 50th cell fails.
    #[test]
    fn no_cell_is_done_twice_and_none_is_lost() {
        const CELLS: usize = 600;
        const JOBS: usize = 20;
        let lab = Lab::new(CELLS);
        let done: Vec<AtomicUsize> = (0..CELLS).map(|_| AtomicUsize::new(0)).collect();
        let job = |number: usize| {
            let session = lab.session();
            let sealed = lab.work(
                &session,
                false,
                |n| number.is_multiple_of(10) && n == 3,
                |cell| {
                    done[cell].fetch_add(1, Ordering::SeqCst);
                    !cell.is_multiple_of(50)
                },
            );
            // It keeps its claims until all have ended.
            (session, sealed)
        };
        let (job, done) = (&job, &done);
        let mut ends: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..JOBS).map(|number| scope.spawn(move || job(number))).collect();
            all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        // What was given back last is left for another submission.
        ends.push(job(1));
        let counts: BTreeSet<usize> = done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        assert_eq!(counts, BTreeSet::from([1]));
        let mut sealing: Vec<Run> = ends.into_iter().filter_map(|(_, run)| run).collect();
        assert_eq!(sealing.len(), 1);
        let manifest = sealing.remove(0).seal().expect("sealed");
        assert_eq!((manifest.finished, manifest.failed), (CELLS - CELLS / 50, CELLS / 50));
        assert_eq!(check(&lab.run()).expect("a run").problems, [""; 0]);
    }

    /// A submission that tries failed cells again, while another that does not is at its end.
    #[test]
    fn nobody_seals_while_failed_cells_are_tried_again() {
        let lab = Lab::new(4);
        let (first, second) = (lab.session(), lab.session());
        let tried = AtomicUsize::new(0);
        let compute = |_| {
            // The other has results for all other cells at first; then for all, of which one is tried again just now.
            if tried.fetch_add(1, Ordering::SeqCst) < 2 {
                let ended = lab.work(&first, false, |_| false, |_| false);
                assert!(ended.is_none(), "it would seal what is tried again");
            }
            true
        };
        let sealed = lab.work(&second, true, |_| false, compute);
        assert_eq!(tried.load(Ordering::SeqCst), 4);
        let manifest = sealed.expect("it seals").seal().expect("sealed");
        assert_eq!((manifest.finished, manifest.failed), (4, 0));
    }

    /// The first of several that end has sealed the run and ended before it was rendered.
    #[test]
    fn a_sealed_run_without_report_is_taken_over_and_opened_again() {
        let lab = Lab::new(3);
        let first = lab.session();
        lab.work(&first, false, |_| false, |cell| cell > 0).expect("it seals").seal().expect("sealed");
        // It has ended: its claims stay.
        drop(first);
        let second = lab.session();
        let run = lab.work(&second, false, |_| false, |_| true).expect("it renders");
        assert_eq!(run.seal().expect("found sealed").failed, 1);
        drop(second);
        let third = lab.session();
        let run = lab.work(&third, true, |_| false, |_| true).expect("it seals");
        let manifest = run.seal().expect("sealed");
        assert_eq!((manifest.finished, manifest.failed), (3, 0));
        third.claims.remove();
    }
}
