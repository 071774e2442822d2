//! Checks, on machines without cards, what processes tell each other over MPI: what all bring, and the names of communicators of
//! processes that have a card each. Then times what the processes need to agree that a wave has ended.
//!
//!     mpirun -n 2 target/release/examples/mpi_check

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skewbench_cluster::Launch;
use skewbench_cpu::Transport;
use skewbench_cuda::run::{Courier, Rendezvous};
use skewbench_mpi::{Blobs, MpiSession};

const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of the name of a communicator.
const NAME: usize = 128;
const WARM_UP: usize = 200;
const WAVES: usize = 2000;

fn main() -> ExitCode {
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<(), String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| e.to_string())?;
    let launch = Launch::detect(host.trim(), |name| std::env::var(name).ok()).map_err(|e| e.to_string())?;
    let session = Arc::new(MpiSession::start(&launch.host, 1)?);
    let (process, processes) = (session.process(), session.processes());
    let blobs = Arc::new(Blobs::new(Arc::clone(&session) as Arc<dyn Transport>));
    names(Arc::clone(&blobs) as Arc<dyn Courier>, &launch)?;
    for turn in 0..100u32 {
        let of = |process: u32| [turn.to_le_bytes(), process.to_le_bytes()].concat();
        if blobs.exchange(&of(process), LIMIT)? != (0..processes).map(of).collect::<Vec<_>>() {
            return Err(format!("process {process} got something else in turn {turn}"));
        }
    }
    let mut times = Vec::with_capacity(WAVES);
    for _ in 0..WARM_UP + WAVES {
        let began = Instant::now();
        blobs.exchange(&[], LIMIT)?;
        times.push(began.elapsed());
    }
    let mut times = times.split_off(WARM_UP);
    times.sort_unstable();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    if process == 0 {
        println!(
            "{processes} processes told each other names of communicators; they agree on the end of a wave in {:.1} us \
             (median of {WAVES}; a tenth take more than {:.1} us)",
            us(times[WAVES / 2]),
            us(times[WAVES * 9 / 10])
        );
    }
    Ok(())
}

/// Every process names a communicator to all others, as the first rank of a group of cards does with an id of NCCL.
fn names(courier: Arc<dyn Courier>, launch: &Launch) -> Result<(), String> {
    let place = Rendezvous::of_courier(&courier, launch, LIMIT).map_err(|e| e.to_string())?;
    let id = |rank: usize| (0..NAME).map(|i| (i * 7 + rank * 31) as u8).collect::<Vec<_>>();
    let name = |rank: usize| format!("nccl-1.{rank}.0");
    place.publish_name(&name(place.rank()), &id(place.rank())).map_err(|e| e.to_string())?;
    for rank in (0..place.ranks()).filter(|rank| *rank != place.rank()) {
        if place.wait_name(&name(rank), rank, LIMIT).map_err(|e| e.to_string())? != id(rank) {
            return Err(format!("the name of rank {rank}'s communicator came out as another one"));
        }
    }
    place.barrier("the end", LIMIT).map_err(|e| e.to_string())
}
