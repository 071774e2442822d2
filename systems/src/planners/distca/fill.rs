use skewbench_plan::{PackedSequence, row_pairs};

/// A document of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// Packed sequence of the domain.
    pub seq: u32,
    /// First row in it.
    pub start: u32,
    /// Rows.
    pub len: u32,
    /// Rows that fill and balance see: `len`, rounded up.
    pub rounded: u32,
}

/// Documents of some packed sequences, in order. Lengths that rounding would carry beyond 32 bits stay as they are.
pub(super) fn documents(sequences: &[&PackedSequence], members: &[u32], round: u32) -> Vec<Document> {
    let count = members.iter().map(|&seq| sequences[seq as usize].documents().len()).sum();
    let mut documents = Vec::with_capacity(count);
    for &seq in members {
        let mut start = 0;
        documents.extend(sequences[seq as usize].documents().iter().map(|&len| {
            let rounded = len.checked_next_multiple_of(round).unwrap_or(len);
            let document = Document { seq, start, len, rounded };
            start += len;
            document
        }));
    }
    documents
}

/// Rows of one document that are computed on one server: a range from its front and one from its back. Rows are counted in
/// the document. A whole document is cut in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Document of the micro-batch.
    pub document: u32,
    /// Rank that holds the rows outside the attention.
    pub home: u32,
    /// Rank that computes them.
    pub server: u32,
    /// Rows `[start, end)` from the front.
    pub head: (u32, u32),
    /// Rows `[start, end)` from the back.
    pub tail: (u32, u32),
}

impl Item {
    /// Unmasked pairs.
    pub fn pairs(&self) -> u64 {
        row_pairs(self.head.0, self.head.1) + row_pairs(self.tail.0, self.tail.1)
    }

    /// True when the item is all of a document of `rows` rows.
    pub fn is_whole(&self, rows: u32) -> bool {
        self.head.0 == 0 && self.head.1 == self.tail.0 && self.tail.1 == rows
    }

    /// Pairs of the last row of the head with the first of the tail. The next two rows outwards have one key less and one
    /// more, so every pair of rows costs as much.
    pub fn row_pair(&self) -> u64 {
        u64::from(self.head.1) + u64::from(self.tail.0) + 1
    }

    /// Pairs of rows: one row of an item of odd size, the outermost, has no partner.
    pub fn row_pairs(&self) -> u32 {
        (self.head.1 - self.head.0).min(self.tail.1 - self.tail.0)
    }

    /// Takes the innermost `rows` pairs of rows out, as an item for `server`.
    pub fn split(&mut self, rows: u32, server: u32) -> Self {
        let inner =
            Self { server, head: (self.head.1 - rows, self.head.1), tail: (self.tail.0, self.tail.0 + rows), ..*self };
        self.head.1 -= rows;
        self.tail.0 += rows;
        inner
    }

    /// Its rows as ranges of the document's `len` rows, one where head and tail touch.
    pub fn ranges(&self, len: u32) -> impl Iterator<Item = (u32, u32)> {
        let ranges =
            if self.head.1 == self.tail.0 { [(self.head.0, self.tail.1), (0, 0)] } else { [self.head, self.tail] };
        ranges.into_iter().map(move |(start, end)| (start, end.min(len))).filter(|(start, end)| start < end)
    }
}

/// The layout of the linear layers: documents in order, ranks 0, 1, ... filled up to ceil(tokens / ranks), which is
/// rounded up as lengths are. A document that fits the room of a rank lies there whole; of any other the rank takes what
/// fits, half of it from the front and half (one row more where odd) from the back of what is left.
pub(super) fn fill(documents: &[Document], ranks: u32, round: u32) -> Vec<Item> {
    let tokens: u64 = documents.iter().map(|d| u64::from(d.rounded)).sum();
    let budget = tokens.div_ceil(u64::from(ranks.max(1))).next_multiple_of(u64::from(round.max(1)));
    let mut items = Vec::with_capacity(documents.len() + ranks as usize);
    let (mut rank, mut room) = (0, budget);
    for (document, &Document { rounded, .. }) in (0u32..).zip(documents) {
        let (mut first, mut end) = (0, rounded);
        while first < end {
            if room == 0 {
                (rank, room) = (rank + 1, budget);
            }
            let rows = u64::from(end - first).min(room);
            room -= rows;
            let rows = rows as u32;
            let front = if rows == rounded { rounded.div_ceil(2) } else { rows / 2 };
            let (head, tail) = ((first, first + front), (end - (rows - front), end));
            items.push(Item { document, home: rank, server: rank, head, tail });
            (first, end) = (head.1, tail.0);
        }
    }
    items
}

/// Pairs of every server.
pub(super) fn loads(items: &[Item], ranks: u32) -> Vec<u64> {
    let mut loads = vec![0; ranks as usize];
    for item in items {
        loads[item.server as usize] += item.pairs();
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(lengths: &[u32], ranks: u32) -> Vec<Item> {
        let sequence = PackedSequence::new(lengths.iter().copied());
        fill(&documents(&[&sequence], &[0], 1), ranks, 1)
    }

    #[test]
    fn documents_that_do_not_fit_are_nested() {
        let items = filled(&[8, 24], 4);
        let got: Vec<_> = items.iter().map(|i| (i.document, i.home, i.head, i.tail)).collect();
        assert_eq!(
            got,
            [(0, 0, (0, 4), (4, 8)), (1, 1, (0, 4), (20, 24)), (1, 2, (4, 8), (16, 20)), (1, 3, (8, 12), (12, 16)),]
        );
        assert!(items[0].is_whole(8) && !items[3].is_whole(24));
        assert_eq!(items[3].ranges(24).collect::<Vec<_>>(), [(8, 16)]);
        assert_eq!(items[3].ranges(13).collect::<Vec<_>>(), [(8, 13)]);
    }

    #[test]
    fn odd_items_leave_their_outermost_row_alone() {
        let mut item = filled(&[7], 1)[0];
        assert_eq!((item.row_pairs(), item.row_pair()), (3, 9));
        let inner = item.split(2, 5);
        assert_eq!((inner.head, inner.tail, inner.server), ((2, 4), (4, 6), 5));
        assert_eq!(inner.pairs(), 18);
        assert_eq!((item.head, item.tail, item.pairs()), ((0, 2), (6, 7), 10));
        assert_eq!(item.split(1, 5).pairs(), item.row_pair());
        assert_eq!((item.row_pairs(), item.pairs()), (0, 1));
    }

    #[test]
    fn every_row_has_one_home() {
        for ranks in 1..12 {
            let lengths = [5, 1, 40, 2, 2, 19];
            let mut rows: Vec<(u32, u32)> = filled(&lengths, ranks)
                .iter()
                .flat_map(|i| i.ranges(lengths[i.document as usize]).map(|r| (i.document, r)).collect::<Vec<_>>())
                .flat_map(|(document, (start, end))| (start..end).map(move |row| (document, row)))
                .collect();
            rows.sort_unstable();
            let all: Vec<(u32, u32)> = (0u32..).zip(lengths).flat_map(|(d, l)| (0..l).map(move |r| (d, r))).collect();
            assert_eq!(rows, all, "{ranks}");
        }
    }
}
