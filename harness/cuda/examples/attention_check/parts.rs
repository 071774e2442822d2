use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use half::bf16;
use skewbench_cuda::CudaError;
use skewbench_cuda::attention::{Attention, CuDnn, CuDnnOptions, Plain};
use skewbench_cuda::libraries::{driver, fail};
use skewbench_cuda::steps::{AttendCall, AttendMask, Slot, Strides};
use skewbench_plan::Pass;

use crate::Arguments;
use crate::case::{Case, Random, arena, cases, plain_cases};
use crate::reference::{Errors, RESULTS, errors, reference};
use crate::times;

/// The parts, in order; the last one takes times and so runs alone.
pub fn names(plain_only: bool) -> &'static [&'static str] {
    if plain_only {
        &["plain"]
    } else {
        &["plain", "cudnn", "cudnn ragged", "repeatable", "needle", "threads", "times"]
    }
}

/// Runs a part; returns how many of its checks failed.
///
/// # Errors
/// It could not even start.
pub fn run(part: &str, arguments: &Arguments) -> Result<usize, CudaError> {
    driver()?;
    let context = CudaContext::new(0).map_err(|e| fail(0, "cuDevicePrimaryCtxRetain", e))?;
    let card = Card { stream: context.new_stream().map_err(|e| fail(0, "cuStreamCreate", e))?, context };
    let ragged = CuDnnOptions { dense_rows: u32::MAX, ..CuDnnOptions::default() };
    match part {
        "plain" => {
            let mut kernels = Plain::open(&card.context)?;
            Ok(card.check(part, &mut kernels, cases().into_iter().chain(plain_cases()), arguments))
        }
        "cudnn" => card.cudnn(part, CuDnnOptions::default(), cases(), arguments),
        "cudnn ragged" => {
            let dense = cases().into_iter().filter(|c| c.slots.iter().any(|(q, _)| *q >= 1024));
            card.cudnn(part, ragged, dense.collect(), arguments)
        }
        "repeatable" => card.repeatable(arguments),
        "needle" => {
            let mut failed = card.needle("needle dense", CuDnnOptions::default(), arguments);
            failed += card.needle("needle ragged", ragged, arguments);
            Ok(failed)
        }
        "threads" => card.threads(arguments),
        "times" => times::run(&card.context, &card.stream, arguments),
        _ => Err(CudaError::Program(format!("there is no part {part}"))),
    }
}

struct Card {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

impl Card {
    fn cudnn(
        &self,
        part: &str,
        options: CuDnnOptions,
        cases: Vec<Case>,
        arguments: &Arguments,
    ) -> Result<usize, CudaError> {
        let mut kernels = CuDnn::open(&self.context, options)?;
        let failed = self.check(part, &mut kernels, cases.into_iter(), arguments);
        print_built(&kernels);
        Ok(failed)
    }

    /// Runs cases one after another, whatever fails; stops only where the context is lost.
    fn check(
        &self,
        part: &str,
        kernels: &mut dyn Attention,
        cases: impl Iterator<Item = Case>,
        arguments: &Arguments,
    ) -> usize {
        let mut failed = 0;
        for case in cases {
            let outcome = run_case(kernels, &case, &self.stream);
            kernels.clear();
            failed += usize::from(!report(part, case.name, &outcome, arguments));
            if outcome.is_err() && self.context.synchronize().is_err() {
                println!("  the context is lost; the rest of {part} is left out");
                break;
            }
        }
        failed
    }

    /// The backward twice, with the same bits.
    fn repeatable(&self, arguments: &Arguments) -> Result<usize, CudaError> {
        let options = CuDnnOptions { repeatable: true, ..CuDnnOptions::default() };
        let chosen = ["documents", "tiles 32:4", "keys anywhere", "dense bottom right"];
        let mut kernels = CuDnn::open(&self.context, options)?;
        let mut failed = 0;
        for case in cases().into_iter().filter(|c| chosen.contains(&c.name)) {
            let outcome = run_case(&mut kernels, &case, &self.stream);
            failed += usize::from(!report("repeatable", case.name, &outcome, arguments));
            let arena = arena(&case);
            let twice =
                (0..2).map(|_| run_call(&mut kernels, &arena.forward, &arena.backward, &arena.bytes, &self.stream));
            let same = match twice.collect::<Result<Vec<_>, _>>() {
                Ok(runs) => runs[0] == runs[1],
                Err(_) => false,
            };
            println!("  {} {}: same bits in two runs", if same { "PASS" } else { "FAIL" }, case.name);
            failed += usize::from(!same);
            kernels.clear();
        }
        print_built(&kernels);
        Ok(failed)
    }

    fn needle(&self, part: &str, options: CuDnnOptions, arguments: &Arguments) -> usize {
        let outcome = CuDnn::open(&self.context, options).and_then(|mut k| needle(&mut k, &self.stream));
        match outcome {
            Ok(worst) => {
                let passed = worst < 2e-2;
                println!("  {} {part}: worst distance {worst:.1e}", if passed { "PASS" } else { "FAIL" });
                arguments.record(&format!("{part},needle,worst,{worst:e},"));
                usize::from(!passed)
            }
            Err(error) => {
                println!("  FAIL {part}: {error}");
                1
            }
        }
    }

    /// Two threads with handles of their own, then one handle on two streams.
    fn threads(&self, arguments: &Arguments) -> Result<usize, CudaError> {
        let chosen: Vec<Case> = cases().into_iter().filter(|c| ["documents", "tiles 32:4"].contains(&c.name)).collect();
        let outcomes: Vec<Result<Errors, CudaError>> = std::thread::scope(|scope| {
            let run = |case: &Case| {
                let stream = self.context.new_stream().map_err(|e| fail(0, "cuStreamCreate", e))?;
                let mut kernels = CuDnn::open(&self.context, CuDnnOptions::default())?;
                let host = arena(case);
                let exact = reference(&host.backward, &host.bytes);
                let mut last = Errors::default();
                for _ in 0..5 {
                    let after = run_call(&mut kernels, &host.forward, &host.backward, &host.bytes, &stream)?;
                    last = errors(&host.backward, &exact, &host.bytes, &after);
                    if !last.passed() {
                        break;
                    }
                }
                Ok(last)
            };
            let threads: Vec<_> = chosen.iter().map(|case| scope.spawn(move || run(case))).collect();
            let lost = || Err(CudaError::Program("a thread panicked".to_owned()));
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| lost())).collect()
        });
        let mut failed = 0;
        for (case, outcome) in chosen.iter().zip(&outcomes) {
            failed += usize::from(!report("threads", case.name, outcome, arguments));
        }
        for (case, outcome) in chosen.iter().zip(self.two_streams(&chosen)?) {
            failed += usize::from(!report("streams", case.name, &Ok(outcome), arguments));
        }
        Ok(failed)
    }

    fn two_streams(&self, chosen: &[Case]) -> Result<Vec<Errors>, CudaError> {
        let mut kernels = CuDnn::open(&self.context, CuDnnOptions::default())?;
        let mut jobs = Vec::new();
        for case in chosen {
            let stream = self.context.new_stream().map_err(|e| fail(0, "cuStreamCreate", e))?;
            let host = arena(case);
            let buffer = upload(&stream, &host.bytes)?;
            let calls = [kernels.prepare(&host.forward, &stream)?, kernels.prepare(&host.backward, &stream)?];
            jobs.push((host, stream, buffer, calls));
        }
        for pass in 0..2 {
            for _ in 0..4 {
                for (_, stream, buffer, calls) in &jobs {
                    kernels.enqueue(calls[pass], buffer.device_ptr(stream).0, stream)?;
                }
            }
        }
        let mut all = Vec::new();
        for (host, stream, buffer, _) in &jobs {
            let after = download(stream, buffer)?;
            all.push(errors(&host.backward, &reference(&host.backward, &host.bytes), &host.bytes, &after));
        }
        Ok(all)
    }
}

/// The graphs that were built in one line a pass: how many, how long, by which engines.
fn print_built(kernels: &CuDnn) {
    for pass in ["Forward", "Backward"] {
        let graphs: Vec<_> = kernels.built().iter().filter(|g| g.key.starts_with(pass)).collect();
        let Some(slowest) = graphs.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)) else { continue };
        let engines: std::collections::BTreeSet<_> = graphs.iter().filter_map(|g| g.engine).collect();
        let seconds: f64 = graphs.iter().map(|g| g.seconds).sum();
        let workspace = graphs.iter().map(|g| g.workspace).max().unwrap_or_default();
        println!(
            "     {} {pass} graphs in {seconds:.2} s, engines {engines:?}, workspace to {workspace}; slowest {:.2} s: {}",
            graphs.len(),
            slowest.seconds,
            slowest.key
        );
    }
}

fn report(part: &str, name: &str, outcome: &Result<Errors, CudaError>, arguments: &Arguments) -> bool {
    match outcome {
        Ok(errors) => {
            let values: Vec<String> = RESULTS.iter().zip(errors.of).map(|(n, e)| format!("{n} {e:.1e}")).collect();
            let stray = if errors.stray > 0 { format!(", {} STRAY BYTES", errors.stray) } else { String::new() };
            println!("  {} {name}: {}{stray}", if errors.passed() { "PASS" } else { "FAIL" }, values.join(" "));
            for (what, value) in RESULTS.iter().zip(errors.of) {
                arguments.record(&format!("{part},{name},{what},{value:e},"));
            }
            errors.passed()
        }
        Err(error) => {
            println!("  FAIL {name}: {error}");
            arguments.record(&format!("{part},{name},error,,"));
            false
        }
    }
}

fn upload(stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<CudaSlice<u8>, CudaError> {
    stream.clone_htod(bytes).map_err(|e| fail(0, "cuMemcpyHtoDAsync", e))
}

fn download(stream: &Arc<CudaStream>, buffer: &CudaSlice<u8>) -> Result<Vec<u8>, CudaError> {
    let bytes = stream.clone_dtoh(buffer).map_err(|e| fail(0, "cuMemcpyDtoHAsync", e))?;
    stream.synchronize().map_err(|e| fail(0, "cuStreamSynchronize", e))?;
    Ok(bytes)
}

fn run_call(
    kernels: &mut dyn Attention,
    forward: &AttendCall,
    backward: &AttendCall,
    bytes: &[u8],
    stream: &Arc<CudaStream>,
) -> Result<Vec<u8>, CudaError> {
    let buffer = upload(stream, bytes)?;
    for call in [forward, backward] {
        let id = kernels.prepare(call, stream)?;
        kernels.enqueue(id, buffer.device_ptr(stream).0, stream)?;
    }
    download(stream, &buffer)
}

fn run_case(kernels: &mut dyn Attention, case: &Case, stream: &Arc<CudaStream>) -> Result<Errors, CudaError> {
    let host = arena(case);
    let second = if case.forward_only() { &host.forward } else { &host.backward };
    let after = run_call(kernels, &host.forward, second, &host.bytes, stream)?;
    let mut found = errors(&host.backward, &reference(&host.backward, &host.bytes), &host.bytes, &after);
    if case.forward_only() {
        found.of[2..].fill(0.0);
    }
    Ok(found)
}

/// Rows that must find one key among 131072, at the borders of tiles: the worst distance of their outputs from its value.
fn needle(kernels: &mut dyn Attention, stream: &Arc<CudaStream>) -> Result<f64, CudaError> {
    const ROWS: usize = 2048;
    const KEYS: usize = 131_072;
    const D: usize = 128;
    const HEADS: usize = 4;
    let mut random = Random(5);
    let mut fill = |n: usize| -> Vec<bf16> { (0..n).map(|_| bf16::from_f32(random.next())).collect() };
    let q = fill(ROWS * HEADS * D);
    let mut k = fill(KEYS * D);
    let v = fill(KEYS * D);
    let needles = [(0, 0, 0), (127, 1, 127), (128, 2, 128), (1000, 3, 65_535), (1500, 0, 65_536), (2047, 1, 131_071)];
    for (row, head, key) in needles {
        for x in 0..D {
            k[key * D + x] = bf16::from_f32(3.0 * q[(row * HEADS + head) * D + x].to_f32());
        }
    }
    let bytes_of = |values: &[bf16]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = Vec::new();
    let mut place = |part: Vec<u8>| {
        let start = bytes.len() as u64;
        bytes.extend(part);
        start
    };
    let width = (HEADS * D) as u32;
    let slot = Slot {
        q_rows: ROWS as u32,
        k_rows: KEYS as u32,
        q: place(bytes_of(&q)),
        k: place(bytes_of(&k)),
        v: place(bytes_of(&v)),
        o: place(vec![0xff; ROWS * HEADS * D * 2]),
        lse: place(vec![0xff; ROWS * HEADS * 4]),
        ..Slot::default()
    };
    let call = AttendCall {
        pass: Pass::Forward,
        mask: AttendMask::BottomRight,
        q_heads: HEADS as u32,
        kv_heads: 1,
        head_dim: D as u32,
        strides: Strides { q: width, kv: D as u32, o: width, lse: HEADS as u32, ..Strides::default() },
        slots: vec![slot],
    };
    let buffer = upload(stream, &bytes)?;
    let id = kernels.prepare(&call, stream)?;
    kernels.enqueue(id, buffer.device_ptr(stream).0, stream)?;
    let after = download(stream, &buffer)?;
    let mut worst = 0f64;
    for (row, head, key) in needles {
        for x in 0..D {
            let at = slot.o as usize + ((row * HEADS + head) * D + x) * 2;
            let o = bf16::from_le_bytes([after[at], after[at + 1]]).to_f64();
            let off = (o - v[key * D + x].to_f64()).abs();
            worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
        }
    }
    Ok(worst)
}
