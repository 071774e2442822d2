//! Entry point of the `skewbench` binary.

fn main() -> std::process::ExitCode {
    skewbench::cli::main()
}
