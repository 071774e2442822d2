//! Arguments of the command line, and how its errors end.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::commands::slurm::SlurmCommand;
use crate::experiment::Objective;
use crate::failure::{Exit, Failure};
use crate::imported::Of;
use crate::share::Connect;
use crate::terminal::printable;

const AFTER_HELP: &str = "\
Exit codes: 0 ok, 1 internal, 2 usage, 10 configuration or input, 11 unavailable, 12 verification failed,
20 fewer results than planned, 21 some cells failed, 30 regression (compare --fail-on), 130 interrupted.";

/// Who balances the attention of long-context LLM training best, and by how much?
#[derive(Debug, Parser)]
#[command(name = "skewbench", version, about, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// How tables are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Human,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
}

/// Where numbers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Event simulation on a machine profile.
    #[default]
    Sim,
    /// Launches timed on one card, transfers from the profile.
    Replay,
    /// Everything on cards.
    Cuda,
}

/// What runs the programs of verified plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Interpreter {
    /// Real numbers on the CPU, compared with dense attention.
    Cpu,
    /// Event simulation: repeatable, plausible, complete.
    Sim,
    /// Real numbers on the cards of this machine; where a case has more ranks than there are cards, ranks share them.
    Cuda,
    /// What every machine has: cpu and sim.
    All,
}

/// Attention kernels of cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// cuDNN.
    #[default]
    Cudnn,
    /// Plain CUDA C of our own, compiled when it starts: an independent check, never timed.
    Plain,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reproduce the paper's figures and write a report with published values beside ours
    #[command(
        after_long_help = "Examples:\n  skewbench reproduce\n  skewbench reproduce --quick --out quick-report\n  \
        skewbench reproduce --figure fig11 --figure fig13 --system libra --system ulysses+sorted"
    )]
    Reproduce(ReproduceArgs),
    /// Run experiments: ids, figures or TOML files
    #[command(
        after_long_help = "Examples:\n  skewbench run paper/fig13 --set steps=50\n  skewbench run mine.toml --out results/runs/mine\n  \
        skewbench run --list"
    )]
    Run(RunArgs),
    /// Tune the options of an experiment's systems, all alike, and compare on other steps than it tuned on
    #[command(
        after_long_help = "Examples:\n  skewbench tune mine.toml\n  skewbench tune paper/fig13 --system libra --system ulysses+lpt --set steps=20 --out tuned\n  \
        skewbench tune mine.toml --objective max --set tune.keep='[\"pool\"]'"
    )]
    Tune(TuneArgs),
    /// Say which system suits your lengths, model and cluster, by how much, and where that is unclear
    #[command(
        after_long_help = "Examples:\n  skewbench recommend lengths.parquet --window 131072 --layout dp=8,cp=8\n  \
        skewbench recommend paper-256k --layout dp=16,cp=4 --layout dp=8,cp=8 --profile mine.json --model llama-3-8b\n  \
        skewbench recommend mine.toml --baseline ring-zigzag --format json --out advice"
    )]
    Recommend(RecommendArgs),
    /// Compare two runs on the batches that both have
    Compare(CompareArgs),
    /// Render runs again, or several together; the page of several says which can be compared
    Report(ReportArgs),
    /// Show the plan of one wave
    #[command(
        after_long_help = "Examples:\n  skewbench plan --system libra --workload paper-256k --layout dp=2,cp=4\n  \
        skewbench plan --system ring-zigzag --workload lengths.parquet --layout cp=8 --format json"
    )]
    Plan(PlanArgs),
    /// Prove systems right: plans against the checker, numbers against dense attention, loads against declared bounds
    #[command(
        after_long_help = "Examples:\n  skewbench verify\n  skewbench verify --system libra --cases 200 --seed 7\n  \
        skewbench verify --system ring-zigzag+vrsp --backend cpu --format json"
    )]
    Verify(VerifyArgs),
    /// Measure this machine's cards and write a profile
    #[command(
        after_long_help = "Examples:\n  skewbench calibrate --out mine.json\n  skewbench calibrate --out mine.json --resume --budget 300\n  \
        skewbench calibrate --validate mine.json"
    )]
    Calibrate(CalibrateArgs),
    /// Put times that your own cluster took beside predicted ones, and fit what the profile would need to change
    #[command(
        after_long_help = "Examples:\n  skewbench import times.csv --layout dp=4,cp=8 --system ulysses --out measured\n  \
        skewbench import kernels.jsonl --of kernels --layout dp=1,cp=8 --profile h100 --write ours.json --name ours"
    )]
    Import(ImportTimesArgs),
    /// List, describe, sample and import document lengths
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// List systems, placements and planners with their options
    Systems(FormatArgs),
    /// Show what this binary is and what it runs on
    Env(FormatArgs),
    /// Check, export and import runs
    #[command(subcommand)]
    Results(ResultsCommand),
    /// Fill batch scripts of Slurm and submit them
    #[command(subcommand)]
    Slurm(SlurmCommand),
    /// Print shell completions
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Output format alone.
#[derive(Clone, Copy, Debug, Args)]
pub struct FormatArgs {
    /// Format of standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `reproduce`.
#[derive(Clone, Debug, Args)]
pub struct ReproduceArgs {
    /// Only this figure (repeatable): fig1, fig4, ...
    #[arg(long = "figure", short = 'f', value_name = "ID")]
    pub figures: Vec<String>,
    /// Only this system (repeatable): a name, a pair, or a manifest NAME.toml
    #[arg(long = "system", short = 's', value_name = "NAME")]
    pub systems: Vec<String>,
    /// Every figure at smoke scale
    #[arg(long, conflicts_with = "all")]
    pub quick: bool,
    /// Also the experiments beyond the paper
    #[arg(long)]
    pub all: bool,
    /// What the run shares with `run`
    #[command(flatten)]
    pub common: CommonRunArgs,
}

/// Arguments of `verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// Only this system, by name or pair (repeatable)
    #[arg(long = "system", short = 's', value_name = "NAME")]
    pub systems: Vec<String>,
    /// Random cases of every system
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub cases: u32,
    /// Seed that the cases are drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What runs the programs of the plans (repeatable)
    #[arg(long = "backend", value_name = "NAME", value_enum, default_values_t = [Interpreter::All])]
    pub backends: Vec<Interpreter>,
    /// Attention kernels of the cards
    #[arg(long, value_enum, default_value_t)]
    pub kernel: Kernel,
    /// On cards, add sums in one order, run everything twice and compare bit by bit
    #[arg(long)]
    pub repeatable: bool,
    /// Only the case with this number, as a failed verification names it
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["cases", "seed"])]
    pub case: Option<u64>,
    /// Format of standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `calibrate`.
#[derive(Clone, Debug, Args)]
pub struct CalibrateArgs {
    /// Profile to write [default: profile.json]; with --validate the CSV [default: results/validation/PROFILE/launches.csv]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Card
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub card: usize,
    /// Seconds to measure; what does not fit is left out, the coarse grid comes first
    #[arg(long, value_name = "SECONDS", default_value_t = 480, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    pub budget: u32,
    /// Go on with the points that were measured for this file before
    #[arg(long)]
    pub resume: bool,
    /// Measure launches that are in no table, and compare them with what this profile says
    #[arg(long, value_name = "PROFILE")]
    pub validate: Option<String>,
    /// Compare the profile of --validate with a run on cards, which needs no card: writes waves.csv and ranks.csv beside --out
    #[arg(long, value_name = "FOLDER", requires = "validate")]
    pub run: Option<PathBuf>,
    /// Profile whose prices order the work and whose parts stand for what this machine cannot measure
    #[arg(long, value_name = "PROFILE", default_value = "h200")]
    pub base: String,
    /// Seed of drawn shapes and of their order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Experiment ids, figures or TOML files
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Change a key of the experiment (repeatable), for example steps=50 or layout.dp=8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Show what would be run, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Smoke scale
    #[arg(long)]
    pub quick: bool,
    /// Try failed cells again
    #[arg(long)]
    pub requeue: bool,
    /// What the run shares with `reproduce`
    #[command(flatten)]
    pub common: CommonRunArgs,
}

/// Arguments of `tune`.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    /// Experiment id, figure or TOML file
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: String,
    /// Only this system, by name or pair (repeatable)
    #[arg(long = "system", short = 's', value_name = "NAME")]
    pub systems: Vec<String>,
    /// What is made small [default: the experiment's, else mean]
    #[arg(long, value_enum)]
    pub objective: Option<Objective>,
    /// Configurations that are tried for each system and workload [default: the experiment's, else 40]
    #[arg(long, value_name = "N")]
    pub configurations: Option<u32>,
    /// Change a key of the experiment (repeatable), for example tune.steps=8 or layout.dp=8
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Smoke scale
    #[arg(long)]
    pub quick: bool,
    /// Try failed cells again
    #[arg(long)]
    pub requeue: bool,
    /// What the run shares with `run`
    #[command(flatten)]
    pub common: CommonRunArgs,
}

/// Arguments of `recommend`.
#[derive(Clone, Debug, Args)]
pub struct RecommendArgs {
    /// Workload: a preset or a file of lengths; or an experiment file whose workloads, systems, model, machine and layouts are taken
    #[arg(value_name = "NAME|FILE")]
    pub name: String,
    /// Tokens of a window [default: the preset's; file: 262144]
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<u32>,
    /// Packing: ff, cut or split
    #[arg(long)]
    pub packing: Option<String>,
    /// Layout of the job, for example dp=8,cp=8 (repeatable) [default: the experiment's, else dp=8,cp=8]
    #[arg(long = "layout", value_name = "LAYOUT")]
    pub layouts: Vec<String>,
    /// Model preset or TOML file [default: the experiment's, else qwen3-30b-a3b]
    #[arg(long)]
    pub model: Option<String>,
    /// Only this system (repeatable): a name, a pair, or a manifest NAME.toml [default: the experiment's, else all]
    #[arg(long = "system", short = 's', value_name = "NAME")]
    pub systems: Vec<String>,
    /// System that gains are over, for example the one you run today [default: the experiment's, else ulysses]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Size of a pool to try (repeatable) [default: powers of two up to DP and 16]
    #[arg(long = "pool", value_name = "P")]
    pub pools: Vec<u32>,
    /// Packed sequences of a step [default: the experiment's, else 8 a data-parallel rank]
    #[arg(long)]
    pub gbs: Option<u32>,
    /// Steps that systems are compared on; below 5 there are no verdicts
    #[arg(long, default_value_t = 8)]
    pub steps: u32,
    /// Only the network of the profile, not half and double its bandwidth
    #[arg(long)]
    pub one_network: bool,
    /// Change a key of the experiment that is made (repeatable), for example machine.network_bandwidth="200 Gb/s"
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// What the run shares with `run`
    #[command(flatten)]
    pub common: CommonRunArgs,
}

/// Arguments of `import`.
#[derive(Clone, Debug, Args)]
pub struct ImportTimesArgs {
    /// Times by wave and rank: CSV or JSON lines with wave, rank, time_ms (or time_ns, time_us, time_s), documents
    #[arg(value_name = "TIMES")]
    pub times: PathBuf,
    /// Layout that was measured, for example dp=4,cp=8
    #[arg(long, value_name = "LAYOUT")]
    pub layout: String,
    /// System that was measured, by name or pair; its planner says what every rank does
    #[arg(long, short = 's', value_name = "NAME", default_value = "ulysses")]
    pub system: String,
    /// Option of the system, for example shard=sequence (repeatable)
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// What was timed on every rank
    #[arg(long, value_enum, default_value_t)]
    pub of: Of,
    /// Model preset or TOML file
    #[arg(long, default_value = "qwen3-30b-a3b")]
    pub model: String,
    /// Profile that predicts: a shipped name or a JSON file
    #[arg(long, value_name = "NAME|FILE", default_value = "h200")]
    pub profile: String,
    /// Profile to write with what was fitted
    #[arg(long, value_name = "FILE.json", requires = "name")]
    pub write: Option<PathBuf>,
    /// Name of that profile
    #[arg(long, requires = "write")]
    pub name: Option<String>,
    /// Folder of a report
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Read report templates from a folder
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Seed of the intervals
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replace the profile if it exists
    #[arg(long)]
    pub force: bool,
    /// Format of standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What `run` and `reproduce` share.
#[derive(Clone, Debug, Args)]
pub struct CommonRunArgs {
    /// Where numbers come from
    #[arg(long, short = 'b', value_enum, default_value_t)]
    pub backend: Backend,
    /// Seconds that --backend replay and cuda measure, about
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    pub budget: u32,
    /// Card of --backend replay
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub card: usize,
    /// Machine profile: a shipped name or a JSON file
    #[arg(long, value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Folder of the run [default: results/runs/EXPERIMENT-HASH]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Master seed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Set aside a folder that holds other inputs, and start anew
    #[arg(long)]
    pub force: bool,
    /// Compute the cells together with other processes that are given the same folder; so do processes that srun, mpirun or
    /// torchrun started
    #[arg(long)]
    pub share: bool,
    /// Seconds after which a process that shares cells counts as lost when it is silent; above a minute on network file systems
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub lost_after: u32,
    /// Seconds that ranks which srun, mpirun or torchrun started wait for each other
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub meet_within: u32,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Read report templates from a folder
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Format of the closing table on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// Run that is compared against
    #[arg(value_name = "RUN")]
    pub baseline: PathBuf,
    /// Run that is judged
    #[arg(value_name = "RUN")]
    pub subject: PathBuf,
    /// Exit 30 when a system got worse by this many percent with a clear verdict
    #[arg(long, value_name = "PERCENT")]
    pub fail_on: Option<f64>,
    /// Write a report of both runs, with a page that compares them
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Format of standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Run folders
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Folder of the report [default: beside the first run]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Read templates from a folder
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
}

/// How a plan is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// One line a rank.
    #[default]
    Table,
    /// The whole plan.
    Json,
    /// A trace of the simulated wave for Perfetto or Chrome.
    Perfetto,
}

/// Arguments of `plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// System: a name, a pair, or a manifest NAME.toml
    #[arg(long, value_name = "NAME")]
    pub system: String,
    /// Preset or file
    #[arg(long, value_name = "NAME")]
    pub workload: String,
    /// Layout, for example dp=2,cp=4
    #[arg(long, value_name = "LAYOUT", default_value = "dp=1,cp=8")]
    pub layout: String,
    /// Step of the workload
    #[arg(long, default_value_t = 0)]
    pub step: u64,
    /// Wave of the step
    #[arg(long, default_value_t = 0)]
    pub wave: usize,
    /// Pool of the wave
    #[arg(long, default_value_t = 0)]
    pub pool: usize,
    /// Packed sequences of a step [default: DP x 8]
    #[arg(long)]
    pub gbs: Option<u32>,
    /// Tokens of a window
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<u32>,
    /// Option of the system, for example tau=0.05 (repeatable)
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// Model preset or TOML file
    #[arg(long, default_value = "qwen3-30b-a3b")]
    pub model: String,
    /// Machine profile
    #[arg(long, default_value = "h200")]
    pub profile: String,
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Also run the wave on the CPU with random inputs and compare it with dense attention; a trace is then of this run. For
    /// small windows
    #[arg(long)]
    pub executed: bool,
    /// Format of standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: PlanFormat,
}

/// Subcommands of `workload`.
#[derive(Debug, Subcommand)]
pub enum WorkloadCommand {
    /// List the presets
    List(FormatArgs),
    /// Say what a workload is like: documents, windows, imbalance by grouping
    Describe(WorkloadArgs),
    /// Print document lengths of packed windows
    Sample(WorkloadArgs),
    /// Turn lengths or texts into one Parquet file of lengths
    Import(ImportArgs),
}

/// Arguments of `workload describe` and `workload sample`.
#[derive(Clone, Debug, Args)]
pub struct WorkloadArgs {
    /// Preset or file
    #[arg(value_name = "NAME|FILE")]
    pub name: String,
    /// Tokens of a window
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<u32>,
    /// Packing: ff, cut or split
    #[arg(long)]
    pub packing: Option<String>,
    /// Packed sequences of a step
    #[arg(long, default_value_t = 128)]
    pub gbs: u32,
    /// Steps
    #[arg(long, default_value_t = 400)]
    pub steps: u32,
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Format of standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `workload import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// Files or folders: JSONL, CSV, Parquet, npy, one length a line, text
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// File to write
    #[arg(long, value_name = "FILE.parquet")]
    pub out: PathBuf,
    /// Field or column of lengths, or of text with --tokenizer
    #[arg(long)]
    pub field: Option<String>,
    /// Hugging Face tokenizer.json that turns text into tokens
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

/// Subcommands of `results`.
#[derive(Debug, Subcommand)]
pub enum ResultsCommand {
    /// Check that a run is whole and unchanged
    Check {
        /// Run folder
        run: PathBuf,
    },
    /// Pack a run into one archive
    Export {
        /// Run folder
        run: PathBuf,
        /// Archive to write (.tar.zst)
        #[arg(long)]
        out: PathBuf,
    },
    /// Take a run from elsewhere into a new folder, if it is whole and unchanged
    Import {
        /// Archive (.tar.zst), run folder, or a folder of several; not trusted
        #[arg(value_name = "ARCHIVE|RUN")]
        source: PathBuf,
        /// Folder to make
        #[arg(long)]
        out: PathBuf,
    },
}

/// The command line as clap sees it, for completions and the manual.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line of this process. `connect` connects it with the others of a launch, where the program can do that.
pub fn main(connect: Option<Connect>) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage as u8 } else { 0 };
            // Help and version go to standard output, errors to standard error; a closed pipe is no error.
            let _closed = error.print();
            return ExitCode::from(code);
        }
    };
    match run(cli.command, connect) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("error: {}", printable(&failure.message));
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(command: Command, connect: Option<Connect>) -> Result<(), Failure> {
    match command {
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Tune(args) => commands::tune::run(&args),
        Command::Recommend(args) => commands::recommend::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Workload(command) => commands::workload::run(&command),
        Command::Verify(args) => commands::verify::run(&args, connect),
        Command::Calibrate(args) => commands::calibrate::run(&args),
        Command::Systems(args) => commands::systems::run(args.format),
        Command::Env(args) => commands::env::run(args.format),
        Command::Results(command) => commands::results::run(&command),
        Command::Slurm(command) => commands::slurm::run(&command),
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man => commands::shell::man(),
    }
}
