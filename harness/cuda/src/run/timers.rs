use std::sync::Arc;

use skewbench_exec::{InstrKind, TraceEvent};
use skewbench_plan::{AttentionShape, HeadRange, LaunchShape, Mask, Pass, Rows, Run, Tensor, TileShape};

use super::inputs::Generated;
use super::options::{Execution, Mode, SessionOptions, Transport};
use super::session::{AttentionFactory, Session};
use crate::attention::packed;
use crate::steps::{
    Action, DeviceProgram, Element, Exchange, Message, PassSteps, RankDevice, Region, RowMove, Step, Work,
};
use crate::{CopyTimer, CudaError, LinkTimer, Overlap};

/// Elements of a row and head of the rows that are moved.
const WIDTH: u32 = 128;
/// Heads of such a row.
const HEADS: u32 = 8;
/// What an exchange is overlapped with: long enough to be steady.
const OVERLAPPED: TileShape = TileShape { q: 8192, k: 32_768 };
/// Query and KV heads of it.
const OVERLAPPED_HEADS: (u32, u32) = (16, 2);
/// Bytes of the exchange that is overlapped.
const OVERLAPPED_BYTES: u64 = 1 << 30;
/// How much longer than what is timed the other side of an overlap lasts.
const LONGER: f64 = 2.0;
/// Launches or exchanges of an execution that times them alone.
const ALONE: u32 = 4;
/// Launches or exchanges of one that times them under the other.
const TOGETHER: u32 = 8;

/// Times kernels that move rows, and exchanges, as programs run them: steps of a [`Session`].
pub struct SessionTimer {
    attention: AttentionFactory,
    cards: usize,
    session: Option<(Transport, usize, Session)>,
}

impl SessionTimer {
    /// A timer on the first so many cards; kernels are timed on the first.
    pub fn new(cards: usize, attention: AttentionFactory) -> Self {
        Self { attention, cards, session: None }
    }

    fn session(&mut self, transport: Transport, ranks: usize) -> Result<&mut Session, CudaError> {
        if self.session.as_ref().is_none_or(|(of, with, _)| (*of, *with) != (transport, ranks)) {
            self.session = None;
            let options = SessionOptions { transport, ..SessionOptions::default() };
            let opened = Session::open(ranks, options, self.attention.clone())?;
            self.session = Some((transport, ranks, opened));
        }
        let session = self.session.as_mut().map(|(.., session)| session);
        session.ok_or_else(|| CudaError::Program("no session is open".to_owned()))
    }

    /// Times of one stream of one piece of work on one card.
    fn alone(&mut self, bytes: u64, work: Work, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let session = self.session(Transport::CopyEngines, 1)?;
        let rank = rank(bytes, vec![vec![step(InstrKind::Cast { bytes: 0 }, work)]]);
        load(session, vec![rank])?;
        slowest(session, warm_up, repeats)
    }
}

fn step(instr: InstrKind, work: Work) -> Step {
    Step { instr, micro_batch: 0, after: Vec::new(), work: vec![work] }
}

/// A rank whose whole arena is input, so that nothing is timed on zeros.
fn rank(arena_bytes: u64, streams: Vec<Vec<Step>>) -> RankDevice {
    let (rows, row) = rows(arena_bytes);
    let run = Run { seq: 0, rows: Rows { start: 0, len: rows, stride: 1 }, offset: 0, mixed: false };
    let all = Region {
        offset: 0,
        tensor: Tensor::Q,
        element: Element::Bf16,
        heads: HeadRange::new(0, HEADS as u16),
        width: WIDTH,
        runs: Arc::from([run]),
    };
    RankDevice {
        arena_bytes: arena_bytes.next_multiple_of(row),
        inputs: vec![all],
        forward: PassSteps { streams, setup: Vec::new() },
        ..RankDevice::default()
    }
}

/// Loads one domain and fills it with random numbers.
fn load(session: &mut Session, ranks: Vec<RankDevice>) -> Result<(), CudaError> {
    session.load(&[DeviceProgram { ranks }])?;
    let shape = AttentionShape { q_heads: HEADS as u16, kv_heads: HEADS as u16, head_dim: WIDTH as u16 };
    session.generate(&[Generated::new(1, 0, shape)])
}

/// The slowest rank of every execution but the first ones.
fn slowest(session: &mut Session, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
    let mut times = Vec::new();
    for execution in 0..warm_up + repeats {
        let ranks = session.execute(Pass::Forward, Execution::of(Mode::Whole))?;
        if execution >= warm_up {
            times.push(ranks.iter().map(|rank| rank.ns).max().unwrap_or(0) as f64);
        }
    }
    Ok(times)
}

/// Rows that `bytes` hold in bf16, and bytes of one.
fn rows(bytes: u64) -> (u32, u64) {
    let row = u64::from(HEADS * WIDTH) * Element::Bf16.bytes();
    let rows = (bytes / row).clamp(1, u64::from(u32::MAX)) as u32;
    (rows, row)
}

/// Copies rows of `bytes` to behind themselves; with the bytes of whole rows.
fn copy(bytes: u64) -> (RowMove, u64) {
    let (rows, row) = rows(bytes);
    let size = u64::from(rows) * row;
    let copy = RowMove {
        from: 0,
        to: size,
        rows,
        heads: HEADS,
        width: WIDTH,
        from_stride: row,
        to_stride: row,
        from_element: Element::Bf16,
        to_element: Element::Bf16,
        action: Action::Write,
    };
    (copy, size)
}

impl CopyTimer for SessionTimer {
    fn copy_ns(&mut self, bytes: u64, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let (copy, size) = copy(bytes);
        self.alone(2 * size, Work::Rows(vec![copy]), warm_up, repeats)
    }

    fn merge_ns(&mut self, bytes: u64, warm_up: u32, repeats: u32) -> Result<Vec<f64>, CudaError> {
        let (copy, size) = copy(bytes);
        let lse_row = u64::from(HEADS) * Element::F32.bytes();
        let lse = u64::from(copy.rows) * lse_row;
        let merge = RowMove {
            to_stride: 2 * copy.to_stride,
            to_element: Element::F32,
            action: Action::Merge {
                from_lse: 3 * size,
                to_lse: 3 * size + lse,
                from_lse_stride: lse_row,
                to_lse_stride: lse_row,
            },
            ..copy
        };
        self.alone(3 * size + 2 * lse, Work::Rows(vec![merge]), warm_up, repeats)
    }
}

/// Each of so many ranks sends `bytes` in equal parts to all others and receives as much.
fn exchange(rank: u32, ranks: u32, call: u32, bytes: u64) -> Exchange {
    let part = bytes / u64::from(ranks.saturating_sub(1).max(1));
    let peers = || (0..ranks).filter(move |peer| *peer != rank);
    let message = |first: u64| {
        (0u64..).zip(peers()).map(move |(i, peer)| Message { peer, offset: first + i * part, bytes: part }).collect()
    };
    Exchange { call, sends: message(0), receives: message(bytes) }
}

impl LinkTimer for SessionTimer {
    fn exchange_ns(
        &mut self,
        transport: Transport,
        bytes: u64,
        warm_up: u32,
        repeats: u32,
    ) -> Result<Vec<f64>, CudaError> {
        let cards = self.cards;
        let ranks = (0..cards as u32)
            .map(|of| {
                let work = Work::Exchange(exchange(of, cards as u32, 0, bytes));
                rank(2 * bytes, vec![vec![step(InstrKind::Transfer { call: 0 }, work)]])
            })
            .collect();
        let session = self.session(transport, cards)?;
        load(session, ranks)?;
        slowest(session, warm_up, repeats)
    }

    fn overlap(&mut self, transport: Transport, repeats: u32) -> Result<Overlap, CudaError> {
        let cards = self.cards;
        let (q_heads, kv_heads) = OVERLAPPED_HEADS;
        let tiles = [OVERLAPPED];
        let launch = LaunchShape {
            pass: Pass::Forward,
            mask: Mask::Full,
            q_heads,
            kv_heads,
            head_dim: WIDTH as u16,
            tiles: &tiles,
        };
        let packed = packed(&launch);
        let first = packed.arena_bytes.next_multiple_of(256);
        let program = |launches: u32, exchanges: u32| -> Vec<RankDevice> {
            (0..cards as u32)
                .map(|of| {
                    let launch = || step(InstrKind::Cast { bytes: 0 }, Work::Attend(packed.call.clone()));
                    let transfer = |call: u32| {
                        let mut part = exchange(of, cards as u32, call, OVERLAPPED_BYTES);
                        let messages = part.sends.iter_mut().chain(&mut part.receives);
                        messages.for_each(|message| message.offset += first);
                        step(InstrKind::Transfer { call }, Work::Exchange(part))
                    };
                    let streams =
                        vec![(0..launches).map(|_| launch()).collect(), (0..exchanges).map(transfer).collect()];
                    rank(first + 2 * OVERLAPPED_BYTES, streams)
                })
                .collect()
        };
        let session = self.session(transport, cards)?;
        // Nanoseconds of one launch and one exchange of so many, every time.
        let mut measure = |launches: u32, exchanges: u32| -> Result<[Vec<f64>; 2], CudaError> {
            load(session, program(launches, exchanges))?;
            session.execute(Pass::Forward, Execution::of(Mode::Whole))?;
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..repeats {
                let traced = Execution { trace: true, ..Execution::of(Mode::Whole) };
                let ranks = session.execute(Pass::Forward, traced)?;
                for ((times, stream), count) in times.iter_mut().zip(0u32..).zip([launches, exchanges]) {
                    let span = ranks.iter().map(|rank| spanned(&rank.trace, stream)).fold(0.0, f64::max);
                    times.push((span / f64::from(count.max(1))).max(1.0));
                }
            }
            Ok(times)
        };
        let [compute_alone_ns, _] = measure(ALONE, 0)?;
        let [_, transfer_alone_ns] = measure(0, ALONE)?;
        // While one side is timed, the other lasts longer, whatever they do to each other.
        let shortest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let (launch_ns, exchange_ns) = (shortest(&compute_alone_ns), shortest(&transfer_alone_ns));
        let many = |of: f64, other: f64| {
            (f64::from(TOGETHER) * other * LONGER / of).ceil().clamp(TOGETHER.into(), 512.0) as u32
        };
        let [compute_together_ns, _] = measure(TOGETHER, many(exchange_ns, launch_ns))?;
        let [_, transfer_together_ns] = measure(many(launch_ns, exchange_ns) * 3, TOGETHER)?;
        Ok(Overlap { compute_alone_ns, transfer_alone_ns, compute_together_ns, transfer_together_ns })
    }
}

/// From the beginning of the first instruction of a stream to the end of its last, nanoseconds.
fn spanned(trace: &[TraceEvent], stream: u32) -> f64 {
    let of = || trace.iter().filter(|event| event.stream == stream);
    let begin = of().map(|event| event.start_ps).min().unwrap_or(0);
    let end = of().map(|event| event.end_ps).max().unwrap_or(0);
    end.saturating_sub(begin) as f64 / 1e3
}
