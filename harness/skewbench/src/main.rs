//! Entry point of the `skewbench` binary.

/// Plans are many small lists; this allocator takes a tenth off a whole run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    skewbench::cli::main(None)
}
