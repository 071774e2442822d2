//! Time and memory of merging: a run whose samples lie in a file a rank is opened again, sealed, checked and read back.
//!
//! ```text
//! cargo run --release -p skewbench-store --example merge [RANKS] [SAMPLES]
//! ```
//!
//! 256 ranks and 10 million samples unless told otherwise, drawn from a seed into a temporary folder. Each step runs in a
//! process of its own, so that the peak of its memory is its own, and prints its seconds, those of all its threads on
//! processors, and that peak. Merging (opening and sealing) is to take at most 10 s on two processors that nobody else uses.
//! Ends with 1 where a step but the first takes more than 1 GB.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};
use skewbench_store::{Cell, Column, OpenOptions, Run, RunInputs, StrColumn, Table, Timings, check};

type Failed = Box<dyn std::error::Error>;

/// Most memory of merging, checking and reading.
const MOST_BYTES: u64 = 1_000_000_000;
/// Ticks of a second in `/proc/self/stat`, on every Linux.
const TICKS: f64 = 100.0;
/// Columns that a figure of measured waves reads.
const NARROW: [&str; 4] = ["cell", "wave", "rank", "time_ns"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.as_slice() {
        [step, folder, ranks, samples] if step != "all" => step_of(step, Path::new(folder), ranks, samples),
        words => all(words),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the steps one after another; true when their memory is within its bound.
fn all(words: &[String]) -> Result<bool, Failed> {
    let ranks = words.first().map_or("256", String::as_str);
    let samples = words.get(1).map_or("10000000", String::as_str);
    let folder = tempfile::tempdir()?;
    let mut most = 0;
    for step in ["write", "open", "merge", "check", "read", "read-narrow"] {
        let command =
            Command::new(std::env::current_exe()?).args([step]).arg(folder.path()).args([ranks, samples]).output()?;
        let text = String::from_utf8(command.stdout)?;
        let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [seconds, busy, bytes] = numbers[..] else {
            return Err(format!("{step}: {}", String::from_utf8_lossy(&command.stderr)).into());
        };
        println!("{step:<12} {seconds:>7.2} s   processors {busy:>6.2} s   peak {:>6.0} MB", bytes / 1e6);
        most = most.max(bytes as u64);
    }
    Ok(most <= MOST_BYTES)
}

/// One step, in a process of its own: prints its seconds, those on processors, and the peak of its memory in bytes.
fn step_of(step: &str, folder: &Path, ranks: &str, samples: &str) -> Result<bool, Failed> {
    let (ranks, samples): (u32, u64) = (ranks.parse()?, samples.parse()?);
    let inputs = inputs(ranks);
    let open = || Run::open(&folder.join("run"), &inputs, OpenOptions::default());
    let begun = Instant::now();
    match step {
        "write" => {
            let (run, _) = open()?;
            for (rank, cell) in (0u32..).zip(&inputs.cells) {
                let share =
                    samples * u64::from(rank + 1) / u64::from(ranks) - samples * u64::from(rank) / u64::from(ranks);
                run.finish_cell(
                    &cell.id,
                    vec![("samples".to_owned(), samples_of(rank, share as u32)?)],
                    Timings::new(),
                )?;
            }
        }
        "open" => drop(open()?),
        "merge" => drop(open()?.0.seal()?),
        "check" => {
            let report = check(&folder.join("run"))?;
            if !report.is_sound() || report.rows as u64 != samples {
                return Err(format!("{} rows; {}", report.rows, report.problems.join("; ")).into());
            }
        }
        "read" => drop(Run::load(&folder.join("run"))?.table("samples")?),
        "read-narrow" => drop(Run::load(&folder.join("run"))?.table_columns("samples", &NARROW)?),
        other => return Err(format!("unknown step {other}").into()),
    }
    println!("{} {} {}", begun.elapsed().as_secs_f64(), busy_seconds()?, peak_bytes()?);
    Ok(true)
}

/// The most memory that this process ever held.
fn peak_bytes() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak in /proc/self/status")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

/// Seconds that this process's threads were on processors, in user code and in the kernel.
fn busy_seconds() -> Result<f64, Failed> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name before the last parenthesis may hold spaces; the 12th and 13th number after it are user and kernel time.
    let (_, numbers) = stat.rsplit_once(')').ok_or("no numbers in /proc/self/stat")?;
    let ticks: Vec<f64> = numbers.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS)
}

fn inputs(ranks: u32) -> RunInputs {
    let at = |rank: u32| Map::from_iter([("rank".to_owned(), Value::from(rank))]);
    let cells = (0..ranks).map(|rank| Cell::new(&json!({ "rank": rank }), at(rank))).collect();
    RunInputs { experiment: "merge\n".to_owned(), cells, ..RunInputs::default() }
}

/// Samples of a rank: passes of waves, a warm-up first, times with a spread of a few percent.
fn samples_of(rank: u32, rows: u32) -> Result<Table, Failed> {
    const REPEATS: u32 = 16;
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(rank.into());
    let per_wave = REPEATS * 2;
    let pass = |row: u32| if row.is_multiple_of(2) { "forward" } else { "backward" };
    let mut time = |row: u32| 1e6 * f64::from(1 + row / per_wave % 7) * random.random_range(0.98..1.02);
    Ok(Table::from_columns([
        ("step", Column::U32((0..rows).map(|row| row / (per_wave * 8)).collect())),
        ("wave", Column::U32((0..rows).map(|row| row / per_wave % 8).collect())),
        ("rank", Column::U32(vec![rank; rows as usize])),
        ("pass", Column::Str((0..rows).map(pass).collect::<StrColumn>())),
        ("sample", Column::U32((0..rows).map(|row| row / 2 % REPEATS).collect())),
        ("warm_up", Column::Bool((0..rows).map(|row| row / 2 % REPEATS < 3).collect())),
        ("pairs", Column::U64((0..rows).map(|row| u64::from(row / per_wave) * 524_288).collect())),
        ("sent_bytes", Column::U64((0..rows).map(|row| u64::from(row / per_wave % 5) << 20).collect())),
        ("time_ns", Column::F64((0..rows).map(&mut time).collect())),
    ])?)
}
