//! Pooled attention that balances predicted time: ours, after Libra's tiled attention pooling (arXiv 2607.23250).
//!
//! Libra packs equal blocks of query rows by FLOPs. Here nothing is packed: every rank keeps its own rows up to the time that it has, and what is
//! above is *cut* to the time that others have left.
//!
//! - **Homes** are Libra's: contiguous shards, bounds floor(i L / CP), of every packed sequence over its own context-parallel ranks.
//! - **Work that moves** is rows of one sequence x one head shard (`head_shards`; by default one shard a KV head). For the same work a worker then
//!   needs as many query bytes, more rows of fewer heads, and only the keys of its KV head.
//! - **Prices** (`balance`). The time of a tile, forward and backward together, is what it adds to a ragged launch or takes in one of its own,
//!   whichever is less; rows are divided at multiples of 128. `flops` counts pairs x query heads instead.
//! - **Capacities.** All ranks shall end at the same moment: a rank's capacity is that moment less what it needs beside its work, over its card's
//!   time factor. A rank above its capacity keeps as many whole head shards of its rows as fit and a part of the next. The rest is dealt to ranks
//!   with room, in order of sequence, head shard and row, so that neighbours on a node read the same keys; first within the sequence on the node,
//!   then the node, then the sequence (`near_first`). No rank is filled above `max_flops` x the mean pairs x query heads, which is what
//!   [`load_bound`](skewbench_plan::Planner::load_bound) declares, with one granule on top.
//! - **Corrections.** Real launches and transfers are priced, what a rank was predicted beyond the price of its work is taken off its next capacity,
//!   and the division is made anew, at most five times; the one with the least slowest rank stays. In predicted time the slowest rank then takes
//!   at most 2% more than the mean, where granules are small against it.
//! - **Transfers as load** (`count_transfers`). What computation cannot hide is time: computation lets transfers pass at
//!   [`Cost::transfer_rate_under_compute`](skewbench_plan::Cost::transfer_rate_under_compute) of their rate.
//! - **Launches** (`split_masks`). Bottom-right kernels do not skip masked blocks in the backward, ragged launches lose a few percent: squares,
//!   rectangles and the rest are launched apart, large tiles alone, where that is predicted to be faster. In the backward a tile below the diagonal
//!   becomes a rectangle and a square.
//! - **Keys cross to a node once** (`relay`): each row to one of the workers that read it there, which passes it on; gradients are summed on it
//!   before they leave.
//! - **Order.** Dispatch of own keys, then piece by piece (`pieces`, pieces of rows) of what moves; launches of work from elsewhere, then of own
//!   work, under which results travel. A rank that gives work away sends first and computes then (`send_first`) where computation slows transfers:
//!   its receivers wait for it.
//! - **Backward.** Workers keep what they received, and the O and LSE that they computed; `resend` sends all of it again, as Libra does by default.
//!
//! Ties are broken by rank throughout, and nothing is drawn at random.

mod launches;
mod options;
mod price;
mod schedule;
mod share;
mod transfers;

use skewbench_plan::{
    Accounting, AttentionShape, Domain, Dtype, HeadRange, Pass, Plan, Planner, Scope, SystemError, Tensor, TensorSet,
};

pub use options::{Balance, CalibratedOptions};

use super::libra::check_domain;
use super::libra::grid::Grid;
use launches::{Draft, Launching};
use price::{Prices, UNIT};
use schedule::Scheduling;
use share::{Division, Job};
use transfers::Transfers;

/// Pooled attention that balances predicted time.
#[derive(Clone, Copy, Debug)]
pub struct Calibrated {
    options: CalibratedOptions,
}

/// Rounds of dividing the work, predicting what it takes, and correcting the capacities.
const ROUNDS: usize = 5;
/// A division whose slowest rank is predicted within this share of the mean is not corrected further.
const CLOSE: f64 = 0.012;

impl Calibrated {
    /// A planner with these options.
    ///
    /// # Errors
    /// When [`CalibratedOptions::validate`] refuses them.
    pub fn new(options: CalibratedOptions) -> Result<Self, SystemError> {
        options.validate()?;
        Ok(Self { options })
    }
}

/// Work divided, with what it is predicted to take.
struct Divided {
    transfers: Transfers,
    /// Launches of every rank, by pass, those of its own rows last.
    drafts: [Vec<Vec<Draft>>; 2],
}

/// Launches of a rank's own rows, which mostly stay the same while work is divided anew.
struct OwnDrafts {
    jobs: Vec<Job>,
    made: [(Vec<Draft>, u64); 2],
}

impl Planner for Calibrated {
    fn name(&self) -> &str {
        "tap-calibrated"
    }

    fn scope(&self) -> Scope {
        Scope::Pool
    }

    fn plan(&self, domain: &Domain<'_>) -> Result<Plan, SystemError> {
        let ranks = check_domain(domain)?;
        let options = &self.options;
        let Domain { sequences, cp, shape, .. } = *domain;
        let grid = Grid::new(sequences, cp, u32::MAX);
        let (shards, kv_shards) = self.head_shards(shape);
        let prices = Prices {
            cost: domain.cost,
            head_dim: shape.head_dim,
            balance: options.balance,
            split: options.split_masks,
        };
        let launching = Launching { grid: &grid, prices, shards: &shards, pieces: options.pieces };
        let made = self.divide(domain, &grid, launching, ranks)?;
        let slowed = domain.cost.transfer_rate_under_compute() < 1.0;
        let scheduling = Scheduling {
            launching,
            kv_shards: &kv_shards,
            resend: options.resend,
            send_first: options.send_first && slowed,
            ranks,
        };
        let forward = scheduling.pass(Pass::Forward, &made.drafts[0], &made.transfers);
        let backward = scheduling.pass(Pass::Backward, &made.drafts[1], &made.transfers);

        let entry = grid.homes();
        let idle_ranks = made.drafts[0].iter().filter(|drafts| drafts.is_empty()).count() as u32;
        Ok(Plan {
            planner: self.name().to_owned(),
            shape,
            sequences: grid.sequences.into_iter().map(|s| s.documents).collect(),
            ranks,
            exit: entry.clone(),
            entry,
            forward,
            backward,
            accounting: Accounting { idle_ranks, ..Accounting::default() },
        })
    }

    /// `max_flops` times the mean, and what one granule may add.
    fn load_bound(&self, domain: &Domain<'_>) -> Result<u64, SystemError> {
        let ranks = check_domain(domain)?;
        let (shards, _) = self.head_shards(domain.shape);
        let widest = shards.iter().map(|s| u64::from(s.len())).max().unwrap_or(0);
        let longest = domain.sequences.iter().flat_map(|s| s.documents()).copied().max().unwrap_or(0);
        let granule = u64::from(longest.min(UNIT)) * u64::from(longest) * widest;
        Ok(self.most_pairs(domain, ranks)?.saturating_add(granule))
    }
}

impl Calibrated {
    /// Query heads and KV heads of every head shard.
    fn head_shards(&self, shape: AttentionShape) -> (Vec<HeadRange>, Vec<HeadRange>) {
        let count = self.options.head_shards.unwrap_or(u32::MAX).clamp(1, u32::from(shape.kv_heads));
        let kv: Vec<HeadRange> = (0..count).map(|i| HeadRange::piece(shape.kv_heads, i, count)).collect();
        let group = shape.group();
        (kv.iter().map(|kv| HeadRange::new(kv.start * group, kv.end * group)).collect(), kv)
    }

    fn most_pairs(&self, domain: &Domain<'_>, ranks: u32) -> Result<u64, SystemError> {
        let pairs: u128 = domain.sequences.iter().map(|s| u128::from(s.pairs())).sum();
        let total = pairs * u128::from(domain.shape.q_heads);
        let total = u64::try_from(total).map_err(|_| {
            SystemError::Impossible(format!(
                "the pool has {total} pairs x query heads, more than 2^64; use fewer or shorter packed sequences"
            ))
        })?;
        let mean = total.div_ceil(u64::from(ranks.max(1)));
        Ok(((mean as f64 * self.options.max_flops) as u64).max(mean))
    }

    /// Divides the work, predicts what every rank takes, and corrects until the slowest is close to the mean.
    fn divide(
        &self,
        domain: &Domain<'_>,
        grid: &Grid,
        launching: Launching<'_>,
        ranks: u32,
    ) -> Result<Divided, SystemError> {
        let division = Division {
            grid,
            prices: launching.prices,
            shards: launching.shards,
            nodes: domain.nodes,
            most_pairs: self.most_pairs(domain, ranks)?,
            near_first: self.options.near_first,
        };
        let home = division.home_prices();
        // Prices are not quite additive: from the second round on, what the parts of the round before came to.
        let mut total: f64 = home.iter().sum();
        let known = if self.options.card_speeds { domain.time_factors } else { &[] };
        let factor = |rank: usize| known.get(rank).copied().filter(|f| *f > 0.0).unwrap_or(1.0);
        let factors: Vec<f64> = (0..ranks as usize).map(factor).collect();
        // Picoseconds that a rank needs beside the price of its work.
        let mut beside = vec![0.0; ranks as usize];
        let mut best: Option<(f64, Divided)> = None;
        let mut own_drafts: Vec<Option<OwnDrafts>> = Vec::new();
        own_drafts.resize_with(ranks as usize, || None);
        let rounds = if self.options.balance == Balance::Flops { 1 } else { ROUNDS };
        for _ in 0..rounds {
            let capacity = capacities(total, &factors, &beside);
            let jobs = division.jobs(&home, &capacity);
            let transfers = Transfers::new(grid, &jobs, domain.nodes, launching.pieces, self.options.relay);
            let mut drafts = [vec![Vec::new(); ranks as usize], vec![Vec::new(); ranks as usize]];
            let mut computed = [vec![0.0; ranks as usize], vec![0.0; ranks as usize]];
            let mut given = vec![0.0; ranks as usize];
            for same in jobs.chunk_by(|a, b| a.worker == b.worker) {
                let rank = same[0].worker as usize;
                given[rank] = price_of(same, home[rank], &division);
                let (own, away): (Vec<Job>, Vec<Job>) = same.iter().cloned().partition(|job| job.home);
                if own_drafts[rank].as_ref().is_none_or(|made| made.jobs != own) {
                    let made = [Pass::Forward, Pass::Backward].map(|pass| launching.own(pass, &own));
                    own_drafts[rank] = Some(OwnDrafts { jobs: own, made });
                }
                for pass in [Pass::Forward, Pass::Backward] {
                    let (mut made, mut ps) = launching.away(pass, &away);
                    if let Some(own) = &own_drafts[rank] {
                        let (own, own_ps) = &own.made[pass as usize];
                        made.extend(own.iter().cloned());
                        ps += own_ps;
                    }
                    drafts[pass as usize][rank] = made;
                    computed[pass as usize][rank] = ps as f64 * factors[rank];
                }
            }
            let exposed = self.exposed(domain, &transfers, &computed, launching);
            let time = |rank: usize| computed[0][rank] + computed[1][rank] + exposed[rank];
            let (mut slowest, mut sum) = (0.0f64, 0.0);
            for rank in 0..ranks as usize {
                slowest = slowest.max(time(rank));
                sum += time(rank);
            }
            let close = slowest <= sum / f64::from(ranks) * (1.0 + CLOSE);
            total = given.iter().sum();
            for (rank, beside) in beside.iter_mut().enumerate() {
                // What the rank was predicted beyond the price of its work in this round.
                let found = time(rank) - given[rank] * factors[rank];
                *beside = 0.3 * *beside + 0.7 * found;
            }
            if best.as_ref().is_none_or(|(time, _)| slowest < *time) {
                best = Some((slowest, Divided { transfers, drafts }));
            }
            if close {
                break;
            }
        }
        best.map(|(_, made)| made).ok_or_else(|| SystemError::Impossible("a pool without ranks".to_owned()))
    }

    /// Picoseconds of transfers that every rank's computation cannot hide, both passes.
    fn exposed(
        &self,
        domain: &Domain<'_>,
        transfers: &Transfers,
        computed: &[Vec<f64>; 2],
        launching: Launching<'_>,
    ) -> Vec<f64> {
        let ranks = computed[0].len();
        let shape = domain.shape;
        let row = |set: TensorSet, dtype| set.iter().map(|t| t.row_bytes(shape.head_dim, dtype)).sum::<u64>();
        let keys = row(TensorSet::KV, Dtype::Bf16);
        let resent = if self.options.resend { row(TensorSet::Q.union(TensorSet::O_LSE), Dtype::Bf16) } else { 0 };
        let gradients = row(TensorSet::DKV, Dtype::F32);
        let d_o = row(TensorSet::of(&[Tensor::DO]), Dtype::Bf16);
        // (there, back) bytes of a row and head, by pass, of rows and of keys.
        let rows = [
            [row(TensorSet::Q, Dtype::Bf16), row(TensorSet::O_LSE, Dtype::Bf16)],
            [d_o + resent, row(TensorSet::DQ, Dtype::Bf16)],
        ];
        let keys = [[keys, 0], [if self.options.resend { keys } else { 0 }, gradients]];
        let group = u64::from(shape.group());
        // Bytes by pass, rank, step, inside a node or not, sent or received. Steps: own keys, other dispatches, returns.
        let mut busy = [vec![[[[0u64; 2]; 2]; 3]; ranks], vec![[[[0u64; 2]; 2]; 3]; ranks]];
        let mut gives = vec![false; ranks];
        let node = |rank: u32| domain.nodes.get(rank as usize).copied().unwrap_or(0);
        let keys = [(&transfers.own_keys, 0), (&transfers.relay, 1), (&transfers.keys, 1)]
            .map(|(routes, step)| (routes, keys, group, step));
        for (routes, bytes, share, step) in transfers.queries.iter().map(|piece| (piece, rows, 1, 1)).chain(keys) {
            for ((a, b), route) in routes {
                let heads = u64::from(launching.heads(&(*a..*b)).len()) / share;
                for mv in transfers.moves(route).iter().filter(|mv| mv.from != mv.to) {
                    let (from, to) = (mv.from as usize, mv.to as usize);
                    let inside = usize::from(node(mv.from) == node(mv.to));
                    gives[from] |= step > 0 && mv.from / domain.cp == mv.seq;
                    for (busy, [there, back]) in busy.iter_mut().zip(bytes) {
                        let size = u64::from(mv.rows.len) * heads;
                        busy[from][step][inside][0] += size * there;
                        busy[to][step][inside][1] += size * there;
                        busy[to][2][inside][0] += size * back;
                        busy[from][2][inside][1] += size * back;
                    }
                }
            }
        }
        let hidden = domain.cost.transfer_rate_under_compute();
        let ps = |bytes: [[u64; 2]; 2]| {
            let one = |inside: usize| domain.cost.transfer_ps(bytes[inside][0].max(bytes[inside][1]), inside == 1);
            one(0).max(one(1)) as f64
        };
        let mut exposed = vec![0.0; ranks];
        for rank in 0..ranks {
            for (busy, computed) in busy.iter().zip(computed) {
                let [own, there, back] = busy[rank].map(ps);
                let covered = hidden * computed[rank];
                let ps = if gives[rank] && self.options.send_first && hidden < 1.0 {
                    own + there + (back - covered).max(0.0)
                } else {
                    (own + there + back - covered).max(0.0)
                };
                if self.options.count_transfers {
                    exposed[rank] += ps;
                }
            }
        }
        exposed
    }
}

/// Price of what a worker was given; `home` is that of all its own rows.
fn price_of(jobs: &[Job], home: f64, division: &Division<'_>) -> f64 {
    let price = |job: &Job| {
        let sequence = &division.grid.sequences[job.seq as usize];
        let whole = job.band == (0..division.shards.len() as u32)
            && (job.start, job.end) == division.grid.own(job.worker, job.seq);
        if whole {
            return home;
        }
        let shards = &division.shards[job.band.start as usize..job.band.end as usize];
        division.prices.job(sequence, shards.iter().map(|s| s.len()).sum(), job.start, job.end)
    };
    jobs.iter().map(price).sum()
}

/// Prices that ranks can work off by the same moment: (moment - beside) / factor each, `total` together.
fn capacities(total: f64, factors: &[f64], beside: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..factors.len()).collect();
    order.sort_by(|&a, &b| beside[a].total_cmp(&beside[b]).then(a.cmp(&b)));
    let (mut speed, mut offset, mut moment) = (0.0, 0.0, 0.0);
    for &rank in &order {
        if speed > 0.0 && moment <= beside[rank] {
            break;
        }
        speed += 1.0 / factors[rank];
        offset += beside[rank] / factors[rank];
        moment = (total + offset) / speed;
    }
    factors.iter().zip(beside).map(|(factor, beside)| ((moment - beside) / factor).max(0.0)).collect()
}
