//! Checks the attention kernels on a card: versions; small cases against f64; how cuDNN takes strides and offsets, each
//! variant in a process of its own, since a wrong one may lose the card's context; needles in long keys; two threads and two
//! streams; times beside measured ones. `attention_check [--plain-only] [--part NAME] [--out CSV]`.

mod case;
mod parts;
mod reference;
mod times;

use std::io::Write;
use std::process::{Command, ExitCode};

/// What was asked for.
pub struct Arguments {
    plain_only: bool,
    part: Option<String>,
    out: Option<String>,
}

impl Arguments {
    /// Adds a line to the file of results: part, case, what, value, measured before.
    pub fn record(&self, line: &str) {
        let Some(out) = &self.out else { return };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(out);
        if let Err(error) = file.and_then(|mut f| writeln!(f, "{line}")) {
            eprintln!("{out}: {error}");
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments { plain_only: false, part: None, out: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--plain-only" => arguments.plain_only = true,
            "--part" => arguments.part = words.next(),
            "--out" => arguments.out = words.next(),
            _ => {
                eprintln!("attention_check [--plain-only] [--part NAME] [--out CSV]");
                return ExitCode::from(2);
            }
        }
    }
    match arguments.part.clone() {
        Some(part) => match parts::run(&part, &arguments) {
            Ok(0) => ExitCode::SUCCESS,
            Ok(failed) => {
                println!("  {failed} FAILED in {part}");
                ExitCode::FAILURE
            }
            Err(error) => {
                println!("  FAIL {part}: {error}");
                ExitCode::FAILURE
            }
        },
        None => all(&arguments),
    }
}

/// Runs every part in a process of its own.
fn all(arguments: &Arguments) -> ExitCode {
    let found = skewbench_cuda::libraries::probe();
    println!("driver {}", found.driver_version.as_deref().unwrap_or("unknown"));
    for (name, library) in [("cuda", found.cuda), ("cudnn", found.cudnn), ("nccl", found.nccl), ("nvrtc", found.nvrtc)]
    {
        match library {
            Ok(opened) => println!("{name} {} {}", opened.version, opened.file.display()),
            Err(error) => println!("{name} absent: {error}"),
        }
    }
    arguments.record("part,case,what,value,measured_before");
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("the path of this program: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = Vec::new();
    for part in parts::names(arguments.plain_only) {
        println!("== {part}");
        let start = std::time::Instant::now();
        let mut command = Command::new(&program);
        command.args(["--part", &part]);
        if let Some(out) = &arguments.out {
            command.args(["--out", out]);
        }
        // cuDNN says why it refuses a graph only in its log, which is off while times are taken.
        let log = std::env::temp_dir().join(format!("attention_check_{}.log", std::process::id()));
        if part != "times" {
            command.env("CUDNN_LOGLEVEL_DBG", "2").env("CUDNN_LOGDEST_DBG", &log);
        }
        let ended = command.status();
        println!("   {part}: {:.1} s", start.elapsed().as_secs_f64());
        let reasons = reasons(&std::fs::read_to_string(&log).unwrap_or_default());
        // There is no log where cuDNN had nothing to say.
        let _ = std::fs::remove_file(&log);
        if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
            for reason in reasons {
                println!("   cuDNN: {reason}");
            }
        }
        match ended {
            Ok(status) if status.success() => {}
            Ok(status) => failed.push(format!("{part} ({status})")),
            Err(error) => failed.push(format!("{part} ({error})")),
        }
    }
    if failed.is_empty() {
        println!("ALL PASSED");
        return ExitCode::SUCCESS;
    }
    println!("FAILED PARTS: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// The first different lines of cuDNN's log that give a reason.
fn reasons(log: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    for line in log.lines().map(str::trim).filter(|l| l.contains("Reason") || l.contains("rror")) {
        let line: String = line.chars().take(300).collect();
        if !reasons.contains(&line) && reasons.len() < 8 {
            reasons.push(line);
        }
    }
    reasons
}
