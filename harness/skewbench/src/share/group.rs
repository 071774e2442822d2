use std::time::Duration;

use skewbench_cluster::Launch;
use skewbench_cpu::{Inputs, Processes, Report, RunOptions, TOLERANCE};
use skewbench_exec::Program;
use skewbench_verify::{Case, Runner};

use super::messages::{Connect, Messages};
use crate::failure::{Exit, Failure};

/// How long ranks wait for each other in a program before they give it up: less than survivors of a fault may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let result = work(Some(&Group(Processes::new(session.transport()))));
    if let Err(failure) = &result
        && failure.exit == Exit::Interrupted
    {
        eprintln!("error: rank {} on {}: {failure}", launch.rank, launch.host);
        session.abort(i32::from(failure.exit as u8));
    }
    result
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
pub struct Group<'t>(Processes<'t>);

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
        self.0.measure(program, &inputs, &options).map_err(|e| e.to_string())
    }
}
