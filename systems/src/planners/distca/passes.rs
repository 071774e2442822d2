use skewbench_plan::{
    AttentionShape, COMPUTE, Call, CallMode, Dtype, HeadRange, Launch, Mask, Move, OpId, Part, Pass, PassPlan, Span,
    Tensor, TensorSet, Work,
};

use super::routes::Routes;

/// Stream of all transfers.
const TRANSFER: u8 = 1;

/// One pass: the dispatches of all micro-batches, then their returns, on one transfer stream; their attention on the
/// compute stream. So the dispatch of the second runs under the attention of the first, the return of the first under
/// that of the second.
pub(super) fn pass(pass: Pass, batches: &[Routes], shape: AttentionShape, ranks: u32, resend: bool) -> PassPlan {
    let mut builder = Builder { plan: PassPlan::new(ranks), shape };
    let spans: Vec<Spans> = batches.iter().map(|routes| builder.add(routes)).collect();
    let keep = pass == Pass::Forward && !resend;
    let (rows, keys) = match pass {
        Pass::Forward => (TensorSet::Q, TensorSet::KV),
        Pass::Backward if resend => (TensorSet::Q.union(TensorSet::DO_O_LSE), TensorSet::KV),
        Pass::Backward => (TensorSet::of(&[Tensor::DO]), TensorSet::default()),
    };
    let nothing = vec![None; ranks as usize];
    let mut arrived = Vec::new();
    for (batch, spans) in (0u16..).zip(&spans) {
        let parts = [builder.part(rows, spans.queries), builder.part(keys, spans.keys)];
        arrived.push(builder.exchange(batch, (CallMode::Copy, Dtype::Bf16), keep, &parts, &nothing));
    }
    let mut computed = Vec::new();
    for (batch, (spans, arrived)) in (0u16..).zip(spans.iter().zip(&arrived)) {
        computed.push(builder.launch(batch, &spans.tiles, arrived));
    }
    for (batch, (spans, computed)) in (0u16..).zip(spans.iter().zip(&computed)) {
        let rows = if pass == Pass::Forward { TensorSet::O_LSE } else { TensorSet::DQ };
        let parts = [builder.part(rows, spans.queries_back)];
        builder.exchange(batch, (CallMode::Accumulate, Dtype::Bf16), keep, &parts, computed);
        if pass == Pass::Backward {
            let parts = [builder.part(TensorSet::DKV, spans.keys_back)];
            builder.exchange(batch, (CallMode::Accumulate, Dtype::F32), false, &parts, computed);
        }
    }
    builder.plan
}

/// A micro-batch in the tables of a pass.
struct Spans {
    tiles: Vec<Span>,
    queries: Span,
    keys: Span,
    queries_back: Span,
    /// Without the keys that never left their rank.
    keys_back: Span,
}

struct Builder {
    plan: PassPlan,
    shape: AttentionShape,
}

impl Builder {
    fn add(&mut self, routes: &Routes) -> Spans {
        let first = self.plan.tiles.len() as u32;
        self.plan.tiles.extend_from_slice(&routes.tiles);
        let tiles = routes.server_tiles.iter().map(|s| Span { start: first + s.start, end: first + s.end }).collect();
        let (queries, keys) = routes.moves.split_at(routes.queries);
        let back = |mv: &Move| Move { from: mv.to, to: mv.from, ..*mv };
        Spans {
            tiles,
            queries: self.moves(queries.iter().copied()),
            keys: self.moves(keys.iter().copied()),
            queries_back: self.moves(queries.iter().map(back)),
            keys_back: self.moves(keys.iter().filter(|mv| mv.from != mv.to).map(back)),
        }
    }

    fn moves(&mut self, moves: impl Iterator<Item = Move>) -> Span {
        let start = self.plan.moves.len() as u32;
        self.plan.moves.extend(moves);
        Span { start, end: self.plan.moves.len() as u32 }
    }

    /// None when nothing travels.
    fn part(&self, tensors: TensorSet, moves: Span) -> Option<Part> {
        let of_kv = tensors.iter().all(Tensor::is_kv);
        let (q_heads, kv_heads) =
            if of_kv { (HeadRange::EMPTY, self.shape.all_kv()) } else { (self.shape.all_q(), HeadRange::EMPTY) };
        (!moves.is_empty() && !tensors.is_empty()).then_some(Part { moves, tensors, q_heads, kv_heads })
    }

    /// Adds a call and posts it on every rank that takes part, after the operation of `after` there. Returns where each
    /// rank receives. Partial sums wait for it also where they arrive, since the receiver adds to the same rows.
    fn exchange(
        &mut self,
        batch: u16,
        (mode, dtype): (CallMode, Dtype),
        keep: bool,
        parts: &[Option<Part>],
        after: &[Option<OpId>],
    ) -> Vec<Option<OpId>> {
        let ranks = self.plan.ranks.len();
        let mut received = vec![None; ranks];
        let parts: Vec<Part> = parts.iter().copied().flatten().collect();
        if parts.is_empty() {
            return received;
        }
        let (mut sends, mut receives) = (vec![false; ranks], vec![false; ranks]);
        for mv in parts.iter().flat_map(|part| &self.plan.moves[part.moves.range()]) {
            sends[mv.from as usize] = true;
            receives[mv.to as usize] = true;
        }
        let call = self.plan.calls.len() as u32;
        self.plan.calls.push(Call { mode, dtype, parts, keep });
        for rank in (0..ranks).filter(|&rank| sends[rank] || receives[rank]) {
            let after = after[rank].filter(|_| sends[rank] || dtype == Dtype::F32);
            let op = self.push(rank, batch, TRANSFER, Work::Exchange(call), after);
            received[rank] = Some(op).filter(|_| receives[rank]);
        }
        received
    }

    fn launch(&mut self, batch: u16, tiles: &[Span], arrived: &[Option<OpId>]) -> Vec<Option<OpId>> {
        let q_heads = self.shape.all_q();
        let launch = |(rank, (&tiles, &after)): (usize, (&Span, &Option<OpId>))| {
            let work = Work::Launch(Launch { tiles, mask: Mask::Causal, q_heads });
            (!tiles.is_empty()).then(|| self.push(rank, batch, COMPUTE, work, after))
        };
        tiles.iter().zip(arrived).enumerate().map(launch).collect()
    }

    fn push(&mut self, rank: usize, batch: u16, stream: u8, work: Work, after: Option<OpId>) -> OpId {
        let streams = &mut self.plan.ranks[rank];
        let op = streams.push(stream, work, after.into_iter().collect());
        if let Some(pushed) = streams.streams.get_mut(usize::from(stream)).and_then(|ops| ops.last_mut()) {
            pushed.micro_batch = batch;
        }
        op
    }
}
