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
    /// Rows of Q for work from elsewhere.
    pub queries: Vec<(Band, Route)>,
    /// Rows of K and V of a worker's own sequence.
    pub own_keys: Vec<(Band, Route)>,
    /// Rows of K and V of other sequences.
    pub keys: Vec<(Band, Route)>,
}

impl Transfers {
    /// What the jobs, sorted by worker, need. Every key row travels to a worker once.
    pub fn new(grid: &Grid, jobs: &[Job], ranks: u32) -> Self {
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
        for (band, jobs) in away {
            for job in jobs {
                for (owner, start, end) in grid.sequences[job.seq as usize].by_owner(job.start, job.end) {
                    routes.table.push(job.seq * grid.cp + owner as u32, job.worker, job.seq, start, end);
                }
            }
            queries.extend(routes.table.finish(ranks).map(|route| (band, route)));
        }
        let [own_keys, keys] = readers.map(|readers| {
            let mut made = Vec::new();
            for (band, jobs) in readers {
                for same in jobs.chunk_by(|a, b| (a.worker, a.seq) == (b.worker, b.seq)) {
                    for needed in prefixes(grid, same) {
                        routes.add_keys(grid, same[0].seq, needed.start, needed.end, same[0].worker);
                    }
                }
                made.extend(routes.table.finish(ranks).map(|route| (band, route)));
            }
            made
        });
        Self { table: routes.table, queries, own_keys, keys }
    }

    /// Moves of a route.
    pub fn moves(&self, route: &Route) -> &[Move] {
        self.table.moves.get(route.span.range()).unwrap_or_default()
    }
}

/// Key rows that jobs of one worker on one sequence read, joined where they meet.
fn prefixes(grid: &Grid, jobs: &[&Job]) -> Vec<Range<u32>> {
    let first_key = |job: &Job| {
        parts(&grid.sequences[job.seq as usize], job.start, job.end).next().map_or(job.start, |part| part.document)
    };
    let mut needed: Vec<Range<u32>> = jobs.iter().map(|job| first_key(job)..job.end).collect();
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
