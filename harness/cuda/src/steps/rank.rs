//! One rank in one pass: what each of its instructions issues.

use std::collections::BTreeMap;

use skewbench_exec::{BufferKind, Instr, InstrId, InstrKind, PassProgram, Places};
use skewbench_plan::{AttentionShape, Dtype, HeadRange, Pass, Rows, Tensor};

use super::contributions::{Contributed, Finder};
use super::launch::{Launch, LaunchSite};
use super::memory::{Arena, Block, Constants, Memory};
use super::moves::{Value, deposit, write};
use super::rows::{Filled, Rect, Spot};
use super::{Element, Message, RowMove, Work};

/// O and LSE of the forward that the backward keeps of a call.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) call: u32,
    pub(super) o: &'a Memory<'a>,
    pub(super) lse: &'a Memory<'a>,
}

/// What a call leaves for later instructions of the rank.
#[derive(Default)]
pub(super) struct CallState {
    /// What is sent, once it has been gathered.
    pub(super) sends: Option<Vec<Message>>,
    /// What the merge adds.
    pub(super) merge: Vec<RowMove>,
}

/// One rank in one pass.
pub(super) struct RankPass<'a> {
    pub(super) table: &'a PassProgram,
    pub(super) places: &'a Places<'a>,
    pub(super) shape: AttentionShape,
    pub(super) pass: Pass,
    pub(super) rank: u32,
    pub(super) finder: Finder<'a>,
    pub(super) memory: &'a [Memory<'a>],
    pub(super) kept: Vec<Kept<'a>>,
    pub(super) contributed: &'a [Contributed],
    pub(super) constants: Constants,
    pub(super) arena: Arena,
    /// First byte of the scratch of each stream.
    pub(super) scratch: Vec<Arena>,
    /// What every buffer of results holds.
    pub(super) filled: Vec<Filled>,
    /// Of buffers of O, the rows that have their LSE too.
    pub(super) with_lse: Vec<Filled>,
    pub(super) calls: BTreeMap<u32, CallState>,
    /// Position of the instruction that is lowered.
    pub(super) position: u32,
}

/// Appends moves as one piece of work.
pub(super) fn rows(work: &mut Vec<Work>, moves: Vec<RowMove>) {
    if !moves.is_empty() {
        work.push(Work::Rows(moves));
    }
}

impl<'a> RankPass<'a> {
    fn site(&self) -> LaunchSite<'a> {
        LaunchSite { shape: self.shape, pass: self.pass, memory: self.memory, constants: self.constants }
    }

    fn launch_of(&self, instr: &Instr) -> Result<Option<Launch<'a>>, String> {
        let InstrKind::Launch { tiles, mask, q_heads, kv_heads } = instr.kind else { return Ok(None) };
        let tiles = self.table.tiles.get(tiles.range()).ok_or("its tiles do not exist")?;
        Ok(Some(Launch { tiles, mask, q_heads, kv_heads }))
    }

    /// Sets aside scratch for the launches of each stream: as much as the largest needs.
    pub(super) fn reserve(&mut self, streams: &[Vec<Instr>]) -> Result<(), String> {
        for instrs in streams {
            let mut most = 0;
            for instr in instrs {
                if let Some(launch) = self.launch_of(instr)? {
                    let mut scratch = Arena::default();
                    self.site().launch(launch, &mut scratch)?;
                    most = most.max(scratch.end());
                }
            }
            let start = self.arena.take(most);
            self.scratch.push(Arena::at(start));
        }
        Ok(())
    }

    /// What an instruction issues.
    pub(super) fn instr(&mut self, id: InstrId, instr: &Instr) -> Result<Vec<Work>, String> {
        match instr.kind {
            InstrKind::Launch { .. } => self.launch(id, instr),
            InstrKind::Pack { call, .. } => self.pack(call),
            InstrKind::Transfer { call } => self.transfer(id, call),
            InstrKind::Merge { call, .. } => {
                let mut work = Vec::new();
                rows(&mut work, std::mem::take(&mut self.calls.entry(call).or_default().merge));
                Ok(work)
            }
            InstrKind::Settle { .. } => self.settle(),
            InstrKind::Cast { .. } => self.cast(),
            // Launches have added what they computed; token-wise work is not run.
            InstrKind::MergeLocal { .. } | InstrKind::Linear { .. } => Ok(Vec::new()),
        }
    }

    fn launch(&mut self, id: InstrId, instr: &Instr) -> Result<Vec<Work>, String> {
        let Some(launch) = self.launch_of(instr)? else { return Ok(Vec::new()) };
        let mut scratch = self.scratch.get(id.stream as usize).copied().unwrap_or_default();
        let issued = self.site().launch(launch, &mut scratch)?;
        let mut work = Vec::new();
        rows(&mut work, issued.before);
        work.extend(issued.calls.into_iter().map(Work::Attend));
        rows(&mut work, issued.after);
        let mut results: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        let mut add = |buffer: u32, row: u32, rows: u32| results.entry(buffer).or_default().push((row, row + rows));
        for tile in launch.tiles {
            if self.pass == Pass::Forward {
                add(tile.o.buffer, tile.o.row, tile.q_rows);
            } else {
                add(tile.dq.buffer, tile.dq.row, tile.q_rows);
                add(tile.dk.buffer, tile.dk.row, tile.k_rows);
                add(tile.dk.buffer + 1, tile.dk.row, tile.k_rows);
            }
        }
        for (buffer, rows) in results {
            let tensor = self.memory[buffer as usize].buffer.tensor;
            let heads = if tensor.is_kv() { launch.kv_heads } else { launch.q_heads };
            if tensor == Tensor::O {
                self.with_lse[buffer as usize].insert(heads, rows.clone());
            }
            self.filled[buffer as usize].insert(heads, rows);
        }
        Ok(work)
    }

    /// A spot of a result with what goes with it.
    pub(super) fn values(&self, tensor: Tensor, spot: &Spot) -> Vec<Value> {
        let blocks = |buffer: u32| {
            let mut out = Vec::new();
            if let Some(m) = self.memory.get(buffer as usize) {
                m.blocks(&Spot { buffer, ..*spot }, &mut out);
            }
            out
        };
        let of_value = blocks(spot.buffer);
        if tensor != Tensor::O {
            return of_value.into_iter().map(|block| Value { block, lse: None }).collect();
        }
        let is_lse = self.memory.get(spot.buffer as usize + 1).is_some_and(|m| m.buffer.tensor == Tensor::Lse);
        let of_lse = if is_lse { blocks(spot.buffer + 1) } else { Vec::new() };
        let lse = of_lse.into_iter().map(Some).chain(std::iter::repeat(None));
        of_value.into_iter().zip(lse).map(|(block, lse)| Value { block, lse }).collect()
    }

    /// Notes that a spot of a result holds something, or no longer does.
    pub(super) fn fill(&mut self, spot: &Spot, with_lse: bool) {
        let rows: Vec<(u32, u32)> = spot.intervals().collect();
        if with_lse {
            self.with_lse[spot.buffer as usize].insert(spot.heads, rows.clone());
        }
        self.filled[spot.buffer as usize].insert(spot.heads, rows);
    }

    pub(super) fn empty(&mut self, spot: &Spot) {
        let rows: Vec<(u32, u32)> = spot.intervals().collect();
        self.with_lse[spot.buffer as usize].remove(spot.heads, rows.clone());
        self.filled[spot.buffer as usize].remove(spot.heads, rows);
    }

    /// True when something will be added to a spot after what it holds has left, so that it must be left empty.
    pub(super) fn is_reused(&self, spot: &Spot) -> bool {
        let buffer = spot.buffer as usize;
        let Some(m) = self.memory.get(buffer).filter(|m| !m.written) else { return false };
        let away = m.buffer.kind == BufferKind::Accumulator;
        !away || self.contributed.get(buffer).is_none_or(|known| known.later(self.position, spot))
    }

    /// What leaves a value empty.
    pub(super) fn clear(&self, value: &Value, out: &mut Vec<RowMove>) {
        // An output is empty where its LSE is.
        let block = value.lse.unwrap_or(value.block);
        write(out, &self.constants.empty(&block, self.memory), &block);
    }

    /// What an accumulator holds of a rect goes home.
    pub(super) fn bring_home(
        &mut self,
        tensor: Tensor,
        rect: Rect,
        spot: &Spot,
        with_lse: bool,
        (adds, clears): (&mut Vec<RowMove>, &mut Vec<RowMove>),
    ) -> Result<(), String> {
        let mut homes = Vec::new();
        if !self.finder.home(tensor, vec![rect.of_spot(spot)], &mut homes).is_empty() {
            return Err(format!("{} of sequence {} is not home", tensor.name(), rect.seq));
        }
        let held = self.values(tensor, spot);
        for home in &homes {
            for to in self.values(tensor, home) {
                for (from, to) in held.iter().filter_map(|from| from.shared(&to)) {
                    deposit(adds, &Value { lse: from.lse.filter(|_| with_lse), ..from }, &to, self.memory);
                }
            }
        }
        if self.is_reused(spot) {
            held.iter().for_each(|value| self.clear(value, clears));
        }
        self.empty(spot);
        homes.iter().for_each(|home| self.fill(home, with_lse && tensor == Tensor::O));
        Ok(())
    }

    /// Moves home those rows of accumulators that are.
    fn settle(&mut self) -> Result<Vec<Work>, String> {
        let (mut adds, mut clears) = (Vec::new(), Vec::new());
        for tensor in [Tensor::O, Tensor::DQ, Tensor::DK, Tensor::DV] {
            for buffer in self.finder.accumulators(tensor).to_vec() {
                let runs = self.memory[buffer as usize].buffer.runs.clone();
                let held: Vec<(HeadRange, Vec<(u32, u32)>)> = self.filled[buffer as usize].classes().to_vec();
                for (heads, start, end) in
                    held.iter().flat_map(|(heads, rows)| rows.iter().map(|(start, end)| (*heads, *start, *end)))
                {
                    let first = runs.partition_point(|run| run.offset + run.rows.len <= start);
                    for run in runs[first..].iter().take_while(|run| run.offset < end) {
                        let from = start.max(run.offset);
                        let len = end.min(run.offset + run.rows.len) - from;
                        let ahead = (from - run.offset) * run.rows.stride;
                        let rows = Rows { start: run.rows.start + ahead, len, ..run.rows };
                        let rect = Rect { seq: run.seq, rows, heads, skip: 0 };
                        let mut homes = Vec::new();
                        self.finder.home(tensor, vec![rect], &mut homes);
                        for home in homes {
                            let row = from + home.skip;
                            let spot = Spot { buffer, row, step: 1, ..home };
                            self.bring_home(tensor, rect, &spot, true, (&mut adds, &mut clears))?;
                        }
                    }
                }
            }
        }
        let mut work = Vec::new();
        rows(&mut work, adds);
        rows(&mut work, clears);
        Ok(work)
    }

    /// Rounds all sums into the exit buffers of their tensors.
    fn cast(&mut self) -> Result<Vec<Work>, String> {
        let mut moves = Vec::new();
        let whole = |m: &Memory<'_>| Block::packed(m.at(0, m.heads().start), m.rows(), m.heads(), m.width, m.element);
        for sum in self.memory.iter().filter(|m| m.buffer.kind == BufferKind::Sum) {
            let is_exit = |m: &&Memory<'_>| {
                m.buffer.kind == BufferKind::Exit
                    && (m.buffer.tensor, m.heads()) == (sum.buffer.tensor, sum.heads())
                    && m.buffer.runs == sum.buffer.runs
            };
            let exit = self.memory.iter().find(is_exit);
            let exit = exit.ok_or_else(|| format!("no exit buffer for the sum of {}", sum.buffer.tensor.name()))?;
            if sum.rows() > 0 {
                write(&mut moves, &whole(sum), &whole(exit));
            }
        }
        let mut work = Vec::new();
        rows(&mut work, moves);
        Ok(work)
    }

    /// Element type of a tensor on the wire.
    pub(super) fn on_wire(tensor: Tensor, dtype: Dtype) -> Element {
        match (tensor, dtype) {
            (Tensor::Lse, _) | (_, Dtype::F32) => Element::F32,
            _ => Element::Bf16,
        }
    }

    /// Elements of a row and head of a tensor.
    pub(super) fn width(&self, tensor: Tensor) -> u32 {
        if tensor == Tensor::Lse { 1 } else { u32::from(self.shape.head_dim) }
    }
}
