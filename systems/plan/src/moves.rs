use std::collections::HashMap;
use std::sync::Arc;

use crate::{Move, PassPlan, Span};

/// Moves of one span by the ranks that send and receive them. Indices count from the start of the span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveIndex {
    sent: Groups,
    received: Groups,
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
    fn dense(ranks: usize, moves: &[Move]) -> [Self; 2] {
        // Counts stand one place further on, so that filling the groups leaves each start where it belongs.
        let mut groups = [(); 2].map(|()| Self { start: vec![0; ranks + 2], rows: vec![0; ranks], ..Self::default() });
        for mv in moves {
            for (group, rank) in groups.iter_mut().zip([mv.from, mv.to]) {
                if let Some(rows) = group.rows.get_mut(rank as usize) {
                    *rows += u64::from(mv.rows.len);
                    group.start[rank as usize + 2] += 1;
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
        for (index, mv) in (0..).zip(moves) {
            for (group, rank) in groups.iter_mut().zip([mv.from, mv.to]) {
                if (rank as usize) < ranks {
                    let slot = &mut group.start[rank as usize + 1];
                    group.items[*slot as usize] = index;
                    *slot += 1;
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
        let [sent, received] = if moves.len() < ranks / Groups::SPARSE {
            [Groups::sparse(ranks, moves, |m| m.from), Groups::sparse(ranks, moves, |m| m.to)]
        } else {
            Groups::dense(ranks, moves)
        };
        Self { sent, received }
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

    /// Number of distinct spans.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True when no call moves anything.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Groups;
    use crate::{Move, Rows};

    fn moves(keys: &[u32]) -> Vec<Move> {
        keys.iter().map(|rank| Move { from: *rank, to: *rank / 2, seq: 0, rows: Rows::range(0, 1 + *rank) }).collect()
    }

    proptest! {
        #[test]
        fn dense_and_sparse_groups_agree(keys in prop::collection::vec(0u32..12, 0..20), ranks in 0usize..12) {
            let moves = moves(&keys);
            let [dense, received] = Groups::dense(ranks, &moves);
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
