use skewbench_plan::{PackedSequence, Plan, Rows, Shard, row_pairs};

/// A document that several blocks read, as one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::planners) struct Prefix {
    /// Number of the document among those of the domain that several blocks read.
    pub document: u32,
    /// First row of the document.
    pub start: u32,
    /// One past the last row that the block reads.
    pub end: u32,
}

/// B query rows of one packed sequence with the documents that they touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::planners) struct Block {
    /// Packed sequence.
    pub seq: u32,
    /// First query row.
    pub start: u32,
    /// One past the last query row.
    pub end: u32,
    /// First document, an index into the sequence's document bounds.
    pub first_document: u32,
    /// First key row: where the first document starts. The keys of the block are `[keys_start, end)`.
    pub keys_start: u32,
    /// Unmasked pairs of the block.
    pub pairs: u64,
    /// Documents that other blocks read too: that at the block's start, and another one at its end.
    pub shared: [Option<Prefix>; 2],
}

/// One packed sequence: document bounds and the contiguous shards of its context-parallel ranks.
#[derive(Clone, Debug)]
pub(in crate::planners) struct Sequence {
    /// Document bounds: `0, l0, l0 + l1, ...`.
    pub documents: Vec<u32>,
    /// Shard bounds: floor(i L / CP).
    pub shards: Vec<u32>,
    cp: u64,
    tokens: u64,
}

impl Sequence {
    fn new(sequence: &PackedSequence, cp: u32) -> Self {
        let tokens = sequence.tokens();
        let bound = |i: u32| (u64::from(i) * tokens / u64::from(cp)) as u32;
        Self {
            documents: Plan::bounds(sequence.documents()),
            shards: (0..=cp).map(bound).collect(),
            cp: u64::from(cp),
            tokens,
        }
    }

    /// Context-parallel rank whose shard holds `row`.
    pub fn owner(&self, row: u32) -> usize {
        (((u64::from(row) + 1) * self.cp - 1) / self.tokens) as usize
    }

    /// Rows of context-parallel rank `c`.
    pub fn shard(&self, c: usize) -> (u32, u32) {
        (self.shards[c], self.shards[c + 1])
    }

    /// Bounds of the document that holds `row`.
    pub fn document(&self, row: u32) -> (u32, u32) {
        let next = self.documents.partition_point(|&bound| bound <= row);
        (self.documents[next - 1], self.documents[next])
    }

    /// `[start, end)` cut at the shard bounds: (context-parallel rank, first row, one past the last row).
    pub fn by_owner(&self, start: u32, end: u32) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        let mut row = start;
        std::iter::from_fn(move || {
            (row < end).then(|| {
                let owner = self.owner(row);
                let (from, to) = (row, self.shards[owner + 1].min(end));
                row = to;
                (owner, from, to)
            })
        })
    }
}

/// The blocks of all packed sequences of a domain.
#[derive(Clone, Debug)]
pub(in crate::planners) struct Grid {
    /// Context-parallel ranks of a sequence.
    pub cp: u32,
    /// Packed sequences.
    pub sequences: Vec<Sequence>,
    /// Blocks by sequence and row.
    pub blocks: Vec<Block>,
    /// Documents that more than one block reads.
    pub shared_documents: usize,
}

impl Grid {
    /// Cuts every sequence into blocks of `block` rows, counted from its start. Sequences have at most 2^32 - 1 tokens.
    pub fn new(sequences: &[&PackedSequence], cp: u32, block: u32) -> Self {
        Self::cut(sequences, cp, |_, start| start.saturating_add(block))
    }

    /// Cuts every sequence into blocks; `block_end(sequence, start)` is one past the last row of the block that starts at `start`
    /// and lies above it.
    pub fn cut(sequences: &[&PackedSequence], cp: u32, block_end: impl Fn(usize, u32) -> u32) -> Self {
        let sequences: Vec<Sequence> = sequences.iter().map(|s| Sequence::new(s, cp)).collect();
        let mut blocks = Vec::new();
        let mut shared_documents = 0u32;
        for (seq, sequence) in sequences.iter().enumerate() {
            let bounds = &sequence.documents;
            let tokens = bounds.last().copied().unwrap_or(0);
            let mut document = 0;
            let mut carried: Option<u32> = None;
            let mut start = 0;
            while start < tokens {
                let end = block_end(seq, start).min(tokens);
                let mut cut = Block {
                    seq: seq as u32,
                    start,
                    end,
                    first_document: document as u32,
                    keys_start: bounds[document],
                    pairs: 0,
                    shared: [None; 2],
                };
                loop {
                    let (from, to) = (bounds[document], bounds[document + 1]);
                    cut.pairs += row_pairs(from.max(start) - from, to.min(end) - from);
                    let number = carried.take().or_else(|| {
                        (to > end).then(|| {
                            shared_documents += 1;
                            shared_documents - 1
                        })
                    });
                    if let Some(number) = number {
                        let slot = usize::from(from > cut.keys_start);
                        cut.shared[slot] = Some(Prefix { document: number, start: from, end: to.min(end) });
                    }
                    if to > end {
                        carried = number;
                        break;
                    }
                    document += 1;
                    if to == end {
                        break;
                    }
                }
                blocks.push(cut);
                start = end;
            }
        }
        Self { cp, sequences, blocks, shared_documents: shared_documents as usize }
    }

    /// Contiguous shards of every sequence over its own ranks: where rows are at the start and results at the end.
    pub fn homes(&self) -> Vec<Shard> {
        let mut homes = Vec::with_capacity(self.sequences.len() * self.cp as usize);
        for (seq, sequence) in (0u32..).zip(&self.sequences) {
            let rows = sequence.shards.windows(2).map(|shard| Rows::range(shard[0], shard[1]));
            let shards = (seq * self.cp..).zip(rows).map(|(rank, rows)| Shard { rank, seq, rows });
            homes.extend(shards.filter(|shard| !shard.rows.is_empty()));
        }
        homes
    }

    /// Rows of the block's sequence that `worker` holds from the start; none for workers of other sequences.
    pub fn own(&self, worker: u32, seq: u32) -> (u32, u32) {
        if worker / self.cp == seq { self.sequences[seq as usize].shard((worker % self.cp) as usize) } else { (0, 0) }
    }
}

/// Number of rows that two ranges share.
pub(in crate::planners) fn overlap(a: (u32, u32), b: (u32, u32)) -> u32 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}
