use skewbench_plan::{Move, Rows, Span, Tile};

use super::grid::{Block, Grid};
use super::heads::HeadCut;

/// Moves of one table that travel together, with who takes part.
#[derive(Clone, Debug)]
pub(in crate::planners) struct Route {
    /// Moves of the table.
    pub span: Span,
    /// What every rank does in them.
    pub roles: Vec<Role>,
}

/// A rank's part in a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::planners) struct Role {
    /// It sends rows.
    pub sends: bool,
    /// It receives rows.
    pub receives: bool,
}

impl Role {
    /// True when the rank posts the call.
    pub fn takes_part(self) -> bool {
        self.sends || self.receives
    }

    /// Both parts together.
    pub fn join(&mut self, other: Self) {
        self.sends |= other.sends;
        self.receives |= other.receives;
    }
}

/// A table of moves under construction.
#[derive(Clone, Debug, Default)]
pub(in crate::planners) struct MoveTable {
    /// The moves.
    pub moves: Vec<Move>,
    start: usize,
}

impl MoveTable {
    /// Starts a new route after the moves that are there.
    pub fn begin(&mut self) {
        self.start = self.moves.len();
    }

    /// Adds contiguous rows, joined to the move before where they continue it.
    pub fn push(&mut self, from: u32, to: u32, seq: u32, start: u32, end: u32) {
        if start >= end {
            return;
        }
        if let Some(last) = self.moves[self.start..].last_mut()
            && (last.from, last.to, last.seq, last.rows.end()) == (from, to, seq, start)
        {
            last.rows.len += end - start;
            return;
        }
        self.moves.push(Move { from, to, seq, rows: Rows::range(start, end) });
    }

    /// Ends a route; none when it would have no move.
    pub fn finish(&mut self, ranks: u32) -> Option<Route> {
        let range = self.start..self.moves.len();
        self.start = range.end;
        if range.is_empty() {
            return None;
        }
        let mut roles = vec![Role::default(); ranks as usize];
        for mv in &self.moves[range.clone()] {
            roles[mv.from as usize].sends = true;
            roles[mv.to as usize].receives = true;
        }
        Some(Route { span: Span { start: range.start as u32, end: range.end as u32 }, roles })
    }

    /// The way back of a route's rows, without those that never left; none when all of them stayed.
    pub fn reverse(&mut self, there: &Self, route: &Route, ranks: u32) -> Option<Route> {
        let back = there.moves[route.span.range()].iter().filter(|mv| mv.from != mv.to);
        self.moves.extend(back.map(|mv| Move { from: mv.to, to: mv.from, ..*mv }));
        self.finish(ranks)
    }
}

/// Tiles of every worker, and the rows that they need from elsewhere.
#[derive(Clone, Debug, Default)]
pub(in crate::planners) struct Routes {
    /// All tiles.
    pub tiles: Vec<Tile>,
    /// `worker_tiles[shard * ranks + worker]`.
    pub worker_tiles: Vec<Span>,
    /// Rows of `queries` and `keys`.
    pub table: MoveTable,
    /// Query rows to their workers, by head shard.
    pub queries: Vec<Option<Route>>,
    /// Key rows to their workers, by KV class.
    pub keys: Vec<Option<Route>>,
}

impl Routes {
    /// Cuts the SH-tiles into kernel tiles and finds their rows. `worker[block * head shards + shard]`.
    pub(in crate::planners::libra) fn new(grid: &Grid, cut: &HeadCut, worker: &[u32], ranks: u32) -> Self {
        let shards = cut.shards.len();
        let blocks = BlocksOf::new(worker, shards, ranks);
        let mut routes = Self::default();
        for shard in 0..shards {
            for rank in 0..ranks {
                let first = routes.tiles.len();
                for &block in blocks.of(shard, rank) {
                    routes.add_block(grid, &grid.blocks[block as usize], rank);
                }
                routes.worker_tiles.push(Span { start: first as u32, end: routes.tiles.len() as u32 });
            }
            let route = routes.table.finish(ranks);
            routes.queries.push(route);
        }
        let mut needed: Vec<(u32, u32, u32)> = Vec::new();
        for class in &cut.classes {
            for rank in 0..ranks {
                needed.clear();
                for shard in class.shards.clone() {
                    needed.extend(blocks.of(shard, rank).iter().map(|&block| {
                        let block = &grid.blocks[block as usize];
                        (block.seq, block.keys_start, block.end)
                    }));
                }
                if class.shards.len() > 1 {
                    needed.sort_unstable();
                }
                let mut rest = needed.as_slice();
                while let [(seq, start, first_end), others @ ..] = rest {
                    let mut end = *first_end;
                    rest = others;
                    while let [(next_seq, next_start, next_end), others @ ..] = rest
                        && next_seq == seq
                        && *next_start <= end
                    {
                        end = end.max(*next_end);
                        rest = others;
                    }
                    routes.add_keys(grid, *seq, *start, end, rank);
                }
            }
            let route = routes.table.finish(ranks);
            routes.keys.push(route);
        }
        routes
    }

    /// One tile for each document of a block, cut where the worker's own shard begins or ends: rows of its own are read
    /// and written in place, the others arrive in one contiguous piece.
    fn add_block(&mut self, grid: &Grid, block: &Block, rank: u32) {
        let sequence = &grid.sequences[block.seq as usize];
        let own = grid.own(rank, block.seq);
        let bounds = &sequence.documents[block.first_document as usize..];
        for document in bounds.windows(2).take_while(|d| d[0] < block.end) {
            let (start, end) = (document[0].max(block.start), document[1].min(block.end));
            let cuts = [start, own.0.clamp(start, end), own.1.clamp(start, end), end];
            for rows in cuts.windows(2).filter(|rows| rows[0] < rows[1]) {
                self.tiles.push(Tile {
                    seq: block.seq,
                    q: Rows::range(rows[0], rows[1]),
                    k: Rows::range(document[0], rows[1]),
                });
            }
        }
        for (owner, start, end) in sequence.by_owner(block.start, block.end) {
            let from = block.seq * grid.cp + owner as u32;
            if from != rank {
                self.table.push(from, rank, block.seq, start, end);
            }
        }
    }

    /// Brings the document prefixes `[start, end)` to a worker, each row once. Rows of its own shard are copied beside
    /// them only for a document that crosses the shard's bounds: the others are read in place.
    pub fn add_keys(&mut self, grid: &Grid, seq: u32, start: u32, end: u32, rank: u32) {
        let sequence = &grid.sequences[seq as usize];
        let own = grid.own(rank, seq);
        let own = (own.0.max(start), own.1.min(end));
        let remote = |from: u32, to: u32, table: &mut MoveTable| {
            for (owner, from, to) in sequence.by_owner(from, to) {
                table.push(seq * grid.cp + owner as u32, rank, seq, from, to);
            }
        };
        if own.0 >= own.1 {
            remote(start, end, &mut self.table);
            return;
        }
        remote(start, own.0, &mut self.table);
        let mut copied = own.0;
        if start < own.0 {
            let (document, document_end) = sequence.document(own.0);
            if document < own.0 {
                copied = document_end.min(own.1);
                self.table.push(rank, rank, seq, own.0, copied);
            }
        }
        if own.1 < end {
            let (document, _) = sequence.document(own.1);
            self.table.push(rank, rank, seq, document.clamp(copied, own.1), own.1);
        }
        remote(own.1, end, &mut self.table);
    }
}

/// Blocks of every (head shard, worker), in order.
struct BlocksOf {
    ranks: usize,
    start: Vec<u32>,
    blocks: Vec<u32>,
}

impl BlocksOf {
    fn new(worker: &[u32], shards: usize, ranks: u32) -> Self {
        let ranks = ranks as usize;
        let list = |tile: usize, worker: u32| (tile % shards) * ranks + worker as usize;
        let mut start = vec![0u32; shards * ranks + 1];
        for (tile, &worker) in worker.iter().enumerate() {
            start[list(tile, worker) + 1] += 1;
        }
        for i in 1..start.len() {
            start[i] += start[i - 1];
        }
        let mut next = start.clone();
        let mut blocks = vec![0; worker.len()];
        for (tile, &worker) in worker.iter().enumerate() {
            let slot = &mut next[list(tile, worker)];
            blocks[*slot as usize] = (tile / shards) as u32;
            *slot += 1;
        }
        Self { ranks, start, blocks }
    }

    fn of(&self, shard: usize, rank: u32) -> &[u32] {
        let list = shard * self.ranks + rank as usize;
        &self.blocks[self.start[list] as usize..self.start[list + 1] as usize]
    }
}
