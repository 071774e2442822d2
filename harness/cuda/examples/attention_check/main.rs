//! Checks the attention kernels on a card: versions; small cases against f64, with operands packed, far apart and anywhere;
//! the repeatable backward; needles in long keys; two threads and two streams; times beside measured ones. Every part is a
//! process of its own, since a wrong one may lose the card's context. `attention_check [--plain-only] [--part NAME]
//! [--out CSV]`.

mod case;
mod parts;
mod reference;
mod times;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

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
        // In one piece: parts that run at the same time append to the same file.
        if let Err(error) = file.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes())) {
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
        Some(part) => {
            let start = std::time::Instant::now();
            let outcome = parts::run(&part, &arguments);
            println!("   {part}: {:.1} s", start.elapsed().as_secs_f64());
            match outcome {
                Ok(0) => ExitCode::SUCCESS,
                Ok(failed) => {
                    println!("  {failed} FAILED in {part}");
                    ExitCode::FAILURE
                }
                Err(error) => {
                    println!("  FAIL {part}: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        None => all(&arguments),
    }
}

/// Runs every part in a process of its own: all at the same time, most of which compilers take, but the one of times.
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
    let names = parts::names(arguments.plain_only);
    let (alone, side_by_side): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| **name == "times");
    let mut failed = Vec::new();
    for names in [side_by_side, alone] {
        let started: Vec<Started> = names.into_iter().map(|name| Started::new(&program, name, arguments)).collect();
        failed.extend(started.into_iter().filter_map(Started::end));
    }
    if failed.is_empty() {
        println!("ALL PASSED");
        return ExitCode::SUCCESS;
    }
    println!("FAILED PARTS: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// A part that runs.
struct Started {
    name: &'static str,
    child: std::io::Result<Child>,
    log: PathBuf,
}

impl Started {
    fn new(program: &Path, name: &'static str, arguments: &Arguments) -> Self {
        let mut command = Command::new(program);
        command.args(["--part", name]).stdout(Stdio::piped());
        if let Some(out) = &arguments.out {
            command.args(["--out", out]);
        }
        // cuDNN says why it refuses a graph only in its log, which is off while times are taken.
        let file = format!("attention_check_{}_{}.log", std::process::id(), name.replace(' ', "_"));
        let log = std::env::temp_dir().join(file);
        if name != "times" {
            command.env("CUDNN_LOGLEVEL_DBG", "2").env("CUDNN_LOGDEST_DBG", &log);
        }
        Self { name, child: command.spawn(), log }
    }

    /// Waits for the end and shows what the part said. Says what failed.
    fn end(self) -> Option<String> {
        let ended = self.child.and_then(Child::wait_with_output);
        let reasons = reasons(&std::fs::read_to_string(&self.log).unwrap_or_default());
        // There is no log where cuDNN had nothing to say.
        let _ = std::fs::remove_file(&self.log);
        println!("== {}", self.name);
        let failed = match ended {
            Ok(output) => {
                print!("{}", String::from_utf8_lossy(&output.stdout));
                (!output.status.success()).then(|| format!("{} ({})", self.name, output.status))
            }
            Err(error) => Some(format!("{} ({error})", self.name)),
        };
        if failed.is_some() {
            for reason in reasons {
                println!("   cuDNN: {reason}");
            }
        }
        failed
    }
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
