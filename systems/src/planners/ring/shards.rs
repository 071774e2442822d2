use serde::{Deserialize, Serialize};
use skewbench_plan::{Rows, row_pairs};

use crate::planners::cp_group::{CpGroup, bound};

/// What is dealt to the positions of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardBy {
    /// Every document by itself.
    Document,
    /// The packed sequence as a whole.
    Sequence,
}

/// How rows are dealt to the R positions of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deal {
    /// Position r holds chunk r of R, with bounds floor(i L / R).
    #[serde(rename = "basic")]
    Contiguous,
    /// Position r holds chunks r and 2R-1-r of 2R, with bounds floor(i L / 2R).
    Zigzag,
    /// Position r holds the rows that are r modulo R.
    Striped,
}

/// What one position holds of one document: at most two pieces, the second empty where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) document: u32,
    pub(super) pieces: [Rows; 2],
}

const NONE: Rows = Rows { start: 0, len: 0, stride: 1 };

impl Held {
    /// The pieces that are not empty, joined where they touch; `None` without any.
    fn new(document: u32, first: Rows, second: Rows) -> Option<Self> {
        let mut pieces = [first, second];
        if first.is_empty() {
            pieces = [second, NONE];
        } else if join(&mut pieces[0], second) {
            pieces[1] = NONE;
        }
        (!pieces[0].is_empty()).then_some(Self { document, pieces })
    }

    /// The pieces that hold rows, with their number.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, Rows)> {
        self.pieces.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty())
    }
}

/// Appends `next` to `rows` when it goes on where they end; true also when `next` is empty.
pub(super) fn join(rows: &mut Rows, next: Rows) -> bool {
    let follows = u64::from(rows.last()) + u64::from(rows.stride) == u64::from(next.start);
    let joins = next.is_empty() || rows.stride == next.stride && !rows.is_empty() && follows;
    rows.len += if joins { next.len } else { 0 };
    joins
}

/// The rows of a packed sequence dealt to the positions of a ring.
pub(super) struct Shards {
    /// What each position holds, by document.
    pub(super) held: Vec<Vec<Held>>,
    /// The same rows as few ranges.
    pub(super) rows: Vec<Vec<Rows>>,
}

impl Shards {
    /// Deals the rows of `group` to `ring` positions.
    pub(super) fn new(group: &CpGroup, ring: u32, deal: Deal, by: ShardBy) -> Self {
        let held: Vec<Vec<Held>> = (0..ring)
            .map(|position| match (deal, by) {
                (Deal::Striped, _) => striped(group, position, ring, by),
                (_, ShardBy::Document) => of_documents(group, position, ring, deal),
                (_, ShardBy::Sequence) => of_sequence(group, position, ring, deal),
            })
            .collect();
        let rows = held.iter().map(|held| ranges(held)).collect();
        Self { held, rows }
    }

    /// Cuts the rows of a position, in order, into `parts` pieces of near-equal size: bounds floor(i n / parts).
    pub(super) fn cut(&self, position: u32, parts: u32) -> Vec<Vec<Rows>> {
        let rows = &self.rows[position as usize];
        let total = rows.iter().map(|r| r.len).sum();
        let mut rest = rows.iter().copied();
        let mut open = NONE;
        let mut cut = Vec::with_capacity(parts as usize);
        for part in 0..parts {
            let mut wanted = bound(total, part + 1, parts) - bound(total, part, parts);
            let mut taken = Vec::new();
            while wanted > 0 {
                if open.is_empty() {
                    let Some(next) = rest.next() else { break };
                    open = next;
                }
                let len = open.len.min(wanted);
                taken.push(Rows { len, ..open });
                wanted -= len;
                open = Rows {
                    start: if len < open.len { open.start + len * open.stride } else { 0 },
                    len: open.len - len,
                    ..open
                };
            }
            cut.push(taken);
        }
        cut
    }

    /// Unmasked pairs of the rows of each position.
    pub(super) fn pairs(&self, group: &CpGroup) -> Vec<u64> {
        let of = |held: &Held| -> u64 {
            let start = group.bounds.get(held.document as usize).copied().unwrap_or(0);
            held.pieces().map(|(_, rows)| pairs(rows, start)).sum()
        };
        self.held.iter().map(|held| held.iter().map(of).sum()).collect()
    }

    /// At most so many tiles cover all pairs.
    pub(super) fn tiles(&self, documents: usize) -> usize {
        let mut pieces = vec![0usize; documents];
        for held in self.held.iter().flatten() {
            pieces[held.document as usize] += held.pieces().count();
        }
        pieces.iter().map(|n| n * (n + 1) / 2).sum()
    }
}

/// Pairs of rows of a document that starts at `start`: row x sees x - start + 1 keys.
fn pairs(rows: Rows, start: u32) -> u64 {
    if rows.stride == 1 {
        return row_pairs(rows.start - start, rows.end() - start);
    }
    let (n, first) = (u64::from(rows.len), u64::from(rows.start - start) + 1);
    n * first + u64::from(rows.stride) * (n * n.saturating_sub(1) / 2)
}

/// Chunks of `len` rows from `start` on that a position holds.
fn chunks(deal: Deal, position: u32, ring: u32, start: u32, len: u32) -> (Rows, Rows) {
    let chunk = |i: u32, n: u32| Rows::range(start + bound(len, i, n), start + bound(len, i + 1, n));
    match deal {
        Deal::Zigzag => (chunk(position, 2 * ring), chunk(2 * ring - 1 - position, 2 * ring)),
        Deal::Contiguous | Deal::Striped => (chunk(position, ring), NONE),
    }
}

fn of_documents(group: &CpGroup, position: u32, ring: u32, deal: Deal) -> Vec<Held> {
    let mut held = Vec::with_capacity(group.documents().len());
    held.extend((0..).zip(group.documents()).filter_map(|(document, (start, end))| {
        let (first, second) = chunks(deal, position, ring, start, end - start);
        Held::new(document, first, second)
    }));
    held
}

fn of_sequence(group: &CpGroup, position: u32, ring: u32, deal: Deal) -> Vec<Held> {
    let (first, second) = chunks(deal, position, ring, 0, group.tokens);
    let mut held: Vec<Held> = Vec::new();
    for range in [first, second].into_iter().filter(|r| !r.is_empty()) {
        let from = group.bounds.partition_point(|b| *b <= range.start).saturating_sub(1);
        for (document, &[start, end]) in (from..).zip(group.bounds[from..].array_windows()) {
            let inside = Rows::range(start.max(range.start), end.min(range.end()));
            if inside.is_empty() {
                break;
            }
            let document = document as u32;
            match held.pop_if(|last| last.document == document) {
                Some(last) => held.extend(Held::new(document, last.pieces[0], inside)),
                None => held.extend(Held::new(document, inside, NONE)),
            }
        }
    }
    held
}

fn striped(group: &CpGroup, position: u32, ring: u32, by: ShardBy) -> Vec<Held> {
    let mut held = Vec::with_capacity(group.documents().len());
    held.extend((0..).zip(group.documents()).filter_map(|(document, (start, end))| {
        let skipped = match by {
            ShardBy::Document => position,
            ShardBy::Sequence => (position + ring - start % ring) % ring,
        };
        let first = start.checked_add(skipped).filter(|first| *first < end)?;
        Held::new(document, Rows { start: first, len: (end - first).div_ceil(ring), stride: ring }, NONE)
    }));
    held
}

fn ranges(held: &[Held]) -> Vec<Rows> {
    let mut ranges: Vec<Rows> = Vec::with_capacity(2 * held.len());
    for (_, rows) in held.iter().flat_map(Held::pieces) {
        if !ranges.last_mut().is_some_and(|last| join(last, rows)) {
            ranges.push(rows);
        }
    }
    ranges
}
