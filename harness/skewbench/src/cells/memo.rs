use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::samples::{RankRow, WaveRow};
use super::waves::DomainRun;

/// What is kept of a domain's run beside its times on the cell's machine; each is work or room that some cells do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its transfers alone.
    pub(super) transfers: bool,
    /// Half and double the bandwidth between nodes.
    pub(super) band: bool,
    /// Rows of ranks.
    pub(super) ranks: bool,
}

impl Asked {
    /// What either asks for.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            transfers: self.transfers || other.transfers,
            band: self.band || other.band,
            ranks: self.ranks || other.ranks,
        }
    }

    /// This where it applies, else nothing.
    pub(super) fn filter(self, applies: bool) -> Self {
        if applies { self } else { Self::default() }
    }
}

/// Domains that were simulated already: the same documents on the same nodes take the same time, whichever cell asks.
#[derive(Default)]
pub struct Memo {
    known: Mutex<Known>,
}

type Key = [u8; 32];

#[derive(Default)]
struct Known {
    runs: HashMap<Key, (Asked, Arc<DomainRun>)>,
    /// Bytes of all rows.
    bytes: usize,
    /// What the cells of a family ask for.
    expected: HashMap<Key, Asked>,
}

/// Bytes of rows that are remembered at most.
const REMEMBERED: usize = 400 << 20;

impl Memo {
    /// Notes that a cell of the family will ask for this.
    pub(super) fn expect(&self, family: Key, asked: Asked) {
        let mut known = self.lock();
        let expected = known.expected.entry(family).or_default();
        *expected = expected.with(asked);
    }

    /// What cells of the family ask for.
    pub(super) fn expected(&self, family: &Key) -> Asked {
        self.lock().expected.get(family).copied().unwrap_or_default()
    }

    /// A run that holds what is asked for, and shows no more.
    pub(super) fn get(&self, key: &Key, asked: Asked) -> Option<Arc<DomainRun>> {
        let (made, run) = self.lock().runs.get(key).cloned()?;
        (made.with(asked) == made).then(|| shown(&run, made, asked))
    }

    /// Remembers a run that holds what was `made`; returns it as [`Memo::get`] would.
    pub(super) fn put(&self, key: Key, run: DomainRun, made: Asked, asked: Asked) -> Arc<DomainRun> {
        let run = Arc::new(run);
        let mut known = self.lock();
        let before = known.runs.get(&key).map_or(0, |(_, run)| bytes(run));
        let after = known.bytes - before + bytes(&run);
        if after <= REMEMBERED {
            known.bytes = after;
            known.runs.insert(key, (made, run.clone()));
        }
        shown(&run, made, asked)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(run: &DomainRun) -> usize {
    size_of_val(&run.rows[..]) + size_of_val(&run.ranks[..])
}

/// A run without what was not asked for, so that a cell's samples do not depend on the cells beside it.
fn shown(run: &Arc<DomainRun>, made: Asked, asked: Asked) -> Arc<DomainRun> {
    if made == asked {
        return run.clone();
    }
    let row = |row: &WaveRow| {
        let mut row = *row;
        if !asked.transfers {
            (row.forward_transfer_ps, row.backward_transfer_ps) = (0, 0);
        }
        if !asked.band {
            (row.half_network_ps, row.double_network_ps) = (0, 0);
        }
        row
    };
    let ranks: &[RankRow] = if asked.ranks { &run.ranks } else { &[] };
    Arc::new(DomainRun { rows: run.rows.iter().map(row).collect(), ranks: ranks.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_shows_what_is_asked_for_and_serves_whoever_asks_for_no_more() {
        let all = Asked { transfers: true, band: true, ranks: true };
        let none = Asked::default();
        let row = WaveRow { forward_ps: 5, forward_transfer_ps: 3, half_network_ps: 7, ..WaveRow::default() };
        let run = DomainRun { rows: vec![row], ranks: vec![RankRow { rank: 1, ..RankRow::default() }] };
        let memo = Memo::default();
        let bare = memo.put([1; 32], run.clone(), all, none);
        let plain = WaveRow { forward_transfer_ps: 0, half_network_ps: 0, ..row };
        assert_eq!((&bare.rows[..], bare.ranks.len()), (&[plain][..], 0));
        let whole = memo.get(&[1; 32], all).expect("remembered");
        assert_eq!((&whole.rows[..], &whole.ranks), (&run.rows[..], &run.ranks));
        let band = memo.get(&[1; 32], Asked { band: true, ..none }).expect("it was made");
        assert_eq!((band.rows[0].forward_transfer_ps, band.rows[0].half_network_ps), (0, 7));
        memo.put([2; 32], run, none, none);
        assert!(memo.get(&[2; 32], Asked { ranks: true, ..none }).is_none());
        memo.expect([3; 32], Asked { band: true, ..none });
        memo.expect([3; 32], Asked { transfers: true, ..none });
        assert_eq!(memo.expected(&[3; 32]), Asked { ranks: false, ..all });
    }
}
