use std::collections::BTreeMap;
use std::ops::Range;

use skewbench_plan::Move;

use super::price::parts;
use super::share::Job;
use crate::planners::libra::grid::Grid;
use crate::planners::libra::routes::{MoveTable, Route, Routes};

/// Head shards that travel together.
pub(super) type Band = (u32, u32);

/// Rows that workers need from elsewhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfers {
    /// Moves of all routes, queries first.
    pub table: MoveTable,
    /// Rows of Q of every piece of work from elsewhere.
    pub queries: Vec<Vec<(Band, Route)>>,
    /// Rows of K and V of a worker's own sequence.
    pub own_keys: Vec<(Band, Route)>,
    /// Rows of K and V of other sequences that go to one worker of each node first.
    pub relay: Vec<(Band, Route)>,
    /// Rows of K and V of other sequences to their readers, from their homes or from the node's worker that has them.
    pub keys: Vec<(Band, Route)>,
}

impl Transfers {
    /// What the jobs, sorted by worker, need. Every key row travels to a worker once.
    pub fn new(grid: &Grid, jobs: &[Job], nodes: &[u32], pieces: u32, relays: bool) -> Self {
        let ranks = grid.sequences.len() as u32 * grid.cp;
        let mut routes = Routes::default();
        let mut away: BTreeMap<Band, Vec<&Job>> = BTreeMap::new();
        let mut readers: [BTreeMap<Band, Vec<&Job>>; 2] = Default::default();
        for job in jobs {
            let band = (job.band.start, job.band.end);
            if !job.home {
                away.entry(band).or_default().push(job);
            }
            let own = job.worker / grid.cp == job.seq;
            readers[usize::from(!own)].entry(band).or_default().push(job);
        }
        let mut queries = Vec::new();
        for m in 0..pieces {
            let mut piece = Vec::new();
            for (&band, jobs) in &away {
                for job in jobs {
                    let (start, end) = job.piece(m, pieces);
                    for (owner, start, end) in grid.sequences[job.seq as usize].by_owner(start, end) {
                        let home = job.seq * grid.cp + owner as u32;
                        if home != job.worker {
                            routes.table.push(home, job.worker, job.seq, start, end);
                        }
                    }
                }
                piece.extend(routes.table.finish(ranks).map(|route| (band, route)));
            }
            queries.push(piece);
        }
        let [own_readers, readers] = readers;
        let mut own_keys = Vec::new();
        for (band, jobs) in own_readers {
            for same in jobs.chunk_by(|a, b| a.worker == b.worker) {
                for needed in prefixes(grid, same) {
                    routes.add_keys(grid, same[0].seq, needed.start, needed.end, same[0].worker);
                }
            }
            own_keys.extend(routes.table.finish(ranks).map(|route| (band, route)));
        }
        let readers: Vec<(Band, Vec<NodeReaders>)> =
            readers.into_iter().map(|(band, jobs)| (band, by_node(grid, &jobs, nodes))).collect();
        let mut relay = Vec::new();
        for (band, groups) in readers.iter().filter(|_| relays) {
            groups.iter().for_each(|group| group.add_relay(grid, nodes, &mut routes.table));
            relay.extend(routes.table.finish(ranks).map(|route| (*band, route)));
        }
        let mut keys = Vec::new();
        for (band, groups) in &readers {
            groups.iter().for_each(|group| group.add_keys(grid, nodes, relays, &mut routes.table));
            keys.extend(routes.table.finish(ranks).map(|route| (*band, route)));
        }
        Self { table: routes.table, queries, own_keys, relay, keys }
    }

    /// Moves of a route.
    pub fn moves(&self, route: &Route) -> &[Move] {
        self.table.moves.get(route.span.range()).unwrap_or_default()
    }
}

/// Workers of one node that read keys of one sequence which is not theirs.
struct NodeReaders {
    seq: u32,
    node: u32,
    workers: Vec<Reader>,
}

/// A worker with the key rows that it reads.
type Reader = (u32, Vec<Range<u32>>);

impl NodeReaders {
    /// The worker that passes on rows of the sequence's context-parallel rank `owner`; none when readers get them from their home.
    fn relay(&self, grid: &Grid, nodes: &[u32], owner: usize) -> Option<u32> {
        let home = self.seq * grid.cp + owner as u32;
        let far = node_of(nodes, home) != self.node && self.workers.len() > 1;
        far.then(|| self.workers[owner % self.workers.len()].0)
    }

    /// Brings every row to the worker that passes it on.
    fn add_relay(&self, grid: &Grid, nodes: &[u32], table: &mut MoveTable) {
        let all = self.workers.iter().flat_map(|(_, needed)| needed.iter().cloned()).collect();
        for needed in joined(all) {
            for (owner, start, end) in grid.sequences[self.seq as usize].by_owner(needed.start, needed.end) {
                if let Some(worker) = self.relay(grid, nodes, owner) {
                    table.push(self.seq * grid.cp + owner as u32, worker, self.seq, start, end);
                }
            }
        }
    }

    /// Brings every reader its rows.
    fn add_keys(&self, grid: &Grid, nodes: &[u32], relays: bool, table: &mut MoveTable) {
        for (worker, needed) in &self.workers {
            for range in needed {
                for (owner, start, end) in grid.sequences[self.seq as usize].by_owner(range.start, range.end) {
                    let relay = self.relay(grid, nodes, owner).filter(|_| relays);
                    let from = relay.unwrap_or(self.seq * grid.cp + owner as u32);
                    table.push(from, *worker, self.seq, start, end);
                }
            }
        }
    }
}

fn node_of(nodes: &[u32], rank: u32) -> u32 {
    nodes.get(rank as usize).copied().unwrap_or(0)
}

/// Readers of keys by sequence and node; `jobs` are sorted by worker, then sequence.
fn by_node(grid: &Grid, jobs: &[&Job], nodes: &[u32]) -> Vec<NodeReaders> {
    let mut groups: BTreeMap<(u32, u32), Vec<Reader>> = BTreeMap::new();
    for same in jobs.chunk_by(|a, b| (a.worker, a.seq) == (b.worker, b.seq)) {
        let (worker, seq) = (same[0].worker, same[0].seq);
        groups.entry((seq, node_of(nodes, worker))).or_default().push((worker, prefixes(grid, same)));
    }
    groups.into_iter().map(|((seq, node), workers)| NodeReaders { seq, node, workers }).collect()
}

/// Key rows that jobs of one worker on one sequence read, joined where they meet.
fn prefixes(grid: &Grid, jobs: &[&Job]) -> Vec<Range<u32>> {
    let first_key = |job: &Job| {
        parts(&grid.sequences[job.seq as usize], job.start, job.end).next().map_or(job.start, |part| part.document)
    };
    joined(jobs.iter().map(|job| first_key(job)..job.end).collect())
}

/// Ranges, joined where they meet.
fn joined(mut needed: Vec<Range<u32>>) -> Vec<Range<u32>> {
    needed.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u32>> = Vec::with_capacity(needed.len());
    for range in needed {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
