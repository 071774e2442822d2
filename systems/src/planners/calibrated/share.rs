use std::collections::BTreeMap;
use std::ops::Range;

use skewbench_plan::HeadRange;

use super::price::{Prices, UNIT};
use crate::planners::libra::grid::Grid;

/// Rows of one sequence x neighbouring head shards that one worker computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub worker: u32,
    pub seq: u32,
    /// Head shards.
    pub band: Range<u32>,
    pub start: u32,
    pub end: u32,
    /// The rows are the worker's own.
    pub home: bool,
}

/// Fewest rows of a piece: fewer leave multiprocessors idle.
const PIECE_ROWS: u32 = 8 * UNIT;

impl Job {
    /// Rows of piece `m` of at most `pieces` near-equal pieces; empty for the last ones of jobs with few rows.
    pub fn piece(&self, m: u32, pieces: u32) -> (u32, u32) {
        let rows = self.end - self.start;
        let count = (rows / PIECE_ROWS).clamp(1, pieces);
        let size = rows.div_ceil(count).div_ceil(UNIT).saturating_mul(UNIT);
        let bound = |m: u32| self.start + m.saturating_mul(size).min(rows);
        (bound(m), bound(m + 1))
    }
}

/// What a division of the work depends on.
#[derive(Clone, Copy)]
pub(super) struct Division<'a> {
    pub grid: &'a Grid,
    pub prices: Prices<'a>,
    /// Query heads of every head shard.
    pub shards: &'a [HeadRange],
    /// Node of every rank.
    pub nodes: &'a [u32],
    /// Pairs x query heads that no worker is filled above.
    pub most_pairs: u64,
    pub near_first: bool,
}

/// Rows x one head shard that their home cannot compute in time.
#[derive(Clone, Debug)]
struct Surplus {
    home: u32,
    seq: u32,
    shard: u32,
    start: u32,
    end: u32,
}

/// What a worker can still take.
#[derive(Clone, Copy, Debug)]
struct Room {
    worker: u32,
    price: f64,
    pairs: f64,
}

/// What a worker took of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Nothing,
    Part,
    All,
}

/// Remainders below this share of the mean capacity are not worth a transfer.
const SLIVER: f64 = 0.002;

/// How often what is left over is dealt again.
const REDEALS: u32 = 8;

impl Division<'_> {
    /// Price of every rank's own rows, all heads.
    pub fn home_prices(&self) -> Vec<f64> {
        let heads: u32 = self.shards.iter().map(|s| s.len()).sum();
        let grid = self.grid;
        let shards = grid.sequences.iter().flat_map(|s| (0..grid.cp as usize).map(move |c| (s, s.shard(c))));
        shards.map(|(sequence, (start, end))| self.prices.rows(sequence, heads, start, end)).collect()
    }

    /// Divides the work so that worker `w` gets the price `capacity[w]`, as far as granules and the limit of pairs allow: every rank
    /// keeps its own rows up to its capacity, what is above goes where there is room.
    pub fn jobs(&self, home: &[f64], capacity: &[f64]) -> Vec<Job> {
        let sliver = SLIVER * capacity.iter().sum::<f64>() / capacity.len().max(1) as f64;
        let mut jobs = Vec::new();
        let (mut surplus, mut rooms) = (Vec::new(), Vec::new());
        for (rank, (&home, &capacity)) in (0u32..).zip(home.iter().zip(capacity)) {
            self.keep(rank, home, capacity, sliver, &mut jobs, &mut surplus, &mut rooms);
        }
        let sequence = |rank: u32| u64::from(rank / self.grid.cp);
        let node = |rank: u32| u64::from(self.nodes.get(rank as usize).copied().unwrap_or(0));
        if self.near_first {
            self.deal(&mut surplus, &mut rooms, sliver, &mut jobs, |rank| sequence(rank) << 32 | node(rank));
            self.deal(&mut surplus, &mut rooms, sliver, &mut jobs, node);
            self.deal(&mut surplus, &mut rooms, sliver, &mut jobs, sequence);
        }
        join(&mut surplus);
        self.deal(&mut surplus, &mut rooms, 0.0, &mut jobs, |_| 0);
        // Prices are not quite additive and rows come in units: what is left is shared out evenly, the more the less is taken.
        for round in 0..REDEALS {
            if surplus.is_empty() || rooms.is_empty() {
                break;
            }
            let more = self.price(&surplus) / rooms.len() as f64 * f64::from(1 << round);
            rooms.iter_mut().for_each(|room| room.price += more);
            self.deal(&mut surplus, &mut rooms, 0.0, &mut jobs, |_| 0);
        }
        self.place_rest(surplus, &mut jobs);
        tidy(jobs)
    }

    /// True when a worker has the rows of a piece up to `end` from the start.
    fn is_home(&self, worker: u32, piece: &Surplus, end: u32) -> bool {
        let (first, last) = self.grid.own(worker, piece.seq);
        first <= piece.start && end <= last
    }

    /// Query heads of a head shard.
    fn heads(&self, shard: u32) -> u32 {
        self.shards[shard as usize].len()
    }

    fn price(&self, surplus: &[Surplus]) -> f64 {
        let of = |piece: &Surplus| {
            self.prices.rows(&self.grid.sequences[piece.seq as usize], self.heads(piece.shard), piece.start, piece.end)
        };
        surplus.iter().map(of).sum()
    }

    #[expect(clippy::too_many_arguments, reason = "the three lists that a rank adds to")]
    fn keep(
        &self,
        rank: u32,
        home: f64,
        capacity: f64,
        sliver: f64,
        jobs: &mut Vec<Job>,
        surplus: &mut Vec<Surplus>,
        rooms: &mut Vec<Room>,
    ) {
        let seq = rank / self.grid.cp;
        let sequence = &self.grid.sequences[seq as usize];
        let (start, end) = sequence.shard((rank % self.grid.cp) as usize);
        let heads: u32 = self.shards.iter().map(|s| s.len()).sum();
        let count = self.shards.len() as u32;
        let row_pairs = Prices::pairs(sequence, start, end) as f64;
        let mut room = Room { worker: rank, price: capacity, pairs: self.most_pairs as f64 };
        let job = |band, start, end| Job { worker: rank, seq, band, start, end, home: true };
        let fits = |room: &Room, price: f64, heads: u32| {
            price <= room.price + sliver && row_pairs * f64::from(heads) <= room.pairs
        };
        let mut kept = 0;
        if fits(&room, home, heads) {
            room.price -= home;
            room.pairs -= row_pairs * f64::from(heads);
            kept = count;
        } else {
            let (mut price, mut held) = (0.0, 0);
            while let Some(shard) = self.shards.get(kept as usize) {
                let more = held + shard.len();
                let together = self.prices.rows(sequence, more, start, end);
                if !fits(&room, together, more) {
                    break;
                }
                (price, held) = (together, more);
                kept += 1;
            }
            room.price -= price;
            room.pairs -= row_pairs * f64::from(held);
        }
        if kept > 0 && start < end {
            jobs.push(job(0..kept, start, end));
        }
        if kept == count {
            rooms.push(room);
            return;
        }
        let mut from = start;
        if room.price > sliver && room.pairs > 0.0 {
            let heads = self.heads(kept);
            (from, _) = self.prices.take(sequence, heads, (start, end), room.price, room.pairs);
            jobs.push(job(kept..kept + 1, start, from));
        }
        for shard in kept..count {
            let start = if shard == kept { from } else { start };
            if start < end {
                surplus.push(Surplus { home: rank, seq, shard, start, end });
            }
        }
    }

    /// Deals surplus to workers with room that have the same key as its home.
    fn deal(
        &self,
        surplus: &mut Vec<Surplus>,
        rooms: &mut Vec<Room>,
        sliver: f64,
        jobs: &mut Vec<Job>,
        key: impl Fn(u32) -> u64,
    ) {
        let mut groups: BTreeMap<u64, (Vec<Surplus>, Vec<Room>)> = BTreeMap::new();
        for piece in surplus.drain(..) {
            groups.entry(key(piece.home)).or_default().0.push(piece);
        }
        for room in rooms.drain(..) {
            groups.entry(key(room.worker)).or_default().1.push(room);
        }
        for (mut pieces, mut free) in groups.into_values() {
            pieces.sort_by_key(|p| (p.seq, p.shard, p.start));
            pieces.reverse();
            free.sort_by_key(|room| room.worker);
            for room in &mut free {
                while room.price > sliver && room.pairs > 0.0 {
                    let Some(piece) = pieces.last_mut() else { break };
                    match self.fill(piece, room, jobs) {
                        Filled::Nothing => break,
                        Filled::Part => {}
                        Filled::All => drop(pieces.pop()),
                    }
                }
            }
            surplus.extend(pieces.into_iter().rev());
            rooms.extend(free);
        }
    }

    /// Gives a worker as much of a piece as it has room for.
    fn fill(&self, piece: &mut Surplus, room: &mut Room, jobs: &mut Vec<Job>) -> Filled {
        let sequence = &self.grid.sequences[piece.seq as usize];
        let heads = self.heads(piece.shard);
        let (end, price) = self.prices.take(sequence, heads, (piece.start, piece.end), room.price, room.pairs);
        // Few rows take far longer than their pairs; a small room is better left empty.
        if end == piece.start || price > 2.0 * room.price {
            return Filled::Nothing;
        }
        room.price -= price;
        room.pairs -= Prices::pairs(sequence, piece.start, end) as f64 * f64::from(heads);
        jobs.push(Job {
            worker: room.worker,
            seq: piece.seq,
            band: piece.shard..piece.shard + 1,
            start: piece.start,
            end,
            home: self.is_home(room.worker, piece, end),
        });
        piece.start = end;
        if piece.start < piece.end { Filled::Part } else { Filled::All }
    }

    /// What rounding left over: to the workers with the most room in pairs, of which there is always some.
    fn place_rest(&self, surplus: Vec<Surplus>, jobs: &mut Vec<Job>) {
        if surplus.is_empty() {
            return;
        }
        let ranks = self.grid.sequences.len() * self.grid.cp as usize;
        let mut pairs = vec![0u64; ranks];
        for job in jobs.iter() {
            let sequence = &self.grid.sequences[job.seq as usize];
            let heads: u32 = self.shards[job.band.start as usize..job.band.end as usize].iter().map(|s| s.len()).sum();
            pairs[job.worker as usize] += Prices::pairs(sequence, job.start, job.end) * u64::from(heads);
        }
        let mut least: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u32)>> =
            (0u32..).zip(&pairs).map(|(worker, &pairs)| std::cmp::Reverse((pairs, worker))).collect();
        for mut piece in surplus {
            loop {
                let Some(std::cmp::Reverse((load, worker))) = least.pop() else { return };
                let left = self.most_pairs.saturating_sub(load) as f64;
                let mut room = Room { worker, price: f64::INFINITY, pairs: left };
                let filled = self.fill(&mut piece, &mut room, jobs);
                least.push(std::cmp::Reverse((load + (left - room.pairs) as u64, worker)));
                if filled != Filled::Part {
                    break;
                }
            }
        }
    }
}

/// Joins pieces that continue one another, so that fewer remainders are left where pieces end.
fn join(surplus: &mut Vec<Surplus>) {
    surplus.sort_by_key(|p| (p.seq, p.shard, p.start));
    surplus.dedup_by(|next, last| {
        let continues = (next.seq, next.shard, next.start) == (last.seq, last.shard, last.end);
        if continues {
            last.end = next.end;
        }
        continues
    });
}

/// Joins neighbouring jobs. A worker that computes other rows of its own sequence has its own rows by head shard, like the others, so
/// that keys of one head shard are fetched, and their gradients returned, once.
fn tidy(jobs: Vec<Job>) -> Vec<Job> {
    let mut by_worker: BTreeMap<(u32, u32), Vec<Job>> = BTreeMap::new();
    for job in jobs.into_iter().filter(|job| job.start < job.end) {
        by_worker.entry((job.worker, job.seq)).or_default().push(job);
    }
    let mut out: Vec<Job> = Vec::new();
    for mut jobs in by_worker.into_values() {
        let bands: Vec<Range<u32>> = jobs.iter().map(|j| j.band.clone()).collect();
        let meet = |a: &Range<u32>, b: &Range<u32>| a.start < b.end && b.start < a.end && a != b;
        if bands.iter().any(|a| bands.iter().any(|b| meet(a, b))) {
            let split = |job: Job| job.band.clone().map(move |s| Job { band: s..s + 1, ..job.clone() });
            jobs = jobs.into_iter().flat_map(split).collect();
        }
        jobs.sort_by_key(|j| (j.band.start, j.start));
        let first = out.len();
        for job in jobs {
            match out[first..].last_mut() {
                Some(last) if last.band == job.band && last.end == job.start && last.home == job.home => {
                    last.end = job.end;
                }
                _ => out.push(job),
            }
        }
    }
    out
}
