use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use skewbench_exec::{
    BufferKind, Instr, InstrId, InstrKind, PassProgram, Places, Program, RankProgram, TraceEvent, View,
};
use skewbench_plan::{HeadRange, Mask, Pass, Span, Tensor};

use crate::CpuError;
use crate::kernel::{KeyValues, RowInputs, TileShape, backward, forward};
use crate::memory::{Contribution, Memory, add, each_row, row_at, take};
use crate::processes::Link;
use crate::table::is_poison;
use crate::transfers::{Arrived, Message};

/// Why a thread stops.
pub(crate) enum Halt {
    /// For this reason.
    Here(CpuError),
    /// Another thread has stopped for a reason.
    Elsewhere,
}

/// What the streams of a rank tell each other and other ranks tell the rank.
#[derive(Default)]
pub(crate) struct Board {
    /// Instructions of each stream that are over.
    done: Vec<u32>,
    /// Additions that are over, of [`RankState::additions`].
    added: usize,
    /// What has arrived, by call and sender.
    pub(crate) mail: BTreeMap<(u32, u32), Message>,
    /// Sums that wait for the merge of their call.
    pub(crate) staged: BTreeMap<u32, Vec<Arrived>>,
}

/// Results that launches of a rank have added to.
#[derive(Default)]
struct Launched {
    /// Tensor, sequence and row, with the first launch.
    rows: HashMap<(Tensor, u32, u32), InstrId>,
    /// Tensor, sequence, row and head.
    sums: HashSet<(Tensor, u32, u32, u16)>,
}

impl Launched {
    fn add(&mut self, launch: InstrId, (tensor, seq, row): (Tensor, u32, u32), head: u16) -> Met {
        let first = *self.rows.entry((tensor, seq, row)).or_insert(launch);
        match self.sums.insert((tensor, seq, row, head)) {
            false => Met::Sums,
            true if first != launch => Met::Rows,
            true => Met::Nothing,
        }
    }
}

/// What the results of a launch met of those of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    Nothing,
    /// Rows that an earlier launch added to for other heads: heads that overlap with those of a third launch have one
    /// accumulator, and merges are counted by its rows.
    Rows,
    /// Rows and heads that hold a sum.
    Sums,
}

/// One rank in one pass.
pub(crate) struct RankState<'a> {
    pub(crate) program: &'a RankProgram,
    pub(crate) memory: Vec<Memory<'a>>,
    /// Buffers of the backward that the forward fills.
    pub(crate) kept: Vec<Memory<'a>>,
    additions: Vec<InstrId>,
    launched: Mutex<Launched>,
    pub(crate) board: Mutex<Board>,
    pub(crate) wake: Condvar,
}

impl<'a> RankState<'a> {
    pub(crate) fn new(
        program: &'a RankProgram,
        memory: Vec<Memory<'a>>,
        kept: Vec<Memory<'a>>,
        additions: Vec<InstrId>,
    ) -> Self {
        let board = Board { done: vec![0; program.streams.len()], ..Board::default() };
        let launched = Mutex::default();
        Self { program, memory, kept, additions, launched, board: Mutex::new(board), wake: Condvar::new() }
    }

    /// Takes in what another rank sends.
    pub(crate) fn receive(&self, call: u32, from: u32, message: Message) {
        self.lock().mail.insert((call, from), message);
        self.wake.notify_all();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pass while it runs.
pub(crate) struct PassRun<'a> {
    pub(crate) program: &'a Program,
    pub(crate) table: &'a PassProgram,
    pub(crate) pass: Pass,
    pub(crate) places: Places<'a>,
    pub(crate) ranks: Vec<RankState<'a>>,
    /// Other processes that run some of the ranks.
    pub(crate) link: Option<Link<'a>>,
    pub(crate) patience: Duration,
    pub(crate) started: Instant,
    /// Nanoseconds from the start to the end of the last instruction so far.
    pub(crate) last_end: AtomicU64,
    pub(crate) stopped: AtomicBool,
}

/// An instruction that is being executed.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) rank: u32,
    pub(crate) id: InstrId,
}

/// What is wrong where the merge of a launch is missing.
const UNMERGED: &str = "a launch adds to results of launches, and no merge of them follows";

/// How long a waiting thread sleeps before it looks whether the run is still alive.
const NAP: Duration = Duration::from_millis(20);

impl PassRun<'_> {
    pub(crate) fn name(&self) -> &'static str {
        match self.pass {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
        }
    }

    pub(crate) fn fail(&self, at: At, what: impl Into<String>) -> Halt {
        let InstrId { stream, index } = at.id;
        Halt::Here(CpuError::Instruction { pass: self.name(), rank: at.rank, stream, index, what: what.into() })
    }

    /// Executes a stream of a rank.
    pub(crate) fn stream(&self, rank: u32, stream: u32, trace: bool) -> Result<Vec<TraceEvent>, Halt> {
        let state = &self.ranks[rank as usize];
        let mut events = Vec::new();
        let instrs = state.program.streams.get(stream as usize).map(Vec::as_slice).unwrap_or_default();
        let mut met = Met::Nothing;
        for (index, instr) in (0u32..).zip(instrs) {
            let at = At { rank, id: InstrId { stream, index } };
            let after = self.table.events.get(instr.after.range()).unwrap_or_default();
            let late = |board: &Board| after.iter().find(|dep| board.done[dep.stream as usize] <= dep.index).copied();
            let why = || format!("the instructions {after:?} of its rank");
            self.wait(at, why, |board| late(board).is_none().then_some(()))?;
            let start = self.started.elapsed();
            self.merges_follow(at, met, instr.kind)?;
            met = self.execute(at, instr)?;
            let end = self.started.elapsed();
            self.last_end.fetch_max(end.as_nanos() as u64, Ordering::Relaxed);
            if trace {
                let ps = |time: Duration| time.as_nanos() as u64 * 1000;
                let (start_ps, end_ps) = (ps(start), ps(end));
                events.push(TraceEvent {
                    rank,
                    stream,
                    start_ps,
                    end_ps,
                    what: instr.kind,
                    micro_batch: instr.micro_batch,
                });
            }
            state.lock().done[stream as usize] = index + 1;
            state.wake.notify_all();
        }
        if met == Met::Sums {
            let at = At { rank, id: InstrId { stream, index: (instrs.len() as u32).saturating_sub(1) } };
            return Err(self.fail(at, UNMERGED));
        }
        Ok(events)
    }

    /// A launch adds what it computes at once; the program must say so all the same, for it is what is priced: the merge
    /// of a launch that met results of launches follows it, and no other merge is there.
    fn merges_follow(&self, at: At, met: Met, next: InstrKind) -> Result<(), Halt> {
        match (met, matches!(next, InstrKind::MergeLocal { .. })) {
            (Met::Sums, false) => Err(self.fail(at, UNMERGED)),
            (Met::Nothing, true) => Err(self.fail(at, "merges results of a launch that met none")),
            _ => Ok(()),
        }
    }

    /// Waits until the rank's board has what is wanted.
    pub(crate) fn wait<T>(
        &self,
        at: At,
        why: impl Fn() -> String,
        mut wanted: impl FnMut(&mut Board) -> Option<T>,
    ) -> Result<T, Halt> {
        let state = &self.ranks[at.rank as usize];
        let mut board = state.lock();
        loop {
            if let Some(found) = wanted(&mut board) {
                return Ok(found);
            }
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Halt::Elsewhere);
            }
            let last = Duration::from_nanos(self.last_end.load(Ordering::Relaxed));
            if self.started.elapsed().saturating_sub(last) > self.patience {
                let InstrId { stream, index } = at.id;
                let pass = self.name();
                return Err(Halt::Here(CpuError::Hung { pass, rank: at.rank, stream, index, what: why() }));
            }
            board = state.wake.wait_timeout(board, NAP).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds to results of the rank when its turn has come.
    pub(crate) fn in_turn(&self, at: At, add: impl FnOnce() -> Result<(), Halt>) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        let next = |board: &mut Board| (state.additions.get(board.added) == Some(&at.id)).then_some(());
        self.wait(at, || "its turn to add to results of its rank".into(), next)?;
        add()?;
        state.lock().added += 1;
        state.wake.notify_all();
        Ok(())
    }

    /// What the results met, where it was a launch.
    fn execute(&self, at: At, instr: &Instr) -> Result<Met, Halt> {
        match instr.kind {
            InstrKind::Launch { tiles, mask, q_heads, kv_heads } => {
                return self.launch(at, tiles, mask, (q_heads, kv_heads));
            }
            InstrKind::Pack { call, .. } => self.pack(at, call),
            InstrKind::Transfer { call } => self.transfer(at, call),
            InstrKind::Merge { call, .. } => self.in_turn(at, || self.merge(at, call)),
            InstrKind::Settle { .. } => self.in_turn(at, || self.settle(at)),
            InstrKind::Cast { .. } => self.in_turn(at, || self.cast(at)),
            // Launches have added what they computed; token-wise work has no values.
            InstrKind::MergeLocal { .. } | InstrKind::Linear { .. } => Ok(()),
        }
        .map(|()| Met::Nothing)
    }

    /// Rows of an operand for one head.
    fn operand(&self, at: At, tensor: Tensor, view: View, rows: u32, head: u16) -> Result<Vec<f64>, Halt> {
        let memory = &self.ranks[at.rank as usize].memory;
        let found = memory.get(view.buffer as usize).filter(|m| m.buffer.tensor == tensor);
        let missing =
            |what: &str| self.fail(at, format!("{} of head {head}, buffer {}: {what}", tensor.name(), view.buffer));
        let found = found.ok_or_else(|| missing("is no buffer of this tensor"))?;
        let reading = found.read();
        let mut out = Vec::new();
        for row in view.row..view.row.saturating_add(rows) {
            let values = reading.at(row, head).ok_or_else(|| missing("has no such row or head"))?;
            if is_poison(values) {
                let place = each_row(found.buffer).find(|(index, ..)| *index == row);
                let (_, seq, row) = place.unwrap_or_default();
                return Err(self.fail(
                    at,
                    format!(
                        "reads {} of sequence {seq}, row {row}, head {head}, which is not there yet",
                        tensor.name()
                    ),
                ));
            }
            out.extend(values.iter().map(|x| f64::from(*x)));
        }
        Ok(out)
    }

    fn launch(
        &self,
        at: At,
        tiles: Span,
        mask: Mask,
        (q_heads, kv_heads): (HeadRange, HeadRange),
    ) -> Result<Met, Halt> {
        let shape = self.program.shape;
        let width = usize::from(shape.head_dim);
        let group = shape.q_heads.checked_div(shape.kv_heads).filter(|group| *group > 0);
        let group = group.ok_or_else(|| self.fail(at, "the shape has no KV heads"))?;
        let tiles = self.table.tiles.get(tiles.range()).ok_or_else(|| self.fail(at, "its tiles do not exist"))?;
        let mut results: Vec<Partial> = Vec::new();
        for tile in tiles {
            let of_tile = TileShape { rows: tile.q_rows as usize, keys: tile.k_rows as usize, width, mask };
            let next = |view: View| View { buffer: view.buffer.saturating_add(1), ..view };
            for kv_head in kv_heads.start..kv_heads.end {
                let heads = q_heads.start.max(kv_head * group)..q_heads.end.min((kv_head + 1) * group);
                if heads.is_empty() || tile.q_rows == 0 || tile.k_rows == 0 {
                    continue;
                }
                let k = self.operand(at, Tensor::K, tile.k, tile.k_rows, kv_head)?;
                let v = self.operand(at, Tensor::V, next(tile.k), tile.k_rows, kv_head)?;
                let kv = KeyValues::new(k, v, width);
                let (mut d_k, mut d_v) = (Vec::new(), Vec::new());
                if self.pass == Pass::Backward {
                    d_k.resize(kv.k.len(), 0.0);
                    d_v.resize(kv.k.len(), 0.0);
                }
                for head in heads {
                    let rows = |tensor, view| self.operand(at, tensor, view, tile.q_rows, head);
                    let q = rows(Tensor::Q, tile.q)?;
                    if self.pass == Pass::Forward {
                        let (values, lse) = forward(of_tile, &q, &kv);
                        results.push(Partial { tensor: Tensor::O, view: tile.o, head, width, values, lse });
                        continue;
                    }
                    let (o, lse) = (rows(Tensor::O, tile.o)?, rows(Tensor::Lse, next(tile.o))?);
                    let inputs = RowInputs { q, o, lse, d_o: rows(Tensor::DO, tile.d_o)? };
                    let values = backward(of_tile, &inputs, &kv, &mut d_k, &mut d_v);
                    results.push(Partial { tensor: Tensor::DQ, view: tile.dq, head, width, values, lse: Vec::new() });
                }
                if self.pass == Pass::Backward {
                    for (tensor, view, values) in [(Tensor::DK, tile.dk, d_k), (Tensor::DV, next(tile.dk), d_v)] {
                        results.push(Partial { tensor, view, head: kv_head, width, values, lse: Vec::new() });
                    }
                }
            }
        }
        let mut met = Met::Nothing;
        self.in_turn(at, || {
            results.iter().try_for_each(|result| {
                met = met.max(self.add_rows(at, result)?);
                Ok(())
            })
        })?;
        Ok(met)
    }

    /// Adds rows of a result.
    fn add_rows(&self, at: At, result: &Partial) -> Result<Met, Halt> {
        let launched = &self.ranks[at.rank as usize].launched;
        let mut launched = launched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut met = Met::Nothing;
        let memory = &self.ranks[at.rank as usize].memory;
        let found = memory.get(result.view.buffer as usize).filter(|m| m.buffer.tensor == result.tensor);
        for (i, values) in (0u32..).zip(result.values.chunks(result.width)) {
            let view = View { row: result.view.row.saturating_add(i), ..result.view };
            if let Some((seq, row)) = found.and_then(|memory| row_at(memory.buffer, view.row)) {
                met = met.max(launched.add(at.id, (result.tensor, seq, row), result.head));
            }
            let what = Contribution { values: values.to_vec(), lse: result.lse.get(i as usize).copied() };
            let added = found.and_then(|_| add(memory, result.tensor, view, result.head, &what));
            added.ok_or_else(|| {
                let what = format!(
                    "a result {}, head {}, has no place in buffer {}",
                    result.tensor.name(),
                    result.head,
                    view.buffer
                );
                self.fail(at, what)
            })?;
        }
        Ok(met)
    }

    /// Moves home what accumulators hold of the rank's own rows.
    fn settle(&self, at: At) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        for (buffer, memory) in (0u32..).zip(&state.memory) {
            let (kind, tensor) = (memory.buffer.kind, memory.buffer.tensor);
            if kind != BufferKind::Accumulator || tensor == Tensor::Lse {
                continue;
            }
            for head in memory.buffer.heads.start..memory.buffer.heads.end {
                for (index, seq, row) in each_row(memory.buffer) {
                    let Some(home) = state.program.home(tensor, head, seq, row) else { continue };
                    if let Some(found) = take(&state.memory, tensor, View { buffer, row: index }, head) {
                        let added = add(&state.memory, tensor, home, head, &found);
                        added.ok_or_else(|| self.fail(at, format!("{} has no place at home", tensor.name())))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies all sums to the exit buffers of their tensors.
    fn cast(&self, at: At) -> Result<(), Halt> {
        let state = &self.ranks[at.rank as usize];
        let of_kind = |kind: BufferKind| state.memory.iter().filter(move |m| m.buffer.kind == kind);
        for sum in of_kind(BufferKind::Sum) {
            let tensor = sum.buffer.tensor;
            let exit =
                of_kind(BufferKind::Exit).find(|m| m.buffer.tensor == tensor && m.buffer.runs == sum.buffer.runs);
            let exit = exit.ok_or_else(|| self.fail(at, format!("no exit buffer for the sum of {}", tensor.name())))?;
            let (reading, mut writing) = (sum.read(), exit.write());
            for head in sum.buffer.heads.start..sum.buffer.heads.end {
                for (row, ..) in each_row(sum.buffer) {
                    if let (Some(from), Some(to)) = (reading.at(row, head), writing.at(row, head)) {
                        to.copy_from_slice(from);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a launch computed for rows of a tile and one head.
struct Partial {
    tensor: Tensor,
    view: View,
    head: u16,
    width: usize,
    values: Vec<f64>,
    /// LSE of every row of an O.
    lse: Vec<f64>,
}
