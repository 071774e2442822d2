use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use skewbench_exec::{Buffer, BufferKind, Places, Program, TraceEvent, View};
use skewbench_plan::{CallMode, Pass, Tensor};

use crate::memory::{Memory, each_row, elements};
use crate::pass::{Halt, PassRun, RankState};
use crate::processes::{Link, pump};
use crate::table::is_poison;
use crate::{CpuError, Inputs, Table};

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// A run in which no instruction ends for so long is given up; longer than any kernel call takes.
    pub patience: Duration,
    /// Most bytes of all buffers of all ranks.
    pub memory_bytes: u64,
    /// Record when every instruction starts and ends.
    pub trace: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(60), memory_bytes: 8 << 30, trace: false }
    }
}

/// What a program leaves. Rows that nothing was written to are marked, see [`Outputs::is_written`].
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Output.
    pub o: Table,
    /// Log-sum-exp of the scaled scores; of rows whose O travels without it, from the rank that keeps it for the backward.
    pub lse: Table,
    /// Gradient of the queries.
    pub dq: Table,
    /// Gradient of the keys.
    pub dk: Table,
    /// Gradient of the values.
    pub dv: Table,
    /// Instructions of the forward by rank and stream, in wall-clock time since the pass began; empty unless asked for.
    pub forward_trace: Vec<TraceEvent>,
    /// The same of the backward.
    pub backward_trace: Vec<TraceEvent>,
}

impl Outputs {
    /// Results for these inputs of which nothing has been written.
    pub fn unwritten(inputs: &Inputs) -> Self {
        let tokens = inputs.tokens();
        let table = |tensor| Table::poisoned(tensor, inputs.shape, &tokens);
        Self {
            o: table(Tensor::O),
            lse: table(Tensor::Lse),
            dq: table(Tensor::DQ),
            dk: table(Tensor::DK),
            dv: table(Tensor::DV),
            forward_trace: Vec::new(),
            backward_trace: Vec::new(),
        }
    }

    /// False for a row and head that no instruction has written to.
    pub fn is_written(values: &[f32]) -> bool {
        !is_poison(values)
    }

    /// The table of a result tensor.
    pub fn table_mut(&mut self, tensor: Tensor) -> Option<&mut Table> {
        match tensor {
            Tensor::O => Some(&mut self.o),
            Tensor::Lse => Some(&mut self.lse),
            Tensor::DQ => Some(&mut self.dq),
            Tensor::DK => Some(&mut self.dk),
            Tensor::DV => Some(&mut self.dv),
            _ => None,
        }
    }

    /// Copies a buffer's rows that have been written.
    fn collect(&mut self, memory: &Memory<'_>) {
        let reading = memory.read();
        let Some(table) = self.table_mut(memory.buffer.tensor) else { return };
        for (index, seq, row) in each_row(memory.buffer) {
            for head in memory.buffer.heads.start..memory.buffer.heads.end {
                let from = reading.at(index, head).filter(|values| !is_poison(values));
                if let (Some(from), Some(to)) = (from, table.at_mut(seq, row, head)) {
                    to.copy_from_slice(from);
                }
            }
        }
    }
}

/// Runs both passes of a program.
///
/// # Errors
/// [`CpuError`] when the program cannot run on these inputs, or leaves results elsewhere than at home. Whether the
/// results are right is for [`compare`](crate::compare()) to say.
pub fn run(program: &Program, inputs: &Inputs, options: &RunOptions) -> Result<Outputs, CpuError> {
    let parts = run_parts(program, inputs, options, None)?;
    let mut outputs = Outputs::unwritten(inputs);
    // What senders keep comes first: homes have the last word.
    parts.kept().chain(parts.exits()).for_each(|memory| outputs.collect(memory));
    (outputs.forward_trace, outputs.backward_trace) = (parts.forward_trace, parts.backward_trace);
    Ok(outputs)
}

/// What both passes leave on the ranks of this process.
pub(crate) struct Parts<'a> {
    forward: Vec<RankState<'a>>,
    backward: Vec<RankState<'a>>,
    forward_trace: Vec<TraceEvent>,
    backward_trace: Vec<TraceEvent>,
}

impl<'a> Parts<'a> {
    /// LSE that senders keep.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Memory<'a>> {
        self.forward.iter().flat_map(|state| &state.kept).filter(|m| m.buffer.tensor == Tensor::Lse)
    }

    /// Results that are home.
    pub(crate) fn exits(&self) -> impl Iterator<Item = &Memory<'a>> {
        let gradient = |tensor: Tensor| matches!(tensor, Tensor::DQ | Tensor::DK | Tensor::DV);
        let forward = self.forward.iter().flat_map(|state| &state.memory);
        let backward = self.backward.iter().flat_map(|state| &state.memory);
        let exits = forward.chain(backward.filter(move |m| gradient(m.buffer.tensor)));
        exits.filter(|m| m.buffer.kind == BufferKind::Exit)
    }
}

/// Runs both passes of a program, of whose ranks other processes may run some.
pub(crate) fn run_parts<'a>(
    program: &'a Program,
    inputs: &Inputs,
    options: &RunOptions,
    link: Option<Link<'a>>,
) -> Result<Parts<'a>, CpuError> {
    fits(program, inputs)?;
    let all = [&program.forward, &program.backward].into_iter().flat_map(|pass| &pass.ranks).flat_map(|r| &r.buffers);
    let bytes = all.fold(0u64, |sum, buffer| sum.saturating_add(elements(buffer, program.shape).saturating_mul(4)));
    if bytes > options.memory_bytes {
        return Err(CpuError::Memory { bytes, limit: options.memory_bytes });
    }
    let states = ranks(program, Pass::Forward, inputs, None, link)?;
    let (forward, forward_trace) = execute(program, Pass::Forward, states, options, link)?;
    let states = ranks(program, Pass::Backward, inputs, Some(&forward), link)?;
    let (backward, backward_trace) = execute(program, Pass::Backward, states, options, link)?;
    Ok(Parts { forward, backward, forward_trace, backward_trace })
}

fn fits(program: &Program, inputs: &Inputs) -> Result<(), CpuError> {
    let (ours, theirs) = (program.shape, inputs.shape);
    if ours != theirs {
        return Err(CpuError::Inputs(format!("the program has heads {ours:?}, the inputs {theirs:?}")));
    }
    if ours.kv_heads == 0 || ours.head_dim == 0 || !ours.q_heads.is_multiple_of(ours.kv_heads) {
        return Err(CpuError::Inputs(format!("{ours:?} is not a shape of attention")));
    }
    let (forward, backward) = (program.forward.ranks.len(), program.backward.ranks.len());
    if forward != backward {
        return Err(CpuError::Inputs(format!("the forward has {forward} ranks, the backward {backward}")));
    }
    Ok(())
}

/// The ranks of a pass with what they hold at its start.
fn ranks<'a>(
    program: &'a Program,
    pass: Pass,
    inputs: &Inputs,
    forward: Option<&[RankState<'a>]>,
    link: Option<Link<'a>>,
) -> Result<Vec<RankState<'a>>, CpuError> {
    let shape = program.shape;
    let table = program.pass(pass);
    let places = Places::of(table)?;
    let calls = &program.forward.calls;
    let taken = |call: u32| calls.get(call as usize).is_some_and(|call| call.mode == CallMode::Accumulate);
    let mut states = Vec::with_capacity(table.ranks.len());
    for (rank, body) in (0u32..).zip(&table.ranks) {
        let here = link.is_none_or(|link| link.is_here(rank));
        let own = body.buffers.iter().filter(|_| here);
        let memory: Vec<Memory<'a>> = own.map(|buffer| Memory::new(buffer, shape)).collect();
        for to in &memory {
            match (to.buffer.kind, forward.and_then(|all| all.get(rank as usize))) {
                (BufferKind::Entry, _) => load(to, inputs)?,
                (BufferKind::Exit | BufferKind::Kept(_), Some(before)) => {
                    if let Some(from) = left_by(before, to.buffer) {
                        to.copy(from);
                    }
                }
                _ => {}
            }
        }
        let later = program.backward.ranks.get(rank as usize).filter(|_| here && pass == Pass::Forward);
        let later = later.map(|body| body.buffers.as_slice()).unwrap_or_default().iter();
        let kept = later.filter(|buffer| matches!(buffer.kind, BufferKind::Kept(call) if taken(call)));
        let kept = kept.map(|buffer| Memory::new(buffer, shape)).collect();
        states.push(RankState::new(body, memory, kept, places.additions(rank)));
    }
    Ok(states)
}

/// What the forward leaves for a buffer of the backward.
fn left_by<'m, 'a>(before: &'m RankState<'a>, buffer: &Buffer) -> Option<&'m Memory<'a>> {
    let kind = match buffer.kind {
        BufferKind::Kept(call) => match before.kept.iter().find(|kept| std::ptr::eq(kept.buffer, buffer)) {
            Some(kept) => return Some(kept),
            None => BufferKind::Received(call),
        },
        other => other,
    };
    let same = |b: &Buffer| (b.kind, b.tensor, b.heads) == (kind, buffer.tensor, buffer.heads) && b.runs == buffer.runs;
    before.memory.iter().find(|m| same(m.buffer))
}

/// Fills an entry buffer.
fn load(to: &Memory<'_>, inputs: &Inputs) -> Result<(), CpuError> {
    let Buffer { tensor, heads, .. } = *to.buffer;
    let table = inputs.table(tensor);
    let mut writing = to.write();
    for (index, seq, row) in each_row(to.buffer) {
        for head in heads.start..heads.end {
            let from = table.and_then(|table| table.at(seq, row, head));
            let from = from.ok_or_else(|| {
                CpuError::Inputs(format!("they have no {} of sequence {seq}, row {row}, head {head}", tensor.name()))
            })?;
            if let Some(to) = writing.at(index, head) {
                to.copy_from_slice(from);
            }
        }
    }
    Ok(())
}

/// Runs all streams of a pass, each in a thread of its own; those of ranks of other processes there.
fn execute<'a>(
    program: &'a Program,
    pass: Pass,
    ranks: Vec<RankState<'a>>,
    options: &RunOptions,
    link: Option<Link<'a>>,
) -> Result<(Vec<RankState<'a>>, Vec<TraceEvent>), CpuError> {
    let table = program.pass(pass);
    let run = PassRun {
        program,
        table,
        pass,
        places: Places::of(table)?,
        ranks,
        link,
        patience: options.patience,
        started: Instant::now(),
        last_end: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    };
    let failure: Mutex<Option<CpuError>> = Mutex::new(None);
    let stop = |error: CpuError| {
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(link), None, false) = (link, &*failure, matches!(error, CpuError::Processes(_))) {
            link.stop(&error);
        }
        failure.get_or_insert(error);
        drop(failure);
        run.stopped.store(true, Ordering::Relaxed);
        run.ranks.iter().for_each(|state| state.wake.notify_all());
    };
    let mut trace = Vec::new();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        if let Some(link) = link {
            let (run, stop, over) = (&run, &stop, &over);
            let receive = move || {
                let deliver = |to: u32, call, from, message| {
                    if let Some(state) = run.ranks.get(to as usize) {
                        state.receive(call, from, message);
                    }
                };
                pump(link, pass, over, deliver, stop);
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, receive) {
                stop(CpuError::Thread(error));
            }
        }
        let here = |rank: u32| link.is_none_or(|link| link.is_here(rank));
        for (rank, state) in (0u32..).zip(&run.ranks).filter(|(rank, _)| here(*rank)) {
            for stream in 0..state.program.streams.len() as u32 {
                let (run, stop) = (&run, &stop);
                let work = move || {
                    let abnormal = |_| Err(Halt::Here(CpuError::Abnormal { pass: run.name(), rank, stream }));
                    let work = AssertUnwindSafe(|| run.stream(rank, stream, options.trace));
                    // Others would wait for a thread that is gone: all are told at once.
                    match catch_unwind(work).unwrap_or_else(abnormal) {
                        Ok(events) => events,
                        Err(Halt::Here(error)) => {
                            stop(error);
                            Vec::new()
                        }
                        Err(Halt::Elsewhere) => Vec::new(),
                    }
                };
                match std::thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(thread) => threads.push((rank, stream, thread)),
                    Err(error) => stop(CpuError::Thread(error)),
                }
            }
        }
        for (rank, stream, thread) in threads {
            match thread.join() {
                Ok(events) => trace.extend(events),
                Err(_) => stop(CpuError::Abnormal { pass: run.name(), rank, stream }),
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    nothing_is_left(&run)?;
    Ok((run.ranks, trace))
}

/// Every sum has been taken home.
fn nothing_is_left(run: &PassRun<'_>) -> Result<(), CpuError> {
    for (rank, state) in (0u32..).zip(&run.ranks) {
        let unmerged = state.lock().staged.values().flatten().next().map(|arrived| arrived.place());
        let away = (0u32..).zip(&state.memory).filter(|(_, m)| m.buffer.kind == BufferKind::Accumulator);
        let mut places = away.filter(|(_, m)| m.buffer.tensor != Tensor::Lse).flat_map(|(buffer, memory)| {
            let heads = memory.buffer.heads.start..memory.buffer.heads.end;
            let reading = memory.read();
            let held: Vec<_> = each_row(memory.buffer)
                .flat_map(|row| heads.clone().map(move |head| (row, head)))
                .filter(|((index, ..), head)| reading.at(*index, *head).is_some_and(|values| !is_poison(values)))
                .take(1)
                .collect();
            held.into_iter().map(move |((index, ..), head)| (memory.buffer.tensor, View { buffer, row: index }, head))
        });
        if let Some((tensor, view, head)) = unmerged.or_else(|| places.next()) {
            let buffer = state.program.buffers.get(view.buffer as usize);
            let row = buffer.and_then(|buffer| each_row(buffer).find(|(index, ..)| *index == view.row));
            let (_, seq, row) = row.unwrap_or_default();
            return Err(CpuError::Left { pass: run.name(), rank, tensor: tensor.name(), seq, row, head });
        }
    }
    Ok(())
}
