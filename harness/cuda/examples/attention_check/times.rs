//! Times of a few launches beside those measured before on other H200 cards (cuDNN, TFLOP/s).

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use skewbench_cuda::CudaError;
use skewbench_cuda::attention::{Attention, CardTimer, CuDnn, CuDnnOptions, LaunchTimer, Plain};
use skewbench_plan::{LaunchShape, Mask, Pass, TileShape};

use crate::Arguments;

struct Launch {
    name: &'static str,
    heads: (u32, u32),
    tiles: Vec<(u32, u32)>,
    /// TFLOP/s measured before, forward and backward.
    before: Option<(f64, f64)>,
}

fn launches() -> Vec<Launch> {
    let of = |name, heads, tiles, before| Launch { name, heads, tiles, before };
    let prefixes = (1..=8).map(|i| (4096, 16_384 * i)).collect();
    // A window of 256K tokens with one long document and many short ones.
    let mut window = vec![(31_984, 31_984)];
    window.extend((0..87u32).map(|i| (500 + 50 * i, 500 + 50 * i)));
    vec![
        of("rectangle 4096 x 131072", (32, 4), vec![(4096, 131_072)], Some((589.3, 502.9))),
        of("8 rectangles of 4096 rows", (32, 4), prefixes, Some((529.6, 465.0))),
        of("square 32768", (2, 1), vec![(32_768, 32_768)], Some((515.9, 524.5))),
        of("square 8192", (4, 1), vec![(8192, 8192)], Some((338.5, 349.6))),
        of("window of 88 documents", (4, 1), window, Some((551.4, 465.1))),
        of("tiny", (2, 1), vec![(128, 128)], None),
    ]
}

/// Times all launches with cuDNN, dense and ragged, and one with the plain kernels.
///
/// # Errors
/// The kernels do not start.
pub fn run(context: &Arc<CudaContext>, stream: &Arc<CudaStream>, arguments: &Arguments) -> Result<usize, CudaError> {
    let mut failed = 0;
    for (name, dense_rows) in [("exact where alone", 1024), ("ragged", u32::MAX)] {
        let options = CuDnnOptions { dense_rows, ..CuDnnOptions::default() };
        let kernels: Box<dyn Attention> = Box::new(CuDnn::open(context, options)?);
        let mut timer = CardTimer::new(stream.clone(), kernels, 1)?;
        for launch in launches() {
            failed += time(&mut timer, name, &launch, arguments);
        }
    }
    let mut timer = CardTimer::new(stream.clone(), Box::new(Plain::open(context)?), 1)?;
    let square = Launch { name: "square 16384", heads: (2, 1), tiles: vec![(16_384, 16_384)], before: None };
    failed += time(&mut timer, "plain", &square, arguments);
    Ok(failed)
}

fn time(timer: &mut CardTimer, kernels: &str, launch: &Launch, arguments: &Arguments) -> usize {
    let tiles: Vec<TileShape> = launch.tiles.iter().map(|&(q, k)| TileShape { q, k }).collect();
    let mut failed = 0;
    for pass in [Pass::Forward, Pass::Backward] {
        let (q_heads, kv_heads) = launch.heads;
        let shape = LaunchShape { pass, mask: Mask::Causal, q_heads, kv_heads, head_dim: 128, tiles: &tiles };
        match timer.time(&shape, 2, 7) {
            Ok(mut ns) => {
                ns.sort_by(f64::total_cmp);
                let rate = |ns: f64| shape.flops() / ns / 1e3;
                let (median, low, high) = (rate(ns[3]), rate(ns[6]), rate(ns[0]));
                let before = launch.before.map(|(f, b)| if pass == Pass::Forward { f } else { b });
                let beside = before.map_or(String::new(), |b| format!(", before {b}"));
                println!(
                    "  {kernels}: {} {pass:?} {}:{}: {:.3} ms, {median:.1} TFLOP/s ({low:.1} to {high:.1}){beside}",
                    launch.name,
                    q_heads,
                    kv_heads,
                    ns[3] / 1e6
                );
                let before = before.map_or(String::new(), |b| b.to_string());
                arguments.record(&format!("times,{kernels} {} {pass:?},tflops,{median},{before}", launch.name));
            }
            Err(error) => {
                println!("  FAIL {kernels}: {} {pass:?}: {error}", launch.name);
                failed += 1;
            }
        }
    }
    failed
}
