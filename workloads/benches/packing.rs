//! Sampling and packing: time a document, on one core.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use skewbench_workloads::{Packing, StreamOptions, WindowStream, Workload};

fn packing(c: &mut Criterion) {
    let mut group = c.benchmark_group("chunk");
    group.sample_size(20);
    for (name, packing) in [
        ("paper-256k", Packing::FIRST_FIT),
        ("paper-1m", Packing::FIRST_FIT),
        ("paper-1m", Packing::Cut),
        ("paper-1m", Packing::Split),
        ("real-256k", Packing::FIRST_FIT),
        ("real-1m", Packing::Split),
        ("magi", Packing::FIRST_FIT),
    ] {
        let workload = Workload::preset(name, None, Some(packing)).expect("a preset");
        let options = StreamOptions { gbs: 128, steps_per_chunk: Some(8), shuffle: true };
        let stream = WindowStream::with_options(&workload, 1, options).expect("a stream");
        let documents: usize = stream.chunk(0).iter().flatten().map(|window| window.len()).sum();
        group.throughput(Throughput::Elements(documents as u64));
        group.bench_function(format!("{name} {packing}"), |b| b.iter(|| black_box(stream.chunk(0))));
        // The reference: 40 ns a document is what a full run of 10^8 documents can afford.
        let start = std::time::Instant::now();
        for _ in 0..5 {
            black_box(stream.chunk(0));
        }
        let ns = start.elapsed().as_nanos() as f64 / 5.0 / documents as f64;
        println!("{name} {packing}: {ns:.1} ns a document, {:.2} of the 40 ns allowed", ns / 40.0);
    }
    group.finish();
}

criterion_group!(benches, packing);
criterion_main!(benches);
