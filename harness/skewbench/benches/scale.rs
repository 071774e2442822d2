//! How the way from a pool to its simulated time grows: plan, facts, check, lower, simulate, with more ranks, longer windows
//! and more documents. Growth of the time over growth of the size is printed against the first case, so that 1.00 or less
//! means linear or better; Criterion then times a small case.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use skewbench::cells::prepare;
use skewbench_plan::check::Limits;
use skewbench_plan::{AttentionShape, Domain, PackedSequence};
use skewbench_sim::{Machine, Pricing, Profile, Runs, simulate};
use skewbench_systems::registry::{self, System};
use skewbench_workloads::{StreamOptions, WindowStream, Workload};

const SHAPE: AttentionShape = AttentionShape { q_heads: 32, kv_heads: 4, head_dim: 128 };

struct Case {
    window: u32,
    sequences: usize,
    cp: u32,
}

fn windows(case: &Case) -> Vec<PackedSequence> {
    let workload = Workload::preset("paper-1m", Some(case.window), None).expect("a preset");
    let options = StreamOptions { gbs: case.sequences as u32, steps_per_chunk: Some(1), shuffle: true };
    let stream = WindowStream::with_options(&workload, 1, options).expect("a step of a pool");
    stream.step(0).iter().map(|w| PackedSequence::new(w.iter().copied())).collect()
}

fn run(system: &System, pricing: &Arc<Pricing>, sequences: &[PackedSequence], cp: u32) -> u64 {
    let sequences: Vec<&PackedSequence> = sequences.iter().collect();
    let nodes: Vec<u32> = (0..sequences.len() as u32 * cp).map(|rank| rank / 8).collect();
    let domain = Domain { sequences: &sequences, cp, shape: SHAPE, nodes: &nodes, cost: &**pricing, time_factors: &[] };
    let made = prepare(system, &domain, true, &Limits::default(), &skewbench::cells::Clock::default())
        .expect("the bench's domains can be planned");
    let machine = Machine::new(pricing.clone(), nodes);
    simulate(&made.program, &machine, Runs::ALL).expect("lowered programs can be simulated").wave_ps()
}

/// What a series of cases grows.
#[derive(Clone, Copy)]
enum Grows {
    Ranks,
    Documents,
}

fn report(what: &str, grows: Grows, system: &System, pricing: &Arc<Pricing>, cases: &[Case]) {
    println!("{what}");
    let mut reference = None;
    for case in cases {
        let sequences = windows(case);
        let documents: usize = sequences.iter().map(|s| s.documents().len()).sum();
        let ranks = case.sequences as f64 * f64::from(case.cp);
        black_box(run(system, pricing, &sequences, case.cp));
        let start = Instant::now();
        black_box(run(system, pricing, &sequences, case.cp));
        let seconds = start.elapsed().as_secs_f64();
        let size = match grows {
            Grows::Ranks => ranks,
            Grows::Documents => documents as f64,
        };
        let (first_time, first_size) = *reference.get_or_insert((seconds, size));
        println!(
            "  window {:>8} ranks {ranks:>5} documents {documents:>6}: {:>9.2} ms, size x{:.1}, time x{:.1}, {:.2} of linear",
            case.window,
            seconds * 1e3,
            size / first_size,
            seconds / first_time,
            (seconds / first_time) / (size / first_size)
        );
    }
}

fn scale(c: &mut Criterion) {
    let pricing = Arc::new(Pricing::new(Profile::named("h200").expect("the built-in profile")));
    let libra = registry::system("libra", &Default::default()).expect("a named system");
    let ranks = [(8, 16), (8, 64), (8, 128), (8, 512)];
    let cases: Vec<Case> = ranks.iter().map(|(s, cp)| Case { window: 1 << 20, sequences: *s, cp: *cp }).collect();
    report("libra, 8 sequences of 1M, more ranks a sequence", Grows::Ranks, &libra, &pricing, &cases);
    let cases: Vec<Case> = [8, 32, 128, 256].iter().map(|s| Case { window: 1 << 20, sequences: *s, cp: 16 }).collect();
    report("libra, one pool that grows with the job (not pool-bounded)", Grows::Ranks, &libra, &pricing, &cases);
    let cases: Vec<Case> =
        [1 << 18, 1 << 20, 1 << 22].iter().map(|w| Case { window: *w, sequences: 8, cp: 16 }).collect();
    report("libra, 8 sequences on 128 ranks, longer windows", Grows::Documents, &libra, &pricing, &cases);
    let small = Case { window: 1 << 18, sequences: 8, cp: 8 };
    let sequences = windows(&small);
    c.bench_function("libra 8 x 256K on 64 ranks, plan to simulation", |b| {
        b.iter(|| black_box(run(&libra, &pricing, &sequences, small.cp)));
    });
}

criterion_group!(benches, scale);
criterion_main!(benches);
