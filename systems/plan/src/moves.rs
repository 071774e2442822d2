use std::collections::HashMap;
use std::sync::Arc;

use crate::{Move, PassPlan, Span};

/// Moves of one span by the ranks that send and receive them. Indices count from the start of the span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveIndex {
    sent: Csr,
    received: Csr,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Csr {
    start: Vec<u32>,
    items: Vec<u32>,
}

impl Csr {
    fn new(ranks: usize, keys: impl Iterator<Item = u32> + Clone) -> Self {
        let mut start = vec![0u32; ranks + 1];
        for key in keys.clone().filter(|k| (*k as usize) < ranks) {
            start[key as usize + 1] += 1;
        }
        for rank in 0..ranks {
            start[rank + 1] += start[rank];
        }
        let mut next = start.clone();
        let mut items = vec![0u32; start[ranks] as usize];
        for (index, key) in keys.enumerate() {
            if let Some(slot) = next.get_mut(key as usize).filter(|_| (key as usize) < ranks) {
                items[*slot as usize] = index as u32;
                *slot += 1;
            }
        }
        Self { start, items }
    }

    fn of(&self, rank: u32) -> &[u32] {
        let rank = rank as usize;
        match (self.start.get(rank), self.start.get(rank + 1)) {
            (Some(&a), Some(&b)) => &self.items[a as usize..b as usize],
            _ => &[],
        }
    }
}

impl MoveIndex {
    /// Indexes a list of moves between `ranks` ranks.
    pub fn new(moves: &[Move], ranks: u32) -> Self {
        let ranks = ranks as usize;
        Self {
            sent: Csr::new(ranks, moves.iter().map(|m| m.from)),
            received: Csr::new(ranks, moves.iter().map(|m| m.to)),
        }
    }

    /// Moves that `rank` sends, local ones included.
    pub fn sent(&self, rank: u32) -> &[u32] {
        self.sent.of(rank)
    }

    /// Moves that `rank` receives, local ones included.
    pub fn received(&self, rank: u32) -> &[u32] {
        self.received.of(rank)
    }
}

/// Indices of all distinct move spans of a pass; head pieces share spans, so there are few.
#[derive(Clone, Debug, Default)]
pub struct MoveIndices {
    spans: HashMap<(u32, u32), usize>,
    list: Vec<Arc<MoveIndex>>,
}

impl MoveIndices {
    /// Indexes every span that the calls of a pass refer to. Spans outside the table count as empty.
    pub fn of(pass: &PassPlan, ranks: u32) -> Self {
        let mut indices = Self::default();
        for part in pass.calls.iter().flat_map(|call| &call.parts) {
            let next = indices.list.len();
            let slot = *indices.spans.entry((part.moves.start, part.moves.end)).or_insert(next);
            if slot == next {
                let moves = pass.moves.get(part.moves.range()).unwrap_or_default();
                indices.list.push(Arc::new(MoveIndex::new(moves, ranks)));
            }
        }
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

    /// Number of distinct spans.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True when no call moves anything.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
