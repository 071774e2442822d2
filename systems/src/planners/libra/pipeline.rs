use skewbench_plan::{
    COMPUTE, Call, CallMode, Dtype, HeadRange, Launch, Mask, OpId, Part, Pass, PassPlan, Tensor, TensorSet, Work,
};

use super::heads::{HeadCut, Piece};
use super::routes::{MoveTable, Role, Route, Routes};

/// Transfer stream of dispatches.
const DISPATCH: u8 = 1;
/// Transfer stream of returns.
const RETURN: u8 = 2;

/// Both passes in head pieces: the dispatch of a piece runs beside the attention of the piece before it, its return
/// beside that of the piece after it.
pub(super) fn passes(cut: &HeadCut, routes: &Routes, ranks: u32, resend: bool) -> (PassPlan, PassPlan) {
    let mut tables = [routes.table.clone(), MoveTable::default()];
    if resend {
        tables[1] = routes.table.clone();
    } else {
        // Keys stay on their workers: the backward sends query rows only, which stand first in the table.
        let end = routes.queries.iter().flatten().last().map_or(0, |route| route.span.end as usize);
        tables[1].moves = routes.table.moves[..end].to_vec();
    }
    let mut back = |pass: usize, routes_there: &[Option<Route>]| -> Vec<Option<Route>> {
        let table = &mut tables[pass];
        table.begin();
        routes_there.iter().map(|route| table.reverse(&routes.table, route.as_ref()?, ranks)).collect()
    };
    let forward = Returns { rows: back(0, &routes.queries), keys: Vec::new() };
    let backward = Returns { rows: back(1, &routes.queries), keys: back(1, &routes.keys) };
    let [forward_moves, backward_moves] = tables.map(|table| table.moves);
    let build = |pass, moves, returns: &Returns| {
        let mut plan = PassPlan::new(ranks);
        plan.tiles = routes.tiles.clone();
        plan.moves = moves;
        let mut builder = Builder::new(plan, ranks);
        for piece in &cut.pieces {
            builder.piece(pass, piece, routes, returns, resend);
        }
        builder.plan
    };
    (build(Pass::Forward, forward_moves, &forward), build(Pass::Backward, backward_moves, &backward))
}

/// Ways back to the home ranks.
struct Returns {
    /// O or dQ, by head shard.
    rows: Vec<Option<Route>>,
    /// dK and dV, by KV class.
    keys: Vec<Option<Route>>,
}

struct Builder {
    plan: PassPlan,
    /// Last dispatch that brought a rank something its launches have not waited for yet.
    arrival: Vec<Option<OpId>>,
    last_launch: Vec<Option<OpId>>,
    roles: Vec<Role>,
}

impl Builder {
    fn new(plan: PassPlan, ranks: u32) -> Self {
        let n = ranks as usize;
        Self { plan, arrival: vec![None; n], last_launch: vec![None; n], roles: vec![Role::default(); n] }
    }

    fn piece(&mut self, pass: Pass, piece: &Piece, routes: &Routes, returns: &Returns, resend: bool) {
        let (rows, keys) = match pass {
            Pass::Forward => (TensorSet::Q, TensorSet::KV),
            Pass::Backward if resend => (TensorSet::Q.union(TensorSet::DO_O_LSE), TensorSet::KV),
            Pass::Backward => (TensorSet::of(&[Tensor::DO]), TensorSet::default()),
        };
        let keep = pass == Pass::Forward && !resend;
        let parts: [Carried<'_>; 2] = [(rows, &piece.rows, &routes.queries), (keys, &piece.fetched, &routes.keys)];
        if let Some(call) = self.call(CallMode::Copy, Dtype::Bf16, keep, &parts) {
            for (rank, role) in self.roles.iter().enumerate().filter(|(_, role)| role.takes_part()) {
                let op = self.plan.ranks[rank].push(DISPATCH, Work::Exchange(call), Vec::new());
                if role.receives {
                    self.arrival[rank] = Some(op);
                }
            }
        }
        self.launch(piece, routes);
        match pass {
            Pass::Forward => self.send_back(Dtype::Bf16, keep, (TensorSet::O_LSE, &piece.rows, &returns.rows)),
            Pass::Backward => {
                self.send_back(Dtype::Bf16, false, (TensorSet::DQ, &piece.rows, &returns.rows));
                self.send_back(Dtype::F32, false, (TensorSet::DKV, &piece.finished, &returns.keys));
            }
        }
    }

    fn launch(&mut self, piece: &Piece, routes: &Routes) {
        let ranks = self.plan.ranks.len();
        for &(shard, q_heads) in &piece.launches {
            let spans = &routes.worker_tiles[shard * ranks..(shard + 1) * ranks];
            for (rank, &tiles) in spans.iter().enumerate().filter(|(_, tiles)| !tiles.is_empty()) {
                let after = self.arrival[rank].take().into_iter().collect();
                let launch = Launch { tiles, mask: Mask::Causal, q_heads };
                let op = self.plan.ranks[rank].push(COMPUTE, Work::Launch(launch), after);
                self.last_launch[rank] = Some(op);
            }
        }
    }

    /// Posts a return; the launches of a rank are in order, so its last one so far ends after all that it sends. Partial
    /// sums also wait for it where they arrive: the receiver adds to the same rows.
    fn send_back(&mut self, dtype: Dtype, keep: bool, part: Carried<'_>) {
        if let Some(call) = self.call(CallMode::Accumulate, dtype, keep, &[part]) {
            for (rank, role) in self.roles.iter().enumerate().filter(|(_, role)| role.takes_part()) {
                let after = self.last_launch[rank].filter(|_| role.sends || dtype == Dtype::F32).into_iter().collect();
                self.plan.ranks[rank].push(RETURN, Work::Exchange(call), after);
            }
        }
    }

    /// Adds a call and notes who takes part in it; none when nothing travels.
    fn call(&mut self, mode: CallMode, dtype: Dtype, keep: bool, carried: &[Carried<'_>]) -> Option<u32> {
        self.roles.fill(Role::default());
        let mut parts = Vec::new();
        for &(tensors, heads, routes) in carried.iter().filter(|(tensors, ..)| !tensors.is_empty()) {
            for &(index, heads) in heads {
                let Some(route) = routes.get(index).and_then(Option::as_ref) else { continue };
                let of_kv = tensors.iter().all(Tensor::is_kv);
                let (q_heads, kv_heads) = if of_kv { (HeadRange::EMPTY, heads) } else { (heads, HeadRange::EMPTY) };
                parts.push(Part { moves: route.span, tensors, q_heads, kv_heads });
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

/// Tensors, their (route, heads), and the routes.
type Carried<'a> = (TensorSet, &'a [(usize, HeadRange)], &'a [Option<Route>]);
