use skewbench_plan::Pass;

use super::droop::Droop;
use super::schedule::{Blocks, falling, rising};

/// Rows (forward) or keys (backward) of a block, and keys of a forward step.
pub(crate) const BLOCK: u32 = 128;
/// Rows of a backward step.
pub(crate) const STEP_ROWS: u32 = 64;
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
    /// True of a call of one tile that has a graph of its exact shape.
    #[inline]
    pub(crate) fn alone(&self) -> bool {
        self.tiles == 1 && self.q_max >= ALONE_ROWS
    }

    /// Adds a tile.
    #[inline]
    pub(crate) fn add(&mut self, pass: Pass, kind: Kind, q: u32, k: u32) {
        let cut = Cut::new(pass, kind, q, k);
        let (blocks, steps) = (f64::from(cut.blocks), f64::from(cut.steps));
        self.tiles += 1;
        self.blocks += blocks;
        self.steps += blocks * steps - f64::from(cut.skipped) * (blocks * (blocks - 1.0) * 0.5);
        self.rows += f64::from(q);
        self.keys += f64::from(k);
        self.q_max = self.q_max.max(q);
        self.k_max = self.k_max.max(k);
    }
}

/// How a head of a tile is cut.
struct Cut {
    blocks: u32,
    /// Steps of the longest block.
    steps: u32,
    /// By how many steps each block is shorter than the next longer one.
    skipped: u32,
}

impl Cut {
    #[inline]
    fn new(pass: Pass, kind: Kind, q: u32, k: u32) -> Self {
        let (rows, keys) = (q.div_ceil(BLOCK), k.div_ceil(BLOCK));
        match pass {
            Pass::Forward => Self { blocks: rows, steps: keys, skipped: u32::from(kind != Kind::Full) },
            Pass::Backward => {
                let skipped = if kind == Kind::Square { BLOCK / STEP_ROWS } else { 0 };
                Self { blocks: keys, steps: q.div_ceil(STEP_ROWS), skipped }
            }
        }
    }
}

/// Query heads of a call, and whether several share a KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) query: u32,
    pub(crate) grouped: bool,
}

/// What calls of one pass cost, by one of cuDNN's two ways: one tile alone, or ragged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Law {
    pub(crate) pass: Pass,
    pub(crate) multiprocessors: u64,
    /// Nanoseconds of a call beside its blocks.
    pub(crate) overhead_ns: f64,
    /// Nanoseconds of a tile beside its blocks.
    pub(crate) tile_ns: f64,
    /// Nanoseconds more of a call where query heads share keys: kernels that sum their gradients.
    pub(crate) grouped_ns: f64,
    /// Likewise of a tile.
    pub(crate) grouped_tile_ns: f64,
    /// Nanoseconds of a block beside its steps.
    pub(crate) block_ns: f64,
    /// Nanoseconds of a step on a card that is nearly idle, by kind.
    pub(crate) step_ns: [f64; 3],
    /// Factor of the steps of [`unaligned`] tiles.
    pub(crate) unaligned: f64,
    /// Nanoseconds of a row of a head, by kernels that only read and write.
    pub(crate) row_ns: f64,
    /// Likewise of a key where query heads share it.
    pub(crate) key_ns: f64,
    /// Share of its time that a block takes which follows another one on its multiprocessor.
    pub(crate) later: f64,
    /// How much longer steps take where all multiprocessors work, as a share.
    pub(crate) busy: f64,
}

/// True of a tile whose keys do not fill their last block, where that tells: not under a mask forward.
#[inline]
pub(crate) fn unaligned(pass: Pass, kind: Kind, k: u32) -> bool {
    (kind == Kind::Full || pass == Pass::Backward) && !k.is_multiple_of(BLOCK)
}

/// Nanoseconds of a call: what is beside its blocks, its blocks until the last ends, and all of them were they spread evenly.
pub(crate) struct Parts {
    pub(crate) fixed: f64,
    pub(crate) makespan: f64,
    pub(crate) work: f64,
}

impl Law {
    #[inline]
    fn step(&self, kind: Kind, k: u32) -> f64 {
        self.step_ns[kind as usize] * if unaligned(self.pass, kind, k) { self.unaligned } else { 1.0 }
    }

    /// Blocks of a head: of rows forward, of keys backward.
    fn blocks(&self, kind: Kind, q: u32, k: u32) -> Blocks {
        let (cut, step) = (Cut::new(self.pass, kind, q, k), self.step(kind, k));
        let longest = self.block_ns + step * f64::from(cut.steps);
        Blocks { count: cut.blocks.into(), longest, slope: step * f64::from(cut.skipped) }
    }

    /// Nanoseconds of the blocks of so many such tiles, alone on the card.
    fn alone(&self, kind: Kind, heads: u64, q: u32, k: u32) -> f64 {
        self.alone_blocks(kind, heads, &self.blocks(kind, q, k))
    }

    fn alone_blocks(&self, kind: Kind, heads: u64, blocks: &Blocks) -> f64 {
        let schedule = if self.longest_first(kind) { falling } else { rising };
        schedule(blocks, heads, self.multiprocessors)
    }

    /// True when a tile's longest block is issued first, else it is the last.
    #[inline]
    pub(crate) fn longest_first(&self, kind: Kind) -> bool {
        self.pass == Pass::Backward && kind == Kind::Square
    }

    /// Nanoseconds of all blocks, were they spread evenly.
    #[inline]
    pub(crate) fn work(&self, kind: Kind, heads: u32, totals: &Totals) -> f64 {
        let head = self.block_ns * totals.blocks + self.step(kind, totals.k_max) * totals.steps;
        head * f64::from(heads) / self.multiprocessors as f64
    }

    /// Nanoseconds of what is linear in tiles, rows and keys.
    #[inline]
    fn beside(&self, heads: Heads, totals: &Totals) -> f64 {
        let (tile_ns, key_ns) =
            if heads.grouped { (self.tile_ns + self.grouped_tile_ns, self.key_ns) } else { (self.tile_ns, 0.0) };
        tile_ns * totals.tiles as f64 + (self.row_ns * totals.rows + key_ns * totals.keys) * f64::from(heads.query)
    }

    /// Nanoseconds that tiles add to a call which fills the card.
    pub(crate) fn added_ns(&self, kind: Kind, heads: Heads, totals: &Totals) -> f64 {
        self.work(kind, heads.query, totals) * (self.later + self.busy) + self.beside(heads, totals)
    }

    /// Nanoseconds until the last block ends.
    fn makespan(
        &self,
        kind: Kind,
        heads: u32,
        totals: &Totals,
        work: f64,
        late: f64,
        tiles: impl Iterator<Item = (u32, u32)>,
    ) -> f64 {
        let n = u64::from(heads);
        if totals.tiles == 1 {
            return self.alone(kind, n, totals.q_max, totals.k_max).max(work);
        }
        let most = totals.tiles.min(LONGEST as u64);
        let largest = self.blocks(kind, totals.q_max, totals.k_max);
        // No tile, nor the longest together, can last longer than so many of the largest.
        let mut bound = work.max(late);
        if bound >= self.rounds(largest.count * n * most) * largest.longest {
            return bound;
        }
        let share = f64::from(heads) / self.multiprocessors as f64;
        let (mut even, mut ramps) = (Longest::new(), Longest::new());
        for (q, k) in tiles {
            let blocks = self.blocks(kind, q, k);
            // Rounds are fewer than one more than the blocks of a multiprocessor.
            let fewer = blocks.count as f64 * share + 1.0;
            if fewer * blocks.longest > bound && self.rounds(blocks.count * n) * blocks.longest > bound {
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

    /// Nanoseconds until the longest block of a tile ends, which starts when what was issued before is done but for one mean block on every
    /// multiprocessor. `issued`: the tiles up to that block.
    #[inline]
    pub(crate) fn late(&self, kind: Kind, heads: u32, issued: &Totals, (q, k): (u32, u32)) -> f64 {
        let longest = self.block_ns + self.step(kind, k) * f64::from(Cut::new(self.pass, kind, q, k).steps);
        let running = self.multiprocessors as f64 / (f64::from(heads) * issued.blocks);
        let start = if running < 1.0 { self.work(kind, heads, issued) * (1.0 - running) } else { 0.0 };
        start + longest
    }

    /// Nanoseconds of a call. `tiles` need hold only the longest where `totals` hold all. `late`: the greatest of [`Self::late`], where there
    /// are several tiles.
    pub(crate) fn call_ns(
        &self,
        kind: Kind,
        heads: Heads,
        totals: &Totals,
        droop: &Droop,
        late: f64,
        tiles: impl Iterator<Item = (u32, u32)>,
    ) -> f64 {
        let parts = self.parts(kind, heads, totals, late, tiles);
        let slower = self.busy + droop.at(parts.makespan) - 1.0;
        parts.fixed + parts.makespan + slower * parts.work
    }

    /// What a call consists of; arguments as those of [`Self::call_ns`].
    #[inline]
    pub(crate) fn parts(
        &self,
        kind: Kind,
        heads: Heads,
        totals: &Totals,
        late: f64,
        tiles: impl Iterator<Item = (u32, u32)>,
    ) -> Parts {
        let work = self.work(kind, heads.query, totals);
        let longest = self.blocks(kind, totals.q_max, totals.k_max).longest;
        let makespan = self.makespan(kind, heads.query, totals, work, late, tiles);
        let grouped = if heads.grouped { self.grouped_ns } else { 0.0 };
        Parts {
            fixed: self.overhead_ns + grouped + self.beside(heads, totals),
            makespan: longest + (makespan - longest).max(0.0) * self.later,
            work,
        }
    }

    /// This law, nowhere cheaper than another one.
    pub(crate) fn at_least(mut self, other: &Self) -> Self {
        self.overhead_ns = self.overhead_ns.max(other.overhead_ns);
        self.tile_ns = self.tile_ns.max(other.tile_ns);
        self.grouped_ns = self.grouped_ns.max(other.grouped_ns);
        self.grouped_tile_ns = self.grouped_tile_ns.max(other.grouped_tile_ns);
        self.block_ns = self.block_ns.max(other.block_ns);
        self.row_ns = self.row_ns.max(other.row_ns);
        self.key_ns = self.key_ns.max(other.key_ns);
        let mut dearer = self.block_ns / other.block_ns;
        for (step, least) in self.step_ns.iter_mut().zip(other.step_ns) {
            *step = step.max(least);
            dearer = dearer.min(*step / least);
        }
        self.later = self.later.max(other.later / dearer).min(1.0);
        self.busy = self.busy.max(other.busy / dearer);
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
