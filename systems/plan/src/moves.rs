use std::collections::HashMap;
use std::sync::Arc;

use crate::check::intervals::{Interval, holds, interval};
use crate::{CallMode, Move, PassPlan, Span};

/// Moves of one span by the ranks that send and receive them. Indices count from the start of the span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveIndex {
    bundles: Vec<Bundle>,
    sent: Groups,
    received: Groups,
}

/// Neighbouring moves of a list with one sender and one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Sending rank.
    pub from: u32,
    /// Receiving rank.
    pub to: u32,
    /// Index of the first of the moves.
    pub first: u32,
    /// Number of moves.
    pub len: u32,
    /// Rows of all of them.
    pub rows: u64,
}

impl Bundle {
    /// The moves as a range of the list.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.len) as usize
    }

    fn all(moves: &[Move]) -> Vec<Self> {
        let mut bundles = Vec::new();
        let mut first = 0;
        while let Some(head) = moves.get(first) {
            let (mut len, mut rows) = (0, 0);
            for mv in &moves[first..] {
                if (mv.from, mv.to) != (head.from, head.to) {
                    break;
                }
                len += 1;
                rows += u64::from(mv.rows.len);
            }
            bundles.push(Self { from: head.from, to: head.to, first: first as u32, len, rows });
            first += len as usize;
        }
        bundles
    }
}

/// Indices grouped by rank, in order within each group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Groups {
    /// Ranks with an index, sorted; empty when every rank has a group of its own.
    ranks: Vec<u32>,
    start: Vec<u32>,
    items: Vec<u32>,
    /// Rows of all moves of each group.
    rows: Vec<u64>,
}

impl Groups {
    /// Few moves between many ranks get no table of all ranks: a plan may have many such spans.
    const SPARSE: usize = 8;

    /// Groups by sender and by receiver.
    fn dense(ranks: usize, bundles: &[Bundle]) -> [Self; 2] {
        // Counts stand one place further on, so that filling the groups leaves each start where it belongs.
        let mut groups = [(); 2].map(|()| Self { start: vec![0; ranks + 2], rows: vec![0; ranks], ..Self::default() });
        for bundle in bundles {
            for (group, rank) in groups.iter_mut().zip([bundle.from, bundle.to]) {
                if let Some(rows) = group.rows.get_mut(rank as usize) {
                    *rows += bundle.rows;
                    group.start[rank as usize + 2] += bundle.len;
                }
            }
        }
        for group in &mut groups {
            let mut sum = 0;
            for count in &mut group.start {
                sum += *count;
                *count = sum;
            }
            group.items = vec![0; sum as usize];
        }
        for bundle in bundles {
            for (group, rank) in groups.iter_mut().zip([bundle.from, bundle.to]) {
                if (rank as usize) < ranks {
                    let slot = &mut group.start[rank as usize + 1];
                    let start = *slot as usize;
                    *slot += bundle.len;
                    let items = &mut group.items[start..start + bundle.len as usize];
                    items.iter_mut().zip(bundle.first..).for_each(|(item, index)| *item = index);
                }
            }
        }
        groups.iter_mut().for_each(|group| {
            group.start.pop();
        });
        groups
    }

    fn sparse(ranks: usize, moves: &[Move], key: impl Fn(&Move) -> u32) -> Self {
        let mut items: Vec<u32> =
            (0..).zip(moves).filter(|(_, mv)| (key(mv) as usize) < ranks).map(|(index, _)| index).collect();
        items.sort_by_key(|index| key(&moves[*index as usize]));
        let mut groups = Self { items, ..Self::default() };
        for (at, index) in (0..).zip(&groups.items) {
            let rank = key(&moves[*index as usize]);
            if groups.ranks.last() != Some(&rank) {
                groups.ranks.push(rank);
                groups.start.push(at);
                groups.rows.push(0);
            }
            if let Some(rows) = groups.rows.last_mut() {
                *rows += u64::from(moves[*index as usize].rows.len);
            }
        }
        groups.start.push(groups.items.len() as u32);
        groups
    }

    fn group(&self, rank: u32) -> Option<usize> {
        if self.ranks.is_empty() { Some(rank as usize) } else { self.ranks.binary_search(&rank).ok() }
    }

    fn of(&self, rank: u32) -> &[u32] {
        self.group(rank).and_then(|group| self.start.get(group..group + 2)).map_or(&[], |s| self.slice(s))
    }

    fn rows_of(&self, rank: u32) -> u64 {
        self.group(rank).and_then(|group| self.rows.get(group)).copied().unwrap_or(0)
    }

    fn slice(&self, bounds: &[u32]) -> &[u32] {
        &self.items[bounds[0] as usize..bounds[1] as usize]
    }

    /// Ranks with an index, in order, with their indices.
    fn iter(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let rank = |group: usize| self.ranks.get(group).copied().unwrap_or(group as u32);
        let groups = self.start.windows(2).enumerate().filter(|(_, bounds)| bounds[0] < bounds[1]);
        groups.map(move |(group, bounds)| (rank(group), self.slice(bounds)))
    }
}

impl MoveIndex {
    /// Indexes a list of moves between `ranks` ranks.
    pub fn new(moves: &[Move], ranks: u32) -> Self {
        let ranks = ranks as usize;
        let bundles = Bundle::all(moves);
        let [sent, received] = if moves.len() < ranks / Groups::SPARSE {
            [Groups::sparse(ranks, moves, |m| m.from), Groups::sparse(ranks, moves, |m| m.to)]
        } else {
            Groups::dense(ranks, &bundles)
        };
        Self { bundles, sent, received }
    }

    /// The moves, in order, by sender and receiver as far as neighbours share them.
    pub fn bundles(&self) -> &[Bundle] {
        &self.bundles
    }

    /// Moves that `rank` sends, local ones included.
    pub fn sent(&self, rank: u32) -> &[u32] {
        self.sent.of(rank)
    }

    /// Moves that `rank` receives, local ones included.
    pub fn received(&self, rank: u32) -> &[u32] {
        self.received.of(rank)
    }

    /// Rows that `rank` sends and receives, local ones included in both.
    pub(crate) fn rows(&self, rank: u32) -> (u64, u64) {
        (self.sent.rows_of(rank), self.received.rows_of(rank))
    }

    /// Ranks that send, in order, with their moves.
    pub fn senders(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.sent.iter()
    }

    /// Ranks that receive, in order, with their moves.
    pub fn receivers(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.received.iter()
    }
}

/// Indices of all distinct move spans of a pass; head pieces share spans, so there are few.
#[derive(Clone, Debug, Default)]
pub struct MoveIndices {
    spans: HashMap<(u32, u32), usize>,
    list: Vec<Arc<MoveIndex>>,
    /// The spans by number.
    bounds: Vec<Span>,
    /// For each span a number that equal lists of moves share, also with the other pass of the plan.
    content: Vec<u32>,
    /// Number of the span of each part, call by call.
    parts: Vec<u32>,
    /// First entry of each call in `parts`.
    first_part: Vec<u32>,
    /// By span, whether accumulate calls bring it home; empty until it is known.
    homeward: Vec<bool>,
}

impl MoveIndices {
    /// Indexes every span that the calls of a pass refer to. Spans outside the table count as empty.
    pub fn of(pass: &PassPlan, ranks: u32) -> Self {
        Self::beside(pass, ranks, &PassPlan::default(), &Self::default())
    }

    /// [`MoveIndices::of`] for a plan's second pass: spans with the moves of a span of the first pass share its index.
    pub(crate) fn beside(pass: &PassPlan, ranks: u32, first: &PassPlan, first_indices: &Self) -> Self {
        let mut indices = Self::default();
        let mut known: HashMap<(usize, Move, Move), usize> = HashMap::new();
        for slot in 0..first_indices.len() {
            if let moves @ [head, .., tail] = first_indices.moves(first, slot as u32) {
                known.entry((moves.len(), *head, *tail)).or_insert(slot);
            }
        }
        for call in &pass.calls {
            indices.first_part.push(indices.parts.len() as u32);
            for part in &call.parts {
                let next = indices.list.len();
                let slot = *indices.spans.entry((part.moves.start, part.moves.end)).or_insert(next);
                indices.parts.push(slot as u32);
                if slot < next {
                    continue;
                }
                let moves = pass.moves.get(part.moves.range()).unwrap_or_default();
                let twin = match moves {
                    [head, .., tail] => known.get(&(moves.len(), *head, *tail)).copied(),
                    _ => None,
                };
                indices.bounds.push(part.moves);
                match twin.filter(|twin| first_indices.moves(first, *twin as u32) == moves) {
                    Some(twin) => {
                        indices.list.push(first_indices.list[twin].clone());
                        indices.content.push(first_indices.content[twin]);
                    }
                    None => {
                        indices.list.push(Arc::new(MoveIndex::new(moves, ranks)));
                        indices.content.push((first_indices.list.len() + next) as u32);
                    }
                }
            }
        }
        indices.first_part.push(indices.parts.len() as u32);
        indices
    }

    /// Number that identifies the span among the pass's distinct spans.
    pub fn id(&self, span: Span) -> usize {
        self.spans.get(&(span.start, span.end)).copied().unwrap_or(usize::MAX)
    }

    /// The index of a span that some part of the pass refers to.
    pub fn get(&self, span: Span) -> Option<&Arc<MoveIndex>> {
        self.list.get(self.id(span))
    }

    /// Numbers of the spans of a call's parts, as [`MoveIndices::id`] gives them.
    pub fn parts(&self, call: usize) -> &[u32] {
        match self.first_part.get(call..) {
            Some([start, end, ..]) => &self.parts[*start as usize..*end as usize],
            _ => &[],
        }
    }

    /// The index of the span with a number from [`MoveIndices::parts`].
    pub(crate) fn index(&self, id: u32) -> &MoveIndex {
        &self.list[id as usize]
    }

    /// Moves of the span with a number from [`MoveIndices::parts`], none where it is outside the table.
    pub(crate) fn moves<'a>(&self, pass: &'a PassPlan, id: u32) -> &'a [Move] {
        pass.moves.get(self.bounds[id as usize].range()).unwrap_or_default()
    }

    /// A number that spans with equal moves share across the passes of a plan.
    pub(crate) fn content(&self, id: u32) -> u32 {
        self.content[id as usize]
    }

    /// Finds out which spans of accumulate calls go home. `homes` are the rows of the exit layout by rank, none where they have
    /// gaps.
    pub(crate) fn find_homeward(&mut self, pass: &PassPlan, homes: &[Option<Vec<Interval>>]) {
        let mut known = vec![None; self.list.len()];
        for (call, _) in pass.calls.iter().enumerate().filter(|(_, call)| call.mode == CallMode::Accumulate) {
            for id in self.parts(call) {
                let index = &self.list[*id as usize];
                known[*id as usize].get_or_insert_with(|| go_home(self.moves(pass, *id), index.bundles(), homes));
            }
        }
        self.homeward = known.into_iter().map(|known| known == Some(true)).collect();
    }

    /// True when every move of a span that accumulate calls refer to brings neighbouring rows which are home on their receiver,
    /// and no rank sends a row twice. False where that is not known.
    pub fn go_home(&self, id: u32) -> bool {
        self.homeward.get(id as usize).copied().unwrap_or(false)
    }

    /// Number of distinct spans.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True when no call moves anything.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// What [`MoveIndices::go_home`] says of a list of moves. Homes share no row, so that rows of one sender which go to different
/// receivers are different ones; those that go to one receiver must come in order.
fn go_home(moves: &[Move], bundles: &[Bundle], homes: &[Option<Vec<Interval>>]) -> bool {
    // By sender, the receiver before.
    let mut before: Vec<Option<u32>> = vec![None; homes.len()];
    bundles.iter().all(|bundle| {
        let home = homes.get(bundle.to as usize).and_then(Option::as_deref);
        let (Some(home), Some(before)) = (home, before.get_mut(bundle.from as usize)) else { return false };
        if before.replace(bundle.to).is_some_and(|before| before >= bundle.to) {
            return false;
        }
        let (mut near, mut sent) = (0, 0);
        moves[bundle.range()].iter().all(|mv| {
            let Some(rows) = interval(mv.seq, mv.rows).filter(|rows| sent <= rows.0) else { return false };
            sent = rows.1;
            holds(home, &mut near, rows)
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bundle, Groups, go_home};
    use crate::{Move, Rows};

    fn moves(keys: &[u32]) -> Vec<Move> {
        keys.iter().map(|rank| Move { from: *rank, to: *rank / 2, seq: 0, rows: Rows::range(0, 1 + *rank) }).collect()
    }

    #[test]
    fn moves_go_home_when_every_row_is_home_on_its_receiver_and_none_goes_twice() {
        let homes = [Some(vec![(0, 4), (10, 14)]), Some(vec![(4, 10)]), None];
        let goes = |list: &[(u32, u32, u32, u32)]| {
            let of = |&(from, to, start, end)| Move { from, to, seq: 0, rows: Rows::range(start, end) };
            let moves: Vec<Move> = list.iter().map(of).collect();
            go_home(&moves, &Bundle::all(&moves), &homes)
        };
        assert!(goes(&[(1, 0, 0, 2), (1, 0, 2, 4), (1, 0, 11, 14), (0, 1, 4, 10), (1, 1, 5, 6)]));
        assert!(!goes(&[(1, 0, 0, 5)]), "a row of another rank");
        assert!(!goes(&[(1, 0, 0, 3), (1, 0, 2, 4)]), "a row twice");
        assert!(!goes(&[(1, 0, 0, 2), (0, 1, 4, 6), (1, 0, 1, 2)]), "a receiver twice");
        assert!(!goes(&[(0, 2, 0, 1)]), "a home with gaps");
        assert!(!goes(&[(3, 0, 0, 1)]) && !goes(&[(0, 3, 0, 1)]), "no such rank");
    }

    proptest! {
        #[test]
        fn dense_and_sparse_groups_agree(keys in prop::collection::vec(0u32..12, 0..20), ranks in 0usize..12) {
            let moves = moves(&keys);
            let [dense, received] = Groups::dense(ranks, &Bundle::all(&moves));
            let sparse = Groups::sparse(ranks, &moves, |m| m.from);
            prop_assert!(received.iter().eq(Groups::sparse(ranks, &moves, |m| m.to).iter()));
            for rank in 0..14 {
                let wanted: Vec<u32> =
                    (0..).zip(&keys).filter(|(_, k)| **k == rank && (rank as usize) < ranks).map(|(i, _)| i).collect();
                prop_assert_eq!(dense.of(rank), &wanted[..]);
                prop_assert_eq!(sparse.of(rank), &wanted[..]);
                prop_assert_eq!(dense.rows_of(rank), wanted.iter().map(|i| u64::from(moves[*i as usize].rows.len)).sum::<u64>());
                prop_assert_eq!(sparse.rows_of(rank), dense.rows_of(rank));
            }
            prop_assert!(dense.iter().eq(sparse.iter()));
        }
    }
}
