//! Times launches that standard input names, a line each: `causal|full forward|backward QH:KVH QxK[,QxK...]`. Prints a CSV
//! line for each: the line's words, then every repeat in nanoseconds, or why there are none. `launch_times [REPEATS]`.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use skewbench_cuda::attention::LaunchTimer;
use skewbench_cuda::launch_timer;
use skewbench_plan::{LaunchShape, Mask, Pass, TileShape};

const WARM_UP: u32 = 2;
const HEAD_DIM: u16 = 128;

fn main() -> ExitCode {
    let repeats = match std::env::args().nth(1).map(|word| word.parse()) {
        None => 5,
        Some(Ok(repeats)) => repeats,
        Some(Err(_)) => {
            eprintln!("launch_times [REPEATS] < SHAPES");
            return ExitCode::from(2);
        }
    };
    let mut timer = match launch_timer(0, 1) {
        Ok(timer) => timer,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
        let outcome = match parse(&line) {
            Some(Named { pass, mask, heads, tiles }) => {
                let (q_heads, kv_heads) = heads;
                let launch = LaunchShape { pass, mask, q_heads, kv_heads, head_dim: HEAD_DIM, tiles: &tiles };
                timer.time(&launch, WARM_UP, repeats).map_err(|e| e.to_string())
            }
            None => Err("this is no launch".into()),
        };
        let words = line.split_whitespace().map(|word| word.replace(',', " ")).collect::<Vec<_>>().join(",");
        let times = match outcome {
            Ok(ns) => ns.iter().map(|ns| format!("{ns:.0}")).collect::<Vec<_>>().join(","),
            Err(error) => error.replace([',', '\n'], " "),
        };
        if writeln!(out, "{words},{times}").and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What a line names; `heads` are query and KV heads.
struct Named {
    pass: Pass,
    mask: Mask,
    heads: (u32, u32),
    tiles: Vec<TileShape>,
}

fn parse(line: &str) -> Option<Named> {
    let mut words = line.split_whitespace();
    let mask = match words.next()? {
        "causal" => Mask::Causal,
        "full" => Mask::Full,
        _ => return None,
    };
    let pass = match words.next()? {
        "forward" => Pass::Forward,
        "backward" => Pass::Backward,
        _ => return None,
    };
    let pair = |word: &str, between: char| -> Option<(u32, u32)> {
        let (a, b) = word.split_once(between)?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let heads = pair(words.next()?, ':')?;
    let tiles: Option<Vec<TileShape>> =
        words.next()?.split(',').map(|word| pair(word, 'x').map(|(q, k)| TileShape { q, k })).collect();
    let whole = words.next().is_none() && heads.1 > 0 && heads.0.is_multiple_of(heads.1);
    if whole { Some(Named { pass, mask, heads, tiles: tiles? }) } else { None }
}
