//! Entry point of the `skewbench-mpi` binary: `skewbench` whose processes MPI connects.

/// As in `skewbench`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    skewbench::cli::main(Some(skewbench_mpi::connect))
}
