use skewbench_plan::{
    Accounting, COMPUTE, Call, CallMode, Dtype, Launch, OpId, Part, Pass, PassPlan, Plan, Shard, Span, SystemError,
    Tensor, TensorSet, Work,
};

use super::grid::HeadShard;
use super::shards::{ShardBy, Shards};
use super::tables::{MASKS, Tables, steps_of};
use super::{Deal, Grid};
use crate::planners::cp_group::CpGroup;

/// Tiles or moves that a plan may have.
const MOST_ENTRIES: u64 = 1 << 27;

/// Builds the plan of a grid whose rows are dealt to the positions of its rings.
///
/// # Errors
/// When the plan would have more tiles, moves or launches than can be handled.
pub(crate) fn build(planner: &str, group: CpGroup, grid: Grid, deal: Deal, by: ShardBy) -> Result<Plan, SystemError> {
    // A document has at most two pieces on every position, which all travel to all others.
    let pieces = (2 * group.documents().len() as u64 * u64::from(grid.ring)).min(u64::from(group.tokens));
    let entries = (pieces + u64::from(grid.ring)).saturating_mul(u64::from(grid.ring) * u64::from(grid.heads));
    if entries > MOST_ENTRIES {
        return Err(SystemError::Impossible(format!(
            "{planner}: {} documents on a ring of {} ranks make up to {entries} tiles and moves, above {MOST_ENTRIES}; \
             use shorter rings or longer documents",
            group.documents().len(),
            grid.ring
        )));
    }
    let shards = Shards::new(&group, grid.ring, deal, by);
    let homes: Vec<_> = (0..grid.ring).map(|position| shards.cut(position, grid.heads)).collect();
    let entry: Vec<Shard> = (0..grid.ranks())
        .flat_map(|rank| {
            let (part, position) = grid.place(rank);
            homes[position as usize][part as usize].iter().map(move |&rows| Shard { rank, seq: 0, rows })
        })
        .collect();
    let tables = Tables::new(&grid, &shards, &homes, deal, group.documents().len());
    let replicated_kv_heads = if group.tokens > 0 { grid.shared_kv_heads(group.shape) } else { 0 };
    let schedule = Schedule { grid, heads: grid.head_shards(group.shape), replicated: replicated_kv_heads > 0, tables };
    let (forward, backward) = schedule.passes();
    let busy = forward.ranks.iter().filter(|r| r.streams.first().is_some_and(|ops| !ops.is_empty())).count();
    Ok(Plan {
        planner: planner.to_owned(),
        shape: group.shape,
        sequences: vec![group.bounds],
        ranks: group.cp,
        exit: entry.clone(),
        entry,
        forward,
        backward,
        accounting: Accounting { idle_ranks: group.cp - busy as u32, replicated_kv_heads, ..Accounting::default() },
    })
}

/// Where each rank posts a call.
type Posts = Vec<Option<OpId>>;

/// Stream of the all-to-alls and of the ring inside a window, which take turns anyway.
const ROTATE: u8 = 1;

struct Schedule {
    grid: Grid,
    heads: Vec<HeadShard>,
    /// Some KV head is on several head shards, so that its gradients are partial sums.
    replicated: bool,
    tables: Tables,
}

/// How far a pass has got.
struct Progress {
    pass: PassPlan,
    /// The last launch of each rank.
    last: Posts,
    /// The last hop of dK and dV inside a window, and between windows, that each rank took part in.
    followed: [Posts; 2],
}

/// A call without its moves.
#[derive(Clone, Copy)]
struct Kind {
    mode: CallMode,
    dtype: Dtype,
    tensors: TensorSet,
    keep: bool,
}

const KEYS: Kind = Kind { mode: CallMode::Copy, dtype: Dtype::Bf16, tensors: TensorSet::KV, keep: false };
const SUMS: Kind = Kind { mode: CallMode::Accumulate, dtype: Dtype::F32, tensors: TensorSet::DKV, keep: false };

impl Schedule {
    fn passes(self) -> (PassPlan, PassPlan) {
        let (mut forward, mut backward) = (self.run(Pass::Forward), self.run(Pass::Backward));
        forward.moves.extend_from_slice(self.tables.moves.get(..self.tables.forward_moves).unwrap_or_default());
        backward.moves = self.tables.moves;
        backward.tiles.clone_from(&self.tables.tiles);
        forward.tiles = self.tables.tiles;
        (forward, backward)
    }

    /// Streams of dK and dV inside windows and between them; those of keys and values come first.
    fn follow_streams(&self) -> [u8; 2] {
        if self.grid.windows() > 1 { [ROTATE + 2, ROTATE + 3] } else { [ROTATE + 1; 2] }
    }

    fn run(&self, pass: Pass) -> PassPlan {
        let ranks = self.grid.ranks();
        let nobody: Posts = vec![None; ranks as usize];
        let plan = PassPlan::new(ranks);
        let mut at = Progress { pass: plan, last: nobody.clone(), followed: [nobody.clone(), nobody.clone()] };
        let scattered = self.scatter(pass, &mut at.pass);
        // Launches that were over two steps ago: their receive buffer is free.
        let mut before = nobody.clone();
        // Where the keys that a window starts on arrive.
        let mut crossed = scattered.clone();
        let mut next_window = nobody;
        for (step, (outer, inner)) in steps_of(&self.grid).enumerate() {
            if inner == 0 && outer > 0 {
                crossed = std::mem::take(&mut next_window);
            }
            if inner == 0 && outer + 1 < self.grid.windows() {
                let next = &self.tables.rotate[step + self.grid.window as usize];
                next_window = self.post(&mut at.pass, ROTATE + 1, KEYS, next, |rank| [at.last[rank], scattered[rank]]);
            }
            let arrived = match inner {
                0 => crossed.clone(),
                _ => {
                    let sent_on = |rank: usize| if inner == 1 && outer > 0 { crossed[rank] } else { None };
                    self.post(&mut at.pass, ROTATE, KEYS, &self.tables.rotate[step], |rank| {
                        [before[rank], sent_on(rank)]
                    })
                }
            };
            before.clone_from(&at.last);
            self.launch(&mut at, step, &arrived);
            if pass == Pass::Backward {
                self.follow(&mut at, step, outer, inner);
            }
        }
        self.gather(pass, &mut at);
        at.pass
    }

    fn launch(&self, at: &mut Progress, step: usize, arrived: &Posts) {
        for rank in 0..self.grid.ranks() {
            let (heads, position) = self.grid.place(rank);
            let launches = self.tables.launches[step * self.grid.ring as usize + position as usize];
            for (tiles, mask) in launches.into_iter().zip(MASKS).filter(|(tiles, _)| !tiles.is_empty()) {
                let launch = Launch { tiles, mask, q_heads: self.heads[heads as usize].q };
                let after = arrived[rank as usize].into_iter().collect();
                let streams = &mut at.pass.ranks[rank as usize];
                at.last[rank as usize] = Some(streams.push(COMPUTE, Work::Launch(launch), after));
            }
        }
    }

    /// Hops of dK and dV after a step: inside the window, and after its last step to the next.
    fn follow(&self, at: &mut Progress, step: usize, outer: u32, inner: u32) {
        let [within, across] = self.follow_streams();
        let Progress { pass, last, followed } = at;
        let posts = self.post(pass, within, SUMS, &self.tables.follow[step], |rank| [last[rank], None]);
        update(&mut followed[0], posts);
        if inner + 1 == self.grid.window {
            let hops = &self.tables.cross[outer as usize];
            let [inside, between] = followed;
            let posts = self.post(pass, across, SUMS, hops, |rank| [last[rank], inside[rank]]);
            update(between, posts);
        }
    }

    /// The all-to-all that makes head shards of sequence shards.
    fn scatter(&self, pass: Pass, plan: &mut PassPlan) -> Posts {
        let (tensors, keep) = match pass {
            Pass::Forward => (TensorSet::Q.union(TensorSet::KV), true),
            Pass::Backward => (TensorSet::of(&[Tensor::DO]), false),
        };
        let kind = Kind { mode: CallMode::Copy, dtype: Dtype::Bf16, tensors, keep };
        self.post(plan, ROTATE, kind, &self.tables.scatter, |_| [None; 2])
    }

    /// The all-to-all that takes results home.
    fn gather(&self, pass: Pass, at: &mut Progress) {
        let Progress { pass: plan, last, followed: [inside, between] } = at;
        let result = |tensors, dtype, keep| Kind { mode: CallMode::Accumulate, dtype, tensors, keep };
        let computed = |rank: usize| [last[rank], None, None];
        let summed = |rank: usize| [last[rank], inside[rank], between[rank]];
        let moves = &self.tables.gather;
        match pass {
            Pass::Forward => {
                self.post(plan, ROTATE, result(TensorSet::of(&[Tensor::O]), Dtype::Bf16, true), moves, computed);
            }
            Pass::Backward if self.replicated => {
                self.post(plan, ROTATE, result(TensorSet::DQ, Dtype::Bf16, false), moves, computed);
                self.post(plan, ROTATE, result(TensorSet::DKV, Dtype::F32, false), moves, summed);
            }
            Pass::Backward => {
                let all = TensorSet::DQ.union(TensorSet::DKV);
                self.post(plan, ROTATE, result(all, Dtype::Bf16, false), moves, summed);
            }
        }
    }

    /// Posts a call of one part a head shard on every rank with rows in it, and returns where.
    fn post<const N: usize>(
        &self,
        pass: &mut PassPlan,
        stream: u8,
        kind: Kind,
        moves: &[Span],
        after: impl Fn(usize) -> [Option<OpId>; N],
    ) -> Posts {
        let mut posts = vec![None; pass.ranks.len()];
        let Kind { mode, dtype, tensors, keep } = kind;
        let parts: Vec<Part> = moves
            .iter()
            .zip(&self.heads)
            .filter(|(moves, _)| !moves.is_empty())
            .map(|(&moves, heads)| Part { moves, tensors, q_heads: heads.q, kv_heads: heads.kv })
            .collect();
        if parts.is_empty() {
            return posts;
        }
        let mut takes_part = vec![false; pass.ranks.len()];
        for mv in parts.iter().flat_map(|part| &self.tables.moves[part.moves.range()]) {
            takes_part[mv.from as usize] = true;
            takes_part[mv.to as usize] = true;
        }
        let call = pass.calls.len() as u32;
        pass.calls.push(Call { mode, dtype, parts, keep });
        for (rank, streams) in pass.ranks.iter_mut().enumerate().filter(|(rank, _)| takes_part[*rank]) {
            let after = after(rank).into_iter().flatten().filter(|op| op.stream != stream).collect();
            posts[rank] = Some(streams.push(stream, Work::Exchange(call), after));
        }
        posts
    }
}

/// Keeps the latest of what each rank has posted.
fn update(latest: &mut Posts, posts: Posts) {
    for (latest, post) in latest.iter_mut().zip(posts) {
        *latest = post.or(*latest);
    }
}
