use std::sync::Arc;

use skewbench_plan::{
    CallMode, Dtype, Facts, HeadRange, Launch, LaunchOperands, OpId, Operands, Pass, PassFacts, PassPlan, Plan,
    Provider, Rows, Run, Slab, Span, Tensor, TensorSet, Work,
};

use crate::accumulators::{Accumulator, contributions, rows_of};
use crate::{
    Buffer, BufferKind, Instr, InstrId, InstrKind, PassProgram, Program, RankProgram, RouteTable, TileView,
    TransferCall, TransferPart, View,
};

/// Why a plan cannot be lowered; a plan that the checker accepts always can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// An operand or a result of a tile is not in one piece on its rank.
    #[error("rank {rank}: {tensor} of sequence {seq}, rows from {row}, is not in one buffer; check the plan first")]
    Operand {
        /// Rank.
        rank: u32,
        /// Tensor.
        tensor: &'static str,
        /// Packed sequence.
        seq: u32,
        /// First row.
        row: u32,
    },
    /// The operands are those of another plan.
    #[error("rank {0}: fewer operands than launches; locate the operands of this plan")]
    Operands(u32),
}

/// Lowers both passes of a plan.
///
/// # Errors
/// [`LowerError`] for plans that the checker refuses.
pub fn lower(plan: &Plan, facts: &Facts, operands: &[Operands; 2]) -> Result<Program, LowerError> {
    Ok(Program {
        shape: plan.shape,
        ranks: plan.ranks,
        forward: lower_pass(plan, facts.pass(Pass::Forward), &operands[0], Pass::Forward)?,
        backward: lower_pass(plan, facts.pass(Pass::Backward), &operands[1], Pass::Backward)?,
    })
}

fn lower_pass(plan: &Plan, facts: &PassFacts, operands: &Operands, pass: Pass) -> Result<PassProgram, LowerError> {
    let table = plan.pass(pass);
    let mut routes: Vec<RouteTable> = Vec::with_capacity(facts.indices.len());
    let mut calls = Vec::with_capacity(table.calls.len());
    for call in &table.calls {
        let mut parts = Vec::with_capacity(call.parts.len());
        for part in &call.parts {
            let id = facts.indices.id(part.moves);
            if let Some(index) = facts.indices.get(part.moves).filter(|_| id == routes.len()) {
                routes.push(RouteTable::new(&table.moves[part.moves.range()], index, plan.ranks));
            }
            parts.push(TransferPart {
                routes: id as u32,
                tensors: part.tensors,
                q_heads: part.q_heads,
                kv_heads: part.kv_heads,
                row_bytes: part.row_bytes(plan.shape.head_dim, call.dtype),
            });
        }
        calls.push(TransferCall { mode: call.mode, dtype: call.dtype, parts });
    }
    let mut program = PassProgram { calls, routes, ..PassProgram::default() };
    let mut exit: Vec<Vec<(u32, Rows)>> = vec![Vec::new(); plan.ranks as usize];
    for shard in &plan.exit {
        exit[shard.rank as usize].push((shard.seq, shard.rows));
    }
    let mut before: Vec<Accumulator> = Vec::new();
    for rank in 0..plan.ranks {
        let home = Run::coalesce(&mut exit[rank as usize]);
        let (lowered, accumulators) =
            RankLowering::new(plan, facts, operands, pass, rank, home, &before).run(&mut program)?;
        program.ranks.push(lowered);
        before = accumulators;
    }
    Ok(program)
}

/// Where the results of a span of tiles go that has a certain accumulator.
struct ResultMemo {
    key: (Span, Tensor, Option<u32>),
    views: Arc<[View]>,
}

struct RankLowering<'a> {
    plan: &'a Plan,
    table: &'a PassPlan,
    facts: &'a PassFacts,
    operands: &'a [LaunchOperands],
    pass: Pass,
    rank: u32,
    home: Arc<[Run]>,
    buffers: Vec<Buffer>,
    /// First buffer of each slab.
    slab_base: Vec<u32>,
    /// Exit buffers of O (forward) or dQ and dK (backward).
    exit_base: Vec<(Tensor, u32)>,
    accumulators: Vec<Accumulator>,
    /// Those of the rank before: ranks that run the same tiles share what follows from them.
    before: &'a [Accumulator],
    results: Vec<ResultMemo>,
}

impl<'a> RankLowering<'a> {
    fn new(
        plan: &'a Plan,
        facts: &'a PassFacts,
        operands: &'a Operands,
        pass: Pass,
        rank: u32,
        home: Arc<[Run]>,
        before: &'a [Accumulator],
    ) -> Self {
        let operands = operands.ranks.get(rank as usize).map_or(&[][..], Vec::as_slice);
        let mut this = Self {
            plan,
            table: plan.pass(pass),
            facts,
            operands,
            pass,
            rank,
            home,
            before,
            results: Vec::new(),
            buffers: Vec::new(),
            slab_base: Vec::new(),
            exit_base: Vec::new(),
            accumulators: Vec::new(),
        };
        for slab in &facts.slabs[rank as usize].slabs {
            let kind = match slab.provider {
                Provider::Entry => BufferKind::Entry,
                Provider::Exit => BufferKind::Exit,
                Provider::Call(call) => BufferKind::Received(call),
                Provider::Kept(call) => BufferKind::Kept(call),
            };
            let base = this.buffers.len() as u32;
            for tensor in slab.tensors.iter() {
                let heads = if tensor.is_kv() { slab.kv_heads } else { slab.q_heads };
                this.push_buffer(kind, tensor, Dtype::Bf16, heads, slab.runs.clone());
            }
            this.slab_base.push(base);
        }
        for tensor in contributions(pass) {
            let heads = if tensor.is_kv() { plan.shape.all_kv() } else { plan.shape.all_q() };
            let runs = this.home.clone();
            let base = this.push_result(BufferKind::Exit, *tensor, Dtype::Bf16, heads, &runs);
            this.exit_base.push((*tensor, base));
        }
        this.open_accumulators();
        this
    }

    fn push_buffer(
        &mut self,
        kind: BufferKind,
        tensor: Tensor,
        dtype: Dtype,
        heads: HeadRange,
        runs: Arc<[Run]>,
    ) -> u32 {
        let dtype = if tensor == Tensor::Lse { Dtype::F32 } else { dtype };
        let rows = runs.last().map_or(0, |run| u64::from(run.offset + run.rows.len));
        let bytes = rows * u64::from(heads.len()) * tensor.row_bytes(self.plan.shape.head_dim, dtype);
        self.buffers.push(Buffer { kind, tensor, dtype, heads, runs, bytes });
        self.buffers.len() as u32 - 1
    }

    /// Buffers of a result and of what goes with it: O with LSE, dK with dV.
    fn push_result(
        &mut self,
        kind: BufferKind,
        tensor: Tensor,
        dtype: Dtype,
        heads: HeadRange,
        runs: &Arc<[Run]>,
    ) -> u32 {
        let base = self.push_buffer(kind, tensor, dtype, heads, runs.clone());
        let follower = match tensor {
            Tensor::O => Some(Tensor::Lse),
            Tensor::DK => Some(Tensor::DV),
            _ => None,
        };
        if let Some(follower) = follower {
            self.push_buffer(kind, follower, dtype, heads, runs.clone());
        }
        base
    }

    fn launches(&self) -> impl Iterator<Item = Launch> + 'a {
        let streams = &self.table.ranks[self.rank as usize].streams;
        streams.first().into_iter().flatten().filter_map(|op| match op.work {
            Work::Launch(launch) => Some(launch),
            _ => None,
        })
    }

    fn heads(&self, tensor: Tensor, launch: &Launch) -> HeadRange {
        if tensor.is_kv() { self.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads }
    }

    fn open_accumulators(&mut self) {
        for launch in self.launches() {
            for tensor in contributions(self.pass) {
                let heads = self.heads(*tensor, &launch);
                // Launches on overlapping heads add to one accumulator of all of them.
                let mut joined = Accumulator::new(*tensor, heads);
                joined.add_span(launch.tiles);
                let (apart, meeting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.accumulators)
                    .into_iter()
                    .partition(|a| a.tensor != *tensor || !a.heads.overlaps(joined.heads));
                self.accumulators = apart;
                for other in meeting {
                    joined.join(&other);
                }
                self.accumulators.push(joined);
            }
        }
        let mut accumulators = std::mem::take(&mut self.accumulators);
        for i in 0..accumulators.len() {
            let (closed, rest) = accumulators.split_at_mut(i);
            let accumulator = &mut rest[0];
            accumulator.close(&self.table.tiles, closed.iter().chain(self.before));
            if !accumulator.at_home(&self.home) {
                let runs = accumulator.runs.clone();
                let (tensor, heads) = (accumulator.tensor, accumulator.heads);
                accumulator.away = Some(self.push_result(BufferKind::Accumulator, tensor, Dtype::F32, heads, &runs));
            }
        }
        self.accumulators = accumulators;
    }

    fn run(mut self, program: &mut PassProgram) -> Result<(RankProgram, Vec<Accumulator>), LowerError> {
        let streams = &self.table.ranks[self.rank as usize].streams;
        let mut lowered: Vec<Vec<Instr>> = vec![Vec::new(); streams.len()];
        // Last instruction of every operation, so that dependencies on operations become dependencies on instructions.
        let mut last: Vec<Vec<u32>> = streams.iter().map(|ops| Vec::with_capacity(ops.len())).collect();
        let mut pending: Vec<(usize, usize, &[OpId])> = Vec::new();
        let mut located = self.operands.iter();
        for (stream, ops) in streams.iter().enumerate() {
            for op in ops {
                pending.push((stream, lowered[stream].len(), &op.after));
                let out = &mut lowered[stream];
                match op.work {
                    Work::Launch(launch) => {
                        let located = located.next().ok_or(LowerError::Operands(self.rank))?;
                        self.launch(program, located, &launch, out)?;
                    }
                    Work::Exchange(call) => self.exchange(program, call, out),
                    Work::Linear { tokens } => out.push(instr(InstrKind::Linear { tokens })),
                }
                for instr in &mut out[pending[pending.len() - 1].1..] {
                    instr.micro_batch = op.micro_batch;
                }
                last[stream].push(lowered[stream].len() as u32 - 1);
            }
        }
        let settle = self.settled_bytes(program);
        let merges = last_merges(&lowered);
        if let Some(compute) = lowered.first_mut().filter(|_| settle > 0) {
            let after = events(program, &merges);
            compute.push(Instr { after, ..instr(InstrKind::Settle { bytes: settle }) });
        }
        self.round_sums(program, &mut lowered, &merges);
        for (stream, first, after) in pending {
            let start = program.events.len() as u32;
            program.events.extend(after.iter().map(|op| InstrId {
                stream: u32::from(op.stream),
                index: last[usize::from(op.stream)][op.index as usize],
            }));
            lowered[stream][first].after = Span { start, end: program.events.len() as u32 };
        }
        Ok((RankProgram { buffers: self.buffers, streams: lowered }, self.accumulators))
    }

    /// Bytes of rows that are home but lie in accumulators because their tiles reach beyond the rank's own rows.
    fn settled_bytes(&self, program: &PassProgram) -> u64 {
        let mut known: Vec<(Tensor, &[Span], u64)> = Vec::new();
        let mut bytes = 0;
        for accumulator in self.accumulators.iter().filter(|a| a.away.is_some()) {
            let (tensor, spans) = (accumulator.tensor, accumulator.spans());
            let moved =
                program.calls.iter().filter(|c| c.mode == CallMode::Accumulate).flat_map(|c| &c.parts).any(|p| {
                    let heads = if tensor.is_kv() { p.kv_heads } else { p.q_heads };
                    let local = program.routes[p.routes as usize].rows[self.rank as usize].local;
                    p.tensors.has(tensor) && heads.overlaps(accumulator.heads) && local > 0
                });
            if moved {
                continue;
            }
            let rows = match known.iter().find(|k| (k.0, k.1) == (tensor, spans)) {
                Some(known) => known.2,
                None => {
                    let rows = accumulator.home_rows(&self.table.tiles, &self.home);
                    known.push((tensor, spans, rows));
                    rows
                }
            };
            bytes += rows * u64::from(accumulator.heads.len()) * self.result_row_bytes(tensor, Dtype::F32);
        }
        bytes
    }

    /// After the last merge of f32 partial sums, the finished sums of the rank's own rows become bf16.
    fn round_sums(&self, program: &mut PassProgram, lowered: &mut [Vec<Instr>], merges: &[InstrId]) {
        let merged = |instr: &Instr| match instr.kind {
            InstrKind::Merge { call, .. } => Some(call),
            _ => None,
        };
        let mut tensors = TensorSet::default();
        for call in lowered.iter().flatten().filter_map(merged) {
            for part in &program.calls[call as usize].parts {
                tensors = tensors.union(part.tensors);
            }
        }
        let rows: u64 = self.home.iter().map(|run| u64::from(run.rows.len)).sum();
        let shape = self.plan.shape;
        let bytes: u64 = tensors
            .iter()
            .filter(|t| *t != Tensor::Lse)
            .map(|t| {
                let heads = if t.is_kv() { shape.kv_heads } else { shape.q_heads };
                rows * u64::from(heads) * t.row_bytes(shape.head_dim, Dtype::F32)
            })
            .sum();
        let Some(last) = merges.last().filter(|_| bytes > 0) else { return };
        // Sums are complete once all streams have merged and the compute stream has run out.
        let mut wait: Vec<InstrId> = merges.iter().copied().filter(|m| m.stream != last.stream).collect();
        if let Some(end) = lowered.first().and_then(|compute| compute.len().checked_sub(1)) {
            wait.push(InstrId { stream: 0, index: end as u32 });
        }
        let after = events(program, &wait);
        if let Some(stream) = lowered.get_mut(last.stream as usize) {
            stream.push(Instr { after, ..instr(InstrKind::Cast { bytes }) });
        }
    }

    fn scattered(&self, tensor: Tensor, seq: u32, rows: Rows) -> LowerError {
        LowerError::Operand { rank: self.rank, tensor: tensor.name(), seq, row: rows.start }
    }

    fn accumulator(&self, tensor: Tensor, heads: HeadRange) -> usize {
        self.accumulators.iter().position(|a| a.tensor == tensor && a.heads.contains(heads)).unwrap_or(0)
    }

    /// Where the tiles' results go: straight to the exit buffer when all rows of a tile are home, else to the accumulator.
    fn results(&mut self, slot: usize, launch: &Launch) -> Result<Arc<[View]>, LowerError> {
        let accumulator = &self.accumulators[slot];
        let exit = self.exit_base.iter().find(|(t, _)| *t == accumulator.tensor).map(|(_, base)| *base);
        let tensor = accumulator.tensor;
        if let Some(memo) = self.results.iter().find(|m| m.key == (launch.tiles, tensor, accumulator.away)) {
            return Ok(memo.views.clone());
        }
        let tiles = &self.table.tiles[launch.tiles.range()];
        let (mut near_home, mut near_away) = (0, 0);
        let views: Result<Arc<[View]>, LowerError> = tiles
            .iter()
            .map(|tile| {
                let rows = rows_of(tensor, tile);
                let home = Run::find_dense_near(&self.home, &mut near_home, tile.seq, rows);
                let home = exit.zip(home).map(|(buffer, row)| View { buffer, row });
                let away = || {
                    let row = Run::find_dense_near(&accumulator.runs, &mut near_away, tile.seq, rows);
                    accumulator.away.zip(row).map(|(buffer, row)| View { buffer, row })
                };
                home.or_else(away).ok_or_else(|| self.scattered(tensor, tile.seq, rows))
            })
            .collect();
        let views = views?;
        let key = (launch.tiles, tensor, self.accumulators[slot].away);
        self.results.push(ResultMemo { key, views: views.clone() });
        Ok(views)
    }

    /// First buffer of a tensor in each of the slabs.
    fn slab_buffers(&self, slabs: &[usize], tensor: Tensor) -> Vec<u32> {
        let all = &self.facts.slabs[self.rank as usize].slabs;
        slabs
            .iter()
            .map(|slab| {
                let position = all[*slab].tensors.iter().position(|t| t == tensor).unwrap_or_default();
                self.slab_base[*slab] + position as u32
            })
            .collect()
    }

    fn launch(
        &mut self,
        program: &mut PassProgram,
        operands: &LaunchOperands,
        launch: &Launch,
        out: &mut Vec<Instr>,
    ) -> Result<(), LowerError> {
        let kv_heads = self.plan.shape.kv_of(launch.q_heads);
        let backward = self.pass == Pass::Backward;
        let slots: Vec<usize> =
            contributions(self.pass).iter().map(|t| self.accumulator(*t, self.heads(*t, launch))).collect();
        let first = self.results(slots[0], launch)?;
        let second = if backward { Some(self.results(slots[1], launch)?) } else { None };
        let names = [Tensor::Q, Tensor::K, Tensor::DO, Tensor::O];
        let buffers: Vec<Vec<u32>> =
            operands.slabs.iter().zip(names).map(|(slabs, tensor)| self.slab_buffers(slabs, tensor)).collect();
        let tiles = &self.table.tiles[launch.tiles.range()];
        let start = program.tiles.len() as u32;
        program.tiles.extend(tiles.iter().zip(operands.rows.iter()).enumerate().map(|(i, (tile, rows))| {
            let operand = |kind: usize| {
                let (candidate, row) = rows.at[kind];
                View { buffer: buffers[kind][usize::from(candidate)], row }
            };
            let result = first[i];
            let empty = View::default();
            TileView {
                seq: tile.seq,
                q_rows: tile.q.len,
                k_rows: tile.k.len,
                q: operand(0),
                k: operand(1),
                o: if backward { operand(3) } else { result },
                d_o: if backward { operand(2) } else { empty },
                dq: if backward { result } else { empty },
                dk: second.as_ref().map_or(empty, |views| views[i]),
            }
        }));
        let span = Span { start, end: program.tiles.len() as u32 };
        out.push(instr(InstrKind::Launch { tiles: span, mask: launch.mask, q_heads: launch.q_heads, kv_heads }));
        let mut bytes = 0;
        for slot in slots {
            let tensor = self.accumulators[slot].tensor;
            let heads = self.heads(tensor, launch);
            let met = self.meet(slot, launch);
            bytes += met * u64::from(heads.len()) * self.result_row_bytes(tensor, Dtype::Bf16);
        }
        if bytes > 0 {
            out.push(instr(InstrKind::MergeLocal { bytes }));
        }
        Ok(())
    }

    /// Rows of a launch that meet a partial sum; head pieces that start afresh on the same tiles meet alike.
    fn meet(&mut self, slot: usize, launch: &Launch) -> u64 {
        let (tensor, span) = (self.accumulators[slot].tensor, launch.tiles);
        let mut known = self.accumulators.iter().chain(self.before);
        let twin = known.find(|a| a.tensor == tensor && a.first_met == Some(span));
        if let Some((met, filled)) = twin.filter(|_| self.accumulators[slot].is_fresh()).map(Accumulator::first_meeting)
        {
            return self.accumulators[slot].meet_like(span, met, filled);
        }
        self.accumulators[slot].meet(span, &self.table.tiles[span.range()])
    }

    /// Bytes of one row and head of a result and of what goes with it.
    fn result_row_bytes(&self, tensor: Tensor, dtype: Dtype) -> u64 {
        let one = tensor.row_bytes(self.plan.shape.head_dim, dtype);
        match tensor {
            Tensor::O => one + Tensor::Lse.row_bytes(self.plan.shape.head_dim, dtype),
            Tensor::DK => 2 * one,
            _ => one,
        }
    }

    fn exchange(&self, program: &PassProgram, call: u32, out: &mut Vec<Instr>) {
        let transfer = &program.calls[call as usize];
        let rows = |part: &TransferPart| program.routes[part.routes as usize].rows[self.rank as usize];
        let pack: u64 = transfer
            .parts
            .iter()
            .map(|part| {
                let gathers = transfer.mode == CallMode::Copy && self.slices_heads(call, part);
                (rows(part).local + if gathers { rows(part).sent } else { 0 }) * part.row_bytes
            })
            .sum();
        if pack > 0 {
            out.push(instr(InstrKind::Pack { call, bytes: pack }));
        }
        out.push(instr(InstrKind::Transfer { call }));
        if transfer.mode == CallMode::Accumulate && transfer.dtype == Dtype::F32 {
            let bytes: u64 = transfer.parts.iter().map(|part| rows(part).received * part.row_bytes).sum();
            if bytes > 0 {
                out.push(instr(InstrKind::Merge { call, bytes }));
            }
        }
    }

    /// True when the part carries only some heads of a tensor that the rank holds with more heads side by side.
    fn slices_heads(&self, call: u32, part: &TransferPart) -> bool {
        let earlier = |slab: &&Slab| !matches!(slab.provider, Provider::Call(other) if other >= call);
        let slabs = &self.facts.slabs[self.rank as usize].slabs;
        part.tensors.iter().any(|tensor| {
            let (part_heads, slab_heads): (HeadRange, fn(&Slab) -> HeadRange) =
                if tensor.is_kv() { (part.kv_heads, |s| s.kv_heads) } else { (part.q_heads, |s| s.q_heads) };
            let mut holders =
                slabs.iter().filter(earlier).filter(|s| s.tensors.has(tensor) && slab_heads(s).contains(part_heads));
            !holders.any(|s| slab_heads(s) == part_heads)
        })
    }
}

/// The last merge of every transfer stream that has one.
fn last_merges(lowered: &[Vec<Instr>]) -> Vec<InstrId> {
    let merge = |i: &Instr| matches!(i.kind, InstrKind::Merge { .. });
    let streams = lowered.iter().enumerate().skip(1);
    streams
        .filter_map(|(s, list)| Some(InstrId { stream: s as u32, index: list.iter().rposition(merge)? as u32 }))
        .collect()
}

fn events(program: &mut PassProgram, list: &[InstrId]) -> Span {
    let start = program.events.len() as u32;
    program.events.extend_from_slice(list);
    Span { start, end: program.events.len() as u32 }
}

fn instr(kind: InstrKind) -> Instr {
    Instr { kind, after: Span { start: 0, end: 0 }, micro_batch: 0 }
}
