use skewbench_plan::row_pairs;

use crate::planners::cp_group::CpGroup;

/// Query rows `[start, end)` of a document that begins at row `document`; they see the keys `[document, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) document: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Rows `[start, end)` of the packed sequence.
pub(super) type Range = (u32, u32);

/// Query rows of one rank, in row order.
#[derive(Clone, Debug, Default)]
pub(super) struct Shard {
    /// Pieces of chunk r.
    pub(super) front: Vec<Piece>,
    /// Pieces of chunk 2 CP - 1 - r.
    pub(super) back: Vec<Piece>,
}

impl Shard {
    /// All its pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.front.iter().chain(&self.back)
    }

    /// Query rows as maximal ranges.
    pub(super) fn rows(&self) -> Vec<Range> {
        joined(self.pieces().map(|piece| (piece.start, piece.end)).collect())
    }

    /// Key rows that its queries see, as maximal ranges.
    pub(super) fn keys(&self) -> Vec<Range> {
        joined(self.pieces().map(|piece| (piece.document, piece.end)).collect())
    }
}

/// Query rows of all ranks.
pub(super) struct Cut {
    pub(super) shards: Vec<Shard>,
}

impl Cut {
    /// Every document cut into 2 CP chunks; tokens that are left go to the next chunks, round-robin over all documents.
    pub(super) fn of_documents(group: &CpGroup) -> Self {
        if group.cp == 1 {
            return Self::whole(group);
        }
        let mut cut = Self::empty(group);
        let mut next = 0;
        for (document, end) in group.documents() {
            let mut start = document;
            for (chunk, len) in chunks(end - document, 2 * group.cp, &mut next) {
                cut.add(chunk, Piece { document, start, end: start + len });
                start += len;
            }
        }
        cut
    }

    /// The packed sequence cut into 2 CP chunks; tokens that are left go to the first chunks.
    pub(super) fn of_sequence(group: &CpGroup) -> Self {
        if group.cp == 1 {
            return Self::whole(group);
        }
        let mut cut = Self::empty(group);
        let mut documents = group.documents().peekable();
        let mut start = 0;
        for (chunk, len) in chunks(group.tokens, 2 * group.cp, &mut 0) {
            let chunk_end = start + len;
            while let Some(&(document, end)) = documents.peek() {
                let piece = Piece { document, start, end: end.min(chunk_end) };
                cut.add(chunk, piece);
                start = piece.end;
                if end > chunk_end {
                    break;
                }
                documents.next();
            }
        }
        cut
    }

    fn empty(group: &CpGroup) -> Self {
        Self { shards: vec![Shard::default(); group.cp as usize] }
    }

    /// All documents on one rank.
    fn whole(group: &CpGroup) -> Self {
        let front = group.documents().map(|(start, end)| Piece { document: start, start, end }).collect();
        Self { shards: vec![Shard { front, back: Vec::new() }] }
    }

    fn add(&mut self, chunk: usize, piece: Piece) {
        if piece.start >= piece.end {
            return;
        }
        let cp = self.shards.len();
        if chunk < cp {
            self.shards[chunk].front.push(piece);
        } else {
            self.shards[2 * cp - 1 - chunk].back.push(piece);
        }
    }

    /// Unmasked pairs of the rank that has most.
    pub(super) fn most_pairs(&self) -> u64 {
        let pairs = |piece: &Piece| row_pairs(piece.start - piece.document, piece.end - piece.document);
        self.shards.iter().map(|shard| shard.pieces().map(pairs).sum()).max().unwrap_or(0)
    }
}

/// Lengths of `count` near-equal chunks: what is left of `len` goes one each to the chunks from `next` on, cyclically.
fn chunks(len: u32, count: u32, next: &mut u32) -> impl Iterator<Item = (usize, u32)> {
    let (each, left) = (len / count, len % count);
    let first = *next;
    *next = (first + left) % count;
    (0..count).map(move |chunk| {
        let turn = (chunk + count - first) % count;
        (chunk as usize, each + u32::from(turn < left))
    })
}

/// Ranges sorted, overlapping and touching ones joined.
fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    // Fronts and backs are in order each, which a stable sort only merges.
    ranges.sort_by_key(|range| range.0);
    ranges.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
    ranges
}

/// Rows that are in both of two sorted lists of disjoint ranges.
pub(super) fn common<'a>(a: &'a [Range], b: &'a [Range]) -> impl Iterator<Item = Range> + 'a {
    let (mut i, mut j) = (0, 0);
    std::iter::from_fn(move || {
        while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
            let both = (x.0.max(y.0), x.1.min(y.1));
            if x.1 <= y.1 {
                i += 1;
            } else {
                j += 1;
            }
            if both.0 < both.1 {
                return Some(both);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::{Cut, Piece, chunks, common};
    use crate::planners::cp_group::CpGroup;
    use skewbench_plan::{AttentionShape, Plan};

    fn group(documents: &[u32], cp: u32) -> CpGroup {
        let shape = AttentionShape { q_heads: 1, kv_heads: 1, head_dim: 64 };
        CpGroup { bounds: Plan::bounds(documents), tokens: documents.iter().sum(), cp, shape }
    }

    fn piece(document: u32, start: u32, end: u32) -> Piece {
        Piece { document, start, end }
    }

    #[test]
    fn tokens_that_are_left_go_round() {
        let mut next = 0;
        let mut lengths = |len| chunks(len, 4, &mut next).map(|(_, l)| l).collect::<Vec<_>>();
        assert_eq!(lengths(11), [3, 3, 3, 2]);
        assert_eq!(lengths(6), [2, 1, 1, 2]);
        assert_eq!(lengths(1), [0, 1, 0, 0]);
        assert_eq!(lengths(8), [2, 2, 2, 2]);
        assert_eq!(lengths(2), [0, 0, 1, 1]);
    }

    #[test]
    fn documents_are_cut_one_by_one() {
        let cut = Cut::of_documents(&group(&[11, 6], 2));
        assert_eq!(cut.shards[0].front, [piece(0, 0, 3), piece(11, 11, 13)]);
        assert_eq!(cut.shards[1].front, [piece(0, 3, 6), piece(11, 13, 14)]);
        assert_eq!(cut.shards[1].back, [piece(0, 6, 9), piece(11, 14, 15)]);
        assert_eq!(cut.shards[0].back, [piece(0, 9, 11), piece(11, 15, 17)]);
        assert_eq!(cut.shards[1].rows(), [(3, 9), (13, 15)]);
        assert_eq!(cut.shards[1].keys(), [(0, 9), (11, 15)]);
    }

    #[test]
    fn the_sequence_is_cut_as_a_whole() {
        let cut = Cut::of_sequence(&group(&[2, 5, 3], 2));
        assert_eq!(cut.shards[0].front, [piece(0, 0, 2), piece(2, 2, 3)]);
        assert_eq!(cut.shards[1].front, [piece(2, 3, 6)]);
        assert_eq!(cut.shards[1].back, [piece(2, 6, 7), piece(7, 7, 8)]);
        assert_eq!(cut.shards[0].back, [piece(7, 8, 10)]);
        assert_eq!(cut.shards[0].keys(), [(0, 3), (7, 10)]);
        assert_eq!(cut.most_pairs(), 2 + 3 + 4 + 5 + 1);
    }

    #[test]
    fn common_rows_of_two_lists() {
        let a = [(0, 4), (6, 9)];
        let b = [(2, 3), (3, 7), (8, 20)];
        let both: Vec<_> = common(&a, &b).collect();
        assert_eq!(both, [(2, 3), (3, 4), (6, 7), (8, 9)]);
    }
}
