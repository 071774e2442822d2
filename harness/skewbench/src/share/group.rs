use std::time::Duration;

use skewbench_cluster::Launch;
use skewbench_cpu::{Inputs, MpiSession, Processes, Report, RunOptions, TOLERANCE, Transport};
use skewbench_exec::Program;
use skewbench_verify::{Case, Runner};

use crate::failure::{Exit, Failure};

/// How long ranks wait for each other in a program before they give it up: less than survivors of a fault may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects the processes of a launch by MPI; none for a process alone.
///
/// # Errors
/// A program without MPI, an MPI that cannot be used, and one that sees another launch than the variables say.
pub fn connect(launch: &Launch) -> Result<Option<MpiSession>, Failure> {
    if launch.world == 1 {
        return Ok(None);
    }
    let unavailable = |what: String| Failure::new(Exit::Unavailable, format!("{}: {what}", launch.describe()));
    let about = format!("{} (process {})", launch.host, std::process::id());
    let session = MpiSession::start(&about, i32::from(Exit::Unavailable as u8)).map_err(unavailable)?;
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

impl<'t> Group<'t> {
    /// The processes of a transport.
    pub fn new(transport: &'t dyn Transport) -> Self {
        Self(Processes::new(transport))
    }
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
        self.0.measure(program, &inputs, &options).map_err(|e| e.to_string())
    }
}
