use std::ops::Range;

use skewbench_plan::{HeadRange, Mask, Pass, Rows, Tile, TileShape};

use super::price::{Prices, parts};
use super::share::Job;
use crate::planners::libra::grid::Grid;

/// When a launch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// A piece of the rows from elsewhere.
    Away(u32),
    /// Own rows, after work from elsewhere: meanwhile its results travel.
    Own,
}

/// Tiles of one mask that one worker runs in one launch.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub stage: Stage,
    /// Head shards.
    pub band: Range<u32>,
    pub mask: Mask,
    pub tiles: Vec<Tile>,
}

/// How jobs become launches.
#[derive(Clone, Copy)]
pub(super) struct Launching<'a> {
    pub grid: &'a Grid,
    pub prices: Prices<'a>,
    /// Query heads of every head shard.
    pub shards: &'a [HeadRange],
    /// Pieces of the rows of work from elsewhere.
    pub pieces: u32,
}

impl Launching<'_> {
    /// Query heads of neighbouring head shards.
    pub fn heads(&self, band: &Range<u32>) -> HeadRange {
        let of = |i: u32| self.shards.get(i as usize).copied().unwrap_or(HeadRange::EMPTY);
        HeadRange::new(of(band.start).start, of(band.end - 1).end)
    }

    /// Launches of a worker's own rows, with their time in picoseconds.
    pub fn own(&self, pass: Pass, jobs: &[Job]) -> (Vec<Draft>, u64) {
        let mut drafts = Vec::new();
        let ps = self.stage(pass, Stage::Own, jobs, |job| (job.start, job.end), &mut drafts);
        (drafts, ps)
    }

    /// Launches of work from elsewhere, in pieces, with their time in picoseconds.
    pub fn away(&self, pass: Pass, jobs: &[Job]) -> (Vec<Draft>, u64) {
        let (mut drafts, mut ps) = (Vec::new(), 0);
        for m in 0..self.pieces {
            ps += self.stage(pass, Stage::Away(m), jobs, |job| job.piece(m, self.pieces), &mut drafts);
        }
        (drafts, ps)
    }

    fn stage(
        &self,
        pass: Pass,
        stage: Stage,
        jobs: &[Job],
        rows: impl Fn(&Job) -> (u32, u32),
        drafts: &mut Vec<Draft>,
    ) -> u64 {
        let mut ps = 0;
        for same in jobs.chunk_by(|a, b| a.band == b.band) {
            let mut tiles = Vec::new();
            for job in same {
                let (start, end) = rows(job);
                self.tiles(job, start, end, &mut tiles);
            }
            if let Some(job) = same.first() {
                ps += self.group(pass, stage, &job.band, tiles, drafts);
            }
        }
        ps
    }

    /// One tile a document, cut where the worker's own shard begins or ends.
    fn tiles(&self, job: &Job, start: u32, end: u32, tiles: &mut Vec<Tile>) {
        if start >= end {
            return;
        }
        let own = self.grid.own(job.worker, job.seq);
        for part in parts(&self.grid.sequences[job.seq as usize], start, end) {
            let cuts = [part.start, own.0.clamp(part.start, part.end), own.1.clamp(part.start, part.end), part.end];
            for rows in cuts.windows(2).filter(|rows| rows[0] < rows[1]) {
                let (q, k) = (Rows::range(rows[0], rows[1]), Rows::range(part.document, rows[1]));
                tiles.push(Tile { seq: job.seq, q, k });
            }
        }
    }

    /// Groups causal tiles into launches, the fastest way; returns the time of all of them.
    fn group(&self, pass: Pass, stage: Stage, band: &Range<u32>, tiles: Vec<Tile>, out: &mut Vec<Draft>) -> u64 {
        if tiles.is_empty() {
            return 0;
        }
        let heads = self.heads(band);
        let lists = |mask, tiles: Vec<Tile>| self.lists(pass, mask, heads, tiles);
        let price = |mask, lists: &[Vec<Tile>]| -> u64 {
            let one = |tiles: &Vec<Tile>| {
                let shapes: Vec<TileShape> = tiles.iter().map(tile_shape).collect();
                self.prices.launch(pass, mask, heads, &shapes)
            };
            lists.iter().map(one).sum()
        };
        if !self.prices.split {
            let all = [tiles];
            let ps = price(Mask::Causal, &all);
            out.extend(all.map(|tiles| Draft { stage, band: band.clone(), mask: Mask::Causal, tiles }));
            return ps;
        }
        let (squares, slanted): (Vec<Tile>, Vec<Tile>) = tiles.iter().partition(|t| t.q.len == t.k.len);
        let mut ways: Vec<Vec<(Mask, Vec<Vec<Tile>>)>> = vec![vec![(Mask::Causal, lists(Mask::Causal, tiles))]];
        let mut extra = 0;
        if !slanted.is_empty() && !squares.is_empty() {
            let causal = |tiles| (Mask::Causal, lists(Mask::Causal, tiles));
            ways.push(vec![causal(squares.clone()), causal(slanted.clone())]);
        }
        if pass == Pass::Backward && !slanted.is_empty() {
            let diagonal = slanted.iter().map(|t| Tile { k: t.q, ..*t });
            let diagonal: Vec<Tile> = squares.iter().copied().chain(diagonal).collect();
            let left = |t: &Tile| Tile { k: Rows::range(t.k.start, t.q.start), ..*t };
            let rectangles: Vec<Tile> = slanted.iter().map(left).collect();
            // Both add to the same rows of dQ: one result is read, the f32 sum read and written.
            let rows: u64 = slanted.iter().map(|t| u64::from(t.q.len)).sum();
            let met = rows * u64::from(heads.len()) * u64::from(self.prices.head_dim) * 2;
            extra = self.prices.cost.copy_ps(5 * met);
            ways.push(vec![(Mask::Full, lists(Mask::Full, rectangles)), (Mask::Causal, lists(Mask::Causal, diagonal))]);
        }
        let total = |way: &Vec<(Mask, Vec<Vec<Tile>>)>| {
            let copies = if way.iter().any(|(mask, _)| *mask == Mask::Full) { extra } else { 0 };
            way.iter().map(|(mask, lists)| price(*mask, lists)).sum::<u64>() + copies
        };
        let priced = ways.into_iter().map(|way| (total(&way), way));
        let Some((ps, way)) = priced.min_by_key(|(ps, _)| *ps) else { return 0 };
        for (mask, lists) in way {
            out.extend(lists.into_iter().map(|tiles| Draft { stage, band: band.clone(), mask, tiles }));
        }
        ps
    }

    /// Tiles of one mask by launch: those that are faster alone, and the others together.
    fn lists(&self, pass: Pass, mask: Mask, heads: HeadRange, tiles: Vec<Tile>) -> Vec<Vec<Tile>> {
        if tiles.len() < 2 {
            return vec![tiles];
        }
        let overhead = self.prices.launch_overhead(pass, mask, heads);
        let alone = |tile: &Tile| self.prices.better_alone(pass, mask, heads, tile_shape(tile), overhead);
        let (alone, together): (Vec<Tile>, Vec<Tile>) = tiles.into_iter().partition(alone);
        let mut lists: Vec<Vec<Tile>> = alone.into_iter().map(|tile| vec![tile]).collect();
        if !together.is_empty() {
            lists.push(together);
        }
        lists
    }
}

fn tile_shape(tile: &Tile) -> TileShape {
    TileShape { q: tile.q.len, k: tile.k.len }
}
