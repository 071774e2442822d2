use skewbench_plan::{Mask, Move, Rows, Span, Tile};

use super::shards::{Held, Shards, join};
use super::{Deal, Grid};

/// Masks of the launches of a step, in their order.
pub(super) const MASKS: [Mask; 3] = [Mask::Full, Mask::Causal, Mask::CausalExclusive];

/// Tiles and moves of a grid. Head shards compute the same tiles and make the same moves between their own ranks.
pub(super) struct Tables {
    pub(super) tiles: Vec<Tile>,
    /// `launches[step * ring + position]`: tiles by mask.
    pub(super) launches: Vec<[Span; 3]>,
    pub(super) moves: Vec<Move>,
    /// By head shard, moves of its rows from the ranks that hold them to those that compute; none with one head shard.
    pub(super) scatter: Vec<Span>,
    /// By head shard, the moves back.
    pub(super) gather: Vec<Span>,
    /// `rotate[step]`: by head shard, keys and values on their way to where the step needs them; nothing for step 0.
    pub(super) rotate: Vec<Vec<Span>>,
    /// The moves above; those below belong to the backward alone.
    pub(super) forward_moves: usize,
    /// `follow[step]`: by head shard, sums of dK and dV inside a window after the step; only what somebody has added to.
    pub(super) follow: Vec<Vec<Span>>,
    /// `cross[outer step]`: by head shard, sums of dK and dV from window to window.
    pub(super) cross: Vec<Vec<Span>>,
}

/// Pieces of keys that somebody away from their origin has contributed to, by origin and document.
type Reached = Vec<Vec<[bool; 2]>>;

impl Tables {
    pub(super) fn new(grid: &Grid, shards: &Shards, homes: &[Vec<Vec<Rows>>], deal: Deal, documents: usize) -> Self {
        let steps = grid.ring as usize;
        let ranges: usize = shards.rows.iter().map(Vec::len).sum::<usize>() * grid.heads as usize;
        let mut tables = Self {
            tiles: Vec::with_capacity(shards.tiles(documents)),
            launches: Vec::with_capacity(steps * steps),
            moves: Vec::with_capacity(2 * ranges * steps),
            scatter: Vec::new(),
            gather: Vec::new(),
            rotate: Vec::with_capacity(steps),
            forward_moves: 0,
            follow: Vec::with_capacity(steps),
            cross: Vec::with_capacity(grid.windows() as usize),
        };
        if grid.heads > 1 {
            tables.exchange(grid, homes);
        }
        for (outer, inner) in steps_of(grid) {
            tables.rotate(grid, shards, outer, inner);
        }
        tables.forward_moves = tables.moves.len();
        tables.attend(grid, shards, deal);
        tables
    }

    /// Moves between the ranks that hold rows and those that compute them, local ones included, so that the rows of a
    /// position lie in one piece.
    fn exchange(&mut self, grid: &Grid, homes: &[Vec<Vec<Rows>>]) {
        for back in [false, true] {
            for heads in 0..grid.heads {
                let span = span(&mut self.moves, |moves| {
                    for (position, cut) in (0u32..).zip(homes) {
                        let computes = grid.rank(heads, position);
                        for (part, rows) in (0u32..).zip(cut) {
                            let holds = grid.rank(part, position);
                            let (from, to) = if back { (computes, holds) } else { (holds, computes) };
                            moves.extend(rows.iter().map(|&rows| Move { from, to, seq: 0, rows }));
                        }
                    }
                });
                if back { self.gather.push(span) } else { self.scatter.push(span) }
            }
        }
    }

    fn rotate(&mut self, grid: &Grid, shards: &Shards, outer: u32, inner: u32) {
        let before = match (outer, inner) {
            (0, 0) => {
                self.rotate.push(Vec::new());
                return;
            }
            (outer, 0) => (outer - 1, 0),
            (outer, inner) => (outer, inner - 1),
        };
        let by_heads = (0..grid.heads).map(|heads| {
            span(&mut self.moves, |moves| {
                for (origin, rows) in (0u32..).zip(&shards.rows) {
                    let from = grid.rank(heads, grid.holder(origin, before.0, before.1));
                    let to = grid.rank(heads, grid.holder(origin, outer, inner));
                    moves.extend(rows.iter().map(|&rows| Move { from, to, seq: 0, rows }));
                }
            })
        });
        let by_heads = by_heads.collect();
        self.rotate.push(by_heads);
    }

    /// Tiles of all steps, and the moves of the sums that they leave.
    fn attend(&mut self, grid: &Grid, shards: &Shards, deal: Deal) {
        let nobody = || -> Reached { shards.held.iter().map(|h| vec![[false; 2]; h.len()]).collect() };
        let (mut in_window, mut in_ring) = (nobody(), nobody());
        let mut others = [Vec::new(), Vec::new()];
        for (outer, inner) in steps_of(grid) {
            for position in 0..grid.ring {
                let origin = grid.origin(position, outer, inner) as usize;
                let (queries, keys) = (&shards.held[position as usize], &shards.held[origin]);
                let mut mark = |at: usize, piece: usize| {
                    // What is added where keys are when a window starts on them stays there until they leave it.
                    in_window[origin][at][piece] |= inner > 0;
                    in_ring[origin][at][piece] |= outer > 0;
                };
                let full = span(&mut self.tiles, |full| {
                    tiles_of(queries, keys, deal, |mask, tile, at, piece| {
                        match mask {
                            Mask::Full => full.push(tile),
                            Mask::Causal => others[0].push(tile),
                            Mask::CausalExclusive => others[1].push(tile),
                        }
                        mark(at, piece);
                    });
                });
                let mut put = |tiles: &mut Vec<Tile>| span(&mut self.tiles, |all| all.append(tiles));
                let [causal, exclusive] = &mut others;
                self.launches.push([full, put(causal), put(exclusive)]);
            }
            let hop = |tables: &mut Self, reached: &Reached, from: (u32, u32), to: (u32, u32)| {
                let by_heads = (0..grid.heads).map(|heads| {
                    span(&mut tables.moves, |moves| {
                        for (origin, (held, reached)) in (0u32..).zip(shards.held.iter().zip(reached)) {
                            let rank = |at: (u32, u32)| grid.rank(heads, grid.holder(origin, at.0, at.1));
                            pass_on(held, reached, (rank(from), rank(to)), moves);
                        }
                    })
                });
                by_heads.collect::<Vec<Span>>()
            };
            let hops = if inner > 0 { hop(self, &in_window, (outer, inner), (outer, inner + 1)) } else { Vec::new() };
            self.follow.push(hops);
            if inner + 1 == grid.window {
                let hops = if outer > 0 { hop(self, &in_ring, (outer, 0), (outer + 1, 0)) } else { Vec::new() };
                self.cross.push(hops);
                in_window.iter_mut().for_each(|r| r.fill([false; 2]));
            }
        }
    }
}

/// Steps as (outer, inner), in order.
pub(super) fn steps_of(grid: &Grid) -> impl Iterator<Item = (u32, u32)> + use<> {
    let window = grid.window;
    (0..grid.windows()).flat_map(move |outer| (0..window).map(move |inner| (outer, inner)))
}

/// The entries that `fill` appends.
fn span<T>(table: &mut Vec<T>, fill: impl FnOnce(&mut Vec<T>)) -> Span {
    let start = table.len() as u32;
    fill(table);
    Span { start, end: table.len() as u32 }
}

/// Tiles of rows on keys of the same documents, with place and piece of the keys.
fn tiles_of(queries: &[Held], keys: &[Held], deal: Deal, mut add: impl FnMut(Mask, Tile, usize, usize)) {
    let mut at = 0;
    for query in queries {
        while keys.get(at).is_some_and(|key| key.document < query.document) {
            at += 1;
        }
        let Some(key) = keys.get(at).filter(|key| key.document == query.document) else { continue };
        for (_, q) in query.pieces() {
            for (piece, k) in key.pieces() {
                if let Some(mask) = mask_of(q, k, deal) {
                    add(mask, Tile { seq: 0, q, k }, at, piece);
                }
            }
        }
    }
}

/// Mask of rows on keys of one document; `None` when every key comes after every row.
fn mask_of(q: Rows, k: Rows, deal: Deal) -> Option<Mask> {
    if deal == Deal::Striped {
        // Rows and keys are everything of a document in two residue classes, so their ends are less than a stride apart.
        let mask = if k.last() > q.last() { Mask::CausalExclusive } else { Mask::Causal };
        return (mask.pairs(q.len, k.len) > 0).then_some(mask);
    }
    if q == k {
        return Some(Mask::Causal);
    }
    (k.end() <= q.start).then_some(Mask::Full)
}

/// Moves of the pieces of keys that somebody has contributed to, neighbours joined.
fn pass_on(held: &[Held], reached: &[[bool; 2]], (from, to): (u32, u32), moves: &mut Vec<Move>) {
    let first = moves.len();
    for (held, reached) in held.iter().zip(reached) {
        for (_, rows) in held.pieces().filter(|(piece, _)| reached[*piece]) {
            if !moves[first..].last_mut().is_some_and(|last| join(&mut last.rows, rows)) {
                moves.push(Move { from, to, seq: 0, rows });
            }
        }
    }
}
