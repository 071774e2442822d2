use std::time::Duration;

use skewbench_cluster::Launch;
use skewbench_cpu::{CpuError, Inputs, Processes, Report, RunOptions, TOLERANCE};
use skewbench_exec::Program;
use skewbench_verify::{Case, Runner};

use super::messages::{Connect, Messages};
use crate::failure::{Exit, Failure};

/// How long ranks wait for each other in a program before they give it up. Half as long again, and all have ended: within 30 s.
const PATIENCE: Duration = Duration::from_secs(18);

/// Does work in all processes of a launch, which `connect` connects; a process alone has no group. All of them come to the same end,
/// but where one is interrupted: the others would wait for it, so that it ends them.
///
/// # Errors
/// A program without MPI, an MPI that cannot be used, and one that sees another launch than the variables say; those of the
/// work.
pub fn together(
    launch: &Launch,
    connect: Option<Connect>,
    work: impl FnOnce(Option<&Group<'_>>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(session) = connected(launch, connect)? else { return work(None) };
    let session = &*session;
    let result = work(Some(&Group { processes: Processes::new(session.transport()), session }));
    if let Err(failure) = &result
        && failure.exit == Exit::Interrupted
    {
        give_up(session, failure.exit, failure);
    }
    result
}

/// Ends the launch, in which this process cannot go on.
fn give_up(session: &dyn Messages, exit: Exit, why: &dyn std::fmt::Display) -> ! {
    let transport = session.transport();
    eprintln!("error: {why}; {} ends the launch", transport.name(transport.process()));
    session.abort(i32::from(exit as u8))
}

/// The processes of a launch; none for a process alone.
fn connected(launch: &Launch, connect: Option<Connect>) -> Result<Option<Box<dyn Messages>>, Failure> {
    if launch.world == 1 {
        return Ok(None);
    }
    let unavailable = |what: String| Failure::new(Exit::Unavailable, format!("{}: {what}", launch.describe()));
    let about = format!("{} (process {})", launch.host, std::process::id());
    let without = "this program is built without MPI; cargo build --release --features mpi makes skewbench-mpi";
    let connect = connect.ok_or_else(|| unavailable(without.to_owned()))?;
    let session = connect(&about, i32::from(Exit::Unavailable as u8)).map_err(unavailable)?;
    let (process, processes) = (session.transport().process(), session.transport().processes());
    if (process, processes) != (launch.rank, launch.world) {
        let what = format!("MPI says process {process} of {processes}; with srun, give --mpi=pmix");
        return Err(unavailable(what));
    }
    // Programs run in the same order in all processes: one after another.
    let _already_built = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    Ok(Some(session))
}

/// Runs programs on the CPU, their ranks in the processes of a launch.
pub struct Group<'t> {
    processes: Processes<'t>,
    session: &'t dyn Messages,
}

impl Runner for Group<'_> {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn tolerance(&self) -> f64 {
        TOLERANCE
    }

    fn adapt(&self, case: Case) -> Case {
        case
    }

    fn measure(&self, program: &Program, inputs: Inputs) -> Result<Report, String> {
        let options = RunOptions { patience: PATIENCE, ..RunOptions::default() };
        match self.processes.measure(program, &inputs, &options) {
            // The others would wait for it in every case that follows.
            Err(silent @ CpuError::Silent { .. }) => give_up(self.session, Exit::Unavailable, &silent),
            other => other.map_err(|e| e.to_string()),
        }
    }
}
