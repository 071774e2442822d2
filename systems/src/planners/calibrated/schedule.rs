use skewbench_plan::{
    COMPUTE, Call, CallMode, Dtype, HeadRange, Launch, OpId, Part, Pass, PassPlan, Span, Tensor, TensorSet, Work,
};

use super::launches::{Draft, Launching, Stage};
use super::transfers::{Band, Transfers};
use crate::planners::libra::routes::{MoveTable, Role, Route};

/// Transfer stream of dispatches.
const DISPATCH: u8 = 1;
/// Transfer stream of returns.
const RETURN: u8 = 2;

/// What a schedule depends on beside launches and transfers.
#[derive(Clone, Copy)]
pub(super) struct Scheduling<'a> {
    pub launching: Launching<'a>,
    /// KV heads of every head shard.
    pub kv_shards: &'a [HeadRange],
    pub resend: bool,
    /// Ranks that send work away compute once it is sent.
    pub send_first: bool,
    pub ranks: u32,
}

/// Routes of a pass with the heads that each carries.
type Carried<'a> = (TensorSet, Vec<(HeadRange, &'a Route)>);

struct Builder {
    plan: PassPlan,
    last_launch: Vec<Option<OpId>>,
    roles: Vec<Role>,
}

impl Scheduling<'_> {
    /// One pass: own keys are fetched first, then head piece by head piece what work from elsewhere reads. Launches wait for what they
    /// read; results leave piece by piece, gradients of keys after the last launch that adds to them.
    pub fn pass(&self, pass: Pass, drafts: &[Vec<Draft>], transfers: &Transfers) -> PassPlan {
        let keep = pass == Pass::Forward && !self.resend;
        let keys_travel = pass == Pass::Forward || self.resend;
        let mut table = transfers.table.clone();
        if !keys_travel {
            let end = transfers.queries.iter().flatten().last().map_or(0, |(_, route)| route.span.end as usize);
            table.moves.truncate(end);
        }
        table.begin();
        let rows_back: Vec<_> =
            transfers.queries.iter().map(|piece| self.reversed(&mut table, transfers, piece)).collect();
        let mut keys_back = [Vec::new(), Vec::new(), Vec::new()];
        if pass == Pass::Backward {
            keys_back = [&transfers.keys, &transfers.relay, &transfers.own_keys]
                .map(|keys| self.reversed(&mut table, transfers, keys));
        }
        let mut plan = PassPlan::new(self.ranks);
        plan.moves = table.moves;
        let ranks = self.ranks as usize;
        let mut builder = Builder { plan, last_launch: vec![None; ranks], roles: vec![Role::default(); ranks] };

        let rows = match pass {
            Pass::Forward => TensorSet::Q,
            Pass::Backward if self.resend => TensorSet::Q.union(TensorSet::DO_O_LSE),
            Pass::Backward => TensorSet::of(&[Tensor::DO]),
        };
        let pieces = self.launching.pieces;
        // Arrival by stage: own keys, then each head piece.
        let mut arrivals: Vec<Vec<Option<OpId>>> = Vec::new();
        let gives = self.givers(transfers);
        let mut last_send: Vec<Option<OpId>> = vec![None; ranks];
        for stage in 0..=pieces {
            if stage == 1 && keys_travel {
                let relay = [(TensorSet::KV, self.with_kv(&transfers.relay))];
                if let Some(call) = builder.call(CallMode::Copy, Dtype::Bf16, false, &relay) {
                    builder.dispatch(call);
                }
            }
            let mut carried: Vec<Carried<'_>> = Vec::new();
            if let Some(m) = stage.checked_sub(1) {
                carried.push((rows, self.with_q(&transfers.queries[m as usize])));
            }
            if keys_travel && stage < 2 {
                let keys = if stage == 0 { &transfers.own_keys } else { &transfers.keys };
                carried.push((TensorSet::KV, self.with_kv(keys)));
            }
            let mut arrived = vec![None; ranks];
            if let Some(call) = builder.call(CallMode::Copy, Dtype::Bf16, keep, &carried) {
                let posted = builder.dispatch(call);
                for (rank, role) in builder.roles.iter().enumerate() {
                    arrived[rank] = posted[rank].filter(|_| role.receives);
                    if role.sends && stage > 0 && gives[rank] {
                        last_send[rank] = posted[rank];
                    }
                }
            }
            arrivals.push(arrived);
        }
        let spans = builder.tiles(drafts);
        let mut waits: Vec<Option<OpId>> = if self.send_first { last_send } else { vec![None; ranks] };
        let backward = pass == Pass::Backward;
        for stage in 0..pieces + 2 {
            let newly = arrivals.get(stage as usize);
            for (rank, (drafts, spans)) in drafts.iter().zip(&spans).enumerate() {
                if let Some(op) = newly.and_then(|arrived| arrived[rank]) {
                    waits[rank] = waits[rank].max(Some(op));
                }
                for (draft, &tiles) in drafts.iter().zip(spans) {
                    let turn = match draft.stage {
                        Stage::Away(m) => m + 1,
                        Stage::Own => pieces + 1,
                    };
                    if turn != stage {
                        continue;
                    }
                    let q_heads = self.launching.heads(&draft.band);
                    let after = waits[rank].take().into_iter().collect();
                    let launch = Launch { tiles, mask: draft.mask, q_heads };
                    builder.last_launch[rank] =
                        Some(builder.plan.ranks[rank].push(COMPUTE, Work::Launch(launch), after));
                }
            }
            if let Some(m) = stage.checked_sub(1).filter(|m| *m < pieces) {
                let tensors = if backward { TensorSet::DQ } else { TensorSet::O_LSE };
                builder.send_back(Dtype::Bf16, keep, (tensors, self.with_q(&rows_back[m as usize])));
            }
            // On one stream: a worker that passes rows on has its node's sums before it sends them home.
            for (keys, last) in keys_back.iter().zip([pieces, pieces, pieces + 1]) {
                if stage == last {
                    builder.send_back(Dtype::F32, false, (TensorSet::DKV, self.with_kv(keys)));
                }
            }
        }
        builder.plan
    }

    /// True for ranks that send rows of their own sequences to others.
    fn givers(&self, transfers: &Transfers) -> Vec<bool> {
        let mut gives = vec![false; self.ranks as usize];
        let routes = transfers.queries.iter().chain([&transfers.relay, &transfers.keys]);
        for mv in routes.flatten().flat_map(|(_, route)| transfers.moves(route)) {
            let home = mv.from / self.launching.grid.cp == mv.seq;
            gives[mv.from as usize] |= home && mv.from != mv.to;
        }
        gives
    }

    fn reversed(&self, table: &mut MoveTable, there: &Transfers, routes: &[(Band, Route)]) -> Vec<(Band, Route)> {
        routes.iter().filter_map(|(band, r)| Some((*band, table.reverse(&there.table, r, self.ranks)?))).collect()
    }

    fn with_q<'r>(&self, routes: &'r [(Band, Route)]) -> Vec<(HeadRange, &'r Route)> {
        routes.iter().map(|(band, route)| (self.launching.heads(&(band.0..band.1)), route)).collect()
    }

    fn with_kv<'r>(&self, routes: &'r [(Band, Route)]) -> Vec<(HeadRange, &'r Route)> {
        let of = |i: u32| self.kv_shards.get(i as usize).copied().unwrap_or(HeadRange::EMPTY);
        routes.iter().map(|((a, b), route)| (HeadRange::new(of(*a).start, of(b - 1).end), route)).collect()
    }
}

impl Builder {
    /// Adds the tiles of every draft to the table; the spans stand as the drafts do.
    fn tiles(&mut self, drafts: &[Vec<Draft>]) -> Vec<Vec<Span>> {
        let table = &mut self.plan.tiles;
        let mut span = |draft: &Draft| {
            let start = table.len() as u32;
            table.extend_from_slice(&draft.tiles);
            Span { start, end: table.len() as u32 }
        };
        drafts.iter().map(|drafts| drafts.iter().map(&mut span).collect()).collect()
    }

    /// Posts a dispatch on every rank that takes part, and says where.
    fn dispatch(&mut self, call: u32) -> Vec<Option<OpId>> {
        let post = |(rank, role): (usize, &Role)| {
            role.takes_part().then(|| self.plan.ranks[rank].push(DISPATCH, Work::Exchange(call), Vec::new()))
        };
        self.roles.iter().enumerate().map(post).collect()
    }

    /// Posts a return: senders after their last launch so far.
    fn send_back(&mut self, dtype: Dtype, keep: bool, carried: Carried<'_>) {
        if let Some(call) = self.call(CallMode::Accumulate, dtype, keep, &[carried]) {
            for (rank, role) in self.roles.iter().enumerate().filter(|(_, role)| role.takes_part()) {
                let after = self.last_launch[rank].filter(|_| role.sends).into_iter().collect();
                self.plan.ranks[rank].push(RETURN, Work::Exchange(call), after);
            }
        }
    }

    /// Adds a call and notes who takes part in it; none when nothing travels.
    fn call(&mut self, mode: CallMode, dtype: Dtype, keep: bool, carried: &[Carried<'_>]) -> Option<u32> {
        self.roles.fill(Role::default());
        let mut parts = Vec::new();
        for (tensors, routes) in carried {
            let of_kv = tensors.iter().all(Tensor::is_kv);
            for &(heads, route) in routes {
                let (q_heads, kv_heads) = if of_kv { (HeadRange::EMPTY, heads) } else { (heads, HeadRange::EMPTY) };
                parts.push(Part { moves: route.span, tensors: *tensors, q_heads, kv_heads });
                for (all, role) in self.roles.iter_mut().zip(&route.roles) {
                    all.join(*role);
                }
            }
        }
        if parts.is_empty() {
            return None;
        }
        self.plan.calls.push(Call { mode, dtype, parts, keep });
        Some(self.plan.calls.len() as u32 - 1)
    }
}
