use skewbench_plan::{Move, Rows, Shard, Span, SystemError, Tile};

use super::fill::{Document, Item};

/// Moves of a micro-batch at most; a plan holds up to four times as many a pass.
const MOST_MOVES: usize = 1 << 27;

/// Tiles of every server in one micro-batch, and the rows that they need from elsewhere. Spans count from its own tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    /// Tiles by server.
    pub tiles: Vec<Tile>,
    /// `server_tiles[rank]`.
    pub server_tiles: Vec<Span>,
    /// Query rows to their servers, then key rows to theirs.
    pub moves: Vec<Move>,
    /// The first moves are of query rows.
    pub queries: usize,
    /// Where rows live outside the attention.
    pub homes: Vec<Shard>,
}

impl Routes {
    /// `filled` is the layout outside the attention, `balanced` what the servers compute.
    ///
    /// # Errors
    /// When documents are cut so finely that there are too many moves of keys.
    pub fn new(
        documents: &[Document],
        filled: &[Item],
        mut balanced: Vec<Item>,
        ranks: u32,
    ) -> Result<Self, SystemError> {
        // Items mostly stand in this order, which a stable sort only merges.
        balanced.sort_by_key(|item| (item.server, item.document));
        let homes = Homes::new(documents, filled);
        let mut routes = Self { homes: homes.shards(filled, documents), ..Self::default() };
        let mut keys = Vec::new();
        let mut items = balanced.as_slice();
        for server in 0..ranks {
            let first = routes.tiles.len() as u32;
            let mine = items.partition_point(|item| item.server == server);
            let (of_server, rest) = items.split_at(mine);
            items = rest;
            for of_document in of_server.chunk_by(|a, b| a.document == b.document) {
                let index = of_document[0].document;
                let document = &documents[index as usize];
                let end = routes.add_tiles(document, homes.own_prefix(index, server), of_document);
                for &Piece { rows, home } in homes.of(index).iter().take_while(|piece| piece.rows.0 < end) {
                    let rows = document.rows(rows.0, rows.1.min(end));
                    push(&mut keys, Move { from: home, to: server, seq: document.seq, rows });
                }
            }
            if routes.moves.len() + keys.len() > MOST_MOVES {
                return Err(SystemError::Impossible(format!(
                    "documents nested over {ranks} ranks need more than {MOST_MOVES} moves of keys; use fewer ranks"
                )));
            }
            routes.server_tiles.push(Span { start: first, end: routes.tiles.len() as u32 });
        }
        routes.queries = routes.moves.len();
        routes.moves.append(&mut keys);
        Ok(routes)
    }

    /// Adds the tiles of one document's items on one server and brings their rows; returns how many of the document's
    /// keys have to be brought. Keys that are all at home are read there.
    fn add_tiles(&mut self, document: &Document, own_prefix: u32, items: &[Item]) -> u32 {
        let mut brought = 0;
        for item in items {
            for (start, end) in item.ranges(document.len) {
                let q = document.rows(start, end);
                self.tiles.push(Tile { seq: document.seq, q, k: document.rows(0, end) });
                if item.home != item.server {
                    push(&mut self.moves, Move { from: item.home, to: item.server, seq: document.seq, rows: q });
                }
                if end > own_prefix {
                    brought = brought.max(end);
                }
            }
        }
        brought
    }
}

impl Document {
    /// Rows of the packed sequence.
    fn rows(&self, start: u32, end: u32) -> Rows {
        Rows::range(self.start + start, self.start + end)
    }
}

/// Adds a move, joined to the one before where it continues it.
fn push(moves: &mut Vec<Move>, next: Move) {
    match moves.last_mut() {
        Some(last)
            if (last.from, last.to, last.seq, last.rows.end()) == (next.from, next.to, next.seq, next.rows.start) =>
        {
            last.rows.len += next.rows.len;
        }
        _ => moves.push(next),
    }
}

/// Rows of a document on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    rows: (u32, u32),
    home: u32,
}

/// Homes of the rows of every document, by row.
struct Homes {
    pieces: Vec<Piece>,
    /// `start[document]` and one more.
    start: Vec<u32>,
}

impl Homes {
    /// The fill's items stand document by document.
    fn new(documents: &[Document], filled: &[Item]) -> Self {
        let mut homes =
            Self { pieces: Vec::with_capacity(filled.len()), start: Vec::with_capacity(documents.len() + 1) };
        homes.start.push(0);
        for items in filled.chunk_by(|a, b| a.document == b.document) {
            let len = documents[items[0].document as usize].len;
            let first = homes.pieces.len();
            for item in items {
                homes.pieces.extend(item.ranges(len).map(|rows| Piece { rows, home: item.home }));
            }
            homes.pieces[first..].sort_unstable_by_key(|piece| piece.rows);
            homes.start.push(homes.pieces.len() as u32);
        }
        homes
    }

    fn of(&self, document: u32) -> &[Piece] {
        let document = document as usize;
        &self.pieces[self.start[document] as usize..self.start[document + 1] as usize]
    }

    /// Rows from the document's first on that a rank holds.
    fn own_prefix(&self, document: u32, rank: u32) -> u32 {
        self.of(document).iter().take_while(|piece| piece.home == rank).last().map_or(0, |piece| piece.rows.1)
    }

    /// Shards of every rank, joined across documents.
    fn shards(&self, filled: &[Item], documents: &[Document]) -> Vec<Shard> {
        let mut shards: Vec<Shard> = Vec::new();
        for items in filled.chunk_by(|a, b| a.home == b.home) {
            let first = shards.len();
            for item in items {
                let document = &documents[item.document as usize];
                for (start, end) in item.ranges(document.len) {
                    let rows = document.rows(start, end);
                    match shards[first..].last_mut() {
                        Some(last) if last.seq == document.seq && last.rows.end() == rows.start => {
                            last.rows.len += rows.len;
                        }
                        _ => shards.push(Shard { rank: item.home, seq: document.seq, rows }),
                    }
                }
            }
        }
        shards
    }
}
