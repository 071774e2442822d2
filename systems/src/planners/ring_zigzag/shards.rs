use skewbench_plan::Rows;

use super::ShardBy;
use crate::planners::cp_group::{CpGroup, bound};

/// What one rank holds of one document: at most two ranges of rows, the second empty where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) document: u32,
    pub(super) ranges: [(u32, u32); 2],
}

impl Held {
    fn new(document: u32, first: (u32, u32), second: (u32, u32)) -> Option<Self> {
        let some = |r: (u32, u32)| r.0 < r.1;
        let ranges = match (some(first), some(second)) {
            (false, false) => return None,
            (true, false) => [first, NONE],
            (false, true) => [second, NONE],
            (true, true) if first.1 == second.0 => [(first.0, second.1), NONE],
            (true, true) => [first, second],
        };
        Some(Self { document, ranges })
    }

    /// The ranges that hold rows, with their number.
    pub(super) fn ranges(self) -> impl Iterator<Item = (usize, (u32, u32))> {
        self.ranges.into_iter().enumerate().filter(|(_, r)| r.0 < r.1)
    }
}

const NONE: (u32, u32) = (0, 0);

/// Zigzag shards of a packed sequence.
pub(super) struct Shards {
    /// What each rank holds, by document.
    pub(super) held: Vec<Vec<Held>>,
    /// The same rows as maximal contiguous ranges.
    pub(super) rows: Vec<Vec<Rows>>,
}

impl Shards {
    pub(super) fn new(group: &CpGroup, by: ShardBy) -> Self {
        let held: Vec<Vec<Held>> = (0..group.cp)
            .map(|rank| match by {
                ShardBy::Document => of_documents(group, rank),
                ShardBy::Sequence => of_sequence(group, rank),
            })
            .collect();
        let rows = held.iter().map(|held| contiguous(held)).collect();
        Self { held, rows }
    }

    /// At most so many tiles cover all pairs.
    pub(super) fn tiles(&self, documents: usize) -> usize {
        let mut pieces = vec![0usize; documents];
        for held in self.held.iter().flatten() {
            pieces[held.document as usize] += held.ranges().count();
        }
        pieces.iter().map(|n| n * (n + 1) / 2).sum()
    }
}

/// Chunk `i` of `2 cp` of `len` rows from `start` on.
fn chunk(start: u32, len: u32, i: u32, cp: u32) -> (u32, u32) {
    (start + bound(len, i, 2 * cp), start + bound(len, i + 1, 2 * cp))
}

fn of_documents(group: &CpGroup, rank: u32) -> Vec<Held> {
    let mut held = Vec::with_capacity(group.documents().len());
    held.extend((0..).zip(group.documents()).filter_map(|(document, (start, end))| {
        let of = |i| chunk(start, end - start, i, group.cp);
        Held::new(document, of(rank), of(2 * group.cp - 1 - rank))
    }));
    held
}

fn of_sequence(group: &CpGroup, rank: u32) -> Vec<Held> {
    let first = chunk(0, group.tokens, rank, group.cp);
    let second = chunk(0, group.tokens, 2 * group.cp - 1 - rank, group.cp);
    let mut held: Vec<Held> = Vec::new();
    for range in [first, second].into_iter().filter(|r| r.0 < r.1) {
        let from = group.bounds.partition_point(|b| *b <= range.0).saturating_sub(1);
        for (document, &[start, end]) in (from..).zip(group.bounds[from..].array_windows()) {
            let inside = (start.max(range.0), end.min(range.1));
            if inside.0 >= inside.1 {
                break;
            }
            let document = document as u32;
            match held.pop_if(|last| last.document == document) {
                Some(last) => held.extend(Held::new(document, last.ranges[0], inside)),
                None => held.extend(Held::new(document, inside, NONE)),
            }
        }
    }
    held
}

fn contiguous(held: &[Held]) -> Vec<Rows> {
    let mut ranges: Vec<(u32, u32)> = Vec::with_capacity(2 * held.len());
    for (_, (start, end)) in held.iter().flat_map(|h| h.ranges()) {
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges.into_iter().map(|(start, end)| Rows::range(start, end)).collect()
}
