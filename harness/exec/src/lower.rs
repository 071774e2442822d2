use std::sync::Arc;

use skewbench_plan::{
    Dtype, Facts, HeadRange, Launch, LaunchOperands, Move, OpId, Operands, Pass, PassFacts, PassPlan, Plan, Provider,
    Rows, Run, Span, Tensor, TileShape, Work,
};

use crate::accumulators::{Accumulator, contributions, rows_of};
use crate::arrivals::{Arrivals, SumPart};
use crate::home::{Home, RowList};
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
    both_passes(plan, facts, operands.each_ref().map(Some))
}

/// The program of [`lower`] without what only running it needs: buffers, moves of routes, and where the operands and
/// results of tiles lie. Pricing it gives the same times.
///
/// # Errors
/// [`LowerError`] for plans that the checker refuses.
pub fn outline(plan: &Plan, facts: &Facts) -> Result<Program, LowerError> {
    both_passes(plan, facts, [None, None])
}

fn both_passes(plan: &Plan, facts: &Facts, operands: [Option<&Operands>; 2]) -> Result<Program, LowerError> {
    let [forward, backward] = operands;
    let mut exit: Vec<RowList> = vec![Vec::new(); plan.ranks as usize];
    for shard in &plan.exit {
        exit[shard.rank as usize].push((shard.seq, shard.rows));
    }
    let homes: Vec<Home> = exit.iter_mut().map(|shards| Home::new(shards)).collect();
    Ok(Program {
        shape: plan.shape,
        ranks: plan.ranks,
        forward: lower_pass(plan, facts.pass(Pass::Forward), forward, Pass::Forward, &homes)?,
        backward: lower_pass(plan, facts.pass(Pass::Backward), backward, Pass::Backward, &homes)?,
    })
}

/// An outline where no operands are given.
fn lower_pass(
    plan: &Plan,
    facts: &PassFacts,
    operands: Option<&Operands>,
    pass: Pass,
    homes: &[Home],
) -> Result<PassProgram, LowerError> {
    let table = plan.pass(pass);
    let mut routes: Vec<RouteTable> = Vec::with_capacity(facts.indices.len());
    let mut moves: Vec<&[Move]> = Vec::with_capacity(facts.indices.len());
    let mut calls = Vec::with_capacity(table.calls.len());
    for call in &table.calls {
        let mut parts = Vec::with_capacity(call.parts.len());
        for part in &call.parts {
            let id = facts.indices.id(part.moves);
            if let Some(index) = facts.indices.get(part.moves).filter(|_| id == routes.len()) {
                let of_part = &table.moves[part.moves.range()];
                routes.push(RouteTable::new(of_part, index, plan.ranks, operands.is_some()));
                moves.push(of_part);
            }
            parts.push(TransferPart {
                routes: id as u32,
                tensors: part.tensors,
                q_heads: part.q_heads,
                kv_heads: part.kv_heads,
                row_bytes: part.row_bytes(plan.shape.head_dim, call.dtype),
            });
        }
        calls.push(TransferCall { mode: call.mode, dtype: call.dtype, parts, keep: call.keep });
    }
    let mut program = PassProgram { calls, routes, ..PassProgram::default() };
    if operands.is_none() {
        // Launches on the same tiles share their shapes.
        program.shapes = table.tiles.iter().map(TileShape::from).collect();
    }
    let sums = SumPart::of(&program, pass);
    let mut before: Vec<Accumulator> = Vec::new();
    for (rank, home) in (0..plan.ranks).zip(homes) {
        let arrivals = Arrivals::new(&facts.indices, (&program.routes, &moves), &sums, rank, home);
        let of_rank = OfRank { rank, home, arrivals, before: &before };
        let (lowered, accumulators) = RankLowering::new(plan, facts, operands, pass, of_rank).run(&mut program)?;
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

/// What is known of a rank before it is lowered.
struct OfRank<'a> {
    rank: u32,
    home: &'a Home,
    arrivals: Arrivals,
    /// Accumulators of the rank before: ranks that run the same tiles share what follows from them.
    before: &'a [Accumulator],
}

pub(crate) struct RankLowering<'a> {
    pub(crate) plan: &'a Plan,
    table: &'a PassPlan,
    pub(crate) facts: &'a PassFacts,
    /// None where the program is to be an outline.
    operands: Option<&'a [LaunchOperands]>,
    pub(crate) pass: Pass,
    pub(crate) rank: u32,
    pub(crate) home: &'a Home,
    pub(crate) arrivals: Arrivals,
    buffers: Vec<Buffer>,
    /// Number of buffers; an outline has none of them.
    opened: u32,
    /// First buffer of each slab.
    slab_base: Vec<u32>,
    /// Where results that are home go: O (forward) or dQ and dK (backward).
    pub(crate) at_home: Vec<HomeResult>,
    pub(crate) accumulators: Vec<Accumulator>,
    before: &'a [Accumulator],
    results: Vec<ResultMemo>,
}

/// Where one result of the rank's own rows goes.
#[derive(Clone, Copy)]
pub(crate) struct HomeResult {
    pub(crate) tensor: Tensor,
    /// Sum buffer, or exit buffer where there is none.
    pub(crate) buffer: u32,
    /// It is a sum.
    pub(crate) summed: bool,
}

impl<'a> RankLowering<'a> {
    fn new(
        plan: &'a Plan,
        facts: &'a PassFacts,
        operands: Option<&'a Operands>,
        pass: Pass,
        of_rank: OfRank<'a>,
    ) -> Self {
        let OfRank { rank, home, arrivals, before } = of_rank;
        let operands = operands.map(|all| all.ranks.get(rank as usize).map_or(&[][..], Vec::as_slice));
        let mut this = Self {
            plan,
            table: plan.pass(pass),
            facts,
            operands,
            pass,
            rank,
            home,
            arrivals,
            before,
            results: Vec::new(),
            buffers: Vec::new(),
            opened: 0,
            slab_base: Vec::new(),
            at_home: Vec::new(),
            accumulators: Vec::new(),
        };
        let slabs = operands.map_or(&[][..], |_| &facts.slabs[rank as usize].slabs);
        for slab in slabs {
            let kind = match slab.provider {
                Provider::Entry => BufferKind::Entry,
                Provider::Exit => BufferKind::Exit,
                Provider::Call(call) => BufferKind::Received(call),
                Provider::Kept(call) => BufferKind::Kept(call),
            };
            let base = this.opened;
            for tensor in slab.tensors.iter() {
                let heads = if tensor.is_kv() { slab.kv_heads } else { slab.q_heads };
                this.push_buffer(kind, tensor, Dtype::Bf16, heads, slab.runs.clone());
            }
            this.slab_base.push(base);
        }
        this.find_accumulators();
        for tensor in contributions(pass) {
            this.open_home(*tensor);
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
        self.opened += 1;
        if self.operands.is_none() {
            return self.opened - 1;
        }
        let dtype = if tensor == Tensor::Lse { Dtype::F32 } else { dtype };
        let rows = runs.last().map_or(0, |run| u64::from(run.offset + run.rows.len));
        let bytes = rows * u64::from(heads.len()) * tensor.row_bytes(self.plan.shape.head_dim, dtype);
        self.buffers.push(Buffer { kind, tensor, dtype, heads, runs, bytes });
        self.opened - 1
    }

    /// Exit buffers of a result and of what goes with it, and f32 sums where they are needed.
    fn open_home(&mut self, tensor: Tensor) {
        let shape = self.plan.shape;
        let heads = if tensor.is_kv() { shape.all_kv() } else { shape.all_q() };
        let own_sums = || self.accumulators.iter().any(|a| a.tensor == tensor && a.meets_home);
        let summed = self.arrivals.sums_home(tensor) || own_sums();
        let runs = self.home.runs.clone();
        let mut buffer = self.push_buffer(BufferKind::Exit, tensor, Dtype::Bf16, heads, runs.clone());
        if tensor == Tensor::DK {
            self.push_buffer(BufferKind::Exit, Tensor::DV, Dtype::Bf16, heads, runs.clone());
        }
        if summed {
            buffer = self.push_buffer(BufferKind::Sum, tensor, Dtype::F32, heads, runs.clone());
            if tensor == Tensor::DK {
                self.push_buffer(BufferKind::Sum, Tensor::DV, Dtype::F32, heads, runs.clone());
            }
        }
        // LSE is f32 in any case: it follows the buffer that O is added to.
        if tensor == Tensor::O {
            self.push_buffer(BufferKind::Exit, Tensor::Lse, Dtype::F32, heads, runs);
        }
        self.at_home.push(HomeResult { tensor, buffer, summed });
    }

    /// Accumulator buffers of a result and of what goes with it: O with LSE, dK with dV.
    fn open_away(&mut self, tensor: Tensor, heads: HeadRange, runs: Arc<[Run]>) -> u32 {
        let follower = match tensor {
            Tensor::O => Some(Tensor::Lse),
            Tensor::DK => Some(Tensor::DV),
            _ => None,
        };
        let base = self.push_buffer(BufferKind::Accumulator, tensor, Dtype::F32, heads, runs.clone());
        if let Some(follower) = follower {
            self.push_buffer(BufferKind::Accumulator, follower, Dtype::F32, heads, runs);
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

    /// Launches on overlapping heads, and sums that pass through, add to one accumulator of all of their heads.
    fn find_accumulators(&mut self) {
        for launch in self.launches() {
            for tensor in contributions(self.pass) {
                let mut new = Accumulator::new(*tensor, self.heads(*tensor, &launch));
                new.add_launch(launch.tiles);
                self.join(new);
            }
        }
        for part in self.arrivals.parts.clone() {
            if self.arrivals.outside(part.routes).next().is_some() {
                let mut new = Accumulator::new(part.tensor, part.heads);
                new.add_relay(part.routes);
                self.join(new);
            }
        }
        let mut accumulators = std::mem::take(&mut self.accumulators);
        for i in 0..accumulators.len() {
            let (closed, rest) = accumulators.split_at_mut(i);
            rest[0].close(&self.table.tiles, self.home, &self.arrivals, closed);
        }
        self.accumulators = accumulators;
    }

    fn join(&mut self, mut new: Accumulator) {
        let meets = |a: &Accumulator| a.tensor == new.tensor && a.heads.overlaps(new.heads);
        if !self.accumulators.iter().any(meets) {
            self.accumulators.push(new);
            return;
        }
        let (meeting, mut apart): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.accumulators).into_iter().partition(meets);
        for other in meeting {
            new.join(&other);
        }
        apart.push(new);
        self.accumulators = apart;
    }

    fn open_accumulators(&mut self) {
        for i in 0..self.accumulators.len() {
            let accumulator = &self.accumulators[i];
            if !accumulator.at_home() {
                let (tensor, heads, runs) = (accumulator.tensor, accumulator.heads, accumulator.runs.clone());
                self.accumulators[i].away = Some(self.open_away(tensor, heads, runs));
            }
        }
    }

    fn run(mut self, program: &mut PassProgram) -> Result<(RankProgram, Vec<Accumulator>), LowerError> {
        let streams = &self.table.ranks[self.rank as usize].streams;
        let mut lowered: Vec<Vec<Instr>> = vec![Vec::new(); streams.len()];
        // Last instruction of every operation, so that dependencies on operations become dependencies on instructions.
        let mut last: Vec<Vec<u32>> = streams.iter().map(|ops| Vec::with_capacity(ops.len())).collect();
        let mut pending: Vec<(usize, usize, &[OpId])> = Vec::new();
        let mut located = self.operands.map(|operands| operands.iter());
        for (stream, ops) in streams.iter().enumerate() {
            for op in ops {
                pending.push((stream, lowered[stream].len(), &op.after));
                let out = &mut lowered[stream];
                match op.work {
                    Work::Launch(launch) => {
                        let tiles = match &mut located {
                            Some(located) => {
                                let located = located.next().ok_or(LowerError::Operands(self.rank))?;
                                self.views(program, located, &launch)?
                            }
                            None => launch.tiles,
                        };
                        self.launch(tiles, &launch, out);
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
        self.finish(program, &mut lowered);
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

    fn scattered(&self, tensor: Tensor, seq: u32, rows: Rows) -> LowerError {
        LowerError::Operand { rank: self.rank, tensor: tensor.name(), seq, row: rows.start }
    }

    fn accumulator(&self, tensor: Tensor, heads: HeadRange) -> usize {
        self.accumulators.iter().position(|a| a.tensor == tensor && a.heads.contains(heads)).unwrap_or(0)
    }

    /// Where the tiles' results go: straight home when all rows of a tile are, else to the accumulator.
    fn results(&mut self, slot: usize, launch: &Launch) -> Result<Arc<[View]>, LowerError> {
        let accumulator = &self.accumulators[slot];
        let at_home = self.at_home.iter().find(|h| h.tensor == accumulator.tensor).map(|home| home.buffer);
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
                let home = self.home.find_near(&mut near_home, tile.seq, rows);
                let home = at_home.zip(home).map(|(buffer, row)| View { buffer, row });
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

    /// Adds the tiles of a launch to the program and returns their span there.
    fn views(
        &mut self,
        program: &mut PassProgram,
        operands: &LaunchOperands,
        launch: &Launch,
    ) -> Result<Span, LowerError> {
        let backward = self.pass == Pass::Backward;
        let results: Vec<Arc<[View]>> =
            self.slots(launch).into_iter().map(|slot| self.results(slot, launch)).collect::<Result<_, _>>()?;
        let names = [Tensor::Q, Tensor::K, Tensor::DO, Tensor::O];
        let buffers: Vec<Vec<u32>> =
            operands.slabs.iter().zip(names).map(|(slabs, tensor)| self.slab_buffers(slabs, tensor)).collect();
        let tiles = &self.table.tiles[launch.tiles.range()];
        let start = program.tiles.len() as u32;
        program.shapes.extend(tiles.iter().map(TileShape::from));
        program.tiles.extend(tiles.iter().zip(operands.rows.iter()).enumerate().map(|(i, (tile, rows))| {
            let operand = |kind: usize| {
                let (candidate, row) = rows.at[kind];
                View { buffer: buffers[kind][usize::from(candidate)], row }
            };
            let result = results[0][i];
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
                dk: results.get(1).map_or(empty, |views| views[i]),
            }
        }));
        Ok(Span { start, end: program.tiles.len() as u32 })
    }

    /// Accumulators that a launch adds to.
    fn slots(&self, launch: &Launch) -> Vec<usize> {
        contributions(self.pass).iter().map(|t| self.accumulator(*t, self.heads(*t, launch))).collect()
    }

    fn launch(&mut self, tiles: Span, launch: &Launch, out: &mut Vec<Instr>) {
        let kv_heads = self.plan.shape.kv_of(launch.q_heads);
        out.push(instr(InstrKind::Launch { tiles, mask: launch.mask, q_heads: launch.q_heads, kv_heads }));
        let mut bytes = 0;
        for slot in self.slots(launch) {
            let tensor = self.accumulators[slot].tensor;
            let heads = self.heads(tensor, launch);
            let met = self.meet(slot, launch);
            bytes += met * u64::from(heads.len()) * self.result_row_bytes(tensor, Dtype::Bf16);
        }
        if bytes > 0 {
            out.push(instr(InstrKind::MergeLocal { bytes }));
        }
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
    pub(crate) fn result_row_bytes(&self, tensor: Tensor, dtype: Dtype) -> u64 {
        let one = tensor.row_bytes(self.plan.shape.head_dim, dtype);
        match tensor {
            Tensor::O => one + Tensor::Lse.row_bytes(self.plan.shape.head_dim, dtype),
            Tensor::DK => 2 * one,
            _ => one,
        }
    }
}

pub(crate) fn instr(kind: InstrKind) -> Instr {
    Instr { kind, after: Span { start: 0, end: 0 }, micro_batch: 0 }
}
