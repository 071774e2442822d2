//! Checks on real cards what no other machine can: row kernels, inputs, transports, the watchdog. One card is enough for
//! most; with two, exchanges are checked and timed too. Prints one line a check and goes on after failures.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, result};
use cudarc::nvrtc::Ptx;
use half::bf16;
use skewbench_cuda::CudaError;
use skewbench_cuda::attention::{Attention, CallId};
use skewbench_cuda::libraries::{compile, fail};
use skewbench_cuda::run::{
    AttentionFactory, Execution, Generated, Mode, Placement, Session, SessionOptions, Transport, cards, value,
};
use skewbench_cuda::steps::{
    Action, AttendCall, AttendMask, DeviceProgram, Element, Exchange, Message, PassSteps, RankDevice, Region, RowMove,
    Slot, Step, Strides, Work,
};
use skewbench_exec::{InstrId, InstrKind};
use skewbench_plan::{AttentionShape, HeadRange, Pass, Rows, Run, Tensor};

/// Keeps every multiprocessor busy, in blocks of a fraction of a millisecond as attention has them.
const BUSY: &str = r#"
extern "C" __global__ void __launch_bounds__(1024) busy(float *never, unsigned rounds) {
    float x = threadIdx.x, y = blockIdx.x;
    for (unsigned i = 0; i < rounds; ++i) x = x * 0.999f + y;
    if (x == 12345.0f) *never = x;
}
"#;

/// Stands in for attention: the first slot's rows are the number of blocks.
struct Busy {
    kernel: CudaFunction,
    blocks: Vec<u32>,
}

impl Attention for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn prepare(&mut self, call: &AttendCall, _: &Arc<CudaStream>) -> Result<CallId, CudaError> {
        self.blocks.push(call.slots.first().map_or(1, |slot| slot.q_rows));
        Ok(CallId(self.blocks.len() - 1))
    }

    fn enqueue(&mut self, call: CallId, arena: CUdeviceptr, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let (mut never, mut rounds) = (arena, 20_000u32);
        let mut arguments = [(&raw mut never).cast::<c_void>(), (&raw mut rounds).cast::<c_void>()];
        let (grid, block) = ((self.blocks[call.0], 1, 1), (1024, 1, 1));
        // SAFETY: the kernel takes an address and a number.
        unsafe { result::launch_kernel(self.kernel.cu_function(), grid, block, 0, stream.cu_stream(), &mut arguments) }
            .map_err(|error| fail(0, "cuLaunchKernel(busy)", error))
    }

    fn clear(&mut self) {
        self.blocks.clear();
    }
}

fn busy() -> AttentionFactory {
    Arc::new(|context: &Arc<CudaContext>| {
        let failed = |error| fail(context.ordinal(), "loading busy", error);
        let capability = context.compute_capability().map_err(failed)?;
        let binary = compile(context.ordinal(), "busy.cu", BUSY, capability, &[])?;
        let module = context.load_module(Ptx::from_binary(binary)).map_err(failed)?;
        Ok(Box::new(Busy { kernel: module.load_function("busy").map_err(failed)?, blocks: Vec::new() }))
    })
}

/// Numbers that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }
}

type Check = Result<String, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[derive(Default)]
struct Checks {
    failed: usize,
}

impl Checks {
    fn run(&mut self, name: &str, check: impl FnOnce() -> Check) {
        let began = Instant::now();
        let (verdict, detail) = match check() {
            Ok(detail) => ("PASS", detail),
            Err(detail) => {
                self.failed += 1;
                ("FAIL", detail)
            }
        };
        println!("{verdict} {name}: {detail} [{:.1} s]", began.elapsed().as_secs_f64());
    }
}

fn step(after: &[(u32, u32)], work: Vec<Work>) -> Step {
    let after = after.iter().map(|&(stream, index)| InstrId { stream, index }).collect();
    Step { instr: InstrKind::Linear { tokens: 0 }, micro_batch: 0, after, work }
}

fn rank(arena_bytes: u64, streams: Vec<Vec<Step>>) -> RankDevice {
    let forward = PassSteps { streams, setup: Vec::new() };
    RankDevice { arena_bytes, forward, ..RankDevice::default() }
}

fn alone(arena_bytes: u64, streams: Vec<Vec<Step>>) -> DeviceProgram {
    DeviceProgram { ranks: vec![rank(arena_bytes, streams)] }
}

/// A move of rows without gaps.
fn moved(
    from: u64,
    to: u64,
    (rows, heads, width): (u32, u32, u32),
    from_element: Element,
    to_element: Element,
) -> RowMove {
    let row = u64::from(heads) * u64::from(width);
    RowMove {
        from,
        to,
        rows,
        heads,
        width,
        from_stride: row * from_element.bytes(),
        to_stride: row * to_element.bytes(),
        from_element,
        to_element,
        action: Action::Write,
    }
}

fn get(arena: &[u8], at: u64, element: Element) -> f32 {
    let at = at as usize;
    match element {
        Element::Bf16 => bf16::from_le_bytes([arena[at], arena[at + 1]]).to_f32(),
        Element::F32 => f32::from_le_bytes([arena[at], arena[at + 1], arena[at + 2], arena[at + 3]]),
    }
}

fn put(arena: &mut [u8], at: u64, element: Element, x: f32) {
    let at = at as usize;
    match element {
        Element::Bf16 => arena[at..at + 2].copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
        Element::F32 => arena[at..at + 4].copy_from_slice(&x.to_le_bytes()),
    }
}

/// What a move does, from its definition.
fn apply(arena: &mut [u8], one: &RowMove) {
    for (row, head) in (0..u64::from(one.rows)).flat_map(|row| (0..u64::from(one.heads)).map(move |head| (row, head))) {
        let mut weights = None;
        if let Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride } = one.action {
            let a_at = to_lse + row * to_lse_stride + head * 4;
            let a = f64::from(get(arena, a_at, Element::F32));
            let b = f64::from(get(arena, from_lse + row * from_lse_stride + head * 4, Element::F32));
            if b == f64::NEG_INFINITY {
                continue;
            }
            let most = a.max(b);
            let lse = most + ((a - most).exp() + (b - most).exp()).ln();
            put(arena, a_at, Element::F32, lse as f32);
            weights = Some(((a - lse).exp(), (b - lse).exp()));
        }
        for element in 0..u64::from(one.width) {
            let index = head * u64::from(one.width) + element;
            let from = one.from + row * one.from_stride + index * one.from_element.bytes();
            let to = one.to + row * one.to_stride + index * one.to_element.bytes();
            let x = get(arena, from, one.from_element);
            let old = get(arena, to, one.to_element);
            let new = match (one.action, weights) {
                (Action::Add, _) => old + x,
                (_, Some((a, b))) if a > 0.0 => (a * f64::from(old) + b * f64::from(x)) as f32,
                _ => x,
            };
            put(arena, to, one.to_element, new);
            if let Action::Take { bits } = one.action {
                put(arena, from, Element::F32, f32::from_bits(bits));
            }
        }
    }
}

/// Runs moves on the card and on the host, and compares all memory: f32 words in `from..` within a tolerance (merges), the
/// rest bit by bit.
fn same_as_host(session: &mut Session, arena: &[u8], moves: Vec<Vec<RowMove>>, tolerance: f32) -> Check {
    let mut host = arena.to_vec();
    moves.iter().flatten().for_each(|one| apply(&mut host, one));
    // One stream for each list, all at once.
    let streams = moves.into_iter().map(|list| vec![step(&[], vec![Work::Rows(list)])]).collect();
    session.load(&[alone(arena.len() as u64, streams)]).map_err(text)?;
    session.write(0, 0, arena.to_vec()).map_err(text)?;
    session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(text)?;
    let card = session.read(0, 0, arena.len() as u64).map_err(text)?;
    if tolerance == 0.0 {
        return match card.iter().zip(&host).position(|(a, b)| a != b) {
            Some(at) => Err(format!("byte {at} is {:#x}, not {:#x}", card[at], host[at])),
            None => Ok(format!("{} bytes the same", card.len())),
        };
    }
    let mut worst = 0.0f32;
    for (a, b) in card.chunks_exact(4).zip(host.chunks_exact(4)).filter(|(a, b)| a != b) {
        let (a, b) = (f32::from_le_bytes([a[0], a[1], a[2], a[3]]), f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let error = (a - b).abs() / b.abs().max(1.0);
        if error.is_nan() || error > tolerance {
            return Err(format!("{a} instead of {b}"));
        }
        worst = worst.max(error);
    }
    Ok(format!("largest error {worst:.1e}"))
}

/// Numbers in both element types: every word is a number between -1 and 1, and so are both its halves as bf16.
fn numbers(noise: &mut Noise, words: usize) -> Vec<u8> {
    let half = |noise: &mut Noise| bf16::from_f32(noise.unit()).to_le_bytes();
    (0..words).flat_map(|_| [half(noise), half(noise)].concat()).collect()
}

fn rows(checks: &mut Checks, session: &mut Session) {
    use Element::{Bf16, F32};
    let mut noise = Noise(1);
    for width in [1u32, 64, 100, 128] {
        for (from, to, action, name) in [
            (Bf16, Bf16, Action::Write, "write bf16 to bf16"),
            (F32, F32, Action::Write, "write f32 to f32"),
            (Bf16, F32, Action::Write, "write bf16 to f32"),
            (F32, Bf16, Action::Write, "write f32 to bf16"),
            (F32, F32, Action::Take { bits: 0 }, "take f32 to f32"),
            (F32, Bf16, Action::Take { bits: 0xff80_0000 }, "take f32 to bf16"),
            (F32, F32, Action::Add, "add f32"),
            (Bf16, F32, Action::Add, "add bf16"),
        ] {
            for odd in [false, true] {
                let arena = numbers(&mut noise, 1 << 18);
                let shift = |element: Element| if odd { element.bytes() } else { 0 };
                let mut list = Vec::new();
                // Moves of one row, of some and of many, with gaps between rows.
                let (mut a, mut b) = (0u64, 1u64 << 19);
                for (rows, heads) in [(1, 1), (3, 2), (117, 4), (33, 1)] {
                    let mut one = moved(a + shift(from), b + shift(to), (rows, heads, width), from, to);
                    let gap = if rows == 33 { 16 + shift(F32) } else { 0 };
                    (one.from_stride, one.to_stride, one.action) =
                        (one.from_stride + gap, one.to_stride + 3 * gap, action);
                    a = (a + one.from_stride * u64::from(rows) + 64).next_multiple_of(16);
                    b = (b + one.to_stride * u64::from(rows) + 64).next_multiple_of(16);
                    list.push(one);
                }
                let place = if odd { "odd" } else { "aligned" };
                checks
                    .run(&format!("{name}, width {width}, {place}"), || same_as_host(session, &arena, vec![list], 0.0));
            }
        }
        for (from, streams, odd) in
            [(F32, 1, false), (Bf16, 1, false), (F32, 2, false), (Bf16, 2, false), (F32, 2, true)]
        {
            let (many, heads) = (96u32, 3u32);
            let mut arena = numbers(&mut noise, 1 << 20);
            let lse = |index: u64| (3 << 20) + index * 4096 + if odd { 4 } else { 0 };
            // Some destinations are empty with NaN in their output, some sources too.
            for i in 0..u64::from(many * heads) {
                if i.is_multiple_of(5) {
                    put(&mut arena, lse(0) + i * 4, F32, f32::NEG_INFINITY);
                    let odd = if odd { 4 } else { 0 };
                    let at = odd + i * u64::from(width) * 4;
                    (0..u64::from(width)).for_each(|e| put(&mut arena, at + e * 4, F32, f32::NAN));
                }
                if i.is_multiple_of(7) {
                    put(&mut arena, lse(1) + i * 4, F32, f32::NEG_INFINITY);
                }
            }
            let one = |number: u64| {
                let shift = if odd { from.bytes() } else { 0 };
                let source = (number << 19) + shift;
                let mut one = moved(source, if odd { 4 } else { 0 }, (many, heads, width), from, F32);
                one.action = Action::Merge {
                    from_lse: lse(number),
                    to_lse: lse(0),
                    from_lse_stride: u64::from(heads) * 4,
                    to_lse_stride: u64::from(heads) * 4,
                };
                one
            };
            let lists =
                if streams == 1 { vec![vec![one(1)]] } else { vec![vec![one(1), one(2)], vec![one(3), one(4)]] };
            let name =
                format!("merge {from:?} on {streams} stream(s), width {width}{}", if odd { ", odd" } else { "" });
            checks.run(&name, || same_as_host(session, &arena, lists, 2e-5));
        }
    }
}

fn bandwidth(checks: &mut Checks, session: &mut Session) {
    use Element::{Bf16, F32};
    let repeats = 8u64;
    for (name, from, to, action) in [
        ("copy bf16", Bf16, Bf16, Action::Write),
        ("copy f32", F32, F32, Action::Write),
        ("widen", Bf16, F32, Action::Write),
        ("round", F32, Bf16, Action::Write),
        ("take", F32, Bf16, Action::Take { bits: 0 }),
        ("add f32", F32, F32, Action::Add),
        ("add bf16", Bf16, F32, Action::Add),
        ("merge f32", F32, F32, Action::Merge { from_lse: 0, to_lse: 0, from_lse_stride: 64, to_lse_stride: 64 }),
        ("merge bf16", Bf16, F32, Action::Merge { from_lse: 0, to_lse: 0, from_lse_stride: 64, to_lse_stride: 64 }),
    ] {
        checks.run(&format!("bandwidth of {name}, rows of 16 heads x 128"), || {
            // 256 MB of sources, in moves of 1024 rows.
            let row = 16 * 128 * from.bytes();
            let rows = (256u64 << 20) / row;
            let lse = 3u64 << 29;
            let moves: Vec<RowMove> = (0..rows / 1024)
                .map(|i| {
                    let mut one =
                        moved(i * 1024 * row, (1 << 29) + i * 1024 * 2048 * to.bytes(), (1024, 16, 128), from, to);
                    one.action = match action {
                        Action::Merge { .. } => Action::Merge {
                            from_lse: lse + i * 65_536,
                            to_lse: lse + (1 << 27) + i * 65_536,
                            from_lse_stride: 64,
                            to_lse_stride: 64,
                        },
                        other => other,
                    };
                    one
                })
                .collect();
            let work = (0..repeats).map(|_| Work::Rows(moves.clone())).collect();
            session.load(&[alone(7 << 28, vec![vec![step(&[], work)]])]).map_err(text)?;
            session.write(0, lse, vec![0u8; 1 << 28]).map_err(text)?;
            let mut best = u64::MAX;
            for _ in 0..3 {
                let times = session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(text)?;
                best = best.min(times[0].ns);
            }
            let elements = rows * 2048;
            let touched = match action {
                Action::Write => from.bytes() + to.bytes(),
                Action::Take { .. } => 2 * from.bytes() + to.bytes(),
                Action::Add | Action::Merge { .. } => from.bytes() + 2 * to.bytes(),
            };
            let rate = (elements * touched * repeats) as f64 / best as f64;
            let detail = format!("{rate:.0} GB/s read and written, {} us a launch", best / repeats / 1000);
            if rate > 2000.0 { Ok(detail) } else { Err(format!("{detail}; expected over 2000")) }
        });
    }
}

fn generator(checks: &mut Checks, session: &mut Session) {
    checks.run("inputs are made as on the host", || {
        let shape = AttentionShape { q_heads: 4, kv_heads: 2, head_dim: 128 };
        let runs: Arc<[Run]> = [
            Run { seq: 3, rows: Rows { start: 5, len: 700, stride: 3 }, offset: 0, mixed: false },
            Run { seq: 0, rows: Rows::range(1_000_000, 1_000_321), offset: 700, mixed: false },
        ]
        .into();
        let region = |offset, tensor, heads| Region {
            offset,
            tensor,
            element: Element::Bf16,
            heads,
            width: 128,
            runs: Arc::clone(&runs),
        };
        let regions = [region(256, Tensor::Q, HeadRange::new(1, 4)), region(1 << 22, Tensor::K, HeadRange::new(0, 2))];
        let mut body = rank(1 << 23, vec![Vec::new()]);
        body.inputs = regions.to_vec();
        session.load(&[DeviceProgram { ranks: vec![body] }]).map_err(text)?;
        session.poison().map_err(text)?;
        let inputs = Generated::new(77, 0, shape);
        session.generate(std::slice::from_ref(&inputs)).map_err(text)?;
        let mut compared = 0u64;
        for region in &regions {
            let bytes = session.read(0, region.offset, 1021 * u64::from(region.heads.len()) * 256).map_err(text)?;
            let mut next = bytes.chunks_exact(2);
            for run in runs.iter() {
                for row in (0..run.rows.len).map(|i| run.rows.start + i * run.rows.stride) {
                    for (head, element) in
                        (region.heads.start..region.heads.end).flat_map(|h| (0..128).map(move |e| (h, e)))
                    {
                        let expected = value(inputs.seed(), region.tensor, run.seq, row, head, element);
                        let found = next.next().map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32());
                        if found.map(f32::to_bits) != Some(expected.to_bits()) {
                            return Err(format!(
                                "{found:?} instead of {expected} at row {row}, head {head}, element {element}"
                            ));
                        }
                        compared += 1;
                    }
                }
            }
        }
        Ok(format!("{compared} elements the same"))
    });
}

/// Two ranks that exchange `calls` times so many bytes both ways, beside `blocks` blocks of busy work.
fn pair(bytes: u64, calls: u32, blocks: u32) -> DeviceProgram {
    let one = |peer: u32| {
        let exchange = |call| Exchange {
            call,
            sends: vec![
                Message { peer, offset: 0, bytes: bytes / 2 },
                Message { peer, offset: bytes / 2, bytes: bytes - bytes / 2 },
            ],
            receives: vec![
                Message { peer, offset: bytes, bytes: bytes / 2 },
                Message { peer, offset: bytes + bytes / 2, bytes: bytes - bytes / 2 },
            ],
        };
        let transfers = (0..calls).map(|call| Step {
            instr: InstrKind::Transfer { call },
            ..step(&[], vec![Work::Exchange(exchange(call))])
        });
        let call = AttendCall {
            pass: Pass::Forward,
            mask: AttendMask::Full,
            q_heads: 1,
            kv_heads: 1,
            head_dim: 128,
            strides: Strides::default(),
            slots: vec![Slot { q_rows: blocks, ..Slot::default() }],
        };
        let compute = if blocks > 0 { vec![step(&[], vec![Work::Attend(call)])] } else { Vec::new() };
        rank(2 * bytes, vec![compute, transfers.collect()])
    };
    DeviceProgram { ranks: vec![one(1), one(0)] }
}

fn exchanged(session: &mut Session, bytes: u64) -> Check {
    session.load(&[pair(bytes, 2, 0)]).map_err(text)?;
    let sent = [Noise(5).bytes(bytes as usize), Noise(6).bytes(bytes as usize)];
    for (rank, bytes) in sent.iter().enumerate() {
        session.write(rank, 0, bytes.clone()).map_err(text)?;
    }
    for _ in 0..3 {
        session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(text)?;
    }
    for rank in 0..2 {
        if session.read(rank, bytes, bytes).map_err(text)? != sent[1 - rank] {
            return Err(format!("rank {rank} did not receive what was sent"));
        }
    }
    Ok(format!("{bytes} bytes both ways"))
}

fn skipped(session: &mut Session, patience: Duration) -> Check {
    session.load(&[pair(1 << 20, 3, 0)]).map_err(text)?;
    session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(text)?;
    let began = Instant::now();
    let skip = Execution { skip: Some((0, 1)), ..Execution::of(Mode::Whole) };
    let error = session.execute(Pass::Forward, skip).err();
    let took = began.elapsed();
    let Some(CudaError::Hung { .. }) = &error else { return Err(format!("{error:?} after {took:?}")) };
    if took > patience + Duration::from_secs(8) {
        return Err(format!("it took {took:?}"));
    }
    session.load(&[pair(1 << 20, 3, 0)]).map_err(|error| format!("no recovery: {error}"))?;
    session.execute(Pass::Forward, Execution::of(Mode::Whole)).map_err(|error| format!("no recovery: {error}"))?;
    Ok(format!("{} ({:.1} s, then loaded and executed again)", error.map(text).unwrap_or_default(), took.as_secs_f64()))
}

fn slowest(session: &mut Session, mode: Mode) -> Result<u64, String> {
    let mut best = u64::MAX;
    for _ in 0..4 {
        let times = session.execute(Pass::Forward, Execution::of(mode)).map_err(text)?;
        best = best.min(times.iter().map(|time| time.ns).max().unwrap_or(0));
    }
    Ok(best)
}

fn two_cards(checks: &mut Checks, transport: Transport) {
    let patience = Duration::from_secs(4);
    let options = SessionOptions { transport, patience, ..SessionOptions::default() };
    let mut session = match Session::open(2, options, busy()) {
        Ok(session) => session,
        Err(error) => return checks.run(&format!("{transport:?}: open"), || Err(text(error))),
    };
    for bytes in [16, 4096, 1 << 20, (32 << 20) + 48] {
        checks.run(&format!("{transport:?}: exchange"), || exchanged(&mut session, bytes));
    }
    for shift in [20, 22, 24, 26, 28, 30] {
        checks.run(&format!("{transport:?}: {} MB", (1u64 << shift) >> 20), || {
            let (bytes, calls) = (1u64 << shift, if shift < 26 { 20 } else { 4 });
            session.load(&[pair(bytes, calls, 0)]).map_err(text)?;
            let ns = slowest(&mut session, Mode::Whole)?;
            let each = ns as f64 / f64::from(calls);
            Ok(format!("{:.1} GB/s each way, {:.1} us a call", bytes as f64 / each, each / 1e3))
        });
    }
    checks.run(&format!("{transport:?}: overlap"), || {
        session.load(&[pair(1 << 30, 8, 132 * 2 * 250)]).map_err(text)?;
        let (transfers, compute) = (slowest(&mut session, Mode::Transfers)?, slowest(&mut session, Mode::Compute)?);
        let whole = slowest(&mut session, Mode::Whole)?;
        let exposed = whole.saturating_sub(compute) as f64;
        let hideable = transfers.min(compute) as f64;
        let ms = |ns: u64| ns as f64 / 1e6;
        Ok(format!(
            "transfers {:.2} ms, busy {:.2} ms, together {:.2} ms: {:.2} of what can be hidden is",
            ms(transfers),
            ms(compute),
            ms(whole),
            (transfers as f64 - exposed) / hideable
        ))
    });
    checks.run(&format!("{transport:?}: trace"), || {
        session.load(&[pair(1 << 24, 3, 264)]).map_err(text)?;
        let traced = Execution { trace: true, ..Execution::of(Mode::Whole) };
        let times = session.execute(Pass::Forward, traced).map_err(text)?;
        let events: Vec<_> = times.iter().flat_map(|time| &time.trace).collect();
        let right = events.len() == 8 && events.iter().all(|event| event.start_ps < event.end_ps);
        if right { Ok(format!("{} events", events.len())) } else { Err(format!("{events:?}")) }
    });
    checks.run(&format!("{transport:?}: a skipped call"), || skipped(&mut session, patience));
}

fn main() -> std::process::ExitCode {
    let mut checks = Checks::default();
    let found = match cards() {
        Ok(found) => found,
        Err(error) => {
            println!("SKIP no cards: {error}");
            return std::process::ExitCode::SUCCESS;
        }
    };
    println!("{found} card(s)");
    match Session::open(1, SessionOptions::default(), busy()) {
        Ok(mut session) => {
            rows(&mut checks, &mut session);
            generator(&mut checks, &mut session);
            bandwidth(&mut checks, &mut session);
            println!("states {:?}", session.states());
        }
        Err(error) => checks.run("open one rank", || Err(text(error))),
    }
    let patience = Duration::from_secs(3);
    let shared = SessionOptions { placement: Placement::Shared(1), patience, ..SessionOptions::default() };
    match Session::open(2, shared, busy()) {
        Ok(mut session) => {
            checks.run("two ranks on one card: exchange", || exchanged(&mut session, (8 << 20) + 48));
            checks.run("two ranks on one card: a skipped call", || skipped(&mut session, patience));
        }
        Err(error) => checks.run("open two ranks on one card", || Err(text(error))),
    }
    checks.run("too few cards", || match Session::open(found + 1, SessionOptions::default(), busy()).err() {
        Some(error @ CudaError::Cards { .. }) => Ok(text(error)),
        other => Err(format!("{other:?}")),
    });
    if found > 1 {
        two_cards(&mut checks, Transport::CopyEngines);
        two_cards(&mut checks, Transport::Nccl);
    }
    println!("{} failed", checks.failed);
    if checks.failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
