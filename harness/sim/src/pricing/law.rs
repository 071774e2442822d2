use skewbench_plan::Pass;

use super::droop::Droop;
use super::schedule::{Blocks, falling, rising};

/// Rows or keys of a block.
pub(crate) const BLOCK: u32 = 128;
/// Calls of one tile with at least as many rows have a graph of their exact shape, all others one for ragged calls.
pub(crate) const ALONE_ROWS: u32 = 1024;
/// So many of the longest tiles of a call are looked at one by one.
pub(crate) const LONGEST: usize = 8;

/// What a kernel masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Causal, as many rows as keys.
    Square,
    /// Causal, aligned at the bottom right.
    BottomRight,
    /// No mask.
    Full,
}

/// Sums over the tiles of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) tiles: u64,
    /// Blocks of a head.
    pub(crate) blocks: f64,
    /// Steps of a head: pairs of a block of rows and one of keys that are computed.
    pub(crate) steps: f64,
    pub(crate) rows: f64,
    pub(crate) keys: f64,
    /// Most rows and most keys of a tile.
    pub(crate) q_max: u32,
    pub(crate) k_max: u32,
}

impl Totals {
    /// Adds a tile.
    #[inline]
    pub(crate) fn add(&mut self, pass: Pass, kind: Kind, q: u32, k: u32) {
        let (rows, keys) = (f64::from(q.div_ceil(BLOCK)), f64::from(k.div_ceil(BLOCK)));
        let skips = kind == Kind::Square || (kind == Kind::BottomRight && pass == Pass::Forward);
        self.tiles += 1;
        self.blocks += if pass == Pass::Forward { rows } else { keys };
        self.steps += rows * keys - if skips { rows * (rows - 1.0) * 0.5 } else { 0.0 };
        self.rows += f64::from(q);
        self.keys += f64::from(k);
        self.q_max = self.q_max.max(q);
        self.k_max = self.k_max.max(k);
    }
}

/// Query heads of a call, and whether several share a KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) query: u32,
    pub(crate) grouped: bool,
}

/// What calls of one pass cost, by one of cuDNN's two ways: one tile alone, or ragged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) pass: Pass,
    pub(crate) multiprocessors: u64,
    /// Nanoseconds of a call beside its blocks.
    pub(crate) overhead_ns: f64,
    /// Nanoseconds of a block beside its steps.
    pub(crate) block_ns: f64,
    /// Nanoseconds of a step on a card that is nearly idle, by kind.
    pub(crate) step_ns: [f64; 3],
    /// Factor of the steps of tiles without a mask whose keys do not fill their last block.
    pub(crate) unaligned: f64,
    /// Nanoseconds of a row of a head, by kernels that only read and write.
    pub(crate) row_ns: f64,
    /// Likewise of a key where query heads share it.
    pub(crate) key_ns: f64,
    /// How much longer steps take where all multiprocessors work, as a share.
    pub(crate) busy: f64,
}

impl Law {
    #[inline]
    fn step(&self, kind: Kind, k: u32) -> f64 {
        let unaligned = kind == Kind::Full && !k.is_multiple_of(BLOCK);
        self.step_ns[kind as usize] * if unaligned { self.unaligned } else { 1.0 }
    }

    /// Blocks of a head: of rows forward, of keys backward.
    fn blocks(&self, kind: Kind, q: u32, k: u32) -> Blocks {
        let (rows, keys) = (q.div_ceil(BLOCK), k.div_ceil(BLOCK));
        let step = self.step(kind, k);
        let (count, steps, skips) = match self.pass {
            Pass::Forward => (rows, keys, kind != Kind::Full),
            Pass::Backward => (keys, rows, kind == Kind::Square),
        };
        let longest = self.block_ns + step * f64::from(steps);
        Blocks { count: count.into(), longest, slope: if skips { step } else { 0.0 } }
    }

    /// Nanoseconds of the blocks of so many such tiles, alone on the card.
    fn alone(&self, kind: Kind, heads: u64, q: u32, k: u32) -> f64 {
        self.alone_blocks(kind, heads, &self.blocks(kind, q, k))
    }

    fn alone_blocks(&self, kind: Kind, heads: u64, blocks: &Blocks) -> f64 {
        match self.pass {
            Pass::Backward if kind == Kind::Square => falling(blocks, heads, self.multiprocessors),
            _ => rising(blocks, heads, self.multiprocessors),
        }
    }

    /// Nanoseconds of all blocks, were they spread evenly.
    #[inline]
    pub(crate) fn work(&self, kind: Kind, heads: u32, totals: &Totals) -> f64 {
        let head = self.block_ns * totals.blocks + self.step(kind, totals.k_max) * totals.steps;
        head * f64::from(heads) / self.multiprocessors as f64
    }

    /// Nanoseconds of what is linear in rows and keys.
    #[inline]
    pub(crate) fn moved(&self, heads: Heads, rows: f64, keys: f64) -> f64 {
        (self.row_ns * rows + if heads.grouped { self.key_ns * keys } else { 0.0 }) * f64::from(heads.query)
    }

    /// Nanoseconds until the last block ends.
    fn makespan(
        &self,
        kind: Kind,
        heads: u32,
        totals: &Totals,
        work: f64,
        tiles: impl Iterator<Item = (u32, u32)>,
    ) -> f64 {
        let n = u64::from(heads);
        if totals.tiles == 1 {
            return self.alone(kind, n, totals.q_max, totals.k_max).max(work);
        }
        let most = totals.tiles.min(LONGEST as u64);
        let largest = self.blocks(kind, totals.q_max, totals.k_max);
        // No tile, nor the longest together, can last longer than so many of the largest.
        if work >= self.rounds(largest.count * n * most) * largest.longest {
            return work;
        }
        let mut bound = work;
        let (mut even, mut ramps) = (Longest::new(), Longest::new());
        for (q, k) in tiles {
            let blocks = self.blocks(kind, q, k);
            if self.rounds(blocks.count * n) * blocks.longest > bound {
                bound = bound.max(self.alone_blocks(kind, n, &blocks));
            }
            if blocks.slope > 0.0 {
                ramps.add((f64::from(q), q));
            }
            // Ramps from one step on last longer than rounds of their shortest blocks.
            if kind != Kind::Square {
                even.add((blocks.shortest(), blocks.count as u32));
            }
        }
        // Blocks that are at least so long come in rounds.
        let mut count = 0;
        for &(ns, blocks) in even.tiles() {
            count += u64::from(blocks) * n;
            bound = bound.max(self.rounds(count) * ns);
        }
        // Every tile holds the square of its own rows.
        for (tiles, &(_, q)) in (1..).zip(ramps.tiles()) {
            let blocks = self.blocks(kind, q, q);
            if self.rounds(blocks.count * n * tiles) * blocks.longest > bound {
                bound = bound.max(self.alone_blocks(kind, n * tiles, &blocks));
            }
        }
        bound
    }

    /// Rounds in which all multiprocessors take one of so many blocks.
    #[inline]
    fn rounds(&self, blocks: u64) -> f64 {
        let (blocks, sms) = (blocks as f64, self.multiprocessors as f64);
        let whole = (blocks / sms) as u64 as f64;
        if whole * sms < blocks { whole + 1.0 } else { whole }
    }

    /// Nanoseconds of a call. `tiles` need hold only the longest where `totals` hold all.
    pub(crate) fn call_ns(
        &self,
        kind: Kind,
        heads: Heads,
        totals: &Totals,
        droop: &Droop,
        tiles: impl Iterator<Item = (u32, u32)>,
    ) -> f64 {
        let work = self.work(kind, heads.query, totals);
        let makespan = self.makespan(kind, heads.query, totals, work, tiles);
        let slower = self.busy + droop.at(makespan) - 1.0;
        self.overhead_ns + self.moved(heads, totals.rows, totals.keys) + makespan + slower * work
    }

    /// This law, nowhere cheaper than another one.
    pub(crate) fn at_least(mut self, other: &Self) -> Self {
        self.overhead_ns = self.overhead_ns.max(other.overhead_ns);
        self.block_ns = self.block_ns.max(other.block_ns);
        self.row_ns = self.row_ns.max(other.row_ns);
        self.key_ns = self.key_ns.max(other.key_ns);
        let mut busy = self.busy.max(other.block_ns * (1.0 + other.busy) / self.block_ns - 1.0);
        for (step, least) in self.step_ns.iter_mut().zip(other.step_ns) {
            *step = step.max(least);
            busy = busy.max(least * (1.0 + other.busy) / *step - 1.0);
        }
        self.busy = busy;
        self
    }
}

/// The longest of some tiles, longest first.
struct Longest {
    tiles: [(f64, u32); LONGEST],
    count: usize,
}

impl Longest {
    fn new() -> Self {
        Self { tiles: [(0.0, 0); LONGEST], count: 0 }
    }

    fn add(&mut self, tile: (f64, u32)) {
        if self.count == LONGEST {
            if tile.0 <= self.tiles[LONGEST - 1].0 {
                return;
            }
            self.count -= 1;
        }
        let mut place = self.count;
        while place > 0 && self.tiles[place - 1].0 < tile.0 {
            self.tiles[place] = self.tiles[place - 1];
            place -= 1;
        }
        self.tiles[place] = tile;
        self.count += 1;
    }

    fn tiles(&self) -> &[(f64, u32)] {
        &self.tiles[..self.count]
    }
}
