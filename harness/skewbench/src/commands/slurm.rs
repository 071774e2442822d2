//! `skewbench slurm`: batch scripts, filled and submitted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use skewbench_cluster::batch::{
    BatchError, Container, Header, Image, Interfaces, Name, Names, Settings, Submitted, TEMPLATES, Template, TimeLimit,
    render, submit,
};

use super::output;
use crate::failure::{Exit, Failure, nearest};
use crate::present::write_text;
use crate::terminal::printable;

/// Suffix of batch scripts.
const SCRIPT: &str = ".sbatch";
/// Largest script or header that is read.
const MOST_BYTES: u64 = 1 << 20;

const ABOUT_SCRIPTS: &str = "\
Scripts: reproduce OUT, the paper's figures over the nodes of one job; sweep EXPERIMENT OUT, the cells of an experiment over a
job array; compare STUDY OUT, all systems of a study on all cards of a node; calibrate OUT, every card of every node.

Examples:
  skewbench slurm render sweep --account proj --partition cpu --array-size 200 --header site.sh --out sweep.sbatch
  skewbench slurm submit reproduce --account proj --nodes 8 --time 02:00:00 /shared/me/figures
  skewbench slurm submit calibrate --partition gpu --nodes 4 --container /shared/skewbench.sif --mount /shared /shared/me/cards
  skewbench slurm submit sweep.sbatch mine.toml /shared/me/mine";

/// Subcommands of `slurm`.
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    /// Write a filled batch script
    #[command(after_long_help = ABOUT_SCRIPTS)]
    Render {
        /// Name of a script that ships, or a file
        #[arg(value_name = "SCRIPT")]
        script: String,
        /// File to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// What it is filled with
        #[command(flatten)]
        fill: FillArgs,
    },
    /// Fill a batch script and hand it to sbatch; prints the number of the job
    #[command(after_long_help = ABOUT_SCRIPTS)]
    Submit {
        /// Name of a script that ships, or a file
        #[arg(value_name = "SCRIPT")]
        script: String,
        /// Arguments of the script
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
        /// Ask Slurm whether it would take the job, and submit nothing
        #[arg(long)]
        test_only: bool,
        /// What it is filled with
        #[command(flatten)]
        fill: FillArgs,
    },
}

/// What runs containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    /// `apptainer exec --nv` in every task.
    #[default]
    Apptainer,
    /// Enroot, through the Pyxis plugin of Slurm: options of srun.
    Pyxis,
}

/// What a script is filled with; all else stays as the script or the site's header has it.
#[derive(Clone, Debug, Args)]
pub struct FillArgs {
    /// Account that is charged
    #[arg(long, value_name = "NAME")]
    account: Option<Name>,
    /// Partition, or several with commas
    #[arg(long, value_name = "NAME")]
    partition: Option<Names>,
    /// Quality of service
    #[arg(long, value_name = "NAME")]
    qos: Option<Name>,
    /// Name of the job
    #[arg(long, value_name = "NAME")]
    job_name: Option<Name>,
    /// Nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    nodes: Option<u32>,
    /// Processors of a task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus_per_task: Option<u32>,
    /// Cards of a node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    gpus_per_node: Option<u32>,
    /// Time limit: minutes, HH:MM:SS or D-HH:MM:SS
    #[arg(long, value_name = "TIME")]
    time: Option<TimeLimit>,
    /// Tasks of a job array
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    array_size: Option<u32>,
    /// Tasks of the array that run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    array_limit: Option<u32>,
    /// Container image: a file or a name in a registry
    #[arg(long, value_name = "IMAGE")]
    container: Option<Image>,
    /// What runs the container
    #[arg(long, value_name = "NAME", value_enum, default_value_t, requires = "container")]
    container_runtime: Runtime,
    /// Folder that the container sees under its own name (repeatable)
    #[arg(long = "mount", value_name = "DIR", requires = "container")]
    mounts: Vec<skewbench_cluster::batch::Path>,
    /// Network interfaces of NCCL, as NCCL_SOCKET_IFNAME takes them
    #[arg(long, value_name = "NAME")]
    nccl_interface: Option<Interfaces>,
    /// The program, where it is not skewbench on PATH or in SKEWBENCH
    #[arg(long, value_name = "FILE")]
    program: Option<skewbench_cluster::batch::Path>,
    /// The site's own lines, before those of the script: directives, and commands such as module load
    #[arg(long, value_name = "FILE")]
    header: Option<PathBuf>,
}

/// Fills a batch script, and submits it where that is asked.
///
/// # Errors
/// Unknown scripts and values that are not of their form (exit 2), files that cannot be used and jobs that Slurm refuses
/// (exit 10), no sbatch (exit 11).
pub fn run(command: &SlurmCommand) -> Result<(), Failure> {
    match command {
        SlurmCommand::Render { script, out, fill } => {
            let text = filled(&Script::of(script)?, fill)?;
            let Some(out) = out else { return output::line(text.trim_end()) };
            if out.symlink_metadata().is_ok() {
                return Err(Failure::config(format!("{} exists already; choose another name", out.display())));
            }
            write_text(&text, out)?;
            eprintln!("written: {}", out.display());
            Ok(())
        }
        SlurmCommand::Submit { script, arguments, test_only, fill } => {
            let script = Script::of(script)?;
            let text = filled(&script, fill)?;
            script.accepts(arguments)?;
            match submit(&text, arguments, *test_only)? {
                Submitted::Job(number) => output::line(number),
                Submitted::Would(said) => output::line(said),
            }
        }
    }
}

/// A script that ships, or one of the user's.
struct Script {
    ships: Option<&'static Template>,
    text: String,
}

impl Script {
    fn of(name: &str) -> Result<Self, Failure> {
        if name.ends_with(SCRIPT) || name.contains(std::path::is_separator) {
            return Ok(Self { ships: None, text: read(Path::new(name))? });
        }
        let Some(template) = Template::named(name) else {
            let known: Vec<&str> = TEMPLATES.iter().map(|template| template.name).collect();
            let hint = nearest(name, known.iter().copied());
            return Err(Failure::usage(format!("unknown script {name}{hint}; known: {}", known.join(", "))));
        };
        Ok(Self { ships: Some(template), text: template.text.to_owned() })
    }

    /// Refuses too few arguments, which the job itself would find out only when it starts.
    fn accepts(&self, arguments: &[OsString]) -> Result<(), Failure> {
        match self.ships {
            Some(template) if arguments.len() < template.arguments.len() => {
                Err(BatchError::Arguments { expected: template.arguments.join(" "), given: arguments.len() }.into())
            }
            _ => Ok(()),
        }
    }
}

fn filled(script: &Script, fill: &FillArgs) -> Result<String, Failure> {
    let header = match &fill.header {
        Some(file) => Header::parse(&read(file)?)
            .map_err(|e| Failure::config(format!("{}: {}", file.display(), Failure::from(e).message)))?,
        None => Header::default(),
    };
    let container = fill.container.clone().map(|image| match fill.container_runtime {
        Runtime::Apptainer => Container::Apptainer(image),
        Runtime::Pyxis => Container::Pyxis(image),
    });
    let settings = Settings {
        account: fill.account.clone(),
        partition: fill.partition.clone(),
        qos: fill.qos.clone(),
        job_name: fill.job_name.clone(),
        nodes: fill.nodes,
        cpus_per_task: fill.cpus_per_task,
        gpus_per_node: fill.gpus_per_node,
        time: fill.time.clone(),
        array_size: fill.array_size,
        array_limit: fill.array_limit,
        container,
        mounts: fill.mounts.clone(),
        nccl_interface: fill.nccl_interface.clone(),
        program: fill.program.clone(),
        header,
    };
    Ok(render(&script.text, &settings)?)
}

/// A text file of bounded size.
fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let fail = |e: std::io::Error| Failure::config(format!("{}: {e}", path.display()));
    let mut text = String::new();
    std::fs::File::open(path).map_err(fail)?.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Failure::config(format!("{}: is no batch script; it has more than 1 MiB", path.display())));
    }
    Ok(text)
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        let exit = match error {
            BatchError::Value { .. } | BatchError::Template(_) | BatchError::Arguments { .. } => Exit::Usage,
            BatchError::NoSlurm => Exit::Unavailable,
            _ => Exit::Config,
        };
        Self::new(exit, printable(&error.to_string()))
    }
}
