use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use skewbench_exec::InstrId;
use skewbench_plan::Pass;

use super::board::{Board, NoNews};
use super::options::{Mode, Transport};
use super::wave::Wave;
use crate::CudaError;
use crate::steps::{PassSteps, Step, Work};

/// One thing that a thread enqueues on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Keeps the stream busy until the host is ahead.
    Hold,
    /// Records an event of this rank.
    Record(u32),
    /// Waits for an event of this rank.
    Join(u32),
    /// Records an event that other ranks wait for, and says so on the board.
    Announce(u32),
    /// Waits for an event of another rank.
    Await(u32),
    /// Issues prepared work: number in [`all_work`].
    Work(u32),
    /// Copies what a call sends to a peer: call, number of the peer in the rank's part.
    Copy(u32, u32),
    /// Issues a rank's part in a call through NCCL.
    Group(u32),
}

/// Events of a rank that every script has.
pub(super) const START: u32 = 0;
pub(super) const GO: u32 = 1;
pub(super) const END: u32 = 2;
const FIRST_OWN: u32 = 3;

/// What the streams of a rank issue in one execution of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Script {
    /// In order, by stream.
    pub streams: Vec<Vec<Op>>,
    /// Number of events of the rank.
    pub events: u32,
    /// When instructions begin; only of traces.
    pub begins: BTreeMap<InstrId, u32>,
    /// When they end: those that others wait for, and transfers; of traces all.
    pub ends: BTreeMap<InstrId, u32>,
}

/// How a script is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ScriptOptions {
    pub pass: Pass,
    pub mode: Mode,
    pub transport: Transport,
    pub trace: bool,
    /// A call in which this rank takes no part, so that the others hang.
    pub skip: Option<u32>,
}

/// All work of a pass in the order of its numbers: setup, then that of streams.
pub(super) fn all_work(pass: &PassSteps) -> impl Iterator<Item = (usize, &Work)> {
    let setup = pass.setup.iter().map(|work| (0, work));
    setup.chain(pass.streams.iter().enumerate().flat_map(|(stream, steps)| {
        steps.iter().flat_map(move |step| step.work.iter().map(move |work| (stream, work)))
    }))
}

/// Makes the script of a rank.
///
/// # Errors
/// A step waits for an instruction that is not there.
pub(super) fn script(wave: &Wave, rank: usize, options: ScriptOptions) -> Result<Script, CudaError> {
    let Some(body) = wave.ranks.get(rank) else { return Ok(Script::default()) };
    let steps = body.pass(options.pass);
    let awaited: BTreeSet<InstrId> = steps.streams.iter().flatten().flat_map(waits).collect();
    let mut made = Script { events: FIRST_OWN, ..Script::default() };
    let bare = options.mode == Mode::Bare;
    for (stream, steps) in (0u32..).zip(&steps.streams) {
        for (index, step) in (0u32..).zip(steps) {
            let at = InstrId { stream, index };
            let transfer = step.work.iter().any(|work| matches!(work, Work::Exchange(_)));
            if options.trace {
                made.begins.insert(at, made.events);
                made.events += 1;
            }
            if options.trace || (!bare && (awaited.contains(&at) || transfer)) {
                made.ends.insert(at, made.events);
                made.events += 1;
            }
        }
    }
    let count = steps.streams.len().max(1);
    made.streams = vec![Vec::new(); count];
    let others = (0..wave.ranks.len() as u32).filter(|other| *other as usize != rank);
    let first = &mut made.streams[0];
    first.extend([Op::Hold, Op::Announce(rank as u32)]);
    first.extend(others.map(Op::Await));
    first.push(Op::Record(START));
    let mut work = 0;
    for one in &steps.setup {
        if does(options.mode, one) {
            first.push(Op::Work(work));
        }
        work += 1;
    }
    first.push(Op::Record(GO));
    made.streams.iter_mut().skip(1).for_each(|stream| stream.push(Op::Join(GO)));
    for (stream, of_stream) in (0u32..).zip(&steps.streams) {
        for (index, step) in (0u32..).zip(of_stream) {
            let at = InstrId { stream, index };
            let mut ops = Vec::new();
            made.step(wave, rank, &options, step, &mut work, &mut ops)?;
            let begin = made.begins.get(&at).map(|event| Op::Record(*event));
            let end = made.ends.get(&at).map(|event| Op::Record(*event));
            // A transfer begins when it is posted: after the waits for what it sends.
            let after = ops.iter().take_while(|op| matches!(op, Op::Join(_))).count();
            let rest = ops.split_off(after);
            let all = ops.into_iter().chain(begin).chain(rest).chain(end);
            made.streams[stream as usize].extend(all);
        }
    }
    for stream in 1..count {
        let done = made.events;
        made.events += 1;
        made.streams[stream].push(Op::Record(done));
        made.streams[0].push(Op::Join(done));
    }
    made.streams[0].push(Op::Record(END));
    Ok(made)
}

impl Script {
    fn step(
        &self,
        wave: &Wave,
        rank: usize,
        options: &ScriptOptions,
        step: &Step,
        work: &mut u32,
        ops: &mut Vec<Op>,
    ) -> Result<(), CudaError> {
        let bare = options.mode == Mode::Bare;
        let join = |on: &InstrId| {
            let InstrId { stream, index } = on;
            let missing = || {
                CudaError::Program(format!(
                    "rank {rank} waits for instruction {index} of stream {stream}, which it has not"
                ))
            };
            self.ends.get(on).map(|event| Op::Join(*event)).ok_or_else(missing)
        };
        if !bare {
            for on in &step.after {
                ops.push(join(on)?);
            }
        }
        for one in &step.work {
            match one {
                Work::Turn(on) if !bare => ops.push(join(on)?),
                Work::Turn(_) => {}
                Work::Exchange(exchange) => {
                    let skipped = options.skip == Some(exchange.call);
                    if matches!(options.mode, Mode::Whole | Mode::Transfers) && !skipped {
                        exchange_ops(wave, rank, options, exchange.call, ops);
                    }
                }
                Work::Fill { .. } | Work::Rows(_) | Work::Attend(_) => {
                    if does(options.mode, one) {
                        ops.push(Op::Work(*work));
                    }
                }
            }
            *work += 1;
        }
        Ok(())
    }
}

fn exchange_ops(wave: &Wave, rank: usize, options: &ScriptOptions, call: u32, ops: &mut Vec<Op>) {
    let Some(part) = wave.part(options.pass, rank, call) else { return };
    match options.transport {
        Transport::Nccl => ops.push(Op::Group(call)),
        Transport::CopyEngines => {
            ops.extend(part.posted.map(Op::Announce));
            for (number, sends) in (0u32..).zip(&part.sends) {
                ops.extend([Op::Await(sends.posted), Op::Copy(call, number), Op::Announce(sends.sent)]);
            }
            ops.extend(part.arrivals.iter().map(|sent| Op::Await(*sent)));
        }
    }
}

fn waits(step: &Step) -> impl Iterator<Item = InstrId> {
    let turns = step.work.iter().filter_map(|work| match work {
        Work::Turn(on) => Some(*on),
        _ => None,
    });
    step.after.iter().copied().chain(turns)
}

/// Whether a mode issues this work.
fn does(mode: Mode, work: &Work) -> bool {
    match mode {
        Mode::Whole | Mode::Compute => matches!(work, Work::Fill { .. } | Work::Rows(_) | Work::Attend(_)),
        Mode::Transfers => false,
        Mode::Bare => matches!(work, Work::Attend(_)),
    }
}

/// What scripts are issued on: a card, or a test's pretence of one.
pub(super) trait Lane {
    /// Enqueues one thing on a stream.
    fn issue(&mut self, stream: usize, op: Op) -> Result<(), CudaError>;

    /// The error for a wait that has no news; the stream at fault, and the event that has not been recorded.
    fn no_news(&mut self, why: NoNews, stream: usize, slot: u32) -> CudaError;
}

/// How many things a stream issues before the next has its turn.
const TURN: usize = 16;

/// Issues a script: goes round its streams, and blocks only when nothing of any stream can be issued. An event is
/// recorded before anything waits for it, so that what is enqueued never waits for the execution before.
///
/// # Errors
/// Issuing fails; no peer recorded what it should have before the deadline; the streams wait for each other.
pub(super) fn issue(
    script: &Script,
    lane: &mut impl Lane,
    board: &Board,
    execution: u64,
    deadline: Instant,
) -> Result<Vec<bool>, CudaError> {
    let mut recorded = vec![false; script.events as usize];
    let mut next = vec![0usize; script.streams.len()];
    loop {
        let seen = board.version();
        let (mut progress, mut left) = (false, false);
        let mut awaits = None;
        for (stream, ops) in script.streams.iter().enumerate() {
            for _ in 0..TURN {
                let Some(op) = ops.get(next[stream]).copied() else { break };
                let ready = match op {
                    Op::Join(event) => recorded.get(event as usize).copied().unwrap_or(false),
                    Op::Await(slot) => board.has(slot, execution),
                    _ => true,
                };
                if !ready {
                    if let Op::Await(slot) = op {
                        awaits = Some((stream, slot));
                    }
                    break;
                }
                lane.issue(stream, op)?;
                match op {
                    Op::Record(event) => recorded[event as usize] = true,
                    Op::Announce(slot) => board.announce(slot, execution),
                    _ => {}
                }
                next[stream] += 1;
                progress = true;
            }
            left |= next[stream] < ops.len();
        }
        if !left {
            return Ok(recorded);
        }
        if board.is_stopped() || !progress {
            let Some((stream, slot)) = awaits.or(board.is_stopped().then_some((0, 0))) else {
                return Err(CudaError::Program("the streams of a rank wait for each other".to_owned()));
            };
            board.wait(seen, deadline).map_err(|why| lane.no_news(why, stream, slot))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use skewbench_exec::{InstrId, InstrKind};
    use skewbench_plan::Pass;

    use super::{GO, Lane, Op, START, Script, ScriptOptions, all_work, issue, script};
    use crate::CudaError;
    use crate::run::board::{Board, NoNews};
    use crate::run::options::{Mode, Transport};
    use crate::run::wave::Wave;
    use crate::run::wave::tests::{domain, transfer};
    use crate::steps::{AttendCall, AttendMask, DeviceProgram, Step, Strides, Work};

    const WHOLE: ScriptOptions = ScriptOptions {
        pass: Pass::Forward,
        mode: Mode::Whole,
        transport: Transport::CopyEngines,
        trace: false,
        skip: None,
    };

    /// A card that only remembers.
    #[derive(Default)]
    struct Fake {
        streams: HashMap<usize, Vec<Op>>,
    }

    impl Lane for Fake {
        fn issue(&mut self, stream: usize, op: Op) -> Result<(), CudaError> {
            self.streams.entry(stream).or_default().push(op);
            Ok(())
        }

        fn no_news(&mut self, why: NoNews, stream: usize, slot: u32) -> CudaError {
            CudaError::Program(format!("{why:?} {stream} {slot}"))
        }
    }

    fn step(after: &[(u32, u32)], work: Vec<Work>) -> Step {
        let after = after.iter().map(|&(stream, index)| InstrId { stream, index }).collect();
        Step { instr: InstrKind::Linear { tokens: 0 }, micro_batch: 0, after, work }
    }

    fn attend() -> Work {
        Work::Attend(AttendCall {
            pass: Pass::Forward,
            mask: AttendMask::Full,
            q_heads: 1,
            kv_heads: 1,
            head_dim: 64,
            strides: Strides::default(),
            slots: Vec::new(),
        })
    }

    fn fill() -> Work {
        Work::Fill { offset: 0, words: 1, bits: 0 }
    }

    /// Every rank of a wave issues its script in a thread of its own, `times` times.
    fn issued(wave: &Arc<Wave>, options: ScriptOptions, times: u64) -> Vec<Result<Fake, CudaError>> {
        let board = Arc::new(Board::new(wave.slots.len()));
        let mut last = Vec::new();
        for execution in 1..=times {
            let threads: Vec<_> = (0..wave.ranks.len())
                .map(|rank| {
                    let (wave, board) = (Arc::clone(wave), Arc::clone(&board));
                    std::thread::spawn(move || {
                        let options = ScriptOptions { skip: options.skip.filter(|_| rank == 0), ..options };
                        let script = script(&wave, rank, options)?;
                        let (mut fake, patience) = (Fake::default(), Duration::from_millis(2000));
                        let deadline = Instant::now() + if options.skip.is_some() { patience * 30 } else { patience };
                        let deadline = if rank == 0 { deadline } else { Instant::now() + patience };
                        issue(&script, &mut fake, &board, execution, deadline).map(|_| fake)
                    })
                })
                .collect();
            last = threads.into_iter().map(|thread| thread.join().expect("joined")).collect();
        }
        last
    }

    /// Executes what was issued, stream by stream in order; false when it stands still before the end. A wait enqueued
    /// before its event is recorded would wait for nothing here: `issue` must never do that.
    fn executes(all: &[Fake]) -> bool {
        let mut at: HashMap<(usize, usize), usize> = HashMap::new();
        let (mut local, mut shared) = (HashSet::new(), HashSet::new());
        loop {
            let (mut progress, mut left) = (false, false);
            for (rank, fake) in all.iter().enumerate() {
                for (stream, ops) in &fake.streams {
                    let next = at.entry((rank, *stream)).or_default();
                    while let Some(op) = ops.get(*next) {
                        let ready = match op {
                            Op::Join(event) => local.contains(&(rank, *event)),
                            Op::Await(slot) => shared.contains(slot),
                            _ => true,
                        };
                        if !ready {
                            left = true;
                            break;
                        }
                        match op {
                            Op::Record(event) => drop(local.insert((rank, *event))),
                            Op::Announce(slot) => drop(shared.insert(*slot)),
                            _ => {}
                        }
                        *next += 1;
                        progress = true;
                    }
                }
            }
            if !left {
                return true;
            }
            if !progress {
                return false;
            }
        }
    }

    /// A domain whose calls any order of a global list could have made: every rank has them on streams of its own choice.
    fn random(ranks: usize, calls: u32, mut seed: u64) -> DeviceProgram {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut streams = vec![vec![Vec::new(), Vec::new()]; ranks];
        let mut compute = vec![Vec::new(); ranks];
        for call in 0..calls {
            let pairs: Vec<(usize, usize)> = (0..ranks)
                .flat_map(|from| (0..ranks).map(move |to| (from, to)))
                .filter(|(from, to)| from != to && draw(3) > 0)
                .collect();
            for rank in 0..ranks {
                let to =
                    pairs.iter().filter(|pair| pair.0 == rank).map(|pair| (pair.1 as u32, 0, 8)).collect::<Vec<_>>();
                let from =
                    pairs.iter().filter(|pair| pair.1 == rank).map(|pair| (pair.0 as u32, 64, 8)).collect::<Vec<_>>();
                let stream = draw(2) as usize;
                let mut step = transfer(call, &to, &from);
                let index = compute[rank].len() as u32;
                if index > 0 && draw(2) == 0 {
                    step.after.push(InstrId { stream: 0, index: index - 1 });
                }
                streams[rank][stream].push(step);
                let last = InstrId { stream: stream as u32 + 1, index: streams[rank][stream].len() as u32 - 1 };
                let after = if draw(2) == 0 { vec![(last.stream, last.index)] } else { Vec::new() };
                compute[rank].push(self::step(&after, vec![fill(), attend()]));
            }
        }
        let mut program = domain(streams);
        for (rank, steps) in program.ranks.iter_mut().zip(compute) {
            rank.forward.streams[0] = steps;
        }
        program
    }

    #[test]
    fn random_programs_are_issued_and_executed_to_their_end() {
        for seed in 0..24 {
            let (ranks, calls) = (2 + seed as usize % 4, 1 + seed as u32 % 9);
            let programs = [random(ranks, calls, seed), random(2, 3, seed + 100)];
            let wave = Arc::new(Wave::new(&programs).expect("a wave"));
            for options in
                [WHOLE, ScriptOptions { trace: true, ..WHOLE }, ScriptOptions { mode: Mode::Transfers, ..WHOLE }]
            {
                let all: Result<Vec<Fake>, CudaError> = issued(&wave, options, 2).into_iter().collect();
                assert!(executes(&all.expect("issued")), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_skipped_call_ends_in_time_and_names_what_is_missing() {
        let pair = domain(vec![
            vec![vec![transfer(0, &[(1, 0, 8)], &[(1, 8, 8)])]],
            vec![vec![transfer(0, &[(0, 0, 8)], &[(0, 8, 8)])]],
        ]);
        let wave = Arc::new(Wave::new(&[pair]).expect("a wave"));
        let all = issued(&wave, ScriptOptions { skip: Some(0), ..WHOLE }, 1);
        assert!(all[0].is_ok());
        let posted = wave.part(Pass::Forward, 0, 0).expect("a part").posted.expect("a slot");
        let error = all[1].as_ref().map(drop).expect_err("late").to_string();
        assert_eq!(error, format!("Late 1 {posted}"));
    }

    #[test]
    fn streams_that_wait_for_each_other_are_an_error() {
        let mut program = domain(vec![vec![vec![step(&[(0, 0)], vec![])]]]);
        program.ranks[0].forward.streams[0] = vec![step(&[(1, 0)], vec![])];
        let wave = Arc::new(Wave::new(&[program]).expect("a wave"));
        let error = issued(&wave, WHOLE, 1).remove(0).map(drop).expect_err("a cycle");
        assert!(error.to_string().contains("wait for each other"));
    }

    #[test]
    fn modes_leave_out_what_they_do_not_time() {
        let mut program = random(2, 2, 1);
        program.ranks[0].forward.setup = vec![fill()];
        let wave = Wave::new(&[program]).expect("a wave");
        let ops = |mode| {
            let made = script(&wave, 0, ScriptOptions { mode, ..WHOLE }).expect("a script");
            made.streams.concat()
        };
        let count = |mode, test: fn(&Op) -> bool| ops(mode).iter().filter(|op| test(op)).count();
        let work = |op: &Op| matches!(op, Op::Work(_));
        let copy = |op: &Op| matches!(op, Op::Copy(..));
        assert_eq!((count(Mode::Whole, work), count(Mode::Compute, work)), (5, 5));
        assert_eq!((count(Mode::Transfers, work), count(Mode::Bare, work)), (0, 2));
        assert!(count(Mode::Whole, copy) > 0 && count(Mode::Whole, copy) == count(Mode::Transfers, copy));
        assert_eq!((count(Mode::Compute, copy), count(Mode::Bare, copy)), (0, 0));
        let nccl = script(&wave, 0, ScriptOptions { transport: Transport::Nccl, ..WHOLE }).expect("a script");
        assert_eq!(nccl.streams.concat().iter().filter(|op| matches!(op, Op::Group(_))).count(), 2);
    }

    #[test]
    fn work_is_numbered_as_it_is_prepared() {
        let mut program = random(2, 2, 1);
        program.ranks[0].forward.setup = vec![fill()];
        let wave = Wave::new(&[program]).expect("a wave");
        let steps = &wave.ranks[0].forward;
        let Script { streams, .. } = script(&wave, 0, ScriptOptions { mode: Mode::Bare, ..WHOLE }).expect("a script");
        let work: Vec<_> = all_work(steps).map(|(_, work)| work).collect();
        for op in streams.concat() {
            if let Op::Work(number) = op {
                assert!(matches!(work[number as usize], Work::Attend(_)));
            }
        }
        assert_eq!(streams[0].iter().position(|op| *op == Op::Record(START)), Some(3));
        assert!(streams[1..].iter().all(|ops| ops[0] == Op::Join(GO)));
    }
}
